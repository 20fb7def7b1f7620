//! Sandboxes that begin as a snapshot.

use std::sync::Arc;

use hutch_api::{Caller, CreateSandbox, Error, ErrorKind, SnapshotReference};
use hutch_engine::SnapshotError;

use crate::core::Core;
use crate::report::chain;
use crate::store::{SPEC_VERSION, SnapshotKind, SnapshotRow, SnapshotState, Spec, query};

/// The named snapshot that a request means. That of another account is not found.
pub(crate) async fn resolve(core: &Core, caller: &Caller, reference: &SnapshotReference) -> Result<SnapshotRow, Error> {
    let (account, wanted) = (caller.account.clone(), reference.clone());
    let found = core.store.read("look up a snapshot", move |db| match &wanted {
        SnapshotReference::Id(id) => query::find_snapshot(db, *id),
        SnapshotReference::Name(name) => query::find_snapshot_named(db, &account, name.as_str()),
    });
    let row = found.await.map_err(|error| Error::internal(&error))?;
    row.filter(|row| row.account == caller.account && row.kind == SnapshotKind::Named)
        .ok_or_else(|| reference.not_found())
}

/// What a sandbox is created with that begins as a snapshot; `None` for one that does not.
pub(crate) async fn begin(
    core: &Arc<Core>,
    caller: &Caller,
    request: &CreateSandbox,
) -> Result<Option<(Spec, SnapshotRow)>, Error> {
    let Some(given) = &request.snapshot else { return Ok(None) };
    let reference = SnapshotReference::parse(given).map_err(|error| Error::field("snapshot", error.message))?;
    let row = resolve(core, caller, &reference).await?;
    verify(core, &row).await?;
    let spec = &row.spec;
    same("shape", Some(request.shape.as_str()).filter(|shape| !shape.is_empty()), &spec.shape)?;
    same("rootfs", request.rootfs.as_deref().filter(|rootfs| !rootfs.is_empty()), &spec.rootfs)?;
    let disk = request.disk_mib.filter(|disk| *disk != 0).map(|disk| disk.to_string());
    same("disk_mib", disk.as_deref(), &spec.disk_mib.to_string())?;
    let mut envs = spec.envs.clone();
    envs.extend(request.envs.clone());
    let spec = Spec {
        version: SPEC_VERSION,
        envs,
        egress: if request.egress.is_empty() { spec.egress.clone() } else { request.egress.clone() },
        ssh_pubkeys: if request.ssh_pubkeys.is_empty() {
            spec.ssh_pubkeys.clone()
        } else {
            request.ssh_pubkeys.clone()
        },
        created_by: Some(caller.key.clone()),
        ..spec.clone()
    };
    Ok(Some((spec, row)))
}

/// Refuses a snapshot that is not whole, not what was saved, or not for this host. Reads its state.
pub(crate) async fn verify(core: &Core, row: &SnapshotRow) -> Result<(), Error> {
    match row.state {
        SnapshotState::Ready => {
            let verified = core.engine.verify(&core.data.snapshot(row.id)).await;
            verified.map(drop).map_err(|error| {
                let message = format!("the snapshot {} cannot be used: {}", row.id, unusable(&error));
                Error::new(ErrorKind::SnapshotUnusable, message).with_log(chain(&error))
            })
        }
        state => {
            let message = format!("the snapshot {} is {}; only one that is ready can be used", row.id, state.as_str());
            Err(Error::new(ErrorKind::WrongState, message))
        }
    }
}

/// What a user is told of a saved machine that cannot be used, without the paths of the host.
pub(crate) fn unusable(error: &SnapshotError) -> String {
    match error {
        SnapshotError::Version { version, .. } => format!(
            "the saved machine has version {version} of its format, which this service cannot read: use the release of \
             Hutch that saved it"
        ),
        SnapshotError::Guest { wanted, .. } => format!(
            "the saved machine belongs to the guest {wanted}, which is neither installed nor kept: install the release \
             of Hutch that saved it"
        ),
        SnapshotError::Processor { .. } => {
            "the saved machine comes from another kind of processor: resume it on a host like that one".to_owned()
        }
        SnapshotError::Digest { .. } => "the saved machine is damaged: a file is not the one that was saved".to_owned(),
        SnapshotError::Incomplete { .. } => "the saved machine is incomplete: writing it was interrupted".to_owned(),
        SnapshotError::Template { .. } => {
            "the template that the saved machine needs is not the one there is".to_owned()
        }
        SnapshotError::Read { .. } | SnapshotError::Manifest { .. } => {
            "the saved machine cannot be read; the service's log has the details".to_owned()
        }
    }
}

/// A field that may only repeat what the snapshot has.
fn same(field: &str, given: Option<&str>, own: &str) -> Result<(), Error> {
    match given {
        Some(given) if given != own => {
            let given: String = given.chars().take(64).collect();
            Err(Error::field(field, format!("{given:?} is not the snapshot's: it must be {own:?} or absent")))
        }
        _ => Ok(()),
    }
}
