//! Snapshots: one row each, from before anything of it is written until after all of it is removed.

use std::collections::{BTreeMap, HashSet};

use hutch_units::{SandboxId, SnapshotId, SnapshotName};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::sandbox::damaged;
use super::specification::Spec;
use crate::clock::Moment;

/// What a snapshot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotKind {
    /// A user's, kept until it is deleted.
    Named,
    /// A fork's, kept until the copies are made.
    Fork,
}

/// Where a snapshot is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotState {
    /// Being written.
    Creating,
    /// Whole.
    Ready,
    /// Not to be used any more; its files go as soon as nothing begins from them.
    Deleting,
}

/// A snapshot as the store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotRow {
    /// Its id.
    pub id: SnapshotId,
    /// Whose it is.
    pub account: String,
    /// What it is for.
    pub kind: SnapshotKind,
    /// Where it is in its life.
    pub state: SnapshotState,
    /// Its name, unique among the account's.
    pub name: Option<SnapshotName>,
    /// What its owner says about it.
    pub description: Option<String>,
    /// Labels that its owner gave it.
    pub labels: BTreeMap<String, String>,
    /// What it was taken of.
    pub sandbox: SandboxId,
    /// The snapshot that the sandbox had come from.
    pub parent: Option<SnapshotId>,
    /// The template that its memory is stored against.
    pub template: Option<String>,
    /// What the sandbox was created with.
    pub spec: Spec,
    /// What it takes on the host's disk.
    pub bytes: u64,
    /// When it was asked for.
    pub created_at: Moment,
}

/// Which snapshots to list.
#[derive(Debug, Clone, Default)]
pub struct SnapshotsWanted {
    /// Whose.
    pub account: String,
    /// Only those taken of this sandbox.
    pub sandbox: Option<String>,
    /// Only the one with this name.
    pub name: Option<String>,
}

const COLUMNS: &str = "id, account, kind, state, name, description, labels, sandbox, parent, template, spec, bytes, \
    created_at";

/// Records a snapshot. `false` when the account has one of this name.
pub fn insert_snapshot(db: &Connection, row: &SnapshotRow) -> rusqlite::Result<bool> {
    if let Some(name) = &row.name
        && find_snapshot_named(db, &row.account, name.as_str())?.is_some()
    {
        return Ok(false);
    }
    let labels = serde_json::to_string(&row.labels).expect("a map of strings becomes JSON");
    db.prepare_cached(&format!(
        "INSERT INTO snapshots ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
    ))?
    .execute(params![
        row.id.to_string(),
        row.account,
        row.kind.as_str(),
        row.state.as_str(),
        row.name.as_ref().map(SnapshotName::as_str),
        row.description,
        labels,
        row.sandbox.to_string(),
        row.parent.map(|id| id.to_string()),
        row.template,
        row.spec,
        row.bytes.cast_signed(),
        row.created_at.0,
    ])?;
    Ok(true)
}

/// Notes that a snapshot is whole. The next snapshot of the sandbox has a named one as its parent.
pub fn complete_snapshot(db: &Connection, row: &SnapshotRow) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE snapshots SET state = 'ready', template = ?2, bytes = ?3 WHERE id = ?1")?
        .execute(params![row.id.to_string(), row.template, row.bytes.cast_signed()])?;
    Ok(())
}

/// Takes a snapshot out of use. Its children become its parent's, so that the tree stays in one piece.
pub fn retire_snapshot(db: &Connection, id: SnapshotId) -> rusqlite::Result<()> {
    let id = id.to_string();
    db.execute("UPDATE snapshots SET state = 'deleting' WHERE id = ?1", [&id])?;
    for table in ["snapshots", "sandboxes"] {
        db.execute(
            &format!("UPDATE {table} SET parent = (SELECT parent FROM snapshots WHERE id = ?1) WHERE parent = ?1"),
            [&id],
        )?;
    }
    Ok(())
}

/// Forgets a snapshot of which nothing is left.
pub fn delete_snapshot(db: &Connection, id: SnapshotId) -> rusqlite::Result<()> {
    db.execute("DELETE FROM snapshots WHERE id = ?1", [id.to_string()]).map(drop)
}

