//! A piece of work on files, done in steps.

use hutch_protocol::Failure;
use hutch_protocol::frame::{Body, Channel, DATA_MAX, Frame};
use serde::Serialize;

/// Work on files. A step may block, but does a bounded amount.
pub(crate) trait Task: Send {
    /// Does some work with what it is given and says what it needs next.
    fn step(&mut self, work: Work) -> Step;
}

/// What a step may use.
#[derive(Debug)]
pub(crate) struct Work {
    /// Collects what goes to the host, as far as there is credit.
    pub(crate) frames: Frames,
    /// What has come from the host.
    pub(crate) input: Vec<Vec<u8>>,
    /// Whether that was all.
    pub(crate) input_ended: bool,
}

/// What a step led to.
#[derive(Debug)]
pub(crate) struct Step {
    /// What goes to the host.
    pub(crate) frames: Frames,
    /// What is needed for the next step.
    pub(crate) next: Next,
}

/// What a task needs next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Credit for at least so many bytes of output.
    Credit(usize),
    /// Input, or its end.
    Input,
    /// Nothing: this is the answer.
    Done(Result<Vec<u8>, Failure>),
}

/// Encoded frames of one stream, within its credit.
#[derive(Debug)]
pub(crate) struct Frames {
    stream: u32,
    credit: usize,
    spent: usize,
    bytes: Vec<u8>,
}

impl Frames {
    /// No frames yet; `credit` bytes may be sent.
    pub(crate) fn new(stream: u32, credit: usize) -> Self {
        Self { stream, credit, spent: 0, bytes: Vec::new() }
    }

    /// The stream that they are of.
    pub(crate) fn stream(&self) -> u32 {
        self.stream
    }

    /// Bytes that may still be sent.
    pub(crate) fn room(&self) -> usize {
        self.credit - self.spent
    }

    /// Adds content; the caller has looked at [`Frames::room`].
    pub(crate) fn data(&mut self, content: &[u8]) {
        for bytes in content.chunks(DATA_MAX) {
            self.spend(bytes.len());
            self.push(Body::Data { channel: Channel::Output, bytes });
        }
    }

    /// Adds the end of the content.
    pub(crate) fn end(&mut self) {
        self.push(Body::End { channel: Channel::Output });
    }

    /// Adds an item if there is room for it.
    pub(crate) fn item(&mut self, json: &[u8]) -> bool {
        if json.len() > self.room() {
            return false;
        }
        self.spend(json.len());
        self.push(Body::Item(json));
        true
    }

    /// The frames, and how much credit they take.
    pub(crate) fn into_parts(self) -> (Vec<u8>, usize) {
        (self.bytes, self.spent)
    }

    fn spend(&mut self, count: usize) {
        debug_assert!(count <= self.room(), "{count} bytes where there is room for {}", self.room());
        self.spent = self.credit.min(self.spent + count);
    }

    fn push(&mut self, body: Body<'_>) {
        let sent = Frame { stream: self.stream, body }.encode(&mut self.bytes);
        debug_assert!(sent.is_ok(), "items are made small enough");
    }
}

impl Step {
    /// The end: this answer.
    pub(crate) fn done<T: Serialize>(frames: Frames, answer: Result<T, Failure>) -> Self {
        Self { frames, next: Next::Done(answer.map(|answer| json(&answer))) }
    }
}

/// A message as JSON.
pub(crate) fn json<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages have no maps with keys other than text")
}

/// A task of a single step.
pub(crate) struct Once<F>(Option<F>);

impl<F> Once<F> {
    /// The work as a function.
    pub(crate) fn new(work: F) -> Self {
        Self(Some(work))
    }
}

impl<T: Serialize, F: FnOnce() -> Result<T, Failure> + Send> Task for Once<F> {
    fn step(&mut self, work: Work) -> Step {
        let answer = match self.0.take() {
            Some(work) => work(),
            None => Err(Failure::new(hutch_protocol::Code::Other, "the work was done already")),
        };
        Step::done(work.frames, answer)
    }
}
