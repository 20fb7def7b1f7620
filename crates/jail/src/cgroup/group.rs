//! One sandbox's cgroup on the host: made, joined, emptied, removed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::layout::{Controller, Version, enable_controllers};
use super::settings::settings;
use crate::specification::Limits;

/// The cgroup of one sandbox: one directory with version 2, one for each hierarchy with version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The kernel's interface.
    pub version: Version,
    /// Its directories.
    pub directories: Vec<Directory>,
}

/// A directory of a sandbox's cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// The existing cgroup below which it is made, directories between included.
    pub anchor: PathBuf,
    /// The directory itself.
    pub path: PathBuf,
    /// The controllers that it is for.
    pub controllers: Vec<Controller>,
}

/// What could not be done with a cgroup.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {} failed", path.display())]
pub struct GroupError {
    /// What was tried: `making`, `writing`, `reading`, `removing`.
    pub operation: &'static str,
    /// The directory or file.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl Group {
    /// Makes the directories and sets the limits. Nobody may be in the cgroup before this returns.
    ///
    /// # Errors
    /// When a directory cannot be made or a required limit cannot be set; what was made is still there.
    pub fn create(&self, limits: &Limits) -> Result<(), GroupError> {
        for directory in &self.directories {
            self.create_directory(directory)?;
        }
        for setting in settings(self.version, limits) {
            for directory in self.directories.iter().filter(|d| d.controllers.contains(&setting.controller)) {
                let path = directory.path.join(setting.file);
                if !setting.required && !path.exists() {
                    continue;
                }
                let written = fs::write(&path, &setting.value);
                written
                    .or_else(|source| if setting.required { Err(failed("writing", &path, source)) } else { Ok(()) })?;
            }
        }
        Ok(())
    }

    fn create_directory(&self, directory: &Directory) -> Result<(), GroupError> {
        // Another sandbox of the scope that ends just now removes the empty directories between: then again.
        let mut result = Ok(());
        for _ in 0..100 {
            result = self.try_create_directory(directory);
            if !result.as_ref().is_err_and(|error| error.source.kind() == io::ErrorKind::NotFound) {
                return result;
            }
        }
        result
    }

    fn try_create_directory(&self, directory: &Directory) -> Result<(), GroupError> {
        for path in directory.steps() {
            if self.version == Version::V2 {
                let parent = path.parent().unwrap_or(&directory.anchor);
                enable_controllers(parent, &directory.controllers)
                    .map_err(|source| failed("enabling controllers in", parent, source))?;
            }
            match fs::create_dir(&path) {
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists && path != directory.path => {}
                other => other.map_err(|source| failed("making", &path, source))?,
            }
        }
        Ok(())
    }

    /// The directory in which a new process can begin its life; `None` with version 1, where it must join by itself.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn birthplace(&self) -> Result<Option<OwnedFd>, GroupError> {
        let (Version::V2, Some(directory)) = (self.version, self.directories.first()) else { return Ok(None) };
        let opened = fs::File::open(&directory.path);
        opened.map(|file| Some(file.into())).map_err(|source| failed("opening", &directory.path, source))
    }

    /// Puts the calling process, which has a single thread, into the cgroup, in every hierarchy of version 1; with
    /// version 2 it began its life there.
    ///
    /// By thread: to move a whole process the kernel waits until all processors have passed a quiet point, which takes
    /// milliseconds on a busy host.
    ///
    /// # Errors
    /// When the kernel refuses; the process may then be in some hierarchies and not in others.
    pub fn join(&self) -> Result<(), GroupError> {
        if self.version == Version::V2 {
            return Ok(());
        }
        for directory in &self.directories {
            let path = directory.path.join("tasks");
            fs::write(&path, "0").map_err(|source| failed("writing", &path, source))?;
        }
        Ok(())
    }

    /// The processes in any of its directories; none when it does not exist.
    ///
    /// # Errors
    /// When a directory exists but cannot be read.
    pub fn processes(&self) -> Result<Vec<u32>, GroupError> {
        let mut processes = Vec::new();
        for directory in &self.directories {
            processes.extend(processes_in(&directory.path)?);
        }
        processes.sort_unstable();
        processes.dedup();
        Ok(processes)
    }

    /// How many of its processes the kernel has killed for want of memory; 0 when that is not told.
    pub fn memory_kills(&self) -> u64 {
        let memory = self.directories.iter().find(|directory| directory.controllers.contains(&Controller::Memory));
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = memory.and_then(|directory| fs::read_to_string(directory.path.join(file)).ok());
        let count = |text: String| text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
        text.and_then(count).unwrap_or(0)
    }

    /// Removes the directories, and those above them up to the anchor that are empty then. Succeeds when they
    /// are already gone.
    ///
    /// # Errors
    /// While processes are in it (`ResourceBusy`), among others.
    pub fn remove(&self) -> Result<(), GroupError> {
        for directory in &self.directories {
            remove_directory(&directory.path).map_err(|source| failed("removing", &directory.path, source))?;
            for above in directory.steps().iter().rev().skip(1) {
                // Not empty means that another sandbox is there: it will be the one to remove it.
                if fs::remove_dir(above).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Directory {
    /// The directories from below the anchor to the cgroup itself.
    fn steps(&self) -> Vec<PathBuf> {
        let below = self.path.ancestors().take_while(|path| *path != self.anchor);
        let mut steps: Vec<PathBuf> = below.map(Path::to_owned).collect();
        steps.reverse();
        steps
    }
}

/// The processes in one cgroup directory and those below it; none when it does not exist.
pub(super) fn processes_in(directory: &Path) -> Result<Vec<u32>, GroupError> {
    let path = directory.join("cgroup.procs");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
        Err(source) if is_gone(&source) => Ok(Vec::new()),
        Err(source) => Err(failed("reading", &path, source)),
    }
}

fn remove_directory(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}

/// A cgroup that is being removed answers ENODEV where a file that is gone says ENOENT.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> GroupError {
    GroupError { operation, path: path.to_owned(), source }
}
