//! The ledger of what sandboxes used: segments, opened and closed in the transaction that changes the state.
//!
//! So time is exact whatever happens to the daemon: a machine that ran on while nobody looked was used, and the store
//! says since when. Only where a machine is found gone nobody knows when it went; then the segment ends soon after the
//! machine was last seen. Processor time is the counter that the host keeps for the machine, which begins with it, so
//! that reading it late or twice changes nothing.

use std::time::Duration;

use hutch_api::Usage;
use hutch_units::SandboxId;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::sandbox::{SandboxRow, parsed};
use super::transition::TransitionRow;
use crate::clock::Moment;
use crate::lifecycle::{Event, State};

/// How long a machine is taken to have run on after it was last seen, at most, when it is found gone: as long as two
/// looks are apart.
const BENEFIT: Duration = Duration::from_secs(20);

/// What a segment counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageKind {
    /// A machine runs.
    Active,
    /// What is saved of it is kept.
    Paused,
}

/// A stretch of time in which a sandbox ran or was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// Whose it was.
    pub sandbox: SandboxId,
    /// Its name.
    pub name: String,
    /// The sandbox's state, while there is a row of it.
    pub state: Option<State>,
    /// What it counts.
    pub kind: UsageKind,
    /// When it began.
    pub started_at: Moment,
    /// When it ended; `None` while it goes on.
    pub ended_at: Option<Moment>,
    /// Memory of the shape, MiB.
    pub memory_mib: u64,
    /// Processor time, microseconds.
    pub cpu_us: u64,
    /// Space on the host's disk as it was last measured, KiB.
    pub disk_kib: u64,
    /// Its sum over time up to `disk_at`, KiB × milliseconds.
    pub disk_kib_ms: u64,
    /// Up to when it is summed up.
    pub disk_at: Moment,
}

/// What was seen of a sandbox at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Whose.
    pub sandbox: SandboxId,
    /// What it was seen to be.
    pub kind: UsageKind,
    /// When.
    pub at: Moment,
    /// The machine's processor time since its start, microseconds.
    pub cpu_us: Option<u64>,
    /// Space on the host's disk, KiB.
    pub disk_kib: Option<u64>,
}

/// Whose usage is asked for; `None` is everybody's.
#[derive(Debug, Clone, Default)]
pub struct UsageWanted {
    /// The account.
    pub account: Option<String>,
    /// The sandbox.
    pub sandbox: Option<SandboxId>,
    /// Only what went on after this.
    pub from: Option<Moment>,
    /// Only what began before this.
    pub to: Option<Moment>,
}

impl UsageKind {
    /// What a sandbox in this state uses.
    pub fn of(state: State) -> Option<Self> {
        match state {
            State::Running | State::Pausing => Some(Self::Active),
            State::Paused | State::Resuming | State::Forking | State::Error => Some(Self::Paused),
            State::Creating | State::Destroying | State::Destroyed | State::Failed => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
        }
    }

    fn parse(word: &str) -> Self {
        if word == "active" { Self::Active } else { Self::Paused }
    }
}

/// The segment of a sandbox that goes on.
struct Open {
    segment: i64,
    kind: UsageKind,
    started_at: Moment,
    checkpoint_at: Moment,
    disk_kib: u64,
}

/// Follows a sandbox into the state that its row has now.
pub(super) fn follow(db: &Connection, row: &SandboxRow, transition: &TransitionRow) -> rusqlite::Result<()> {
    let id = row.id.to_string();
    let open = open(db, &id)?;
    let wanted = UsageKind::of(row.state);
    if open.as_ref().map(|open| open.kind) == wanted {
        // Whoever tells of a machine has seen it.
        db.prepare_cached(
            "UPDATE usage SET checkpoint_at = max(checkpoint_at, ?2) WHERE sandbox = ?1 AND ended_at IS NULL",
        )?
        .execute(params![id, transition.at.0])?;
        return Ok(());
    }
    let mut at = transition.at;
    let mut disk_kib = 0;
    if let Some(open) = open {
        at = end(&open, transition);
        disk_kib = open.disk_kib;
        db.prepare_cached(
            "UPDATE usage SET ended_at = ?3, checkpoint_at = ?3, disk_kib_ms = disk_kib_ms + disk_kib * max(?3 - disk_at, 0),
                 disk_at = max(?3, disk_at) WHERE sandbox = ?1 AND segment = ?2",
        )?
        .execute(params![id, open.segment, at.0])?;
    }
    let Some(kind) = wanted else { return Ok(()) };
    db.prepare_cached(
        "INSERT INTO usage (sandbox, segment, account, name, kind, started_at, checkpoint_at, memory_mib, disk_kib, disk_at)
         VALUES (?1, (SELECT coalesce(max(segment), 0) + 1 FROM usage WHERE sandbox = ?1), ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?5)",
    )?
    .execute(params![id, row.account, row.name.as_str(), kind.as_str(), at.0, row.spec.memory_mib, disk_kib])?;
    Ok(())
}

/// When a segment ended that a transition ends.
fn end(open: &Open, transition: &TransitionRow) -> Moment {
    let found_gone = [Event::Lost, Event::Paused].iter().any(|event| event.as_str() == transition.event);
    let at = match open.kind {
        UsageKind::Active if found_gone => transition.at.min(open.checkpoint_at.after(BENEFIT)),
        _ => transition.at,
    };
    // A clock that was put back makes no negative time.
    at.max(open.started_at)
}

