//! The data directory: what lies where, and that only one daemon uses it.
//!
//! ```text
//! <data>/            0700
//!   lock             held with flock(2) by the running daemon; holds its process id
//!   hutch.db         the store
//!   api-key          the first API key, 0600; may be moved away
//!   url              where the running daemon listens
//!   sandboxes/<id>/  all that one sandbox has on this host's disks, and nothing else
//!     disk.ext4
//!     pause-<n>/     its saved machine, while it is paused
//!   snapshots/<id>/  saved machines with their disks, of users and of forks
//!   templates/<key>/ saved machines that sandboxes begin as
//!   guests/<name>/   guest files that saved machines belong to
//! ```

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use hutch_units::{SandboxId, SnapshotId};

/// Where the daemon keeps its things.
#[derive(Debug, Clone)]
pub struct DataDirectory {
    root: PathBuf,
}

/// Holds the data directory for this process. The kernel lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Another daemon has it.
    #[error(
        "the data directory {} is in use by {}; stop that daemon or choose another directory with --data",
        path.display(),
        holder(*pid)
    )]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The other daemon, when it wrote its process id.
        pid: Option<u32>,
    },
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

impl DataDirectory {
    /// Makes the directory, for root's eyes only, if it is not there.
    ///
    /// # Errors
    /// [`DataError::File`] when it cannot be made.
    pub fn create(root: &Path) -> Result<Self, DataError> {
        let directory = Self::at(root);
        let sandboxes = directory.sandboxes();
        make_private(&sandboxes)?;
        // Relative paths would break once written into the store.
        let root =
            root.canonicalize().map_err(|source| DataError::File { action: "find", path: root.to_owned(), source })?;
        Ok(Self { root })
    }

    /// The layout of a directory that exists already, or of none.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Takes the directory for this process.
    ///
    /// # Errors
    /// [`DataError::InUse`] names the process that has it.
    pub fn lock(&self) -> Result<Lock, DataError> {
        let path = self.root.join("lock");
        let failed = |action| {
            let path = path.clone();
            move |source| DataError::File { action, path, source }
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(DataError::InUse { path: self.root.clone(), pid });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()));
        written.map_err(failed("write"))?;
        Ok(Lock { _file: file })
    }

    /// The data directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The store.
    pub fn store(&self) -> PathBuf {
        self.root.join("hutch.db")
    }

    /// The file with the first API key.
    pub fn api_key(&self) -> PathBuf {
        self.root.join("api-key")
    }

    /// The file that says where the daemon listens.
    pub fn url(&self) -> PathBuf {
        self.root.join("url")
    }

    /// The directory that holds one directory for each sandbox.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    /// The directory of one sandbox.
    pub fn sandbox(&self, id: SandboxId) -> PathBuf {
        self.sandboxes().join(id.to_string())
    }

    /// The writable disk of one sandbox.
    pub fn disk(&self, id: SandboxId) -> PathBuf {
        self.sandbox(id).join("disk.ext4")
    }

    /// The directory of one sandbox's saved machine; its disk stays where it is.
    pub fn pause(&self, id: SandboxId, number: u32) -> PathBuf {
        self.sandbox(id).join(format!("pause-{number}"))
    }

    /// The directory that holds one directory for each snapshot.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// The directory of one snapshot: a saved machine with its disk.
    pub fn snapshot(&self, id: SnapshotId) -> PathBuf {
        self.snapshots().join(id.to_string())
    }

    /// The directory that holds one directory for each template.
    pub fn templates(&self) -> PathBuf {
        self.root.join("templates")
    }

    /// The directory of one template: a saved machine with its disk.
    pub fn template(&self, key: &str) -> PathBuf {
        self.templates().join(key)
    }

    /// The directory that holds one directory for each guest that a saved machine belongs to.
    pub fn guests(&self) -> PathBuf {
        self.root.join("guests")
    }
}

/// Makes a directory for its owner's eyes only, unless it is there.
///
/// # Errors
/// [`DataError::File`] names the directory.
pub fn make_private(path: &Path) -> Result<(), DataError> {
    let failed = |source| DataError::File { action: "create the directory", path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)
}

/// Writes a small file so that a reader sees all of it or none, with these permission bits.
///
/// # Errors
/// [`DataError::File`] names the file.
pub fn write_file(path: &Path, mode: u32, text: &str) -> Result<(), DataError> {
    let beside = path.with_extension("new");
    let failed = |source| DataError::File { action: "write", path: path.to_owned(), source };
    // A file that a killed daemon left beside may have other bits: it goes first.
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another daemon".to_owned(), |pid| format!("the daemon with process id {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_second_daemon_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDirectory::create(&folder.path().join("data")).unwrap();
        let lock = data.lock().unwrap();
        let error = data.lock().unwrap_err().to_string();
        assert!(error.contains(&format!("process id {}", std::process::id())), "{error}");
        drop(lock);
        data.lock().unwrap();
    }

    #[test]
    fn directory_and_key_are_for_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDirectory::create(&folder.path().join("data")).unwrap();
        write_file(&data.api_key(), 0o600, "old\n").unwrap();
        write_file(&data.api_key(), 0o600, "key\n").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(data.root()), mode(&data.api_key())), (0o700, 0o600));
        assert_eq!(std::fs::read_to_string(data.api_key()).unwrap(), "key\n");
    }
}
