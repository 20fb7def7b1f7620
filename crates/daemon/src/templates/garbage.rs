//! Removing templates that nobody needs, and guests that no saved machine needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hutch_engine::{MachineRecord, SnapshotManifest};

use super::make::undo;
use super::registry::Recipe;
use crate::core::Core;
use crate::report::chain;
use crate::store::{StoreError, TemplateRow, TemplateState, query};

/// How often it is looked for what is not needed.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long guest files are kept that nothing names: somebody may be about to.
const GRACE: Duration = Duration::from_secs(3600);

/// Has made what will be asked for first, and collects from time to time, until the daemon stops.
pub(crate) async fn keep(core: Arc<Core>) {
    super::start::want_usual(&core).await;
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = core.stopped() => return,
        }
        if let Err(error) = collect(&core).await {
            tracing::error!(error = chain(&error), "templates cannot be looked through");
        }
    }
}

/// Removes what is not needed and not wanted: templates of a guest or image that was replaced, those that cannot be
/// used, and the ones that were used least recently when there are too many.
pub(crate) async fn collect(core: &Arc<Core>) -> Result<(), StoreError> {
    let used = core.templates.take_used();
    if !used.is_empty() {
        core.store.note("note the use of templates", move |db| query::touch_templates(db, &used)).await?;
    }
    let rows = core.store.read("read the templates", query::templates).await?;
    for row in unwanted(core, rows).await {
        core.pool.forget(&row.key);
        let key = row.key.clone();
        if core.store.write("retire a template", move |db| query::retire_template(db, &key)).await? {
            tracing::info!(key = row.key, image = row.image, "removing a template that nobody needs");
            undo(core, &row).await;
            core.templates.removed(&row.key);
        }
    }
    remove_guests(core).await
}

/// Those that are not worth their place. Whether something needs them is for the store to say.
async fn unwanted(core: &Arc<Core>, rows: Vec<TemplateRow>) -> Vec<TemplateRow> {
    let bounds = core.settings.preparation;
    let (mut count, mut bytes) = (0, 0_u64);
    let mut unwanted = Vec::new();
    // The one that was used last comes first.
    for row in rows.into_iter().filter(|row| row.state == TemplateState::Ready) {
        let recipe = Recipe { base_image: row.base_image.clone(), memory_mib: row.memory_mib, disk_mib: row.disk_mib };
        let is_current = core.templates.key(&core.engine, &recipe).await.is_none_or(|key| key == row.key);
        if !is_current || core.templates.is_rejected(&row.key) {
            unwanted.push(row);
            continue;
        }
        count += 1;
        bytes = bytes.saturating_add(row.bytes);
        if count > bounds.templates || bytes > bounds.templates_bytes {
            unwanted.push(row);
        }
    }
    unwanted
}

/// Removes guests that neither a saved machine nor one that runs belongs to.
async fn remove_guests(core: &Arc<Core>) -> Result<(), StoreError> {
    let rows = core.store.read("read who needs a guest", query::held).await?;
    let records = rows.into_iter().filter_map(|row| serde_json::from_str::<MachineRecord>(&row.machine?).ok());
    let mut needed: Vec<_> = records.map(|record| (record.kernel_digest, record.boot_image_digest)).collect();
    let (data, guests) = (core.data.clone(), core.data.guests());
    let removed = tokio::task::spawn_blocking(move || {
        let pauses = children(&data.sandboxes()).into_iter().flat_map(|sandbox| children(&sandbox));
        let saved = [data.templates(), data.snapshots()];
        let saved = saved.into_iter().flat_map(|directory| children(&directory)).chain(pauses);
        let manifests = saved.filter_map(|directory| SnapshotManifest::read(&directory).ok());
        needed.extend(manifests.map(|manifest| (manifest.kernel_digest, manifest.boot_image_digest)));
        let unneeded = children(&guests).into_iter().filter(|guest| is_old(guest) && !is_needed(guest, &needed));
        unneeded.map(|guest| (std::fs::remove_dir_all(&guest), guest)).collect::<Vec<_>>()
    });
    for (removed, guest) in removed.await.unwrap_or_default() {
        match removed {
            Ok(()) => tracing::info!(guest = %guest.display(), "removed a guest that no machine needs"),
            Err(error) => tracing::error!(error = chain(&error), "a guest that no machine needs cannot be removed"),
        }
    }
    Ok(())
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Guests are called by the beginnings of the digests of their kernel and their boot image.
fn is_needed(guest: &Path, needed: &[(String, String)]) -> bool {
    let name = guest.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once('-'));
    name.is_some_and(|(kernel, boot_image)| {
        needed.iter().any(|(k, b)| k.starts_with(kernel) && b.starts_with(boot_image))
    })
}

fn is_old(path: &Path) -> bool {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > GRACE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_needed_by_the_beginnings_of_its_digests() {
        let needed = [("aabbcc".to_owned(), "ddeeff".to_owned())];
        assert!(is_needed(Path::new("/guests/aabb-ddee"), &needed));
        assert!(!is_needed(Path::new("/guests/aabb-ddff"), &needed));
        assert!(!is_needed(Path::new("/guests/01234.partial"), &needed));
    }
}
