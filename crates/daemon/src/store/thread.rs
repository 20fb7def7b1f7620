//! The threads that own the connections.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::connection::{Access, open};
use super::error::StoreError;

/// How many writes share one transaction at most.
const BATCH: usize = 128;

/// The open store. Cheap to clone; the threads end, after what was handed to them, when the last clone is dropped.
#[derive(Clone)]
pub struct Store {
    writer: Arc<Worker>,
    reader: Arc<Worker>,
}

/// One piece of work.
struct Work {
    /// What it must survive.
    durability: Durability,
    run: Run,
}

/// Runs one piece of work, or learns why it cannot run, and returns how to tell the one who waits.
type Run = Box<dyn FnOnce(Result<&Connection, Arc<rusqlite::Error>>) -> Tell + Send>;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Durability {
    /// The end of the daemon, however it ends.
    Process,
    /// The loss of power as well.
    Power,
}

/// Tells the one who waits, once it is known whether the transaction is durable.
type Tell = Box<dyn FnOnce(Result<(), Arc<rusqlite::Error>>) + Send>;

struct Worker {
    /// `None` only while the worker is dropped.
    queue: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the database file and starts the threads.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let writer = open(path, Access::Write)?;
        let reader = open(path, Access::Read)?;
        Ok(Self {
            writer: Arc::new(Worker::start("store-writer", path, move |queue| write_all(&writer, &queue))?),
            reader: Arc::new(Worker::start("store-reader", path, move |queue| read_all(&reader, &queue))?),
        })
    }

    /// Runs `work` in a transaction and returns when it is durable. When `work` fails nothing of it stays.
    ///
    /// # Errors
    /// [`StoreError`] with `what` was being done.
    pub async fn write<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.writer.run(what, Durability::Power, work).await
    }

    /// As [`Store::write`], but what is acknowledged survives the end of the daemon and perhaps not the loss of power:
    /// it does not wait for the disk. For what a loss of power ends anyway, like a machine that runs.
    ///
    /// # Errors
    /// [`StoreError`] with `what` was being done.
    pub async fn note<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.writer.run(what, Durability::Process, work).await
    }

    /// Runs `work` on the connection that can only read.
    ///
    /// # Errors
    /// [`StoreError`] with `what` was being done.
    pub async fn read<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.reader.run(what, Durability::Process, work).await
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Store")
    }
}

impl Worker {
    fn start<F>(name: &str, path: &Path, body: F) -> Result<Self, StoreError>
    where
        F: FnOnce(Receiver<Work>) + Send + 'static,
    {
        let (queue, work) = channel();
        let thread =
            Builder::new().name(name.to_owned()).spawn(move || body(work)).map_err(|error| StoreError::Open {
                path: path.to_owned(),
                source: Arc::new(rusqlite::Error::ToSqlConversionFailure(Box::new(error))),
            })?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    async fn run<T, F>(&self, what: &'static str, durability: Durability, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let run = Box::new(move |connection: Result<&Connection, _>| -> Tell {
            let outcome = match connection {
                Ok(connection) => in_savepoint(connection, work).map_err(Arc::new),
                Err(error) => Err(error),
            };
            Box::new(move |commit| {
                let answer = match (outcome, commit) {
                    (Err(source), _) => Err(StoreError::Statement { what, source }),
                    (Ok(_), Err(source)) => Err(StoreError::Commit { what, source }),
                    (Ok(value), Ok(())) => Ok(value),
                };
                // Nobody may wait any more: the work stands all the same.
                drop(tell.send(answer));
            })
        });
        let queue = self.queue.as_ref().ok_or(StoreError::Closed { what })?;
        queue.send(Work { durability, run }).map_err(|_| StoreError::Closed { what })?;
        told.await.map_err(|_| StoreError::Closed { what })?
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Runs `work` so that when it fails nothing of it stays. On a connection outside of a transaction, which is the
/// reading one, the savepoint is a transaction of its own.
fn in_savepoint<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.execute_batch("SAVEPOINT work")?;
    let outcome = work(connection);
    let settled = match outcome {
        Ok(_) => connection.execute_batch("RELEASE work"),
        Err(_) => connection.execute_batch("ROLLBACK TO work; RELEASE work"),
    };
    match (outcome, settled) {
        (Ok(value), settled) => settled.map(|()| value),
        // After a full disk SQLite has rolled back everything by itself and there is no savepoint left to settle.
        (Err(error), _) => Err(error),
    }
}

