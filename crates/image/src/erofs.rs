//! EROFS images, as mkfs.erofs writes them. They are not compressed: guests share their pages through the host's page
//! cache, and reading without decompression is about half as fast again, for some more space on the host's disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::built::hexadecimal;
use crate::file::{At, FileError};
use crate::program::{Program, ProgramError};
use crate::progress::Cancel;

/// Where the superblock lies and how it begins (Linux, fs/erofs/erofs_fs.h).
const SUPERBLOCK: u64 = 1024;
const MAGIC: [u8; 4] = 0xE0F5_E1E2_u32.to_le_bytes();
const UUID: std::ops::Range<usize> = 48..64;

/// What an image has besides its tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Labels<'a> {
    pub(crate) uuid: &'a str,
    pub(crate) times: Times,
    pub(crate) owners: Owners,
}

/// Whom the files in an image belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// As in the tree.
    Kept,
    /// All to root.
    Root,
}

/// Which times the files in an image have, in seconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Times {
    /// All the same.
    Fixed(u64),
    /// Their own, newer ones cut to this.
    AtMost(u64),
}

/// Packs a tree, with its modes and extended attributes.
pub(crate) fn pack([tree, image]: [&Path; 2], labels: Labels<'_>, cancel: &Cancel) -> Result<(), ProgramError> {
    let program = Program::single("mkfs.erofs").args(["--quiet", "-U", labels.uuid]);
    let program = program.args((labels.owners == Owners::Root).then_some("--all-root"));
    let program = match labels.times {
        Times::Fixed(seconds) => program.arg(format!("-T{seconds}")),
        Times::AtMost(seconds) => program.env("SOURCE_DATE_EPOCH", seconds.to_string()),
    };
    program.arg(image).arg(tree).run(cancel, |_| ())
}

/// The UUID that the image of a key has.
pub(crate) fn uuid(key: &str) -> String {
    [&key[..8], &key[8..12], &key[12..16], &key[16..20], &key[20..32]].join("-")
}

/// The UUID of an image; `None` for a file that is no EROFS.
pub(crate) fn read_uuid(image: &Path) -> Result<Option<String>, FileError> {
    let mut superblock = [0; 64];
    match File::open(image).and_then(|file| file.read_exact_at(&mut superblock, SUPERBLOCK)) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result.at("read", image)?,
    }
    Ok((superblock[..4] == MAGIC).then(|| self::uuid(&hexadecimal(&superblock[UUID]))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_has_the_uuid_of_its_key() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [tree, image] = ["tree", "image"].map(|name| directory.path().join(name));
        std::fs::create_dir(&tree).expect("a directory");
        std::fs::write(&image, "too short").expect("a file");
        assert_eq!(read_uuid(&image).expect("readable"), None);
        std::fs::write(&image, [0; 4096]).expect("a file");
        assert_eq!(read_uuid(&image).expect("readable"), None);

        let uuid = uuid(&"0123456789abcdef".repeat(4));
        assert_eq!(uuid, "01234567-89ab-cdef-0123-456789abcdef");
        let labels = Labels { uuid: &uuid, times: Times::Fixed(1), owners: Owners::Root };
        match pack([&tree, &image], labels, &Cancel::default()) {
            Err(error) => eprintln!("skipped: mkfs.erofs is not usable here: {error}"),
            Ok(()) => assert_eq!(read_uuid(&image).expect("readable"), Some(uuid)),
        }
    }
}
