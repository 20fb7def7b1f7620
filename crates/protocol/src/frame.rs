//! Frames: a header of twelve bytes and a payload.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | length of the payload, u32 |
//! | 4..8 | stream, u32; 0 is the connection itself |
//! | 8 | kind |
//! | 9 | detail: the operation of an `Open`, the channel of `Data`, `End` and `Credit`, else 0 |
//! | 10..12 | reserved: sent as 0, ignored when read |
//!
//! Numbers are little endian.

/// Length of a frame's header in bytes.
pub const HEADER: usize = 12;

/// Most bytes that a `Data` frame carries.
pub const DATA_MAX: usize = 64 << 10;

/// Most bytes of an `Item`, `Result`, `Error` or `Signal` payload.
pub const CONTROL_MAX: usize = 64 << 10;

/// Most bytes of an `Open` payload: a command line can be as long as the kernel allows.
pub const OPEN_MAX: usize = 8 << 20;

/// The number of a frame's kind on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The host begins a stream.
    Open = 1,
    /// Raw bytes on a channel.
    Data = 2,
    /// No more data on a channel.
    End = 3,
    /// Room for more data on a channel.
    Credit = 4,
    /// A part of the answer that comes before its end.
    Item = 5,
    /// The answer; the last frame of a stream.
    Result = 6,
    /// A failure instead of an answer; the last frame of a stream.
    Error = 7,
    /// The host wants no answer any more.
    Cancel = 8,
    /// A signal for the command of an exec stream.
    Signal = 9,
    /// Are you there?
    Ping = 10,
    /// I am.
    Pong = 11,
}

impl Kind {
    /// The kind with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Open,
            2 => Self::Data,
            3 => Self::End,
            4 => Self::Credit,
            5 => Self::Item,
            6 => Self::Result,
            7 => Self::Error,
            8 => Self::Cancel,
            9 => Self::Signal,
            10 => Self::Ping,
            11 => Self::Pong,
            _ => return None,
        })
    }

    /// The least and the most bytes that a payload of this kind may have.
    pub const fn payload_bounds(self) -> (usize, usize) {
        match self {
            Self::Open => (0, OPEN_MAX),
            Self::Data => (0, DATA_MAX),
            Self::Item | Self::Result | Self::Error | Self::Signal => (0, CONTROL_MAX),
            Self::Credit => (4, 4),
            Self::Ping | Self::Pong => (8, 8),
            Self::End | Self::Cancel => (0, 0),
        }
    }
}

/// Which of a stream's byte sequences a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Channel {
    /// To the agent: standard input of a command, content of a file.
    Input = 0,
    /// From the agent: standard output of a command, content of a file, items of a list.
    Output = 1,
    /// From the agent: standard error of a command.
    Error = 2,
}

impl Channel {
    /// The channel with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Input),
            1 => Some(Self::Output),
            2 => Some(Self::Error),
            _ => None,
        }
    }
}

/// The fields of a header that has been read but not judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of payload that follow.
    pub length: u32,
    /// Stream, 0 for the connection.
    pub stream: u32,
    /// Kind, see [`Kind`].
    pub kind: u8,
    /// Operation or channel.
    pub detail: u8,
}

impl Header {
    /// The header of a `Data` frame whose payload the caller appends itself.
    pub fn data(stream: u32, channel: Channel, length: usize) -> Self {
        debug_assert!(length <= DATA_MAX, "a data frame of {length} bytes");
        // The bound is far below 2^32.
        Self { length: length as u32, stream, kind: Kind::Data as u8, detail: channel as u8 }
    }

    /// The bytes on the wire.
    pub fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.stream.to_le_bytes());
        bytes[8] = self.kind;
        bytes[9] = self.detail;
        bytes
    }

    /// The fields in these bytes.
    pub fn decode(bytes: &[u8; HEADER]) -> Self {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { length: number(0), stream: number(4), kind: bytes[8], detail: bytes[9] }
    }
}

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// Begin a stream with this request.
    Open {
        /// Number of the [`Operation`](crate::Operation); unknown numbers pass the decoder and are answered
        /// with an `Error` of code `unsupported`.
        operation: u8,
        /// The request as JSON.
        request: &'a [u8],
    },
    /// Bytes on a channel, counted against its credit.
    Data {
        /// The channel.
        channel: Channel,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The end of a channel. From the agent on `Input`: nobody reads the input any more.
    End {
        /// The channel.
        channel: Channel,
    },
    /// The sender has room for this many more bytes on the channel.
    Credit {
        /// The channel.
        channel: Channel,
        /// How many more bytes.
        bytes: u32,
    },
    /// A part of the answer as JSON, counted against the credit of `Output`.
    Item(&'a [u8]),
    /// The answer as JSON.
    Result(&'a [u8]),
    /// A [`Failure`](crate::Failure) as JSON.
    Error(&'a [u8]),
    /// Stop; for an exec stream: kill the whole tree.
    Cancel,
    /// A [`Signal`](crate::exec::Signal) as JSON.
    Signal(&'a [u8]),
    /// Answer with a `Pong` of the same bytes.
    Ping([u8; 8]),
    /// The answer to a `Ping`.
    Pong([u8; 8]),
}

/// One frame, borrowing its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The stream it belongs to, 0 for `Ping` and `Pong`.
    pub stream: u32,
    /// What it says.
    pub body: Body<'a>,
}

/// A payload does not fit its kind of frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a payload of {length} bytes is larger than the {limit} bytes that {kind:?} frames may have")]
pub struct PayloadTooLarge {
    /// Kind of the frame.
    pub kind: Kind,
    /// Length of the payload.
    pub length: usize,
    /// The bound.
    pub limit: usize,
}

impl<'a> Frame<'a> {
    /// Appends the frame to `out`; appends nothing if the payload is too large for its kind.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), PayloadTooLarge> {
        let count;
        let (kind, detail, payload): (Kind, u8, &[u8]) = match &self.body {
            Body::Open { operation, request } => (Kind::Open, *operation, request),
            Body::Data { channel, bytes } => (Kind::Data, *channel as u8, bytes),
            Body::End { channel } => (Kind::End, *channel as u8, &[]),
            Body::Credit { channel, bytes } => {
                count = bytes.to_le_bytes();
                (Kind::Credit, *channel as u8, &count)
            }
            Body::Item(json) => (Kind::Item, 0, json),
            Body::Result(json) => (Kind::Result, 0, json),
            Body::Error(json) => (Kind::Error, 0, json),
            Body::Cancel => (Kind::Cancel, 0, &[]),
            Body::Signal(json) => (Kind::Signal, 0, json),
            Body::Ping(token) => (Kind::Ping, 0, token),
            Body::Pong(token) => (Kind::Pong, 0, token),
        };
        let (_, limit) = kind.payload_bounds();
        if payload.len() > limit {
            return Err(PayloadTooLarge { kind, length: payload.len(), limit });
        }
        // Every limit is far below 2^32.
        let header = Header { length: payload.len() as u32, stream: self.stream, kind: kind as u8, detail };
        out.reserve(HEADER + payload.len());
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(payload);
        Ok(())
    }
}
