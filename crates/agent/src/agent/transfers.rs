//! The table of streams about files.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use hutch_protocol::Failure;
use hutch_protocol::frame::{Body, Channel};

use crate::channel::Outgoing;
use crate::files::task::Task;
use crate::files::transfer::{After, Transfer};
use crate::files::workers::Workers;

/// All streams about files.
#[derive(Debug)]
pub(crate) struct Transfers {
    workers: Workers,
    running: BTreeMap<u64, Transfer>,
}

impl Transfers {
    /// None yet.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { workers: Workers::new()?, running: BTreeMap::new() })
    }

    /// Becomes readable when steps are done.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.workers.wake()
    }

    /// Begins a task under this key.
    pub(crate) fn start(&mut self, (stream, key): (u32, u64), task: Box<dyn Task>) -> &mut Transfer {
        self.running.entry(key).or_insert_with(|| Transfer::new(stream, key, task))
    }

    /// The stream under this key.
    pub(crate) fn get(&mut self, key: u64) -> Option<&mut Transfer> {
        self.running.get_mut(&key)
    }

    /// The host wants no more of this stream. Gives the answer, if the stream has ended with that.
    pub(crate) fn cancel(&mut self, key: u64) -> Option<Result<Vec<u8>, Failure>> {
        match self.running.get_mut(&key)?.cancel(&mut self.workers) {
            After::Continue => None,
            After::Answer(answer) => {
                self.running.remove(&key);
                Some(answer)
            }
        }
    }

    /// Everything of the host's is over.
    pub(crate) fn cancel_all(&mut self) {
        let keys: Vec<u64> = self.running.keys().copied().collect();
        for key in keys {
            self.cancel(key);
        }
    }

    /// Takes what the workers have done; the streams that were answered.
    pub(crate) fn take_completed(&mut self, mut outgoing: Option<&mut Outgoing>) -> Vec<u32> {
        let mut answered = Vec::new();
        for completed in self.workers.completed() {
            let key = completed.key;
            let Some(transfer) = self.running.get_mut(&key) else { continue };
            let stream = transfer.stream();
            let (frames, after) = transfer.completed(completed, &mut self.workers);
            if let Some(outgoing) = outgoing.as_deref_mut() {
                outgoing.encoded(frames);
            }
            if let After::Answer(answer) = after {
                self.running.remove(&key);
                if let Some(outgoing) = outgoing.as_deref_mut() {
                    outgoing.answer(stream, &answer);
                }
                answered.push(stream);
            }
        }
        answered
    }

    /// Begins the steps that can be begun.
    pub(crate) fn turn(&mut self, outgoing: &mut Outgoing) {
        for transfer in self.running.values_mut() {
            let has_room = outgoing.has_room();
            if let Some(bytes) = transfer.run(&mut self.workers, has_room) {
                let credit = Body::Credit { channel: Channel::Input, bytes };
                let sent = outgoing.frame(transfer.stream(), credit);
                debug_assert!(sent.is_ok(), "credit has four bytes");
            }
        }
    }
}
