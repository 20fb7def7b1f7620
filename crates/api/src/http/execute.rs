//! Running a command: the events of [`ExecuteStream`] as one answer or as lines.

use std::pin::Pin;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use tokio::time::{Instant as Tick, Interval, MissedTickBehavior, interval_at};

use super::body::RequestBody;
use super::envelope::success;
use super::json;
use super::request::Head;
use super::router::Adapter;
use super::utf8::TextDecoder;
use crate::{
    Encoding, Error, ErrorKind, Execute, ExecuteAnswer, ExecuteEvent, ExecuteFrame, ExecuteResult, ExecuteStream, Exit,
    Operations,
};

pub(super) async fn execute<O: Operations>(
    adapter: &Adapter<O>,
    head: &Head,
    body: RequestBody,
) -> Result<Response, Error> {
    let (caller, sandbox) = (head.caller()?, head.sandbox()?);
    let streamed = head.query.flag("stream")?;
    let mut request: Execute = json::parse(&body.collect(adapter.limits.json_bytes).await?)?;
    request.validate()?;
    let encoding = request.encoding.unwrap_or_default();
    if streamed || request.stream == Some(true) {
        let events = adapter.operations.execute(caller, &sandbox, request).await?;
        return Ok(lines(Lines::new(events, encoding, adapter.limits.heartbeat)));
    }
    let limit = request.max_output_bytes.unwrap_or(u64::MAX).min(Execute::BUFFERED_OUTPUT_LIMIT);
    request.max_output_bytes = Some(limit);
    let started = Instant::now();
    let events = adapter.operations.execute(caller, &sandbox, request).await?;
    let result = collect(events, encoding, usize::try_from(limit).unwrap_or(usize::MAX)).await?;
    success(&ExecuteAnswer { result, exec_ms: started.elapsed().as_secs_f64() * 1000.0 })
}

/// One answer out of all events. Keeps to the limit itself, so that a faulty implementation costs no memory.
async fn collect(mut events: ExecuteStream, encoding: Encoding, limit: usize) -> Result<ExecuteResult, Error> {
    let (mut stdout, mut stderr) = (Kept::new(limit), Kept::new(limit));
    let exit = loop {
        match events.next().await {
            Some(Ok(ExecuteEvent::Stdout(piece))) => stdout.push(&piece),
            Some(Ok(ExecuteEvent::Stderr(piece))) => stderr.push(&piece),
            Some(Ok(ExecuteEvent::Exit(exit))) => break exit,
            Some(Err(error)) => return Err(error),
            None => return Err(cut_off()),
        }
    };
    stdout.truncated |= exit.stdout_truncated;
    stderr.truncated |= exit.stderr_truncated;
    let mut result = ExecuteResult {
        exit_code: exit.exit_code,
        error: exit.error,
        signal: exit.signal,
        timed_out: exit.timed_out,
        oom: exit.oom,
        truncated: stdout.truncated || stderr.truncated,
        stdout_truncated: stdout.truncated,
        stderr_truncated: stderr.truncated,
        ..Default::default()
    };
    match encoding {
        Encoding::Utf8 => (result.stdout, result.stderr) = (stdout.text(), stderr.text()),
        Encoding::Base64 => {
            result.stdout_base64 = Some(STANDARD.encode(&stdout.bytes));
            result.stderr_base64 = Some(STANDARD.encode(&stderr.bytes));
        }
    }
    Ok(result)
}

/// Output up to a limit.
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Kept {
    fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, truncated: false }
    }

    fn push(&mut self, piece: &Bytes) {
        let room = (self.limit - self.bytes.len()).min(piece.len());
        self.bytes.extend_from_slice(&piece[..room]);
        self.truncated |= room < piece.len();
    }

    /// Output as text; a character that the limit cut in two is left out, not replaced.
    fn text(&self) -> String {
        let mut decoder = TextDecoder::default();
        let mut text = decoder.push(&self.bytes);
        if !self.truncated {
            text.push_str(&decoder.finish());
        }
        text
    }
}

fn cut_off() -> Error {
    let message = "the sandbox stopped answering before the command ended; how it ended is not known";
    Error::new(ErrorKind::SandboxLost, message)
}

fn lines(lines: Lines) -> Response {
    let body = stream::unfold(lines, |mut lines| async move {
        let line = lines.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), lines))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The lines of a streamed answer. Dropping it drops the events and so kills the command.
