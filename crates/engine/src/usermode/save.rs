//! Saving a machine, and checking a saved one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hutch_units::{Bytes, Mebibytes};
use tokio::sync::watch;

use super::control::{self, After, ControlError};
use super::kept;
use super::user_mode::{Shared, blocking};
use crate::guest::{GuestError, GuestFiles, digest_of_file};
use crate::machine::{EngineKind, Exit, MachineRecord, MachineSpec};
use crate::snapshot::{Save, SaveError, Saved, SnapshotError, SnapshotManifest, Then, file, partial};

/// How long a kernel that was saved may take to end.
const END: Duration = Duration::from_secs(20);
/// What a state file begins with once it is complete.
const STATE_MAGIC: &[u8; 8] = b"UMLSTATE";

/// A state has 1.2 MiB beside its extents.
const LARGEST_STATE: Bytes = Bytes(16 << 20);
/// Bytes of an extent, of which each page of memory may have one.
const EXTENT: u64 = 16;

/// A machine to be saved, and what is known of it.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) spec: MachineSpec,
    pub(super) record: MachineRecord,
    pub(super) exit: watch::Receiver<Option<Exit>>,
    /// The key of the template that it becomes.
    pub(super) key: Option<String>,
}

/// Saves a machine in a task of its own: what is begun is finished, whether or not anybody waits. `complete` adds
/// what else belongs into the saved machine's directory, before that gets its name.
pub(super) async fn save<F>(
    shared: Arc<Shared>,
    subject: Subject,
    save: Save,
    complete: F,
) -> Result<SnapshotManifest, SaveError>
where
    F: FnOnce(&Path) -> Result<(), SaveError> + Send + 'static,
{
    let saving = async move {
        let _lock = shared.lock(subject.spec.id).await;
        run(&shared, subject, save, complete).await
    };
    tokio::spawn(saving).await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn run<F>(shared: &Shared, subject: Subject, save: Save, complete: F) -> Result<SnapshotManifest, SaveError>
where
    F: FnOnce(&Path) -> Result<(), SaveError> + Send + 'static,
{
    let id = subject.spec.id;
    let mut exit = subject.exit.clone();
    let draft = draft(shared, &subject).await?;
    let (writing, asked, spec) = (draft.clone(), save.clone(), subject.spec);
    let written = blocking(move || write(&spec, &asked, &writing)).await;
    let saved = match written {
        Ok(stopped) => stopped,
        Err(error) => {
            let directory = partial(&save.directory);
            blocking(move || discard(&directory)).await?;
            let ended = exit.borrow().is_some();
            return Err(if ended { SaveError::Ended { id } } else { error });
        }
    };
    if save.then == Then::End {
        // Its status says nothing that the state does not say better: whether it is whole. And who did not start the
        // kernel does not learn its status.
        let ended = tokio::time::timeout(END, exit.wait_for(Option::is_some)).await;
        ended.map_err(|_| SaveError::Lingers { id, deadline: END })?.map_err(|_| SaveError::Ended { id })?;
    }
    let finished = blocking(move || {
        complete(&partial(&save.directory))?;
        finish(&save.directory, draft, Some(saved))
    });
    finished.await?.ok_or(SaveError::Ended { id })
}

/// What is known before the kernel is asked: with it a service that was restarted finishes what the kernel did.
async fn draft(shared: &Shared, subject: &Subject) -> Result<SnapshotManifest, SaveError> {
    let current = shared.guest().await.map_err(SaveError::Guest)?.clone();
    let guests = shared.options.guests();
    let (spec, key) = (subject.spec.clone(), subject.key.clone());
    let MachineRecord { kernel_digest: kernel, boot_image_digest: boot_image, template, .. } = subject.record.clone();
    blocking(move || {
        // A machine of an older release was itself started from a kept guest.
        if (&current.manifest.kernel_digest, &current.manifest.boot_image_digest) == (&kernel, &boot_image) {
            kept::keep(&guests, &current).map_err(SaveError::Guest)?;
        }
        let disk = fs::metadata(&spec.disk).map_err(unwritten(&spec.disk))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(SnapshotManifest {
            format: SnapshotManifest::FORMAT.to_owned(),
            version: SnapshotManifest::VERSION,
            engine: EngineKind::Usermode,
            kernel_digest: kernel,
            boot_image_digest: boot_image,
            base_image: spec.base_image.clone(),
            memory: spec.memory,
            disk: Bytes(disk.len()),
            key,
            template,
            processor: kept::processor().map_err(unwritten(Path::new("/proc/cpuinfo")))?,
            saved_at_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            saved: None,
        })
    })
    .await
}

/// Has the kernel write itself. Returns how long the machine stood still.
fn write(spec: &MachineSpec, save: &Save, draft: &SnapshotManifest) -> Result<Duration, SaveError> {
    let id = spec.id;
    let directory = partial(&save.directory);
    discard(&directory)?;
    fs::DirBuilder::new().mode(0o700).create(&directory).map_err(unwritten(&directory))?;
    draft.write(&directory).map_err(unwritten(&directory))?;
    let create = |name: &str| {
        let path = directory.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        file.map_err(unwritten(&path))
    };
    let (state, memory) = (create(file::STATE)?, create(file::MEMORY)?);
    let keep = u32::from(draft.template.is_some());
    let after = if save.then == Then::End { After::End } else { After::Hold };
    let answer = control::save(&spec.control_socket(), &state, &memory, keep, after).map_err(|error| match error {
        ControlError::Conversation(source) => SaveError::Control { id, source },
        ControlError::Refused(source) => SaveError::Kernel { id, source },
    })?;
    let mut stopped = answer.stopped;
    if let Then::GoOn { disk_copy } = &save.then {
        let began = Instant::now();
        hutch_image::disk::copy(&spec.disk, disk_copy).map_err(|source| SaveError::Disk { id, source })?;
        stopped += began.elapsed();
    }
    // The machine goes on here.
    drop(answer);
    Ok(stopped)
}

/// Gives a saved machine its name. `None` when the kernel did not write it whole; then nothing of it is left.
fn finish(
    directory: &Path,
    draft: SnapshotManifest,
    stopped: Option<Duration>,
) -> Result<Option<SnapshotManifest>, SaveError> {
    let partial = partial(directory);
    let state = partial.join(file::STATE);
    if !is_complete(&state, draft.memory) {
        discard(&partial)?;
        return Ok(None);
    }
    let memory = partial.join(file::MEMORY);
    let space = |path: &Path| fs::metadata(path).map(|metadata| metadata.blocks() * 512).map_err(unwritten(path));
    let saved = Saved {
        state_digest: digest_of_file(&state).map_err(unwritten(&state))?,
        bytes: Bytes(space(&state)? + space(&memory)?),
        stopped_us: stopped.map(|stopped| u64::try_from(stopped.as_micros()).unwrap_or(u64::MAX)),
    };
    let manifest = SnapshotManifest { saved: Some(saved), ..draft };
    manifest.write(&partial).map_err(unwritten(&partial))?;
    fs::rename(&partial, directory).map_err(unwritten(directory))?;
    Ok(Some(manifest))
}

/// Whoever wrote it may be the guest: what is larger than any state is none, and is not read to its end.
fn is_complete(state: &Path, memory: Mebibytes) -> bool {
    let mut magic = [0; STATE_MAGIC.len()];
    let mut look = || {
        let state = File::open(state)?;
        state.read_exact_at(&mut magic, 0)?;
        Ok::<_, io::Error>(state.metadata()?.len() <= LARGEST_STATE.0 + memory.bytes().0 / 4096 * EXTENT)
    };
    look().unwrap_or(false) && magic == *STATE_MAGIC
}

/// The error of a file or directory of a saved machine.
fn unwritten(path: &Path) -> impl FnOnce(io::Error) -> SaveError + use<> {
    let path = path.to_owned();
    move |source| SaveError::Write { path, source }
}

/// Removes a saved machine or a part of one; succeeds when there is none.
fn discard(directory: &Path) -> Result<(), SaveError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(unwritten(directory)),
    }
}

