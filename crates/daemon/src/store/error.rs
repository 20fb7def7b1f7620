//! What can go wrong with the store.

use std::path::PathBuf;
use std::sync::Arc;

/// An operation on the store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The file could not be opened or configured.
    #[error("cannot open the store {path}", path = path.display())]
    Open {
        /// The database file.
        path: PathBuf,
        /// What SQLite said.
        source: Arc<rusqlite::Error>,
    },
    /// The file belongs to some other program.
    #[error("{path} is not a Hutch store (application id {found:#x}); choose another data directory", path = path.display())]
    Foreign {
        /// The database file.
        path: PathBuf,
        /// The application id in its header.
        found: i64,
    },
    /// The file was written by a newer daemon.
    #[error(
        "the store {path} has version {found}, this program knows up to {known}; run the newer program, or restore \
         the backup made before the upgrade",
        path = path.display()
    )]
    Newer {
        /// The database file.
        path: PathBuf,
        /// The version in its header.
        found: i64,
        /// The newest version this program can read.
        known: i64,
    },
    /// The file is older than what this reader needs, and it may not be changed here.
    #[error("the store {path} has version {found} and is not upgraded yet; start `hutch serve` once", path = path.display())]
    Older {
        /// The database file.
        path: PathBuf,
        /// The version in its header.
        found: i64,
    },
    /// An upgrade step failed; the store keeps the version before it.
    #[error("cannot upgrade the store to version {to}")]
    Migration {
        /// The version that was not reached.
        to: i64,
        /// What SQLite said.
        source: Arc<rusqlite::Error>,
    },
    /// A statement failed.
    #[error("the store could not {what}")]
    Statement {
        /// What was being done.
        what: &'static str,
        /// What SQLite said.
        source: Arc<rusqlite::Error>,
    },
    /// The transaction was not made durable; none of it happened.
    #[error("the store could not commit ({what})")]
    Commit {
        /// What was being done.
        what: &'static str,
        /// What SQLite said.
        source: Arc<rusqlite::Error>,
    },
    /// The store's thread has ended: the daemon is stopping.
    #[error("the store is closed ({what})")]
    Closed {
        /// What was being done.
        what: &'static str,
    },
}
