//! What the service knows about its machine: prerequisites and artefacts. Addition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether this machine can run sandboxes, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// One finding for each prerequisite, in the order in which they matter.
    pub findings: Vec<Finding>,
}

impl DoctorReport {
    /// Whether no check failed.
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.status != CheckStatus::Failed)
    }
}

/// One prerequisite: what was looked for, what was found, what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// What was looked for, for example `cgroup memory controller`.
    pub check: String,
    /// The verdict.
    pub status: CheckStatus,
    /// What was found.
    pub found: String,
    /// What to do about it; present when there is something to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// As it should be.
    Ok,
    /// Works with a limit that the caller should know.
    Warning,
    /// Sandboxes cannot run until it is repaired.
    Failed,
}

/// Everything on the host that exists for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditReport {
    /// Each artefact with its owner.
    pub artefacts: Vec<Artefact>,
}

impl AuditReport {
    /// The artefacts that belong to no living sandbox.
    pub fn orphans(&self) -> impl Iterator<Item = &Artefact> {
        self.artefacts.iter().filter(|artefact| artefact.owner.is_none())
    }
}

/// One thing on the host: a process, a cgroup, a mount, a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artefact {
    /// What it is.
    pub kind: ArtefactKind,
    /// Which one: a pid, a path, an id.
    pub name: String,
    /// The living sandbox that it belongs to; absent for an orphan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// More about it, for example the command line of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What an artefact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArtefactKind {
    /// A process.
    Process,
    /// A control group.
    Cgroup,
    /// A mount.
    Mount,
    /// A file or folder.
    File,
    /// A namespace kept alive by a mount or a process.
    Namespace,
    /// A row of the store without its artefacts.
    Row,
}
