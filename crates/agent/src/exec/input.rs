//! The standard input of a command: from the host into its pipe.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hutch_protocol::credit::{CreditError, ReceiveCredit};
use rustix::io::Errno;

/// The writing end of a pipe whose reading end the command has.
#[derive(Debug)]
pub(crate) struct Input {
    pipe: Option<OwnedFd>,
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that are written.
    written: usize,
    credit: ReceiveCredit,
    ended: bool,
}

/// What writing led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Credit to grant to the host.
    pub(crate) credit: Option<u32>,
    /// Whether just now it became clear that nobody reads any more.
    pub(crate) refused: bool,
}

impl Input {
    /// Input into this pipe, which does not block.
    pub(crate) fn new(pipe: OwnedFd) -> Self {
        Self { pipe: Some(pipe), pieces: VecDeque::new(), written: 0, credit: ReceiveCredit::default(), ended: false }
    }

    /// The pipe, until it is closed.
    pub(crate) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Bytes have come from the host.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Written, CreditError> {
        self.credit.received(bytes.len())?;
        if self.pipe.is_none() {
            // Nobody reads it: the host gets its credit back and has been told.
            return Ok(Written { credit: self.credit.consumed(bytes.len()), refused: false });
        }
        if !bytes.is_empty() {
            self.pieces.push_back(bytes.to_vec());
        }
        Ok(self.pump())
    }

    /// The host has sent all.
    pub(crate) fn end(&mut self) -> Written {
        self.ended = true;
        self.pump()
    }

    /// Nobody reads any more: the command ended.
    pub(crate) fn close(&mut self) {
        self.pipe = None;
        self.pieces.clear();
    }

    /// Writes what the pipe takes.
    pub(crate) fn pump(&mut self) -> Written {
        let mut result = Written::default();
        let mut consumed = 0;
        while let (Some(pipe), Some(front)) = (&self.pipe, self.pieces.front()) {
            match rustix::io::write(pipe, &front[self.written..]) {
                Ok(count) => {
                    consumed += count;
                    self.written += count;
                    if self.written == front.len() {
                        self.pieces.pop_front();
                        self.written = 0;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    let left: usize = self.pieces.iter().map(Vec::len).sum();
                    consumed += left - self.written;
                    self.close();
                    result.refused = true;
                }
            }
        }
        if self.ended && self.pieces.is_empty() {
            self.pipe = None;
        }
        result.credit = self.credit.consumed(consumed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hutch_protocol::credit::INITIAL;
    use rustix::pipe::{PipeFlags, pipe_with};

    fn rig() -> (Input, OwnedFd) {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        (Input::new(writer), reader)
    }

    /// Bytes that were in the pipe, and whether it was closed.
    fn drain(reader: &OwnedFd) -> (usize, bool) {
        let (mut total, mut buffer) = (0, vec![0; 1 << 20]);
        loop {
            match rustix::io::read(reader, &mut buffer) {
                Ok(0) => return (total, true),
                Ok(count) => total += count,
                Err(_) => return (total, false),
            }
        }
    }

    #[test]
    fn input_waits_for_the_command_and_ends_after_all_of_it() {
        let (mut input, reader) = rig();
        let bytes = vec![b'x'; 64 << 10];
        let mut granted = 0;
        for _ in 0..4 {
            granted += input.push(&bytes).unwrap().credit.unwrap_or(0);
        }
        assert!(granted < INITIAL);
        assert!(input.push(b"x").is_err(), "the host has used up its credit");
        let _ = input.end();
        let mut total = 0;
        loop {
            let (count, closed) = drain(&reader);
            total += count;
            granted += input.pump().credit.unwrap_or(0);
            if closed {
                break;
            }
        }
        assert!(granted >= INITIAL / 2);
        assert_eq!(total, INITIAL as usize);
    }

    #[test]
    fn an_end_without_bytes_closes_at_once() {
        let (mut input, reader) = rig();
        assert_eq!(input.end(), Written::default());
        assert_eq!(drain(&reader), (0, true));
    }

    #[test]
    fn a_command_that_does_not_read_is_told_to_the_host_once() {
        let (mut input, reader) = rig();
        drop(reader);
        // Blocks SIGPIPE for this thread, as the agent does.
        crate::sys::signals::take().unwrap();
        let written = input.push(&[0; 200_000]).unwrap();
        assert!(written.refused && written.credit == Some(200_000));
        let written = input.push(&[0; 200_000]).unwrap();
        assert!(!written.refused && written.credit == Some(200_000), "the host is never stuck");
    }
}
