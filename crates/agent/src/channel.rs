//! The channel to the host: where connections come from, and the one that there is.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use hutch_protocol::frame::{Body, Channel, Frame, Header, PayloadTooLarge};
use hutch_protocol::preamble::{self, Preamble};
use hutch_protocol::{Code, Decoder, Failure};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

/// Where connections of the host come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A character device: opened, it is the host's current or next connection; after the end of one it is
    /// opened again for the next.
    Device(PathBuf),
    /// A listening stream socket.
    Listener(OwnedFd),
}

impl Source {
    /// The next connection, if it can be had without waiting. Its descriptor may say "would block" until the
    /// host is there.
    pub(crate) fn next(&self) -> io::Result<Option<OwnedFd>> {
        let result = match self {
            Self::Device(path) => {
                rustix::fs::open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
            }
            Self::Listener(listener) => {
                rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
            }
        };
        match result {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Source {
    /// The listening socket, if it is one.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Device(_) => None,
            Self::Listener(listener) => Some(listener.as_fd()),
        }
    }
}

/// Bytes waiting for the host above which no more output is read from commands.
const HIGH: usize = 512 << 10;

/// Size up to which frames share a piece of memory.
const PIECE: usize = 128 << 10;

/// Bytes asked of the channel at once.
const READ: usize = 128 << 10;

/// The connection that there is.
#[derive(Debug)]
pub(crate) struct Connection {
    fd: OwnedFd,
    decoder: Decoder,
    outgoing: Outgoing,
    greeted: bool,
}

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionEnd {
    /// The host closed it.
    #[error("the host closed the channel")]
    Closed,
    /// The channel failed.
    #[error("the channel failed")]
    Channel(#[source] io::Error),
    /// The host speaks another protocol or generation.
    #[error("the host cannot be understood")]
    Preamble(#[source] preamble::PreambleError),
    /// What came were no frames.
    #[error("the host broke the protocol")]
    Frame(#[source] hutch_protocol::DecodeError),
    /// A frame that hosts do not send, or not then.
    #[error("the host sent an unexpected frame on stream {0}")]
    Unexpected(u32),
}

impl Connection {
    /// A connection on which nothing was said yet.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, decoder: Decoder::for_agent(), outgoing: Outgoing::default(), greeted: false }
    }

    /// The descriptor to wait on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads once what has come; `false` if nothing has.
    pub(crate) fn read(&mut self) -> Result<bool, ConnectionEnd> {
        match rustix::io::read(&self.fd, self.decoder.space(READ)) {
            Ok(0) => return Err(ConnectionEnd::Closed),
            Ok(count) => self.decoder.filled(count),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(ConnectionEnd::Channel(error.into())),
        }
        if !self.greeted
            && let Some(bytes) = self.decoder.take_raw::<{ preamble::LENGTH }>()
        {
            // The answer goes first, so that a host that cannot be understood learns why.
            self.outgoing.raw(&Preamble::OURS.encode());
            Preamble::decode(&bytes).and_then(Preamble::agree).map_err(ConnectionEnd::Preamble)?;
            self.greeted = true;
        }
        Ok(true)
    }

    /// The next frame that has come whole, and where answers go.
    pub(crate) fn next_frame(&mut self) -> Result<Option<(Frame<'_>, &mut Outgoing)>, ConnectionEnd> {
        if !self.greeted {
            return Ok(None);
        }
        let frame = self.decoder.next_frame().map_err(ConnectionEnd::Frame)?;
        Ok(frame.map(|frame| (frame, &mut self.outgoing)))
    }

    /// Whether there is room for more output of commands and files.
    pub(crate) fn has_room(&self) -> bool {
        self.outgoing.has_room()
    }

    /// Frames on their way to the host.
    pub(crate) fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.outgoing
    }

    /// Writes what the channel takes; `true` if nothing is left.
    pub(crate) fn flush(&mut self) -> Result<bool, ConnectionEnd> {
        while self.outgoing.bytes > 0 {
            let slices = self.outgoing.slices();
            match rustix::io::writev(&self.fd, &slices) {
                Ok(0) => return Err(ConnectionEnd::Closed),
                Ok(count) => self.outgoing.advance(count),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => return Err(ConnectionEnd::Closed),
                Err(error) => return Err(ConnectionEnd::Channel(error.into())),
            }
        }
        Ok(true)
    }
}

/// Frames on their way to the host. What streams put in is bounded by their credit.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that are written.
    written: usize,
    bytes: usize,
}

impl Outgoing {
    /// Whether there is room for more output of commands and files.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes < HIGH
    }

