//! Images: root file systems and the state of their build on this machine. Addition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Timestamp;

/// An image of the catalogue and how far it is on this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageView {
    /// Its name, for example `debian:13`.
    pub name: String,
    /// How far it is.
    pub status: ImageStatus,
    /// Whether it is used when a create names none.
    pub default: bool,
    /// What is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its size on the host's disk, once ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// When it was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_at: Option<Timestamp>,
    /// What the build does now; present while `building`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<BuildProgress>,
    /// Why the last build failed; present when `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How far an image is on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageStatus {
    /// Known, not built yet: the first create that names it begins the build.
    Absent,
    /// Being built.
    Building,
    /// Ready to use.
    Ready,
    /// The last build failed; the next create or build request tries again.
    Failed,
}

/// What a build does now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BuildProgress {
    /// The step in words, for example `downloading packages`.
    pub step: String,
    /// How much of the whole is done, 0 to 100.
    pub percent: u8,
    /// More about the step, for example the package at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// When the build began.
    pub started_at: Timestamp,
}
