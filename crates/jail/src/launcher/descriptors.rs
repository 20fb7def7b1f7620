//! The descriptors that a jailed process begins with.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use hutch_jail::report::{Failure, Step};
use hutch_jail::specification::{Source, Specification};
use rustix::fs::{MemfdFlags, Mode};

use super::failed;

/// Everything that was opened for the process, above the numbers that it will have.
#[derive(Debug)]
pub(super) struct Opened {
    /// The program to execute.
    pub(super) program: OwnedFd,
    /// Number in the process, and what goes there. 0 to 2 included.
    pub(super) inherited: Vec<(u32, OwnedFd)>,
    /// The sockets that were made, to be removed should the launch fail.
    sockets: Vec<PathBuf>,
}

/// Opens everything. All descriptors are close-on-exec and above the highest number that may be inherited, so that
/// putting one in its place cannot overwrite another.
pub(super) fn open(specification: &Specification) -> Result<Opened, Failure> {
    let mut opened = Opened {
        program: open_program(&specification.program)?,
        inherited: standard_streams().map_err(|error| failed(Step::Descriptor, "standard streams", &error))?,
        sockets: Vec::new(),
    };
    for descriptor in &specification.descriptors {
        if let Source::Listener { path } = &descriptor.source {
            opened.sockets.push(path.clone());
        }
        let subject = format!("descriptor {}, {}", descriptor.number, subject_of(&descriptor.source));
        match open_source(&descriptor.source).and_then(|fd| raised(&fd)) {
            Ok(fd) => opened.inherited.push((descriptor.number, fd)),
            Err(error) => {
                opened.remove_sockets();
                return Err(failed(Step::Descriptor, subject, &error));
            }
        }
    }
    Ok(opened)
}

impl Opened {
    /// Undoes what can be seen from outside.
    pub(super) fn remove_sockets(&self) {
        for socket in &self.sockets {
            // It may not have been made yet; whoever destroys the sandbox looks again.
            fs::remove_file(socket).ok();
        }
    }
}

fn open_program(path: &Path) -> Result<OwnedFd, Failure> {
    let opened = File::open(path).and_then(|file| raised(&file));
    opened.map_err(|error| failed(Step::Descriptor, path.display(), &error))
}

/// Nothing to read on 0; what the launcher has as standard error on 1 and 2.
fn standard_streams() -> io::Result<Vec<(u32, OwnedFd)>> {
    let empty = raised(&File::open("/dev/null")?)?;
    let console = std::io::stderr();
    Ok(vec![(0, empty), (1, raised(&console)?), (2, raised(&console)?)])
}

fn raised(fd: &impl AsFd) -> io::Result<OwnedFd> {
    let lowest = i32::try_from(Specification::HIGHEST_DESCRIPTOR).expect("a small number") + 1;
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, lowest)?)
}

fn subject_of(source: &Source) -> String {
    match source {
        Source::ReadOnly { path } | Source::ReadWrite { path } | Source::Listener { path } => {
            path.display().to_string()
        }
        Source::Memory { size } => format!("{size} of memory"),
    }
}

fn open_source(source: &Source) -> io::Result<OwnedFd> {
    match source {
        Source::ReadOnly { path } => open_file(path, OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK)),
        // What can be written lies in the sandbox's own directory: never at the other end of a link.
        Source::ReadWrite { path } => {
            let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
            open_file(path, OpenOptions::new().read(true).write(true).custom_flags(flags))
        }
        Source::Memory { size } => memory(size.0),
        Source::Listener { path } => listener(path),
    }
}

fn open_file(path: &Path, options: &OpenOptions) -> io::Result<OwnedFd> {
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file.into())
}

/// Executable, since the guest's programs run in it. Hosts before Linux 6.3 do not know the flag and do not need it.
fn memory(size: u64) -> io::Result<OwnedFd> {
    let name = "guest-memory";
    let flags = MemfdFlags::CLOEXEC;
    let memory = match rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC) {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    }?;
    rustix::fs::ftruncate(&memory, size)?;
    Ok(memory)
}

fn listener(path: &Path) -> io::Result<OwnedFd> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something else than a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Nobody else may connect even for the moment before the mode is set.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = bind(path);
    rustix::process::umask(before);
    let listener = bound?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener.into())
}

/// A socket's address holds 107 bytes; from its own directory the name is always short enough.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the path of a file"));
    };
    std::env::set_current_dir(directory)?;
    let bound = UnixListener::bind(name);
    std::env::set_current_dir("/")?;
    bound
}
