//! Who the guest is: its name and its machine id, in the kernel and in the files that say so.
//!
//! The files are the users' to change and to break: nothing here waits for a FIFO that lies in a file's place,
//! reads without end, or fails a whole configuration because a disk is full. A file that says the right thing
//! already is not written, because that would copy it to the sandbox's disk; one that does not is overwritten
//! where it is, which on a full disk still works.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use hutch_protocol::{Code, Failure};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

const HOSTNAME: &str = "/etc/hostname";
const HOSTS: &str = "/etc/hosts";
/// What systemd and most programs read.
const MACHINE_ID: &str = "/etc/machine-id";
/// What D-Bus reads. Most often a link to the other, or not there.
const DBUS_MACHINE_ID: &str = "/var/lib/dbus/machine-id";

/// In the place of a machine id that is still to be given: as long as one, so that the file keeps its size. No
/// program takes it for an id.
const NO_MACHINE_ID: &str = "00000000000000000000000000000000\n";

/// Larger files are no files of this kind.
const SIZE_MAX: usize = 256 << 10;

/// Checks a host name: 1 to 63 of letters, digits, `-`, and `.`, as the kernel and resolvers take it.
pub(crate) fn check(name: &str) -> Result<(), Failure> {
    let fits = (1..=63).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
    if fits {
        return Ok(());
    }
    let message = format!("hostname {name:?}: it must have 1 to 63 of letters, digits, '-' and '.'");
    Err(Failure::new(Code::InvalidRequest, message))
}

/// Checks a machine id as machine-id(5) and D-Bus want it.
pub(crate) fn check_machine_id(id: &str) -> Result<(), Failure> {
    let digits = id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if digits && id.bytes().any(|byte| byte != b'0') {
        return Ok(());
    }
    let message = format!("machine_id {id:?}: it must have 32 lower-case hexadecimal digits, not all of them 0");
    Err(Failure::new(Code::InvalidRequest, message))
}

/// Gives the guest its name. Files that cannot be written leave the name valid in the kernel.
pub(crate) fn set(name: &str) -> io::Result<()> {
    let is_new = rustix::system::uname().nodename().to_bytes() != name.as_bytes();
    if is_new {
        rustix::system::sethostname(name.as_bytes())?;
    }
    write_name(name, is_new);
    Ok(())
}

/// Gives the guest its machine id.
pub(crate) fn set_machine_id(id: &str) {
    let content = format!("{id}\n");
    say_failure(MACHINE_ID, put_new(Path::new(MACHINE_ID), content.as_bytes(), 0o444));
    // Without D-Bus there is no such file and none is needed; a link leads to the other.
    if is_file(Path::new(DBUS_MACHINE_ID)) {
        say_failure(DBUS_MACHINE_ID, put_new(Path::new(DBUS_MACHINE_ID), content.as_bytes(), 0o444));
    }
}

/// Puts files where [`set`] and [`set_machine_id`] will write, so that each machine that starts from this one only
/// overwrites them.
pub(crate) fn warm() {
    write_name("localhost", true);
    set_machine_id(NO_MACHINE_ID.trim_end());
}

fn write_name(name: &str, is_new: bool) {
    let write = if is_new { put_new } else { put };
    say_failure(HOSTNAME, write(Path::new(HOSTNAME), format!("{name}\n").as_bytes(), 0o644));
    // What users have made of it is kept: what cannot be read is not replaced.
    let hosts = match content(Path::new(HOSTS)) {
        Ok(None) => String::new(),
        Ok(Some(bytes)) => match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(_) => return,
        },
        Err(error) => return say_failure(HOSTS, Err(error)),
    };
    let wanted = hosts_with(&hosts, name);
    if wanted != hosts {
        say_failure(HOSTS, put_new(Path::new(HOSTS), wanted.as_bytes(), 0o644));
    }
}

fn say_failure(path: &str, result: io::Result<()>) {
    if let Err(error) = result {
        crate::console::say(&format!("{path} could not be written: {error}"));
    }
}

/// Makes the file say this, unless it does.
fn put(path: &Path, wanted: &[u8], mode: u32) -> io::Result<()> {
    match content(path) {
        Ok(Some(present)) if present == wanted => Ok(()),
        _ => put_new(path, wanted, mode),
    }
}

