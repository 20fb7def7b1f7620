//! Idempotency keys: a create that is sent twice makes one sandbox.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::clock::Moment;

/// What is known about a key that was used before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The sandbox that the first request made or is making.
    pub sandbox: String,
    /// What was answered, as JSON; `None` while the first request is at work, or after a kill in its midst.
    pub answer: Option<String>,
}

/// What came of claiming a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The key was free and is now this request's.
    New,
    /// The same request was here before.
    Repeated(Receipt),
    /// The key belongs to a different request.
    Different,
}

/// Claims `key` for a request that makes `sandbox`.
pub fn claim(
    db: &Connection,
    account: &str,
    key: &str,
    request: &[u8],
    sandbox: &str,
    now: Moment,
) -> rusqlite::Result<Claim> {
    match find_receipt(db, account, key)? {
        Some((stored, receipt)) if stored == request => Ok(Claim::Repeated(receipt)),
        Some(_) => Ok(Claim::Different),
        None => {
            db.execute(
                "INSERT INTO receipts (account, key, request, sandbox, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![account, key, request, sandbox, now.0],
            )?;
            Ok(Claim::New)
        }
    }
}

/// The digest of the request that a key belongs to, and what came of it.
pub fn find_receipt(db: &Connection, account: &str, key: &str) -> rusqlite::Result<Option<(Vec<u8>, Receipt)>> {
    db.prepare_cached("SELECT request, sandbox, answer FROM receipts WHERE account = ?1 AND key = ?2")?
        .query_row([account, key], |row| Ok((row.get(0)?, Receipt { sandbox: row.get(1)?, answer: row.get(2)? })))
        .optional()
}

/// Keeps the answer to the request that makes `sandbox`.
pub fn settle(db: &Connection, sandbox: &str, answer: &str) -> rusqlite::Result<()> {
    db.execute("UPDATE receipts SET answer = ?2 WHERE sandbox = ?1", [sandbox, answer]).map(drop)
}

/// Frees the key of a request that came to nothing, so that it may be sent again.
pub fn release(db: &Connection, sandbox: &str) -> rusqlite::Result<()> {
    db.execute("DELETE FROM receipts WHERE sandbox = ?1 AND answer IS NULL", [sandbox]).map(drop)
}

/// Forgets what is older than `moment`.
pub fn forget_receipts_before(db: &Connection, moment: Moment) -> rusqlite::Result<usize> {
    db.execute("DELETE FROM receipts WHERE created_at < ?1", [moment.0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::query::create_account;
    use crate::store::{Access, open};

    #[test]
    fn a_key_belongs_to_one_request_of_one_account() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(&folder.path().join("hutch.db"), Access::Write).unwrap();
        let (a, b) = (create_account(&db, "a", Moment(1)).unwrap().id, create_account(&db, "b", Moment(1)).unwrap().id);
        let claim_as = |account: &str, request: &[u8], sandbox: &str| {
            claim(&db, account, "k", request, sandbox, Moment(5)).unwrap()
        };
        assert_eq!(claim_as(&a, b"one", "sb-1"), Claim::New);
        let repeated = |answer: Option<&str>| {
            Claim::Repeated(Receipt { sandbox: "sb-1".to_owned(), answer: answer.map(str::to_owned) })
        };
        assert_eq!(claim_as(&a, b"one", "sb-2"), repeated(None));
        assert_eq!(claim_as(&a, b"two", "sb-2"), Claim::Different);
        assert_eq!(claim_as(&b, b"two", "sb-3"), Claim::New);
        settle(&db, "sb-1", "{}").unwrap();
        release(&db, "sb-1").unwrap();
        assert_eq!(claim_as(&a, b"one", "sb-2"), repeated(Some("{}")));
        release(&db, "sb-3").unwrap();
        assert_eq!(claim_as(&b, b"three", "sb-4"), Claim::New);
        assert_eq!(forget_receipts_before(&db, Moment(6)).unwrap(), 2);
    }
}
