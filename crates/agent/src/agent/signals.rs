//! Self signals: from their sources to the streams that watch.

use std::io;
use std::time::Instant;

use super::event_loop::Agent;
use super::poll::{Interest, Poll, Token};
use crate::self_signal::{Sources, Watchers};

/// The sources, and who is told.
#[derive(Debug)]
pub(crate) struct Signals {
    sources: Sources,
    /// Who is told.
    pub(crate) watchers: Watchers,
}

impl Signals {
    /// Waits for the sources.
    pub(crate) fn new(sources: Sources, poll: &Poll) -> io::Result<Self> {
        if let Some(server) = &sources.server {
            poll.add(server.listener(), Token::SelfServer, Interest::Readable)?;
        }
        if let Some(fifo) = &sources.fifo {
            poll.add(fifo.file(), Token::SelfFifo, Interest::Readable)?;
        }
        Ok(Self { sources, watchers: Watchers::default() })
    }

    /// When [`Agent::tick_signals`] wants to be called next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.sources.server.as_ref().and_then(crate::self_signal::server::Server::deadline)
    }

    fn accept(&mut self, poll: &Poll) {
        let Some(server) = &mut self.sources.server else { return };
        let accepted = server.accept(Instant::now());
        for key in accepted.open {
            let Some(socket) = server.socket(key) else { continue };
            // One that cannot be waited for ends with its time.
            let _ = poll.add(socket, Token::SelfConnection(key), Interest::Readable);
        }
        if server.rests() {
            poll.remove(server.listener());
        }
        self.watchers.raise(accepted.signal);
    }

    fn tick(&mut self, poll: &Poll, now: Instant) {
        let Some(server) = &mut self.sources.server else { return };
        if server.tick(now) {
            // If this fails the next connection finds nobody, and commands and files go on.
            let _ = poll.add(server.listener(), Token::SelfServer, Interest::Readable);
        }
    }
}

impl Agent {
    /// Something came by a source.
    pub(super) fn take_self_signal(&mut self, token: Token) {
        let sources = &mut self.self_signals.sources;
        match token {
            Token::SelfServer => self.self_signals.accept(&self.poll),
            Token::SelfConnection(key) => {
                let signal = sources.server.as_mut().and_then(|server| server.turn(key));
                self.self_signals.watchers.raise(signal);
            }
            _ => {
                let signal = sources.fifo.as_mut().and_then(crate::self_signal::sources::Fifo::read);
                self.self_signals.watchers.raise(signal);
            }
        }
    }

    /// Time has passed.
    pub(super) fn tick_signals(&mut self) {
        let now = Instant::now();
        if self.self_signals.deadline().is_some_and(|deadline| deadline <= now) {
            self.self_signals.tick(&self.poll, now);
        }
    }
}
