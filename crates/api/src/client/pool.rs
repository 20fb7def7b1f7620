//! Connections that are kept, and sending over them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::call::{Body, Call};
use super::endpoint::Endpoint;
use super::error::{ClientError, Refusal};

/// Bytes of a JSON answer at most: a buffered command's output, escaped, and room to spare.
const ANSWER_LIMIT: usize = 256 << 20;

/// A client of one service. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Arc<Endpoint>,
    idle: Arc<Mutex<Vec<SendRequest<Body>>>>,
}

/// An answer whose status says success, and the connection that it comes over.
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    sender: SendRequest<Body>,
}

impl Client {
    /// A client of the service at `endpoint`. Nothing is sent yet.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint: Arc::new(endpoint), idle: Arc::default() }
    }

    /// Host and port of the service.
    pub fn address(&self) -> String {
        self.endpoint.address()
    }

    /// Sends a call and reads the JSON that it is answered with.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        #[derive(Deserialize)]
        struct Envelope<T> {
            data: T,
        }
        let body = self.fetch_bytes(call).await?;
        let envelope: Envelope<T> = serde_json::from_slice(&body).map_err(|error| self.odd(error.to_string()))?;
        Ok(envelope.data)
    }

    /// Sends a call and reads the bytes that it is answered with.
    pub(super) async fn fetch_bytes(&self, call: Call) -> Result<Bytes, ClientError> {
        let Answer { response, sender } = self.send(call).await?;
        let body = self.collect(response.into_body()).await?;
        // The whole answer has been read, so the connection is free for the next call.
        self.keep(sender);
        Ok(body)
    }

    /// Sends a call; the answer's body is still to come.
    pub(super) async fn send(&self, mut call: Call) -> Result<Answer, ClientError> {
        let (response, sender) = match self.attempt(&mut call).await {
            Err(ClientError::Broken { .. }) if call.only_reads() => self.attempt(&mut call).await?,
            other => other?,
        };
        if response.status().is_success() {
            return Ok(Answer { response, sender });
        }
        let (parts, body) = response.into_parts();
        let body = self.collect(body).await.unwrap_or_default();
        self.keep(sender);
        Err(ClientError::Refused(Box::new(Refusal::read(parts.status, &parts.headers, &body))))
    }

    /// An answer that breaks the contract.
    pub(super) fn odd(&self, what: impl Into<String>) -> ClientError {
        ClientError::Answer { address: self.address(), what: what.into() }
    }

    /// A connection that broke; or what was to be sent, when that was the cause.
    pub(super) fn broken(&self, source: hyper::Error) -> ClientError {
        let mut cause = std::error::Error::source(&source);
        while let Some(inner) = cause {
            // Only what we send can fail with this mark; see `client::file`.
            if let Some(marked) = inner.downcast_ref::<super::file::SourceError>() {
                return ClientError::Source(marked.to_io());
            }
            cause = match inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
                Some(boxed) => Some(boxed),
                None => inner.source(),
            };
        }
        ClientError::Broken { address: self.address(), source }
    }

    async fn attempt(&self, call: &mut Call) -> Result<(Response<Incoming>, SendRequest<Body>), ClientError> {
        let mut request = call.request(&self.endpoint);
        // A kept connection may have been closed meanwhile. As long as nothing was sent the request comes back.
        while let Some(sender) = self.take_idle() {
            match Self::send_over(sender, request).await {
                Ok(done) => return Ok(done),
                Err((_, Some(unsent))) => request = *unsent,
                Err((error, None)) => return Err(self.broken(error)),
            }
        }
        let sender = self.connect().await?;
        Self::send_over(sender, request).await.map_err(|(error, _)| self.broken(error))
    }

    async fn send_over(
        mut sender: SendRequest<Body>,
        request: Request<Body>,
    ) -> Result<(Response<Incoming>, SendRequest<Body>), (hyper::Error, Option<Box<Request<Body>>>)> {
        match sender.try_send_request(request).await {
            Ok(response) => Ok((response, sender)),
            Err(mut error) => {
                let unsent = error.take_message().map(Box::new);
                Err((error.into_error(), unsent))
            }
        }
    }

    async fn connect(&self) -> Result<SendRequest<Body>, ClientError> {
        let refused = |source| ClientError::Connect { address: self.address(), source };
        let wire = self.endpoint.connect().await.map_err(refused)?;
        let (sender, connection) = handshake(TokioIo::new(wire)).await.map_err(|source| self.broken(source))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
        Ok(sender)
    }

    async fn collect(&self, body: Incoming) -> Result<Bytes, ClientError> {
        match Limited::new(body, ANSWER_LIMIT).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) => match error.downcast::<hyper::Error>() {
                Ok(source) => Err(self.broken(*source)),
                Err(_) => Err(self.odd("its answer is too large")),
            },
        }
    }

    fn take_idle(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        idle.pop()
    }

    fn keep(&self, sender: SendRequest<Body>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
    }
}
