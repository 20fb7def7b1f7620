//! The trail of transitions.

use rusqlite::{Connection, params};

use crate::clock::Moment;

/// One step in the life of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransitionRow {
    /// When.
    pub at: Moment,
    /// What happened, in a word.
    pub event: String,
    /// The state before; `None` for the first.
    pub from: Option<String>,
    /// The state after.
    pub to: String,
    /// Why, when there is more to say.
    pub reason: Option<String>,
}

/// Adds to the trail of a sandbox.
pub fn append(db: &Connection, sandbox: &str, row: &TransitionRow) -> rusqlite::Result<()> {
    db.prepare_cached(
        "INSERT INTO transitions (sandbox, at, event, from_state, to_state, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![sandbox, row.at.0, row.event, row.from, row.to, row.reason])
    .map(drop)
}

/// The trail of a sandbox, oldest first.
pub fn transitions_of(db: &Connection, sandbox: &str) -> rusqlite::Result<Vec<TransitionRow>> {
    let mut statement = db.prepare_cached(
        "SELECT at, event, from_state, to_state, reason FROM transitions WHERE sandbox = ?1 ORDER BY number",
    )?;
    let rows = statement.query_map([sandbox], |row| {
        Ok(TransitionRow {
            at: Moment(row.get(0)?),
            event: row.get(1)?,
            from: row.get(2)?,
            to: row.get(3)?,
            reason: row.get(4)?,
        })
    })?;
    rows.collect()
}

/// Forgets what is older than `moment`.
pub fn forget_transitions_before(db: &Connection, moment: Moment) -> rusqlite::Result<usize> {
    db.execute("DELETE FROM transitions WHERE at < ?1", [moment.0])
}
