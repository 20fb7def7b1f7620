//! An output stream of a command: from its pipe to the host, as far as there is credit.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hutch_protocol::credit::SendCredit;
use hutch_protocol::exec::OutputReport;
use hutch_protocol::frame::{Body, Channel, DATA_MAX};
use rustix::io::Errno;

use crate::channel::Outgoing;

/// Where output goes.
#[derive(Debug)]
pub(crate) enum Sink<'a> {
    /// To the host.
    Host(u32, &'a mut Outgoing),
    /// Nowhere: nobody listens any more.
    Nowhere,
}

/// The reading end of a pipe whose writing end the command has.
#[derive(Debug)]
pub(crate) struct Output {
    channel: Channel,
    pipe: Option<OwnedFd>,
    /// Whether reading may give something: set by an event, cleared by "would block".
    ready: bool,
    /// Whether all writers are gone: then only reading zero bytes is the end.
    hung_up: bool,
    credit: SendCredit,
    /// Bytes that may still be sent before the output is truncated.
    allowance: u64,
    /// After the grace: bytes that are still delivered.
    last_bytes: Option<usize>,
    sent: u64,
    truncated: bool,
}

/// Bytes that one turn reads at most, so that one stream does not keep others waiting.
const TURN: usize = 256 << 10;

impl Output {
    /// Output from this pipe, at most so many bytes of it. The pipe does not block.
    pub(crate) fn new(channel: Channel, pipe: OwnedFd, max: Option<u64>) -> Self {
        Self {
            channel,
            pipe: Some(pipe),
            ready: false,
            hung_up: false,
            credit: SendCredit::default(),
            allowance: max.unwrap_or(u64::MAX),
            last_bytes: None,
            sent: 0,
            truncated: false,
        }
    }

    /// The pipe, until it is closed.
    pub(crate) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// The pipe has become readable, or its last writer is gone.
    pub(crate) fn wake(&mut self, hung_up: bool) {
        self.ready = true;
        self.hung_up |= hung_up;
    }

    /// Credit to send more.
    pub(crate) fn credit(&mut self) -> &mut SendCredit {
        &mut self.credit
    }

    /// Whether more can come that the host still gets.
    pub(crate) fn is_open(&self) -> bool {
        self.pipe.is_some() && self.last_bytes != Some(0)
    }

    /// Delivers what lies in the pipe now and no more.
    pub(crate) fn end_soon(&mut self) {
        let waiting = self.pipe.as_ref().map_or(0, |pipe| rustix::io::ioctl_fionread(pipe).unwrap_or(0));
        self.last_bytes = Some(usize::try_from(waiting).unwrap_or(usize::MAX));
        self.ready = true;
    }

    /// What became of it; after this the pipe, if somebody still holds it, is to be drained by the caller.
    pub(crate) fn finish(&mut self) -> (OutputReport, Option<OwnedFd>) {
        let pipe = self.pipe.take();
        let report = OutputReport { bytes: self.sent, truncated: self.truncated, held: pipe.is_some() };
        (report, pipe)
    }

    /// Moves bytes to the sink. Returns whether it stopped only because its turn was over or the channel full.
    pub(crate) fn pump(&mut self, sink: &mut Sink<'_>, scratch: &mut [u8]) -> bool {
        let mut turn = TURN;
        while self.ready && self.is_open() {
            if turn == 0 {
                return true;
            }
            let discards = matches!(sink, Sink::Nowhere) || self.allowance == 0;
            let room = match sink {
                Sink::Host(_, outgoing) if !discards && !outgoing.has_room() => 0,
                _ if discards => scratch.len(),
                _ => {
                    let allowed = usize::try_from(self.allowance).unwrap_or(usize::MAX);
                    self.credit.available().min(allowed)
                }
            };
            let wanted = room.min(DATA_MAX).min(scratch.len()).min(turn).min(self.last_bytes.unwrap_or(usize::MAX));
            if wanted == 0 {
                return matches!(sink, Sink::Host(_, outgoing) if !outgoing.has_room());
            }
            let Some(pipe) = &self.pipe else { return false };
            match rustix::io::read(pipe, &mut scratch[..wanted]) {
                Ok(0) => self.close(sink),
                Ok(count) => {
                    turn -= count;
                    self.take(count, wanted, discards, sink, scratch);
                }
                Err(Errno::AGAIN) => self.ready = false,
                Err(Errno::INTR) => {}
                // A pipe has no other errors; if it had, there would be nothing more to read.
                Err(_) => self.close(sink),
            }
        }
        false
    }

