//! One arm for each operation: read the request, call the operation, write the answer.

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::de::DeserializeOwned;

use super::body::RequestBody;
use super::envelope::{envelope, success};
use super::request::Head;
use super::router::Adapter;
use super::{execute, file, json, sandbox, snapshot, usage};
use crate::{
    Body as Schema, Error, Health, MakeDirectory, MoveFile, OperationId, Operations, PageRequest, RemoveFile,
    UpdateSandbox,
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

        OperationId::CreateSandbox => sandbox::create(adapter, &head, body).await,
        OperationId::ListSandboxes => {
            let filter = sandbox::filter(&head)?;
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
        OperationId::PauseSandbox => sandbox::pause(adapter, &head).await,
        OperationId::ResumeSandbox => sandbox::resume(adapter, &head).await,
        OperationId::ForkSandbox => sandbox::fork(adapter, &head, body).await,

        OperationId::CreateSnapshot => snapshot::create(adapter, &head, body).await,
        OperationId::RestoreSnapshot => snapshot::restore(adapter, &head, body).await,
        OperationId::ListSnapshots => {
            let filter = snapshot::filter(&head)?;
            success(&service.list_snapshots(head.caller()?, filter, head.page()?).await?)
        }
        OperationId::GetSnapshot => success(&service.snapshot(head.caller()?, &head.snapshot()?).await?),
        OperationId::DeleteSnapshot => success(&service.delete_snapshot(head.caller()?, &head.snapshot()?).await?),

        OperationId::GetUsage => usage::account(adapter, &head).await,
        OperationId::GetSandboxUsage => usage::sandbox(adapter, &head).await,

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
pub(super) async fn read<O, T: DeserializeOwned>(adapter: &Adapter<O>, body: RequestBody) -> Result<T, Error> {
    json::parse(&body.collect(adapter.limits.json_bytes).await?)
}

/// Reads a JSON body that may be absent: nothing means what `{}` means.
pub(super) async fn read_or_default<O, T: DeserializeOwned + Default>(
    adapter: &Adapter<O>,
    body: RequestBody,
) -> Result<T, Error> {
    let text = body.collect(adapter.limits.json_bytes).await?;
    if text.is_empty() { Ok(T::default()) } else { json::parse(&text) }
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
