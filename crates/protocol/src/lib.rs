//! The words between the host and the agent in a guest.
//!
//! One byte stream carries any number of exec and file streams at once. It begins with a [`preamble`] each
//! way, whose generation number can be read without knowing anything else; then come [`frame`]s of a fixed
//! header and a bounded payload. Control payloads are JSON objects, data payloads are raw bytes under
//! [`credit`]: nobody sends what the other side has not made room for.
//!
//! The host speaks first and opens every stream. A stream begins with `Open`, whose header names the
//! [`operation`] and whose payload is the request; it ends with exactly one `Result` or `Error` from the
//! agent. Until then the host may send `Data` and `End` (input), `Credit`, `Signal` and `Cancel`; the agent
//! `Item`, `Data`, `End` and `Credit`. Frames of the host for a stream that has already ended are ignored by
//! the agent: they crossed its end on the way.
//!
//! `VERSIONING.md` beside this crate says how the protocol may change; a golden file for each message holds
//! it to that.
//!
//! Nothing here reads, writes or waits, and no input panics.

pub mod preamble;

pub mod frame;

pub mod decoder;

pub mod credit;

pub mod text;

pub mod operation;

pub mod failure;

pub mod machine;

pub mod exec;

pub mod files;

pub use decoder::{DecodeError, Decoder};
pub use failure::{Code, Failure};
pub use frame::{Body, Channel, Frame};
pub use operation::{Operation, Request};
pub use text::ByteText;
