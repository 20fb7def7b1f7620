//! Why a request was not done.

use serde::{Deserialize, Serialize};

/// The payload of an `Error` frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure.
    pub code: Code,
    /// What failed and why, for a person. Names the path or the field.
    pub message: String,
    /// The kernel's error number, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// Kinds of failure: a closed list, so that callers can decide on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// Nothing lies at the path.
    NotFound,
    /// A part of the path that must be a directory is something else.
    NotADirectory,
    /// The path is a directory where a file was needed.
    IsADirectory,
    /// The kernel refused.
    Permission,
    /// Something lies at the path already.
    Exists,
    /// A directory has content and the request was not recursive.
    NotEmpty,
    /// The disk (or its inodes, or a quota) is full.
    NoSpace,
    /// Larger than what was allowed.
    TooLarge,
    /// A path that can name nothing here: not absolute, with a NUL, too long, a loop of links, not a file.
    InvalidPath,
    /// A field of the request has a value that it may not have.
    InvalidRequest,
    /// No user or group has this name.
    UserNotFound,
    /// Something uses it: a mount point, a running program.
    Busy,
    /// The guest has too many files, processes or streams, or too little memory, right now.
    Exhausted,
    /// The request was cancelled.
    Cancelled,
    /// Commands and files need a `Configure` first.
    NotConfigured,
    /// This agent does not know the operation.
    Unsupported,
    /// Any other failure, and every code that this end does not know.
    #[serde(other)]
    Other,
}

impl Failure {
    /// A failure that no error number of the kernel belongs to.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), errno: None }
    }
}
