//! Prepared machines: one row each, from before anything of it is made until it becomes a sandbox or all of it is
//! removed.

use std::path::PathBuf;

use hutch_units::SandboxId;
use rusqlite::{Connection, Row, params};

use super::sandbox::parsed;
use super::template::{TemplateState, find_template};
use crate::clock::Moment;

/// A prepared machine as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRow {
    /// Its id, which becomes the sandbox's.
    pub id: SandboxId,
    /// The number that its host uid is made from.
    pub slot: u32,
    /// The key of the template that it began as.
    pub template: String,
    /// The image's file.
    pub base_image: PathBuf,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Virtual processors.
    pub vcpu: u32,
    /// Upper bound of processor time in per cent of one processor.
    pub cpu_quota_percent: Option<u32>,
    /// When it was begun.
    pub made_at: Moment,
}

/// Records a machine that is about to be prepared, with a slot of its own. `None` when its template is not ready any
/// more or no slot is free.
pub fn insert_slot(db: &Connection, row: &SlotRow) -> rusqlite::Result<Option<SlotRow>> {
    if find_template(db, &row.template)?.is_none_or(|template| template.state != TemplateState::Ready) {
        return Ok(None);
    }
    let Some(slot) = super::sandbox::next_slot(db)? else { return Ok(None) };
    let row = SlotRow { slot, ..row.clone() };
    db.prepare_cached(
        "INSERT INTO slots (id, slot, template, base_image, memory_mib, vcpu, cpu_quota_percent, made_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        row.id.to_string(),
        row.slot,
        row.template,
        row.base_image.to_string_lossy(),
        row.memory_mib,
        row.vcpu,
        row.cpu_quota_percent,
        row.made_at.0,
    ])?;
    Ok(Some(row))
}

/// Forgets a prepared machine: it is a sandbox's now, or nothing is left of it.
pub fn delete_slot(db: &Connection, id: SandboxId) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM slots WHERE id = ?1")?.execute([id.to_string()]).map(drop)
}

/// Every prepared machine.
pub fn slots(db: &Connection) -> rusqlite::Result<Vec<SlotRow>> {
    let mut statement = db.prepare_cached(
        "SELECT id, slot, template, base_image, memory_mib, vcpu, cpu_quota_percent, made_at FROM slots ORDER BY id",
    )?;
    statement.query_map([], slot_row)?.collect()
}

fn slot_row(row: &Row<'_>) -> rusqlite::Result<SlotRow> {
    let base_image: String = row.get(3)?;
    Ok(SlotRow {
        id: parsed(row, 0)?,
        slot: row.get(1)?,
        template: row.get(2)?,
        base_image: base_image.into(),
        memory_mib: row.get(4)?,
        vcpu: row.get(5)?,
        cpu_quota_percent: row.get(6)?,
        made_at: Moment(row.get(7)?),
    })
}
