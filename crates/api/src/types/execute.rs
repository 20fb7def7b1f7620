//! Running a command in a sandbox.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A command to run. It is executed directly, not by a shell.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Execute {
    /// The program: a path, or a name that is looked up in the sandbox's `PATH`.
    pub cmd: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "super::sandbox::null_is_default")]
    pub args: Vec<String>,
    /// Its standard input as text; without it (and without `stdin_base64`) it reads an immediate end of file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Addition: its standard input as base64, for bytes that are no UTF-8. Not together with `stdin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_base64: Option<String>,
    /// Environment variables over those given at create.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "super::sandbox::null_is_default")]
    pub env: BTreeMap<String, String>,
    /// Whether the answer is a stream of frames; must agree with the query's `stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Addition: the working directory, absolute; without it the user's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Addition: the user, by name or number; without it `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Addition: after this many milliseconds the command and all its descendants are killed; what they wrote until
    /// then is in the answer, which says `timed_out`. 1 to 604800000 (a week).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Addition: at most this much of each of stdout and stderr is kept; the rest is read and thrown away, and the
    /// answer says so. Without it a stream has no bound and a buffered answer has one of 16 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Addition: how output is written into the answer; `utf8` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
}

impl Execute {
    /// Bytes of stdout, and of stderr, that a buffered answer holds at most.
    pub const BUFFERED_OUTPUT_LIMIT: u64 = 16 << 20;
    /// The longest `timeout_ms`: a week.
    pub const MAX_TIMEOUT_MS: u64 = 7 * 24 * 3600 * 1000;
}

/// How output is written into the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// As text in `stdout` and `stderr`; bytes that are no UTF-8 become U+FFFD.
    #[default]
    Utf8,
    /// Exactly, in `stdout_base64` and `stderr_base64`.
    Base64,
}

/// What a running command does, in order. The last event is [`ExecuteEvent::Exit`], unless the stream ends with an
/// error; a stream that ends without either is a fault and reported as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecuteEvent {
    /// It wrote to standard output.
    Stdout(Bytes),
    /// It wrote to standard error.
    Stderr(Bytes),
    /// It ended.
    Exit(Exit),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exit {
    /// The exit code; 128 + n after signal n, 124 after a timeout, 127 when there is no such program, 126 when it
    /// cannot be executed.
    pub exit_code: i32,
    /// The signal that ended it, for example `SIGSEGV`.
    pub signal: Option<String>,
    /// Whether it was killed because `timeout_ms` was over.
    pub timed_out: bool,
    /// Whether the guest's kernel killed it, or a part of it, because memory was out.
    pub oom: bool,
    /// Whether some of its stdout was thrown away.
    pub stdout_truncated: bool,
    /// Whether some of its stderr was thrown away.
    pub stderr_truncated: bool,
    /// Why it could not be started.
    pub error: Option<String>,
}

/// The answer to a command that was waited for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecuteAnswer {
    /// What it wrote and how it ended.
    pub result: ExecuteResult,
    /// How long it ran, in milliseconds.
    pub exec_ms: f64,
}

/// What a command wrote and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ExecuteResult {
    /// Standard output as text; empty with the encoding `base64`.
    pub stdout: String,
    /// Standard error as text; empty with the encoding `base64`.
    pub stderr: String,
    /// The exit code; 128 + n after signal n, 124 after a timeout, 127 when there is no such program, 126 when it
    /// cannot be executed.
    pub exit_code: i32,
    /// Why the command could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Addition: exact standard output, with the encoding `base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// Addition: exact standard error, with the encoding `base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// Addition: the signal that ended it, for example `SIGSEGV`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Addition: killed because `timeout_ms` was over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// Addition: the guest's kernel killed it, or a part of it, because memory was out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub oom: bool,
    /// Addition: some of its output was thrown away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// Addition: some of its stdout was thrown away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stdout_truncated: bool,
    /// Addition: some of its stderr was thrown away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stderr_truncated: bool,
}

/// One line of a streamed answer (`application/x-ndjson`). The last line has `exit_code`, or `error` alone when it is
/// not known how the command ended: then it must not be taken for a success.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ExecuteFrame {
    /// A piece of standard output as text. A character is never split over two frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// A piece of standard error as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Addition: an exact piece of standard output, with the encoding `base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// Addition: an exact piece of standard error, with the encoding `base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// A sign of life, every 5 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hb: Option<bool>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Addition: the stable code of `error`, when the operation, not the command, failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Addition: the signal that ended it, for example `SIGSEGV`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Addition: killed because `timeout_ms` was over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// Addition: the guest's kernel killed it, or a part of it, because memory was out.
    #[serde(default, skip_serializing_if = "is_false")]
    pub oom: bool,
    /// Addition: some of its output was thrown away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// Addition: some of its stdout was thrown away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stdout_truncated: bool,
    /// Addition: some of its stderr was thrown away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stderr_truncated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(value: &bool) -> bool {
    !value
}
