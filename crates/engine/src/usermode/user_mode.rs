//! The engine itself: what its operations share.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hutch_jail::cgroup::{Group, Layout, LayoutError};
use hutch_units::{Mebibytes, SandboxId};
use sha2::{Digest, Sha256};
use tokio::sync::{OnceCell, OwnedMutexGuard, watch};

use super::save::{self, Subject};
use super::{Options, adopt, audit, launch, probe, start, teardown, template};
use crate::artefact::Artefact;
use crate::engine::{AdoptError, AuditError, DestroyError, Engine, EngineFuture, StartError};
use crate::finding::Finding;
use crate::guest::{GuestError, GuestFiles};
use crate::machine::{EngineKind, Exit, Machine, MachineRecord, MachineSpec};
use crate::snapshot::{Origin, Prepared, Save, SaveError, SnapshotError, SnapshotManifest, TemplateSpec};

/// Runs guests on Linux's user-mode port. Cheap to clone; clones are the same engine.
#[derive(Debug, Clone)]
pub struct UserMode(Arc<Shared>);

/// What the operations of one engine share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: Options,
    /// The program `hutch-jail`.
    pub(super) launcher: PathBuf,
    /// The path below `hutch` of this service's cgroups.
    pub(super) scope: String,
    guest: OnceCell<(GuestFiles, [File; 2])>,
    layout: OnceCell<Layout>,
    locks: Mutex<HashMap<SandboxId, Weak<tokio::sync::Mutex<()>>>>,
    watched: Mutex<HashMap<SandboxId, watch::Receiver<Option<Exit>>>>,
}

impl UserMode {
    /// An engine with these options. Looks at nothing yet but asks the kernel to make this process the parent of
    /// the guests' kernels when their launcher ends.
    pub fn new(options: Options) -> Self {
        let subreaper = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        if let Err(error) = subreaper {
            // Then their status goes to the first process of the host; their end is still seen.
            tracing::warn!(%error, "this process cannot become a subreaper: the exit status of guests stays unknown");
        }
        let launcher = launch::find(options.launcher.as_deref());
        let scope = scope_of(&options.sandboxes);
        Self(Arc::new(Shared {
            options,
            launcher,
            scope,
            guest: OnceCell::new(),
            layout: OnceCell::new(),
            locks: Mutex::default(),
            watched: Mutex::default(),
        }))
    }
}

/// Tells the cgroups of services with different data directories apart: the same for every spelling of a directory's
/// path, and before and after it is made.
fn scope_of(sandboxes: &Path) -> String {
    let absolute = std::path::absolute(sandboxes).unwrap_or_else(|_| sandboxes.to_owned());
    let resolved = absolute.ancestors().find_map(|existing| {
        let rest = absolute.strip_prefix(existing).ok()?;
        // Joining nothing would leave a slash at the end.
        let rest = (!rest.as_os_str().is_empty()).then_some(rest);
        existing.canonicalize().ok().map(|existing| rest.map_or(existing.clone(), |rest| existing.join(rest)))
    });
    let digest = Sha256::digest(resolved.unwrap_or(absolute).as_os_str().as_encoded_bytes());
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

impl Shared {
    /// The guest files, their digests checked once; the same files from then on.
    pub(super) async fn guest(&self) -> Result<&GuestFiles, GuestError> {
        let find = async || {
            let given = self.options.guest.clone();
            tokio::task::spawn_blocking(move || GuestFiles::hold(given.as_deref()))
                .await
                .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
        };
        self.guest.get_or_try_init(find).await.map(|(guest, _)| guest)
    }

    /// Where cgroups go, made ready once.
    pub(super) async fn layout(&self) -> Result<&Layout, LayoutError> {
        let prepare = async || {
            let layout = Layout::discover()?;
            layout.prepare()?;
            Ok(layout)
        };
        self.layout.get_or_try_init(prepare).await
    }

    /// The cgroup of one sandbox.
    pub(super) async fn group(&self, id: SandboxId) -> Result<Group, LayoutError> {
        Ok(self.layout().await?.group(&self.scope, &id.to_string()))
    }

    /// Waits until nothing else is being done with this sandbox.
    pub(super) async fn lock(&self, id: SandboxId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let lock = locks.get(&id).and_then(Weak::upgrade).unwrap_or_default();
            locks.insert(id, Arc::downgrade(&lock));
            lock
        };
        lock.lock_owned().await
    }

    /// Remembers who watches the kernel of this sandbox.
    pub(super) fn set_watched(&self, id: SandboxId, exit: watch::Receiver<Option<Exit>>) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).insert(id, exit);
    }

    /// Who watches the kernel of this sandbox.
    pub(super) fn watched(&self, id: SandboxId) -> Option<watch::Receiver<Option<Exit>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Forgets who watched it.
    pub(super) fn forget(&self, id: SandboxId) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

