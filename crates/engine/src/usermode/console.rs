//! What a guest's kernel prints: kept in memory of a fixed size that the guest cannot make grow.
//!
//! A file on disk would be a way to fill the host's disk, a pipe one to stop the guest when nobody reads. The kernel
//! gets a memory file that is sealed at its size: what comes after is refused. It holds the beginning of a boot, and
//! a kernel that prints hardly anything after it also has its last words there.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags};

/// Size of the memory file.
const SIZE: u64 = 128 << 10;
/// How much of its end is shown.
const TAIL: usize = 8 << 10;
const NAME: &str = "hutch-console";

/// The console output of one machine.
#[derive(Debug)]
pub(super) struct Console(File);

impl Console {
    /// A new, empty one.
    pub(super) fn create() -> io::Result<Self> {
        let memory = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memory, SIZE)?;
        rustix::fs::fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(Self(File::from(memory)))
    }

    /// That of a running kernel, by its process id; `None` when its descriptor is no console of ours.
    pub(super) fn of_process(pid: u32) -> Option<Self> {
        let path = format!("/proc/{pid}/fd/1");
        let target = std::fs::read_link(&path).ok()?;
        let ours = target.to_string_lossy().starts_with(&format!("/memfd:{NAME}"));
        ours.then(|| File::open(&path).ok().map(Self)).flatten()
    }

    /// The same one once more.
    pub(super) fn another(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// A descriptor for the kernel to write to.
    pub(super) fn writer(&self) -> io::Result<OwnedFd> {
        Ok(self.0.try_clone()?.into())
    }

    /// The last that was printed, as text without control characters.
    pub(super) fn tail(&self) -> String {
        let mut bytes = vec![0; usize::try_from(SIZE).unwrap_or(0)];
        let length = self.0.read_at(&mut bytes, 0).unwrap_or(0);
        bytes.truncate(length);
        readable_tail(&bytes)
    }
}

/// The guest writes what it likes: nothing of it may reach a terminal or a log as anything but text.
fn readable_tail(bytes: &[u8]) -> String {
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let from = written.saturating_sub(TAIL);
    let text = String::from_utf8_lossy(bytes.get(from..written).unwrap_or_default());
    let kept = |c: char| {
        if c == '\n' || c == '\t' {
            Some(c)
        } else if c.is_control() {
            None
        } else {
            Some(c)
        }
    };
    text.chars().filter_map(kept).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_end_of_what_was_written_is_shown_as_text() {
        let console = Console::create().unwrap();
        let mut writer = File::from(console.writer().unwrap());
        writer.write_all(b"Kernel panic\r\n\x1b[31mred\xff\n").unwrap();
        assert_eq!(console.tail(), "Kernel panic\n[31mred\u{fffd}");
        writer.write_all(&vec![b'x'; TAIL]).unwrap();
        assert_eq!(console.tail(), "x".repeat(TAIL));
    }

    #[test]
    fn it_cannot_grow() {
        let console = Console::create().unwrap();
        let mut writer = File::from(console.writer().unwrap());
        let full = vec![b'x'; usize::try_from(SIZE).unwrap()];
        writer.write_all(&full).unwrap();
        assert!(writer.write_all(b"more").is_err());
        assert!(writer.set_len(1 << 40).is_err());
        assert_eq!(writer.metadata().unwrap().len(), SIZE);
    }
}
