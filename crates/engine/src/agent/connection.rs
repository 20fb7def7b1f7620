//! The connection: two tasks, one that reads and one that writes, and the streams between them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hutch_protocol::frame::{Body, Frame};
use hutch_protocol::preamble::{self, Preamble};
use hutch_protocol::{Decoder, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::watch;
use tokio::time::timeout;

use super::error::{ClientError, Loss, Violation};
use super::outgoing::Outgoing;
use super::stream::{Abandoned, Cell, Progress};

/// How long to wait for what.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// For a single answer, and for the next piece of content while the agent has room to send it.
    pub answer_deadline: Duration,
    /// After this long without a word from the agent it is asked whether it is there.
    pub ping_interval: Duration,
    /// After this long without a word from the agent it is taken for lost.
    pub ping_deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            answer_deadline: Duration::from_secs(30),
            ping_interval: Duration::from_secs(5),
            ping_deadline: Duration::from_secs(60),
        }
    }
}

/// Bytes asked of the socket at once.
const READ: usize = 128 << 10;

/// What the tasks and the handles share. The tasks live until the connection is lost, which
/// [`Lifeline`] brings about when the last handle goes.
#[derive(Debug)]
pub(super) struct Connection {
    outgoing: Outgoing,
    streams: Mutex<Streams>,
    lost: watch::Sender<Option<Loss>>,
}

#[derive(Debug, Default)]
struct Streams {
    last: u32,
    open: HashMap<u32, Arc<Cell>>,
}

/// Held by every handle; the connection is closed with the last.
#[derive(Debug)]
pub(super) struct Lifeline(Arc<Connection>);

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.0.lose(Loss::Abandoned);
    }
}

impl std::ops::Deref for Lifeline {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

/// Connects, exchanges preambles and starts the two tasks.
pub(super) async fn open(path: &Path, options: Options, deadline: Duration) -> Result<Arc<Lifeline>, ClientError> {
    let connect = |source| ClientError::Connect { path: path.to_owned(), source };
    let attempt = async {
        let reachable = reachable(path).map_err(connect)?;
        let mut socket = UnixStream::connect(&reachable.path).await.map_err(connect)?;
        socket.write_all(&Preamble::OURS.encode()).await.map_err(connect)?;
        let mut bytes = [0; preamble::LENGTH];
        socket.read_exact(&mut bytes).await.map_err(connect)?;
        Preamble::decode(&bytes).and_then(Preamble::agree).map_err(|source| ClientError::Preamble { source })?;
        Ok(socket)
    };
    let late = ClientError::Deadline { operation: "connect", after: deadline };
    let socket = timeout(deadline, attempt).await.unwrap_or(Err(late))?;
    let (lost, _) = watch::channel(None);
    let connection = Arc::new(Connection { outgoing: Outgoing::default(), streams: Mutex::default(), lost });
    let (reading, writing) = socket.into_split();
    let reader = Arc::clone(&connection);
    let mut ended = connection.lost.subscribe();
    tokio::spawn(async move {
        let loss = tokio::select! {
            loss = reader.read_from(reading, options) => loss,
            _ = ended.wait_for(Option::is_some) => return,
        };
        reader.lose(loss);
    });
    let writer = Arc::clone(&connection);
    tokio::spawn(async move {
        if let Err(error) = writer.outgoing.write_to(writing).await {
            writer.lose(Loss::of(&error));
        }
    });
    Ok(Arc::new(Lifeline(connection)))
}

/// A path short enough for a socket address, and the directory that it is relative to.
struct Reachable {
    path: PathBuf,
    _directory: Option<std::os::fd::OwnedFd>,
}

/// Socket addresses hold 107 bytes of path. Longer ones are reached through the open parent directory.
fn reachable(path: &Path) -> std::io::Result<Reachable> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Reachable { path: path.to_owned(), _directory: None });
    };
    if path.as_os_str().len() < 108 {
        return Ok(Reachable { path: path.to_owned(), _directory: None });
    }
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, rustix::fs::Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    Ok(Reachable { path, _directory: Some(directory) })
}