/// Finishes what a service that was killed had begun.
pub(super) async fn finish_interrupted(directory: PathBuf) -> Result<Option<SnapshotManifest>, SaveError> {
    blocking(move || {
        let manifest = SnapshotManifest::read(&directory).ok();
        if let Some(manifest) = manifest.filter(|manifest| manifest.saved.is_some()) {
            return Ok(Some(manifest));
        }
        match SnapshotManifest::read(&partial(&directory)) {
            Ok(draft) => finish(&directory, draft, None),
            Err(_) => discard(&partial(&directory)).map(|()| None),
        }
    })
    .await
}

/// Reads the manifest of a complete saved machine and finds the guest that it belongs to.
pub(super) async fn check(
    shared: &Shared,
    directory: &Path,
) -> Result<Result<(SnapshotManifest, GuestFiles), SnapshotError>, GuestError> {
    let current = shared.guest().await?.clone();
    let (guests, directory) = (shared.options.guests(), directory.to_owned());
    blocking(move || {
        let manifest = match SnapshotManifest::read(&directory) {
            Ok(manifest) if manifest.saved.is_some() => manifest,
            Ok(_) => return Ok(Err(SnapshotError::Incomplete { directory })),
            Err(error) => return Ok(Err(error)),
        };
        let here = kept::processor();
        let here = match here {
            Ok(here) => here,
            Err(source) => return Ok(Err(SnapshotError::Read { path: "/proc/cpuinfo".into(), source })),
        };
        if here != manifest.processor {
            return Ok(Err(SnapshotError::Processor { directory, saved: manifest.processor, here }));
        }
        match kept::find(&guests, &current, &manifest)? {
            Some(guest) => Ok(Ok((manifest, guest))),
            None => {
                let wanted = kept::name(&manifest.kernel_digest, &manifest.boot_image_digest);
                Ok(Err(SnapshotError::Guest { directory, wanted }))
            }
        }
    })
    .await
}

/// Checks also that the state is the one that was saved, which reads it whole.
pub(super) async fn verify(shared: &Shared, directory: &Path) -> Result<SnapshotManifest, SnapshotError> {
    let guest =
        |source: GuestError| SnapshotError::Read { path: directory.to_owned(), source: io::Error::other(source) };
    let (manifest, _) = check(shared, directory).await.map_err(guest)??;
    let path = directory.join(file::STATE);
    blocking(move || {
        let found = digest_of_file(&path).map_err(|source| SnapshotError::Read { path: path.clone(), source })?;
        let expected = manifest.saved.as_ref().map(|saved| saved.state_digest.clone()).unwrap_or_default();
        if found == expected { Ok(manifest) } else { Err(SnapshotError::Digest { path, expected, found }) }
    })
    .await
}
