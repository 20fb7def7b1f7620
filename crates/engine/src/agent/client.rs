//! The client: one method for each thing that can be asked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use hutch_protocol::exec::Exec;
use hutch_protocol::files::{
    Archive, Archived, Delete, List, MakeDirectory, Move, ReadFile, Stat, Status, Transferred, WriteFile,
};
use hutch_protocol::machine::{
    ClockSet, Configure, Configured, ReadStats, Reseed, SetClock, Shutdown, Stats, Warm, Watch,
};
use hutch_protocol::{Failure, Request};
use serde::de::DeserializeOwned;

use super::connection::{self, Lifeline, Options};
use super::error::{ClientError, Loss};
use super::execution::{Execution, Input};
use super::stream::{Answer, Cell, Delivery};
use super::transfer::{Download, Listing};
use super::watch::Events;

/// Content under one deadline.
const PIECE: usize = 256 << 10;

/// A connection to the agent of one machine. Cheap to clone; the connection ends with the last clone and the
/// last stream.
#[derive(Debug, Clone)]
pub struct Client {
    connection: Arc<Lifeline>,
    deadline: Duration,
}

impl Client {
    /// Connects to the agent's socket and agrees on a generation of the protocol. An agent that has not
    /// started yet is waited for until the deadline, if its socket is there.
    pub async fn connect(path: &Path, options: Options, deadline: Duration) -> Result<Self, ClientError> {
        let connection = connection::open(path, options, deadline).await?;
        Ok(Self { connection, deadline: options.answer_deadline })
    }

    /// The same connection with another deadline for single answers and for the next piece of content.
    #[must_use]
    pub fn deadline(&self, deadline: Duration) -> Self {
        Self { connection: Arc::clone(&self.connection), deadline }
    }

    /// Waits until the connection has ended, and says how.
    pub async fn lost(&self) -> Loss {
        let mut lost = self.connection.subscribe();
        let loss = lost.wait_for(Option::is_some).await.map_or(None, |loss| *loss);
        loss.unwrap_or(Loss::Abandoned)
    }

    /// How the connection ended, if it has.
    pub fn loss(&self) -> Option<Loss> {
        *self.connection.subscribe().borrow()
    }

    /// Closes the connection now, whoever still holds a part of it: what waits gets [`Loss::Abandoned`], and
    /// the agent kills what it runs for this connection.
    pub fn close(&self) {
        self.connection.lose(Loss::Abandoned);
    }

    /// Tells the guest its name, time, entropy and limits. Commands and files are refused before. Says also what
    /// becomes of commands of a connection that was lost.
    pub async fn configure(&self, configure: &Configure) -> Result<Configured, ClientError> {
        self.call(configure).await
    }

    /// Sets the guest's wall clock.
    pub async fn set_clock(&self, clock: &SetClock) -> Result<ClockSet, ClientError> {
        self.call(clock).await
    }

    /// Gives the guest entropy and returns when its generator was reseeded.
    pub async fn reseed(&self, reseed: &Reseed) -> Result<(), ClientError> {
        self.call(reseed).await.map(|_| ())
    }

    /// Asks how the guest is.
    pub async fn stats(&self) -> Result<Stats, ClientError> {
        self.call(&ReadStats {}).await
    }

