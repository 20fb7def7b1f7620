//! Templates: one row each, from before anything of it is made until after all of it is removed.

use std::collections::HashSet;
use std::path::PathBuf;

use hutch_units::SandboxId;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::sandbox::damaged;
use crate::clock::Moment;

/// Where a template is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateState {
    /// Being made.
    Building,
    /// Whole.
    Ready,
    /// Not to be used any more; its files go.
    Removing,
}

/// A template as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRow {
    /// What the engine finds it by.
    pub key: String,
    /// Where it is in its life.
    pub state: TemplateState,
    /// The machine that it is saved from; `None` once that machine is gone.
    pub id: Option<SandboxId>,
    /// The number that the machine's host uid is made from.
    pub slot: Option<u32>,
    /// The name of the image.
    pub image: String,
    /// The image's file.
    pub base_image: PathBuf,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Size of the disk in MiB.
    pub disk_mib: u32,
    /// Processors of the machine that it is saved from.
    pub vcpu: u32,
    /// What it takes on the host's disk.
    pub bytes: u64,
    /// When it was begun.
    pub made_at: Moment,
    /// When a sandbox last began as it; coarse.
    pub last_used_at: Moment,
}

const COLUMNS: &str =
    "key, state, id, slot, image, base_image, memory_mib, disk_mib, vcpu, bytes, made_at, last_used_at";

/// Records a template that is about to be made, with a slot of its own. `None` when it is recorded already or no slot
/// is free.
pub fn insert_template(db: &Connection, row: &TemplateRow) -> rusqlite::Result<Option<TemplateRow>> {
    if find_template(db, &row.key)?.is_some() {
        return Ok(None);
    }
    let Some(slot) = super::sandbox::next_slot(db)? else { return Ok(None) };
    let row = TemplateRow { slot: Some(slot), ..row.clone() };
    db.prepare_cached(&format!(
        "INSERT INTO templates ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
    ))?
    .execute(params![
        row.key,
        row.state.as_str(),
        row.id.map(|id| id.to_string()),
        row.slot,
        row.image,
        row.base_image.to_string_lossy(),
        row.memory_mib,
        row.disk_mib,
        row.vcpu,
        row.bytes.cast_signed(),
        row.made_at.0,
        row.last_used_at.0,
    ])?;
    Ok(Some(row))
}

/// Notes that a template is whole and the machine that it was saved from is gone.
pub fn complete_template(db: &Connection, key: &str, bytes: u64) -> rusqlite::Result<()> {
    db.execute(
        "UPDATE templates SET state = 'ready', id = NULL, slot = NULL, bytes = ?2 WHERE key = ?1",
        params![key, bytes.cast_signed()],
    )
    .map(drop)
}

/// Takes a template out of use, unless something needs it. Whether it is out of use now.
pub fn retire_template(db: &Connection, key: &str) -> rusqlite::Result<bool> {
    let changed = db.execute(
        "UPDATE templates SET state = 'removing' WHERE key = ?1
         AND NOT EXISTS (SELECT 1 FROM slots WHERE template = ?1)
         AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE template = ?1 AND slot IS NOT NULL)
         AND NOT EXISTS (SELECT 1 FROM snapshots WHERE template = ?1)",
        [key],
    )?;
    Ok(changed > 0)
}

/// Forgets a template of which nothing is left.
pub fn delete_template(db: &Connection, key: &str) -> rusqlite::Result<()> {
    db.execute("DELETE FROM templates WHERE key = ?1", [key]).map(drop)
}

/// Notes when sandboxes last began as these templates.
pub fn touch_templates(db: &Connection, used: &[(String, Moment)]) -> rusqlite::Result<()> {
    let mut statement =
        db.prepare_cached("UPDATE templates SET last_used_at = max(last_used_at, ?2) WHERE key = ?1")?;
    for (key, moment) in used {
        statement.execute(params![key, moment.0])?;
    }
    Ok(())
}

/// The template with this key.
pub fn find_template(db: &Connection, key: &str) -> rusqlite::Result<Option<TemplateRow>> {
    db.prepare_cached(&format!("SELECT {COLUMNS} FROM templates WHERE key = ?1"))?
        .query_row([key], template_row)
        .optional()
}