/// Makes the file say this. What lies there and is no file is replaced.
fn put_new(path: &Path, wanted: &[u8], mode: u32) -> io::Result<()> {
    match overwrite(path, wanted) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if is_file(path) => return Err(error),
        Err(_) => rustix::fs::unlink(path)?,
        Ok(()) => return Ok(()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?;
    write_all(&file, wanted)
}

/// Without truncating first: the file is never empty in between, and keeps its place on a full disk.
fn overwrite(path: &Path, wanted: &[u8]) -> io::Result<()> {
    let (file, size) = open_file(path, OFlags::WRONLY)?;
    write_all(&file, wanted)?;
    if size > wanted.len() as u64 {
        rustix::fs::ftruncate(&file, wanted.len() as u64)?;
    }
    Ok(())
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The content of a plain file; `None` if nothing is there.
fn content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match open_file(path, OFlags::RDONLY) {
        Ok((file, _)) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while bytes.len() <= SIZE_MAX {
        match rustix::io::read(&file, &mut buffer) {
            Ok(0) => return Ok(Some(bytes)),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {SIZE_MAX} bytes")))
}

/// Opens a plain file and nothing else, without ever waiting. Gives its size as well.
fn open_file(path: &Path, flags: OFlags) -> io::Result<(OwnedFd, u64)> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let status = rustix::fs::fstat(&file)?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Ok((file, u64::try_from(status.st_size).unwrap_or(0))),
        kind => Err(io::Error::other(format!("it is no plain file but a {kind:?}"))),
    }
}

fn is_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
}

/// The file with an entry for the name; what users wrote into it stays.
fn hosts_with(hosts: &str, name: &str) -> String {
    let own = format!("127.0.1.1\t{name}");
    if hosts.trim().is_empty() {
        return format!("127.0.0.1\tlocalhost\n{own}\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    }
    let mut found = false;
    let mut lines: Vec<&str> = hosts
        .lines()
        .map(|line| {
            if line.split_whitespace().next() != Some("127.0.1.1") || found {
                return line;
            }
            found = true;
            &own
        })
        .collect();
    if !found {
        lines.push(&own);
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    #[test]
    fn names_are_checked() {
        for name in ["", "a b", "a_b", "é", &"a".repeat(64)] {
            assert!(check(name).is_err(), "{name:?}");
        }
        assert!(check("quick-otter.example").is_ok());
        assert!(check_machine_id("0123456789abcdef0123456789abcdef").is_ok());
    }

    #[test]
    fn only_the_own_line_changes() {
        let fresh = hosts_with("", "one");
        assert!(fresh.contains("127.0.0.1\tlocalhost\n127.0.1.1\tone\n::1\tlocalhost"));
        assert_eq!(hosts_with(&fresh, "one"), fresh);
        let edited = format!("# mine\n{fresh}10.0.0.1 other");
        assert_eq!(hosts_with(&edited, "two"), format!("{}\n", edited.replace("\tone", "\ttwo")));
        assert_eq!(hosts_with("10.0.0.1 x\n", "two"), "10.0.0.1 x\n127.0.1.1\ttwo\n");
    }

    #[test]
    fn a_file_that_is_right_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        put(&path, b"one\n", 0o444).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o444);
        let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        fs::File::open(&path).unwrap().set_times(old).unwrap();
        put(&path, b"one\n", 0o444).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mtime(), 0);
        put(&path, b"o\n", 0o444).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"o\n");
        assert_eq!(fs::metadata(&path).unwrap().ino(), metadata.ino(), "it is written where it is");
    }

    #[test]
    fn what_users_put_there_makes_nobody_wait() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        symlink("/dev/zero", path("link")).unwrap();
        symlink("/nowhere", path("dangling")).unwrap();
        fs::write(path("large"), vec![b'x'; SIZE_MAX + 1]).unwrap();
        for name in ["fifo", "link", "dangling", "large"] {
            assert!(content(&path(name)).is_err(), "{name}");
            let write = if name == "link" { put } else { put_new };
            write(&path(name), b"id\n", 0o644).unwrap();
            assert!(fs::symlink_metadata(path(name)).unwrap().is_file());
            assert_eq!(fs::read(path(name)).unwrap(), b"id\n", "{name}");
        }
        fs::create_dir(path("directory")).unwrap();
        assert!(put(&path("directory"), b"id\n", 0o644).is_err());
        assert_eq!(content(&path("missing")).unwrap(), None);
    }
}
