//! Answers in the form of JSend.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Error, ErrorKind};

/// `{"status":"success","data":…}` with status 200.
pub(super) fn success<T: Serialize>(data: &T) -> Result<Response, Error> {
    envelope(StatusCode::OK, "success", data)
}

/// An answer with its data in an envelope of this status word.
pub(super) fn envelope<T: Serialize>(status: StatusCode, word: &'static str, data: &T) -> Result<Response, Error> {
    #[derive(Serialize)]
    struct Envelope<'a, T> {
        status: &'static str,
        data: &'a T,
    }
    let text = serde_json::to_vec(&Envelope { status: word, data }).map_err(|error| Error::internal(&error))?;
    Ok(json(status, text))
}

/// The answer to a failed operation. What is the caller's fault is a `fail` whose data maps text to text, a fault of
/// ours an `error`; both carry the stable code.
pub(super) fn failure(error: &Error) -> Response {
    let status = StatusCode::from_u16(error.kind.status()).expect("the kinds have valid statuses");
    let mut data: Map<String, Value> = Map::new();
    // The code and the message come last so that no field of that name hides them.
    data.extend(error.fields.iter().map(|(name, text)| (name.clone(), text.as_str().into())));
    data.insert("code".to_owned(), error.kind.code().into());
    let mut body = Map::new();
    if status.is_server_error() {
        body.insert("status".to_owned(), "error".into());
        body.insert("message".to_owned(), error.message.as_ref().into());
        body.insert("code".to_owned(), status.as_u16().into());
    } else {
        data.insert("message".to_owned(), error.message.as_ref().into());
        body.insert("status".to_owned(), "fail".into());
    }
    body.insert("data".to_owned(), data.into());
    let mut response = json(status, Value::from(body).to_string().into_bytes());
    if let Some(after) = error.retry_after {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(size) = error.file_size {
        let range = HeaderValue::from_str(&format!("bytes */{size}")).expect("digits are ASCII");
        response.headers_mut().insert(CONTENT_RANGE, range);
    }
    if error.kind == ErrorKind::Unauthenticated {
        let scheme = HeaderValue::from_static("ApiKey header=\"X-Api-Key\"");
        response.headers_mut().insert(http::header::WWW_AUTHENTICATE, scheme);
    }
    response
}

fn json(status: StatusCode, text: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
