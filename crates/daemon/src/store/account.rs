//! Accounts, their API keys, and what the installation remembers about itself.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::api_key::{ApiKey, KeyDigest};
use crate::clock::Moment;

/// Somebody who owns sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// `acc-` and a ULID.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// When it was made.
    pub created_at: Moment,
}

/// An API key as the store has it.
#[derive(Debug, Clone)]
pub struct KeyRow {
    /// `key-` and a ULID.
    pub id: String,
    /// Whose key it is.
    pub account: String,
    /// A name for people.
    pub name: String,
    /// The beginning of the key.
    pub hint: String,
    /// The digest of the whole key.
    pub digest: KeyDigest,
    /// When it was made.
    pub created_at: Moment,
    /// When it was used last, to the minute; `None` is never.
    pub last_used_at: Option<Moment>,
    /// Since when it is refused; `None` while it is good.
    pub revoked_at: Option<Moment>,
}

const KEY_COLUMNS: &str = "id, account, name, hint, digest, created_at, last_used_at, revoked_at";

/// Makes an account.
pub fn create_account(db: &Connection, name: &str, now: Moment) -> rusqlite::Result<Account> {
    let id = format!("acc-{}", ulid::Ulid::new().to_string().to_ascii_lowercase());
    db.execute("INSERT INTO accounts (id, name, created_at) VALUES (?1, ?2, ?3)", params![id, name, now.0])?;
    Ok(Account { id, name: name.to_owned(), created_at: now })
}

/// Every account, oldest first.
pub fn accounts(db: &Connection) -> rusqlite::Result<Vec<Account>> {
    let mut statement = db.prepare_cached("SELECT id, name, created_at FROM accounts ORDER BY id")?;
    let rows = statement
        .query_map([], |row| Ok(Account { id: row.get(0)?, name: row.get(1)?, created_at: Moment(row.get(2)?) }))?;
    rows.collect()
}

/// Stores the digest of a new key of an account and returns the key's id.
pub fn create_key(db: &Connection, account: &str, name: &str, key: &ApiKey, now: Moment) -> rusqlite::Result<String> {
    let id = format!("key-{}", ulid::Ulid::new().to_string().to_ascii_lowercase());
    db.execute(
        "INSERT INTO api_keys (id, account, name, hint, digest, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![id, account, name, key.hint(), key.digest().as_bytes(), now.0],
    )?;
    Ok(id)
}

/// Every key, revoked ones too, oldest first.
pub fn keys(db: &Connection) -> rusqlite::Result<Vec<KeyRow>> {
    let mut statement = db.prepare_cached(&format!("SELECT {KEY_COLUMNS} FROM api_keys ORDER BY id"))?;
    statement.query_map([], key_row)?.collect()
}

/// The good key that a caller sent, or `None`.
pub fn find_key(db: &Connection, sent: &str) -> rusqlite::Result<Option<KeyRow>> {
    let digest = KeyDigest::of(sent);
    let mut statement =
        db.prepare_cached(&format!("SELECT {KEY_COLUMNS} FROM api_keys WHERE hint = ?1 AND revoked_at IS NULL"))?;
    let candidates: Vec<KeyRow> =
        statement.query_map([ApiKey::hint_of(sent)], key_row)?.collect::<rusqlite::Result<_>>()?;
    Ok(candidates.into_iter().find(|row| row.digest.matches(&digest)))
}

/// Notes that a key was used.
pub fn touch_key(db: &Connection, id: &str, now: Moment) -> rusqlite::Result<()> {
    db.execute("UPDATE api_keys SET last_used_at = ?2 WHERE id = ?1", params![id, now.0]).map(drop)
}

/// Revokes a key, given by its id or its hint. Whether there was such a key that was still good.
pub fn revoke_key(db: &Connection, id_or_hint: &str, now: Moment) -> rusqlite::Result<bool> {
    let changed = db.execute(
        "UPDATE api_keys SET revoked_at = ?2 WHERE (id = ?1 OR hint = ?1) AND revoked_at IS NULL",
        params![id_or_hint, now.0],
    )?;
    Ok(changed > 0)
}

/// What was remembered under a key.
pub fn remembered(db: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    db.query_row("SELECT value FROM memory WHERE key = ?1", [key], |row| row.get(0)).optional()
}

/// Remembers a value under a key, in place of what was there.
pub fn remember(db: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    db.execute("INSERT INTO memory VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = excluded.value", [key, value])
        .map(drop)
}

fn key_row(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    let bytes: Vec<u8> = row.get(4)?;
    let digest = KeyDigest::from_bytes(&bytes).ok_or_else(|| {
        rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Blob, "a digest has 32 bytes".into())
    })?;
    Ok(KeyRow {
        id: row.get(0)?,
        account: row.get(1)?,
        name: row.get(2)?,
        hint: row.get(3)?,
        digest,
        created_at: Moment(row.get(5)?),
        last_used_at: row.get::<_, Option<i64>>(6)?.map(Moment),
        revoked_at: row.get::<_, Option<i64>>(7)?.map(Moment),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Access, open};

    #[test]
    fn a_key_opens_its_account_until_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(&folder.path().join("hutch.db"), Access::Write).unwrap();
        let account = create_account(&db, "owner", Moment(1)).unwrap();
        let key = ApiKey::generate().unwrap();
        let id = create_key(&db, &account.id, "first", &key, Moment(2)).unwrap();
        assert_eq!(find_key(&db, key.reveal()).unwrap().unwrap().account, account.id);
        for wrong in ["", "skp_", key.hint(), &format!("{}0", key.reveal())] {
            assert!(find_key(&db, wrong).unwrap().is_none(), "{wrong}");
        }
        assert!(revoke_key(&db, &id, Moment(3)).unwrap());
        assert!(!revoke_key(&db, &id, Moment(4)).unwrap());
        assert!(find_key(&db, key.reveal()).unwrap().is_none());
        assert_eq!(keys(&db).unwrap()[0].revoked_at, Some(Moment(3)));
    }

    #[test]
    fn the_file_holds_no_key_in_clear() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hutch.db");
        let db = open(&path, Access::Write).unwrap();
        let account = create_account(&db, "owner", Moment(1)).unwrap();
        let key = ApiKey::generate().unwrap();
        create_key(&db, &account.id, "first", &key, Moment(2)).unwrap();
        drop(db);
        let file = std::fs::read(&path).unwrap();
        let secret = &key.reveal().as_bytes()[12..];
        assert!(!file.windows(secret.len()).any(|window| window == secret));
    }
}
