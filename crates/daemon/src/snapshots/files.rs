//! The files of saved machines: linked, copied, moved, removed.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use hutch_engine::snapshot::{file, partial};

/// A file operation on a saved machine failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A disk could not be copied.
    #[error("cannot copy the disk {}", path.display())]
    Disk {
        /// The original.
        path: PathBuf,
        /// What happened.
        source: hutch_image::disk::DiskError,
    },
}

/// Whether a saved machine brings its disk along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Disk {
    /// It lies beside it, at another place.
    Elsewhere,
    /// A copy of this one becomes part of it.
    CopyOf(PathBuf),
}

/// When a disk was last written, in nanoseconds since 1970.
pub(crate) async fn stamp(disk: PathBuf) -> Result<i64, FileError> {
    blocking(disk, |disk| {
        let metadata = std::fs::metadata(disk).map_err(system("look at", disk))?;
        Ok(metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()))
    })
    .await
}

/// Makes a saved machine out of another's files, which cost nothing, and a copy of a disk.
pub(crate) async fn derive(from: PathBuf, to: PathBuf, disk: Disk) -> Result<(), FileError> {
    blocking(from, move |from| {
        let draft = partial(&to);
        for stale in [&draft, &to] {
            remove_tree(stale)?;
        }
        std::fs::DirBuilder::new().mode(0o700).create(&draft).map_err(system("create", &draft))?;
        for name in [file::STATE, file::MEMORY, file::MANIFEST] {
            let (existing, new) = (from.join(name), draft.join(name));
            std::fs::hard_link(&existing, &new).map_err(system("link", &existing))?;
        }
        if let Disk::CopyOf(disk) = &disk {
            copy_disk(disk, &draft.join(file::DISK))?;
        }
        std::fs::rename(&draft, &to).map_err(system("rename", &draft))
    })
    .await
}

/// Copies a disk to where there is none.
pub(crate) async fn copy(from: PathBuf, to: PathBuf) -> Result<(), FileError> {
    blocking(from, move |from| copy_disk(from, &to)).await
}

/// Makes the directory of a sandbox.
pub(crate) async fn make_directory(path: PathBuf) -> Result<(), FileError> {
    blocking(path, |path| std::fs::DirBuilder::new().mode(0o700).create(path).map_err(system("create", path))).await
}

/// Makes the directory of a machine with a copy of a disk in it.
pub(crate) async fn make_home(path: PathBuf, from: PathBuf, disk: PathBuf) -> Result<(), FileError> {
    blocking(path, move |path| {
        std::fs::DirBuilder::new().mode(0o700).create(path).map_err(system("create", path))?;
        copy_disk(&from, &disk)
    })
    .await
}

/// Moves the disk that a saved machine brings along to its place; one that brings none has it there already.
pub(crate) async fn move_disk(saved: PathBuf, disk: PathBuf) -> Result<(), FileError> {
    blocking(saved, move |saved| {
        let brought = saved.join(file::DISK);
        match std::fs::rename(&brought, &disk) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(system("move", &brought)(error)),
            _ => Ok(()),
        }
    })
    .await
}

/// Puts a disk that was copied beside a saved machine into it.
pub(crate) async fn add_disk(disk: PathBuf, saved: PathBuf) -> Result<(), FileError> {
    blocking(disk, move |disk| std::fs::rename(disk, saved.join(file::DISK)).map_err(system("move", disk))).await
}

/// Removes the saved machines in a sandbox's directory, whole or not, but the one with this number.
pub(crate) async fn remove_pauses(directory: PathBuf, keep: Option<u32>) -> Result<(), FileError> {
    let keep = keep.map(|number| format!("pause-{number}"));
    blocking(directory, move |directory| {
        let entries = std::fs::read_dir(directory).map_err(system("read", directory))?;
        for entry in entries {
            let entry = entry.map_err(system("read", directory))?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b"pause-") && keep.as_deref() != name.to_str() {
                remove_tree(&entry.path())?;
            }
        }
        Ok(())
    })
    .await
}

/// Removes a saved machine and whatever a broken attempt to write it has left beside it.
pub(crate) async fn remove(saved: PathBuf) -> Result<(), FileError> {
    blocking(saved, |saved| {
        for path in [beside(saved), partial(saved), saved.to_owned()] {
            remove_tree(&path)?;
        }
        Ok(())
    })
    .await
}

/// Where the copy of a disk lies while the machine is being saved that it belongs to.
pub(crate) fn beside(saved: &Path) -> PathBuf {
    let mut name = saved.as_os_str().to_owned();
    name.push(".disk");
    PathBuf::from(name)
}

/// What a saved machine takes on the host's disk, its own disk included.
pub(crate) async fn usage(saved: PathBuf) -> Result<u64, FileError> {
    blocking(saved, |saved| {
        let mut bytes = 0;
        for entry in std::fs::read_dir(saved).map_err(system("read", saved))? {
            let metadata = entry.and_then(|entry| entry.metadata()).map_err(system("read", saved))?;
            bytes += metadata.blocks() * 512;
        }
        Ok(bytes)
    })
    .await
}

fn copy_disk(from: &Path, to: &Path) -> Result<(), FileError> {
    hutch_image::disk::copy(from, to).map_err(|source| FileError::Disk { path: from.to_owned(), source })
}

/// Removes a file or a directory; that there is none is as well.
fn remove_tree(path: &Path) -> Result<(), FileError> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(system("remove", path)(error)),
        _ => Ok(()),
    }
}

fn system(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |source| FileError::System { action, path, source }
}

async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce(&Path) -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    match tokio::task::spawn_blocking(move || work(&path)).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime ends, and the daemon with it: what is to be made of it the next start decides.
        Err(_cancelled) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(directory: &Path) {
        std::fs::create_dir(directory).unwrap();
        for name in [file::STATE, file::MEMORY, file::MANIFEST] {
            std::fs::write(directory.join(name), name).unwrap();
        }
    }

    #[tokio::test]
    async fn a_derived_machine_stays_when_the_original_goes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to, disk) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("disk"));
        saved(&from);
        std::fs::write(&disk, "disk").unwrap();
        // What a killed daemon left does not stand in the way.
        std::fs::create_dir(partial(&to)).unwrap();
        derive(from.clone(), to.clone(), Disk::CopyOf(disk.clone())).await.unwrap();
        remove(from.clone()).await.unwrap();
        remove(from).await.unwrap();
        assert_eq!(std::fs::read_to_string(to.join(file::MEMORY)).unwrap(), file::MEMORY);
        assert_eq!(std::fs::read_to_string(to.join(file::DISK)).unwrap(), "disk");
        let place = folder.path().join("place");
        move_disk(to.clone(), place.clone()).await.unwrap();
        move_disk(to, place.clone()).await.unwrap();
        assert_eq!(stamp(place.clone()).await.unwrap(), stamp(place).await.unwrap());
    }

    #[tokio::test]
    async fn only_pauses_are_removed_and_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["pause-1", "pause-2", "pause-3.partial"] {
            saved(&folder.path().join(name));
        }
        std::fs::write(folder.path().join("disk.ext4"), "").unwrap();
        remove_pauses(folder.path().to_owned(), Some(2)).await.unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["disk.ext4", "pause-2"]);
    }
}