/// The snapshot with this id.
pub fn find_snapshot(db: &Connection, id: SnapshotId) -> rusqlite::Result<Option<SnapshotRow>> {
    db.prepare_cached(&format!("SELECT {COLUMNS} FROM snapshots WHERE id = ?1"))?
        .query_row([id.to_string()], snapshot_row)
        .optional()
}

/// The account's snapshot with this name that is not on its way out.
pub fn find_snapshot_named(db: &Connection, account: &str, name: &str) -> rusqlite::Result<Option<SnapshotRow>> {
    db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM snapshots WHERE account = ?1 AND name = ?2 AND state <> 'deleting'"
    ))?
    .query_row([account, name], snapshot_row)
    .optional()
}

/// Part of the account's named snapshots, newest first, and how many there are in all.
pub fn list_snapshots(
    db: &Connection,
    wanted: &SnapshotsWanted,
    limit: u32,
    offset: u64,
) -> rusqlite::Result<(Vec<SnapshotRow>, u64)> {
    let condition = "kind = 'named' AND account = ?1 AND (?2 IS NULL OR sandbox = ?2) AND (?3 IS NULL OR name = ?3)";
    let values = params![wanted.account, wanted.sandbox, wanted.name];
    let total: i64 = db
        .prepare_cached(&format!("SELECT count(*) FROM snapshots WHERE {condition}"))?
        .query_row(values, |row| row.get(0))?;
    let mut statement = db.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM snapshots WHERE {condition} ORDER BY id DESC LIMIT {limit} OFFSET {}",
        offset.min(i64::MAX.unsigned_abs())
    ))?;
    let rows = statement.query_map(values, snapshot_row)?.collect::<rusqlite::Result<_>>()?;
    Ok((rows, total.unsigned_abs()))
}

/// Snapshots that nobody is to have: half written, on their way out, or of a fork that has ended. For the start of
/// the daemon, when nobody is at work on any.
pub fn stale_snapshots(db: &Connection) -> rusqlite::Result<Vec<SnapshotId>> {
    let mut statement = db.prepare_cached("SELECT id FROM snapshots WHERE state <> 'ready' OR kind = 'fork'")?;
    statement.query_map([], |row| snapshot_id(row, 0))?.collect()
}

