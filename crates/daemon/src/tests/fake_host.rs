//! A host in memory, on which daemons come and go: an engine and a source of images and disks whose every step can
//! be made to fail, or to be the one at which the daemon is killed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use hutch_engine::agent::{Client, Options};
use hutch_engine::artefact::{Artefact, ArtefactKind};
use hutch_engine::engine::AuditError;
use hutch_engine::finding::Finding;
use hutch_engine::guest::GuestError;
use hutch_engine::machine::{Exit, ExitReason, StartTimes};
use hutch_engine::snapshot::{Identity, Saved, file, partial};
use hutch_engine::{
    AdoptError, DestroyError, Engine, EngineFuture, EngineKind, Machine, MachineRecord, MachineSpec, Origin, Prepared,
    Save, SaveError, SnapshotError, SnapshotManifest, StartError, TemplateSpec, Then,
};
use hutch_image::{Cancel, Event, UnknownImage};
use hutch_units::{Bytes, Mebibytes, SandboxId};
use tokio::sync::watch;

use super::fake_agent::FakeAgent;
use crate::clock::Moment;
use crate::images::{CatalogueEntry, ImageSource, ReadyImage, SourceError};

/// Where a machine's processor time is counted, in its state directory.
const CGROUP: &str = "cgroup";
const COUNTER: &str = "cpuacct.usage";

/// The boundaries between the steps of making and taking down a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Point {
    DiskBefore,
    DiskMade,
    StartBefore,
    StartCgroup,
    StartProcess,
    StartDone,
    ActivateBefore,
    ActivateDone,
    TemplateBefore,
    TemplateDone,
    /// The kernel was not asked yet.
    SaveBefore,
    /// The kernel has written itself, and ended if it was to; the saved machine has no name yet.
    SaveWritten,
    SaveDone,
    AdoptBefore,
    DestroyBefore,
    DestroyProcess,
    DestroyDone,
}

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Work stops there for ever: the daemon is about to be killed.
    Halt,
    /// The step fails, this often.
    Fail(u32),
}

/// The host. What lies on it stays when a daemon goes.
#[derive(Debug, Default)]
pub(crate) struct FakeHost {
    state: Mutex<State>,
    changed: Condvar,
    pids: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    cgroups: HashMap<SandboxId, u32>,
    machines: HashMap<SandboxId, FakeMachine>,
    strays: Vec<Artefact>,
    faults: HashMap<Point, Fault>,
    halted: Vec<Point>,
    released: bool,
    /// Whether guests work as soon as they go on.
    busy: bool,
}

#[derive(Debug)]
struct FakeMachine {
    pid: u32,
    agent: FakeAgent,
    exit: watch::Sender<Option<Exit>>,
    silent: bool,
    disk: PathBuf,
    /// How much its processes have done, which they also keep on the disk.
    done: u64,
    /// Whether it has its own identity, and was not just booted.
    identity: Option<Identity>,
}

