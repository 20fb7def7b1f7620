//! The disks that sandboxes write to: sparse ext4 files of exactly the size that was asked for, so the file system
//! is the hard limit of what a sandbox can fill.
//!
//! For each size a pristine template is made once and kept in the cache; a new disk is a copy of it that shares its
//! blocks, or copies the quarter mebibyte of data that an empty file system has. A disk takes space on the host only
//! as the sandbox writes to it.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use hutch_units::{Bytes, Mebibytes};

use crate::cache::{Cache, CacheError};
use crate::file::{self, At, FileError};
use crate::program::{Program, ProgramError};
use crate::progress::Cancel;
use crate::sparse;

/// The smallest disk: below it the journal takes too large a part.
pub const MINIMUM: Mebibytes = Mebibytes(64);

/// The largest disk, 1 TiB: every file system that holds the cache can have a sparse file of this length.
pub const MAXIMUM: Mebibytes = Mebibytes(1 << 20);

/// The label of every disk's file system.
pub const LABEL: &str = "hutch-disk";

/// Part of the templates' names: raise it when the same size begins to give another file system.
const FORMAT: u32 = 1;

/// Why there is no disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The size is outside of what a disk can have.
    #[error("a disk of {} MiB cannot be made: disk_mib is {} to {}", size.0, MINIMUM.0, MAXIMUM.0)]
    Size {
        /// What was asked for.
        size: Mebibytes,
    },
    /// There is already a file of that name; it is left as it is.
    #[error("the disk {} exists already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The template could not be formatted.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The cache could not be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The disk could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Makes a new disk of exactly this size, with mode 0600: about a millisecond once the cache has a template of the
/// size, and some ten before. The file appears under its name only when it is whole; a `<path>.new` may be left by a
/// process that was killed, and the next call for the same path replaces it. The content is not synced: a disk does
/// not outlive its host's crash.
///
/// # Errors
/// [`DiskError::Size`] for a size that is out of range, [`DiskError::Exists`] when `path` is taken.
pub fn create(cache: &Cache, path: &Path, size: Mebibytes) -> Result<(), DiskError> {
    if !(MINIMUM..=MAXIMUM).contains(&size) {
        return Err(DiskError::Size { size });
    }
    let template = template(cache, size)?;
    let template = File::open(&template).at("open", &template)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    file::remove(&new)?;
    let options = File::options().read(true).write(true).create_new(true).mode(0o600).open(&new);
    sparse::copy(&template, &options.at("create", &new)?).at("write", &new)?;
    // A hard link, unlike a rename, never replaces what is there.
    let linked = match fs::hard_link(&new, path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(DiskError::Exists { path: path.to_owned() })
        }
        result => result.at("create", path).map_err(DiskError::from),
    };
    file::remove(&new)?;
    linked
}

/// Copies a disk that nobody writes to: shares its blocks where the file system can, else copies what is in it. The
/// copy has mode 0600.
///
/// # Errors
/// [`DiskError::Exists`] when `to` is taken. When the copy fails nothing is left of it.
pub fn copy(from: &Path, to: &Path) -> Result<(), DiskError> {
    let source = File::open(from).at("open", from)?;
    let target = match File::options().read(true).write(true).create_new(true).mode(0o600).open(to) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(DiskError::Exists { path: to.to_owned() });
        }
        result => result.at("create", to)?,
    };
    let copied = sparse::copy(&source, &target).at("write", to);
    if copied.is_err() {
        file::remove(to)?;
    }
    Ok(copied?)
}

/// The bytes that a disk takes on the host now. Its length is its limit.
pub fn usage(path: &Path) -> Result<Bytes, FileError> {
    let metadata = path.metadata().at("look at", path)?;
    Ok(Bytes(metadata.blocks() * 512))
}

/// The bytes that may still be written to the file system of this directory.
pub fn free_space(directory: &Path) -> Result<Bytes, FileError> {
    let space = rustix::fs::statvfs(directory).at("look at the file system of", directory)?;
    Ok(Bytes(space.f_bavail.saturating_mul(space.f_frsize)))
}

/// The template of a size, made if the cache has none.
fn template(cache: &Cache, size: Mebibytes) -> Result<PathBuf, DiskError> {
    let name = format!("{}m-v{FORMAT}", size.0);
    let path = cache.disk_template(&name);
    if path.exists() {
        return Ok(path);
    }
    let never = Cancel::default();
    let key = format!("disk-{name}");
    let lock = cache.lock(&key, || (), &never)?.expect("a wait that is never cancelled ends with the lock");
    if path.exists() {
        return Ok(path);
    }
    let work = cache.work(&lock)?;
    let new = work.path().join("disk");
    let file = File::create_new(&new).at("create", &new)?;
    file.set_len(size.bytes().0).at("set the length of", &new)?;
    format(&new, size, &never)?;
    file::publish(&new, &path)?;
    Ok(path)
}

/// Writes an empty ext4. Everything that a fresh sparse file already is, zero, is not written again, neither now nor
/// by the guest's kernel later: its lazy initialisation would write a sixty-fourth of the disk's size.
fn format(path: &Path, size: Mebibytes, cancel: &Cancel) -> Result<(), ProgramError> {
    // A small journal keeps the file system whole when its kernel is killed.
    let journal = (size.0 / 16).clamp(4, 16);
    // Source trees and node_modules are many small files, and on a small disk they are all there is.
    let bytes_per_inode = if size.0 < 8192 { 8192 } else { 16384 };
    Program::single("mkfs.ext4")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-L", LABEL])
        .args(["-U", "68757463-6800-4000-8000-6469736b0000"])
        .args(["-O", "^resize_inode,sparse_super2"])
        .arg("-J")
        .arg(format!("size={journal}"))
        .arg("-i")
        .arg(bytes_per_inode.to_string())
        .arg("-E")
        .arg("nodiscard,assume_storage_prezeroed=1,lazy_itable_init=1,lazy_journal_init=1,num_backup_sb=1,packed_meta_blocks=1,root_owner=0:0")
        .arg(path)
        .run(cancel, |_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let cache = Cache::open(directory.path().join("cache")).expect("a cache");
        (directory, cache)
    }

    #[test]
    fn sizes_out_of_range_are_refused_with_the_range() {
        let (directory, cache) = cache();
        for size in [0, 63, (1 << 20) + 1, u32::MAX] {
            let error = create(&cache, &directory.path().join("disk"), Mebibytes(size)).expect_err("out of range");
            let expected = format!("a disk of {size} MiB cannot be made: disk_mib is 64 to 1048576");
            assert_eq!(error.to_string(), expected);
        }
        assert!(!directory.path().join("disk").exists());
    }

    #[test]
    fn free_space_is_that_of_the_file_system() {
        let (directory, cache) = cache();
        assert!(free_space(directory.path()).expect("it is there").0 > 0);
        assert!(free_space(&cache.root().join("no such directory")).is_err());
    }
}
