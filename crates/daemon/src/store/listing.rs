//! Lists of sandboxes and counts of them.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::sandbox::{COLUMNS, SandboxRow, sandbox_row, state};
use crate::lifecycle::State;

/// Which rows to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only this account's.
    pub account: Option<String>,
    /// Only those in one of these states; empty is all.
    pub states: Vec<State>,
    /// Only the one of this name.
    pub name: Option<String>,
    /// Only those that have all of these labels.
    pub labels: BTreeMap<String, String>,
}

/// A part of a list.
#[derive(Debug, Clone)]
pub struct Page {
    /// The rows, newest first.
    pub rows: Vec<SandboxRow>,
    /// How many there are in all.
    pub total: u64,
}

/// How many sandboxes an account has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Running.
    pub running: u64,
    /// Paused.
    pub paused: u64,
    /// On their way from one state to another, or in error.
    pub other: u64,
}

/// Part of the rows that pass the filter, newest first, and how many pass it.
pub fn list(db: &Connection, filter: &Filter, limit: u32, offset: u64) -> rusqlite::Result<Page> {
    let (condition, values) = condition(filter);
    let total: i64 = db
        .prepare_cached(&format!("SELECT count(*) FROM sandboxes WHERE {condition}"))?
        .query_row(rusqlite::params_from_iter(&values), |row| row.get(0))?;
    let mut statement = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM sandboxes WHERE {condition} ORDER BY created_at DESC, id DESC LIMIT {limit} OFFSET {}",
        offset.min(i64::MAX.unsigned_abs())
    ))?;
    let rows = statement.query_map(rusqlite::params_from_iter(&values), sandbox_row)?;
    Ok(Page { rows: rows.collect::<rusqlite::Result<_>>()?, total: total.unsigned_abs() })
}

/// The filter as a condition and the values of its parameters.
fn condition(filter: &Filter) -> (String, Vec<String>) {
    let mut condition = "TRUE".to_owned();
    let mut values = Vec::new();
    let mut and = |text: &str, given: &[&str]| {
        condition.push_str(" AND ");
        condition.push_str(text);
        values.extend(given.iter().map(|value| (*value).to_owned()));
    };
    if let Some(account) = &filter.account {
        and("account = ?", &[account]);
    }
    if let Some(name) = &filter.name {
        and("name = ?", &[name]);
    }
    if !filter.states.is_empty() {
        let marks = vec!["?"; filter.states.len()].join(", ");
        let words: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        and(&format!("state IN ({marks})"), &words);
    }
    for (key, value) in &filter.labels {
        and("EXISTS (SELECT 1 FROM labels WHERE sandbox = sandboxes.id AND key = ? AND value = ?)", &[key, value]);
    }
    (condition, values)
}

/// How many rows there are in each state.
pub fn count_by_state(db: &Connection) -> rusqlite::Result<Vec<(State, u64)>> {
    let mut statement = db.prepare_cached("SELECT state, count(*) FROM sandboxes GROUP BY state")?;
    let rows = statement.query_map([], |row| Ok((state(row, 0)?, row.get::<_, i64>(1)?.unsigned_abs())))?;
    rows.collect()
}

/// How many sandboxes an account has that are not gone.
pub fn stats(db: &Connection, account: &str) -> rusqlite::Result<Stats> {
    let mut statement = db.prepare_cached("SELECT state, count(*) FROM sandboxes WHERE account = ?1 GROUP BY state")?;
    let rows = statement.query_map([account], |row| Ok((state(row, 0)?, row.get::<_, i64>(1)?.unsigned_abs())))?;
    let mut stats = Stats::default();
    for row in rows {
        match row? {
            (State::Running, count) => stats.running += count,
            (State::Paused, count) => stats.paused += count,
            (state, _) if state.is_terminal() => {}
            (_, count) => stats.other += count,
        }
    }
    Ok(stats)
}
