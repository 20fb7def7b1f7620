//! What the launcher says about its one job: one line of JSON on standard output.

use serde::{Deserialize, Serialize};

/// The launcher's only output. `format` and `version` can be read without understanding the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Always [`Report::FORMAT`].
    pub format: String,
    /// Always [`Report::VERSION`].
    pub version: u32,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The program was executed and is on its own now.
    Started(Started),
    /// It was not, and all that had been made is removed again.
    Failed(Failure),
}

/// A process that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its id in the pid namespace of the launcher.
    pub pid: u32,
    /// Its start time in clock ticks after boot (field 22 of `/proc/<pid>/stat`): with the id it names the
    /// process for ever.
    pub start_time: u64,
    /// Microseconds from the launcher's start to the execution.
    pub microseconds: u64,
}

/// The step of a launch that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step} failed ({subject}): {cause}{}", hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct Failure {
    /// The step.
    pub step: Step,
    /// The file, directory or setting that it was about.
    pub subject: String,
    /// What the system said.
    pub cause: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
}

/// The steps of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Reading the specification.
    Specification,
    /// Opening or making a descriptor.
    Descriptor,
    /// Making the cgroup or setting its limits.
    Cgroup,
    /// Making the namespaces.
    Namespaces,
    /// Mounting and entering the empty root.
    Root,
    /// Becoming the unprivileged user.
    Identity,
    /// Giving up capabilities.
    Capabilities,
    /// Setting resource limits.
    ResourceLimits,
    /// Installing the seccomp filter.
    Filter,
    /// Executing the program.
    Execute,
    /// Saying how it went: the process was not heard of again.
    Report,
}

impl std::fmt::Display for Step {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Specification => "reading the specification",
            Self::Descriptor => "opening a descriptor",
            Self::Cgroup => "setting up the cgroup",
            Self::Namespaces => "making the namespaces",
            Self::Root => "entering the empty root",
            Self::Identity => "becoming the unprivileged user",
            Self::Capabilities => "giving up capabilities",
            Self::ResourceLimits => "setting resource limits",
            Self::Filter => "installing the seccomp filter",
            Self::Execute => "executing the program",
            Self::Report => "hearing from the started process",
        })
    }
}

impl Report {
    /// The magic.
    pub const FORMAT: &'static str = "hutch-jail-report";
    /// The version.
    pub const VERSION: u32 = 1;

    /// A report of this outcome.
    pub fn new(outcome: Outcome) -> Self {
        Self { format: Self::FORMAT.to_owned(), version: Self::VERSION, outcome }
    }

    /// Reads a report; `None` when the text is none, or of another version.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let report: Self = serde_json::from_slice(text).ok()?;
        (report.format == Self::FORMAT && report.version == Self::VERSION).then_some(report)
    }
}
