//! A tree as a tar stream.

use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use hutch_protocol::Failure;
use hutch_protocol::files::{Archive, Archived};

use super::list::Walk;
use super::read::open_regular;
use super::tar::{BLOCK, Kind, Member, padding};
use super::task::{Frames, Next, Step, Task, Work};
use super::{failure, path};

/// Bytes that one step sends at most.
const STEP: usize = 256 << 10;

/// Sends a tree.
#[derive(Debug)]
pub(crate) struct Archiving {
    request: Archive,
    root: PathBuf,
    /// What names in the archive begin with.
    name: Vec<u8>,
    walk: Option<Walk>,
    /// Blocks that are made but not sent, from `sent` on.
    blocks: Vec<u8>,
    sent: usize,
    content: Option<Content>,
    stage: Stage,
    members: u64,
    skipped: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Members,
    End,
}

/// A file whose header has said how long it is, and which is sent at this length whatever becomes of it.
#[derive(Debug)]
struct Content {
    file: File,
    left: u64,
    padding: usize,
}

impl Archiving {
    /// Opens the tree in its first step.
    pub(crate) fn new(request: Archive) -> Self {
        Self {
            request,
            root: PathBuf::new(),
            name: Vec::new(),
            walk: None,
            blocks: Vec::new(),
            sent: 0,
            content: None,
            stage: Stage::Begin,
            members: 0,
            skipped: 0,
        }
    }

    /// Sends as much as there is room for; whether that was all.
    fn send(&mut self, frames: &mut Frames) -> Result<bool, Failure> {
        let mut budget = STEP;
        loop {
            while self.sent < self.blocks.len() {
                let count = (self.blocks.len() - self.sent).min(frames.room()).min(budget);
                if count == 0 {
                    return Ok(false);
                }
                frames.data(&self.blocks[self.sent..self.sent + count]);
                self.sent += count;
                budget -= count;
            }
            self.blocks.clear();
            self.sent = 0;
            if self.content.is_some() {
                self.read_content();
            } else if self.stage == Stage::End {
                return Ok(true);
            } else {
                self.next_members()?;
            }
        }
    }

    fn next_members(&mut self) -> Result<(), Failure> {
        if self.stage == Stage::Begin {
            return self.begin();
        }
        while self.blocks.len() < 32 * BLOCK && self.content.is_none() {
            let next = match &mut self.walk {
                Some(walk) => walk.next()?,
                None => None,
            };
            let Some((below, metadata)) = next else {
                self.skipped += self.walk.as_ref().map_or(0, Walk::skipped);
                self.stage = Stage::End;
                self.blocks.resize(self.blocks.len() + 2 * BLOCK, 0);
                return Ok(());
            };
            let mut name = self.name.clone();
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(below.as_os_str().as_bytes());
            self.add(&self.root.join(below), &name, &metadata);
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let root = path::parse(&self.request.path)?;
        let metadata = fs::metadata(&root).map_err(|error| failure::at(&root, "cannot be archived", &error))?;
        self.name = root.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        self.stage = Stage::Members;
        if metadata.is_dir() {
            self.walk = Some(Walk::new(root.clone(), u32::MAX)?);
        } else {
            // What was asked for by name fails by name, and is not left out in silence.
            open_regular(&root)?;
        }
        let name = std::mem::take(&mut self.name);
        if !name.is_empty() {
            self.add(&root, &name, &metadata);
        }
        self.name = name;
        self.root = root;
        Ok(())
    }

    fn add(&mut self, path: &Path, name: &[u8], metadata: &Metadata) {
        let mut member = Member {
            name,
            kind: Kind::File,
            target: b"",
            size: 0,
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            modified: u64::try_from(metadata.mtime()).unwrap_or(0),
        };
        let target;
        if metadata.is_dir() {
            member.kind = Kind::Directory;
        } else if metadata.is_symlink() {
            let Ok(points_to) = fs::read_link(path) else { return self.skipped += 1 };
            target = points_to;
            member.kind = Kind::Link;
            member.target = target.as_os_str().as_bytes();
        } else if metadata.is_file() {
            let Ok((file, now)) = open_regular(path) else { return self.skipped += 1 };
            member.size = now.len();
            self.content = Some(Content { file, left: now.len(), padding: padding(now.len()) });
        } else {
            return self.skipped += 1;
        }
        self.members += 1;
        self.blocks.extend_from_slice(&member.header());
    }

    /// The next blocks of the file; zeros for what it has lost since its header.
    fn read_content(&mut self) {
        let Some(content) = &mut self.content else { return };
        let wanted = usize::try_from(content.left).unwrap_or(usize::MAX).min(STEP);
        self.blocks.resize(wanted, 0);
        let mut count = 0;
        while count < wanted {
            match content.file.read(&mut self.blocks[count..]) {
                Ok(0) | Err(_) => break,
                Ok(more) => count += more,
            }
        }
        self.blocks[count..].fill(0);
        content.left -= wanted as u64;
        if content.left == 0 {
            self.blocks.resize(wanted + content.padding, 0);
            self.content = None;
        }
    }
}

impl Task for Archiving {
    fn step(&mut self, work: Work) -> Step {
        let mut frames = work.frames;
        match self.send(&mut frames) {
            Ok(false) => Step { frames, next: Next::Credit(1) },
            Ok(true) => {
                frames.end();
                Step::done(frames, Ok(Archived { members: self.members, skipped: self.skipped }))
            }
            Err(failure) => Step::done::<Archived>(frames, Err(failure)),
        }
    }
}
