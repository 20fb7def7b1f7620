//! The body of a request: read with a limit, and read to its end even when nobody wants it.
//!
//! A caller that is still sending does not look for an answer. If the service answered "too large" and closed the
//! socket, the caller would see a broken connection and never the answer. So a body that is dropped before its end is
//! read on in the background, within bounds. A caller that asked first (`Expect: 100-continue`) is simply not told to
//! go on.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use hutch_units::Bytes as Amount;

use crate::{ByteStream, Error, ErrorKind};

/// How much of an unwanted body is read.
const DRAIN_BYTES: u64 = 2 << 30;
/// How long an unwanted body is read.
const DRAIN_TIME: Duration = Duration::from_secs(30);

/// A body that has not been read yet.
#[derive(Debug)]
pub(super) struct RequestBody {
    /// `None` once it has been read to its end or failed.
    rest: Option<BodyDataStream>,
    length: Option<u64>,
    asked_first: bool,
    begun: bool,
    stall: Duration,
}

/// A body as a stream, and the error that ended it early, if one did.
pub(super) struct Upload {
    pub(super) content: ByteStream,
    pub(super) failure: Arc<OnceLock<Error>>,
}

impl RequestBody {
    pub(super) fn new(body: Body, headers: &HeaderMap, stall: Duration) -> Self {
        let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let asked_first = headers.contains_key(EXPECT);
        let rest = (length != Some(0)).then(|| body.into_data_stream());
        Self { rest, length, asked_first, begun: false, stall }
    }

    /// How long the body says it is; unknown when it comes in chunks.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The whole body, of at most `limit` bytes.
    pub(super) async fn collect(mut self, limit: u64) -> Result<Vec<u8>, Error> {
        self.check_length(limit)?;
        let mut whole = Vec::with_capacity(usize::try_from(self.length.unwrap_or(0)).unwrap_or(0));
        while let Some(piece) = self.next().await? {
            if whole.len() as u64 + piece.len() as u64 > limit {
                return Err(too_large(limit));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    /// The body as a stream of at most `limit` bytes; more is an error in the stream.
    pub(super) fn into_upload(self, limit: u64) -> Result<Upload, Error> {
        self.check_length(limit)?;
        let failure = Arc::new(OnceLock::new());
        let noted = Arc::clone(&failure);
        let content = stream::try_unfold((self, 0_u64), move |(mut body, before)| async move {
            let Some(piece) = body.next().await? else { return Ok(None) };
            let after = before + piece.len() as u64;
            if after > limit { Err(too_large(limit)) } else { Ok(Some((piece, (body, after)))) }
        });
        let content = content.inspect_err(move |error: &Error| {
            // The first error is the cause; a second cannot come, because the stream has ended.
            let _ = noted.set(error.clone());
        });
        Ok(Upload { content: content.boxed(), failure })
    }

    fn check_length(&self, limit: u64) -> Result<(), Error> {
        if self.length.is_some_and(|length| length > limit) { Err(too_large(limit)) } else { Ok(()) }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(rest) = self.rest.as_mut() else { return Ok(None) };
        self.begun = true;
        let result = match tokio::time::timeout(self.stall, rest.next()).await {
            Ok(Some(Ok(piece))) => return Ok(Some(piece)),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) => {
                let message = "the connection broke before the whole body had come";
                Err(Error::new(ErrorKind::InvalidRequest, message).with_log(error.to_string()))
            }
            Err(_) => {
                let message = format!("the body stood still for {} s", self.stall.as_secs());
                Err(Error::new(ErrorKind::InvalidRequest, message))
            }
        };
        self.rest = None;
        result
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(mut rest) = self.rest.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.asked_first && !self.begun {
            return;
        }
        runtime.spawn(tokio::time::timeout(DRAIN_TIME, async move {
            let mut read = 0;
            while let Some(Ok(piece)) = rest.next().await {
                read += piece.len() as u64;
                if read > DRAIN_BYTES {
                    break;
                }
            }
        }));
    }
}

fn too_large(limit: u64) -> Error {
    Error::new(ErrorKind::TooLarge, format!("the body is larger than {}, the most that is taken here", Amount(limit)))
}
