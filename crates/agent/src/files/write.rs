//! A file made or replaced, whole or not at all.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use hutch_protocol::files::{Transferred, WriteFile};
use hutch_protocol::{Code, Failure};

use super::task::{Next, Step, Task, Work};
use super::{failure, path};
use crate::exec::account::Account;

/// Receives a file. Dropped before its end it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Writing {
    request: WriteFile,
    target: Option<Target>,
    received: u64,
}

/// Where the content goes.
#[derive(Debug)]
struct Target {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    made: path::Made,
    mode: u32,
    owner: Option<(u32, u32)>,
    done: bool,
}

impl Writing {
    /// Opens the file in its first step.
    pub(crate) fn new(request: WriteFile) -> Self {
        Self { request, target: None, received: 0 }
    }

    fn write(&mut self, work: &Work) -> Result<Option<Transferred>, Failure> {
        let target = match &mut self.target {
            Some(target) => target,
            None => self.target.insert(Target::open(&self.request)?),
        };
        for bytes in &work.input {
            self.received += bytes.len() as u64;
            if self.request.max_bytes.is_some_and(|max| self.received > max) {
                return Err(too_large(&self.request));
            }
            target.file.write_all(bytes).map_err(|error| failure::at(&target.path, "cannot be written", &error))?;
        }
        if !work.input_ended {
            return Ok(None);
        }
        target.finish(self.request.sync)?;
        Ok(Some(Transferred { bytes: self.received }))
    }
}

impl Task for Writing {
    fn step(&mut self, work: Work) -> Step {
        match self.write(&work) {
            Ok(None) => Step { frames: work.frames, next: Next::Input },
            Ok(Some(answer)) => Step::done(work.frames, Ok(answer)),
            Err(failure) => {
                // The answer says that nothing is left behind: so it must be gone before.
                self.target = None;
                Step::done::<Transferred>(work.frames, Err(failure))
            }
        }
    }
}

fn too_large(request: &WriteFile) -> Failure {
    let max = request.max_bytes.unwrap_or(u64::MAX);
    failure::of(Code::TooLarge, request.path.as_path(), &format!("larger than the {max} bytes that are allowed"))
}

impl Target {
    fn open(request: &WriteFile) -> Result<Self, Failure> {
        if request.size.zip(request.max_bytes).is_some_and(|(size, max)| size > max) {
            return Err(too_large(request));
        }
        let account = request.user.as_deref().map(Account::find).transpose()?;
        let owner = account.map(|account| (account.uid, account.gid));
        let (path, existing) = path::resolve(&path::parse_file(&request.path)?)?;
        check_replaceable(&path, existing.as_ref())?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let mut made = path::Made::default();
        let opened = make_temporary(directory, owner, &mut made)
            .and_then(|temporary| has_space(&path, directory, request.size, temporary));
        let (temporary, file) = opened.inspect_err(|_| made.undo())?;
        let (mode, owner) = match existing {
            Some(metadata) => {
                (request.mode.unwrap_or(metadata.mode()), owner.or(Some((metadata.uid(), metadata.gid()))))
            }
            None => (request.mode.unwrap_or(0o644), owner),
        };
        Ok(Self { path, temporary, file, made, mode: mode & 0o7777, owner, done: false })
    }

    fn finish(&mut self, sync: bool) -> Result<(), Failure> {
        let failed = |what| move |path: &Path, error: &io::Error| failure::at(path, what, error);
        if let Some((uid, gid)) = self.owner {
            std::os::unix::fs::fchown(&self.file, Some(uid), Some(gid))
                .map_err(|error| failed("cannot be given to its owner")(&self.path, &error))?;
        }
        // After the owner: a change of owner takes set-id bits away.
        self.file
            .set_permissions(Permissions::from_mode(self.mode))
            .map_err(|error| failed("cannot be given its mode")(&self.path, &error))?;
        if sync {
            self.file.sync_all().map_err(|error| failed("cannot be written to the disk")(&self.path, &error))?;
        }
        fs::rename(&self.temporary, &self.path)
            .map_err(|error| failed("cannot be put in place")(&self.path, &error))?;
        self.done = true;
        self.made.keep();
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.done {
            // There is nobody left to tell.
            let _ = fs::remove_file(&self.temporary);
            self.made.undo();
        }
    }
}

fn check_replaceable(path: &Path, existing: Option<&Metadata>) -> Result<(), Failure> {
    match existing {
        Some(metadata) if metadata.is_dir() => Err(failure::of(Code::IsADirectory, path, "is a directory")),
        Some(metadata) if !metadata.is_file() => {
            Err(failure::of(Code::InvalidPath, path, "is not a regular file: it would be replaced"))
        }
        _ => Ok(()),
    }
}

/// How often a directory may vanish while a file is to be made in it.
const RETRIES: u32 = 10;

/// A new file beside the target, its directory made if need be.
fn make_temporary(
    directory: &Path,
    owner: Option<(u32, u32)>,
    made: &mut path::Made,
) -> Result<(PathBuf, File), Failure> {
    let finish = |directory: &Path| match owner {
        Some((uid, gid)) => std::os::unix::fs::chown(directory, Some(uid), Some(gid)),
        None => Ok(()),
    };
    for attempt in 0.. {
        match made.directories(directory, &finish) {
            // An upload beside this one failed and took back a directory that both needed.
            Err(failure) if failure.code == Code::NotFound && attempt < RETRIES => continue,
            result => result?,
        }
        let temporary = directory.join(format!(".{:016x}.part", random()));
        let open =
            File::options().write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(&temporary);
        match open {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < RETRIES => {}
            Err(error) => return Err(failure::at(directory, "no file can be made there", &error)),
        }
    }
    unreachable!("the loop ends by returning")
}

/// Refuses at once what cannot fit, instead of after a long upload.
fn has_space(
    path: &Path,
    directory: &Path,
    size: Option<u64>,
    temporary: (PathBuf, File),
) -> Result<(PathBuf, File), Failure> {
    let Some(size) = size else { return Ok(temporary) };
    let fits = rustix::fs::fstatvfs(&temporary.1)
        .map(|statistics| statistics.f_bfree.saturating_mul(statistics.f_frsize) >= size || statistics.f_blocks == 0);
    match fits {
        Ok(false) => {
            let _ = fs::remove_file(&temporary.0);
            let message = format!("{}: no space for {size} bytes in {}", path.display(), directory.display());
            Err(Failure { code: Code::NoSpace, message, errno: Some(libc::ENOSPC) })
        }
        // A file system that cannot say is written to all the same.
        Ok(true) | Err(_) => Ok(temporary),
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness the name is one that is taken, or not: it is opened only if it is new.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK);
    u64::from_ne_bytes(bytes)
}
