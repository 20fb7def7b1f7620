//! The schema as a list of numbered steps; `PRAGMA user_version` says how many a file has been through.
//!
//! A step that was released is never edited: a later one corrects it. Each runs in a transaction of its own
//! together with the change of the version, so that a file is always exactly at one version.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;

use super::connection::APPLICATION_ID;
use super::error::StoreError;

/// Step `n` (from 1) leads from version `n - 1` to version `n`.
const STEPS: [&str; 4] = [
    include_str!("migration/1.sql"),
    include_str!("migration/2.sql"),
    include_str!("migration/3.sql"),
    include_str!("migration/4.sql"),
];

/// The version that this program reads and writes.
pub(super) const CURRENT: i64 = STEPS.len() as i64;

/// Brings a database to the current version.
pub(super) fn upgrade(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    upgrade_to(connection, path, CURRENT)
}

/// Refuses a database of any other than the current version.
pub(super) fn require_current(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let found = version(connection, path)?;
    if found < CURRENT { Err(StoreError::Older { path: path.to_owned(), found }) } else { refuse_newer(found, path) }
}

fn upgrade_to(connection: &mut Connection, path: &Path, target: i64) -> Result<(), StoreError> {
    let found = version(connection, path)?;
    refuse_newer(found, path)?;
    for (to, step) in (1..=target).zip(STEPS).skip_while(|(to, _)| *to <= found) {
        let failed = |source| StoreError::Migration { to, source: Arc::new(source) };
        let transaction = connection.transaction().map_err(failed)?;
        transaction.execute_batch(step).map_err(failed)?;
        transaction.pragma_update(None, "user_version", to).map_err(failed)?;
        // The header's magic is part of the first step, so that a file is never ours without it.
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        transaction.commit().map_err(failed)?;
    }
    Ok(())
}

fn version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|source| StoreError::Open { path: path.to_owned(), source: Arc::new(source) })
}

fn refuse_newer(found: i64, path: &Path) -> Result<(), StoreError> {
    if found > CURRENT { Err(StoreError::Newer { path: path.to_owned(), found, known: CURRENT }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema as text, to compare two ways that lead to the same version.
    fn schema(connection: &Connection) -> Vec<String> {
        let mut statement =
            connection.prepare("SELECT sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY name").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn every_version_upgrades_to_the_current_one_and_keeps_its_rows() {
        let path = Path::new("memory");
        let mut fresh = Connection::open_in_memory().unwrap();
        upgrade(&mut fresh, path).unwrap();
        for from in 1..=CURRENT {
            let mut old = Connection::open_in_memory().unwrap();
            upgrade_to(&mut old, path, from).unwrap();
            // What every version since the first has had.
            old.execute_batch(include_str!("migration/1.rows.sql")).unwrap();
            upgrade(&mut old, path).unwrap();
            assert_eq!(schema(&old), schema(&fresh), "from version {from}");
            let state: String = old.query_row("SELECT state FROM sandboxes", [], |row| row.get(0)).unwrap();
            assert_eq!(state, "running", "from version {from}");
            let check: String = old.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok");
        }
    }

    #[test]
    fn upgrading_twice_is_upgrading_once() {
        let mut connection = Connection::open_in_memory().unwrap();
        upgrade(&mut connection, Path::new("memory")).unwrap();
        upgrade(&mut connection, Path::new("memory")).unwrap();
    }

    #[test]
    fn a_newer_store_is_refused_by_name_and_number() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", CURRENT + 1).unwrap();
        let error = upgrade(&mut connection, Path::new("/data/hutch.db")).unwrap_err().to_string();
        assert!(error.contains("/data/hutch.db") && error.contains(&format!("version {}", CURRENT + 1)), "{error}");
    }
}
