//! A running command.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hutch_protocol::exec::{Ended, Signal};
use hutch_protocol::frame::{Body, Channel, DATA_MAX};

use super::client::Handle;
use super::connection::Lifeline;
use super::error::ClientError;
use super::stream::{Cell, Delivery, Source};

/// A running command. Dropping it kills the command and everything that it started, unless it has ended.
#[derive(Debug)]
pub struct Execution {
    handle: Handle,
    input: Option<Input>,
    ended: bool,
}

/// What a command does next. The order within a stream is kept; between the two it is nearly the order in
/// which the agent saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes on standard output.
    Stdout(Bytes),
    /// Bytes on standard error.
    Stderr(Bytes),
    /// The end; the last event.
    Ended(Ended),
}

/// Everything that a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// Standard output.
    pub stdout: Bytes,
    /// Standard error.
    pub stderr: Bytes,
    /// How it ended.
    pub ended: Ended,
}

impl Execution {
    pub(super) fn new(handle: Handle, stdin: bool) -> Self {
        let input = stdin.then(|| Input::new(&handle));
        Self { handle, input, ended: false }
    }

    /// The writing end of standard input, if the request had `stdin` set and nobody took it yet. As long as
    /// it lives the command sees no end of input.
    pub fn take_stdin(&mut self) -> Option<Input> {
        self.input.take()
    }

    /// The next event; `None` after [`Event::Ended`]. There is no deadline but the command's own timeout:
    /// a guest that does not answer pings is lost, and that is an error here. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        if self.ended {
            return Ok(None);
        }
        loop {
            match self.handle.next().await? {
                Delivery::Bytes(Source::Output, bytes, _) => return Ok(Some(Event::Stdout(bytes))),
                Delivery::Bytes(Source::Error, bytes, _) => return Ok(Some(Event::Stderr(bytes))),
                // Items are for additions of later releases.
                Delivery::Bytes(Source::Item, _, _) => {}
                Delivery::Answer(answer) => {
                    self.ended = true;
                    return self.handle.decode(answer).map(|ended| Some(Event::Ended(ended)));
                }
            }
        }
    }

    /// Sends a signal; if the command has ended meanwhile nothing happens.
    pub fn signal(&self, signal: Signal) {
        let json = serde_json::to_vec(&signal).expect("two plain fields are JSON");
        self.handle.connection.control(self.handle.stream, Body::Signal(&json));
    }

    /// Kills the command and everything that it started. Events go on, up to [`Event::Ended`] with the
    /// outcome `Cancelled`, or what it was if it ended by itself just before.
    pub fn cancel(&self) {
        self.handle.connection.control(self.handle.stream, Body::Cancel);
    }

    /// Gathers all output up to the end. Standard input, if not taken, ends at once. The command is killed
    /// when the two streams together exceed `limit` bytes; bound them in the request to get a truncated
    /// output instead.
    pub async fn collect(mut self, limit: usize) -> Result<Collected, ClientError> {
        self.input = None;
        let (mut stdout, mut stderr) = (BytesMut::new(), BytesMut::new());
        while let Some(event) = self.next().await? {
            match event {
                Event::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                Event::Stderr(bytes) => stderr.extend_from_slice(&bytes),
                Event::Ended(ended) => {
                    return Ok(Collected { stdout: stdout.freeze(), stderr: stderr.freeze(), ended });
                }
            }
            if stdout.len() + stderr.len() > limit {
                return Err(ClientError::OutputTooLarge { limit });
            }
        }
        unreachable!("`next` gives `Ended` or an error before it gives nothing")
    }
}

/// The writing end of a stream's input. Dropping it is the end of the input.
#[derive(Debug)]
pub struct Input {
    connection: Arc<Lifeline>,
    stream: u32,
    cell: Arc<Cell>,
}

impl Input {
    pub(super) fn new(handle: &Handle) -> Self {
        Self { connection: Arc::clone(&handle.connection), stream: handle.stream, cell: Arc::clone(&handle.cell) }
    }

    /// Sends bytes, waiting for the guest to make room. [`ClientError::InputClosed`] when nobody reads any
    /// more: that is no failure of the command. Not cancel-safe: a dropped write has sent a part.
    pub async fn write(&self, bytes: impl Into<Bytes>) -> Result<(), ClientError> {
        let mut bytes = bytes.into();
        while !bytes.is_empty() {
            self.connection.outgoing().room().await;
            let credit = self.cell.take_credit(bytes.len().min(DATA_MAX)).await;
            let credit = credit.map_err(|loss| ClientError::Lost { operation: "input", loss })?;
            let Some(count) = credit else { return Err(ClientError::InputClosed) };
            self.connection.outgoing().data(self.stream, Channel::Input, bytes.split_to(count));
        }
        Ok(())
    }

    /// The end of the input, like dropping it, by name.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.connection.control(self.stream, Body::End { channel: Channel::Input });
    }
}
