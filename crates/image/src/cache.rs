//! The cache directory: finished images and disk templates under their keys, one lock for each key, and the work
//! directories of running builds.
//!
//! ```text
//! images/<key>.erofs  images/<key>.json      a finished image and its description
//! disks/<size>.ext4                          a pristine disk of that size
//! locks/<key>                                held (flock) by whoever makes the thing of that key
//! work/<key>.<pid>/                          what a build has so far
//! ```
//!
//! A work directory is owned by the holder of its key's lock. The kernel drops the lock when the holder dies, however
//! it dies, so a work directory whose lock is free is a leftover: the next build removes it, no record is needed.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use hutch_units::Bytes;

use crate::file::{self, At, FileError};
use crate::progress::Cancel;

/// Where the cache lies unless `HUTCH_CACHE` names another place.
const DEFAULT: &str = "/var/cache/hutch";

/// How long the processes of a killed build may take to die before their files count as not removable.
const REMOVAL_DEADLINE: Duration = Duration::from_secs(10);

/// The cache directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A relative path would name another cache after a change of directory.
    #[error("the cache directory {} is not an absolute path; set HUTCH_CACHE to one", path.display())]
    Relative {
        /// The path that was given.
        path: PathBuf,
    },
    /// A directory of the cache could not be made or read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A work directory in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The directory.
    pub path: PathBuf,
    /// The process that made it.
    pub pid: Option<u32>,
    /// Whether its build still runs; if not, the next build or [`Cache::sweep`] removes it.
    pub is_running: bool,
}

/// The right to make the thing of one key. Dropped, or with the process, it is free again.
#[derive(Debug)]
pub(crate) struct Lock {
    key: String,
    _file: File,
}

/// A directory that goes when this value goes.
#[derive(Debug)]
pub(crate) struct Work {
    path: PathBuf,
}

impl Cache {
    /// Opens the cache, makes its directories where they are missing.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, CacheError> {
        let root = root.into();
        if !root.is_absolute() {
            return Err(CacheError::Relative { path: root });
        }
        for part in ["images", "disks", "locks", "work"] {
            file::create_directory(&root.join(part))?;
        }
        Ok(Self { root })
    }

    /// Opens the cache that `HUTCH_CACHE` names, or `/var/cache/hutch`.
    pub fn from_environment() -> Result<Self, CacheError> {
        let named = std::env::var_os("HUTCH_CACHE").filter(|path| !path.is_empty());
        Self::open(named.map_or_else(|| PathBuf::from(DEFAULT), PathBuf::from))
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The bytes that a build may still write to the cache's file system.
    pub fn free_space(&self) -> Result<Bytes, FileError> {
        crate::disk::free_space(&self.root)
    }

    /// The work directories there are, each with whether a build still owns it.
    pub fn leftovers(&self) -> Result<Vec<Leftover>, CacheError> {
        let work = self.root.join("work");
        let mut found = Vec::new();
        for entry in fs::read_dir(&work).at("list", &work)? {
            let path = entry.at("list", &work)?.path();
            let pid = path.extension().and_then(|pid| pid.to_str()?.parse().ok());
            let is_running = self.is_locked(key_of(&path))?;
            found.push(Leftover { path, pid, is_running });
        }
        Ok(found)
    }

    /// Removes the work directories of builds that were killed; returns what it removed.
    pub fn sweep(&self) -> Result<Vec<PathBuf>, CacheError> {
        let mut removed = Vec::new();
        for leftover in self.leftovers()?.into_iter().filter(|leftover| !leftover.is_running) {
            // A build of the same key may have begun since the look.
            if let Some(_lock) = self.try_lock(key_of(&leftover.path))? {
                remove_tree(&leftover.path)?;
                removed.push(leftover.path);
            }
        }
        Ok(removed)
    }

    pub(crate) fn image(&self, key: &str) -> PathBuf {
        self.root.join("images").join(format!("{key}.erofs"))
    }

    pub(crate) fn description(&self, key: &str) -> PathBuf {
        self.root.join("images").join(format!("{key}.json"))
    }

    pub(crate) fn disk_template(&self, name: &str) -> PathBuf {
        self.root.join("disks").join(format!("{name}.ext4"))
    }

    /// Waits for the lock of a key; `waiting` is called once if another has it. `None` when cancelled.
    pub(crate) fn lock(&self, key: &str, waiting: impl FnOnce(), cancel: &Cancel) -> Result<Option<Lock>, CacheError> {
        let mut waiting = Some(waiting);
        for attempt in 0u64.. {
            if let Some(lock) = self.try_lock(key)? {
                return Ok(Some(lock));
            }
            // The first time it may be no build but a look at the lock.
            if let Some(waiting) = waiting.take_if(|_| attempt > 0) {
                waiting();
            }
            if cancel.is_cancelled() {
                return Ok(None);
            }
            // A blocking flock could not be cancelled.
            thread::sleep(Duration::from_millis(100));
        }
        unreachable!("the attempts are not bounded")
    }

    fn is_locked(&self, key: &str) -> Result<bool, CacheError> {
        let path = self.root.join("locks").join(key);
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            result => result.at("open", &path)?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(source)) => Err(FileError { action: "lock", path, source }.into()),
        }
    }

    fn try_lock(&self, key: &str) -> Result<Option<Lock>, CacheError> {
        let path = self.root.join("locks").join(key);
        let file = File::options().create(true).append(true).open(&path).at("open", &path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { key: key.to_owned(), _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(FileError { action: "lock", path, source }.into()),
        }
    }

    /// A fresh work directory of the lock's key. Those of earlier holders are removed: they are dead.
    pub(crate) fn work(&self, lock: &Lock) -> Result<Work, CacheError> {
        let work = self.root.join("work");
        for leftover in self.leftovers()? {
            if key_of(&leftover.path) == lock.key {
                remove_tree(&leftover.path)?;
            }
        }
        self.sweep()?;
        let path = work.join(format!("{}.{}", lock.key, std::process::id()));
        fs::create_dir(&path).at("create the directory", &path)?;
        Ok(Work { path })
    }
}

