//! The listener on the loopback interface and its connections: few, short, and the newest first.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::SelfSignal;
use super::conversation::Conversation;
use crate::console;

/// Connections at once; beyond it the oldest is closed, so that nobody can keep others out.
const CONNECTIONS: usize = 16;

/// Connections accepted in one turn.
const ACCEPTED: usize = 32;

/// How long a listener that failed is left alone.
const RETRY: Duration = Duration::from_millis(500);

/// The server.
#[derive(Debug)]
pub(crate) struct Server {
    listener: OwnedFd,
    open: BTreeMap<u64, Conversation>,
    next: u64,
    /// The listener failed; until when it is left alone.
    rests_until: Option<Instant>,
}

/// What accepting led to.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    /// Connections that are to be waited for.
    pub(crate) open: Vec<u64>,
    /// What was asked for last.
    pub(crate) signal: Option<SelfSignal>,
}

impl Server {
    /// A server on this port of 127.0.0.1; 0 is any port. Gives the port as well.
    pub(crate) fn bind(port: u16) -> io::Result<(Self, u16)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let listener = OwnedFd::from(listener);
        Ok((Self { listener, open: BTreeMap::new(), next: 0, rests_until: None }, port))
    }

    /// The listening socket.
    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The connection under this key.
    pub(crate) fn socket(&self, key: u64) -> Option<BorrowedFd<'_>> {
        self.open.get(&key).map(Conversation::socket)
    }

    /// Takes new connections and what has come with them.
    pub(crate) fn accept(&mut self, now: Instant) -> Accepted {
        let mut accepted = Accepted::default();
        for _ in 0..ACCEPTED {
            match rustix::net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    let key = self.next;
                    self.next += 1;
                    if self.open.len() >= CONNECTIONS {
                        self.open.pop_first();
                    }
                    self.open.insert(key, Conversation::new(socket, now));
                    // Most requests are there already: they are heard however many connections come after.
                    accepted.signal = self.turn(key).or(accepted.signal);
                    accepted.open.push(key);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    console::say(&format!("a connection for a self signal cannot be taken: {error}"));
                    self.open.pop_first();
                    self.rests_until = Some(now + RETRY);
                    break;
                }
            }
        }
        accepted.open.retain(|key| self.open.contains_key(key));
        accepted
    }

    /// Something has come on this connection.
    pub(crate) fn turn(&mut self, key: u64) -> Option<SelfSignal> {
        let progress = self.open.get_mut(&key)?.turn();
        if progress.over {
            self.open.remove(&key);
        }
        progress.signal
    }

    /// Whether the listener is to be left alone for now.
    pub(crate) fn rests(&self) -> bool {
        self.rests_until.is_some()
    }

    /// When [`Server::tick`] wants to be called next; never while nobody is connected.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        // The oldest is over first.
        let oldest = self.open.first_key_value().map(|(_, conversation)| conversation.until());
        [oldest, self.rests_until].into_iter().flatten().min()
    }

    /// Closes what takes too long. Whether the listener is to be waited for again.
    pub(crate) fn tick(&mut self, now: Instant) -> bool {
        while self.open.first_key_value().is_some_and(|(_, oldest)| oldest.until() <= now) {
            self.open.pop_first();
        }
        let wakes = self.rests_until.is_some_and(|until| until <= now);
        if wakes {
            self.rests_until = None;
        }
        wakes
    }
}
