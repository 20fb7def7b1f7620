//! Creating a sandbox: everything that can refuse comes before the first side effect.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hutch_api::{Caller, CreateSandbox, CreatedSandbox, Error, ErrorKind, SandboxReference};
use hutch_image::disk;
use hutch_units::{Mebibytes, SandboxId, SandboxName, Shape};
use sha2::{Digest as _, Sha256};

use super::find::Found;
use crate::capacity::{NoRoom, Supply};
use crate::core::Core;
use crate::images::ReadyImage;
use crate::lifecycle::State;
use crate::metrics::Count;
use crate::names;
use crate::owner::{self, Beginning, Handle, Plan};
use crate::pool::Kind;
use crate::snapshots;
use crate::store::{
    Desired, NewSandbox, Receipt, SPEC_VERSION, SandboxRow, SnapshotRow, Spec, StoreError, Taken, query,
};
use crate::templates::{Recipe, Wanted};
use crate::view;

/// When to ask again while there is no room.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The most egress rules, and the most SSH keys.
const MOST_ENTRIES: usize = 256;
/// The longest egress rule, and the longest SSH key.
const LONGEST_ENTRY: usize = 16 << 10;

/// What came of an attempt.
enum Outcome {
    /// The sandbox is being made.
    Begun(Handle),
    /// A request with the same idempotency key was here before.
    Repeated(Receipt),
}

pub(super) async fn create(core: &Arc<Core>, caller: &Caller, request: CreateSandbox) -> Result<CreatedSandbox, Error> {
    let since = Instant::now();
    let begun = snapshots::begin(core, caller, &request).await?;
    let new = validate(core, caller, &request, begun)?;
    loop {
        // A repeated request must be answered even when there is no room for a new sandbox.
        let receipt = match &new.receipt {
            Some((key, digest)) => known(core, caller, key, digest).await?,
            None => None,
        };
        let outcome = match receipt {
            Some(receipt) => Outcome::Repeated(receipt),
            None => admit(core, new.clone(), since).await?,
        };
        match outcome {
            Outcome::Begun(handle) => return made(core, &handle).await,
            Outcome::Repeated(receipt) => {
                if let Some(created) = replay(core, caller, receipt).await? {
                    return Ok(created);
                }
            }
        }
    }
}

/// Checks what needs the knowledge of this host; the adapter has checked the rest.
fn validate(
    core: &Core,
    caller: &Caller,
    request: &CreateSandbox,
    begun: Option<(Spec, SnapshotRow)>,
) -> Result<NewSandbox, Error> {
    let settings = &core.settings;
    let engine = core.engine.kind().as_str();
    if let Some(given) = request.engine.as_deref().filter(|given| *given != "auto" && *given != engine) {
        let given: String = given.chars().take(64).collect();
        return Err(Error::field("engine", format!("unknown engine {given:?}, choices: [auto {engine}]")));
    }
    only("region", request.region.as_deref(), &settings.region)?;
    only("host_id", request.host_id.as_deref(), &settings.host_id)?;
    absent("networks", request.networks.is_empty())?;
    absent("disks", request.disks.is_empty())?;
    absent("node_selector", request.node_selector.is_empty())?;
    bounded("egress", &request.egress)?;
    bounded("ssh_pubkeys", &request.ssh_pubkeys)?;
    let names = match &request.name {
        Some(name) => vec![SandboxName::parse(name).map_err(|error| Error::field("name", error.to_string()))?],
        None => names::candidates(),
    };
    let lifetime = request.lifetime_seconds.map(|seconds| Duration::from_secs(u64::from(seconds)));
    let (spec, snapshot) = match begun {
        Some((spec, snapshot)) => (spec, Some(snapshot)),
        None => (specify(core, caller, request)?, None),
    };
    let snapshot_id = snapshot.as_ref().map(|snapshot| snapshot.id);
    Ok(NewSandbox {
        id: SandboxId::generate(),
        account: caller.account.clone(),
        names,
        spec,
        labels: request.labels.clone(),
        auto_pause_after_seconds: request.auto_pause_after_seconds,
        auto_destroy_after_seconds: request.auto_destroy_after_seconds,
        ingress: request.ingress_enabled.unwrap_or(false),
        expires_at: lifetime.map(|lifetime| core.clock.now().after(lifetime)),
        receipt: request.idempotency_key.clone().map(|key| (key, digest(request))),
        desired: Desired::Running,
        template: snapshot.and_then(|snapshot| snapshot.template),
        origin: snapshot_id,
        snapshot: snapshot_id,
        parent: snapshot_id,
        forked_from: None,
    })
}

