//! Starting a machine.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hutch_jail::cgroup::Group;
use hutch_protocol::machine::Configure;
use hutch_units::Bytes;
use tokio::sync::{oneshot, watch};

use super::console::Console;
use super::launch::{self, LaunchError};
use super::plan;
use super::process::{self, Process};
use super::teardown::teardown;
use super::user_mode::Shared;
use crate::agent::{self, Client, ClientError};
use crate::engine::StartError;
use crate::machine::{EngineKind, Exit, Machine, MachineRecord, MachineSpec, StartTimes, host_boot_id};

/// Bytes of the host's entropy that a guest begins with.
const ENTROPY: usize = 256;

/// Starts a machine in a task of its own, which outlives a caller that goes away and then cleans up.
pub(super) async fn start(shared: Arc<Shared>, spec: MachineSpec) -> Result<Machine, StartError> {
    let (result, arrival) = oneshot::channel();
    // Nothing is ever sent: it is the drop that tells.
    let (caller, caller_gone) = oneshot::channel::<Infallible>();
    let id = spec.id;
    tokio::spawn(async move {
        let outcome = run(&shared, &spec, caller_gone).await;
        let unclaimed = outcome.map(|machine| Unclaimed { machine: Some(machine), shared, spec });
        // When nobody takes it, it is dropped here and sees to its own removal.
        drop(result.send(unclaimed));
    });
    let arrived: Result<Result<Unclaimed, StartError>, _> = arrival.await;
    drop(caller);
    match arrived {
        Ok(outcome) => outcome.map(Unclaimed::claim),
        Err(_) => {
            let source = io::Error::other("the task that starts it has panicked");
            Err(StartError::Host { id, operation: "starting", source })
        }
    }
}

/// A machine that nobody has taken over yet.
#[derive(Debug)]
struct Unclaimed {
    machine: Option<Machine>,
    shared: Arc<Shared>,
    spec: MachineSpec,
}

impl Unclaimed {
    fn claim(mut self) -> Machine {
        self.machine.take().expect("taken only here, which takes self")
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let Some(machine) = self.machine.take() else { return };
        let (shared, spec) = (Arc::clone(&self.shared), self.spec.clone());
        // Outside of a runtime everything ends, and the next service finds what is left by the sandbox's id.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let _lock = shared.lock(spec.id).await;
            clean(&shared, &spec, Some(&machine.record)).await;
        });
    }
}

/// A start from end to end; when it fails, or the caller goes, nothing is left.
async fn run(
    shared: &Shared,
    spec: &MachineSpec,
    caller_gone: oneshot::Receiver<Infallible>,
) -> Result<Machine, StartError> {
    let began = Instant::now();
    let _lock = shared.lock(spec.id).await;
    let launched = launch(shared, spec, began).await?;
    let deadline = shared.options.start_deadline.saturating_sub(began.elapsed());
    let started = tokio::select! {
        started = boot(spec, &launched, deadline) => started,
        _ = caller_gone => Err(StartError::Host {
            id: spec.id,
            operation: "waiting for the guest",
            source: io::Error::new(io::ErrorKind::Interrupted, "the caller has gone"),
        }),
    };
    match started {
        Ok((agent, boot, configure)) => {
            let times = StartTimes { launch: launched.took, boot, configure };
            Ok(Machine::new(launched.record, agent, Some(times), launched.exit))
        }
        Err(error) => {
            clean(shared, spec, Some(&launched.record)).await;
            Err(error)
        }
    }
}

/// Removes what a start has made. What stays is found again by whoever destroys the sandbox.
async fn clean(shared: &Shared, spec: &MachineSpec, record: Option<&MachineRecord>) {
    if let Err(error) = teardown(shared, spec, record).await {
        tracing::warn!(sandbox = %spec.id, error = &error as &dyn std::error::Error, "leftovers of a start remain");
    }
}

/// A kernel that runs, and what is known of it.
#[derive(Debug)]
struct Launched {
    record: MachineRecord,
    exit: watch::Receiver<Option<Exit>>,
    console: Console,
    took: Duration,
}

async fn launch(shared: &Shared, spec: &MachineSpec, began: Instant) -> Result<Launched, StartError> {
    let id = spec.id;
    let host = |operation| move |source| StartError::Host { id, operation, source };
    let guest = shared.guest().await.map_err(StartError::Guest)?;
    let group = shared.group(id).await.map_err(|source| StartError::Cgroup { id, source })?;
    let disk = check_inputs(spec)?;
    let console = Console::create().map_err(host("making the console"))?;
    let writer = console.writer().map_err(host("making the console"))?;
    let specification = plan::specification(spec, guest, group.clone(), disk);
    let started = match launch::launch(&shared.launcher, &specification, writer).await {
        Ok(started) => started,
        Err(LaunchError::Jail(source)) => return Err(StartError::Jail { id, source }),
        Err(LaunchError::Launcher(source)) => {
            clean(shared, spec, None).await;
            return Err(StartError::Launcher { id, launcher: shared.launcher.clone(), source });
        }
    };
    let record = MachineRecord {
        format: MachineRecord::FORMAT.to_owned(),
        version: MachineRecord::VERSION,
        engine: EngineKind::Usermode,
        pid: started.pid,
        start_time: started.start_time,
        boot_id: host_boot_id().map_err(host("reading the host's boot id"))?,
        kernel_digest: guest.manifest.kernel_digest.clone(),
        cgroups: group.directories.iter().map(|directory| directory.path.clone()).collect(),
    };
    match watch(shared, spec, &record, console, group) {
        Ok((exit, console)) => Ok(Launched { record, exit, console, took: began.elapsed() }),
        Err(source) => {
            clean(shared, spec, Some(&record)).await;
            Err(StartError::Host { id, operation: "watching the guest's kernel", source })
        }
    }
}

