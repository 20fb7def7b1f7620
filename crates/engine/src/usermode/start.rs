//! Starting a machine.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hutch_jail::cgroup::Group;
use hutch_units::{Bytes, SandboxId};
use tokio::sync::{oneshot, watch};

use super::configure::{Role, tell};
use super::console::Console;
use super::launch::{self, LaunchError};
use super::plan::{self, Resume};
use super::process::{self, Process};
use super::save;
use super::teardown::teardown;
use super::user_mode::Shared;
use crate::agent::{self, Client, ClientError};
use crate::engine::StartError;
use crate::guest::GuestFiles;
use crate::machine::{EngineKind, Exit, Machine, MachineRecord, MachineSpec, StartTimes, host_boot_id};
use crate::snapshot::{Origin, Prepared, SnapshotError, file};

/// For this long after its first word the clock of a guest that was saved is the one that its kernel took from the
/// host, which is better than what a message brings. Later somebody may have set the host's; and a boot is not exact.
const CLOCK_IS_RIGHT: Duration = Duration::from_secs(1);

/// Starts a machine: both halves.
pub(super) async fn start(shared: Arc<Shared>, spec: MachineSpec, origin: Origin) -> Result<Machine, StartError> {
    supervised(Arc::clone(&shared), spec.clone(), move |caller_gone| async move {
        let began = Instant::now();
        let _lock = shared.lock(spec.id).await;
        let prepared = prepare_locked(&shared, &spec, &origin, began, caller_gone).await?;
        activate_locked(&shared, &spec, prepared).await
    })
    .await
}

/// Starts a machine up to where its agent waits to be told who it is.
pub(super) async fn prepare(shared: Arc<Shared>, spec: MachineSpec, origin: Origin) -> Result<Prepared, StartError> {
    supervised(Arc::clone(&shared), spec.clone(), move |caller_gone| async move {
        let began = Instant::now();
        let _lock = shared.lock(spec.id).await;
        prepare_locked(&shared, &spec, &origin, began, caller_gone).await
    })
    .await
}

/// Tells a prepared machine who it is.
pub(super) async fn activate(
    shared: Arc<Shared>,
    spec: MachineSpec,
    prepared: Prepared,
) -> Result<Machine, StartError> {
    supervised(Arc::clone(&shared), spec.clone(), move |_| async move {
        let _lock = shared.lock(spec.id).await;
        activate_locked(&shared, &spec, prepared).await
    })
    .await
}

/// Something that a start returns and that must be removed when nobody takes it.
trait Started: Send + 'static {
    fn record(&self) -> &MachineRecord;
}

impl Started for Machine {
    fn record(&self) -> &MachineRecord {
        &self.record
    }
}

impl Started for Prepared {
    fn record(&self) -> &MachineRecord {
        &self.record
    }
}

/// Does a part of a start in a task of its own, which outlives a caller that goes away and then cleans up.
async fn supervised<T, F, W>(shared: Arc<Shared>, spec: MachineSpec, work: F) -> Result<T, StartError>
where
    T: Started,
    F: FnOnce(oneshot::Receiver<Infallible>) -> W + Send + 'static,
    W: Future<Output = Result<T, StartError>> + Send,
{
    let (result, arrival) = oneshot::channel();
    // Nothing is ever sent: it is the drop that tells.
    let (caller, caller_gone) = oneshot::channel::<Infallible>();
    let id = spec.id;
    tokio::spawn(async move {
        let outcome = work(caller_gone).await;
        let unclaimed = outcome.map(|started| Unclaimed { started: Some(started), shared, spec });
        // When nobody takes it, it is dropped here and sees to its own removal.
        drop(result.send(unclaimed));
    });
    let arrived: Result<Result<Unclaimed<T>, StartError>, _> = arrival.await;
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
struct Unclaimed<T: Started> {
    started: Option<T>,
    shared: Arc<Shared>,
    spec: MachineSpec,
}

impl<T: Started> Unclaimed<T> {
    fn claim(mut self) -> T {
        self.started.take().expect("taken only here, which takes self")
    }
}

impl<T: Started> Drop for Unclaimed<T> {
    fn drop(&mut self) {
        let Some(started) = self.started.take() else { return };
        let (shared, spec) = (Arc::clone(&self.shared), self.spec.clone());
        // Outside of a runtime everything ends, and the next service finds what is left by the sandbox's id.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let _lock = shared.lock(spec.id).await;
            clean(&shared, &spec, Some(started.record())).await;
        });
    }
}