/// What a sandbox is created with that begins as an image.
fn specify(core: &Core, caller: &Caller, request: &CreateSandbox) -> Result<Spec, Error> {
    let engine = core.engine.kind().as_str();
    let shape = Shape::find(&request.shape).map_err(|error| Error::field("shape", error.to_string()))?;
    let wanted = request.rootfs.as_deref().unwrap_or_default();
    let rootfs = core.images.source().resolve(wanted).map_err(|error| Error::field("rootfs", error.to_string()))?;
    let disk_mib = request.disk_mib.unwrap_or(shape.default_disk.0);
    if !(disk::MINIMUM..=disk::MAXIMUM).contains(&Mebibytes(disk_mib)) {
        let message = format!("must be {} to {}, got {disk_mib}", disk::MINIMUM.0, disk::MAXIMUM.0);
        return Err(Error::field("disk_mib", message));
    }
    Ok(Spec {
        version: SPEC_VERSION,
        engine: engine.to_owned(),
        shape: shape.id.to_owned(),
        vcpu: shape.vcpu,
        memory_mib: shape.memory.0,
        cpu_quota_percent: shape.cpu_quota_percent,
        disk_mib,
        rootfs,
        base_image: std::path::PathBuf::new(),
        envs: request.envs.clone(),
        egress: request.egress.clone(),
        ssh_pubkeys: request.ssh_pubkeys.clone(),
        created_by: Some(caller.key.clone()),
    })
}

/// A field that may only have one value.
fn only(field: &str, given: Option<&str>, own: &str) -> Result<(), Error> {
    match given {
        Some(given) if given != own => {
            let given: String = given.chars().take(64).collect();
            Err(Error::field(field, format!("{given:?} is not this service's: it must be {own:?} or absent")))
        }
        _ => Ok(()),
    }
}

/// A field for what is not there yet.
fn absent(field: &str, is_empty: bool) -> Result<(), Error> {
    if is_empty { Ok(()) } else { Err(Error::field(field, "not available on this service yet; leave it out")) }
}

pub(super) fn bounded(field: &str, entries: &[String]) -> Result<(), Error> {
    if entries.len() > MOST_ENTRIES {
        return Err(Error::field(field, format!("has {} entries, the most is {MOST_ENTRIES}", entries.len())));
    }
    match entries.iter().position(|entry| entry.is_empty() || entry.len() > LONGEST_ENTRY) {
        Some(position) => {
            Err(Error::field(format!("{field}[{position}]"), format!("must have 1 to {LONGEST_ENTRY} bytes")))
        }
        None => Ok(()),
    }
}

/// What tells one request from another that has the same idempotency key.
fn digest(request: &CreateSandbox) -> Vec<u8> {
    let request = CreateSandbox { idempotency_key: None, ..request.clone() };
    let json = serde_json::to_vec(&request).expect("plain strings, numbers and maps become JSON");
    Sha256::digest(json).to_vec()
}

/// What is known of an idempotency key.
async fn known(core: &Core, caller: &Caller, key: &str, digest: &[u8]) -> Result<Option<Receipt>, Error> {
    let (account, key, digest) = (caller.account.clone(), key.to_owned(), digest.to_owned());
    let looked = core.store.read("look up an idempotency key", move |db| query::find_receipt(db, &account, &key));
    match looked.await.map_err(|error| Error::internal(&error))? {
        Some((stored, _)) if stored != digest => Err(mismatch()),
        known => Ok(known.map(|(_, receipt)| receipt)),
    }
}

fn mismatch() -> Error {
    let message = "this idempotency key came with a different request before; use a new key for a new request";
    Error::new(ErrorKind::IdempotencyMismatch, message).with_field("idempotency_key", message)
}

