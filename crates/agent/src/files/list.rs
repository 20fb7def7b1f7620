//! The content of a directory, level by level.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use hutch_protocol::files::{Entries, Entry, List, Listed};
use hutch_protocol::{Code, Failure};

use super::read::status;
use super::task::{Frames, Next, Step, Task, Work, json};
use super::{failure, path};

/// Bytes of JSON after which an item is complete.
const ITEM: usize = 24 << 10;

/// Bytes of paths still to be walked that are kept at most.
const PENDING: usize = 8 << 20;

/// Walks a tree without following links, deepest first; directories come before their content.
#[derive(Debug)]
pub(crate) struct Walk {
    root: PathBuf,
    depth: u32,
    open: Option<(fs::ReadDir, PathBuf, u32)>,
    pending: Vec<(PathBuf, u32)>,
    pending_bytes: usize,
    skipped: u64,
}

impl Walk {
    /// Opens the directory at the root. `depth` is the number of levels.
    pub(crate) fn new(root: PathBuf, depth: u32) -> Result<Self, Failure> {
        let open = fs::read_dir(&root).map_err(|error| failure::at(&root, "cannot be listed", &error))?;
        Ok(Self {
            root,
            depth,
            open: Some((open, PathBuf::new(), 1)),
            pending: Vec::new(),
            pending_bytes: 0,
            skipped: 0,
        })
    }

    /// Directories and entries that could not be read.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next entry: its path below the root, and its metadata.
    pub(crate) fn next(&mut self) -> Result<Option<(PathBuf, fs::Metadata)>, Failure> {
        loop {
            let Some((directory, prefix, level)) = &mut self.open else {
                match self.pending.pop() {
                    None => return Ok(None),
                    Some((prefix, level)) => self.enter(prefix, level),
                }
                continue;
            };
            let entry = match directory.next() {
                None => {
                    self.open = None;
                    continue;
                }
                Some(entry) => entry.and_then(|entry| Ok((entry.metadata()?, entry.file_name()))),
            };
            let level = *level;
            match entry {
                Ok((metadata, name)) => {
                    let path = prefix.join(name);
                    if metadata.is_dir() && level < self.depth {
                        self.postpone(path.clone(), level + 1)?;
                    }
                    return Ok(Some((path, metadata)));
                }
                Err(error) => {
                    self.skipped += 1;
                    // An entry that vanished is followed by others; a directory that cannot be read is not.
                    if error.kind() != io::ErrorKind::NotFound {
                        self.open = None;
                    }
                }
            }
        }
    }

    fn postpone(&mut self, prefix: PathBuf, level: u32) -> Result<(), Failure> {
        self.pending_bytes += prefix.as_os_str().len() + size_of::<PathBuf>();
        if self.pending_bytes > PENDING {
            return Err(failure::of(Code::TooLarge, &self.root, "too many directories side by side to walk them all"));
        }
        self.pending.push((prefix, level));
        Ok(())
    }

    fn enter(&mut self, prefix: PathBuf, level: u32) {
        self.pending_bytes -= prefix.as_os_str().len() + size_of::<PathBuf>();
        match fs::read_dir(self.root.join(&prefix)) {
            Ok(directory) => self.open = Some((directory, prefix, level)),
            Err(_) => self.skipped += 1,
        }
    }
}

/// Sends the content of a directory.
#[derive(Debug)]
pub(crate) struct Listing {
    request: List,
    walk: Option<Walk>,
    /// An item that found no room yet.
    waiting: Option<Vec<u8>>,
    ended: bool,
    entries: u64,
}

impl Listing {
    /// Opens the directory in its first step.
    pub(crate) fn new(request: List) -> Self {
        Self { request, walk: None, waiting: None, ended: false, entries: 0 }
    }

    fn send(&mut self, frames: &mut Frames) -> Result<Option<Listed>, Failure> {
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => Walk::new(path::parse(&self.request.path)?, self.request.depth)?,
        };
        // As many items as there is room for, but not for ever.
        for _ in 0..8 {
            if let Some(item) = self.waiting.take()
                && !frames.item(&item)
            {
                self.waiting = Some(item);
                break;
            }
            if self.ended {
                return Ok(Some(Listed { entries: self.entries, skipped: walk.skipped() }));
            }
            self.gather(&mut walk)?;
        }
        self.walk = Some(walk);
        Ok(None)
    }

    fn gather(&mut self, walk: &mut Walk) -> Result<(), Failure> {
        let mut entries = Vec::new();
        let mut size = 0;
        while size < ITEM {
            let Some((path, metadata)) = walk.next()? else {
                self.ended = true;
                break;
            };
            let entry = entry(&walk.root, &path, &metadata);
            // Names need up to six bytes for each of theirs, and a status up to some 300.
            size += 300
                + 6 * (entry.path.as_bytes().len() + entry.status.target.as_ref().map_or(0, |t| t.as_bytes().len()));
            entries.push(entry);
        }
        self.entries += entries.len() as u64;
        self.waiting = (!entries.is_empty()).then(|| json(&Entries { entries }));
        Ok(())
    }
}

fn entry(root: &Path, path: &Path, metadata: &fs::Metadata) -> Entry {
    Entry { path: path.as_os_str().as_bytes().to_vec().into(), status: status(&root.join(path), metadata) }
}

impl Task for Listing {
    fn step(&mut self, work: Work) -> Step {
        let mut frames = work.frames;
        match self.send(&mut frames) {
            Ok(None) => {
                // An item goes whole or not at all.
                let least = self.waiting.as_ref().map_or(1, Vec::len);
                Step { frames, next: Next::Credit(least) }
            }
            Ok(Some(answer)) => Step::done(frames, Ok(answer)),
            Err(failure) => Step::done::<Listed>(frames, Err(failure)),
        }
    }
}
