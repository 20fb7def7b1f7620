//! This host: readiness, identity, catalogue, images, audit, metrics.

use std::sync::Arc;

use hutch_api::{
    AuditReport, Caller, Error, HostStatus, HostView, ImageStatus, ImageView, Readiness, RootfsCatalogue, RootfsEntry,
    Stats, WhoAmI,
};

use crate::audit;
use crate::capacity::Supply;
use crate::core::Core;
use crate::lifecycle::State;
use crate::metrics::Gauges;
use crate::store::query;

pub(super) async fn ready(core: &Arc<Core>) -> Readiness {
    let reason = if *core.stopping.borrow() {
        Some("the service is stopping".to_owned())
    } else if *core.recovering.borrow() {
        Some("the service is starting: it looks for the sandboxes of its last run".to_owned())
    } else {
        core.prerequisites.missing(&core.engine).await
    };
    Readiness { ready: reason.is_none(), reason }
}

pub(super) async fn metrics(core: &Arc<Core>) -> Result<String, Error> {
    let sandboxes = core.store.read("count sandboxes", query::count_by_state).await;
    let snapshots = core.store.read("count snapshots", query::count_snapshots).await;
    let now = core.clock.now();
    let used = core.store.read("sum up the ledger", move |db| query::usage_of_all(db, now)).await;
    let gauges = Gauges {
        sandboxes: sandboxes.map_err(|error| Error::internal(&error))?,
        free_memory_mib: core.capacity.free_mib(),
        free_disk_bytes: Supply::measure(core.data.root()).disk_bytes,
        execs_running: core.registry.all().iter().map(|handle| handle.activity.running()).sum(),
        machines_waiting: core.pool.ready() as u64,
        templates: core.templates.ready() as u64,
        snapshots: snapshots.map_err(|error| Error::internal(&error))?,
        used: used.map_err(|error| Error::internal(&error))?,
    };
    Ok(core.metrics.render(&gauges))
}

pub(super) async fn who_am_i(core: &Arc<Core>, caller: &Caller) -> Result<WhoAmI, Error> {
    let account = caller.account.clone();
    let stats = core.store.read("count an account's sandboxes", move |db| query::stats(db, &account)).await;
    let stats = stats.map_err(|error| Error::internal(&error))?;
    let (running, paused, other) = (stats.running, stats.paused, stats.other);
    let stats = Stats { running, paused, other, total: running + paused + other };
    Ok(WhoAmI { user_id: caller.account.clone(), stats })
}

pub(super) fn rootfs(core: &Core) -> RootfsCatalogue {
    let catalogue = core.images.source().catalogue();
    let default = catalogue.iter().find(|entry| entry.is_default).map(|entry| entry.name.clone());
    RootfsCatalogue {
        rootfs: catalogue.iter().map(|entry| entry.name.clone()).collect(),
        default: default.unwrap_or_default(),
        entries: catalogue
            .into_iter()
            .map(|entry| RootfsEntry {
                name: entry.name,
                description: Some(entry.description),
                deprecated: None,
                successor: None,
            })
            .collect(),
    }
}

pub(super) async fn hosts(core: &Arc<Core>) -> Result<Vec<HostView>, Error> {
    let built = images(core).await?.into_iter().filter(|image| image.status == ImageStatus::Ready);
    let running = core.registry.all().iter().filter(|handle| handle.snapshot().row.state == State::Running).count();
    let status = if *core.stopping.borrow() { HostStatus::Draining } else { HostStatus::Active };
    Ok(vec![HostView {
        id: core.settings.host_id.clone(),
        status,
        free_mib: core.capacity.free_mib(),
        vm_count: running as u64,
        rootfses: Some(built.map(|image| image.name).collect()),
    }])
}

pub(super) async fn images(core: &Arc<Core>) -> Result<Vec<ImageView>, Error> {
    let images = core.images.clone();
    tokio::task::spawn_blocking(move || images.views()).await.map_err(|error| Error::internal(&error))
}

pub(super) async fn image(core: &Arc<Core>, name: &str) -> Result<ImageView, Error> {
    let (images, wanted) = (core.images.clone(), name.to_owned());
    let found = tokio::task::spawn_blocking(move || images.view(&wanted)).await;
    found.map_err(|error| Error::internal(&error))?.ok_or_else(|| unknown(core, name))
}

pub(super) async fn build_image(core: &Arc<Core>, name: &str) -> Result<ImageView, Error> {
    let proper = core.images.source().resolve(name).map_err(|_| unknown(core, name))?;
    let (images, wanted) = (core.images.clone(), proper.clone());
    tokio::task::spawn_blocking(move || images.build(&wanted)).await.map_err(|error| Error::internal(&error))?;
    image(core, &proper).await
}

fn unknown(core: &Core, name: &str) -> Error {
    let mut error = Error::not_found("image", name);
    if let Err(unknown) = core.images.source().resolve(name) {
        error.message = unknown.to_string().into();
    }
    error
}

pub(super) async fn audit(core: &Arc<Core>) -> Result<AuditReport, Error> {
    let findings = audit::take(&core.engine, &core.data, || audit::held_by_store(&core.store)).await;
    let mut findings = findings.map_err(|error| Error::internal(&error))?;
    let source = core.images.source();
    let leftovers = tokio::task::spawn_blocking(move || source.leftovers()).await;
    let leftovers = leftovers.map_err(|error| Error::internal(&error))?.map_err(|error| Error::internal(&error))?;
    findings.extend(audit::of_builds(leftovers));
    Ok(audit::report(&findings))
}
