//! Sandboxes: what is asked for at create, and how one looks.

use std::collections::BTreeMap;

use hutch_units::{SandboxId, SandboxName, SnapshotId};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::Timestamp;

/// A sandbox to create. Only `shape` is required, or in its place `snapshot`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CreateSandbox {
    /// The id of a shape. With `snapshot` it may be absent; when given it must be the snapshot's.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "null_is_default")]
    pub shape: String,
    /// The name of a root file system; the default one when absent or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<String>,
    /// A name, unique among the account's living sandboxes; host name in the guest. Made up when absent or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Size of the writable disk in MiB; the shape's default when absent or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mib: Option<u32>,
    /// Environment of every command. Keys are `[A-Za-z_][A-Za-z0-9_]*`; at most 64, 4096 bytes a value, 64 KiB in all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub envs: BTreeMap<String, String>,
    /// Networks to join.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub networks: Vec<NetworkReference>,
    /// What the guest may connect to; absent, empty or `["*"]` is everything.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub egress: Vec<String>,
    /// Public keys in the form of OpenSSH.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub ssh_pubkeys: Vec<String>,
    /// The machine to run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// Labels that the machine must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub node_selector: BTreeMap<String, String>,
    /// Whether ports of the guest get a public URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_enabled: Option<bool>,
    /// Disks to mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub disks: Vec<DiskMount>,
    /// The region, which must be the service's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Pause after this many idle seconds, 60 to 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_pause_after_seconds: Option<u32>,
    /// Must be absent or 0 at create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_quota_bytes: Option<i64>,
    /// Addition: the caller's own marks, to find sandboxes by. At most 64, keys of 1 to 63 characters, values of at
    /// most 255.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub labels: BTreeMap<String, String>,
    /// Addition: a text of the caller's, 1 to 255 characters. A create with a key that came before answers with the
    /// sandbox of then. The header `Idempotency-Key` says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Addition: the engine, `auto` or `usermode`; `auto` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Addition: destroy the sandbox this many seconds after its creation, whatever it does; 1 to 31536000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<u32>,
    /// Addition: destroy the sandbox after this many idle seconds, 60 to 31536000. Paused time counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_destroy_after_seconds: Option<u32>,
    /// Addition: a snapshot, by id or name, that the sandbox begins as: its memory, processes and disk, with an identity
    /// of its own. Shape, root file system and disk size are the snapshot's: absent, or the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// A network, by id or name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkReference {
    /// The network's id or name.
    pub id: String,
}

/// A disk and where it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskMount {
    /// The disk's id or name.
    pub disk_id: String,
    /// Where in the guest.
    pub mount_path: String,
    /// A folder of the disk instead of the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
}

/// The states of a sandbox. `failed` and `destroyed` are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxStatus {
    /// Being made.
    Creating,
    /// Its agent answers.
    Running,
    /// On the way to `paused`.
    Pausing,
    /// Saved, using no memory or processor.
    Paused,
    /// On the way to `running`.
    Resuming,
    /// Being copied.
    Forking,
    /// Something failed that may be tried again.
    Error,
    /// On the way to `destroyed`.
    Destroying,
    /// Gone.
    Destroyed,
    /// It never came to run, or its kernel died.
    Failed,
}

impl SandboxStatus {
    /// Every state there is.
    pub const ALL: [Self; 10] = [
        Self::Creating,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::Resuming,
        Self::Forking,
        Self::Error,
        Self::Destroying,
        Self::Destroyed,
        Self::Failed,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::Forking => "forking",
            Self::Error => "error",
            Self::Destroying => "destroying",
            Self::Destroyed => "destroyed",
            Self::Failed => "failed",
        }
    }

    /// The state of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether nothing follows.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Destroyed | Self::Failed)
    }
}

/// Addition: what separates the guest from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Hardware virtualization, and a jail around it.
    Vm,
    /// A Linux kernel of the sandbox's own, run as an unprivileged process in a jail.
    UserKernel,
    /// A JavaScript engine in a jailed process.
    Isolate,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxView {
    /// Its id.
    pub id: SandboxId,
    /// Its state.
    pub status: SandboxStatus,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub name: Option<SandboxName>,
    /// Its address in a network; absent while it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Its shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Its root file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<String>,
    /// Virtual processors.
    pub vcpu: u32,
    /// Memory in MiB.
    pub mem_mib: u32,
    /// Size of the writable disk in MiB.
    pub disk_mib: u32,
    /// How long it took from the request to the agent's first answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawn_ms: Option<f64>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it first ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_at: Option<Timestamp>,
    /// When it was destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroyed_at: Option<Timestamp>,
    /// When it was paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// When it was last resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_resumed_at: Option<Timestamp>,
    /// Whether ports of the guest have a public URL.
    pub ingress_enabled: bool,
    /// That URL, with the literal text `<port>`; present while ingress is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_url_template: Option<String>,
    /// The region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What the guest may connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<String>>,
    /// The keys of its environment; values are never returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envs: Option<Vec<String>>,
    /// Public keys in the form of OpenSSH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_pubkeys: Option<Vec<String>>,
    /// The account that created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// Bytes that came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_ingress_bytes: Option<u64>,
    /// The sandbox that it was copied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<SandboxId>,
    /// Idle seconds until it pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_pause_after_seconds: Option<u32>,
    /// Addition: idle seconds until it is destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_destroy_after_seconds: Option<u32>,
    /// Addition: the snapshot that it was created from or last restored to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// Addition: the caller's own marks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Addition: the engine that runs its kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Addition: what separates it from the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Addition: how far its network reaches. `loopback`: it has no network but its own loopback interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Addition: when it will be destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Addition: why its state is `error` or `failed`, or why it paused or ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The answer to a create: the sandbox, running.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedSandbox {
    /// The sandbox.
    #[serde(flatten)]
    pub sandbox: SandboxView,
    /// Bytes that it may send; -1 is without bound.
    pub bandwidth_quota_bytes: i64,
    /// Addition: the sandbox was there already, from an earlier request with the same idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<bool>,
}

/// What to change of a sandbox; what is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct UpdateSandbox {
    /// Whether ports of the guest get a public URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_enabled: Option<bool>,
    /// Pause after this many idle seconds, 60 to 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_pause_after_seconds: Option<u32>,
    /// Never pause for idleness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_auto_pause: Option<bool>,
    /// Addition: all labels, in place of those it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Addition: destroy it this many seconds from now; 0 takes an end away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<u32>,
    /// Addition: destroy after this many idle seconds, 60 to 31536000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_destroy_after_seconds: Option<u32>,
    /// Addition: never destroy for idleness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_auto_destroy: Option<bool>,
}

/// When a pause or a resume answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Until {
    /// At once, with the state `pausing` or `resuming`; or the final state when it takes no time.
    Accepted,
    /// When the sandbox is paused or running; an error when that fails.
    Settled,
}

/// The answer to a destroy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DestroyedSandbox {
    /// The sandbox's id.
    pub id: SandboxId,
    /// `destroying` or `destroyed`.
    pub status: SandboxStatus,
}

/// Which sandboxes a list has. Without a state, all that have not ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxFilter {
    /// Only those in this state.
    pub status: Option<SandboxStatus>,
    /// Addition: only those with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Addition: only the one with this name.
    pub name: Option<SandboxName>,
}

/// Clients of several languages write `null` where they mean an empty list or map.
pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
