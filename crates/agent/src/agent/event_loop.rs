//! The loop.
//!
//! ```text
//!   waiting for a connection ──(host connects)──► connected ──(host closes, or breaks the protocol)──┐
//!            ▲                                        │                                             │
//!            │                                   (Shutdown)                                         │
//!            │                                        ▼                                             │
//!            │                                     ending                                           │
//!            └──── its commands are orphans, its files undone; background children live ────────────┘
//! ```
//!
//! The next `Configure` says what becomes of orphans: they go on by themselves or are killed. When it does not
//! come in time they are killed.
//!
//! Reaping and the draining of leftovers go on whether there is a connection or not.

use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::commands::Commands;
use super::poll::{Interest, Poll, Token};
use super::requests::Routes;
use super::signals::Signals;
use super::transfers::Transfers;
use crate::channel::{Connection, ConnectionEnd, Source};
use crate::console;
use crate::exec::group::Groups;
use crate::machine::configuration::Configuration;
use crate::self_signal::Sources;
use crate::sys::signals;

/// What the agent begins with.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Where connections come from.
    pub(crate) source: Source,
    /// Control groups, where there are any.
    pub(crate) groups: Option<Groups>,
    /// Where self signals come from.
    pub(crate) signals: Sources,
    /// Whether the agent is the init of a guest.
    pub(crate) owns_machine: bool,
    /// When the agent started.
    pub(crate) started: Instant,
}

/// The agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(super) poll: Poll,
    pub(super) commands: Commands,
    pub(super) transfers: Transfers,
    pub(super) configuration: Configuration,
    pub(super) routes: Routes,
    pub(super) self_signals: Signals,
    source: Source,
    signals: OwnedFd,
    connection: Option<Connection>,
    /// Whether the channel is waited for to take more.
    writes: bool,
    next_key: u64,
    ends: bool,
    owns_machine: bool,
    /// When a source that failed is tried again.
    retry_at: Option<Instant>,
}

/// How long a source that failed is left alone.
const RETRY: Duration = Duration::from_millis(100);

