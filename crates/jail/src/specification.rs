//! What to start and in which jail: the JSON on the launcher's standard input.

use std::path::PathBuf;

use hutch_units::{Bytes, SandboxId};
use serde::{Deserialize, Serialize};

use crate::cgroup::Group;

/// One process and its jail.
///
/// `format` and `version` come first and can be read without understanding the rest ([`Specification::parse`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// Always [`Specification::FORMAT`].
    pub format: String,
    /// Always [`Specification::VERSION`]: launcher and service are of one build.
    pub version: u32,
    /// The sandbox that the process belongs to.
    pub id: SandboxId,
    /// The host user and group id that the process gets; also its ids inside. Not 0.
    pub uid: u32,
    /// The program, executed by descriptor: a static one, since the root it will see is empty.
    pub program: PathBuf,
    /// Its arguments, the first being the name it sees of itself.
    pub arguments: Vec<String>,
    /// Its environment, each as `NAME=value`. Nothing of the launcher's own is inherited.
    pub environment: Vec<String>,
    /// A directory to mount the empty root on, in the jail's own mount namespace: the host sees nothing there.
    pub mount_point: PathBuf,
    /// The descriptors that the process begins with, besides 0 (empty), 1 and 2 (the launcher's standard error).
    /// Everything else is closed.
    pub descriptors: Vec<Descriptor>,
    /// The cgroup directories to make and to join before anything of the guest runs.
    pub group: Group,
    /// What the process and its children may use.
    pub limits: Limits,
}

/// One inherited descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Descriptor {
    /// Its number in the process, 3 or more.
    pub number: u32,
    /// What is behind it.
    pub source: Source,
}

/// What is behind an inherited descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// A regular file that can only be read.
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// A regular file that can be read and written.
    ReadWrite {
        /// The file.
        path: PathBuf,
    },
    /// Anonymous memory of this size, all zero.
    Memory {
        /// The size.
        size: Bytes,
    },
    /// A unix stream socket that listens at this path, made with mode 0600. A socket left there is replaced.
    Listener {
        /// The path.
        path: PathBuf,
    },
}

/// What the jailed processes may use, all together unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory: guest memory and what the kernel and its children need beside it. No swap.
    pub memory: Bytes,
    /// Processor time in per cent of one processor.
    pub cpu_percent: u32,
    /// Weight against other sandboxes when processors are short, 1 for each virtual processor.
    pub cpu_weight: u32,
    /// Processes and threads.
    pub processes: u32,
    /// Open files of one process.
    pub open_files: u32,
    /// The largest size any file may be grown to by one process.
    pub file_size: Bytes,
}

/// Why a text is no specification.
#[derive(Debug, thiserror::Error)]
pub enum SpecificationError {
    /// Not JSON, or without the fields of a specification.
    #[error("the specification cannot be read")]
    Syntax(#[source] serde_json::Error),
    /// Of another format or version: launcher and service are not of one build.
    #[error(
        "the specification is {format:?} version {version}, this launcher reads {} version {}",
        Specification::FORMAT,
        Specification::VERSION
    )]
    Version {
        /// The format it says.
        format: String,
        /// The version it says.
        version: u32,
    },
    /// A field has a value that no jail may have.
    #[error("field `{field}` of the specification: {rule}")]
    Field {
        /// The field.
        field: &'static str,
        /// The rule that it breaks.
        rule: &'static str,
    },
}

/// What any version of a specification begins with.
#[derive(Debug, Deserialize)]
struct Header {
    format: String,
    version: u32,
}

impl Specification {
    /// The magic.
    pub const FORMAT: &'static str = "hutch-jail-specification";
    /// The version.
    pub const VERSION: u32 = 1;
    /// The highest number that an inherited descriptor may have.
    pub const HIGHEST_DESCRIPTOR: u32 = 63;

    /// Reads a specification and checks its rules.
    ///
    /// # Errors
    /// Says what is wrong; a version that is not ours before anything else.
    pub fn parse(text: &[u8]) -> Result<Self, SpecificationError> {
        let header: Header = serde_json::from_slice(text).map_err(SpecificationError::Syntax)?;
        if header.format != Self::FORMAT || header.version != Self::VERSION {
            return Err(SpecificationError::Version { format: header.format, version: header.version });
        }
        let specification: Self = serde_json::from_slice(text).map_err(SpecificationError::Syntax)?;
        specification.check()?;
        Ok(specification)
    }

    fn check(&self) -> Result<(), SpecificationError> {
        let rule = |holds: bool, field: &'static str, rule: &'static str| {
            if holds { Ok(()) } else { Err(SpecificationError::Field { field, rule }) }
        };
        rule(self.uid != 0 && self.uid != u32::MAX, "uid", "0 and 4294967295 are no unprivileged user")?;
        rule(self.program.is_absolute(), "program", "must be an absolute path")?;
        rule(self.mount_point.is_absolute(), "mount_point", "must be an absolute path")?;
        rule(!self.arguments.is_empty(), "arguments", "must begin with the program's name")?;
        let nul = self.arguments.iter().chain(&self.environment).any(|text| text.contains('\0'));
        rule(!nul, "arguments", "neither arguments nor environment contain NUL")?;
        let number = |descriptor: &Descriptor| (3..=Self::HIGHEST_DESCRIPTOR).contains(&descriptor.number);
        rule(self.descriptors.iter().all(number), "descriptors", "numbers are 3 to 63")?;
        let mut numbers: Vec<u32> = self.descriptors.iter().map(|descriptor| descriptor.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        rule(numbers.len() == self.descriptors.len(), "descriptors", "each number stands once")?;
        rule(!self.group.directories.is_empty(), "group", "a jail has a cgroup")?;
        rule(self.limits.memory.0 > 0, "limits.memory", "must not be 0")?;
        rule(self.limits.cpu_percent > 0, "limits.cpu_percent", "must not be 0")?;
        rule(self.limits.cpu_weight > 0, "limits.cpu_weight", "must not be 0")?;
        rule(self.limits.processes > 0, "limits.processes", "must not be 0")
    }
}
