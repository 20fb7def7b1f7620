//! Sandboxes: one row each, from before anything of it exists until some time after everything of it is gone.

use std::collections::BTreeMap;

use hutch_units::{SandboxId, SandboxName};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::idempotency::{self, Claim, Receipt};
use super::specification::Spec;
use super::transition::{self, TransitionRow};
use crate::clock::Moment;
use crate::lifecycle::State;

/// What is wanted of a sandbox, as against [`State`], which is what is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Desired {
    /// It shall run.
    Running,
    /// It shall be kept without running.
    Paused,
    /// It shall be gone.
    Destroyed,
}

/// A sandbox as the store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxRow {
    /// Its id.
    pub id: SandboxId,
    /// Whose it is.
    pub account: String,
    /// Its name, unique among the account's sandboxes that are not gone.
    pub name: SandboxName,
    /// What is.
    pub state: State,
    /// What is wanted.
    pub desired: Desired,
    /// Why `state` is not what was wanted.
    pub reason: Option<String>,
    /// The step of a saga that was begun last.
    pub step: Option<String>,
    /// The number its host uid is made from; `Some` for as long as anything may be left on the host.
    pub slot: Option<u32>,
    /// What it was created with.
    pub spec: Spec,
    /// The engine's record, as JSON.
    pub machine: Option<String>,
    /// Labels that its owner gave it.
    pub labels: BTreeMap<String, String>,
    /// After how many idle seconds it shall be paused.
    pub auto_pause_after_seconds: Option<u32>,
    /// Whether its ports shall have a public URL.
    pub ingress: bool,
    /// How long the start took, in milliseconds.
    pub spawn_ms: Option<f64>,
    /// When it was asked for.
    pub created_at: Moment,
    /// When it ran first.
    pub running_at: Option<Moment>,
    /// When it was destroyed or failed.
    pub ended_at: Option<Moment>,
    /// When it shall be destroyed.
    pub expires_at: Option<Moment>,
    /// When something was last done with it; coarse.
    pub last_activity_at: Moment,
}

/// A sandbox to be recorded before anything of it is made.
#[derive(Debug, Clone)]
pub struct NewSandbox {
    /// Its id.
    pub id: SandboxId,
    /// Whose it is.
    pub account: String,
    /// Names in order of preference; the first that is free is taken.
    pub names: Vec<SandboxName>,
    /// What it is created with.
    pub spec: Spec,
    /// Labels that its owner gave it.
    pub labels: BTreeMap<String, String>,
    /// After how many idle seconds it shall be paused.
    pub auto_pause_after_seconds: Option<u32>,
    /// Whether its ports shall have a public URL.
    pub ingress: bool,
    /// When it shall be destroyed.
    pub expires_at: Option<Moment>,
    /// The caller's idempotency key and the digest of the request.
    pub receipt: Option<(String, Vec<u8>)>,
}

/// Why a sandbox was not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// Every name is in use.
    Name,
    /// The same request was here before.
    Repeated(Receipt),
    /// The idempotency key belongs to a different request.
    Key,
    /// All host uids are in use.
    Slots,
}

/// How many host uids there are for sandboxes.
pub const SLOTS: u32 = 1 << 16;

pub(super) const COLUMNS: &str = "id, account, name, state, desired, reason, step, slot, spec, machine, \
    auto_pause_after_seconds, spawn_ms, created_at, running_at, ended_at, expires_at, last_activity_at, \
    (SELECT json_group_object(key, value) FROM labels WHERE sandbox = sandboxes.id), ingress";

