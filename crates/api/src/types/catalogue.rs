//! The service itself: health, identity, what there is to choose from.

use hutch_units::Shape;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer of `/healthz`: the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Always true.
    pub up: bool,
}

/// The answer of `/readyz`: 200 when sandboxes can be created, 503 when not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// Whether sandboxes can be created now.
    pub ready: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Who the caller is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhoAmI {
    /// The account.
    pub user_id: String,
    /// The account's sandboxes.
    pub stats: Stats,
}

/// How many sandboxes an account has. Ended ones (`destroyed`, `failed`) do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// In the state `running`.
    pub running: u64,
    /// In the state `paused`.
    pub paused: u64,
    /// In any other living state.
    pub other: u64,
    /// The sum.
    pub total: u64,
}

/// A size that a sandbox can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShapeView {
    /// The id to give at create.
    pub id: String,
    /// Virtual processors.
    pub vcpu: u32,
    /// Memory in MiB.
    pub mem_mib: u32,
    /// Disk in MiB when the request names none.
    pub default_disk_mib: u32,
    /// Upper bound of processor time in per cent of one processor; absent means no bound beyond `vcpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota_pct: Option<u32>,
}

impl From<&Shape> for ShapeView {
    fn from(shape: &Shape) -> Self {
        Self {
            id: shape.id.to_owned(),
            vcpu: shape.vcpu,
            mem_mib: shape.memory.0,
            default_disk_mib: shape.default_disk.0,
            cpu_quota_pct: shape.cpu_quota_percent,
        }
    }
}

/// The root file systems that a sandbox can have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RootfsCatalogue {
    /// Their names.
    pub rootfs: Vec<String>,
    /// The one that is used when a request names none.
    pub default: String,
    /// More about each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<RootfsEntry>,
}

/// One root file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RootfsEntry {
    /// The name to give at create.
    pub name: String,
    /// What is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether a newer one should be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// The newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
}

/// A machine that runs sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostView {
    /// The machine's id.
    pub id: String,
    /// Whether it takes new sandboxes.
    pub status: HostStatus,
    /// Memory for further sandboxes in MiB.
    pub free_mib: u64,
    /// Sandboxes that run on it.
    pub vm_count: u64,
    /// Root file systems that are built on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfses: Option<Vec<String>>,
}

/// Whether a machine takes new sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HostStatus {
    /// It does.
    Active,
    /// It does not; those that run may end.
    Draining,
    /// It is gone.
    Dead,
}
