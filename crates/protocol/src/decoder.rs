//! From bytes to frames, however the bytes are cut.

use crate::frame::{Body, Channel, Frame, HEADER, Header, Kind};

/// What is wrong with a byte stream. None of these can be recovered from: the connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No kind has this number.
    #[error("a frame of unknown kind {kind}")]
    Kind {
        /// The number.
        kind: u8,
    },
    /// A payload that its kind may not have.
    #[error("a {kind:?} frame with a payload of {length} bytes")]
    Length {
        /// Kind of the frame.
        kind: Kind,
        /// Length that the header gives.
        length: u32,
    },
    /// A channel that does not exist.
    #[error("a {kind:?} frame on unknown channel {channel}")]
    Channel {
        /// Kind of the frame.
        kind: Kind,
        /// Its number.
        channel: u8,
    },
    /// A frame of a stream on stream 0, or one of the connection on another.
    #[error("a {kind:?} frame on stream {stream}")]
    Stream {
        /// Kind of the frame.
        kind: Kind,
        /// Stream that the header gives.
        stream: u32,
    },
}

/// An incremental decoder. It holds at most one incomplete frame more than it was given, and never asks for
/// memory because a header promises a long payload.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Start of what has not been handed out.
    start: usize,
    /// End of what has been received.
    end: usize,
    open_max: usize,
}

/// Bytes that a buffer keeps when it is empty; a larger one is given back.
const KEEP: usize = 256 << 10;

impl Decoder {
    /// A decoder for the agent's end: it takes `Open` frames of any legal size.
    pub fn for_agent() -> Self {
        Self::with_open_max(crate::frame::OPEN_MAX)
    }

    /// A decoder for the host's end. Agents open no streams, so a larger payload than any other kind may have
    /// is refused by its header.
    pub fn for_host() -> Self {
        Self::with_open_max(0)
    }

    fn with_open_max(open_max: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, end: 0, open_max }
    }

    /// Room for at least `least` bytes, to read into; tell [`Decoder::filled`] how many were.
    pub fn space(&mut self, least: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.buffer.len() > KEEP.max(least) {
                self.buffer = Vec::new();
            }
        }
        if self.buffer.len() - self.end < least && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < least {
            self.buffer.resize(self.end + least, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// The first `count` bytes of the last [`Decoder::space`] have been received.
    pub fn filled(&mut self, count: usize) {
        self.end = self.buffer.len().min(self.end.saturating_add(count));
    }

    /// Takes bytes from a slice: [`Decoder::space`] and [`Decoder::filled`] in one.
    pub fn push(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// The next `count` bytes as they are, if they have all come: for the preamble.
    pub fn take_raw<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.buffer[self.start..self.end].first_chunk::<N>().copied()?;
        self.start += N;
        Some(bytes)
    }

    /// The next frame; `None` until more bytes have come.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, DecodeError> {
        let Some(header) = self.buffer[self.start..self.end].first_chunk::<HEADER>() else { return Ok(None) };
        let header = Header::decode(header);
        let kind = self.judge(header)?;
        let begin = self.start + HEADER;
        let finish = begin + header.length as usize;
        if finish > self.end {
            return Ok(None);
        }
        self.start = finish;
        let payload = &self.buffer[begin..finish];
        let body = body(kind, header, payload)?;
        Ok(Some(Frame { stream: header.stream, body }))
    }

    /// Whether the bytes so far end between two frames.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Everything that can be refused before the payload has come.
    fn judge(&self, header: Header) -> Result<Kind, DecodeError> {
        let kind = Kind::from_number(header.kind).ok_or(DecodeError::Kind { kind: header.kind })?;
        let (least, most) = kind.payload_bounds();
        let most = if kind == Kind::Open { most.min(self.open_max) } else { most };
        if !(least..=most).contains(&(header.length as usize)) {
            return Err(DecodeError::Length { kind, length: header.length });
        }
        if matches!(kind, Kind::Ping | Kind::Pong) != (header.stream == 0) {
            return Err(DecodeError::Stream { kind, stream: header.stream });
        }
        Ok(kind)
    }
}

fn body(kind: Kind, header: Header, payload: &[u8]) -> Result<Body<'_>, DecodeError> {
    let length = DecodeError::Length { kind, length: header.length };
    let channel = || Channel::from_number(header.detail).ok_or(DecodeError::Channel { kind, channel: header.detail });
    Ok(match kind {
        Kind::Open => Body::Open { operation: header.detail, request: payload },
        Kind::Data => Body::Data { channel: channel()?, bytes: payload },
        Kind::End => Body::End { channel: channel()? },
        Kind::Credit => {
            let count = payload.first_chunk::<4>().ok_or(length)?;
            Body::Credit { channel: channel()?, bytes: u32::from_le_bytes(*count) }
        }
        Kind::Item => Body::Item(payload),
        Kind::Result => Body::Result(payload),
        Kind::Error => Body::Error(payload),
        Kind::Cancel => Body::Cancel,
        Kind::Signal => Body::Signal(payload),
        Kind::Ping => Body::Ping(*payload.first_chunk::<8>().ok_or(length)?),
        Kind::Pong => Body::Pong(*payload.first_chunk::<8>().ok_or(length)?),
    })
}