/// Records a sandbox in the state `creating`, with a name and a slot of its own.
pub fn insert(db: &Connection, new: NewSandbox, now: Moment) -> rusqlite::Result<Result<SandboxRow, Taken>> {
    let id = new.id.to_string();
    if let Some((key, request)) = &new.receipt {
        match idempotency::claim(db, &new.account, key, request, &id, now)? {
            Claim::New => {}
            Claim::Repeated(receipt) => return Ok(Err(Taken::Repeated(receipt))),
            Claim::Different => return Ok(Err(Taken::Key)),
        }
    }
    let refused = |taken| {
        idempotency::release(db, &id)?;
        Ok(Err(taken))
    };
    let mut free = None;
    for name in new.names {
        if find_named(db, &new.account, name.as_str())?.is_none() {
            free = Some(name);
            break;
        }
    }
    let Some(name) = free else { return refused(Taken::Name) };
    let Some(slot) = next_slot(db)? else { return refused(Taken::Slots) };
    let row = SandboxRow {
        id: new.id,
        account: new.account,
        name,
        state: State::Creating,
        desired: Desired::Running,
        reason: None,
        step: Some("disk".to_owned()),
        slot: Some(slot),
        spec: new.spec,
        machine: None,
        labels: new.labels,
        auto_pause_after_seconds: new.auto_pause_after_seconds,
        ingress: new.ingress,
        spawn_ms: None,
        created_at: now,
        running_at: None,
        ended_at: None,
        expires_at: new.expires_at,
        last_activity_at: now,
    };
    insert_row(db, &row)?;
    let first = TransitionRow {
        at: now,
        event: "created".to_owned(),
        from: None,
        to: State::Creating.as_str().to_owned(),
        reason: None,
    };
    transition::append(db, &id, &first)?;
    Ok(Ok(row))
}

fn insert_row(db: &Connection, row: &SandboxRow) -> rusqlite::Result<()> {
    let id = row.id.to_string();
    db.prepare_cached(
        "INSERT INTO sandboxes (id, account, name, state, desired, step, slot, spec, auto_pause_after_seconds,
             created_at, expires_at, last_activity_at, ingress)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        id,
        row.account,
        row.name.as_str(),
        row.state.as_str(),
        row.desired.as_str(),
        row.step,
        row.slot,
        row.spec,
        row.auto_pause_after_seconds,
        row.created_at.0,
        row.expires_at.map(|moment| moment.0),
        row.last_activity_at.0,
        row.ingress,
    ])?;
    insert_labels(db, row)
}

/// Puts the row's labels in place of those that the store has.
pub fn replace_labels(db: &Connection, row: &SandboxRow) -> rusqlite::Result<()> {
    db.execute("DELETE FROM labels WHERE sandbox = ?1", [row.id.to_string()])?;
    insert_labels(db, row)
}

fn insert_labels(db: &Connection, row: &SandboxRow) -> rusqlite::Result<()> {
    let mut label = db.prepare_cached("INSERT INTO labels (sandbox, key, value) VALUES (?1, ?2, ?3)")?;
    for (key, value) in &row.labels {
        label.execute(params![row.id.to_string(), key, value])?;
    }
    Ok(())
}

/// Writes what may change of a row, and the transition that changed it to the trail.
pub fn apply(db: &Connection, row: &SandboxRow, transition: Option<&TransitionRow>) -> rusqlite::Result<()> {
    let id = row.id.to_string();
    db.prepare_cached(
        "UPDATE sandboxes SET state = ?2, desired = ?3, reason = ?4, step = ?5, slot = ?6, machine = ?7,
             auto_pause_after_seconds = ?8, spawn_ms = ?9, running_at = ?10, ended_at = ?11, expires_at = ?12,
             ingress = ?13
         WHERE id = ?1",
    )?
    .execute(params![
        id,
        row.state.as_str(),
        row.desired.as_str(),
        row.reason,
        row.step,
        row.slot,
        row.machine,
        row.auto_pause_after_seconds,
        row.spawn_ms,
        row.running_at.map(|moment| moment.0),
        row.ended_at.map(|moment| moment.0),
        row.expires_at.map(|moment| moment.0),
        row.ingress,
    ])?;
    transition.map_or(Ok(()), |transition| transition::append(db, &id, transition))
}

/// Notes when something was done with these sandboxes.
pub fn touch(db: &Connection, active: &[(SandboxId, Moment)]) -> rusqlite::Result<()> {
    let mut statement =
        db.prepare_cached("UPDATE sandboxes SET last_activity_at = max(last_activity_at, ?2) WHERE id = ?1")?;
    for (id, moment) in active {
        statement.execute(params![id.to_string(), moment.0])?;
    }
    Ok(())
}

/// The lowest number that no sandbox holds, or `None` when all are held.
pub fn next_slot(db: &Connection) -> rusqlite::Result<Option<u32>> {
    let slot: u32 = db
        .prepare_cached(
            "SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM sandboxes WHERE slot = 0) THEN 0 ELSE
                 (SELECT min(slot) + 1 FROM sandboxes AS held WHERE slot IS NOT NULL
                  AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE slot = held.slot + 1)) END",
        )?
        .query_row([], |row| row.get(0))?;
    Ok((slot < SLOTS).then_some(slot))
}

