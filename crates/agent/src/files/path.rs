//! Paths as requests give them.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use hutch_protocol::{ByteText, Code, Failure};

use super::failure;

/// The kernel's bound for a path (`PATH_MAX`, with its NUL).
const LONGEST: usize = 4096;

/// Links that are followed to the end of a path at most, as the kernel does.
const LINKS: usize = 40;

/// Checks a path: absolute, without NUL, not too long.
pub(crate) fn parse(text: &ByteText) -> Result<PathBuf, Failure> {
    let bytes = text.as_bytes();
    let wrong = |what: &str| {
        let start: Vec<u8> = bytes.iter().take(256).copied().collect();
        Err(Failure::new(Code::InvalidPath, format!("path {}: {what}", ByteText::from(start))))
    };
    if bytes.first() != Some(&b'/') {
        return wrong("not absolute: it must begin with /");
    }
    if bytes.contains(&0) {
        return wrong("contains a NUL byte");
    }
    if bytes.len() >= LONGEST {
        return wrong("longer than 4095 bytes");
    }
    Ok(text.as_path().to_owned())
}

/// The path of a file that may not exist yet: a name at its end, and not a directory's.
pub(crate) fn parse_file(text: &ByteText) -> Result<PathBuf, Failure> {
    let path = parse(text)?;
    if text.as_bytes().ends_with(b"/") || path.file_name().is_none() {
        return Err(failure::of(Code::IsADirectory, &path, "names a directory, not a file"));
    }
    Ok(path)
}

/// Where a file at this path really lies: links at its end are followed, also to what does not exist yet.
pub(crate) fn resolve(path: &Path) -> Result<(PathBuf, Option<fs::Metadata>), Failure> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((path, None)),
            Err(error) => return Err(failure::at(&path, "cannot be looked at", &error)),
            Ok(metadata) if metadata.is_symlink() => {
                let target = fs::read_link(&path).map_err(|error| failure::at(&path, "cannot be read", &error))?;
                if target.as_os_str().as_bytes().ends_with(b"/") {
                    return Err(failure::of(Code::IsADirectory, &target, "names a directory, not a file"));
                }
                path = path.parent().unwrap_or(Path::new("/")).join(target);
            }
            Ok(metadata) => return Ok((path, Some(metadata))),
        }
    }
    Err(failure::of(Code::InvalidPath, &path, "too many symbolic links, or a loop of them"))
}

/// Directories that were made, outermost first, to be taken back if what they were made for fails.
#[derive(Debug, Default)]
pub(crate) struct Made(Vec<PathBuf>);

impl Made {
    /// Makes a directory and its missing parents, each given to `finish`.
    pub(crate) fn directories(&mut self, path: &Path, finish: &dyn Fn(&Path) -> io::Result<()>) -> Result<(), Failure> {
        let missing = path.ancestors().take_while(|ancestor| !ancestor.exists()).collect::<Vec<_>>();
        for directory in missing.into_iter().rev() {
            match fs::create_dir(directory) {
                Ok(()) => {
                    self.0.push(directory.to_owned());
                    finish(directory).map_err(|error| failure::at(directory, "cannot be set up", &error))?;
                }
                // Somebody else made it meanwhile, or it is a name like `..`.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
                Err(error) => return Err(failure::at(directory, "cannot be made", &error)),
            }
        }
        if !path.is_dir() {
            return Err(failure::of(Code::NotADirectory, path, "is not a directory"));
        }
        Ok(())
    }

    /// Takes back what is still empty.
    pub(crate) fn undo(&mut self) {
        for directory in self.0.drain(..).rev() {
            // What others have put something into stays.
            let _ = fs::remove_dir(directory);
        }
    }

    /// They stay.
    pub(crate) fn keep(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_name_nothing_are_refused() {
        let code = |text: &[u8]| parse(&text.into()).map_err(|failure| failure.code);
        for text in [&b""[..], b"a", b"./a", b"/a\0b", &[b'/'; 4096]] {
            assert_eq!(code(text), Err(Code::InvalidPath), "{}", text.escape_ascii());
        }
        assert!(code(&[b'/'; 4095]).is_ok());
        assert!(code(b"/../a b/%2F/\xff\n").is_ok());
        for text in ["/", "/a/", "/..", "/a/.."] {
            assert_eq!(parse_file(&text.into()).map_err(|failure| failure.code), Err(Code::IsADirectory), "{text}");
        }
    }

    #[test]
    fn links_are_followed_to_their_end_and_loops_are_seen() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("b", at("a")).unwrap();
        std::os::unix::fs::symlink(at("sub/c"), at("b")).unwrap();
        assert_eq!(resolve(&at("a")).unwrap().0, at("sub/c"));
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        assert_eq!(resolve(&at("loop")).unwrap_err().code, Code::InvalidPath);
    }

    #[test]
    fn only_what_was_made_and_is_empty_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("old")).unwrap();
        let mut made = Made::default();
        made.directories(&at("old/a/b/c"), &|_| Ok(())).unwrap();
        fs::write(at("old/a/x"), "").unwrap();
        made.undo();
        assert!(at("old/a").exists() && !at("old/a/b").exists());
        fs::write(at("file"), "").unwrap();
        assert_eq!(made.directories(&at("file/a"), &|_| Ok(())).unwrap_err().code, Code::NotADirectory);
        assert_eq!(made.directories(&at("file"), &|_| Ok(())).unwrap_err().code, Code::NotADirectory);
    }
}