    /// Ends the guest: returns when its file systems are written out, or the connection is gone.
    pub async fn shutdown(&self) -> Result<(), ClientError> {
        match self.call(&Shutdown {}).await {
            Ok(_) | Err(ClientError::Lost { loss: Loss::Closed, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lets the agent run `/bin/sh` once, so that what every command needs is in memory. Needs no
    /// [`Client::configure`] before.
    pub async fn warm(&self) -> Result<Duration, ClientError> {
        self.call(&Warm {}).await.map(|warmed| Duration::from_micros(warmed.wall_us))
    }

    /// What the guest asks for from now on, beginning with the last that it asked for while nobody watched.
    /// One that was given to a watcher is not given again. Needs no [`Client::configure`] before.
    pub async fn watch(&self) -> Result<Events, ClientError> {
        Ok(Events::new(self.open(&Watch {}).await?))
    }

    /// Starts a command. That it could not be started is an [`Event::Ended`](super::Event::Ended) like any
    /// other end.
    pub async fn exec(&self, exec: &Exec) -> Result<Execution, ClientError> {
        let handle = self.open(exec).await?;
        Ok(Execution::new(handle, exec.stdin))
    }

    /// Opens a file and returns when its status is known.
    pub async fn read_file(&self, read: &ReadFile) -> Result<Download<Transferred>, ClientError> {
        let handle = self.open(read).await?;
        Download::with_status(handle).await
    }

    /// A tree as a tar stream.
    pub async fn archive(&self, archive: &Archive) -> Result<Download<Archived>, ClientError> {
        Ok(Download::without_status(self.open(archive).await?))
    }

    /// Writes a file from a stream of content. If the content fails the file stays as it was. Returns the
    /// number of bytes.
    pub async fn write_file<S>(&self, write: &WriteFile, content: S) -> Result<u64, ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>>,
    {
        let handle = self.open(write).await?;
        let input = Input::new(&handle);
        let mut content = std::pin::pin!(content);
        let refused = loop {
            // An answer that comes before the end of the content is a refusal: a slow source is not waited for.
            let piece = tokio::select! {
                piece = content.next() => piece,
                answer = handle.answer() => break Some(answer?),
            };
            match piece {
                None => break None,
                Some(Err(source)) => {
                    return Err(ClientError::Source { operation: WriteFile::OPERATION.name(), source });
                }
                Some(Ok(bytes)) => match self.write_pieces(&handle, &input, bytes).await {
                    Ok(()) => {}
                    Err(ClientError::InputClosed) => break None,
                    Err(error) => return Err(error),
                },
            }
        };
        let answer = match refused {
            Some(answer) => answer,
            None => {
                input.end();
                handle.answer_in_time().await?
            }
        };
        handle.decode::<Transferred>(answer).map(|transferred| transferred.bytes)
    }

    /// What lies at a path.
    pub async fn stat(&self, stat: &Stat) -> Result<Status, ClientError> {
        self.call(stat).await
    }

    /// The content of a directory.
    pub async fn list(&self, list: &List) -> Result<Listing, ClientError> {
        Ok(Listing::new(self.open(list).await?))
    }

    /// Gives something another path.
    pub async fn rename(&self, request: &Move) -> Result<(), ClientError> {
        self.call(request).await.map(|_| ())
    }

    /// Removes something.
    pub async fn delete(&self, delete: &Delete) -> Result<(), ClientError> {
        self.call(delete).await.map(|_| ())
    }

    /// Makes a directory and its parents.
    pub async fn make_directory(&self, request: &MakeDirectory) -> Result<(), ClientError> {
        self.call(request).await.map(|_| ())
    }

    /// Sends bytes of any number, with the deadline for each piece and not for all.
    async fn write_pieces(&self, handle: &Handle, input: &Input, mut bytes: Bytes) -> Result<(), ClientError> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            tokio::time::timeout(self.deadline, input.write(piece)).await.unwrap_or_else(|_| Err(handle.late()))?;
        }
        Ok(())
    }

    async fn call<R: Request>(&self, request: &R) -> Result<R::Answer, ClientError> {
        let handle = self.open(request).await?;
        let answer = handle.answer_in_time().await?;
        handle.decode(answer)
    }

    async fn open<R: Request>(&self, request: &R) -> Result<Handle, ClientError> {
        let operation = R::OPERATION.name();
        let opening = tokio::time::timeout(self.deadline, self.connection.request(request));
        let late = ClientError::Deadline { operation, after: self.deadline };
        let (stream, cell) = opening.await.unwrap_or(Err(late))?;
        let connection = Arc::clone(&self.connection);
        Ok(Handle { connection, stream, cell, operation, deadline: self.deadline })
    }
}

/// An open stream. Dropping it cancels what the agent does for it.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) connection: Arc<Lifeline>,
    pub(super) stream: u32,
    pub(super) cell: Arc<Cell>,
    operation: &'static str,
    deadline: Duration,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.connection.abandon(self.stream, &self.cell);
    }
}

impl Handle {
    /// What comes next, with no deadline.
    pub(super) async fn next(&self) -> Result<Delivery, ClientError> {
        let delivery = self.cell.next().await.map_err(|loss| self.lost(loss))?;
        if let Delivery::Bytes(source, _, Some(bytes)) = &delivery {
            self.connection.control(self.stream, super::transfer::credit(*source, *bytes));
        }
        Ok(delivery)
    }

    /// What comes next, within the deadline.
    pub(super) async fn next_in_time(&self) -> Result<Delivery, ClientError> {
        tokio::time::timeout(self.deadline, self.next()).await.unwrap_or_else(|_| Err(self.late()))
    }

    /// The answer, whatever comes before it being thrown away.
    async fn answer(&self) -> Result<Answer, ClientError> {
        loop {
            if let Delivery::Answer(answer) = self.next().await? {
                return Ok(answer);
            }
        }
    }

    async fn answer_in_time(&self) -> Result<Answer, ClientError> {
        tokio::time::timeout(self.deadline, self.answer()).await.unwrap_or_else(|_| Err(self.late()))
    }

    /// The answer as its type, or the agent's refusal.
    pub(super) fn decode<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, ClientError> {
        let operation = self.operation;
        let malformed = |source| ClientError::Answer { operation, source };
        match answer {
            Answer::Result(json) => serde_json::from_slice(&json).map_err(malformed),
            Answer::Failure(json) => {
                let source = serde_json::from_slice::<Failure>(&json).map_err(malformed)?;
                Err(ClientError::Refused { operation, source })
            }
        }
    }

    /// An item as its type.
    pub(super) fn decode_item<T: DeserializeOwned>(&self, json: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(json).map_err(|source| ClientError::Answer { operation: self.operation, source })
    }

    pub(super) fn lost(&self, loss: Loss) -> ClientError {
        ClientError::Lost { operation: self.operation, loss }
    }

    fn late(&self) -> ClientError {
        ClientError::Deadline { operation: self.operation, after: self.deadline }
    }
}
