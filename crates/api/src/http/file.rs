//! Files: bodies of bytes in both directions, ranges.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::body::RequestBody;
use super::envelope::success;
use super::request::Head;
use super::router::Adapter;
use crate::{ByteRange, ByteStream, Error, FileBody, Operations, ReadFile, WriteFile};

pub(super) async fn write_file<O: Operations>(
    adapter: &Adapter<O>,
    head: &Head,
    body: RequestBody,
) -> Result<Response, Error> {
    let (sandbox, path) = (head.sandbox()?, head.path()?);
    let mode = head.query.one("mode").map(mode).transpose()?;
    let file = WriteFile { path, mode, length: body.length() };
    let upload = body.into_upload(adapter.limits.file_bytes)?;
    let result = adapter.operations.write_file(head.caller()?, &sandbox, file, upload.content).await;
    // Whatever the operation made of it, a broken upload is what the caller should hear of.
    success(&result.map_err(|error| upload.failure.get().cloned().unwrap_or(error))?)
}

pub(super) async fn write_archive<O: Operations>(
    adapter: &Adapter<O>,
    head: &Head,
    body: RequestBody,
) -> Result<Response, Error> {
    let (sandbox, path) = (head.sandbox()?, head.path()?);
    let upload = body.into_upload(adapter.limits.file_bytes)?;
    let result = adapter.operations.write_archive(head.caller()?, &sandbox, path, upload.content).await;
    success(&result.map_err(|error| upload.failure.get().cloned().unwrap_or(error))?)
}

pub(super) async fn read_file<O: Operations>(adapter: &Adapter<O>, head: &Head) -> Result<Response, Error> {
    let range = range(&head.headers);
    let file = ReadFile { path: head.path()?, range };
    let body = adapter.operations.read_file(head.caller()?, &head.sandbox()?, file).await?;
    let FileBody { size, offset, length, content } = body;
    let mut response = Response::new(Body::from_stream(exactly(length, content)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if range.is_some() {
        let last = (offset + length).saturating_sub(1);
        let text = format!("bytes {offset}-{last}/{size}");
        headers.insert(CONTENT_RANGE, HeaderValue::from_str(&text).expect("digits are ASCII"));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

pub(super) async fn read_archive<O: Operations>(adapter: &Adapter<O>, head: &Head) -> Result<Response, Error> {
    let path = head.path()?;
    let content = adapter.operations.read_archive(head.caller()?, &head.sandbox()?, path).await?;
    let mut response = Response::new(Body::from_stream(content));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    Ok(response)
}

/// A stream that fails unless it has exactly as many bytes as were announced: the connection is cut, so that a caller
/// never takes half a file for a whole one.
fn exactly(length: u64, content: ByteStream) -> ByteStream {
    let state = (content, length);
    stream::try_unfold(state, move |(mut content, left)| async move {
        match content.next().await {
            Some(Ok(piece)) if piece.len() as u64 <= left => {
                let left = left - piece.len() as u64;
                Ok::<_, Error>(Some((piece, (content, left))))
            }
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Err(changed()),
            None if left > 0 => Err(changed()),
            None => Ok(None),
        }
    })
    .inspect(|piece: &Result<Bytes, Error>| {
        if let Err(error) = piece {
            tracing::warn!(reason = %error.message, detail = error.log.as_deref().unwrap_or(""), "a download broke off");
        }
    })
    .boxed()
}

fn changed() -> Error {
    Error::new(crate::ErrorKind::Conflict, "the file changed while it was read")
}

/// Permission bits in octal.
fn mode(text: &str) -> Result<u32, Error> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
    bits.ok_or_else(|| Error::field("mode", format!("must be permission bits in octal like 755, got {text:?}")))
}

/// The range that is asked for. RFC 9110, section 14.2: a range that is not understood (another unit, several parts) or
/// that depends on a validator, which we have none of, is passed over and the whole file sent.
fn range(headers: &HeaderMap) -> Option<ByteRange> {
    if headers.contains_key(IF_RANGE) {
        return None;
    }
    let (first, last) = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.trim().split_once('-')?;
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match (first, last) {
        ("", last) => Some(ByteRange::Last(number(last)?)),
        (first, "") => Some(ByteRange::From { first: number(first)?, last: None }),
        (first, last) => {
            let (first, last): (u64, u64) = (number(first)?, number(last)?);
            (first <= last).then_some(ByteRange::From { first, last: Some(last) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_are_not_understood_are_passed_over() {
        let range = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_static(text));
            range(&headers)
        };
        let from = |first, last| Some(ByteRange::From { first, last });
        assert_eq!(range("bytes=0-99"), from(0, Some(99)));
        assert_eq!(range("bytes=5-"), from(5, None));
        assert_eq!(range("bytes=-5"), Some(ByteRange::Last(5)));
        for other in ["bytes=", "bytes=-", "bytes=9-5", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b", "bytes=+1-2"] {
            assert_eq!(range(other), None, "{other}");
        }
    }

    #[test]
    fn a_mode_is_octal() {
        assert_eq!(mode("0755").unwrap(), 0o755);
        for wrong in ["", "8", "rwx", "10000", "-1"] {
            assert!(mode(wrong).unwrap_err().fields.contains_key("mode"), "{wrong}");
        }
    }
}
