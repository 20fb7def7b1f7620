//! Making templates: machines that were booted once, and saved when their agent answered.

use std::path::Path;
use std::sync::Arc;

use hutch_units::Mebibytes;
use sha2::{Digest as _, Sha256};

use super::kept;
use super::save::{self, Subject};
use super::start;
use super::teardown::teardown;
use super::user_mode::{Shared, blocking};
use crate::engine::StartError;
use crate::guest::GuestError;
use crate::snapshot::{Origin, Save, SaveError, SnapshotManifest, TemplateSpec, Then, file};

/// Part of every key: raise it when the same inputs begin to give another template.
const FORMAT: u32 = 1;

/// What the template for such machines is found by.
pub(super) async fn key(
    shared: &Shared,
    base_image: &Path,
    memory: Mebibytes,
    disk: Mebibytes,
) -> Result<String, GuestError> {
    let guest = shared.guest().await?;
    let path = Path::new("/proc/cpuinfo");
    let processor = blocking(kept::processor).await;
    let processor = processor.map_err(|source| GuestError::Read { path: path.to_owned(), source })?;
    // Images are called by the digest of what they are made from.
    let image = base_image.file_name().unwrap_or(base_image.as_os_str()).to_string_lossy().into_owned();
    let parts = [
        FORMAT.to_string(),
        guest.manifest.kernel_digest.clone(),
        guest.manifest.boot_image_digest.clone(),
        processor,
        image,
        memory.0.to_string(),
        disk.0.to_string(),
    ];
    let digest = Sha256::digest(parts.join("\n"));
    Ok(digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

/// Boots a machine, warms it, saves it, removes it.
pub(super) async fn make(shared: Arc<Shared>, template: TemplateSpec) -> Result<SnapshotManifest, SaveError> {
    let key = template.key.clone();
    let spec = template.machine();
    let start = |source: StartError| SaveError::Start { key: key.clone(), source: Box::new(source) };
    let agent = |source| SaveError::Agent { key: key.clone(), source };
    let prepared = start::prepare(Arc::clone(&shared), spec.clone(), Origin::Boot).await.map_err(start)?;
    let deadline = shared.options.start_deadline;
    prepared.agent.deadline(deadline).warm().await.map_err(agent)?;
    // What waits for a host in the saved machine is to find none.
    prepared.agent.close();
    let save = Save { directory: template.directory.clone(), then: Then::End };
    let (record, exit) = (prepared.record.clone(), prepared.exit.clone());
    drop(prepared);
    let disk = template.disk.clone();
    let subject = Subject { spec: spec.clone(), record: record.clone(), exit, key: Some(key.clone()) };
    let saved = save::save(Arc::clone(&shared), subject, save, move |partial| {
        let to = partial.join(file::DISK);
        std::fs::rename(&disk, &to).map_err(|source| SaveError::Write { path: to, source })
    })
    .await;
    let removed = {
        let _lock = shared.lock(spec.id).await;
        teardown(&shared, &spec, Some(&record)).await
    };
    let manifest = saved?;
    removed.map_err(|source| SaveError::Remove { key, source: Box::new(source) })?;
    Ok(manifest)
}
