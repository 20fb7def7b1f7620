//! Running commands.

use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::call::Call;
use super::error::{ClientError, Refusal};
use super::pool::Client;
use crate::{Encoding, Execute, ExecuteAnswer, ExecuteEvent, ExecuteFrame, Exit, OperationId};

/// The service shows a sign of life every 5 seconds; without one for this long it is taken for dead.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes of one line at most.
const LINE_LIMIT: usize = 64 << 20;

/// A command that runs. **Dropping it closes the connection, and that kills the command.**
#[derive(Debug)]
pub struct Execution {
    client: Client,
    body: Incoming,
    buffer: BytesMut,
    events: VecDeque<ExecuteEvent>,
    /// Why the command could not be started; belongs to the exit that follows.
    error: Option<String>,
    ended: bool,
}

impl Client {
    /// Runs a command and waits for it.
    pub async fn execute(&self, sandbox: &str, request: &Execute) -> Result<ExecuteAnswer, ClientError> {
        self.fetch(Call::new(OperationId::Execute).param("id", sandbox).json(request)).await
    }

    /// Runs a command; its output comes exactly and as it is written.
    pub async fn execute_streamed(&self, sandbox: &str, mut request: Execute) -> Result<Execution, ClientError> {
        request.stream = Some(true);
        request.encoding = Some(Encoding::Base64);
        let call = Call::new(OperationId::Execute).param("id", sandbox).query("stream", true).json(&request);
        let answer = self.send(call).await?;
        let body = answer.response.into_body();
        let (buffer, events) = (BytesMut::new(), VecDeque::new());
        Ok(Execution { client: self.clone(), body, buffer, events, error: None, ended: false })
    }
}

impl Execution {
    /// The next event; `None` after [`ExecuteEvent::Exit`]. Cancel-safe.
    ///
    /// # Errors
    /// When the connection breaks, the service says that the sandbox is lost, or the stream ends without saying how
    /// the command ended: never taken for a success.
    pub async fn next(&mut self) -> Result<Option<ExecuteEvent>, ClientError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                self.take(&line)?;
                continue;
            }
            if self.buffer.len() > LINE_LIMIT {
                return Err(self.client.odd("a line of its stream is too long"));
            }
            match tokio::time::timeout(SILENCE, self.body.frame()).await {
                Ok(Some(Ok(frame))) => self.buffer.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                Ok(Some(Err(error))) => return Err(self.client.broken(error)),
                Ok(None) => return Err(self.client.odd("the stream ended before the command did")),
                Err(_) => return Err(ClientError::Silent { address: self.client.address(), silence: SILENCE }),
            }
        }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), ClientError> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let frame: ExecuteFrame = serde_json::from_slice(line).map_err(|error| self.client.odd(error.to_string()))?;
        let bytes = |text: Option<String>, exact: Option<String>| match exact {
            Some(exact) => STANDARD.decode(exact).map(|bytes| Some(Bytes::from(bytes))),
            None => Ok(text.map(Bytes::from)),
        };
        let stdout = bytes(frame.stdout, frame.stdout_base64).map_err(|error| self.client.odd(error.to_string()))?;
        let stderr = bytes(frame.stderr, frame.stderr_base64).map_err(|error| self.client.odd(error.to_string()))?;
        self.events.extend(stdout.map(ExecuteEvent::Stdout));
        self.events.extend(stderr.map(ExecuteEvent::Stderr));
        if let (Some(message), Some(code)) = (&frame.error, frame.code) {
            return Err(ClientError::Refused(Box::new(Refusal {
                status: http::StatusCode::OK,
                code,
                message: message.clone(),
                fields: Default::default(),
                retry_after: None,
                request_id: None,
            })));
        }
        self.error = frame.error.or(self.error.take());
        if let Some(exit_code) = frame.exit_code {
            self.ended = true;
            self.events.push_back(ExecuteEvent::Exit(Exit {
                exit_code,
                signal: frame.signal,
                timed_out: frame.timed_out,
                oom: frame.oom,
                stdout_truncated: frame.stdout_truncated,
                stderr_truncated: frame.stderr_truncated,
                error: self.error.take(),
            }));
        }
        Ok(())
    }
}
