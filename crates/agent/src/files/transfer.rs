//! A stream about files: a task, the credit of both directions, and what has come for it.

use hutch_protocol::credit::{CreditError, ReceiveCredit, SendCredit};
use hutch_protocol::{Code, Failure};

use super::task::{Frames, Next, Task, Work};
use super::workers::{Completed, Workers};

/// A file stream until its answer.
pub(crate) struct Transfer {
    stream: u32,
    key: u64,
    /// `None` while a step is being done.
    task: Option<Box<dyn Task>>,
    needs: Needs,
    send: SendCredit,
    receive: ReceiveCredit,
    input: Vec<Vec<u8>>,
    input_bytes: usize,
    input_ended: bool,
    /// The host wants no more: the answer of a step under way is not looked at.
    cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// To be begun.
    Nothing,
    Credit(usize),
    Input,
}

impl std::fmt::Debug for Transfer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Transfer").field("stream", &self.stream).field("needs", &self.needs).finish_non_exhaustive()
    }
}

/// What the loop has to do after a step.
#[derive(Debug)]
pub(crate) enum After {
    /// Go on.
    Continue,
    /// Send this answer; the stream has ended.
    Answer(Result<Vec<u8>, Failure>),
}

impl Transfer {
    /// A stream that does this task.
    pub(crate) fn new(stream: u32, key: u64, task: Box<dyn Task>) -> Self {
        Self {
            stream,
            key,
            task: Some(task),
            needs: Needs::Nothing,
            send: SendCredit::default(),
            receive: ReceiveCredit::default(),
            input: Vec::new(),
            input_bytes: 0,
            input_ended: false,
            cancelled: false,
        }
    }

    /// The stream's number.
    pub(crate) fn stream(&self) -> u32 {
        self.stream
    }

    /// Lets the host send more at once than it may by itself; returns the credit to grant.
    pub(crate) fn widen(&mut self, window: u32) -> Option<u32> {
        self.receive.widen(window)
    }

    /// The host has sent content.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), CreditError> {
        self.receive.received(bytes.len())?;
        self.input_bytes += bytes.len();
        match self.input.last_mut() {
            // Small pieces are joined, so that each costs no memory of its own.
            Some(last) if last.len() + bytes.len() <= 64 << 10 => last.extend_from_slice(bytes),
            _ if bytes.is_empty() => {}
            _ => self.input.push(bytes.to_vec()),
        }
        Ok(())
    }

    /// The host has sent all.
    pub(crate) fn end(&mut self) {
        self.input_ended = true;
    }

    /// The host has room for more.
    pub(crate) fn credit(&mut self) -> &mut SendCredit {
        &mut self.send
    }

    /// Begins the next step if the task has what it needs. Returns credit to grant to the host.
    pub(crate) fn run(&mut self, workers: &mut Workers, has_room: bool) -> Option<u32> {
        let runs = match self.needs {
            Needs::Nothing => true,
            Needs::Credit(least) => self.send.available() >= least && has_room,
            Needs::Input => !self.input.is_empty() || self.input_ended,
        };
        if !runs {
            return None;
        }
        let task = self.task.take()?;
        let frames = Frames::new(self.stream, self.send.available());
        let work = Work { frames, input: std::mem::take(&mut self.input), input_ended: self.input_ended };
        workers.step(self.key, task, work);
        // The next input may come while this is being written.
        self.receive.consumed(std::mem::take(&mut self.input_bytes))
    }

    /// A step is done. Returns the frames to send and what to do.
    pub(crate) fn completed(&mut self, completed: Completed, workers: &mut Workers) -> (Vec<u8>, After) {
        let Completed { task, step, .. } = completed;
        if self.cancelled {
            workers.discard(task);
            return (Vec::new(), After::Answer(Err(cancelled())));
        }
        let (frames, spent) = step.frames.into_parts();
        self.send.take(spent);
        match step.next {
            Next::Done(answer) => {
                workers.discard(task);
                return (frames, After::Answer(answer));
            }
            Next::Credit(least) => self.needs = Needs::Credit(least),
            Next::Input => self.needs = Needs::Input,
        }
        self.task = Some(task);
        (frames, After::Continue)
    }

    /// The host wants no more. The stream has ended with that unless a step is still being done.
    pub(crate) fn cancel(&mut self, workers: &mut Workers) -> After {
        self.cancelled = true;
        match self.task.take() {
            Some(task) => {
                workers.discard(task);
                After::Answer(Err(cancelled()))
            }
            None => After::Continue,
        }
    }
}

fn cancelled() -> Failure {
    Failure::new(Code::Cancelled, "cancelled by the host")
}
