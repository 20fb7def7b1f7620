//! Files of the guest. Every path is absolute; links are followed like the kernel does, except where said.

use serde::{Deserialize, Serialize};

use crate::text::ByteText;

/// Content of a file: an `Item` of [`Status`], then `Data` on `Output` and its `End`, then [`Transferred`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// The file.
    pub path: ByteText,
    /// First byte; behind the end of the file is no error and gives nothing.
    #[serde(default)]
    pub offset: u64,
    /// How many bytes at most; `None`: to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// A file made or replaced from `Data` on `Input` up to its `End`. The old content stays until the new is
/// whole: it is written beside it and renamed. Missing parent directories are made. A link at the path stays
/// and what it points to is replaced. A failure leaves nothing of it behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFile {
    /// The file.
    pub path: ByteText,
    /// Permission bits; `None`: those of the file that was there, else 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Owner in the form of [`Exec::user`](crate::exec::Exec::user); `None`: that of the file that was there,
    /// else root. Directories made on the way get it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Size if known: a file that cannot fit is refused at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Refuse content larger than this with `too_large`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Whether the answer waits until the content is on the disk.
    #[serde(default)]
    pub sync: bool,
}

/// The answer to [`ReadFile`] and [`WriteFile`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transferred {
    /// Bytes of content.
    pub bytes: u64,
}

/// Asks about one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The path.
    pub path: ByteText,
    /// Whether a link at the path is followed.
    #[serde(default)]
    pub follow: bool,
}

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits with set-id and sticky bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the content: nanoseconds since 1970.
    pub modified_ns: i64,
    /// Number of names.
    #[serde(default)]
    pub links: u64,
    /// Bytes that it takes on the disk; less than its size if it is sparse.
    #[serde(default)]
    pub allocated: u64,
    /// Where a link points to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<ByteText>,
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file with content.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, pipe, socket, or what this end does not know.
    #[serde(other)]
    Special,
}

/// The content of a directory: `Item`s of [`Entries`] in no particular order, then [`Listed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// The directory; a link to one is followed here, and nowhere below.
    pub path: ByteText,
    /// Levels: 1 is the directory's own entries.
    #[serde(default = "one_level")]
    pub depth: u32,
}

fn one_level() -> u32 {
    1
}

/// A part of a directory's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// The entries.
    pub entries: Vec<Entry>,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path below the directory that was asked for.
    pub path: ByteText,
    /// What it is.
    #[serde(flatten)]
    pub status: Status,
}

/// The answer to [`List`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// How many entries there were.
    pub entries: u64,
    /// Directories that could not be read or vanished meanwhile.
    #[serde(default)]
    pub skipped: u64,
}

/// Gives something another path. Missing parents of the new path are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Where it is; a link itself is moved.
    pub from: ByteText,
    /// Where it shall be.
    pub to: ByteText,
    /// Whether a file or an empty directory at the new path is replaced; else that is `exists`.
    #[serde(default)]
    pub replace: bool,
}

/// Removes a file, a link (not what it points to) or a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delete {
    /// The path.
    pub path: ByteText,
    /// Whether a directory goes with its content.
    #[serde(default)]
    pub recursive: bool,
}

/// Makes a directory and its missing parents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeDirectory {
    /// The path; a directory that is there already is no error.
    pub path: ByteText,
    /// Permission bits of new directories; `None`: 0755.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Owner of new directories in the form of [`Exec::user`](crate::exec::Exec::user); `None`: root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The answer to what has nothing to say but that it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// A tree as a tar stream (ustar with GNU long names): `Data` on `Output` and its `End`, then [`Archived`].
/// Links are kept as links, devices and sockets are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// Directory or file; names in the archive begin with its last component.
    pub path: ByteText,
}

/// The answer to [`Archive`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archived {
    /// Members of the archive.
    pub members: u64,
    /// Entries that were left out: special files, and what vanished or could not be read meanwhile.
    #[serde(default)]
    pub skipped: u64,
}