/// The first half of a start; when it fails, or the caller goes, nothing is left. The caller holds the lock.
async fn prepare_locked(
    shared: &Shared,
    spec: &MachineSpec,
    origin: &Origin,
    began: Instant,
    caller_gone: oneshot::Receiver<Infallible>,
) -> Result<Prepared, StartError> {
    let launched = launch(shared, spec, origin, began).await?;
    let deadline = shared.options.start_deadline.saturating_sub(began.elapsed());
    let connecting = Instant::now();
    let connected = tokio::select! {
        connected = connect(spec, &launched, deadline) => connected,
        _ = caller_gone => Err(StartError::Host {
            id: spec.id,
            operation: "waiting for the guest",
            source: io::Error::new(io::ErrorKind::Interrupted, "the caller has gone"),
        }),
    };
    match connected {
        Ok(agent) => {
            let times =
                StartTimes { launch: launched.took, boot: connecting.elapsed(), configure: Duration::default() };
            Ok(Prepared::new(launched.record, agent, times, launched.exit, origin))
        }
        Err(error) => {
            clean(shared, spec, Some(&launched.record)).await;
            Err(error)
        }
    }
}

/// The second half of a start; when it fails nothing is left. The caller holds the lock.
async fn activate_locked(shared: &Shared, spec: &MachineSpec, prepared: Prepared) -> Result<Machine, StartError> {
    let Prepared { record, agent, mut times, exit, continues, renamed, since } = prepared;
    let deadline = shared.options.start_deadline;
    let began = Instant::now();
    let role = Role { continues, renamed, timed: continues && since.elapsed() < CLOCK_IS_RIGHT };
    let client = agent.deadline(deadline);
    let answered = alive(spec, &exit, deadline, None, tell(&client, spec, role)).await;
    times.configure = began.elapsed();
    match answered {
        Ok(_) => Ok(Machine::new(record, agent, Some(times), exit)),
        Err(error) => {
            clean(shared, spec, Some(&record)).await;
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

/// What a kernel begins with: the guest's files, and those of the saved machine.
async fn beginning(
    shared: &Shared,
    id: SandboxId,
    origin: &Origin,
) -> Result<(GuestFiles, Option<Resume>, Option<String>), StartError> {
    let Origin::Saved { directory, template, identity } = origin else {
        return Ok((shared.guest().await.map_err(StartError::Guest)?.clone(), None, None));
    };
    let unusable = |source| StartError::Snapshot { id, source };
    let checked = save::check(shared, directory).await.map_err(StartError::Guest)?;
    let (manifest, guest) = checked.map_err(unusable)?;
    let mut layers = vec![directory.join(file::MEMORY)];
    if let Some(wanted) = &manifest.template {
        let given = template.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let Some(base) = template.as_ref().filter(|_| given.as_ref() == Some(wanted)) else {
            let given = given.unwrap_or_else(|| "none".to_owned());
            let (directory, wanted) = (directory.clone(), wanted.clone());
            return Err(unusable(SnapshotError::Template { directory, wanted, given }));
        };
        layers.insert(0, base.join(file::MEMORY));
    }
    let resume = Resume { state: directory.join(file::STATE), layers, identity: *identity };
    Ok((guest, Some(resume), manifest.base_key().map(str::to_owned)))
}

async fn launch(shared: &Shared, spec: &MachineSpec, origin: &Origin, began: Instant) -> Result<Launched, StartError> {
    let id = spec.id;
    let host = |operation| move |source| StartError::Host { id, operation, source };
    let (guest, resume, template) = beginning(shared, id, origin).await?;
    let group = shared.group(id).await.map_err(|source| StartError::Cgroup { id, source })?;
    let disk = check_inputs(spec)?;
    let console = Console::create().map_err(host("making the console"))?;
    let writer = console.writer().map_err(host("making the console"))?;
    let specification = plan::specification(spec, &guest, group.clone(), disk, resume.as_ref());
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
        kernel_digest: guest.manifest.kernel_digest,
        boot_image_digest: guest.manifest.boot_image_digest,
        template,
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

/// From the kernel's first instruction, or from where it was saved, to the agent's first word.
async fn connect(spec: &MachineSpec, launched: &Launched, deadline: Duration) -> Result<Client, StartError> {
    let socket = spec.socket();
    let connecting = Client::connect(&socket, agent::Options::default(), deadline);
    alive(spec, &launched.exit, deadline, Some(&launched.console), connecting).await
}

/// What the agent answers, or how its kernel ended or how long it was silent.
async fn alive<T>(
    spec: &MachineSpec,
    exit: &watch::Receiver<Option<Exit>>,
    deadline: Duration,
    console: Option<&Console>,
    asked: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, StartError> {
    let id = spec.id;
    let mut exit = exit.clone();
    let outcome = tokio::select! {
        // An agent that goes with its kernel is the kernel's end, so that is looked at first.
        biased;
        ended = exit.wait_for(Option::is_some) => Err(ended.ok().and_then(|ended| ended.clone())),
        answered = tokio::time::timeout(deadline, asked) => Ok(answered),
    };
    match outcome {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Err(_) | Ok(Err(ClientError::Deadline { .. }))) => {
            Err(StartError::Silent { id, deadline, console: console.map(Console::tail).unwrap_or_default() })
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