/// Every template, the one that was used last first.
pub fn templates(db: &Connection) -> rusqlite::Result<Vec<TemplateRow>> {
    let mut statement =
        db.prepare_cached(&format!("SELECT {COLUMNS} FROM templates ORDER BY last_used_at DESC, key"))?;
    statement.query_map([], template_row)?.collect()
}

/// The keys of all templates: each may have something on the host.
pub fn template_keys(db: &Connection) -> rusqlite::Result<HashSet<String>> {
    let mut statement = db.prepare_cached("SELECT key FROM templates")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// The ids of machines that are no sandbox's: those that templates are saved from, and those that wait for a create.
pub fn prepared_ids(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        db.prepare_cached("SELECT id FROM templates WHERE id IS NOT NULL UNION ALL SELECT id FROM slots")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

fn template_row(row: &Row<'_>) -> rusqlite::Result<TemplateRow> {
    let (state, id): (String, Option<String>) = (row.get(1)?, row.get(2)?);
    let id = id.map(|id| id.parse().map_err(|error: hutch_units::IdError| damaged(2, error))).transpose()?;
    let base_image: String = row.get(5)?;
    Ok(TemplateRow {
        key: row.get(0)?,
        state: TemplateState::parse(&state).ok_or_else(|| damaged(1, format!("{state:?} is no state")))?,
        id,
        slot: row.get(3)?,
        image: row.get(4)?,
        base_image: base_image.into(),
        memory_mib: row.get(6)?,
        disk_mib: row.get(7)?,
        vcpu: row.get(8)?,
        bytes: row.get::<_, i64>(9)?.unsigned_abs(),
        made_at: Moment(row.get(10)?),
        last_used_at: Moment(row.get(11)?),
    })
}

impl TemplateState {
    /// The word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Removing => "removing",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Building, Self::Ready, Self::Removing].into_iter().find(|state| state.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::query::{insert_slot, next_slot};
    use crate::store::{Access, SlotRow, open};

    fn row(key: &str) -> TemplateRow {
        TemplateRow {
            key: key.to_owned(),
            state: TemplateState::Building,
            id: Some(SandboxId::generate()),
            slot: None,
            image: "debian:13".to_owned(),
            base_image: "/cache/a.erofs".into(),
            memory_mib: 256,
            disk_mib: 1024,
            vcpu: 1,
            bytes: 0,
            made_at: Moment(1),
            last_used_at: Moment(1),
        }
    }

    fn slot(template: &str) -> SlotRow {
        SlotRow {
            id: SandboxId::generate(),
            slot: 0,
            template: template.to_owned(),
            base_image: "/cache/a.erofs".into(),
            memory_mib: 256,
            vcpu: 1,
            cpu_quota_percent: Some(50),
            made_at: Moment(1),
        }
    }

    #[test]
    fn a_template_is_recorded_once_and_retired_only_when_nothing_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(&folder.path().join("hutch.db"), Access::Write).unwrap();
        let made = insert_template(&db, &row("a")).unwrap().unwrap();
        assert_eq!(made.slot, Some(0));
        assert_eq!(insert_template(&db, &row("a")).unwrap(), None);
        assert_eq!(insert_slot(&db, &slot("a")).unwrap(), None, "what is not ready has no slots");
        complete_template(&db, "a", 7).unwrap();
        let ready = TemplateRow { state: TemplateState::Ready, id: None, slot: None, bytes: 7, ..made };
        assert_eq!(find_template(&db, "a").unwrap(), Some(ready));
        let waiting = insert_slot(&db, &slot("a")).unwrap().unwrap();
        assert_eq!((waiting.slot, next_slot(&db).unwrap()), (0, Some(1)));
        assert!(!retire_template(&db, "a").unwrap());
        assert_eq!(prepared_ids(&db).unwrap(), [waiting.id.to_string()]);
        crate::store::query::delete_slot(&db, waiting.id).unwrap();
        assert!(retire_template(&db, "a").unwrap());
        assert_eq!(insert_slot(&db, &slot("a")).unwrap(), None);
        delete_template(&db, "a").unwrap();
        assert!(template_keys(&db).unwrap().is_empty());
    }
}
