//! Sandboxes: one row each, from before anything of it exists until some time after everything of it is gone.

use std::collections::BTreeMap;

use hutch_units::{SandboxId, SandboxName, SnapshotId};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::idempotency::{self, Claim, Receipt};
use super::slot::{self, SlotRow};
use super::snapshot::optional_snapshot_id;
use super::specification::Spec;
use super::transition::{self, TransitionRow};
use super::usage;
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
    /// After how many idle seconds it shall be destroyed.
    pub auto_destroy_after_seconds: Option<u32>,
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
    /// The key of the template that its memory is stored against.
    pub template: Option<String>,
    /// The snapshot that its first start begins from; `None` once that start is over.
    pub origin: Option<SnapshotId>,
    /// The named snapshot that it was created from or last restored to.
    pub snapshot: Option<SnapshotId>,
    /// The parent of the next snapshot that is taken of it.
    pub parent: Option<SnapshotId>,
    /// The sandbox that it is a copy of.
    pub forked_from: Option<SandboxId>,
    /// The number of the directory with its saved machine; `None` while there is none that its disk belongs to.
    pub pause: Option<u32>,
    /// Whether the saved machine is another's, so that it needs an identity of its own.
    pub fresh: bool,
    /// When the disk was last written as the saved machine knows it, in nanoseconds.
    pub disk_stamp: Option<i64>,
    /// When it was last paused.
    pub paused_at: Option<Moment>,
    /// When it was last resumed.
    pub last_resumed_at: Option<Moment>,
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
    /// After how many idle seconds it shall be destroyed.
    pub auto_destroy_after_seconds: Option<u32>,
    /// Whether its ports shall have a public URL.
    pub ingress: bool,
    /// When it shall be destroyed.
    pub expires_at: Option<Moment>,
    /// The caller's idempotency key and the digest of the request.
    pub receipt: Option<(String, Vec<u8>)>,
    /// Whether it shall run or be kept.
    pub desired: Desired,
    /// The key of the template that its memory is stored against.
    pub template: Option<String>,
    /// The snapshot that its first start begins from.
    pub origin: Option<SnapshotId>,
    /// The named snapshot among whose descendants it is.
    pub snapshot: Option<SnapshotId>,
    /// The parent of the first snapshot that is taken of it.
    pub parent: Option<SnapshotId>,
    /// The sandbox that it is a copy of.
    pub forked_from: Option<SandboxId>,
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
    (SELECT json_group_object(key, value) FROM labels WHERE sandbox = sandboxes.id), ingress, \
    template, origin, snapshot, parent, forked_from, pause, fresh, disk_stamp, paused_at, last_resumed_at, \
    auto_destroy_after_seconds";

/// Records a sandbox in the state `creating`, with a name and a slot of its own.
pub fn insert(db: &Connection, new: NewSandbox, now: Moment) -> rusqlite::Result<Result<SandboxRow, Taken>> {
    insert_with(db, new, None, now)
}

/// Records a sandbox that takes over a prepared machine: its id is the machine's, and so is its slot.
pub fn insert_prepared(
    db: &Connection,
    new: NewSandbox,
    prepared: &SlotRow,
    now: Moment,
) -> rusqlite::Result<Result<SandboxRow, Taken>> {
    let new = NewSandbox { id: prepared.id, template: Some(prepared.template.clone()), ..new };
    let inserted = insert_with(db, new, Some(prepared.slot), now)?;
    if inserted.is_ok() {
        slot::delete_slot(db, prepared.id)?;
    }
    Ok(inserted)
}