impl FakeHost {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { pids: AtomicU32::new(1000), ..Self::default() })
    }

    /// Arms a point.
    pub(crate) fn arm(&self, point: Point, fault: Fault) {
        self.state().faults.insert(point, fault);
    }

    /// Takes all faults away, and lets threads go that were halted.
    pub(crate) fn disarm(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.halted.clear();
        state.released = true;
        self.changed.notify_all();
    }

    /// Waits, blocking, until work has halted at a point.
    pub(crate) fn until_halted(&self, point: Point) {
        let mut state = self.state();
        while !state.halted.contains(&point) {
            let (next, waited) = self.changed.wait_timeout(state, Duration::from_secs(30)).unwrap();
            assert!(!waited.timed_out(), "nothing came to {point:?}");
            state = next;
        }
    }

    /// The sandboxes that have a machine.
    pub(crate) fn machines(&self) -> Vec<SandboxId> {
        self.state().machines.keys().copied().collect()
    }

    /// Lets guests work, or not, as soon as they go on.
    pub(crate) fn keep_busy(&self, busy: bool) {
        self.state().busy = busy;
    }

    /// A guest does something, in memory and on its disk; how much it has done then. `None` when it does not run.
    pub(crate) fn work(&self, id: SandboxId) -> Option<u64> {
        let mut state = self.state();
        let machine = state.machines.get_mut(&id)?;
        machine.done += 1;
        std::fs::write(&machine.disk, machine.done.to_string()).unwrap();
        Some(machine.done)
    }

    /// How much a guest has done.
    pub(crate) fn done(&self, id: SandboxId) -> Option<u64> {
        self.state().machines.get(&id).map(|machine| machine.done)
    }

    /// As whom a machine began; `None` for one that was booted.
    pub(crate) fn identity(&self, id: SandboxId) -> Option<Identity> {
        self.state().machines.get(&id).and_then(|machine| machine.identity)
    }

    /// A guest uses the processor.
    pub(crate) fn burn(&self, id: SandboxId, time: Duration) {
        let directory = self.state().machines[&id].disk.with_file_name(CGROUP);
        let file = directory.join(COUNTER);
        let before: u128 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        std::fs::write(file, (before + time.as_nanos()).to_string()).unwrap();
    }

    /// Kills a machine.
    pub(crate) fn kill(&self, id: SandboxId) {
        let machine = self.state().machines.remove(&id).expect("there is such a machine");
        machine.exit.send_replace(Some(exit()));
    }

    /// Cuts the connection to a machine's agent.
    pub(crate) fn cut(&self, id: SandboxId) {
        self.state().machines[&id].agent.cut();
    }

    /// Lets the agents of these machines not answer.
    pub(crate) fn silence(&self, ids: &[SandboxId]) {
        for id in ids {
            self.state().machines.get_mut(id).expect("there is such a machine").silent = true;
        }
    }

    /// Puts something on the host that belongs to nobody.
    pub(crate) fn stray(&self, name: &str, sandbox: Option<SandboxId>) {
        let kind = ArtefactKind::Cgroup { path: name.into() };
        self.state().strays.push(Artefact { kind, name: name.to_owned(), sandbox });
    }

    /// Everything that an engine can see.
    pub(crate) fn all(&self) -> Vec<Artefact> {
        let state = self.state();
        let cgroups = state.cgroups.keys().map(|id| Artefact {
            kind: ArtefactKind::Cgroup { path: format!("/cgroup/{id}").into() },
            name: format!("/cgroup/{id}"),
            sandbox: Some(*id),
        });
        let processes = state.machines.iter().map(|(id, machine)| Artefact {
            kind: ArtefactKind::Process { pid: machine.pid, start_time: 1 },
            name: format!("pid {}", machine.pid),
            sandbox: Some(*id),
        });
        cgroups.chain(processes).chain(state.strays.iter().cloned()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What is to happen at a point; notes a halt.
    fn fault(&self, point: Point) -> Option<Fault> {
        let mut state = self.state();
        let fault = state.faults.get(&point).copied()?;
        match fault {
            Fault::Halt => {
                state.halted.push(point);
                state.released = false;
                self.changed.notify_all();
            }
            Fault::Fail(1) => drop(state.faults.remove(&point)),
            Fault::Fail(times) => drop(state.faults.insert(point, Fault::Fail(times - 1))),
        }
        Some(fault)
    }

    /// Passes a point in a task.
    async fn pass(&self, point: Point) -> Result<(), std::io::Error> {
        match self.fault(point) {
            Some(Fault::Halt) => std::future::pending().await,
            Some(Fault::Fail(_)) => Err(std::io::Error::other(format!("{point:?} fails"))),
            None => Ok(()),
        }
    }

    /// Passes a point on a thread that may block.
    fn pass_blocking(&self, point: Point) -> Result<(), SourceError> {
        match self.fault(point) {
            Some(Fault::Halt) => {
                let mut state = self.state();
                while !state.released {
                    state = self.changed.wait(state).unwrap();
                }
                Err(SourceError { what: format!("{point:?}"), source: "the daemon was killed here".into() })
            }
            Some(Fault::Fail(_)) => Err(SourceError { what: format!("{point:?}"), source: "it fails".into() }),
            None => Ok(()),
        }
    }

    async fn connect(&self, spec: &MachineSpec) -> Result<Client, std::io::Error> {
        let client = Client::connect(&spec.socket(), Options::default(), Duration::from_secs(10)).await;
        client.map_err(std::io::Error::other)
    }
}

/// Makes what counts a machine's processor time.
fn count_from_zero(state_dir: &Path) -> std::io::Result<PathBuf> {
    let cgroup = state_dir.join(CGROUP);
    std::fs::create_dir_all(&cgroup)?;
    std::fs::write(cgroup.join(COUNTER), "0")?;
    Ok(cgroup)
}

fn exit() -> Exit {
    Exit { at: SystemTime::now(), reason: ExitReason::Signalled { signal: 9 }, console: String::new() }
}

fn record(pid: u32) -> MachineRecord {
    MachineRecord {
        format: MachineRecord::FORMAT.to_owned(),
        version: MachineRecord::VERSION,
        engine: EngineKind::Usermode,
        pid,
        start_time: 1,
        boot_id: "boot".to_owned(),
        kernel_digest: String::new(),
        boot_image_digest: String::new(),
        template: None,
        cgroups: Vec::new(),
    }
}

/// What the fake writes of a saved machine; `saved` as the real one has it.
fn manifest(spec: &MachineSpec, key: Option<&str>, template: Option<&str>) -> SnapshotManifest {
    SnapshotManifest {
        format: SnapshotManifest::FORMAT.to_owned(),
        version: SnapshotManifest::VERSION,
        engine: EngineKind::Usermode,
        kernel_digest: "kernel".to_owned(),
        boot_image_digest: "boot".to_owned(),
        base_image: spec.base_image.clone(),
        memory: spec.memory,
        disk: Bytes(std::fs::metadata(&spec.disk).map_or(0, |metadata| metadata.len())),
        key: key.map(str::to_owned),
        template: template.map(str::to_owned),
        processor: "processor".to_owned(),
        saved_at_ns: 1,
        saved: None,
    }
}

/// Writes a saved machine under its name for the time of writing.
fn write_partial(directory: &Path, draft: &SnapshotManifest) -> std::io::Result<PathBuf> {
    let partial = partial(directory);
    if partial.exists() {
        std::fs::remove_dir_all(&partial)?;
    }
    std::fs::create_dir(&partial)?;
    std::fs::write(partial.join(file::MANIFEST), serde_json::to_vec(draft)?)?;
    std::fs::write(partial.join(file::MEMORY), b"memory")?;
    Ok(partial)
}

/// Gives it its name.
fn publish(directory: &Path, draft: SnapshotManifest) -> std::io::Result<SnapshotManifest> {
    let partial = partial(directory);
    let saved = Saved { state_digest: "digest".to_owned(), bytes: Bytes(4096), stopped_us: Some(1) };
    let manifest = SnapshotManifest { saved: Some(saved), ..draft };
    std::fs::write(partial.join(file::MANIFEST), serde_json::to_vec(&manifest)?)?;
    std::fs::rename(partial, directory)?;
    Ok(manifest)
}

impl Engine for FakeHost {
    fn kind(&self) -> EngineKind {
        EngineKind::Usermode
    }

    fn probe(&self) -> EngineFuture<'_, Vec<Finding>> {
        Box::pin(async { vec![Finding::good("everything", "in memory")] })
    }

    fn start<'a>(&'a self, spec: &'a MachineSpec, origin: &'a Origin) -> EngineFuture<'a, Result<Machine, StartError>> {
        Box::pin(async move {
            let prepared = self.prepare(spec, origin).await?;
            self.activate(prepared, spec).await
        })
    }

    fn activate<'a>(
        &'a self,
        prepared: Prepared,
        spec: &'a MachineSpec,
    ) -> EngineFuture<'a, Result<Machine, StartError>> {
        Box::pin(async move {
            let id = spec.id;
            let failed = |source| StartError::Host { id, operation: "activate", source };
            self.pass(Point::ActivateBefore).await.map_err(failed)?;
            let exited = self.state().machines.get(&id).map(|machine| machine.exit.subscribe());
            let exited = exited.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
            self.pass(Point::ActivateDone).await.map_err(failed)?;
            Ok(Machine::new(prepared.record, prepared.agent, Some(prepared.times), exited))
        })
    }

    fn template_key<'a>(
        &'a self,
        base_image: &'a Path,
        memory: Mebibytes,
        disk: Mebibytes,
    ) -> EngineFuture<'a, Result<String, GuestError>> {
        let image = base_image.file_name().map(|name| name.to_string_lossy().replace('.', "-")).unwrap_or_default();
        Box::pin(async move { Ok(format!("{image}-{}-{}", memory.0, disk.0)) })
    }

    fn make_template<'a>(
        &'a self,
        template: &'a TemplateSpec,
    ) -> EngineFuture<'a, Result<SnapshotManifest, SaveError>> {
        Box::pin(async move {
            let spec = template.machine();
            let failed = |source| SaveError::Write { path: template.directory.clone(), source };
            self.pass(Point::TemplateBefore).await.map_err(failed)?;
            let key = template.key.clone();
            let started = self.prepare(&spec, &Origin::Boot).await;
            started.map_err(|source| SaveError::Start { key, source: Box::new(source) })?;
            let draft = manifest(&spec, Some(&template.key), None);
            let partial = write_partial(&template.directory, &draft).map_err(failed)?;
            std::fs::write(partial.join(file::STATE), b"UMLSTATE").map_err(failed)?;
            std::fs::rename(&template.disk, partial.join(file::DISK)).map_err(failed)?;
            let saved = publish(&template.directory, draft).map_err(failed)?;
            let key = template.key.clone();
            let destroyed = self.destroy(&spec, None).await;
            destroyed.map_err(|source| SaveError::Remove { key, source: Box::new(source) })?;
            self.pass(Point::TemplateDone).await.map_err(failed)?;
            Ok(saved)
        })
    }

    fn save<'a>(
        &'a self,
        spec: &'a MachineSpec,
        machine: &'a Machine,
        save: &'a Save,
    ) -> EngineFuture<'a, Result<SnapshotManifest, SaveError>> {
        Box::pin(async move {
            let failed = |source| SaveError::Write { path: save.directory.clone(), source };
            let draft = manifest(spec, None, machine.record.template.as_deref());
            let partial = write_partial(&save.directory, &draft).map_err(failed)?;
            if let Err(error) = self.pass(Point::SaveBefore).await {
                std::fs::remove_dir_all(&partial).map_err(failed)?;
                return Err(failed(error));
            }
            if self.state().machines.get(&spec.id).is_none_or(|machine| machine.exit.borrow().is_some()) {
                std::fs::remove_dir_all(&partial).map_err(failed)?;
                return Err(SaveError::Ended { id: spec.id });
            }
            let done = self.done(spec.id).unwrap_or_default();
            std::fs::write(partial.join(file::MEMORY), done.to_string()).map_err(failed)?;
            std::fs::write(partial.join(file::STATE), b"UMLSTATE").map_err(failed)?;
            match &save.then {
                Then::End => {
                    let ended = self.state().machines.remove(&spec.id);
                    if let Some(machine) = ended {
                        let reason = ExitReason::Exited { status: 4 };
                        machine.exit.send_replace(Some(Exit { reason, ..exit() }));
                    }
                }
                Then::GoOn { disk_copy } => {
                    std::fs::copy(&spec.disk, disk_copy).map_err(failed)?;
                }
            }
            self.pass(Point::SaveWritten).await.map_err(failed)?;
            let saved = publish(&save.directory, draft).map_err(failed)?;
            self.pass(Point::SaveDone).await.map_err(failed)?;
            Ok(saved)
        })
    }

    fn finish_save<'a>(&'a self, directory: &'a Path) -> EngineFuture<'a, Result<Option<SnapshotManifest>, SaveError>> {
        Box::pin(async move {
            if let Ok(manifest) = SnapshotManifest::read(directory) {
                return Ok(manifest.saved.is_some().then_some(manifest));
            }
            let partial = partial(directory);
            let failed = |source| SaveError::Write { path: partial.clone(), source };
            match SnapshotManifest::read(&partial) {
                Ok(draft) if partial.join(file::STATE).exists() => publish(directory, draft).map(Some).map_err(failed),
                _ if partial.exists() => std::fs::remove_dir_all(&partial).map(|()| None).map_err(failed),
                _ => Ok(None),
            }
        })
    }

    fn verify<'a>(&'a self, directory: &'a Path) -> EngineFuture<'a, Result<SnapshotManifest, SnapshotError>> {
        Box::pin(async move {
            let manifest = SnapshotManifest::read(directory)?;
            match manifest.saved {
                Some(_) => Ok(manifest),
                None => Err(SnapshotError::Incomplete { directory: directory.to_owned() }),
            }
        })
    }

    fn prepare<'a>(
        &'a self,
        spec: &'a MachineSpec,
        origin: &'a Origin,
    ) -> EngineFuture<'a, Result<Prepared, StartError>> {
        Box::pin(async move {
            let id = spec.id;
            let failed = |source| StartError::Host { id, operation: "start", source };
            assert!(spec.disk.exists(), "the disk is made before the machine");
            let (mut template, mut identity) = (None, None);
            let on_disk = std::fs::read_to_string(&spec.disk).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut done: u64 = on_disk;
            if let Origin::Saved { directory, identity: given, .. } = origin {
                identity = Some(*given);
                let memory = std::fs::read_to_string(directory.join(file::MEMORY)).unwrap_or_default();
                done = memory.parse().unwrap_or(0);
                assert_eq!(done, on_disk, "memory is put beside a disk that it does not belong to");
                let manifest = SnapshotManifest::read(directory);
                let manifest = manifest.map_err(|source| StartError::Snapshot { id, source })?;
                template = manifest.base_key().map(str::to_owned);
            }
            self.pass(Point::StartBefore).await.map_err(failed)?;
            {
                let mut state = self.state();
                assert!(!state.cgroups.values().any(|uid| *uid == spec.host_uid), "two sandboxes have one uid");
                assert!(state.cgroups.insert(id, spec.host_uid).is_none(), "a sandbox is started once");
            }
            self.pass(Point::StartCgroup).await.map_err(failed)?;
            let agent = FakeAgent::listen(&spec.socket()).map_err(failed)?;
            let pid = self.pids.fetch_add(1, Ordering::Relaxed);
            let (exit, exited) = watch::channel(None);
            let machine = FakeMachine { pid, agent, exit, silent: false, disk: spec.disk.clone(), done, identity };
            let busy = {
                let mut state = self.state();
                state.machines.insert(id, machine);
                state.busy
            };
            if busy {
                self.work(id);
            }
            self.pass(Point::StartProcess).await.map_err(failed)?;
            let client = self.connect(spec).await.map_err(failed)?;
            self.pass(Point::StartDone).await.map_err(failed)?;
            let record = MachineRecord {
                template,
                cgroups: vec![count_from_zero(&spec.state_dir).map_err(failed)?],
                ..record(pid)
            };
            Ok(Prepared::new(record, client, StartTimes::default(), exited, origin))
        })
    }

    fn adopt<'a>(
        &'a self,
        spec: &'a MachineSpec,
        record: &'a MachineRecord,
    ) -> EngineFuture<'a, Result<Machine, AdoptError>> {
        Box::pin(async move {
            let id = spec.id;
            let failed = |source| AdoptError::Host { id, operation: "adopt", source };
            self.pass(Point::AdoptBefore).await.map_err(failed)?;
            let found = self.state().machines.get(&id).map(|machine| {
                assert_eq!(machine.pid, record.pid);
                (machine.exit.subscribe(), machine.silent)
            });
            match found {
                None => Err(AdoptError::Gone { id, pid: record.pid }),
                Some((_, true)) => std::future::pending().await,
                Some((exited, false)) => {
                    let client = self.connect(spec).await.map_err(failed)?;
                    Ok(Machine::new(record.clone(), client, None, exited))
                }
            }
        })
    }

    fn destroy<'a>(
        &'a self,
        spec: &'a MachineSpec,
        _: Option<&'a MachineRecord>,
    ) -> EngineFuture<'a, Result<(), DestroyError>> {
        Box::pin(async move {
            let id = spec.id;
            let failed = |source| DestroyError::Host { id, operation: "destroy", source };
            self.pass(Point::DestroyBefore).await.map_err(failed)?;
            let machine = self.state().machines.remove(&id);
            if let Some(machine) = machine {
                machine.exit.send_replace(Some(exit()));
            }
            self.pass(Point::DestroyProcess).await.map_err(failed)?;
            self.state().cgroups.remove(&id);
            // Perhaps it did not come to have one.
            let _ = std::fs::remove_dir_all(spec.state_dir.join(CGROUP));
            self.pass(Point::DestroyDone).await.map_err(failed)
        })
    }

    fn artefacts(&self) -> EngineFuture<'_, Result<Vec<Artefact>, AuditError>> {
        Box::pin(async { Ok(self.all()) })
    }

    fn remove_artefact<'a>(&'a self, artefact: &'a Artefact) -> EngineFuture<'a, Result<(), AuditError>> {
        Box::pin(async move {
            let mut state = self.state();
            state.strays.retain(|stray| stray != artefact);
            if let Some(id) = artefact.sandbox {
                state.cgroups.remove(&id);
                state.machines.remove(&id);
            }
            Ok(())
        })
    }
}

impl ImageSource for FakeHost {
    fn catalogue(&self) -> Vec<CatalogueEntry> {
        vec![CatalogueEntry { name: "debian:13".to_owned(), description: "Debian".to_owned(), is_default: true }]
    }

    fn resolve(&self, name: &str) -> Result<String, UnknownImage> {
        match name {
            "" | "debian:13" => Ok("debian:13".to_owned()),
            other => Err(UnknownImage { name: other.to_owned(), choices: vec!["debian:13"] }),
        }
    }

    fn built(&self, _: &str) -> Option<ReadyImage> {
        Some(ReadyImage { path: PathBuf::from("/cache/debian.erofs"), size: Bytes(1), built_at: Moment(0) })
    }

    fn build(&self, _: &str, _: &dyn Fn(Event), _: &Cancel) -> Result<ReadyImage, SourceError> {
        unreachable!("the only image is built")
    }

    fn make_disk(&self, path: &Path, _: Mebibytes) -> Result<(), SourceError> {
        self.pass_blocking(Point::DiskBefore)?;
        let failed = |error: std::io::Error| SourceError { what: path.display().to_string(), source: Box::new(error) };
        std::fs::write(path, "disk").map_err(failed)?;
        self.pass_blocking(Point::DiskMade)
    }
}