/// How long the last answer may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Agent {
    /// Sets everything up. Must be called before any thread is started.
    pub(crate) fn new(setup: Setup) -> io::Result<Self> {
        let poll = Poll::new()?;
        let signals = signals::take()?;
        poll.add(&signals, Token::Signals, Interest::Readable)?;
        let transfers = Transfers::new()?;
        poll.add(transfers.wake(), Token::Workers, Interest::Readable)?;
        let self_signals = Signals::new(setup.signals, &poll)?;
        Ok(Self {
            poll,
            self_signals,
            commands: Commands::new(setup.groups)?,
            transfers,
            configuration: Configuration::new(setup.owns_machine, setup.started.elapsed()),
            routes: Routes::default(),
            source: setup.source,
            signals,
            connection: None,
            writes: false,
            next_key: 0,
            ends: false,
            owns_machine: setup.owns_machine,
            retry_at: None,
        })
    }

    /// Serves the host until it orders the end, or, for an agent that is no init, until it is asked to end.
    pub(crate) fn serve(mut self) -> Result<(), Box<dyn Error>> {
        self.connect()?;
        while !self.ends {
            let timeout = self.timeout();
            for (token, hung_up) in self.poll.wait(timeout)? {
                self.dispatch(token, hung_up)?;
            }
            self.turn()?;
        }
        self.say_last_words();
        if !self.owns_machine {
            self.commands.kill_all();
            if let Some(groups) = self.commands.into_groups() {
                groups.remove();
            }
        }
        Ok(())
    }

    /// A key for the tables, never used twice.
    pub(super) fn next_key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// Ends everything of the users and writes file systems out.
    pub(super) fn prepare_to_end(&mut self) {
        self.ends = true;
        if self.owns_machine {
            if let Some(Err(error)) = self.commands.groups().map(|groups| groups.kill_all()) {
                console::say(&format!("users' processes cannot be killed: {error}"));
            }
            rustix::fs::sync();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let has_room = self.connection.as_ref().is_none_or(Connection::has_room);
        if self.commands.is_busy(has_room) {
            return Some(Duration::ZERO);
        }
        let deadlines = [self.commands.deadline(), self.self_signals.deadline(), self.retry_at];
        let deadline = deadlines.into_iter().flatten().min();
        deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn dispatch(&mut self, token: Token, hung_up: bool) -> io::Result<()> {
        match token {
            Token::Source => self.connect()?,
            Token::Channel => self.read(),
            Token::Signals => self.take_signals(),
            Token::Workers => {
                let outgoing = self.connection.as_mut().map(Connection::outgoing);
                for stream in self.transfers.take_completed(outgoing) {
                    self.routes.close(stream);
                }
            }
            Token::Output(key, channel) => self.commands.wake_output(key, channel, hung_up),
            Token::Input(key) => self.pump_input(key),
            Token::Group(key) => self.commands.wake_group(key, &self.poll),
            Token::Leftover(key) => self.commands.drain_leftover(key),
            Token::SelfServer | Token::SelfConnection(_) | Token::SelfFifo => self.take_self_signal(token),
        }
        Ok(())
    }

    /// What is to be done after every wake-up.
    fn turn(&mut self) -> io::Result<()> {
        if self.retry_at.is_some_and(|retry_at| retry_at <= Instant::now()) {
            self.connect()?;
        }
        self.tick_signals();
        let outgoing = self.connection.as_mut().map(Connection::outgoing);
        for answered in self.commands.turn(outgoing, &self.poll) {
            if let Some(stream) = answered.stream {
                self.routes.close(stream);
            }
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        self.transfers.turn(connection.outgoing());
        self.self_signals.watchers.turn(connection.outgoing());
        match connection.flush() {
            Ok(written) => self.wait_for_room(!written),
            Err(end) => {
                self.disconnect(&end);
                self.connect()
            }
        }
    }

    fn wait_for_room(&mut self, waits: bool) -> io::Result<()> {
        if self.writes == waits {
            return Ok(());
        }
        let Some(connection) = &self.connection else { return Ok(()) };
        let interest = if waits { Interest::ReadableAndWritable } else { Interest::Readable };
        self.poll.modify(connection.fd(), Token::Channel, interest)?;
        self.writes = waits;
        Ok(())
    }

    fn read(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let end = self.read_from(&mut connection).err();
        // What was said before the end, for example that the generations do not fit, is still sent.
        self.connection = Some(connection);
        if let Some(end) = end {
            if let Some(connection) = &mut self.connection {
                let _ = connection.flush();
            }
            self.disconnect(&end);
            // A source that fails is tried again after a while.
            self.retry_at = Some(Instant::now());
        }
    }

    fn read_from(&mut self, connection: &mut Connection) -> Result<(), ConnectionEnd> {
        connection.read()?;
        while let Some((frame, outgoing)) = connection.next_frame()? {
            self.take_frame(frame, outgoing)?;
        }
        Ok(())
    }

    fn pump_input(&mut self, key: u64) {
        let outgoing = self.connection.as_mut().map(Connection::outgoing);
        let Some(execution) = self.commands.get(key) else { return };
        let stream = execution.stream();
        let Some(input) = execution.input() else { return };
        let written = input.pump();
        if let (Some(stream), Some(outgoing)) = (stream, outgoing) {
            crate::exec::execution::Execution::report_input(stream, &written, outgoing);
        }
    }

    fn take_signals(&mut self) {
        let mut record = [0; signals::RECORD];
        while rustix::io::read(&self.signals, &mut record) == Ok(signals::RECORD) {
            if signals::asks_to_end(&record) {
                // A guest's init does not end because somebody in the guest says so.
                self.ends |= !self.owns_machine;
            } else {
                self.commands.children_ended();
            }
        }
    }

    /// Takes the next connection if there is one and none now.
    fn connect(&mut self) -> io::Result<()> {
        self.retry_at = None;
        if self.connection.is_some() {
            return Ok(());
        }
        match self.source.next() {
            Ok(Some(fd)) => {
                self.poll.add(&fd, Token::Channel, Interest::Readable)?;
                self.connection = Some(Connection::new(fd));
                self.writes = false;
                if let Some(listener) = self.source.listener() {
                    self.poll.remove(listener);
                }
            }
            Ok(None) => {
                if let Some(listener) = self.source.listener() {
                    match self.poll.add(listener, Token::Source, Interest::Readable) {
                        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Err(error) => {
                console::say(&format!("no channel to the host: {error}"));
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
        Ok(())
    }

    /// The connection is over, and with it all that was asked on it but for commands, which wait to be told.
    fn disconnect(&mut self, end: &ConnectionEnd) {
        if !matches!(end, ConnectionEnd::Closed) {
            console::say_error(end);
        }
        self.connection = None;
        self.writes = false;
        self.routes = Routes::default();
        self.commands.orphan_all();
        self.self_signals.watchers.clear();
        self.transfers.cancel_all();
    }

    fn say_last_words(&mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        while let Some(connection) = &mut self.connection {
            match connection.flush() {
                Ok(false) if Instant::now() < deadline => {
                    if self.wait_for_room(true).and_then(|()| Ok(self.poll.wait(Some(RETRY))?)).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}
