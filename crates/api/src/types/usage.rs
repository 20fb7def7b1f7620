//! What sandboxes used. Addition.

use hutch_units::SandboxId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PageRequest, Pagination, SandboxReference, SandboxStatus, Timestamp};

/// A span of time: from `from`, included, to `to`, excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period {
    /// Its beginning; the beginning of all records when absent.
    pub from: Option<Timestamp>,
    /// Its end; now when absent.
    pub to: Option<Timestamp>,
}

/// Whose usage is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// When.
    pub period: Period,
    /// Only this sandbox's.
    pub sandbox: Option<SandboxReference>,
    /// Which part of the list of sandboxes is wanted. The total is always of all.
    pub page: PageRequest,
}

/// What was used in a span of time.
///
/// Time while a sandbox is paused counts for its disk only. All numbers are sums over the sandboxes, so two that ran at
/// once for a minute have used 120 active seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Seconds in which a machine existed.
    pub active_seconds: f64,
    /// Seconds in which it was paused.
    pub paused_seconds: f64,
    /// Processor seconds that it used, the work of its kernel included.
    pub cpu_seconds: f64,
    /// Memory of its shape in MiB × active seconds.
    pub memory_mib_seconds: f64,
    /// Space that its disk and its saved memory took on the machine, in MiB × seconds, active or paused.
    pub disk_mib_seconds: f64,
    /// Bytes that came in from networks.
    pub network_in_bytes: u64,
    /// Bytes that went out to networks.
    pub network_out_bytes: u64,
}

/// What one sandbox used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxUsage {
    /// The sandbox.
    pub id: SandboxId,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its state now; absent when its record is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SandboxStatus>,
    /// What it used.
    #[serde(flatten)]
    pub usage: Usage,
}

/// What an account used in a span of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsageReport {
    /// The beginning of the span; absent when it was not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Its end: as given, or now.
    pub to: Timestamp,
    /// All sandboxes together.
    pub total: Usage,
    /// Each sandbox that used anything, newest first.
    pub sandboxes: Vec<SandboxUsage>,
    /// Which part of that list this is.
    pub pagination: Pagination,
}
