//! The guest files that saved machines belong to, kept for as long as there are such machines: an upgrade brings
//! another kernel, and a machine can only go on with its own.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

use crate::guest::{GuestError, GuestFiles};
use crate::snapshot::SnapshotManifest;

/// Digits of each digest in the name of a kept guest.
const DIGITS: usize = 16;

/// The name of the directory that keeps the guest with these digests.
pub(super) fn name(kernel_digest: &str, boot_image_digest: &str) -> String {
    let short = |digest: &str| digest.chars().take(DIGITS).collect::<String>();
    format!("{}-{}", short(kernel_digest), short(boot_image_digest))
}

/// Keeps the guest in `guests`, unless it is there. Blocks.
pub(super) fn keep(guests: &Path, guest: &GuestFiles) -> Result<(), GuestError> {
    let manifest = &guest.manifest;
    let directory = guests.join(name(&manifest.kernel_digest, &manifest.boot_image_digest));
    if directory.exists() {
        return Ok(());
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| GuestError::Keep { path, source }
    };
    // Two at once each write their own, and one of them wins the name.
    let partial = guests.join(format!("{}.partial", hutch_units::SandboxId::generate()));
    make(&partial).map_err(failed(&partial))?;
    for (from, name) in [(&guest.kernel, GuestFiles::KERNEL), (&guest.boot_image, GuestFiles::BOOT_IMAGE)] {
        let to = partial.join(name);
        fs::copy(from, &to).map_err(failed(&to))?;
    }
    let to = partial.join(GuestFiles::MANIFEST);
    let written = serde_json::to_vec_pretty(manifest).map_err(io::Error::from);
    written.and_then(|text| fs::write(&to, text)).map_err(failed(&to))?;
    match fs::rename(&partial, &directory) {
        Err(_) if directory.exists() => fs::remove_dir_all(&partial).map_err(failed(&partial)),
        other => other.map_err(failed(&directory)),
    }
}

fn make(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)
}

/// The guest that a saved machine belongs to: the current one, or one that is kept. Blocks.
pub(super) fn find(
    guests: &Path,
    current: &GuestFiles,
    saved: &SnapshotManifest,
) -> Result<Option<GuestFiles>, GuestError> {
    let fits = |guest: &GuestFiles| {
        (&guest.manifest.kernel_digest, &guest.manifest.boot_image_digest)
            == (&saved.kernel_digest, &saved.boot_image_digest)
    };
    if fits(current) {
        return Ok(Some(current.clone()));
    }
    let directory: PathBuf = guests.join(name(&saved.kernel_digest, &saved.boot_image_digest));
    if !directory.join(GuestFiles::MANIFEST).exists() {
        return Ok(None);
    }
    Ok(Some(GuestFiles::open(&directory)?).filter(fits))
}

/// A digest of what the host's processor can do, as programs of the guest may have found out and rely on.
///
/// Asked once: a host with many processors takes its time to describe them.
pub(super) fn processor() -> io::Result<String> {
    static PROCESSOR: OnceLock<String> = OnceLock::new();
    if let Some(known) = PROCESSOR.get() {
        return Ok(known.clone());
    }
    let found = describe_processor()?;
    Ok(PROCESSOR.get_or_init(|| found).clone())
}

fn describe_processor() -> io::Result<String> {
    const FIELDS: [&str; 5] = ["vendor_id", "cpu family", "model", "stepping", "flags"];
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let mut hash = Sha256::new();
    // All processors of a host are alike, so the first tells.
    for line in text.lines().take_while(|line| !line.is_empty()) {
        if line.split_once(':').is_some_and(|(name, _)| FIELDS.contains(&name.trim())) {
            hash.update(line);
            hash.update("\n");
        }
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_one_name() {
        assert_eq!(name(&"a".repeat(64), &"b".repeat(64)), format!("{}-{}", "a".repeat(16), "b".repeat(16)));
    }

    #[test]
    fn this_processor_stays_the_same() {
        assert_eq!(processor().unwrap(), describe_processor().unwrap());
        assert_eq!(processor().unwrap().len(), 16);
    }
}