struct Lines {
    events: Pin<Box<dyn futures_util::Stream<Item = Result<ExecuteEvent, Error>> + Send>>,
    encoding: Encoding,
    stdout: TextDecoder,
    stderr: TextDecoder,
    heartbeat: Interval,
    ended: bool,
}

impl Lines {
    fn new(events: ExecuteStream, encoding: Encoding, every: std::time::Duration) -> Self {
        let mut heartbeat = interval_at(Tick::now() + every, every);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (stdout, stderr) = Default::default();
        Self { events, encoding, stdout, stderr, heartbeat, ended: false }
    }

    /// The next line, or several that belong together; `None` after the last.
    async fn next(&mut self) -> Option<Bytes> {
        while !self.ended {
            let event = tokio::select! {
                biased;
                event = self.events.next() => event,
                _ = self.heartbeat.tick() => return Some(line(&[ExecuteFrame { hb: Some(true), ..Default::default() }])),
            };
            let frames = match event {
                Some(Ok(ExecuteEvent::Stdout(piece))) => self.output(&piece, Channel::Stdout),
                Some(Ok(ExecuteEvent::Stderr(piece))) => self.output(&piece, Channel::Stderr),
                Some(Ok(ExecuteEvent::Exit(exit))) => self.end(Ok(exit)),
                Some(Err(error)) => self.end(Err(error)),
                None => self.end(Err(cut_off())),
            };
            if !frames.is_empty() {
                return Some(line(&frames));
            }
        }
        None
    }

    fn output(&mut self, piece: &Bytes, channel: Channel) -> Vec<ExecuteFrame> {
        let value = match (self.encoding, channel) {
            (Encoding::Base64, _) => STANDARD.encode(piece),
            (Encoding::Utf8, Channel::Stdout) => self.stdout.push(piece),
            (Encoding::Utf8, Channel::Stderr) => self.stderr.push(piece),
        };
        // Nothing comes of an empty piece, or of the first half of a character.
        (!value.is_empty()).then(|| frame(value, self.encoding, channel)).into_iter().collect()
    }

    fn end(&mut self, outcome: Result<Exit, Error>) -> Vec<ExecuteFrame> {
        self.ended = true;
        let rests = [(self.stdout.finish(), Channel::Stdout), (self.stderr.finish(), Channel::Stderr)];
        let rests = rests.into_iter().filter(|(rest, _)| !rest.is_empty());
        let mut frames: Vec<_> = rests.map(|(rest, channel)| frame(rest, Encoding::Utf8, channel)).collect();
        match outcome {
            Ok(mut exit) => {
                let error = exit.error.take();
                frames.extend(error.map(|error| ExecuteFrame { error: Some(error), ..Default::default() }));
                frames.push(ExecuteFrame {
                    exit_code: Some(exit.exit_code),
                    signal: exit.signal,
                    timed_out: exit.timed_out,
                    oom: exit.oom,
                    truncated: exit.stdout_truncated || exit.stderr_truncated,
                    stdout_truncated: exit.stdout_truncated,
                    stderr_truncated: exit.stderr_truncated,
                    ..Default::default()
                });
            }
            Err(error) => {
                tracing::warn!(code = error.kind.code(), reason = %error.message,
                    detail = error.log.as_deref().unwrap_or(""), "a streamed command was lost");
                let code = Some(error.kind.code().to_owned());
                let error = Some(error.message.into_owned());
                frames.push(ExecuteFrame { error, code, ..Default::default() });
            }
        }
        frames
    }
}

#[derive(Clone, Copy)]
enum Channel {
    Stdout,
    Stderr,
}

fn frame(value: String, encoding: Encoding, channel: Channel) -> ExecuteFrame {
    let value = Some(value);
    match (encoding, channel) {
        (Encoding::Utf8, Channel::Stdout) => ExecuteFrame { stdout: value, ..Default::default() },
        (Encoding::Utf8, Channel::Stderr) => ExecuteFrame { stderr: value, ..Default::default() },
        (Encoding::Base64, Channel::Stdout) => ExecuteFrame { stdout_base64: value, ..Default::default() },
        (Encoding::Base64, Channel::Stderr) => ExecuteFrame { stderr_base64: value, ..Default::default() },
    }
}

fn line(frames: &[ExecuteFrame]) -> Bytes {
    let mut text = Vec::new();
    for frame in frames {
        serde_json::to_writer(&mut text, frame).expect("a frame is plain text and numbers");
        text.push(b'\n');
    }
    text.into()
}