impl Connection {
    /// Opens a stream with this request.
    pub(super) async fn request<R: Request>(&self, request: &R) -> Result<(u32, Arc<Cell>), ClientError> {
        let operation = R::OPERATION.name();
        let json = serde_json::to_vec(request).map_err(|source| ClientError::Answer { operation, source })?;
        self.outgoing.room().await;
        let cell = Arc::new(Cell::default());
        let mut streams = self.streams();
        if let Some(loss) = *self.lost.borrow() {
            return Err(ClientError::Lost { operation, loss });
        }
        let Some(stream) = streams.last.checked_add(1) else {
            // After 2^32 requests the caller connects anew.
            return Err(ClientError::Lost { operation, loss: Loss::Abandoned });
        };
        let body = Body::Open { operation: R::OPERATION as u8, request: &json };
        // Queued under the lock: the agent wants to see streams in the order of their numbers.
        self.outgoing.control(&Frame { stream, body }).map_err(|error| ClientError::RequestTooLarge {
            operation,
            length: error.length,
            limit: error.limit,
        })?;
        streams.last = stream;
        streams.open.insert(stream, Arc::clone(&cell));
        Ok((stream, cell))
    }

    /// Queues a control frame. A connection that is lost takes it and does nothing.
    pub(super) fn control(&self, stream: u32, body: Body<'_>) {
        let sent = self.outgoing.control(&Frame { stream, body });
        debug_assert!(sent.is_ok(), "control frames of this side are small");
    }

    /// The queue to the agent.
    pub(super) fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// A handle went: the agent is told if it still works for it.
    pub(super) fn abandon(&self, stream: u32, cell: &Cell) {
        if cell.abandon() == Abandoned::Live {
            self.control(stream, Body::Cancel);
        }
    }

    /// Ends everything that waits with this reason; the first reason stays.
    pub(super) fn lose(&self, loss: Loss) {
        let first = self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert(loss);
            first
        });
        if !first {
            return;
        }
        self.outgoing.close();
        let open = std::mem::take(&mut self.streams().open);
        for cell in open.values() {
            cell.lose(loss);
        }
    }

    /// Why the connection ended, once it has.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Loss>> {
        self.lost.subscribe()
    }

    async fn read_from(&self, mut socket: OwnedReadHalf, options: Options) -> Loss {
        let mut decoder = Decoder::for_host();
        let mut silent = Duration::ZERO;
        loop {
            match timeout(options.ping_interval, socket.read(decoder.space(READ))).await {
                Ok(Ok(0)) => return Loss::Closed,
                Ok(Ok(count)) => {
                    silent = Duration::ZERO;
                    decoder.filled(count);
                    if let Err(violation) = self.take_frames(&mut decoder) {
                        return Loss::Violation(violation);
                    }
                }
                Ok(Err(error)) => return Loss::of(&error),
                Err(_) => {
                    silent += options.ping_interval;
                    if silent >= options.ping_deadline {
                        return Loss::Unresponsive;
                    }
                    self.control(0, Body::Ping(*b"are you?"));
                }
            }
        }
    }

    fn take_frames(&self, decoder: &mut Decoder) -> Result<(), Violation> {
        while let Some(frame) = decoder.next_frame().map_err(Violation::Frame)? {
            match frame.body {
                Body::Pong(_) => continue,
                Body::Ping(_) => return Err(Violation::Unexpected(0)),
                _ => {}
            }
            let mut streams = self.streams();
            let Entry::Occupied(entry) = streams.open.entry(frame.stream) else {
                return Err(Violation::Stream(frame.stream));
            };
            if entry.get().apply(frame.stream, &frame.body)? == Progress::Answered {
                entry.remove();
            }
        }
        Ok(())
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // A panic while the lock was held cannot leave the table half changed.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
