//! Headers of tar members: POSIX ustar with GNU's long names, which every tar reads and which bear any bytes.

/// Size of a block: of a header, and of what content is rounded up to.
pub(crate) const BLOCK: usize = 512;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file with content.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

/// What a header says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    /// Path within the archive.
    pub(crate) name: &'a [u8],
    /// What it is.
    pub(crate) kind: Kind,
    /// Where a link points to.
    pub(crate) target: &'a [u8],
    /// Bytes of content.
    pub(crate) size: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Seconds since 1970.
    pub(crate) modified: u64,
}

const NAME: usize = 100;

impl Member<'_> {
    /// The blocks before the content.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut blocks = Vec::new();
        let mut name = self.name.to_vec();
        if self.kind == Kind::Directory {
            name.push(b'/');
        }
        if name.len() > NAME {
            long(&mut blocks, b'L', &name);
        }
        if self.target.len() > NAME {
            long(&mut blocks, b'K', self.target);
        }
        let kind = match self.kind {
            Kind::File => b'0',
            Kind::Link => b'2',
            Kind::Directory => b'5',
        };
        blocks.extend_from_slice(&self.block(&name, kind, self.size));
        blocks
    }

    fn block(&self, name: &[u8], kind: u8, size: u64) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        text(&mut block[0..100], name);
        number(&mut block[100..108], self.mode.into());
        number(&mut block[108..116], self.uid.into());
        number(&mut block[116..124], self.gid.into());
        number(&mut block[124..136], size);
        number(&mut block[136..148], self.modified);
        block[156] = kind;
        text(&mut block[157..257], self.target);
        // GNU's magic: the readers of its long names expect it.
        block[257..265].copy_from_slice(b"ustar  \0");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

/// Zero bytes that follow content of this size.
pub(crate) fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

fn long(blocks: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let carrier = Member {
        name: b"././@LongLink",
        kind: Kind::File,
        target: b"",
        size: 0,
        mode: 0o644,
        uid: 0,
        gid: 0,
        modified: 0,
    };
    let size = value.len() as u64 + 1;
    blocks.extend_from_slice(&carrier.block(carrier.name, kind, size));
    blocks.extend_from_slice(value);
    blocks.resize(blocks.len() + 1 + padding(size), 0);
}

/// Copies as much as fits: a long one has been sent before.
fn text(field: &mut [u8], value: &[u8]) {
    let length = value.len().min(field.len());
    field[..length].copy_from_slice(&value[..length]);
}

/// Octal digits and a NUL, or, for what does not fit them, GNU's base 256.
fn number(field: &mut [u8], value: u64) {
    let digits = field.len() - 1;
    let octal = format!("{value:0digits$o}");
    if octal.len() <= digits {
        field[..digits].copy_from_slice(octal.as_bytes());
    } else {
        let at = field.len() - 8;
        field[at..].copy_from_slice(&value.to_be_bytes());
        field[0] = 0x80;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    fn member(name: &[u8], kind: Kind) -> Member<'_> {
        Member { name, kind, target: b"", size: 0, mode: 0o750, uid: 3_000_000, gid: 4, modified: 1_700_000_000 }
    }

    /// What the system's tar makes of the archive.
    fn listed(archive: &[u8]) -> String {
        let mut tar = Command::new("tar")
            .args(["--numeric-owner", "--utc", "-tvf", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(archive).unwrap();
        let output = tar.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_systems_tar_reads_it() {
        let long = [b'n'; 250];
        let mut archive = Vec::new();
        archive.extend(member(b"d", Kind::Directory).header());
        archive.extend(Member { size: 3, ..member(&long, Kind::File) }.header());
        archive.extend(b"abc");
        archive.resize(archive.len() + padding(3), 0);
        archive.extend(Member { target: &[b't'; 200], ..member(b"l\n", Kind::Link) }.header());
        archive.resize(archive.len() + 2 * BLOCK, 0);
        let text = listed(&archive);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "drwxr-x--- 3000000/4         0 2023-11-14 22:13 d/");
        assert_eq!(lines[1], format!("-rwxr-x--- 3000000/4         3 2023-11-14 22:13 {}", "n".repeat(250)));
        assert_eq!(lines[2], format!("lrwxr-x--- 3000000/4         0 2023-11-14 22:13 l\\n -> {}", "t".repeat(200)));
    }

    #[test]
    fn sizes_beyond_eight_gibibytes_have_their_form() {
        let header = Member { size: 1 << 40, ..member(b"big", Kind::File) }.header();
        assert_eq!(header[124..136], [0x80, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(padding(0), 0);
        assert_eq!(padding(512), 0);
        assert_eq!(padding(513), 511);
    }
}