/// The ids of all snapshots: each may have something on the host.
pub fn snapshot_ids(db: &Connection) -> rusqlite::Result<HashSet<String>> {
    let mut statement = db.prepare_cached("SELECT id FROM snapshots")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// How many sandboxes are being made from a snapshot.
pub fn begun_from(db: &Connection, id: SnapshotId) -> rusqlite::Result<u64> {
    let count: i64 = db
        .prepare_cached("SELECT count(*) FROM sandboxes WHERE origin = ?1 AND slot IS NOT NULL")?
        .query_row([id.to_string()], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// The keys of the templates that a sandbox or snapshot needs.
pub fn referenced_templates(db: &Connection) -> rusqlite::Result<HashSet<String>> {
    let mut statement = db.prepare_cached(
        "SELECT template FROM sandboxes WHERE slot IS NOT NULL AND template IS NOT NULL
         UNION SELECT template FROM snapshots WHERE template IS NOT NULL",
    )?;
    statement.query_map([], |row| row.get(0))?.collect()
}

fn snapshot_row(row: &Row<'_>) -> rusqlite::Result<SnapshotRow> {
    let word = |index: usize| row.get::<_, String>(index);
    let (kind, state, labels) = (word(2)?, word(3)?, word(6)?);
    let name: Option<String> = row.get(4)?;
    let sandbox: String = row.get(7)?;
    Ok(SnapshotRow {
        id: snapshot_id(row, 0)?,
        account: row.get(1)?,
        kind: SnapshotKind::parse(&kind).ok_or_else(|| damaged(2, format!("{kind:?} is no kind of snapshot")))?,
        state: SnapshotState::parse(&state).ok_or_else(|| damaged(3, format!("{state:?} is no state")))?,
        name: name.map(|name| SnapshotName::parse(&name)).transpose().map_err(|error| damaged(4, error))?,
        description: row.get(5)?,
        labels: serde_json::from_str(&labels).map_err(|error| damaged(6, error))?,
        sandbox: sandbox.parse().map_err(|error: hutch_units::IdError| damaged(7, error))?,
        parent: optional_snapshot_id(row, 8)?,
        template: row.get(9)?,
        spec: row.get(10)?,
        bytes: row.get::<_, i64>(11)?.unsigned_abs(),
        created_at: Moment(row.get(12)?),
    })
}

fn snapshot_id(row: &Row<'_>, index: usize) -> rusqlite::Result<SnapshotId> {
    let text: String = row.get(index)?;
    text.parse().map_err(|error: hutch_units::IdError| damaged(index, error))
}

pub(super) fn optional_snapshot_id(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<SnapshotId>> {
    let text: Option<String> = row.get(index)?;
    text.map(|text| text.parse()).transpose().map_err(|error: hutch_units::IdError| damaged(index, error))
}

impl SnapshotKind {
    /// The word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Fork => "fork",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Named, Self::Fork].into_iter().find(|kind| kind.as_str() == word)
    }
}

impl SnapshotState {
    /// The word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Deleting => "deleting",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Creating, Self::Ready, Self::Deleting].into_iter().find(|state| state.as_str() == word)
    }
}

/// How many named snapshots there are.
pub fn count_snapshots(db: &Connection) -> rusqlite::Result<u64> {
    db.query_row("SELECT count(*) FROM snapshots WHERE kind = 'named' AND state = 'ready'", [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::query::create_account;
    use crate::store::{Access, open};
    use crate::tests;

    fn row(account: &str, name: Option<&str>, parent: Option<SnapshotId>) -> SnapshotRow {
        SnapshotRow {
            id: SnapshotId::generate(),
            account: account.to_owned(),
            kind: SnapshotKind::Named,
            state: SnapshotState::Creating,
            name: name.map(|name| SnapshotName::parse(name).unwrap()),
            description: None,
            labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            sandbox: SandboxId::generate(),
            parent,
            template: Some("key".to_owned()),
            spec: tests::spec(),
            bytes: 0,
            created_at: Moment(1),
        }
    }

    #[test]
    fn a_snapshot_is_found_by_what_it_is_called_until_it_goes_and_its_children_are_its_parents() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(&folder.path().join("hutch.db"), Access::Write).unwrap();
        let account = create_account(&db, "a", Moment(1)).unwrap().id;
        let root = row(&account, Some("root"), None);
        let middle = row(&account, Some("middle"), Some(root.id));
        let leaf = row(&account, None, Some(middle.id));
        for row in [&root, &middle, &leaf] {
            assert!(insert_snapshot(&db, row).unwrap());
        }
        assert!(!insert_snapshot(&db, &row(&account, Some("root"), None)).unwrap(), "the name is taken");
        complete_snapshot(&db, &SnapshotRow { bytes: 7, ..middle.clone() }).unwrap();
        let found = find_snapshot_named(&db, &account, "middle").unwrap().unwrap();
        assert_eq!(found, SnapshotRow { bytes: 7, state: SnapshotState::Ready, ..middle.clone() });
        retire_snapshot(&db, middle.id).unwrap();
        assert_eq!(find_snapshot_named(&db, &account, "middle").unwrap(), None);
        assert_eq!(find_snapshot(&db, leaf.id).unwrap().unwrap().parent, Some(root.id));
        assert_eq!(stale_snapshots(&db).unwrap().len(), 3);
        assert_eq!(referenced_templates(&db).unwrap(), HashSet::from(["key".to_owned()]));
        delete_snapshot(&db, middle.id).unwrap();
        let wanted = SnapshotsWanted { account, ..SnapshotsWanted::default() };
        let (rows, total) = list_snapshots(&db, &wanted, 1, 0).unwrap();
        assert_eq!((rows.len(), total), (1, 2));
    }
}