/// Runs writes, as many as wait at the same time in one transaction.
fn write_all(connection: &Connection, queue: &Receiver<Work>) {
    let mut waiting = VecDeque::new();
    let mut current = Durability::Power;
    while let Ok(first) = queue.recv() {
        waiting.push_back(first);
        waiting.extend(queue.try_iter().take(BATCH - 1));
        // One that must survive a loss of power makes the whole transaction do so, and all that came before it.
        let wanted = waiting.iter().map(|work: &Work| work.durability).max().unwrap_or(Durability::Power);
        if wanted != current && set_durability(connection, wanted) {
            current = wanted;
        }
        write_batch(connection, &mut waiting);
    }
}

/// Whether it could be set. When it could not, the one before holds, and the next batch tries again.
fn set_durability(connection: &Connection, durability: Durability) -> bool {
    let mode = match durability {
        Durability::Process => "normal",
        Durability::Power => "full",
    };
    connection.pragma_update(None, "synchronous", mode).is_ok()
}

fn write_batch(connection: &Connection, waiting: &mut VecDeque<Work>) {
    let mut broken = connection.execute_batch("BEGIN IMMEDIATE").err().map(Arc::new);
    let mut tells = Vec::with_capacity(waiting.len());
    for work in waiting.drain(..) {
        tells.push((work.run)(broken.clone().map_or(Ok(connection), Err)));
        if broken.is_none() && connection.is_autocommit() {
            // SQLite gave up the transaction: what came before is gone, and nothing may follow outside of one.
            broken = Some(Arc::new(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT_ROLLBACK),
                Some("the transaction was rolled back".to_owned()),
            )));
        }
    }
    let ended = match broken {
        Some(error) => Err(error),
        None => connection.execute_batch("COMMIT").map_err(Arc::new),
    };
    if !connection.is_autocommit() {
        drop(connection.execute_batch("ROLLBACK"));
    }
    for tell in tells {
        tell(ended.clone());
    }
}

fn read_all(connection: &Connection, queue: &Receiver<Work>) {
    while let Ok(work) = queue.recv() {
        (work.run)(Ok(connection))(Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn count(store: &Store) -> i64 {
        store.read("count", |db| db.query_row("SELECT count(*) FROM memory", [], |row| row.get(0))).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_acknowledged_is_seen_and_what_failed_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("hutch.db")).unwrap();
        let good = store.write("insert", |db| db.execute("INSERT INTO memory VALUES ('a', '1')", []));
        let bad = store.write("insert twice", |db| {
            db.execute("INSERT INTO memory VALUES ('b', '1')", [])?;
            db.execute("INSERT INTO memory VALUES ('b', '1')", [])
        });
        let (good, bad) = tokio::join!(good, bad);
        assert_eq!(good.unwrap(), 1);
        assert!(matches!(bad, Err(StoreError::Statement { what: "insert twice", .. })));
        assert_eq!(count(&store).await, 1);
    }

    #[tokio::test]
    async fn notes_and_writes_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("hutch.db")).unwrap();
        let mode = |db: &Connection| db.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0));
        assert_eq!(store.note("note", mode).await.unwrap(), 1);
        assert_eq!(store.write("write", mode).await.unwrap(), 2);
        assert_eq!(store.note("note", mode).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_burst_is_written_whole_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("hutch.db")).unwrap();
        let writes = (0..300).map(|number| {
            store.write("insert", move |db| {
                db.execute("INSERT INTO memory VALUES (?1, (SELECT count(*) FROM memory))", [number])
            })
        });
        let answers = futures_util::future::join_all(writes).await;
        assert!(answers.into_iter().all(|answer| answer.is_ok()));
        let in_order = store.read("compare", |db| {
            db.query_row("SELECT count(*) FROM memory WHERE key = value", [], |row| row.get::<_, i64>(0))
        });
        assert_eq!(in_order.await.unwrap(), 300);
    }

    #[tokio::test]
    async fn the_reading_connection_cannot_write() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("hutch.db")).unwrap();
        assert!(store.read("cheat", |db| db.execute("INSERT INTO memory VALUES ('a', '1')", [])).await.is_err());
        assert_eq!(count(&store).await, 0);
    }
}
