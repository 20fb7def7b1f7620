//! Everything that can wake the agent, as one closed set of tokens over epoll(7).

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use hutch_protocol::frame::Channel;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// Who woke the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// The listener has a connection.
    Source,
    /// The connection can be read or written.
    Channel,
    /// A child ended, or the agent was asked to end.
    Signals,
    /// Steps on files are done.
    Workers,
    /// Standard output or error of the command with this key.
    Output(u64, Channel),
    /// Standard input of the command with this key.
    Input(u64),
    /// The control group of the command with this key, which may be over already.
    Group(u64),
    /// A pipe that a background child still holds.
    Leftover(u64),
    /// The server for self signals has a connection.
    SelfServer,
    /// Something came on its connection with this key.
    SelfConnection(u64),
    /// Something came by the FIFO for self signals.
    SelfFifo,
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Readable, as long as it is.
    Readable,
    /// Readable or writable, as long as it is.
    ReadableAndWritable,
    /// Readable, told once for each change.
    ReadableEdge,
    /// Writable, told once for each change.
    WritableEdge,
    /// An exceptional condition, told once for each change.
    PriorityEdge,
}

/// The set of what is waited for.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Poll").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

/// Events taken at once.
const EVENTS: usize = 64;

impl Token {
    const BITS: u32 = 8;

    fn encode(self) -> u64 {
        let (kind, key) = match self {
            Self::Source => (0, 0),
            Self::Channel => (1, 0),
            Self::Signals => (2, 0),
            Self::Workers => (3, 0),
            Self::Output(key, Channel::Error) => (5, key),
            Self::Output(key, _) => (4, key),
            Self::Input(key) => (6, key),
            Self::Group(key) => (7, key),
            Self::Leftover(key) => (8, key),
            Self::SelfServer => (9, 0),
            Self::SelfConnection(key) => (10, key),
            Self::SelfFifo => (11, 0),
        };
        // Keys count up from 0 and do not come near 2^56.
        key << Self::BITS | kind
    }

    fn decode(data: u64) -> Option<Self> {
        let key = data >> Self::BITS;
        Some(match data & 0xff {
            0 => Self::Source,
            1 => Self::Channel,
            2 => Self::Signals,
            3 => Self::Workers,
            4 => Self::Output(key, Channel::Output),
            5 => Self::Output(key, Channel::Error),
            6 => Self::Input(key),
            7 => Self::Group(key),
            8 => Self::Leftover(key),
            9 => Self::SelfServer,
            10 => Self::SelfConnection(key),
            11 => Self::SelfFifo,
            _ => return None,
        })
    }
}

impl Poll {
    /// Waits for nothing yet.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(EVENTS) })
    }

    /// Waits for this descriptor too, until it is closed or removed.
    pub(crate) fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token.encode()), flags(interest))
    }

    /// Waits for something else on it.
    pub(crate) fn modify(&self, fd: impl AsFd, token: Token, interest: Interest) -> rustix::io::Result<()> {
        epoll::modify(&self.epoll, fd, EventData::new_u64(token.encode()), flags(interest))
    }

    /// Waits for it no more.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        // It fails only for what was never added.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits until something happens or the time is over. Gives tokens with whether the other end hung up.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> rustix::io::Result<Vec<(Token, bool)>> {
        let timeout = timeout.map(|timeout| {
            // Rounded up: waking a moment too early would only mean to wait again.
            let timeout = timeout + Duration::from_micros(999);
            Timespec {
                tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            }
        });
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let hung_up = EventFlags::HUP | EventFlags::ERR;
        let tokens = self.events.iter().filter_map(|event| {
            let flags = event.flags;
            Token::decode(event.data.u64()).map(|token| (token, flags.intersects(hung_up)))
        });
        Ok(tokens.collect())
    }
}

fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Readable => EventFlags::IN,
        Interest::ReadableAndWritable => EventFlags::IN | EventFlags::OUT,
        Interest::ReadableEdge => EventFlags::IN | EventFlags::ET,
        Interest::WritableEdge => EventFlags::OUT | EventFlags::ET,
        Interest::PriorityEdge => EventFlags::PRI | EventFlags::ET,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        for token in [
            Token::Source,
            Token::Channel,
            Token::Signals,
            Token::Workers,
            Token::Output(0, Channel::Output),
            Token::Output(1 << 40, Channel::Error),
            Token::Input(7),
            Token::Group(8),
            Token::Leftover(9),
            Token::SelfServer,
            Token::SelfConnection(10),
            Token::SelfFifo,
        ] {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(u64::MAX), None);
    }
}
