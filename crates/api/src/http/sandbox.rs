//! Sandboxes: create, the filter of a list, and what changes a state.

use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};
use hutch_units::SandboxName;

use super::body::RequestBody;
use super::dispatch::{read, read_or_default};
use super::envelope::{envelope, success};
use super::request::Head;
use super::router::Adapter;
use crate::{
    CreateSandbox, Error, ErrorKind, ForkAnswer, ForkSandbox, ForkedSandboxes, Operations, SandboxFilter,
    SandboxStatus, SandboxView, Until,
};

/// How long a client shall wait before it asks how far a change of state is, in seconds.
const POLL_AFTER: &str = "1";

pub(super) async fn create<O: Operations>(
    adapter: &Adapter<O>,
    head: &Head,
    body: RequestBody,
) -> Result<Response, Error> {
    let caller = head.caller()?;
    let header = head.headers.get("idempotency-key");
    let mut request: CreateSandbox = read(adapter, body).await?;
    if let Some(header) = header {
        let key = header.to_str().map_err(|_| Error::field("Idempotency-Key", "must be visible ASCII characters"))?;
        if request.idempotency_key.as_deref().is_some_and(|field| field != key) {
            return Err(Error::field("idempotency_key", "differs from the header Idempotency-Key; give one of them"));
        }
        request.idempotency_key = Some(key.to_owned());
    }
    request.validate()?;
    success(&adapter.operations.create_sandbox(caller, request).await?)
}

pub(super) async fn pause<O: Operations>(adapter: &Adapter<O>, head: &Head) -> Result<Response, Error> {
    settled(&adapter.operations.pause_sandbox(head.caller()?, &head.sandbox()?, until(head)?).await?)
}

pub(super) async fn resume<O: Operations>(adapter: &Adapter<O>, head: &Head) -> Result<Response, Error> {
    settled(&adapter.operations.resume_sandbox(head.caller()?, &head.sandbox()?, until(head)?).await?)
}

pub(super) async fn fork<O: Operations>(
    adapter: &Adapter<O>,
    head: &Head,
    body: RequestBody,
) -> Result<Response, Error> {
    let (caller, sandbox) = (head.caller()?, head.sandbox()?);
    let mut request: ForkSandbox = read_or_default(adapter, body).await?;
    request.validate()?;
    let counted = request.count.is_some();
    let mut sandboxes = adapter.operations.fork_sandbox(caller, &sandbox, request).await?;
    if counted {
        return success(&ForkAnswer::Many(ForkedSandboxes { sandboxes }));
    }
    let missing = || Error::new(ErrorKind::Internal, "the service made no copy");
    success(&ForkAnswer::One(Box::new(sandboxes.pop().ok_or_else(missing)?)))
}

pub(super) fn filter(head: &Head) -> Result<SandboxFilter, Error> {
    let mut filter = SandboxFilter::default();
    if let Some(word) = head.query.one("status").filter(|word| !word.is_empty()) {
        let choices = || SandboxStatus::ALL.map(SandboxStatus::as_str).join(" ");
        let unknown = || Error::field("status", format!("unknown state {word:?}, choices: [{}]", choices()));
        filter.status = Some(SandboxStatus::parse(word).ok_or_else(unknown)?);
    }
    if let Some(name) = head.query.one("name").filter(|name| !name.is_empty()) {
        filter.name = Some(SandboxName::parse(name).map_err(|error| Error::field("name", error.to_string()))?);
    }
    for label in head.query.all("label") {
        let wrong = || Error::field("label", format!("must have the form key=value, got {label:?}"));
        let (key, value) = label.split_once('=').ok_or_else(wrong)?;
        filter.labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(filter)
}

fn until(head: &Head) -> Result<Until, Error> {
    Ok(if head.query.flag("wait")? { Until::Settled } else { Until::Accepted })
}

/// A change of state that is done is 200, one that goes on is 202.
fn settled(view: &SandboxView) -> Result<Response, Error> {
    if !matches!(view.status, SandboxStatus::Pausing | SandboxStatus::Resuming) {
        return success(view);
    }
    let mut response = envelope(StatusCode::ACCEPTED, "success", view)?;
    response.headers_mut().insert(HeaderName::from_static("x-poll-after"), HeaderValue::from_static(POLL_AFTER));
    Ok(response)
}