fn insert_with(
    db: &Connection,
    new: NewSandbox,
    slot: Option<u32>,
    now: Moment,
) -> rusqlite::Result<Result<SandboxRow, Taken>> {
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
    let slot = match slot {
        Some(slot) => Some(slot),
        None => next_slot(db)?,
    };
    let Some(slot) = slot else { return refused(Taken::Slots) };
    let template = ready_template(db, new.template)?;
    let row = SandboxRow {
        id: new.id,
        account: new.account,
        name,
        state: State::Creating,
        desired: new.desired,
        reason: None,
        step: Some("disk".to_owned()),
        slot: Some(slot),
        spec: new.spec,
        machine: None,
        labels: new.labels,
        auto_pause_after_seconds: new.auto_pause_after_seconds,
        auto_destroy_after_seconds: new.auto_destroy_after_seconds,
        ingress: new.ingress,
        spawn_ms: None,
        created_at: now,
        running_at: None,
        ended_at: None,
        expires_at: new.expires_at,
        last_activity_at: now,
        template,
        origin: new.origin,
        snapshot: new.snapshot,
        parent: new.parent,
        forked_from: new.forked_from,
        pause: None,
        fresh: false,
        disk_stamp: None,
        paused_at: None,
        last_resumed_at: None,
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

/// Records several sandboxes, or none of them.
pub fn insert_all(
    db: &Connection,
    all: Vec<NewSandbox>,
    now: Moment,
) -> rusqlite::Result<Result<Vec<SandboxRow>, Taken>> {
    db.execute_batch("SAVEPOINT several")?;
    let mut rows = Vec::with_capacity(all.len());
    for new in all {
        match insert(db, new, now)? {
            Ok(row) => rows.push(row),
            Err(taken) => {
                db.execute_batch("ROLLBACK TO several; RELEASE several")?;
                return Ok(Err(taken));
            }
        }
    }
    db.execute_batch("RELEASE several")?;
    Ok(Ok(rows))
}

fn insert_row(db: &Connection, row: &SandboxRow) -> rusqlite::Result<()> {
    let id = row.id.to_string();
    db.prepare_cached(
        "INSERT INTO sandboxes (id, account, name, state, desired, step, slot, spec, auto_pause_after_seconds,
             created_at, expires_at, last_activity_at, ingress, template, origin, snapshot, parent, forked_from,
             auto_destroy_after_seconds)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
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
        row.template,
        row.origin.map(|id| id.to_string()),
        row.snapshot.map(|id| id.to_string()),
        row.parent.map(|id| id.to_string()),
        row.forked_from.map(|id| id.to_string()),
        row.auto_destroy_after_seconds,
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
             ingress = ?13, template = ?14, origin = ?15, snapshot = ?16, parent = ?17, pause = ?18, fresh = ?19,
             disk_stamp = ?20, paused_at = ?21, last_resumed_at = ?22, auto_destroy_after_seconds = ?23
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
        row.template,
        row.origin.map(|id| id.to_string()),
        row.snapshot.map(|id| id.to_string()),
        row.parent.map(|id| id.to_string()),
        row.pause,
        row.fresh,
        row.disk_stamp,
        row.paused_at.map(|moment| moment.0),
        row.last_resumed_at.map(|moment| moment.0),
        row.auto_destroy_after_seconds,
    ])?;
    let Some(transition) = transition else { return Ok(()) };
    transition::append(db, &id, transition)?;
    usage::follow(db, row, transition)
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

/// The template, unless it is on its way out: from here on the row keeps it.
fn ready_template(db: &Connection, key: Option<String>) -> rusqlite::Result<Option<String>> {
    let Some(key) = key else { return Ok(None) };
    let is_going: bool = db
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM templates WHERE key = ?1 AND state = 'removing')")?
        .query_row([&key], |row| row.get(0))?;
    Ok((!is_going).then_some(key))
}

/// The lowest number that nothing holds, or `None` when all are held.
pub fn next_slot(db: &Connection) -> rusqlite::Result<Option<u32>> {
    const FREE: &str = "NOT EXISTS (SELECT 1 FROM sandboxes WHERE slot = candidate)
        AND NOT EXISTS (SELECT 1 FROM templates WHERE slot = candidate)
        AND NOT EXISTS (SELECT 1 FROM slots WHERE slot = candidate)";
    // The lowest is 0 or follows one that is held; each table is read in the order of its slots up to the first gap.
    let after = |table| {
        format!(
            "SELECT * FROM (SELECT slot + 1 AS candidate FROM {table} WHERE slot IS NOT NULL AND {FREE}
             ORDER BY slot LIMIT 1)"
        )
    };
    let statement = format!(
        "SELECT min(candidate) FROM (SELECT candidate FROM (SELECT 0 AS candidate) WHERE {FREE}
         UNION ALL {} UNION ALL {} UNION ALL {})",
        after("sandboxes"),
        after("templates"),
        after("slots")
    );
    let slot: u32 = db.prepare_cached(&statement)?.query_row([], |row| row.get(0))?;
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
        auto_destroy_after_seconds: row.get(29)?,
        spawn_ms: row.get(11)?,
        created_at: Moment(row.get(12)?),
        running_at: moment(13)?,
        ended_at: moment(14)?,
        expires_at: moment(15)?,
        last_activity_at: Moment(row.get(16)?),
        labels: serde_json::from_str(&labels).map_err(|error| damaged(17, error))?,
        ingress: row.get(18)?,
        template: row.get(19)?,
        origin: optional_snapshot_id(row, 20)?,
        snapshot: optional_snapshot_id(row, 21)?,
        parent: optional_snapshot_id(row, 22)?,
        forked_from: row.get::<_, Option<String>>(23)?.map(|_| parsed(row, 23)).transpose()?,
        pause: row.get(24)?,
        fresh: row.get(25)?,
        disk_stamp: row.get(26)?,
        paused_at: moment(27)?,
        last_resumed_at: moment(28)?,
    })
}

pub(super) fn parsed(row: &Row<'_>, index: usize) -> rusqlite::Result<SandboxId> {
    let text: String = row.get(index)?;
    text.parse().map_err(|error: hutch_units::IdError| damaged(index, error))
}

pub(super) fn state(row: &Row<'_>, index: usize) -> rusqlite::Result<State> {
    let word: String = row.get(index)?;
    State::parse(&word).ok_or_else(|| damaged(index, format!("{word:?} is no state")))
}

/// A column holds what this program cannot have written.
pub(super) fn damaged(index: usize, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
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