impl Work {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What cannot be removed now is a leftover, which the next build removes or complains about.
        let _ = remove_tree(&self.path);
    }
}

/// The key of a work directory: its name without the process id.
fn key_of(work: &Path) -> &str {
    work.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

/// Removes a tree in which processes that were just killed may still write for an instant.
fn remove_tree(path: &Path) -> Result<(), FileError> {
    let deadline = Instant::now() + REMOVAL_DEADLINE;
    loop {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error).at("remove", path),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let cache = Cache::open(directory.path()).expect("a cache");
        (directory, cache)
    }

    fn lock(cache: &Cache, key: &str) -> Lock {
        cache.lock(key, || (), &Cancel::default()).expect("no error").expect("not cancelled")
    }

    #[test]
    fn a_relative_cache_is_refused() {
        let error = Cache::open("cache").expect_err("relative").to_string();
        assert!(error.contains("HUTCH_CACHE"), "{error}");
    }

    #[test]
    fn work_goes_with_its_value() {
        let (_directory, cache) = cache();
        let lock = lock(&cache, "a");
        let work = cache.work(&lock).expect("a work directory");
        fs::write(work.path().join("file"), "x").expect("a file");
        let leftovers = cache.leftovers().expect("a list");
        assert_eq!(leftovers.len(), 1);
        assert!(leftovers[0].is_running);
        assert_eq!(leftovers[0].pid, Some(std::process::id()));
        drop(work);
        assert!(cache.leftovers().expect("a list").is_empty());
    }

    #[test]
    fn only_work_without_a_lock_is_swept() {
        let (_directory, cache) = cache();
        let lock = lock(&cache, "a");
        let work = cache.work(&lock).expect("a work directory");
        let dead = cache.root().join("work/b.1/tree/etc");
        fs::create_dir_all(&dead).expect("a directory");
        assert_eq!(cache.sweep().expect("swept"), [cache.root().join("work/b.1")]);
        assert!(work.path().exists());
    }

    #[test]
    fn the_next_holder_removes_the_work_of_the_last() {
        let (_directory, cache) = cache();
        fs::create_dir_all(cache.root().join("work/a.1/tree")).expect("a directory");
        let lock = lock(&cache, "a");
        let work = cache.work(&lock).expect("a work directory");
        assert!(work.path().exists());
        assert!(!cache.root().join("work/a.1").exists());
    }

    #[test]
    fn waiting_for_a_lock_can_be_cancelled() {
        let (_directory, cache) = cache();
        let _held = lock(&cache, "a");
        let cancel = Cancel::default();
        let mut waited = false;
        let waiting = || {
            waited = true;
            cancel.cancel();
        };
        assert!(cache.lock("a", waiting, &cancel).expect("no error").is_none());
        assert!(waited);
    }
}
