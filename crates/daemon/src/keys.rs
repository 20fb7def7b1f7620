//! API keys for the commands that work on the data directory: they may run beside the daemon, which sees the change
//! with the next request.

use std::sync::Arc;

use crate::api_key::{ApiKey, RandomError};
use crate::clock::Clock;
use crate::data_directory::{DataDirectory, DataError, write_file};
use crate::store::{Access, KeyRow, StoreError, open, query};

/// A key could not be made, listed or revoked.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The store cannot be used.
    #[error("the store cannot be used")]
    Store(#[from] StoreError),
    /// The key's file cannot be written.
    #[error("the key cannot be written to its file")]
    File(#[from] DataError),
    /// There is no randomness.
    #[error("no key can be made")]
    Random(#[from] RandomError),
    /// The store has no account yet.
    #[error("there is no account yet; start `hutch serve` once")]
    NoAccount,
}

/// Makes a key for the first account and returns it. It is shown this once: the store keeps a digest.
///
/// # Errors
/// [`KeyError`].
pub fn create(data: &DataDirectory, name: &str) -> Result<ApiKey, KeyError> {
    let db = open(&data.store(), Access::Edit)?;
    let account = query::accounts(&db).map_err(failed("read the accounts"))?.into_iter().next();
    let account = account.ok_or(KeyError::NoAccount)?;
    let key = ApiKey::generate()?;
    query::create_key(&db, &account.id, name, &key, Clock::system().now()).map_err(failed("store a key"))?;
    Ok(key)
}

/// Every key, revoked ones too, oldest first.
///
/// # Errors
/// [`KeyError`].
pub fn list(data: &DataDirectory) -> Result<Vec<KeyRow>, KeyError> {
    let db = open(&data.store(), Access::Read)?;
    Ok(query::keys(&db).map_err(failed("read the keys"))?)
}

/// Revokes a key, given by its id or its first characters as [`list`] shows them. Whether there was such a key.
///
/// # Errors
/// [`KeyError`].
pub fn revoke(data: &DataDirectory, id_or_hint: &str) -> Result<bool, KeyError> {
    let db = open(&data.store(), Access::Edit)?;
    Ok(query::revoke_key(&db, id_or_hint, Clock::system().now()).map_err(failed("revoke a key"))?)
}

/// Makes the first account and its key, if there is none. Whether this made one.
///
/// The file is written before the row: a daemon that is killed in between makes another key, instead of being left
/// with one that nobody knows.
pub(crate) fn ensure_first(data: &DataDirectory, clock: &Clock) -> Result<bool, KeyError> {
    let mut db = open(&data.store(), Access::Edit)?;
    if !query::accounts(&db).map_err(failed("read the accounts"))?.is_empty() {
        return Ok(false);
    }
    let (key, now) = (ApiKey::generate()?, clock.now());
    write_file(&data.api_key(), 0o600, &format!("{}\n", key.reveal()))?;
    let transaction = db.transaction().map_err(failed("make the first account"))?;
    let account = query::create_account(&transaction, "owner", now).map_err(failed("make the first account"))?;
    query::create_key(&transaction, &account.id, "first", &key, now).map_err(failed("store the first key"))?;
    transaction.commit().map_err(failed("store the first key"))?;
    Ok(true)
}

fn failed(what: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |source| StoreError::Statement { what, source: Arc::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_made_once_and_lies_in_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataDirectory::create(folder.path()).unwrap();
        assert!(matches!(create(&data, "early"), Err(KeyError::Store(_))));
        drop(open(&data.store(), Access::Write).unwrap());
        assert!(matches!(create(&data, "early"), Err(KeyError::NoAccount)));
        assert!(ensure_first(&data, &Clock::system()).unwrap());
        let key = std::fs::read_to_string(data.api_key()).unwrap();
        assert!(!ensure_first(&data, &Clock::system()).unwrap());
        assert_eq!(std::fs::read_to_string(data.api_key()).unwrap(), key);
        let db = open(&data.store(), Access::Read).unwrap();
        assert!(query::find_key(&db, key.trim()).unwrap().is_some());
        let second = create(&data, "second").unwrap();
        assert_eq!(list(&data).unwrap().len(), 2);
        assert!(revoke(&data, second.hint()).unwrap());
        assert!(!revoke(&data, second.hint()).unwrap());
    }
}
