//! One arm for each operation: read the request, call the operation, write the answer.

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use hutch_units::SandboxName;
use serde::de::DeserializeOwned;

use super::body::RequestBody;
use super::envelope::{envelope, success};
use super::request::Head;
use super::router::Adapter;
use super::{execute, file, json};
use crate::{
    Body as Schema, CreateSandbox, Error, Health, MakeDirectory, MoveFile, OperationId, Operations, PageRequest,
    RemoveFile, SandboxFilter, SandboxStatus, UpdateSandbox,
};

pub(super) async fn dispatch<O: Operations>(
    adapter: &Adapter<O>,
    operation: OperationId,
    head: Head,
    body: RequestBody,
) -> Result<Response, Error> {
    let service = &adapter.operations;
    match operation {
        OperationId::Health => success(&Health { up: true }),
        OperationId::Ready => ready(adapter).await,
        OperationId::Metrics => metrics(adapter, &head).await,
        OperationId::WhoAmI => success(&service.who_am_i(head.caller()?).await?),
        OperationId::ListShapes => success(&head.page()?.cut(service.shapes().await?)),
        OperationId::ListRootfs => success(&service.rootfs().await?),
        OperationId::ListHosts => success(&head.page()?.cut(service.hosts(head.caller()?).await?)),
        OperationId::Doctor => success(&service.doctor(head.caller()?).await?),
        OperationId::Audit => success(&service.audit(head.caller()?).await?),

        OperationId::ListImages => success(&head.page()?.cut(service.images(head.caller()?).await?)),
        OperationId::GetImage => success(&service.image(head.caller()?, head.param("name")).await?),
        OperationId::BuildImage => success(&service.build_image(head.caller()?, head.param("name")).await?),

        OperationId::CreateSandbox => create_sandbox(adapter, &head, body).await,
        OperationId::ListSandboxes => {
            let filter = filter(&head)?;
            success(&service.list_sandboxes(head.caller()?, filter, head.page()?).await?)
        }
        OperationId::GetSandboxByIp => success(&service.sandbox_by_ip(head.caller()?, head.param("ip")).await?),
        OperationId::GetSandbox => success(&service.sandbox(head.caller()?, &head.sandbox()?).await?),
        OperationId::UpdateSandbox => {
            let (caller, sandbox) = (head.caller()?, head.sandbox()?);
            let change: UpdateSandbox = read(adapter, body).await?;
            change.validate()?;
            success(&service.update_sandbox(caller, &sandbox, change).await?)
        }
        OperationId::DestroySandbox => success(&service.destroy_sandbox(head.caller()?, &head.sandbox()?).await?),

        OperationId::Execute => execute::execute(adapter, &head, body).await,

        OperationId::WriteFile => file::write_file(adapter, &head, body).await,
        OperationId::ReadFile => file::read_file(adapter, &head).await,
        OperationId::RemoveFile => {
            let file = RemoveFile { path: head.path()?, recursive: head.query.flag("recursive")? };
            success(&service.remove_file(head.caller()?, &head.sandbox()?, file).await?)
        }
        OperationId::StatFile => success(&service.stat_file(head.caller()?, &head.sandbox()?, head.path()?).await?),
        OperationId::ListFiles => {
            let page = head.page_of(PageRequest::DEFAULT_ENTRIES, PageRequest::MAX_ENTRIES)?;
            let (sandbox, path) = (head.sandbox()?, head.path()?);
            success(&service.list_files(head.caller()?, &sandbox, path, page).await?)
        }
        OperationId::MoveFile => {
            let (caller, sandbox) = (head.caller()?, head.sandbox()?);
            let request: MoveFile = read(adapter, body).await?;
            success(&service.move_file(caller, &sandbox, request).await?)
        }
        OperationId::MakeDirectory => {
            let (caller, sandbox) = (head.caller()?, head.sandbox()?);
            let request: MakeDirectory = read(adapter, body).await?;
            request.validate()?;
            success(&service.make_directory(caller, &sandbox, request).await?)
        }
        OperationId::ReadArchive => file::read_archive(adapter, &head).await,
        OperationId::WriteArchive => file::write_archive(adapter, &head, body).await,
    }
}

/// Reads a JSON body.
async fn read<O, T: DeserializeOwned>(adapter: &Adapter<O>, body: RequestBody) -> Result<T, Error> {
    json::parse(&body.collect(adapter.limits.json_bytes).await?)
}

async fn ready<O: Operations>(adapter: &Adapter<O>) -> Result<Response, Error> {
    let readiness = adapter.operations.ready().await;
    if readiness.ready { success(&readiness) } else { envelope(StatusCode::SERVICE_UNAVAILABLE, "fail", &readiness) }
}

async fn metrics<O: Operations>(adapter: &Adapter<O>, head: &Head) -> Result<Response, Error> {
    let text = adapter.operations.metrics(head.caller()?).await?;
    let mut response = Response::new(Body::from(text));
    if let Schema::Bytes(media_type) = OperationId::Metrics.operation().response {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    }
    Ok(response)
}

async fn create_sandbox<O: Operations>(
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

fn filter(head: &Head) -> Result<SandboxFilter, Error> {
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
