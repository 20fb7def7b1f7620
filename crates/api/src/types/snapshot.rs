//! Snapshots: a sandbox's memory and disk of a moment, kept under a name. Addition.

use std::collections::BTreeMap;

use hutch_units::{SandboxId, SnapshotId, SnapshotName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SandboxReference, Timestamp};

/// A snapshot to take. `{}` is one without a name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CreateSnapshot {
    /// A name, unique among the account's snapshots; 1 to 63 of a-z, 0-9, `-` and `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for, at most 255 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The caller's own marks, with the limits of a sandbox's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "super::sandbox::null_is_default")]
    pub labels: BTreeMap<String, String>,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotView {
    /// Its id.
    pub id: SnapshotId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub name: Option<SnapshotName>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its state.
    pub status: SnapshotStatus,
    /// The sandbox that it was taken of; it may be gone.
    pub sandbox: SandboxId,
    /// The snapshot that this sandbox had come from: created from it, restored to it, or the one taken of it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SnapshotId>,
    /// The sandbox's shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// The sandbox's root file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<String>,
    /// Memory in MiB.
    pub mem_mib: u32,
    /// Size of the writable disk in MiB.
    pub disk_mib: u32,
    /// Bytes that it takes on the machine's disk.
    pub size_bytes: u64,
    /// When it was taken.
    pub created_at: Timestamp,
    /// The caller's own marks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The states of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotStatus {
    /// Being written.
    Creating,
    /// Whole: sandboxes can be made from it.
    Ready,
    /// On the way out.
    Deleting,
}

impl SnapshotStatus {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Deleting => "deleting",
        }
    }
}

/// Which snapshots a list has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotFilter {
    /// Only those taken of this sandbox.
    pub sandbox: Option<SandboxReference>,
    /// Only the one with this name.
    pub name: Option<SnapshotName>,
}

/// The answer to a deleted snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeletedSnapshot {
    /// The snapshot's id.
    pub id: SnapshotId,
    /// Always true.
    pub deleted: bool,
}

/// Which snapshot a sandbox goes back to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreSnapshot {
    /// The snapshot's id or name. It must have been taken of this sandbox, of one that it was forked from, or be the one
    /// that it was created from.
    pub snapshot: String,
}
