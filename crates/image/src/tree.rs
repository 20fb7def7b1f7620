//! What is done to a finished tree before it is packed.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::built::Package;
use crate::file::{At, FileError};

/// Directories whose content belongs to a running system, not to an image.
const VOLATILE: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];

/// The age of a tree that holds no file older than its build: 2026-01-01.
const FALLBACK: u64 = 1_767_225_600;

/// Empties the directories of a running system.
pub(crate) fn clear(tree: &Path) -> Result<(), FileError> {
    for name in VOLATILE {
        let directory = tree.join(name);
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            result => result.at("list", &directory)?,
        };
        for entry in entries {
            let path = entry.at("list", &directory)?.path();
            let is_directory = path.symlink_metadata().at("look at", &path)?.is_dir();
            if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.at("remove", &path)?;
        }
    }
    Ok(())
}

/// Gives every file that the build made or changed the time of the newest file that it did not, and returns that
/// time in seconds since 1970.
///
/// So the same packages give the same image, whenever it is built, and files from packages keep their own times.
/// They must: a compiled Python module is valid only for a source of the time that it has recorded.
pub(crate) fn settle_times(tree: &Path, build_began: SystemTime) -> Result<u64, FileError> {
    let began = seconds(build_began);
    let mut newest = 0;
    walk(tree, &mut |_, metadata| {
        let modified = u64::try_from(metadata.mtime()).unwrap_or(0);
        if modified < began && !metadata.is_dir() {
            newest = newest.max(modified);
        }
        Ok(())
    })?;
    let newest = if newest == 0 { FALLBACK } else { newest };
    let time = Timespec { tv_sec: i64::try_from(newest).expect("seconds since 1970 fit"), tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    walk(tree, &mut |path, metadata| {
        if u64::try_from(metadata.mtime()).unwrap_or(0) < began {
            return Ok(());
        }
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).at("set the times of", path)
    })?;
    Ok(newest)
}

/// The Debian packages of a tree, by name; none where dpkg was never run.
pub(crate) fn packages(tree: &Path) -> Result<Vec<Package>, FileError> {
    let status = tree.join("var/lib/dpkg/status");
    match fs::read_to_string(&status) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => Ok(parse_status(&result.at("read", &status)?)),
    }
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn parse_status(text: &str) -> Vec<Package> {
    let field = |stanza: &str, name: &str| {
        stanza.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(": ")?.trim().to_owned()))
    };
    let package = |stanza: &str| {
        let is_installed = field(stanza, "Status")?.ends_with(" installed");
        let package = Package { name: field(stanza, "Package")?, version: field(stanza, "Version")? };
        is_installed.then_some(package)
    };
    let mut packages: Vec<_> = text.split("\n\n").filter_map(package).collect();
    packages.sort_by(|left, right| left.name.cmp(&right.name));
    packages
}

/// Calls `visit` for everything in the tree and the tree itself, following no links.
fn walk(path: &Path, visit: &mut dyn FnMut(&Path, &Metadata) -> Result<(), FileError>) -> Result<(), FileError> {
    let metadata = path.symlink_metadata().at("look at", path)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).at("list", path)? {
            walk(&entry.at("list", path)?.path(), visit)?;
        }
    }
    visit(path, &metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(tree.path().join("etc")).expect("a directory");
        fs::create_dir_all(tree.path().join("run/lock")).expect("a directory");
        tree
    }

    #[test]
    fn only_what_the_build_touched_gets_a_new_time() {
        let tree = tree();
        let old = tree.path().join("etc/old");
        let new = tree.path().join("etc/new");
        let began = SystemTime::now();
        fs::write(&old, "").expect("a file");
        let released = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(&old).and_then(|file| file.set_modified(released)).expect("set");
        fs::write(&new, "").expect("a file");
        std::os::unix::fs::symlink("/no/such/target", tree.path().join("etc/link")).expect("a link");
        assert_eq!(settle_times(tree.path(), began).expect("settled"), 1_000_000_000);
        for name in ["etc/old", "etc/new", "etc/link", "etc", ""] {
            let metadata = tree.path().join(name).symlink_metadata().expect("it is there");
            assert_eq!(metadata.mtime(), 1_000_000_000, "{name}");
        }
    }

    #[test]
    fn a_tree_without_packages_has_a_fixed_age() {
        let tree = tree();
        assert_eq!(settle_times(tree.path(), UNIX_EPOCH).expect("settled"), FALLBACK);
    }

    #[test]
    fn the_directories_of_a_running_system_are_emptied() {
        let tree = tree();
        let outside = tempfile::tempdir().expect("a temporary directory");
        fs::write(outside.path().join("kept"), "").expect("a file");
        std::os::unix::fs::symlink(outside.path(), tree.path().join("run/link")).expect("a link");
        clear(tree.path()).expect("cleared");
        assert_eq!(fs::read_dir(tree.path().join("run")).expect("it stays").count(), 0);
        assert!(tree.path().join("etc").exists() && outside.path().join("kept").exists());
    }

    #[test]
    fn installed_packages_are_read_from_the_status_file() {
        let status = "Package: zlib1g\nStatus: install ok installed\nVersion: 1:1.3\nDescription: x\n Version: no\n\n\
                      Package: gone\nStatus: deinstall ok config-files\nVersion: 2\n\n\
                      Package: bash\nStatus: install ok installed\nVersion: 5.2\n";
        let packages: Vec<_> = parse_status(status).into_iter().map(|one| (one.name, one.version)).collect();
        let expected = [("bash", "5.2"), ("zlib1g", "1:1.3")];
        assert_eq!(packages, expected.map(|(name, version)| (name.to_owned(), version.to_owned())));
    }
}
