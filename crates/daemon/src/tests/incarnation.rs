//! Daemons that can be killed: each has a runtime of its own, which goes at once when the daemon does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hutch_api::{Caller, CreateSandbox};
use hutch_units::SandboxId;
use tokio::runtime::{Builder, Runtime};

use super::fake_host::FakeHost;
use crate::capacity::Bounds;
use crate::clock::{Clock, Moment};
use crate::config::Preparation;
use crate::core::{Core, Settings};
use crate::data_directory::DataDirectory;
use crate::lifecycle::State;
use crate::operations::Daemon;
use crate::serve::{Parts, Started};
use crate::store::{Filter, SandboxRow, query};

/// A host with a data directory, for any number of daemons one after the other.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) host: Arc<FakeHost>,
    pub(crate) clock: Clock,
    pub(crate) bounds: Bounds,
    pub(crate) preparation: Preparation,
    folder: tempfile::TempDir,
}

/// A daemon.
#[derive(Debug)]
pub(crate) struct Incarnation {
    pub(crate) started: Started,
    pub(crate) daemon: Daemon,
    pub(crate) caller: Caller,
    runtime: Runtime,
}

impl Life {
    pub(crate) fn new() -> Self {
        let bounds = Bounds {
            memory_mib: 1 << 20,
            memory_overcommit_percent: 100,
            memory_floor_mib: 0,
            sandboxes: 1000,
            disk_floor_bytes: 0,
            process_floor: 0,
        };
        Self {
            host: FakeHost::new(),
            clock: Clock::standing(Moment(1_700_000_000_000)),
            bounds,
            preparation: Preparation::NONE,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn data(&self) -> DataDirectory {
        DataDirectory::create(self.folder.path()).unwrap()
    }

    /// A daemon that has not looked yet at what the last one left.
    pub(crate) fn open(&self) -> Incarnation {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let data = self.data();
        let parts = Parts {
            lock: data.lock().expect("the last daemon is gone"),
            data,
            engine: Arc::clone(&self.host) as Arc<_>,
            images: Arc::clone(&self.host) as Arc<_>,
            clock: self.clock.clone(),
            bounds: self.bounds,
            settings: Settings {
                destroy_patience: Duration::from_secs(30),
                preparation: self.preparation,
                ..Settings::default()
            },
        };
        let started = runtime.block_on(Started::open(parts)).unwrap();
        let account = runtime.block_on(started.core.store.read("accounts", query::accounts)).unwrap().remove(0);
        let caller = Caller { account: account.id, key: "key-test".to_owned() };
        Incarnation { daemon: started.daemon(), started, caller, runtime }
    }

    /// A daemon that is ready.
    pub(crate) fn start(&self) -> Incarnation {
        let incarnation = self.open();
        incarnation.run(incarnation.started.recover());
        incarnation
    }
}

impl Incarnation {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.started.core
    }

    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Ends it as `kill -9` would, as far as a test in one process can: all its tasks stop where they are.
    pub(crate) fn kill(self) {
        let Self { started, daemon, runtime, .. } = self;
        // Some tasks may be in the midst of a poll, and a thread that is halted does not end at all.
        runtime.shutdown_timeout(Duration::from_millis(250));
        drop((started, daemon));
    }

    /// Every row of the store.
    pub(crate) fn rows(&self) -> Vec<SandboxRow> {
        let all = self.core().store.read("all", |db| query::list(db, &Filter::default(), 10_000, 0));
        self.run(all).unwrap().rows
    }

    /// Waits until a sandbox is in a state.
    pub(crate) fn until(&self, id: SandboxId, state: State) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.rows().iter().any(|row| row.id == id && row.state == state) {
            assert!(Instant::now() < deadline, "{id} does not come to be {state}");
            std::thread::yield_now();
        }
    }

    /// Waits until nobody is on the way to another state, and everything that ended is clean.
    pub(crate) fn settled(&self) -> Vec<SandboxRow> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let rows = self.rows();
            let at_rest =
                |row: &SandboxRow| !row.state.is_transient() && (!row.state.is_terminal() || row.slot.is_none());
            let connected = |row: &SandboxRow| {
                row.state != State::Running
                    || self.core().registry.find(row.id).is_some_and(|owner| owner.snapshot().machine.is_some())
            };
            let owned = |row: &&SandboxRow| matches!(row.state, State::Running | State::Paused | State::Error);
            let owned = rows.iter().filter(owned).count();
            let owners = self.core().registry.all().len();
            if rows.iter().all(|row| at_rest(row) && connected(row)) && owners == owned {
                return rows;
            }
            assert!(Instant::now() < deadline, "the sandboxes do not come to rest: {rows:?}");
            std::thread::yield_now();
        }
    }
}

/// A request for a small sandbox.
pub(crate) fn request() -> CreateSandbox {
    CreateSandbox { shape: "s-1vcpu-256mb".to_owned(), ..CreateSandbox::default() }
}
