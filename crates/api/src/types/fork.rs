//! Copies of a sandbox.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SandboxView;

/// How a copy of a sandbox shall differ from it; `{}` is a copy with an identity of its own and nothing else changed.
///
/// A copy has the memory, the processes and the disk of the moment of the fork; its id, name, host name, machine id and
/// random numbers are its own. Labels, environment, egress, ingress and idle limits are the source's unless they are
/// given here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ForkSandbox {
    /// Whether the copy is left paused, ready to resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_paused: Option<bool>,
    /// Public keys in the form of OpenSSH, in place of the source's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_pubkeys: Option<Vec<String>>,
    /// What the guest may connect to, in place of the source's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<String>>,
    /// Whether ports of the guest get a public URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_enabled: Option<bool>,
    /// Environment of every command, in place of the source's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envs: Option<BTreeMap<String, String>>,
    /// Must be absent or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_quota_bytes: Option<i64>,
    /// Addition: how many copies, 1 to 100, all of the same moment. With it the answer is a list. All or none: when one
    /// cannot be made, the others are taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub count: Option<u32>,
    /// Addition: the copy's name; with `count` the copies are called `name-1`, `name-2`, … Made up when absent or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Addition: all labels, in place of the source's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Addition: pause after this many idle seconds, 60 to 86400, in place of the source's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_pause_after_seconds: Option<u32>,
    /// Addition: never pause for idleness, whatever the source does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_auto_pause: Option<bool>,
    /// Addition: destroy after this many idle seconds, 60 to 31536000, in place of the source's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_destroy_after_seconds: Option<u32>,
    /// Addition: never destroy for idleness, whatever the source does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_auto_destroy: Option<bool>,
    /// Addition: destroy the copy this many seconds after the fork, whatever it does; 1 to 31536000. An end of the source
    /// is not carried over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<u32>,
}

impl ForkSandbox {
    /// Copies of one call at most.
    pub const MAX_COUNT: u32 = 100;

    /// How many copies.
    pub fn copies(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    /// The name that the request gives to the copy at this position, from 0.
    pub fn name_of(&self, position: u32) -> Option<String> {
        let name = self.name.as_ref()?;
        Some(if self.count.is_some() { format!("{name}-{}", position + 1) } else { name.clone() })
    }
}

/// The answer to a fork with a count: the copies, in the order of their names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForkedSandboxes {
    /// The copies.
    pub sandboxes: Vec<SandboxView>,
}

/// The answer to a fork: one sandbox, or with `count` a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ForkAnswer {
    /// With `count`.
    Many(ForkedSandboxes),
    /// Without.
    One(Box<SandboxView>),
}