/// Waits for a turn and for room, then records the sandbox and gives it its owner.
async fn admit(core: &Arc<Core>, mut new: NewSandbox, since: Instant) -> Result<Outcome, Error> {
    refuse_unless_ready(core).await?;
    // A snapshot belongs to the image that it was made with, whatever the name has come to mean since.
    let kind = match new.origin {
        Some(_) => None,
        None => {
            new.spec.base_image = image(core, &new.spec.rootfs).await?.path;
            template(core, &new.spec).await
        }
    };
    if let Some(kind) = &kind {
        new.template = Some(kind.template.clone());
    }
    let turn = tokio::time::timeout(core.settings.create_patience, Arc::clone(&core.creates).acquire_owned()).await;
    let Ok(Ok(turn)) = turn else {
        return Err(unavailable(core, "too many sandboxes are being created; try again".into()));
    };
    let place = core.capacity.admit(Mebibytes(new.spec.memory_mib), Supply::measure(core.data.root()));
    let place = place.map_err(|no_room: NoRoom| unavailable(core, no_room.to_string()))?;
    let core = Arc::clone(core);
    let names: Vec<String> = new.names.iter().map(ToString::to_string).collect();
    // In a task of its own: a caller that goes away now must not leave a row without an owner.
    let begun = tokio::spawn(async move {
        let row = match record(&core, new, kind).await.map_err(|error| Error::internal(&error))? {
            Ok(row) => row,
            Err(taken) => return refused(taken, &names),
        };
        let beginning = Beginning { row, plan: Plan::Create, place: Some(place), since, turn: Some(turn) };
        Ok(Outcome::Begun(owner::spawn(&core, beginning)))
    });
    begun.await.map_err(|error| Error::internal(&error))?
}

/// The image of this proper name.
async fn image(core: &Core, name: &str) -> Result<ReadyImage, Error> {
    if let Some(ready) = core.images.recent(name) {
        return Ok(ready);
    }
    let (images, name) = (core.images.clone(), name.to_owned());
    // Looking for an image reads files.
    let image = tokio::task::spawn_blocking(move || images.require(&name)).await;
    image.map_err(|error| Error::internal(&error))?
}

/// The kind of machine that the sandbox can take over or begin as; `None` when it has to boot.
async fn template(core: &Core, spec: &Spec) -> Option<Kind> {
    if core.settings.preparation.templates == 0 {
        return None;
    }
    let recipe = Recipe { base_image: spec.base_image.clone(), memory_mib: spec.memory_mib, disk_mib: spec.disk_mib };
    let key = core.templates.key(&core.engine, &recipe).await?;
    let kind = Kind {
        template: key.clone(),
        base_image: spec.base_image.clone(),
        memory_mib: spec.memory_mib,
        vcpu: spec.vcpu,
        cpu_quota_percent: spec.cpu_quota_percent,
    };
    if core.templates.is_ready(&key) {
        core.templates.touch(&key, core.clock.now());
        return Some(kind);
    }
    let wanted = Wanted { key, image: spec.rootfs.clone(), recipe, vcpu: spec.vcpu };
    if Shape::find(&spec.shape).is_ok_and(|shape| shape.default_disk.0 == spec.disk_mib) {
        core.templates.want(wanted);
    } else {
        core.templates.want_again(wanted);
    }
    // The next one of this kind is to find a machine that waits.
    core.pool.expect(&kind);
    None
}

/// Records the sandbox; if a machine of its kind waits, as that machine's.
async fn record(
    core: &Arc<Core>,
    new: NewSandbox,
    kind: Option<Kind>,
) -> Result<Result<SandboxRow, Taken>, StoreError> {
    let now = core.clock.now();
    let waiting = kind.and_then(|kind| core.pool.take(&kind).map(|waiting| (kind, waiting)));
    let Some((kind, waiting)) = waiting else {
        return core.store.note("record a sandbox", move |db| query::insert(db, new, now)).await;
    };
    let row = waiting.row.clone();
    let recorded = core.store.note("record a sandbox", move |db| query::insert_prepared(db, new, &row, now)).await;
    match &recorded {
        Ok(Ok(row)) => core.pool.hold(row.id, waiting.prepared),
        _ => core.pool.put(&kind, waiting),
    }
    core.pool.wake();
    recorded
}

