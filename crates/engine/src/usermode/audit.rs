//! What is on the host because of this engine, by looking at the host.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use hutch_jail::cgroup::Version;
use hutch_units::SandboxId;

use super::process::start_time_of;
use super::teardown::{remove_cgroup_directory, remove_process};
use super::user_mode::{Shared, blocking, remove_file};
use crate::artefact::{Artefact, ArtefactKind};
use crate::engine::{AuditError, DestroyError};

/// Lists cgroups with their processes, sockets and console logs.
pub(super) async fn artefacts(shared: &Shared) -> Result<Vec<Artefact>, AuditError> {
    let scopes = shared.layout().await.map(|layout| layout.scope_directories(&shared.scope)).unwrap_or_default();
    let sandboxes = shared.options.sandboxes.clone();
    blocking(move || {
        let mut found = BTreeSet::new();
        for scope in scopes {
            for cgroup in children(&scope)?.into_iter().filter(|path| path.is_dir()) {
                found.extend(cgroup_artefacts(&cgroup)?);
            }
        }
        for directory in children(&sandboxes)? {
            found.extend(file_artefacts(&directory));
        }
        Ok(found.into_iter().collect())
    })
    .await
}

/// The entries of a directory; none when there is no such directory.
fn children(directory: &Path) -> Result<Vec<PathBuf>, AuditError> {
    let error = |source| AuditError::Read { path: directory.to_owned(), source };
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path()).map_err(error)).collect(),
        Err(source) if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(source) => Err(error(source)),
    }
}

/// The sandbox whose id a directory bears.
fn sandbox_of(directory: &Path) -> Option<SandboxId> {
    directory.file_name()?.to_str()?.parse().ok()
}

fn cgroup_artefacts(cgroup: &Path) -> Result<Vec<Artefact>, AuditError> {
    let sandbox = sandbox_of(cgroup);
    let path = cgroup.join("cgroup.procs");
    let processes = match fs::read_to_string(&path) {
        // Gone since it was listed: ENODEV is how a cgroup says that.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(19) => return Ok(vec![]),
        other => other.map_err(|source| AuditError::Read { path, source })?,
    };
    let process = |pid: &str| {
        let pid = pid.parse().ok()?;
        let kind = ArtefactKind::Process { pid, start_time: start_time_of(pid)? };
        Some(Artefact { kind, name: format!("pid {pid}"), sandbox })
    };
    let kind = ArtefactKind::Cgroup { path: cgroup.to_owned() };
    let directory = Artefact { kind, name: cgroup.display().to_string(), sandbox };
    Ok([directory].into_iter().chain(processes.lines().filter_map(process)).collect())
}

fn file_artefacts(directory: &Path) -> Vec<Artefact> {
    let sandbox = sandbox_of(directory);
    let artefact = |kind, path: &Path| Artefact { kind, name: path.display().to_string(), sandbox };
    let mut found = Vec::new();
    for socket in ["agent.sock", "control.sock"].map(|name| directory.join(name)) {
        if fs::symlink_metadata(&socket).is_ok_and(|metadata| metadata.file_type().is_socket()) {
            found.push(artefact(ArtefactKind::Socket { path: socket.clone() }, &socket));
        }
    }
    let log = directory.join("console.log");
    if fs::symlink_metadata(&log).is_ok() {
        found.push(artefact(ArtefactKind::ConsoleLog { path: log.clone() }, &log));
    }
    found
}

/// Removes one artefact; a cgroup with the processes in it.
pub(super) async fn remove(shared: &Shared, artefact: Artefact) -> Result<(), AuditError> {
    let version = shared.layout().await.map_or(Version::V2, |layout| layout.version);
    let Artefact { kind, name, sandbox } = artefact;
    let removed = blocking(move || match kind {
        ArtefactKind::Process { pid, start_time } => remove_process(pid, start_time),
        ArtefactKind::Cgroup { path } => {
            // The id only names whose it was in an error, which is said again below.
            let id = sandbox.unwrap_or_else(SandboxId::generate);
            remove_cgroup_directory(id, &path, version).map_err(innermost)
        }
        ArtefactKind::Socket { path } | ArtefactKind::ConsoleLog { path } => remove_file(&path),
    })
    .await;
    removed.map_err(|source| AuditError::Remove { name, source })
}

fn innermost(error: DestroyError) -> io::Error {
    match error {
        DestroyError::Remove { source, .. } | DestroyError::Host { source, .. } => source,
        DestroyError::Processes { .. } => io::Error::new(io::ErrorKind::TimedOut, error),
    }
}
