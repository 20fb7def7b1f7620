//! Snapshots.

use axum::response::Response;
use hutch_units::SnapshotName;

use super::body::RequestBody;
use super::dispatch::{read, read_or_default};
use super::envelope::success;
use super::request::Head;
use super::router::Adapter;
use crate::{CreateSnapshot, Error, Operations, RestoreSnapshot, SandboxReference, SnapshotFilter, SnapshotReference};

pub(super) async fn create<O: Operations>(
    adapter: &Adapter<O>,
    head: &Head,
    body: RequestBody,
) -> Result<Response, Error> {
    let (caller, sandbox) = (head.caller()?, head.sandbox()?);
    let mut request: CreateSnapshot = read_or_default(adapter, body).await?;
    request.validate()?;
    success(&adapter.operations.create_snapshot(caller, &sandbox, request).await?)
}

pub(super) async fn restore<O: Operations>(
    adapter: &Adapter<O>,
    head: &Head,
    body: RequestBody,
) -> Result<Response, Error> {
    let (caller, sandbox) = (head.caller()?, head.sandbox()?);
    let request: RestoreSnapshot = read(adapter, body).await?;
    if request.snapshot.is_empty() {
        return Err(Error::field("snapshot", "is empty; give the id or the name of a snapshot"));
    }
    let snapshot = SnapshotReference::parse(&request.snapshot)?;
    success(&adapter.operations.restore_snapshot(caller, &sandbox, &snapshot).await?)
}

pub(super) fn filter(head: &Head) -> Result<SnapshotFilter, Error> {
    let given = |name| head.query.one(name).filter(|text: &&str| !text.is_empty());
    let name = |text| SnapshotName::parse(text).map_err(|error| Error::field("name", error.to_string()));
    Ok(SnapshotFilter {
        sandbox: given("sandbox").map(SandboxReference::parse).transpose()?,
        name: given("name").map(name).transpose()?,
    })
}
