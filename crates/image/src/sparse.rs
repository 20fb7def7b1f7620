//! Copies of sparse files that stay sparse.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SeekFrom, copy_file_range, ftruncate, ioctl_ficlone, seek};
use rustix::io::Errno;

/// Makes `to`, a new and empty file, equal to `from`: by sharing its blocks where the file system can, else by
/// copying only its data. Either takes time by the amount of data, not by the length.
pub(crate) fn copy(from: &File, to: &File) -> io::Result<()> {
    if ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    // Not on one file system, or one that cannot share blocks.
    let length = from.metadata()?.len();
    ftruncate(to, length)?;
    let mut end = 0;
    while let Some(start) = next(from, SeekFrom::Data(end))? {
        end = next(from, SeekFrom::Hole(start))?.unwrap_or(length);
        copy_range(from, to, start, end)?;
    }
    Ok(())
}

/// Where the next data or hole begins; `None` at the end of the file.
fn next(file: &File, whence: SeekFrom) -> io::Result<Option<u64>> {
    match seek(file, whence) {
        Ok(offset) => Ok(Some(offset)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn copy_range(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut read, mut write) = (start, start);
    while read < end {
        let length = usize::try_from(end - read).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut read), to, Some(&mut write), length) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            // The kernel cannot copy between these two file systems.
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                return copy_by_hand(from, to, read, end);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy_by_hand(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 18];
    let mut offset = start;
    while offset < end {
        let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
        from.read_exact_at(&mut buffer[..length], offset)?;
        to.write_all_at(&buffer[..length], offset)?;
        offset += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::MetadataExt as _;

    const BLOCK: u64 = 64 * 1024;

    fn file() -> File {
        tempfile::tempfile().expect("a temporary file")
    }

    fn check(length: u64, blocks: &[u64], copy: impl FnOnce(&File, &File) -> io::Result<()>) {
        let (from, to) = (file(), file());
        from.set_len(length).expect("a length");
        for &block in blocks {
            let text = format!("block {block}");
            from.write_all_at(text.as_bytes(), block * BLOCK).expect("written");
        }
        copy(&from, &to).expect("copied");
        let allocated = |file: &File| file.metadata().expect("metadata").blocks() * 512;
        assert_eq!(to.metadata().expect("metadata").len(), from.metadata().expect("metadata").len());
        assert!(allocated(&to) <= allocated(&from) + BLOCK, "{} {}", allocated(&to), allocated(&from));
        for &block in blocks {
            let mut text = vec![0; format!("block {block}").len()];
            to.read_exact_at(&mut text, block * BLOCK).expect("read");
            assert_eq!(text, format!("block {block}").as_bytes());
        }
    }

    #[test]
    fn a_file_without_data_is_copied_as_a_hole() {
        check(1 << 40, &[], copy);
        check(0, &[], copy);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_copy_has_the_same_data_and_no_more(blocks in prop::collection::vec(0u64..200, 0..12)) {
            check(200 * BLOCK, &blocks, copy);
        }
    }

    #[test]
    fn copying_by_hand_gives_the_same_data() {
        let (from, to) = (file(), file());
        let data: Vec<_> = (0..700_000u32).map(|number| number.to_le_bytes()[0]).collect();
        from.write_all_at(&data, 0).expect("written");
        copy_by_hand(&from, &to, 5, 700_000).expect("copied");
        let mut copied = vec![0; data.len()];
        to.read_exact_at(&mut copied, 0).expect("read");
        assert_eq!(copied[..5], [0; 5]);
        assert_eq!(copied[5..], data[5..]);
    }
}
