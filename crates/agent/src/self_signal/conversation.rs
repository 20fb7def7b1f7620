//! One connection: a request, a reply, the end.
//!
//! ```text
//!   reading ──(head is whole, or wrong)──► replied ──(the other end closes)──► over
//!      └──────────(too late)──────────────────┴──(too late, or too much)───────► over
//! ```
//!
//! After the reply what still comes is read and thrown away: closing on unread bytes would take the reply from
//! the other end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use super::SelfSignal;
use super::request::{HEAD_MAX, Judgement, judge};

/// How long a conversation may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes that are read after the reply.
const DISCARDED_MAX: usize = 1 << 20;

/// Reads in one turn.
const READS: usize = 16;

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Conversation {
    socket: OwnedFd,
    received: Vec<u8>,
    discarded: Option<usize>,
    until: Instant,
}

/// What a turn led to.
#[derive(Debug)]
pub(crate) struct Progress {
    /// What was asked for, just now.
    pub(crate) signal: Option<SelfSignal>,
    /// The connection is to be closed.
    pub(crate) over: bool,
}

impl Conversation {
    /// A connection that was just accepted, and does not block.
    pub(crate) fn new(socket: OwnedFd, now: Instant) -> Self {
        Self { socket, received: Vec::new(), discarded: None, until: now + PATIENCE }
    }

    /// The descriptor to wait on.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// When it is over at the latest.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Goes on with what has come.
    pub(crate) fn turn(&mut self) -> Progress {
        let mut signal = None;
        let mut buffer = [0; 4096];
        for _ in 0..READS {
            let (count, ended) = match rustix::io::read(&self.socket, &mut buffer) {
                Ok(count) => (count, count == 0),
                Err(Errno::AGAIN | Errno::INTR) => return Progress { signal, over: false },
                Err(_) => return Progress { signal, over: true },
            };
            if let Some(discarded) = &mut self.discarded {
                *discarded += count;
                if ended || *discarded > DISCARDED_MAX {
                    return Progress { signal, over: true };
                }
                continue;
            }
            let room = HEAD_MAX - self.received.len();
            self.received.extend_from_slice(&buffer[..count.min(room)]);
            match judge(&self.received, ended) {
                Judgement::Reply(reply) => {
                    // A fresh socket has room for it; who takes the replies away has none to expect.
                    let _ = send(&self.socket, &reply.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                    let _ = shutdown(&self.socket, Shutdown::Write);
                    signal = reply.signal;
                    self.received = Vec::new();
                    self.discarded = Some(0);
                    if ended {
                        return Progress { signal, over: true };
                    }
                }
                Judgement::Incomplete if ended => return Progress { signal, over: true },
                Judgement::Incomplete => {}
            }
        }
        Progress { signal, over: false }
    }
}
