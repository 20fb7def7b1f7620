//! What can go wrong between the host and an agent.

use std::path::PathBuf;
use std::time::Duration;

use hutch_protocol::Failure;
use hutch_protocol::preamble::PreambleError;

/// Why the agent could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection to the socket.
    #[error("no connection to the agent at {}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The other end speaks another protocol, or another generation of it.
    #[error("the agent cannot be understood")]
    Preamble {
        /// What it said.
        #[source]
        source: PreambleError,
    },
    /// The connection ended before the answer: nothing is known about what was asked. Never a success.
    #[error("the sandbox was lost during {operation}: {loss}")]
    Lost {
        /// What was going on.
        operation: &'static str,
        /// How the connection ended.
        loss: Loss,
    },
    /// The agent lives but did not answer this in time. The request has been cancelled.
    #[error("no answer to {operation} within {} ms", after.as_millis())]
    Deadline {
        /// What was asked.
        operation: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// The agent said no.
    #[error("{operation} failed in the sandbox")]
    Refused {
        /// What was asked.
        operation: &'static str,
        /// Its reason.
        #[source]
        source: Failure,
    },
    /// The agent's answer is not what answers look like.
    #[error("the answer to {operation} makes no sense")]
    Answer {
        /// What was asked.
        operation: &'static str,
        /// Where it is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// The request is larger than the protocol carries.
    #[error("a request of {length} bytes for {operation} is larger than the {limit} bytes that are possible")]
    RequestTooLarge {
        /// What was asked.
        operation: &'static str,
        /// Its size as JSON, bytes.
        length: usize,
        /// The bound.
        limit: usize,
    },
    /// The caller's own source of an upload failed. The upload has been cancelled.
    #[error("the content for {operation} could not be read")]
    Source {
        /// What was going on.
        operation: &'static str,
        /// What the source said.
        #[source]
        source: std::io::Error,
    },
    /// Nobody in the guest reads the input any more: the command ended or closed it.
    #[error("nobody reads the input any more")]
    InputClosed,
    /// The output was larger than what the caller was willing to hold. The command has been killed.
    #[error("more than {limit} bytes of output")]
    OutputTooLarge {
        /// The bound that the caller gave, bytes.
        limit: usize,
    },
}

impl ClientError {
    /// The agent's reason, if it was the agent that said no.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Refused { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Whether the connection is gone, and everything that is asked on it will fail like this.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// How a connection to an agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The other end closed it: the guest or its agent ended.
    #[error("the guest closed the connection")]
    Closed,
    /// The socket failed.
    #[error("the connection failed ({0})")]
    Socket(std::io::ErrorKind),
    /// Nothing came for too long, not even the answer to a ping.
    #[error("the guest does not answer")]
    Unresponsive,
    /// The guest broke the protocol.
    #[error("the guest broke the protocol: {0}")]
    Violation(Violation),
    /// This end closed it.
    #[error("the connection was closed on this side")]
    Abandoned,
}

impl Loss {
    /// What an error of the socket means.
    pub(super) fn of(error: &std::io::Error) -> Self {
        match error.kind() {
            // Writing may notice it before reading does.
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => Self::Closed,
            kind => Self::Socket(kind),
        }
    }
}

/// Ways for a guest to break the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Bytes that are no frames.
    #[error("{0}")]
    Frame(hutch_protocol::DecodeError),
    /// More data or more credit than allowed.
    #[error("{0}")]
    Credit(hutch_protocol::credit::CreditError),
    /// A frame for a stream that is not open.
    #[error("a frame for stream {0}, which is not open")]
    Stream(u32),
    /// A frame that agents do not send, or not then.
    #[error("an unexpected frame on stream {0}")]
    Unexpected(u32),
}