    /// Appends a frame.
    pub(crate) fn frame(&mut self, stream: u32, body: Body<'_>) -> Result<(), PayloadTooLarge> {
        let piece = self.open_piece();
        let before = piece.len();
        Frame { stream, body }.encode(piece)?;
        // Of the same piece: it may just have become large enough for the next one to be another.
        let after = piece.len();
        self.bytes += after - before;
        Ok(())
    }

    /// Appends a frame of data.
    pub(crate) fn data(&mut self, stream: u32, channel: Channel, bytes: &[u8]) {
        let header = Header::data(stream, channel, bytes.len()).encode();
        self.raw(&header);
        self.raw(bytes);
    }

    /// Appends the answer that ends a stream.
    pub(crate) fn answer(&mut self, stream: u32, answer: &Result<Vec<u8>, Failure>) {
        let failed = |failure: &Failure| serde_json::to_vec(failure).unwrap_or_default();
        let result = match answer {
            Ok(json) => self.frame(stream, Body::Result(json)),
            Err(failure) => self.frame(stream, Body::Error(&failed(failure))),
        };
        if result.is_err() {
            // Only a message with a very long path can be that long.
            let failure = Failure::new(Code::Other, "the answer is too long for a frame");
            let sent = self.frame(stream, Body::Error(&failed(&failure)));
            debug_assert!(sent.is_ok(), "a short message fits");
        }
    }

    /// Appends frames that are encoded already, without copying them.
    pub(crate) fn encoded(&mut self, frames: Vec<u8>) {
        self.bytes += frames.len();
        if frames.len() < 4096 {
            self.open_piece().extend_from_slice(&frames);
        } else {
            self.pieces.push_back(frames);
        }
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.open_piece().extend_from_slice(bytes);
    }

    /// The last piece, or a new one if that is large.
    fn open_piece(&mut self) -> &mut Vec<u8> {
        if self.pieces.back().is_none_or(|piece| piece.len() >= PIECE) {
            self.pieces.push_back(Vec::new());
        }
        self.pieces.back_mut().expect("just pushed if it was empty")
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut skip = self.written;
        let pieces = self.pieces.iter().take(16);
        pieces.map(|piece| IoSlice::new(&piece[std::mem::take(&mut skip)..])).collect()
    }

    fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(front) = self.pieces.front_mut() {
            let left = front.len() - self.written;
            if count < left {
                self.written += count;
                return;
            }
            count -= left;
            self.written = 0;
            if self.pieces.len() == 1 && self.pieces[0].capacity() <= 2 * PIECE {
                // Kept for the next frame.
                self.pieces[0].clear();
                return;
            }
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_written() {
        let mut outgoing = Outgoing::default();
        let mut expected = Vec::new();
        for number in 0..200_u32 {
            let bytes = vec![number as u8; number as usize * 50];
            outgoing.data(number + 1, Channel::Output, &bytes);
            let frame = Frame { stream: number + 1, body: Body::Data { channel: Channel::Output, bytes: &bytes } };
            frame.encode(&mut expected).unwrap();
            if number % 3 == 0 {
                let mut encoded = Vec::new();
                frame.encode(&mut encoded).unwrap();
                expected.extend_from_slice(&encoded);
                outgoing.encoded(encoded);
            }
        }
        assert_eq!(outgoing.bytes, expected.len());
        let mut written = Vec::new();
        let mut step = 1;
        while outgoing.bytes > 0 {
            let gathered: Vec<u8> = outgoing.slices().iter().flat_map(|slice| slice.to_vec()).take(step).collect();
            outgoing.advance(gathered.len());
            written.extend(gathered);
            step = step % 70_000 + 997;
        }
        assert_eq!(written, expected);
        assert!(outgoing.has_room());
    }

    #[test]
    fn frames_without_data_are_counted_across_pieces() {
        let mut outgoing = Outgoing::default();
        for _ in 0..100_000 {
            outgoing.frame(1, Body::Credit { channel: Channel::Input, bytes: 1 }).unwrap();
        }
        assert_eq!(outgoing.bytes, outgoing.pieces.iter().map(Vec::len).sum::<usize>());
        assert!(!outgoing.has_room());
    }

    #[test]
    fn an_answer_that_is_too_long_is_an_error_and_no_silence() {
        let mut outgoing = Outgoing::default();
        outgoing.answer(1, &Ok(vec![b' '; hutch_protocol::frame::CONTROL_MAX + 1]));
        let mut decoder = Decoder::for_host();
        for slice in outgoing.slices() {
            decoder.push(&slice);
        }
        assert!(matches!(decoder.next_frame(), Ok(Some(Frame { stream: 1, body: Body::Error(_) }))));
    }
}
