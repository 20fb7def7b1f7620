//! Which row of the table a request is for, and whose key it carries.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use futures_util::FutureExt as _;
use http::{HeaderValue, Method, Uri};
use tracing::Instrument as _;
use ulid::Ulid;

use super::body::RequestBody;
use super::dispatch::dispatch;
use super::envelope::failure;
use super::query::Query;
use super::request::Head;
use crate::{Access, Error, ErrorKind, OPERATIONS, Operation, Operations};

/// What the adapter allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a JSON body at most; a command with its arguments and input must fit.
    pub json_bytes: u64,
    /// Bytes of an uploaded file or archive at most.
    pub file_bytes: u64,
    /// How often a streamed command shows a sign of life.
    pub heartbeat: Duration,
    /// How long an upload may stand still.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            json_bytes: 8 << 20,
            file_bytes: 500 << 20,
            heartbeat: Duration::from_secs(5),
            stall: Duration::from_secs(120),
        }
    }
}

/// The implementation and the limits, shared by all requests.
#[derive(Debug)]
pub(super) struct Adapter<O> {
    pub(super) operations: Arc<O>,
    pub(super) limits: Limits,
}

/// A router with a route for each row of [`OPERATIONS`].
pub fn router<O: Operations>(operations: Arc<O>, limits: Limits) -> Router {
    let adapter = Arc::new(Adapter { operations, limits });
    let mut router = Router::new();
    for operation in OPERATIONS {
        let adapter = Arc::clone(&adapter);
        let method = Method::from_bytes(operation.method.as_bytes()).expect("the table has HTTP methods");
        let filter = MethodFilter::try_from(method).expect("the table has common HTTP methods");
        let route = move |params: Result<RawPathParams, RawPathParamsRejection>, request: Request| {
            let adapter = Arc::clone(&adapter);
            async move {
                match params {
                    Ok(params) => answer(&adapter, operation, &params, request).await,
                    Err(_) => failure(&Error::field("path", "is not UTF-8 after percent-decoding")),
                }
            }
        };
        router = router.route(operation.path, on(filter, route));
    }
    router.fallback(no_route).method_not_allowed_fallback(no_method).layer(from_fn(envelope_of_a_request))
}

async fn answer<O: Operations>(
    adapter: &Adapter<O>,
    operation: &'static Operation,
    params: &RawPathParams,
    request: Request,
) -> Response {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let body = RequestBody::new(body, &parts.headers, adapter.limits.stall);
    let result = async {
        let caller = match operation.access {
            Access::Open => None,
            Access::Key => Some(authenticate(adapter, &parts).await?),
        };
        let query = Query::parse(parts.uri.query().unwrap_or(""))?;
        let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let head = Head { caller, params, query, headers: parts.headers };
        dispatch(adapter, operation.id, head, body).await
    }
    .await;
    let response = result.unwrap_or_else(|error| {
        log_failure(operation, &error);
        failure(&error)
    });
    adapter.operations.observe(operation.id, response.status().as_u16(), started.elapsed());
    response
}

async fn authenticate<O: Operations>(
    adapter: &Adapter<O>,
    parts: &http::request::Parts,
) -> Result<crate::Caller, Error> {
    let refused = |message| Error::new(ErrorKind::Unauthenticated, message);
    let Some(key) = parts.headers.get("x-api-key") else {
        return Err(refused("no API key: send it in the header X-Api-Key"));
    };
    match key.to_str() {
        Ok(key) if !key.is_empty() => adapter.operations.authenticate(key).await,
        _ => Err(refused("the API key in X-Api-Key is not readable text")),
    }
}

fn log_failure(operation: &Operation, error: &Error) {
    let detail = error.log.as_deref().unwrap_or("");
    let (operation, code) = (operation.id.as_str(), error.kind.code());
    if error.kind.status() == 500 {
        tracing::error!(operation, code, reason = %error.message, detail, "an operation failed");
    } else {
        tracing::debug!(operation, code, reason = %error.message, detail, "an operation was refused");
    }
}

async fn no_route(method: Method, uri: Uri) -> Response {
    failure(&Error::new(ErrorKind::NotFound, format!("there is no {method} {}", uri.path())))
}

async fn no_method(method: Method, uri: Uri) -> Response {
    failure(&Error::new(ErrorKind::MethodNotAllowed, format!("{} has no method {method}", uri.path())))
}

/// Gives each request an id that its answer and the log carry, and turns a panic into an answer.
async fn envelope_of_a_request(request: Request, next: Next) -> Response {
    let id = format!("req_{}", Ulid::new().to_string().to_ascii_lowercase());
    let span = tracing::info_span!("request", id, method = %request.method(), path = request.uri().path());
    let started = Instant::now();
    let result = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await;
    let _entered = span.enter();
    let mut response = result.unwrap_or_else(|_| {
        tracing::error!("a request's code panicked");
        failure(&Error::new(ErrorKind::Internal, "the service failed; its log has the details"))
    });
    let status = response.status().as_u16();
    tracing::debug!(status, milliseconds = started.elapsed().as_secs_f64() * 1000.0, "answered");
    let value = HeaderValue::from_str(&id).expect("an id is ASCII");
    response.headers_mut().insert("x-request-id", value);
    response
}
