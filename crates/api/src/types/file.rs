//! Files in a sandbox. Writing and reading whole files is the CreateOS interface; the rest is an addition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GuestPath, Timestamp};
use crate::ByteStream;

/// Where an uploaded file goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteFile {
    /// The file. Missing parents are made; an existing file is replaced at once when the upload is complete, and
    /// left alone when it is not.
    pub path: GuestPath,
    /// Permission bits (0 to 0o7777) of a new file; 0o644 when absent.
    pub mode: Option<u32>,
    /// How many bytes will come, when the request says (a chunked upload does not).
    pub length: Option<u64>,
}

/// The answer to an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// Bytes that were written.
    pub bytes: u64,
    /// Where.
    pub path: String,
}

/// Which part of which file is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFile {
    /// The file.
    pub path: GuestPath,
    /// The part; absent for the whole.
    pub range: Option<ByteRange>,
}

/// A part of a file, as the header `Range` of HTTP says it (RFC 9110, section 14.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From the first to the last byte, both included; to the end of the file when there is no last.
    From {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: Option<u64>,
    },
    /// The last so many bytes.
    Last(u64),
}

impl ByteRange {
    /// Offset and length in a file of `size` bytes; `None` when the range lies outside of it.
    pub fn resolve(self, size: u64) -> Option<(u64, u64)> {
        match self {
            Self::From { first, last } => {
                let last = last.unwrap_or(u64::MAX).min(size.checked_sub(1)?);
                (first <= last).then(|| (first, last - first + 1))
            }
            Self::Last(0) => None,
            Self::Last(count) => (size > 0).then(|| (size.saturating_sub(count), count.min(size))),
        }
    }
}

/// A file's content on its way to the caller.
pub struct FileBody {
    /// Size of the whole file.
    pub size: u64,
    /// Where in the file the content begins; 0 without a range.
    pub offset: u64,
    /// How many bytes `content` yields.
    pub length: u64,
    /// The bytes. When fewer come than announced, the connection is cut so that the caller notices.
    pub content: ByteStream,
}

impl std::fmt::Debug for FileBody {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, offset, length, content: _ } = self;
        write!(out, "FileBody {{ size: {size}, offset: {offset}, length: {length} }}")
    }
}

/// A file or what else a directory can hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    /// The last part of the path; bytes that are no UTF-8 are shown as U+FFFD.
    pub name: String,
    /// The whole path.
    pub path: String,
    /// What it is. Symbolic links are not followed.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits, for example 420 for `rw-r--r--`.
    pub mode: u32,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// When its content last changed.
    pub modified_at: Timestamp,
    /// Where a symbolic link points to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// What a directory can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, socket or pipe.
    Other,
}

/// A new name for a file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoveFile {
    /// What is moved.
    pub from: GuestPath,
    /// Its new path. Missing parents are made.
    pub to: GuestPath,
    /// Whether an existing file at `to` is replaced; without it that is a conflict.
    #[serde(default)]
    pub overwrite: bool,
}

/// The answer to a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// The new path.
    pub path: String,
}

/// A directory to make, with its missing parents. One that exists already is no error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MakeDirectory {
    /// The directory.
    pub path: GuestPath,
    /// Permission bits (0 to 4095) of a new directory; 493 (`rwxr-xr-x`) when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// The answer to a made directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Created {
    /// Its path.
    pub path: String,
    /// Whether it was not there before.
    pub created: bool,
}

/// A file or directory to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveFile {
    /// What is removed; a symbolic link itself, not what it points to.
    pub path: GuestPath,
    /// Whether a directory goes with all that is in it; without it, one that is not empty is a conflict.
    pub recursive: bool,
}

/// The answer to a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    /// What is gone.
    pub path: String,
    /// Always true.
    pub deleted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_file() {
        let from = |first, last| ByteRange::From { first, last };
        assert_eq!(from(0, None).resolve(10), Some((0, 10)));
        assert_eq!(from(3, Some(5)).resolve(10), Some((3, 3)));
        assert_eq!(from(9, Some(u64::MAX)).resolve(10), Some((9, 1)));
        assert_eq!(from(10, None).resolve(10), None);
        assert_eq!(from(0, None).resolve(0), None);
        assert_eq!(ByteRange::Last(4).resolve(10), Some((6, 4)));
        assert_eq!(ByteRange::Last(40).resolve(10), Some((0, 10)));
        assert_eq!(ByteRange::Last(0).resolve(10), None);
    }
}