pub(super) async fn refuse_unless_ready(core: &Arc<Core>) -> Result<(), Error> {
    match super::host::ready(core).await.reason {
        None => Ok(()),
        Some(reason) => Err(Error::new(ErrorKind::Unavailable, reason).with_retry_after(Duration::from_secs(1))),
    }
}

pub(super) fn unavailable(core: &Core, message: String) -> Error {
    core.metrics.count(Count::CreateRefused);
    Error::new(ErrorKind::Unavailable, message).with_retry_after(RETRY_AFTER)
}

fn refused(taken: Taken, names: &[String]) -> Result<Outcome, Error> {
    match taken {
        Taken::Repeated(receipt) => Ok(Outcome::Repeated(receipt)),
        taken => Err(refused_name(taken, names)),
    }
}

/// Why a sandbox could not be recorded.
pub(super) fn refused_name(taken: Taken, names: &[String]) -> Error {
    match taken {
        Taken::Repeated(_) | Taken::Key => mismatch(),
        Taken::Name => {
            let message = match names {
                [name] => format!("a living sandbox is named {name:?} already; destroy it, or choose another name"),
                _ => "no name could be made up that is free; try again, or give one".to_owned(),
            };
            let error = Error::new(ErrorKind::NameTaken, message.clone());
            error.with_field("name", message)
        }
        Taken::Slots => {
            let message = "no capacity: all host user ids for sandboxes are in use";
            Error::new(ErrorKind::Unavailable, message).with_retry_after(RETRY_AFTER)
        }
    }
}

/// Waits until the sandbox runs, or will not.
async fn made(core: &Core, handle: &Handle) -> Result<CreatedSandbox, Error> {
    let row = handle.wait_for(|snapshot| snapshot.row.state != State::Creating).await.row;
    answer(core, &row)
}

fn answer(core: &Core, row: &SandboxRow) -> Result<CreatedSandbox, Error> {
    let reason = row.reason.as_deref().unwrap_or("the service's log has the details");
    match row.state {
        State::Failed => {
            Err(Error::new(ErrorKind::Internal, format!("the sandbox {} did not start: {reason}", row.id)))
        }
        State::Destroying | State::Destroyed => {
            Err(Error::new(ErrorKind::Conflict, "the sandbox was destroyed while it was being made"))
        }
        State::Creating => Err(Error::new(ErrorKind::Internal, "the service stopped while it made the sandbox")),
        _ => Ok(view::created(row, &core.settings)),
    }
}

/// The answer that the first request with this key got or will get; `None` when that request came to nothing and
/// this one is to be tried anew.
async fn replay(core: &Arc<Core>, caller: &Caller, receipt: Receipt) -> Result<Option<CreatedSandbox>, Error> {
    if let Some(answer) = &receipt.answer {
        let mut created: CreatedSandbox = serde_json::from_str(answer).map_err(|error| Error::internal(&error))?;
        created.replayed = Some(true);
        return Ok(Some(created));
    }
    let id: SandboxId = receipt.sandbox.parse().map_err(|error: hutch_units::IdError| Error::internal(&error))?;
    match core.find(caller, &SandboxReference::Id(id)).await {
        Ok(Found::Live(handle)) => {
            let row = handle.wait_for(|snapshot| snapshot.row.state != State::Creating).await.row;
            if row.state == State::Failed {
                return Ok(None);
            }
            answer(core, &row).map(|mut created| {
                created.replayed = Some(true);
                Some(created)
            })
        }
        // The first request is between its record and its owner, or its sandbox has just ended: look again.
        Ok(Found::Row(row)) if row.state == State::Creating => {
            tokio::task::yield_now().await;
            Ok(None)
        }
        Ok(Found::Row(_)) | Err(_) => {
            core.store
                .write("free an idempotency key", move |db| query::release(db, &receipt.sandbox))
                .await
                .map_err(|error| Error::internal(&error))?;
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_covers_the_request_and_not_its_key() {
        let request = |key: &str, shape: &str| CreateSandbox {
            idempotency_key: Some(key.to_owned()),
            shape: shape.to_owned(),
            ..CreateSandbox::default()
        };
        assert_eq!(digest(&request("a", "s")), digest(&request("b", "s")));
        assert_ne!(digest(&request("a", "s")), digest(&request("a", "t")));
    }
}
