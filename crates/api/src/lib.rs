//! The contract of Hutch: what can be asked, what is answered, how it fails.
//!
//! [`Operations`] is the contract as a trait; the service implements it. [`OPERATIONS`] declares each operation
//! once: its method, path, who may call it and what goes in and out. The HTTP adapter, the OpenAPI
//! document and the client all derive from these two. No other crate knows a status
//! code or a JSON schema.

mod error;
mod operation;
mod table;
mod types;
mod validate;

pub mod openapi;

#[cfg(feature = "server")]
pub mod http;

#[cfg(feature = "client")]
pub mod client;

pub use error::{Error, ErrorKind};
pub use operation::{ByteStream, Caller, ExecuteStream, Operations};
pub use table::{Access, Body, OPERATIONS, Operation, OperationId, Parameter};
pub use types::*;
