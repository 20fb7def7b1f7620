//! Opening the database file: pragmas, magic, version.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::error::StoreError;
use super::migration;

/// The magic in the header of the database file: "Htch".
pub(super) const APPLICATION_ID: i64 = 0x4874_6368;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads only; the file must exist and have the current version.
    Read,
    /// Reads and writes; the file must exist and have the current version.
    Edit,
    /// Reads and writes; makes the file and brings it to the current version.
    Write,
}

/// Opens the store at `path`.
///
/// # Errors
/// [`StoreError`] when the file cannot be opened, is not ours, or is from a newer program.
pub fn open(path: &Path, access: Access) -> Result<Connection, StoreError> {
    let failed = |source| StoreError::Open { path: path.to_owned(), source: Arc::new(source) };
    let flags = match access {
        Access::Read | Access::Edit => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    };
    if access == Access::Write {
        make_private(path).map_err(|error| failed(rusqlite::Error::ToSqlConversionFailure(Box::new(error))))?;
    }
    let mut connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    // Another process can hold the file for the length of one transaction: a key command, or a backup.
    connection.busy_timeout(Duration::from_secs(10)).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    check_magic(&connection, path)?;
    match access {
        Access::Write => {
            connection.pragma_update(None, "journal_mode", "wal").map_err(failed)?;
            connection.pragma_update(None, "synchronous", "full").map_err(failed)?;
            migration::upgrade(&mut connection, path)?;
        }
        Access::Edit => {
            migration::require_current(&connection, path)?;
            connection.pragma_update(None, "synchronous", "full").map_err(failed)?;
        }
        Access::Read => {
            migration::require_current(&connection, path)?;
            connection.pragma_update(None, "query_only", true).map_err(failed)?;
        }
    }
    Ok(connection)
}

/// Makes the file, if there is none, for its owner's eyes only: it holds what users put into environments. SQLite
/// gives its other files the same bits.
fn make_private(path: &Path) -> std::io::Result<()> {
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(drop)
}

/// Refuses a database that some other program made.
fn check_magic(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open { path: path.to_owned(), source: Arc::new(source) };
    let found: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    // An empty file without magic is one that we are about to fill, or were killed while filling.
    if found == APPLICATION_ID || (found == 0 && tables == 0) {
        Ok(())
    } else {
        Err(StoreError::Foreign { path: path.to_owned(), found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_programs_database_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hutch.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (a)").unwrap();
        let error = open(&path, Access::Write).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { found: 0, .. }), "{error}");
    }

    #[test]
    fn the_file_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let connection = open(&folder.path().join("hutch.db"), Access::Write).unwrap();
        connection.execute("INSERT INTO memory VALUES ('a', 'b')", []).unwrap();
        for name in ["hutch.db", "hutch.db-wal"] {
            let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_reader_needs_the_file_and_cannot_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hutch.db");
        assert!(matches!(open(&path, Access::Read), Err(StoreError::Open { .. })));
        drop(open(&path, Access::Write).unwrap());
        let reader = open(&path, Access::Read).unwrap();
        assert!(reader.execute("DELETE FROM accounts", []).is_err());
    }

    #[test]
    fn text_is_no_database() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hutch.db");
        std::fs::write(&path, "this is certainly not a database, although it is long enough to have a header").unwrap();
        assert!(matches!(open(&path, Access::Write), Err(StoreError::Open { .. })));
    }
}