/// Runs blocking work on the threads that are there for it.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Removes a file; succeeds when there is none.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl Engine for UserMode {
    fn kind(&self) -> EngineKind {
        EngineKind::Usermode
    }

    fn probe(&self) -> EngineFuture<'_, Vec<Finding>> {
        Box::pin(probe::probe(&self.0))
    }

    fn start<'a>(&'a self, spec: &'a MachineSpec, origin: &'a Origin) -> EngineFuture<'a, Result<Machine, StartError>> {
        Box::pin(start::start(Arc::clone(&self.0), spec.clone(), origin.clone()))
    }

    fn prepare<'a>(
        &'a self,
        spec: &'a MachineSpec,
        origin: &'a Origin,
    ) -> EngineFuture<'a, Result<Prepared, StartError>> {
        Box::pin(start::prepare(Arc::clone(&self.0), spec.clone(), origin.clone()))
    }

    fn activate<'a>(
        &'a self,
        prepared: Prepared,
        spec: &'a MachineSpec,
    ) -> EngineFuture<'a, Result<Machine, StartError>> {
        Box::pin(start::activate(Arc::clone(&self.0), spec.clone(), prepared))
    }

    fn template_key<'a>(
        &'a self,
        base_image: &'a Path,
        memory: Mebibytes,
        disk: Mebibytes,
    ) -> EngineFuture<'a, Result<String, GuestError>> {
        Box::pin(template::key(&self.0, base_image, memory, disk))
    }

    fn make_template<'a>(
        &'a self,
        template: &'a TemplateSpec,
    ) -> EngineFuture<'a, Result<SnapshotManifest, SaveError>> {
        Box::pin(template::make(Arc::clone(&self.0), template.clone()))
    }

    fn save<'a>(
        &'a self,
        spec: &'a MachineSpec,
        machine: &'a Machine,
        save: &'a Save,
    ) -> EngineFuture<'a, Result<SnapshotManifest, SaveError>> {
        let (spec, record, exit) = (spec.clone(), machine.record.clone(), machine.exit());
        let subject = Subject { spec, record, exit, key: None };
        Box::pin(save::save(Arc::clone(&self.0), subject, save.clone(), |_| Ok(())))
    }

    fn finish_save<'a>(&'a self, directory: &'a Path) -> EngineFuture<'a, Result<Option<SnapshotManifest>, SaveError>> {
        Box::pin(save::finish_interrupted(directory.to_owned()))
    }

    fn verify<'a>(&'a self, directory: &'a Path) -> EngineFuture<'a, Result<SnapshotManifest, SnapshotError>> {
        Box::pin(save::verify(&self.0, directory))
    }

    fn adopt<'a>(
        &'a self,
        spec: &'a MachineSpec,
        record: &'a MachineRecord,
    ) -> EngineFuture<'a, Result<Machine, AdoptError>> {
        Box::pin(adopt::adopt(&self.0, spec, record))
    }

    fn destroy<'a>(
        &'a self,
        spec: &'a MachineSpec,
        record: Option<&'a MachineRecord>,
    ) -> EngineFuture<'a, Result<(), DestroyError>> {
        Box::pin(async move {
            let _lock = self.0.lock(spec.id).await;
            teardown::teardown(&self.0, spec, record).await
        })
    }

    fn artefacts(&self) -> EngineFuture<'_, Result<Vec<Artefact>, AuditError>> {
        Box::pin(audit::artefacts(&self.0))
    }

    fn remove_artefact<'a>(&'a self, artefact: &'a Artefact) -> EngineFuture<'a, Result<(), AuditError>> {
        Box::pin(audit::remove(&self.0, artefact.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_for_each_sandbox() {
        let engine = UserMode::new(Options::new("/nowhere"));
        let (one, other) = (SandboxId::generate(), SandboxId::generate());
        let held = engine.0.lock(one).await;
        drop(engine.0.lock(other).await);
        let mut waiting = Box::pin(engine.0.lock(one));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(held);
        drop(waiting.await);
        drop(engine.0.lock(other).await);
        assert_eq!(engine.0.locks.lock().unwrap().len(), 1, "locks that nobody holds are forgotten");
    }

    #[test]
    fn services_with_different_data_have_different_scopes() {
        assert_ne!(scope_of(Path::new("/var/lib/hutch/sandboxes")), scope_of(Path::new("/tmp/hutch/sandboxes")));
    }

    #[test]
    fn a_directory_has_one_scope_however_it_is_named_and_whether_it_is_there_yet() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let before = scope_of(&link.join("sandboxes"));
        assert_eq!(before.len(), 8);
        std::fs::create_dir(real.join("sandboxes")).unwrap();
        assert_eq!(before, scope_of(&link.join("sandboxes")));
        assert_eq!(before, scope_of(&real.join("sandboxes")));
    }
}
