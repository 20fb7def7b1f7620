//! File operations whose errors say what was done to which path.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// An operation on a file or directory that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    /// What was tried, as a verb: `create`, `read`, `rename` ...
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

/// Adds the action and the path to a bare I/O error.
pub(crate) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { action, path: path.to_owned(), source: source.into() })
    }
}

pub(crate) fn create_directory(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).at("create the directory", path)
}

pub(crate) fn read_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).at("read", path)
}

/// Makes the content of a finished file durable and then gives it its name: after a crash the name leads to the
/// whole file or to none.
pub(crate) fn publish(from: &Path, to: &Path) -> Result<(), FileError> {
    File::open(from).and_then(|file| file.sync_all()).at("write back", from)?;
    fs::rename(from, to).at("put in place", to)?;
    let directory = to.parent().expect("a published file lies in a directory");
    File::open(directory).and_then(|file| file.sync_all()).at("write back", directory)
}

/// Removes a file; that it is already gone is no error.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.at("remove", path),
    }
}
