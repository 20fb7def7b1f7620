//! What a start of the daemon does about templates: it undoes what was half made, checks what is there, and has made
//! what will be asked for first.

use std::collections::HashSet;
use std::sync::Arc;

use hutch_units::Shape;

use super::make::undo;
use super::registry::{Recipe, Wanted};
use crate::core::Core;
use crate::report::chain;
use crate::snapshots::files;
use crate::store::{StoreError, TemplateRow, TemplateState, query};

/// The shapes that most sandboxes have: the smallest, and what the command line asks for unless told otherwise.
const USUAL: [&str; 2] = ["s-1vcpu-256mb", "s-1vcpu-1gb"];

/// Takes over what an earlier run left.
pub(crate) async fn take_over(core: &Arc<Core>) -> Result<(), StoreError> {
    let rows = core.store.read("read the templates of an earlier run", query::templates).await?;
    for row in &rows {
        if row.state != TemplateState::Ready {
            tracing::warn!(key = row.key, state = row.state.as_str(), "removing a template that is not whole");
            undo(core, row).await;
            continue;
        }
        match core.engine.verify(&core.data.template(&row.key)).await {
            Ok(_) => core.templates.made(&row.key),
            Err(error) => {
                tracing::warn!(key = row.key, error = chain(&error), "a template cannot be used any more");
                core.templates.reject(&row.key);
            }
        }
    }
    remove_unrecorded(core, &rows.into_iter().map(|row| row.key).collect()).await;
    Ok(())
}

/// Removes files that belong to no template.
async fn remove_unrecorded(core: &Arc<Core>, keys: &HashSet<String>) {
    let Ok(entries) = std::fs::read_dir(core.data.templates()) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if keys.contains(name) {
            continue;
        }
        match files::remove(path.clone()).await {
            Ok(()) => tracing::warn!(path = %path.display(), "removed what belongs to no template"),
            Err(error) => tracing::error!(error = chain(&error), "what belongs to no template cannot be removed"),
        }
    }
}

/// Has templates made for what will be asked for first: what was used last, and the usual shapes of the default image.
pub(crate) async fn want_usual(core: &Arc<Core>) {
    let bounds = core.settings.preparation;
    let last = core.store.read("look what was used last", query::templates).await.unwrap_or_default();
    let default = core.images.source().catalogue().into_iter().find(|entry| entry.is_default).map(|entry| entry.name);
    let usual = USUAL.iter().filter_map(|id| Shape::find(id).ok()).zip(std::iter::repeat(default));
    let usual = usual.filter_map(|(shape, image)| Some((image?, shape.memory.0, shape.default_disk.0, shape.vcpu)));
    let last = last.into_iter().map(|row: TemplateRow| (row.image, row.memory_mib, row.disk_mib, row.vcpu));
    let mut wanted = HashSet::new();
    for (image, memory_mib, disk_mib, vcpu) in last.chain(usual) {
        if wanted.len() >= bounds.templates_at_start as usize {
            break;
        }
        let (images, name) = (core.images.clone(), image.clone());
        // An image that is not built is built when somebody asks for it.
        let Ok(Some(ready)) = tokio::task::spawn_blocking(move || images.built(&name)).await else { continue };
        let recipe = Recipe { base_image: ready.path, memory_mib, disk_mib };
        let Some(key) = core.templates.key(&core.engine, &recipe).await else { continue };
        if wanted.insert(key.clone()) {
            core.templates.want(Wanted { key, image, recipe, vcpu });
        }
    }
}
