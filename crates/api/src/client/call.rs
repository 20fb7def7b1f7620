//! One request, built from its row in the table.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, Request};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::endpoint::Endpoint;
use crate::{Operation, OperationId};

/// Bytes to send that come in their own time.
pub(super) type Source = BoxStream<'static, std::io::Result<Bytes>>;
pub(super) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// What RFC 3986 calls unreserved stays as it is.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request that has not been sent.
pub(super) struct Call {
    pub(super) operation: &'static Operation,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: HeaderMap,
    body: Content,
}

enum Content {
    Whole { bytes: Bytes, media_type: Option<&'static str> },
    Stream { source: Source, length: Option<u64> },
}

impl Call {
    pub(super) fn new(id: OperationId) -> Self {
        let operation = id.operation();
        let body = Content::Whole { bytes: Bytes::new(), media_type: None };
        Self { operation, path: operation.path.to_owned(), query: Vec::new(), headers: HeaderMap::new(), body }
    }

    /// Fills a placeholder of the path.
    pub(super) fn param(mut self, name: &str, value: &str) -> Self {
        let value = utf8_percent_encode(value, RESERVED).to_string();
        self.path = self.path.replace(&format!("{{{name}}}"), &value);
        self
    }

    pub(super) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(super) fn json<T: Serialize>(mut self, value: &T) -> Self {
        let bytes = serde_json::to_vec(value).expect("requests are plain text, numbers and maps with text keys").into();
        self.body = Content::Whole { bytes, media_type: Some("application/json") };
        self
    }

    pub(super) fn stream(mut self, source: Source, length: Option<u64>) -> Self {
        self.body = Content::Stream { source, length };
        self
    }

    /// Whether the same request can be built again and does nothing but read.
    pub(super) fn only_reads(&self) -> bool {
        self.operation.method == "GET"
    }

    /// The request to send. A body that is a stream is used up by it; a second request would be empty.
    pub(super) fn request(&mut self, endpoint: &Endpoint) -> Request<Body> {
        let mut target = format!("{}{}", endpoint.prefix(), self.path);
        for (position, (name, value)) in self.query.iter().enumerate() {
            target.push(if position == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            target.extend(utf8_percent_encode(value, RESERVED));
        }
        let mut builder =
            Request::builder().method(self.operation.method).uri(target).header("host", endpoint.address());
        let agent = concat!("hutch/", env!("CARGO_PKG_VERSION"));
        builder = builder.header("user-agent", agent);
        if let (Some(key), crate::Access::Key) = (endpoint.key(), self.operation.access) {
            builder = builder.header("x-api-key", key);
        }
        let body = match &mut self.body {
            Content::Whole { bytes, media_type } => {
                if let Some(media_type) = media_type {
                    builder = builder.header("content-type", *media_type);
                }
                Full::new(bytes.clone()).map_err(|never| match never {}).boxed_unsync()
            }
            Content::Stream { source, length } => {
                builder = builder.header("content-type", "application/octet-stream");
                if let Some(length) = length {
                    builder = builder.header("content-length", *length);
                }
                let source = std::mem::replace(source, Box::pin(futures_util::stream::empty()));
                let frames = futures_util::TryStreamExt::map_ok(source, Frame::data);
                StreamBody::new(frames).boxed_unsync()
            }
        };
        let mut request = builder.body(body).expect("an encoded path and checked headers make a request");
        request.headers_mut().extend(self.headers.clone());
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_its_row_with_the_placeholders_filled() {
        let endpoint = Endpoint::parse("http://a:1/hutch", Some("skp_x"), None).unwrap();
        let mut call = Call::new(OperationId::ReadFile).param("id", "a/b").query("path", "/tmp/ü +&");
        let request = call.request(&endpoint);
        assert_eq!(request.uri(), "/hutch/v1/sandboxes/a%2Fb/files?path=%2Ftmp%2F%C3%BC%20%2B%26");
        assert_eq!(request.headers()["x-api-key"], "skp_x");
        assert!(!Call::new(OperationId::ListShapes).request(&endpoint).headers().contains_key("x-api-key"));
    }
}