fn open(db: &Connection, id: &str) -> rusqlite::Result<Option<Open>> {
    db.prepare_cached(
        "SELECT segment, kind, started_at, checkpoint_at, disk_kib FROM usage WHERE sandbox = ?1 AND ended_at IS NULL",
    )?
    .query_row([id], |row| {
        Ok(Open {
            segment: row.get(0)?,
            kind: UsageKind::parse(&row.get::<_, String>(1)?),
            started_at: Moment(row.get(2)?),
            checkpoint_at: Moment(row.get(3)?),
            disk_kib: row.get(4)?,
        })
    })
    .optional()
}

/// Writes down what was seen. A reading that is older than the segment that goes on by now tells of another one.
pub fn checkpoint(db: &Connection, readings: &[Reading]) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
        "UPDATE usage SET checkpoint_at = max(checkpoint_at, ?3), cpu_us = max(cpu_us, ?4),
             disk_kib_ms = disk_kib_ms + disk_kib * max(?3 - disk_at, 0), disk_at = max(?3, disk_at),
             disk_kib = coalesce(?5, disk_kib)
         WHERE sandbox = ?1 AND kind = ?2 AND ended_at IS NULL AND started_at <= ?3",
    )?;
    for reading in readings {
        let cpu_us = reading.cpu_us.unwrap_or(0);
        let id = reading.sandbox.to_string();
        statement.execute(params![
            id,
            reading.kind.as_str(),
            reading.at.0,
            stored(cpu_us),
            reading.disk_kib.map(stored)
        ])?;
    }
    Ok(())
}

/// Writes down the last reading of a machine's processor time, whether or not its segment has ended already.
pub fn last_reading(db: &Connection, sandbox: &str, cpu_us: u64) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE usage SET cpu_us = max(cpu_us, ?2) WHERE sandbox = ?1 AND segment =
             (SELECT max(segment) FROM usage WHERE sandbox = ?1 AND kind = 'active')",
    )?
    .execute(params![sandbox, stored(cpu_us)])?;
    Ok(())
}

/// The segments that are asked for, those of the newest sandbox first.
pub fn usage(db: &Connection, wanted: &UsageWanted) -> rusqlite::Result<Vec<UsageRow>> {
    let mut statement = db.prepare_cached(
        "SELECT usage.sandbox, usage.name, sandboxes.state, kind, started_at, usage.ended_at, memory_mib, cpu_us, disk_kib,
             disk_kib_ms, disk_at
         FROM usage LEFT JOIN sandboxes ON sandboxes.id = usage.sandbox
         WHERE (?1 IS NULL OR usage.account = ?1) AND (?2 IS NULL OR usage.sandbox = ?2)
             AND (?3 IS NULL OR usage.ended_at IS NULL OR usage.ended_at > ?3) AND (?4 IS NULL OR started_at < ?4)
         ORDER BY usage.sandbox DESC, segment",
    )?;
    let sandbox = wanted.sandbox.map(|id| id.to_string());
    let (from, to) = (wanted.from.map(|moment| moment.0), wanted.to.map(|moment| moment.0));
    statement.query_map(params![wanted.account, sandbox, from, to], usage_row)?.collect()
}

/// What all sandboxes of all accounts used up to now. Summed up by SQLite: the ledger only grows.
pub fn usage_of_all(db: &Connection, now: Moment) -> rusqlite::Result<Usage> {
    let mut statement = db.prepare_cached(
        "SELECT kind, total(span), total(span * memory_mib), total(cpu_us),
             total(disk_kib_ms + disk_kib * max(until - disk_at, 0.0))
         FROM (SELECT *, max(coalesce(ended_at, ?1), started_at) AS until,
             max(coalesce(ended_at, ?1) - started_at, 0) AS span FROM usage)
         GROUP BY kind",
    )?;
    let mut all = Usage::default();
    let mut rows = statement.query([now.0])?;
    while let Some(row) = rows.next()? {
        let seconds = row.get::<_, f64>(1)? / 1000.0;
        match UsageKind::parse(&row.get::<_, String>(0)?) {
            UsageKind::Active => {
                all.active_seconds = seconds;
                all.memory_mib_seconds = row.get::<_, f64>(2)? / 1000.0;
                all.cpu_seconds = row.get::<_, f64>(3)? / 1_000_000.0;
            }
            UsageKind::Paused => all.paused_seconds = seconds,
        }
        all.disk_mib_seconds += row.get::<_, f64>(4)? / 1024.0 / 1000.0;
    }
    Ok(all)
}

fn usage_row(row: &Row<'_>) -> rusqlite::Result<UsageRow> {
    Ok(UsageRow {
        sandbox: parsed(row, 0)?,
        name: row.get(1)?,
        state: row.get::<_, Option<String>>(2)?.and_then(|word| State::parse(&word)),
        kind: UsageKind::parse(&row.get::<_, String>(3)?),
        started_at: Moment(row.get(4)?),
        ended_at: row.get::<_, Option<i64>>(5)?.map(Moment),
        memory_mib: row.get(6)?,
        cpu_us: row.get(7)?,
        disk_kib: row.get(8)?,
        disk_kib_ms: row.get(9)?,
        disk_at: Moment(row.get(10)?),
    })
}

/// As SQLite's integer, which has a sign.
fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