/// The kernel is our child, or its zombie, so its id is its own until the watcher takes its status.
fn watch(
    shared: &Shared,
    spec: &MachineSpec,
    record: &MachineRecord,
    console: Console,
    group: Group,
) -> io::Result<(watch::Receiver<Option<Exit>>, Console)> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, "it is gone already");
    let process = Process::open_any(record.pid)?.ok_or_else(gone)?;
    let shown = console.another()?;
    let exit = process::watch(process, console, group, Some(spec.console_log()))?;
    shared.set_watched(spec.id, exit.clone());
    Ok((exit, shown))
}

/// Files that a launch would only fail on later, with less to say. Returns the disk's size.
fn check_inputs(spec: &MachineSpec) -> Result<Bytes, StartError> {
    let look = |path: &Path, role: &'static str, fits: fn(&std::fs::Metadata) -> bool, kind: &str| {
        let metadata = std::fs::metadata(path).and_then(|metadata| {
            let wrong = || io::Error::new(io::ErrorKind::InvalidInput, format!("it is not a {kind}"));
            fits(&metadata).then_some(metadata).ok_or_else(wrong)
        });
        metadata.map_err(|source| StartError::Input { id: spec.id, role, path: path.to_owned(), source })
    };
    look(&spec.state_dir, "state directory", std::fs::Metadata::is_dir, "directory")?;
    look(&spec.base_image, "base image", std::fs::Metadata::is_file, "regular file")?;
    let disk = look(&spec.disk, "disk", std::fs::Metadata::is_file, "regular file")?;
    Ok(Bytes(disk.len()))
}

/// From the kernel's first instruction to the agent's acknowledgement: the agent, and how long the two phases took.
async fn boot(
    spec: &MachineSpec,
    launched: &Launched,
    deadline: Duration,
) -> Result<(Client, Duration, Duration), StartError> {
    let id = spec.id;
    let mut exit = launched.exit.clone();
    let answered = async {
        let began = Instant::now();
        let agent = Client::connect(&spec.socket(), agent::Options::default(), deadline).await?;
        let connected = Instant::now();
        agent.deadline(deadline).configure(&configure(spec)).await?;
        Ok((agent, connected - began, connected.elapsed()))
    };
    let outcome = tokio::select! {
        // An agent that goes with its kernel is the kernel's end, so that is looked at first.
        biased;
        ended = exit.wait_for(Option::is_some) => Err(ended.ok().and_then(|ended| ended.clone())),
        answered = tokio::time::timeout(deadline, answered) => Ok(answered),
    };
    match outcome {
        Ok(Ok(Ok(ready))) => Ok(ready),
        Ok(Err(_) | Ok(Err(ClientError::Deadline { .. }))) => {
            Err(StartError::Silent { id, deadline, console: launched.console.tail() })
        }
        Ok(Ok(Err(source))) => {
            // A lost connection is most often a lost kernel whose end is just being noticed.
            let ended = tokio::time::timeout(Duration::from_secs(1), exit.wait_for(Option::is_some)).await;
            match ended.ok().and_then(|ended| ended.ok().and_then(|ended| ended.clone())) {
                Some(exit) => Err(StartError::Ended { id, reason: exit.reason, console: exit.console }),
                None => Err(StartError::Agent { id, source }),
            }
        }
        Err(Some(exit)) => Err(StartError::Ended { id, reason: exit.reason, console: exit.console }),
        Err(None) => {
            let source = io::Error::other("the runtime ends");
            Err(StartError::Host { id, operation: "watching the guest's kernel", source })
        }
    }
}

/// What the guest is told before anything of the user's runs.
pub(super) fn configure(spec: &MachineSpec) -> Configure {
    let mut entropy = vec![0; ENTROPY];
    let mut filled = 0;
    while filled < ENTROPY {
        let rest = entropy.get_mut(filled..).unwrap_or_default();
        // Blocks until the host's own generator is seeded, which it is long before any service runs.
        filled += rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Configure {
        hostname: spec.hostname.clone(),
        wall_ns: u64::try_from(now.as_nanos()).ok(),
        entropy,
        env: BTreeMap::new(),
        memory_reserve_bytes: None,
        processes_max: Some(u64::from(plan::guest_processes(spec.memory))),
        ..Configure::default()
    }
}
