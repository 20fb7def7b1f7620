//! One mount, and the error that says which.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};

/// A step of the boot that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    /// A file system could not be mounted.
    #[error("{source_name} cannot be mounted as {kind} on {}", target.display())]
    Mount {
        /// Device or name.
        source_name: String,
        /// Type of the file system.
        kind: &'static str,
        /// Mount point.
        target: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file or directory could not be made.
    #[error("{} cannot be made", path.display())]
    Make {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Another call failed.
    #[error("{what} failed")]
    Call {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl BootError {
    /// A call that failed.
    pub(crate) fn call(what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Call { what, source: source.into() }
    }
}

/// A file system to mount.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mount<'a> {
    /// Device or name.
    pub(crate) source: &'a str,
    /// Mount point; made if it is not there.
    pub(crate) target: &'a Path,
    /// Type.
    pub(crate) kind: &'static str,
    /// Flags.
    pub(crate) flags: MountFlags,
    /// Options of the type.
    pub(crate) options: &'a str,
}

impl Mount<'_> {
    /// Mounts it.
    pub(crate) fn mount(&self) -> Result<(), BootError> {
        self.attempt().map_err(|source| BootError::Mount {
            source_name: self.source.to_owned(),
            kind: self.kind,
            target: self.target.to_owned(),
            source,
        })
    }

    fn attempt(&self) -> io::Result<()> {
        if !self.target.is_dir() {
            fs::create_dir_all(self.target)?;
        }
        let options = CString::new(self.options)?;
        mount(self.source, self.target, self.kind, self.flags, options.as_c_str())?;
        Ok(())
    }
}

/// Makes a directory with these permission bits.
pub(crate) fn directory(path: &Path, mode: u32) -> Result<(), BootError> {
    use std::os::unix::fs::PermissionsExt as _;
    let made = match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    };
    // Only if they differ: on an overlay a change copies the directory to the disk.
    let set = |()| {
        let present = fs::metadata(path)?.permissions().mode() & 0o7777;
        if present == mode { Ok(()) } else { fs::set_permissions(path, fs::Permissions::from_mode(mode)) }
    };
    made.and_then(set).map_err(|source| BootError::Make { path: path.to_owned(), source })
}
