//! Asking a guest's kernel to save itself. The words are in `guest/kernel/SNAPSHOT.md`.

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const MAGIC: u32 = 0x4c54_4355;
const VERSION: u32 = 1;
const SAVE: u32 = 1;
const REQUEST: usize = 32;
const REPLY: usize = 64;
/// How long a kernel may take. It writes what the guest has in memory, to a disk that others use too.
const DEADLINE: Duration = Duration::from_secs(300);

/// What becomes of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// Its process ends, with status 4.
    End,
    /// It stands still for as long as the answer is held.
    Hold,
}

/// A kernel's answer. With [`After::Hold`] the machine stands still until it is dropped, a minute at most.
#[derive(Debug)]
pub(super) struct Answer {
    /// How long the machine stood still for the save itself.
    pub(super) stopped: Duration,
    _connection: UnixStream,
}

/// Why a kernel did not save itself.
#[derive(Debug)]
pub(super) enum ControlError {
    /// It cannot be asked, or did not answer as it should.
    Conversation(io::Error),
    /// It says that it could not.
    Refused(io::Error),
}

/// Asks the kernel that listens at `socket` to write itself into two empty files. Of its layers the first `keep` stay
/// as they are; the rest becomes one with `memory`. Blocks.
pub(super) fn save(
    socket: &Path,
    state: &File,
    memory: &File,
    keep: u32,
    after: After,
) -> Result<Answer, ControlError> {
    let answer = converse(socket, state, memory, keep, after).map_err(ControlError::Conversation)?;
    match answer {
        (0, answer) => Ok(answer),
        (errno, _) => Err(ControlError::Refused(io::Error::from_raw_os_error(errno))),
    }
}

fn converse(socket: &Path, state: &File, memory: &File, keep: u32, after: After) -> io::Result<(i32, Answer)> {
    let mut connection = connect(socket)?;
    connection.set_read_timeout(Some(DEADLINE))?;
    connection.set_write_timeout(Some(DEADLINE))?;
    let files = [state.as_fd(), memory.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    let request = request(keep, after);
    let sent = sendmsg(&connection, &[IoSlice::new(&request)], &mut ancillary, SendFlags::NOSIGNAL)?;
    if sent != REQUEST {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let mut reply = [0; REPLY];
    connection.read_exact(&mut reply)?;
    let word = |at: usize| u32::from_le_bytes([reply[at], reply[at + 1], reply[at + 2], reply[at + 3]]);
    if (word(0), word(4)) != (MAGIC, VERSION) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel does not speak this version"));
    }
    let stopped = Duration::from_nanos(u64::from(word(40)) | u64::from(word(44)) << 32);
    Ok((word(8).cast_signed(), Answer { stopped, _connection: connection }))
}

fn request(keep: u32, after: After) -> [u8; REQUEST] {
    let flags = match after {
        After::End => 1,
        After::Hold => 2,
    };
    let mut request = [0; REQUEST];
    for (place, word) in request.chunks_exact_mut(4).zip([MAGIC, VERSION, SAVE, flags, keep]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    request
}

/// Socket addresses hold 107 bytes of path: the directory is reached by its descriptor.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let (Some(parent), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the path of a socket"));
    };
    let directory = File::open(parent)?;
    UnixStream::connect(Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    /// A kernel that answers with these bytes.
    fn answered(reply: &'static [u8]) -> Result<Answer, ControlError> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let kernel = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut request = [0; REQUEST];
            connection.read_exact(&mut request).unwrap();
            connection.write_all(reply).unwrap();
            request
        });
        let file = tempfile::tempfile().unwrap();
        let answer = save(&socket, &file, &file, 1, After::Hold);
        assert_eq!(kernel.join().unwrap(), request(1, After::Hold));
        answer
    }

    const GOOD: [u8; REPLY] = {
        let mut reply = [0; REPLY];
        (reply[0], reply[1], reply[2], reply[3], reply[4]) = (0x55, 0x43, 0x54, 0x4c, 1);
        (reply[40], reply[41]) = (0x10, 0x27);
        reply
    };

    const FULL: [u8; REPLY] = {
        let mut reply = GOOD;
        reply[8] = 28;
        reply
    };

    #[test]
    fn a_request_has_its_words_in_their_places() {
        let request = request(1, After::End);
        assert_eq!(&request[..20], b"UCTL\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0");
        assert_eq!(request[20..], [0; 12]);
    }

    #[test]
    fn an_answer_is_read() {
        assert_eq!(answered(&GOOD).unwrap().stopped, Duration::from_micros(10));
        let Err(ControlError::Refused(error)) = answered(&FULL) else { panic!("it was refused") };
        assert_eq!(error.raw_os_error(), Some(28));
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for reply in [&b""[..], &GOOD[..63], &[0; REPLY]] {
            assert!(matches!(answered(reply), Err(ControlError::Conversation(_))), "{reply:?}");
        }
    }
}
