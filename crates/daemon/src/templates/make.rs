//! Making templates, one after the other.
//!
//! | step      | recorded before it as        | undone by                                     |
//! |-----------|------------------------------|-----------------------------------------------|
//! | disk      | the row, with id and slot    | removing the machine's directory              |
//! | machine   | the same                     | `Engine::destroy` with no record              |
//! | files     | the same, by the key         | removing the template's directory             |
//! | ready     | the row is `ready`           | nothing: what is left is the template         |

use std::sync::Arc;
use std::time::{Duration, Instant};

use hutch_engine::TemplateSpec;
use hutch_units::{Mebibytes, SandboxId};

use super::registry::Wanted;
use crate::core::Core;
use crate::metrics::Count;
use crate::report::chain;
use crate::snapshots::files;
use crate::store::{TemplateRow, TemplateState, query};

/// How long a template waits for creates that are under way; under constant load it has to be made at some time.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long after a failure an undo is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Makes what is wanted until the daemon stops; what is half made then is undone.
pub(crate) async fn run(core: Arc<Core>) {
    let mut stopped = std::pin::pin!(core.stopped());
    loop {
        let Some(wanted) = core.templates.next() else {
            tokio::select! {
                () = core.templates.wake.notified() => continue,
                () = &mut stopped => return,
            }
        };
        if *core.stopping.borrow() {
            return;
        }
        core.quiet(Duration::ZERO, PATIENCE).await;
        let key = wanted.key.clone();
        match make(&core, wanted).await {
            Ok(()) => {
                core.metrics.count(Count::TemplateMade);
                core.templates.made(&key);
                core.pool.wake();
            }
            Err(detail) => {
                core.metrics.count(Count::TemplateFailed);
                tracing::error!(key, detail, "a template could not be made; sandboxes boot instead");
                core.templates.failed(&key);
            }
        }
    }
}

/// Makes one. When it fails nothing of it is left.
async fn make(core: &Arc<Core>, wanted: Wanted) -> Result<(), String> {
    let began = Instant::now();
    let now = core.clock.now();
    let row = TemplateRow {
        key: wanted.key,
        state: TemplateState::Building,
        id: Some(SandboxId::generate()),
        slot: None,
        image: wanted.image,
        base_image: wanted.recipe.base_image,
        memory_mib: wanted.recipe.memory_mib,
        disk_mib: wanted.recipe.disk_mib,
        vcpu: wanted.vcpu,
        bytes: 0,
        made_at: now,
        last_used_at: now,
    };
    let recorded = core.store.write("record a template", move |db| query::insert_template(db, &row)).await;
    let Some(row) = recorded.map_err(|error| chain(&error))? else {
        return Err("it is recorded already, or all host user ids are in use".to_owned());
    };
    let built = tokio::select! {
        built = build(core, &row) => built,
        () = core.stopped() => Err("the service stops".to_owned()),
    };
    let finished = match built {
        Ok(bytes) => finish(core, &row, bytes).await,
        Err(detail) => Err(detail),
    };
    match finished {
        Ok(bytes) => {
            let milliseconds = began.elapsed().as_millis();
            tracing::info!(key = row.key, image = row.image, bytes, milliseconds, "made a template");
            Ok(())
        }
        Err(detail) => {
            undo(core, &row).await;
            Err(detail)
        }
    }
}

/// Makes the files; what they take on the host's disk.
async fn build(core: &Arc<Core>, row: &TemplateRow) -> Result<u64, String> {
    let machine = core.template_machine(row).ok_or("it has no machine to be saved from")?;
    let (source, disk, state_dir) = (core.images.source(), machine.disk.clone(), machine.state_dir.clone());
    let (size, templates) = (Mebibytes(row.disk_mib), core.data.templates());
    let made = tokio::task::spawn_blocking(move || {
        crate::data_directory::make_private(&templates).map_err(|error| chain(&error))?;
        crate::data_directory::make_private(&state_dir).map_err(|error| chain(&error))?;
        source.make_disk(&disk, size).map_err(|error| chain(&error))
    });
    made.await.map_err(|error| chain(&error))??;
    let directory = core.data.template(&row.key);
    let spec = TemplateSpec {
        id: machine.id,
        state_dir: machine.state_dir,
        key: row.key.clone(),
        directory: directory.clone(),
        base_image: machine.base_image,
        disk: machine.disk,
        memory: machine.memory,
        vcpu: machine.vcpu,
        host_uid: machine.host_uid,
    };
    core.engine.make_template(&spec).await.map_err(|error| chain(&error))?;
    files::usage(directory).await.map_err(|error| chain(&error))
}

/// Lets go of the machine that the template was saved from.
async fn finish(core: &Arc<Core>, row: &TemplateRow, bytes: u64) -> Result<u64, String> {
    remove_machine(core, row).await?;
    let key = row.key.clone();
    let stored = core.store.write("complete a template", move |db| query::complete_template(db, &key, bytes)).await;
    stored.map_err(|error| chain(&error)).map(|()| bytes)
}

/// Removes all there is of a template, and its row. Tries until it is done, or the daemon stops: the next start goes
/// on.
pub(super) async fn undo(core: &Arc<Core>, row: &TemplateRow) {
    while let Err(detail) = remove(core, row).await {
        tracing::error!(key = row.key, detail, "something of a template is left on the host; trying again");
        tokio::time::sleep(TRY_AGAIN).await;
        if *core.stopping.borrow() {
            return;
        }
    }
}

async fn remove(core: &Arc<Core>, row: &TemplateRow) -> Result<(), String> {
    remove_machine(core, row).await?;
    files::remove(core.data.template(&row.key)).await.map_err(|error| chain(&error))?;
    let key = row.key.clone();
    let forgotten = core.store.write("forget a template", move |db| query::delete_template(db, &key)).await;
    forgotten.map_err(|error| chain(&error))
}

async fn remove_machine(core: &Arc<Core>, row: &TemplateRow) -> Result<(), String> {
    let Some(machine) = core.template_machine(row) else { return Ok(()) };
    core.engine.destroy(&machine, None).await.map_err(|error| chain(&error))?;
    files::remove(machine.state_dir).await.map_err(|error| chain(&error))
}
