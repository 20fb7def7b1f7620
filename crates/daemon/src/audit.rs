//! What is on the host because of sandboxes, and whose it is.
//!
//! The host is looked at first and the store read afterwards. A sandbox is recorded before anything of it is made,
//! so whatever was seen has a row that holds it, unless nobody owns it; or unless its sandbox went in between. So
//! what seems to be nobody's is looked at once more: a sandbox lets go of its row only after all it had is gone.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hutch_engine::Engine;
use hutch_engine::artefact::{Artefact, ArtefactKind};
use hutch_engine::engine::AuditError as EngineError;

use crate::data_directory::DataDirectory;
use crate::store::{Access, Store, StoreError, open, query};

/// One thing on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub thing: Thing,
    /// The id of the sandbox or snapshot whose it is; `None` for an orphan.
    pub owner: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thing {
    /// Something that an engine made.
    Machine(Artefact),
    /// A file or directory in the directory of the sandboxes or of the snapshots.
    File(PathBuf),
}

/// The host cannot be audited, or something cannot be removed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The engine cannot look or remove.
    #[error("the engine's artefacts cannot be audited")]
    Engine(#[source] EngineError),
    /// The store cannot be read.
    #[error("the owners cannot be read")]
    Store(#[source] StoreError),
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Finding {
    /// Where it is.
    pub fn name(&self) -> String {
        match &self.thing {
            Thing::Machine(artefact) => artefact.name.clone(),
            Thing::File(path) => path.display().to_string(),
        }
    }

    /// What sort of thing it is, in the API's words.
    pub fn kind(&self) -> hutch_api::ArtefactKind {
        use hutch_api::ArtefactKind as Kind;
        match &self.thing {
            Thing::Machine(artefact) => match artefact.kind {
                ArtefactKind::Process { .. } => Kind::Process,
                ArtefactKind::Cgroup { .. } => Kind::Cgroup,
                ArtefactKind::Socket { .. } | ArtefactKind::ConsoleLog { .. } => Kind::File,
            },
            Thing::File(_) => Kind::File,
        }
    }
}

/// Everything on the host with its owner. `held` gives the ids of those who may have something there; it is called after the host was looked at.
pub(crate) async fn take<F>(
    engine: &Arc<dyn Engine>,
    data: &DataDirectory,
    held: impl FnOnce() -> F,
) -> Result<Vec<Finding>, AuditError>
where
    F: Future<Output = Result<HashSet<String>, StoreError>>,
{
    let machines = engine.artefacts().await.map_err(AuditError::Engine)?;
    let mut files = files(&data.sandboxes())?;
    files.extend(self::files(&data.snapshots())?);
    files.extend(self::files(&data.templates())?);
    let held = held().await.map_err(AuditError::Store)?;
    let mut findings = assign(machines, files, &held);
    if findings.iter().any(|finding| finding.owner.is_none()) {
        let machines: HashSet<String> =
            engine.artefacts().await.map_err(AuditError::Engine)?.into_iter().map(|artefact| artefact.name).collect();
        findings.retain(|finding| match &finding.thing {
            _ if finding.owner.is_some() => true,
            Thing::Machine(artefact) => machines.contains(&artefact.name),
            Thing::File(path) => path.symlink_metadata().is_ok(),
        });
    }
    Ok(findings)
}

/// The ids of the sandboxes and snapshots that may have something on the host.
pub(crate) async fn held_by_store(store: &Store) -> Result<HashSet<String>, StoreError> {
    store.read("read the owners", owners).await
}

/// Everything on the host with its owner, for a command that runs beside the daemon or without one.
///
/// # Errors
/// [`AuditError`]. A data directory without a store has no owners: then everything is an orphan.
pub async fn audit(engine: &Arc<dyn Engine>, data: &DataDirectory) -> Result<Vec<Finding>, AuditError> {
    let path = data.store();
    take(engine, data, || async move {
        if !path.exists() {
            return Ok(HashSet::new());
        }
        let connection = open(&path, Access::Read)?;
        owners(&connection)
            .map_err(|source| StoreError::Statement { what: "read the owners", source: Arc::new(source) })
    })
    .await
}

/// What image builds have in the cache: their own while they run, nobody's afterwards.
pub(crate) fn of_builds(leftovers: Vec<hutch_image::Leftover>) -> Vec<Finding> {
    let finding = |leftover: hutch_image::Leftover| {
        let owner = leftover.is_running.then(|| "a build of an image".to_owned());
        Finding { thing: Thing::File(leftover.path), owner }
    };
    leftovers.into_iter().map(finding).collect()
}

/// Removes an orphan.
///
/// # Errors
/// [`AuditError`] when it cannot be removed; that it is gone already is no error.
pub async fn remove(engine: &Arc<dyn Engine>, finding: &Finding) -> Result<(), AuditError> {
    match &finding.thing {
        Thing::Machine(artefact) => engine.remove_artefact(artefact).await.map_err(AuditError::Engine),
        Thing::File(path) => {
            let removed = if path.is_dir() && !path.is_symlink() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            };
            match removed {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    Err(AuditError::File { action: "remove", path: path.clone(), source })
                }
                _ => Ok(()),
            }
        }
    }
}

