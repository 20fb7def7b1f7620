//! Content of a file, and what lies at a path.

use std::fs::{self, File, Metadata};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use hutch_protocol::files::{FileKind, ReadFile, Stat, Status, Transferred};
use hutch_protocol::{Code, Failure};

use super::task::{Frames, Next, Step, Task, Work, json};
use super::{failure, path};

/// Bytes that one step reads at most.
const STEP: usize = 256 << 10;

/// Sends a file.
#[derive(Debug)]
pub(crate) struct Reading {
    request: ReadFile,
    file: Option<File>,
    left: u64,
    sent: u64,
    buffer: Vec<u8>,
}

impl Reading {
    /// Opens the file in its first step.
    pub(crate) fn new(request: ReadFile) -> Self {
        let left = request.length.unwrap_or(u64::MAX);
        Self { request, file: None, left, sent: 0, buffer: Vec::new() }
    }

    fn open(&mut self, frames: &mut Frames) -> Result<File, Failure> {
        let path = path::parse(&self.request.path)?;
        let (mut file, metadata) = open_regular(&path)?;
        // An offset behind the end reads as nothing, which is what it means here.
        let offset = self.request.offset.min(i64::MAX as u64);
        if offset > 0 {
            match file.seek(SeekFrom::Start(offset)) {
                Ok(_) => {}
                // Behind the end of the largest file that could lie there.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.left = 0,
                Err(error) => return Err(failure::at(&path, "cannot be read there", &error)),
            }
        }
        let sent = frames.item(&json(&status(&path, &metadata)));
        debug_assert!(sent, "the first credit has room for a status");
        self.buffer = vec![0; STEP];
        Ok(file)
    }

    fn read(&mut self, frames: &mut Frames) -> Result<bool, Failure> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open(frames)?,
        };
        let mut budget = STEP;
        let ended = loop {
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            if left == 0 {
                break true;
            }
            let wanted = left.min(frames.room()).min(budget).min(self.buffer.len());
            if wanted == 0 {
                break false;
            }
            let count = file
                .read(&mut self.buffer[..wanted])
                .map_err(|error| failure::at(self.request.path.as_path(), "cannot be read", &error))?;
            if count == 0 {
                break true;
            }
            frames.data(&self.buffer[..count]);
            self.left -= count as u64;
            self.sent += count as u64;
            budget -= count;
        };
        self.file = Some(file);
        Ok(ended)
    }
}

impl Task for Reading {
    fn step(&mut self, work: Work) -> Step {
        let mut frames = work.frames;
        match self.read(&mut frames) {
            Ok(false) => Step { frames, next: Next::Credit(1) },
            Ok(true) => {
                frames.end();
                Step::done(frames, Ok(Transferred { bytes: self.sent }))
            }
            Err(failure) => Step::done::<Transferred>(frames, Err(failure)),
        }
    }
}

/// Opens what is a file with content. Pipes and devices could block or never end.
pub(crate) fn open_regular(path: &Path) -> Result<(File, Metadata), Failure> {
    let open = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = match open {
        Ok(file) => file,
        // A socket.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            return Err(failure::of(Code::InvalidPath, path, "is not a regular file"));
        }
        Err(error) => return Err(failure::at(path, "cannot be opened", &error)),
    };
    let metadata = file.metadata().map_err(|error| failure::at(path, "cannot be looked at", &error))?;
    if metadata.is_dir() {
        return Err(failure::of(Code::IsADirectory, path, "is a directory"));
    }
    if !metadata.is_file() {
        return Err(failure::of(Code::InvalidPath, path, "is not a regular file"));
    }
    Ok((file, metadata))
}

/// What lies at the path.
pub(crate) fn stat(request: &Stat) -> Result<Status, Failure> {
    let path = path::parse(&request.path)?;
    let metadata = if request.follow { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
    let metadata = metadata.map_err(|error| failure::at(&path, "cannot be looked at", &error))?;
    Ok(status(&path, &metadata))
}

/// The status in the words of the protocol.
pub(crate) fn status(path: &Path, metadata: &Metadata) -> Status {
    let kind = if metadata.is_file() {
        FileKind::File
    } else if metadata.is_dir() {
        FileKind::Directory
    } else if metadata.is_symlink() {
        FileKind::Link
    } else {
        FileKind::Special
    };
    let target = (kind == FileKind::Link).then(|| fs::read_link(path).ok()).flatten();
    Status {
        kind,
        size: metadata.len(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        modified_ns: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
        links: metadata.nlink(),
        allocated: metadata.blocks().saturating_mul(512),
        target: target.map(|target| target.as_os_str().as_bytes().to_vec().into()),
    }
}