/// The sandbox with this id.
pub fn find(db: &Connection, id: &str) -> rusqlite::Result<Option<SandboxRow>> {
    db.prepare_cached(&format!("SELECT {COLUMNS} FROM sandboxes WHERE id = ?1"))?
        .query_row([id], sandbox_row)
        .optional()
}

/// The account's sandbox that has this name and is not gone.
pub fn find_named(db: &Connection, account: &str, name: &str) -> rusqlite::Result<Option<SandboxRow>> {
    db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM sandboxes WHERE account = ?1 AND name = ?2 AND state NOT IN ('destroyed', 'failed')"
    ))?
    .query_row([account, name], sandbox_row)
    .optional()
}

/// Every sandbox that may have something on the host.
pub fn held(db: &Connection) -> rusqlite::Result<Vec<SandboxRow>> {
    let mut statement =
        db.prepare_cached(&format!("SELECT {COLUMNS} FROM sandboxes WHERE slot IS NOT NULL ORDER BY id"))?;
    statement.query_map([], sandbox_row)?.collect()
}

/// The ids of all rows with whether they may have something on the host.
pub fn sandbox_ids(db: &Connection) -> rusqlite::Result<Vec<(String, bool)>> {
    let mut statement = db.prepare_cached("SELECT id, slot IS NOT NULL FROM sandboxes")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// The ids of sandboxes whose time is over and that nobody takes down yet.
pub fn due(db: &Connection, now: Moment) -> rusqlite::Result<Vec<SandboxId>> {
    let mut statement = db.prepare_cached(
        "SELECT id FROM sandboxes
         WHERE expires_at <= ?1 AND state NOT IN ('destroying', 'destroyed', 'failed')",
    )?;
    statement.query_map([now.0], |row| parsed(row, 0))?.collect()
}

/// Forgets rows that ended before these moments and have nothing left on the host; how many.
pub fn delete(db: &Connection, destroyed_before: Moment, failed_before: Moment) -> rusqlite::Result<usize> {
    db.execute(
        "DELETE FROM sandboxes WHERE slot IS NULL AND
             (state = 'destroyed' AND ended_at < ?1 OR state = 'failed' AND ended_at < ?2)",
        params![destroyed_before.0, failed_before.0],
    )
}

pub(super) fn sandbox_row(row: &Row<'_>) -> rusqlite::Result<SandboxRow> {
    let moment = |index| row.get::<_, Option<i64>>(index).map(|moment| moment.map(Moment));
    let name: String = row.get(2)?;
    let desired: String = row.get(4)?;
    let labels: String = row.get(17)?;
    Ok(SandboxRow {
        id: parsed(row, 0)?,
        account: row.get(1)?,
        name: SandboxName::parse(&name).map_err(|error| damaged(2, error))?,
        state: state(row, 3)?,
        desired: Desired::parse(&desired).ok_or_else(|| damaged(4, format!("{desired:?} is nothing to wish for")))?,
        reason: row.get(5)?,
        step: row.get(6)?,
        slot: row.get(7)?,
        spec: row.get(8)?,
        machine: row.get(9)?,
        auto_pause_after_seconds: row.get(10)?,
        spawn_ms: row.get(11)?,
        created_at: Moment(row.get(12)?),
        running_at: moment(13)?,
        ended_at: moment(14)?,
        expires_at: moment(15)?,
        last_activity_at: Moment(row.get(16)?),
        labels: serde_json::from_str(&labels).map_err(|error| damaged(17, error))?,
        ingress: row.get(18)?,
    })
}

fn parsed(row: &Row<'_>, index: usize) -> rusqlite::Result<SandboxId> {
    let text: String = row.get(index)?;
    text.parse().map_err(|error: hutch_units::IdError| damaged(index, error))
}

pub(super) fn state(row: &Row<'_>, index: usize) -> rusqlite::Result<State> {
    let word: String = row.get(index)?;
    State::parse(&word).ok_or_else(|| damaged(index, format!("{word:?} is no state")))
}

/// A column holds what this program cannot have written.
fn damaged(index: usize, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, why.into())
}

impl Desired {
    /// The word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Destroyed => "destroyed",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Running, Self::Paused, Self::Destroyed].into_iter().find(|desired| desired.as_str() == word)
    }
}

#[cfg(test)]
mod tests;