    fn take(&mut self, count: usize, wanted: usize, discards: bool, sink: &mut Sink<'_>, scratch: &[u8]) {
        if count < wanted && !self.hung_up {
            // The pipe was emptied; more makes a new event.
            self.ready = false;
        }
        if let Some(last) = &mut self.last_bytes {
            *last -= count;
        }
        if discards {
            self.truncated |= matches!(sink, Sink::Host(..));
        } else if let Sink::Host(stream, outgoing) = sink {
            outgoing.data(*stream, self.channel, &scratch[..count]);
            self.credit.take(count);
            self.sent += count as u64;
            self.allowance -= count as u64;
        }
    }

    fn close(&mut self, sink: &mut Sink<'_>) {
        self.pipe = None;
        if let Sink::Host(stream, outgoing) = sink {
            let sent = outgoing.frame(*stream, Body::End { channel: self.channel });
            debug_assert!(sent.is_ok(), "an end has no payload");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hutch_protocol::credit::INITIAL;
    use rustix::pipe::{PipeFlags, pipe_with};

    struct Rig {
        output: Output,
        writer: Option<OwnedFd>,
        outgoing: Outgoing,
        scratch: Vec<u8>,
    }

    impl Rig {
        fn new(max: Option<u64>) -> Self {
            let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
            let output = Output::new(Channel::Output, reader, max);
            Self { output, writer: Some(writer), outgoing: Outgoing::default(), scratch: vec![0; DATA_MAX] }
        }

        fn write(&mut self, count: usize) -> usize {
            self.output.wake(false);
            rustix::io::write(self.writer.as_ref().unwrap(), &vec![b'x'; count]).unwrap_or(0)
        }

        fn close(&mut self) {
            self.writer = None;
            self.output.wake(true);
        }

        fn pump(&mut self) -> u64 {
            self.output.pump(&mut Sink::Host(1, &mut self.outgoing), &mut self.scratch);
            self.output.sent
        }
    }

    #[test]
    fn output_stops_without_credit_and_goes_on_with_it() {
        let mut rig = Rig::new(None);
        let mut written = 0;
        for _ in 0..20 {
            written += rig.write(64 << 10);
            rig.pump();
        }
        assert_eq!(rig.output.sent, u64::from(INITIAL));
        assert!(written > INITIAL as usize, "the rest waits in the pipe and then in the command");
        rig.output.credit().grant(1 << 20).unwrap();
        assert_eq!(rig.pump(), written as u64);
        rig.close();
        rig.pump();
        assert!(!rig.output.is_open());
        assert_eq!(rig.output.finish().0, OutputReport { bytes: written as u64, truncated: false, held: false });
    }

    #[test]
    fn what_is_too_much_is_read_and_thrown_away() {
        let mut rig = Rig::new(Some(10));
        for _ in 0..20 {
            assert_eq!(rig.write(4096), 4096, "the command is never blocked");
            rig.pump();
        }
        rig.close();
        rig.pump();
        assert_eq!(rig.output.finish().0, OutputReport { bytes: 10, truncated: true, held: false });
        let mut exact = Rig::new(Some(10));
        exact.write(10);
        exact.close();
        exact.pump();
        assert!(!exact.output.finish().0.truncated, "exactly as much as allowed is not too much");
    }

    #[test]
    fn after_the_grace_only_what_was_written_comes() {
        let mut rig = Rig::new(None);
        rig.write(100);
        rig.output.end_soon();
        rig.write(50);
        assert_eq!(rig.pump(), 100);
        assert!(!rig.output.is_open());
        let (report, pipe) = rig.output.finish();
        assert_eq!(report, OutputReport { bytes: 100, truncated: false, held: true });
        assert!(pipe.is_some());
    }

    #[test]
    fn a_full_channel_is_waited_for() {
        let mut rig = Rig::new(None);
        rig.output.credit().grant(16 << 20).unwrap();
        while rig.outgoing.has_room() {
            rig.write(64 << 10);
            rig.pump();
        }
        let sent = rig.output.sent;
        rig.write(64 << 10);
        assert_eq!(rig.pump(), sent);
        assert!(rig.output.ready, "it is not forgotten");
    }
}
