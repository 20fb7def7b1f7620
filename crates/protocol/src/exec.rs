//! Running a command.
//!
//! ```text
//!            Open(Exec)
//!                │
//!    ┌───────────▼──────────┐  cannot start                         ┌───────┐
//!    │       starting       ├──────────────────────────────────────►│       │
//!    └───────────┬──────────┘  Outcome::FailedToStart               │       │
//!                │ started                                          │       │
//!    ┌───────────▼──────────┐  Cancel, timeout: the tree is killed  │       │
//!    │       running        ├──────────────┐                        │ ended │
//!    └───────────┬──────────┘              │                        │       │
//!                │ the command ends        │                        │       │
//!    ┌───────────▼──────────┐    ┌─────────▼────────┐               │       │
//!    │ draining, ≤ grace_ms │    │     dying        │               │       │
//!    └───────────┬──────────┘    └─────────┬────────┘               │       │
//!                └─────────────────────────┴───────────────────────►│       │
//!          output closed, or the grace is over: Result(Ended)       └───────┘
//! ```
//!
//! The call ends when the *command* ends. A background child that keeps the output open is waited for no
//! longer than the grace and lives on; what it writes afterwards is read and thrown away, so that it neither
//! blocks nor gets a broken pipe. What the command had written before is never lost, however slow the reader.
//! Timeout and `Cancel` kill the whole tree, background children included. So does the loss of the connection,
//! unless the next [`Configure`](crate::machine::Configure) comes soon and says that the machine continues: then
//! the command goes on and nobody hears from it any more.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::text::ByteText;

/// Default of [`Exec::grace_ms`].
pub const GRACE_MS: u32 = 250;

/// A command to run. Opens a stream with `Output` and `Error` from the agent and, if asked for, `Input`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// What to run.
    pub command: Command,
    /// Working directory, absolute; `None` is the user's home, or `/` where that cannot be entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<ByteText>,
    /// `name`, `uid`, `name:group` or `uid:gid`; `None` is root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Environment, over that of `Configure`, over the agent's `PATH HOME USER LOGNAME SHELL LANG TERM`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, ByteText>,
    /// Whether `Input` carries the standard input; `false`: it is empty from the start.
    #[serde(default)]
    pub stdin: bool,
    /// After this many milliseconds the whole tree is killed; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long before the kill of a timeout the tree gets SIGTERM instead; 0: it is killed at once.
    #[serde(default)]
    pub kill_grace_ms: u64,
    /// Bytes of each output stream that are sent; what comes after is read and thrown away. `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// How long after the command's end output of its background children is waited for; `None`: until all
    /// of them have closed it.
    #[serde(default = "default_grace")]
    pub grace_ms: Option<u32>,
}

#[expect(clippy::unnecessary_wraps, reason = "serde's `default` returns the type of the field")]
fn default_grace() -> Option<u32> {
    Some(GRACE_MS)
}

/// What to run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// A program, looked up in `PATH`, and its arguments.
    Argv(Vec<ByteText>),
    /// A text for `/bin/sh -c`.
    Shell(ByteText),
}

impl Exec {
    /// A command with every option at its default.
    pub fn new(command: Command) -> Self {
        Self {
            command,
            cwd: None,
            user: None,
            env: BTreeMap::new(),
            stdin: false,
            timeout_ms: None,
            kill_grace_ms: 0,
            max_output_bytes: None,
            grace_ms: Some(GRACE_MS),
        }
    }

    /// A program and its arguments.
    pub fn argv<T: Into<ByteText>>(argv: impl IntoIterator<Item = T>) -> Self {
        Self::new(Command::Argv(argv.into_iter().map(Into::into).collect()))
    }

    /// A text for the shell.
    pub fn shell(text: impl Into<ByteText>) -> Self {
        Self::new(Command::Shell(text.into()))
    }
}

impl std::fmt::Debug for Exec {
    /// Shows no value of the environment, and of a long command only its beginning.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Exec")
            .field("command", &self.command)
            .field("cwd", &self.cwd)
            .field("user", &self.user)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("stdin", &self.stdin)
            .field("timeout_ms", &self.timeout_ms)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = |text: &ByteText| text.as_bytes().iter().take(200).copied().collect::<Vec<u8>>();
        match self {
            Self::Argv(argv) => {
                let argv: Vec<_> = argv.iter().take(8).map(|text| ByteText::from(start(text))).collect();
                out.debug_tuple("Argv").field(&argv).finish()
            }
            Self::Shell(text) => out.debug_tuple("Shell").field(&ByteText::from(start(text))).finish(),
        }
    }
}

/// The payload of a `Signal` frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Number of the signal, 1 to 64.
    pub signal: i32,
    /// Who gets it.
    #[serde(default)]
    pub to: SignalTarget,
}

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalTarget {
    /// The command's process group: what Ctrl-C reaches in a terminal.
    #[default]
    Group,
    /// The command alone.
    Process,
    /// The command and everything that it started.
    Tree,
}

/// The answer to [`Exec`]: how the command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub outcome: Outcome,
    /// What became of standard output.
    #[serde(default)]
    pub stdout: OutputReport,
    /// What became of standard error.
    #[serde(default)]
    pub stderr: OutputReport,
    /// From the request to the end of the command, microseconds.
    #[serde(default)]
    pub wall_us: u64,
    /// Processor time in user mode of the command and the children that it waited for, microseconds.
    #[serde(default)]
    pub user_us: u64,
    /// The same in the kernel.
    #[serde(default)]
    pub system_us: u64,
    /// Largest resident set of one of them, bytes.
    #[serde(default)]
    pub max_resident_bytes: u64,
    /// Processes of the tree that were killed for want of memory, also when the command survived that.
    #[serde(default)]
    pub out_of_memory_kills: u64,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// By itself.
    Exited {
        /// Exit status, 0 to 255.
        code: i32,
    },
    /// By a signal that neither the timeout, nor `Cancel`, nor want of memory sent.
    Signaled {
        /// Number of the signal.
        signal: i32,
        /// Whether it wrote a core file.
        #[serde(default)]
        core_dumped: bool,
    },
    /// Killed by its timeout, with everything it had started.
    TimedOut {},
    /// Killed because the guest had no memory left.
    OutOfMemory {},
    /// Killed because the host asked.
    Cancelled {},
    /// It never ran.
    FailedToStart {
        /// The step that failed.
        step: StartStep,
        /// The status a shell would give: 127 if there is no such command, else 126.
        exit_code: i32,
        /// The kernel's error number; 0 where there was none.
        #[serde(default)]
        errno: i32,
        /// What failed and why, for a person.
        message: String,
    },
}

/// Steps to a running command that can fail because of what the request says or what the guest is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartStep {
    /// Making the process and its pipes.
    Process,
    /// Finding or becoming the user.
    User,
    /// Entering the working directory.
    WorkingDirectory,
    /// Finding or executing the program.
    Program,
    /// A step that this end does not know.
    #[serde(other)]
    Other,
}

/// What became of an output stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputReport {
    /// Bytes that were sent.
    #[serde(default)]
    pub bytes: u64,
    /// Whether more was written than `max_output_bytes`.
    #[serde(default)]
    pub truncated: bool,
    /// Whether a background child still holds it.
    #[serde(default)]
    pub held: bool,
}
