//! Preparing machines, and removing those that are not needed.
//!
//! | step    | recorded before it as    | undone by                          |
//! |---------|--------------------------|------------------------------------|
//! | disk    | the row, with its slot   | removing the machine's directory   |
//! | machine | the same                 | `Engine::destroy`                  |
//! | taken   | the sandbox's row        | the sandbox's owner                |

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hutch_engine::snapshot::file;
use hutch_engine::{Identity, MachineRecord, Origin, Prepared};
use hutch_units::SandboxId;
use tokio::time::MissedTickBehavior;

use super::waiting::{Kind, Most, Step, Waiting};
use crate::capacity::Supply;
use crate::core::Core;
use crate::report::chain;
use crate::snapshots::files;
use crate::store::{SlotRow, StoreError, query};

/// How often it is looked whether there are as many as should be, when nothing says so.
const LOOK: Duration = Duration::from_millis(500);
/// How long nobody must have created anything before a machine is prepared.
const CALM: Duration = Duration::from_millis(4);
/// How long it waits for that.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long after a failure a removal is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// What one waiting machine takes of the host's memory at most, in MiB, roughly.
const SHARE_MIB: u64 = 16;

/// Keeps as many machines waiting as should be, until the daemon stops; then removes them.
pub(crate) async fn run(core: Arc<Core>) {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopped = std::pin::pin!(core.stopped());
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = core.pool.wake.notified() => {}
            () = &mut stopped => break,
        }
        while !*core.stopping.borrow() {
            let most = most(&core);
            match core.pool.next(most, |template| core.templates.is_ready(template)) {
                Some(Step::Remove(waiting)) => undo(&core, &waiting.row, Some(&waiting.prepared.record)).await,
                Some(Step::Prepare(kind)) => {
                    core.quiet(CALM, PATIENCE).await;
                    add(&core, &kind).await;
                }
                None => break,
            }
        }
    }
    let waiting = core.pool.drain();
    join_all(waiting.iter().map(|waiting| undo(&core, &waiting.row, Some(&waiting.prepared.record)))).await;
}

/// Removes whatever an earlier run left.
pub(crate) async fn take_over(core: &Arc<Core>) -> Result<(), StoreError> {
    let rows = core.store.read("read the prepared machines of an earlier run", query::slots).await?;
    join_all(rows.iter().map(|row| undo(core, row, None))).await;
    Ok(())
}

/// The bounds, as far as the host has memory and promises are not short.
fn most(core: &Core) -> Most {
    let bounds = core.settings.preparation;
    let supply = Supply::measure(core.data.root());
    let capacity = core.capacity.bounds();
    let spare = supply.memory_mib.saturating_sub(capacity.memory_floor_mib) / 4 / SHARE_MIB;
    let is_short = core.capacity.free_mib() < capacity.promisable_mib() / 16
        || supply.disk_bytes < capacity.disk_floor_bytes.saturating_mul(2)
        || supply.processes < capacity.process_floor.saturating_mul(2);
    let in_all = if is_short { 0 } else { usize::try_from(spare).unwrap_or(usize::MAX) };
    Most { of_a_kind: bounds.pool_of_a_kind as usize, in_all: in_all.min(bounds.pool as usize) }
}

/// Prepares one more.
async fn add(core: &Arc<Core>, kind: &Kind) {
    let row = SlotRow {
        id: SandboxId::generate(),
        slot: 0,
        template: kind.template.clone(),
        base_image: kind.base_image.clone(),
        memory_mib: kind.memory_mib,
        vcpu: kind.vcpu,
        cpu_quota_percent: kind.cpu_quota_percent,
        made_at: core.clock.now(),
    };
    let row = match core.store.note("record a prepared machine", move |db| query::insert_slot(db, &row)).await {
        Ok(Some(row)) => row,
        Ok(None) => return core.pool.rest(kind),
        Err(error) => {
            tracing::error!(error = chain(&error), "a prepared machine cannot be recorded");
            return core.pool.rest(kind);
        }
    };
    let prepared = tokio::select! {
        prepared = prepare(core, &row) => prepared,
        () = core.stopped() => Err("the service stops".to_owned()),
    };
    match prepared {
        Ok(prepared) => core.pool.put(kind, Waiting { row, prepared }),
        Err(detail) => {
            tracing::warn!(id = %row.id, detail, "a machine could not be prepared");
            core.pool.rest(kind);
            undo(core, &row, None).await;
        }
    }
}

async fn prepare(core: &Arc<Core>, row: &SlotRow) -> Result<Prepared, String> {
    let spec = core.waiting_machine(row);
    let template = core.data.template(&row.template);
    files::make_home(spec.state_dir.clone(), template.join(file::DISK), spec.disk.clone())
        .await
        .map_err(|error| chain(&error))?;
    let origin = Origin::Saved { directory: template, template: None, identity: Identity::New };
    core.engine.prepare(&spec, &origin).await.map_err(|error| chain(&error))
}

/// Removes all there is of a machine, and its row. Tries until it is done, or the daemon stops: the next start goes on.
async fn undo(core: &Arc<Core>, row: &SlotRow, record: Option<&MachineRecord>) {
    while let Err(detail) = remove(core, row, record).await {
        tracing::error!(id = %row.id, detail, "something of a prepared machine is left on the host; trying again");
        if *core.stopping.borrow() {
            return;
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

async fn remove(core: &Arc<Core>, row: &SlotRow, record: Option<&MachineRecord>) -> Result<(), String> {
    let spec = core.waiting_machine(row);
    core.engine.destroy(&spec, record).await.map_err(|error| chain(&error))?;
    files::remove(spec.state_dir).await.map_err(|error| chain(&error))?;
    let id = row.id;
    let forgotten = core.store.note("forget a prepared machine", move |db| query::delete_slot(db, id)).await;
    forgotten.map_err(|error| chain(&error))
}