/// Findings as the API shows them.
pub fn report(findings: &[Finding]) -> hutch_api::AuditReport {
    let artefact = |finding: &Finding| hutch_api::Artefact {
        kind: finding.kind(),
        name: finding.name(),
        owner: finding.owner.clone(),
        detail: None,
    };
    hutch_api::AuditReport { artefacts: findings.iter().map(artefact).collect() }
}

fn owners(db: &rusqlite::Connection) -> rusqlite::Result<HashSet<String>> {
    let mut owners = query::snapshot_ids(db)?;
    owners.extend(query::template_keys(db)?);
    owners.extend(query::prepared_ids(db)?);
    owners.extend(query::sandbox_ids(db)?.into_iter().filter_map(|(id, holds)| holds.then_some(id)));
    Ok(owners)
}

/// What lies in a directory; nothing when there is none.
fn files(sandboxes: &Path) -> Result<Vec<PathBuf>, AuditError> {
    let failed = |source| AuditError::File { action: "read", path: sandboxes.to_owned(), source };
    let entries = match std::fs::read_dir(sandboxes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>().map_err(failed)
}

/// Gives everything its owner.
fn assign(machines: Vec<Artefact>, files: Vec<PathBuf>, held: &HashSet<String>) -> Vec<Finding> {
    let owner = |id: Option<String>| id.filter(|id| held.contains(id));
    let machines = machines.into_iter().map(|artefact| {
        let owner = owner(artefact.sandbox.map(|id| id.to_string()));
        Finding { thing: Thing::Machine(artefact), owner }
    });
    let files = files.into_iter().map(|path| {
        // What is being written has more after the id.
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split('.').next());
        let owner = owner(name.map(str::to_owned));
        Finding { thing: Thing::File(path), owner }
    });
    let mut findings: Vec<Finding> = machines.chain(files).collect();
    findings.sort_by_cached_key(|finding| (finding.owner.clone(), finding.name()));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use hutch_units::SandboxId;

    #[test]
    fn what_no_row_holds_is_an_orphan() {
        let (living, gone) = (SandboxId::generate(), SandboxId::generate());
        let cgroup = |id: Option<SandboxId>, name: &str| Artefact {
            kind: ArtefactKind::Cgroup { path: name.into() },
            name: name.to_owned(),
            sandbox: id,
        };
        let machines = vec![cgroup(Some(living), "/c/1"), cgroup(Some(gone), "/c/2"), cgroup(None, "/c/3")];
        let files = vec![format!("/d/{living}").into(), format!("/d/{gone}").into(), "/d/stray".into()];
        let held = HashSet::from([living.to_string()]);
        let findings = assign(machines, files, &held);
        let orphans: Vec<String> = findings.iter().filter(|f| f.owner.is_none()).map(Finding::name).collect();
        assert_eq!(orphans, ["/c/2".to_owned(), "/c/3".to_owned(), format!("/d/{gone}"), "/d/stray".to_owned()]);
        assert_eq!(findings.len(), 6);
    }

    #[test]
    fn files_are_listed_and_a_missing_directory_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        assert_eq!(files(folder.path()).unwrap(), [folder.path().join("a")]);
        assert!(files(&folder.path().join("b")).unwrap().is_empty());
    }
}
