//! How a request names a sandbox, a snapshot and a file.

use std::fmt;

use hutch_units::{SandboxId, SandboxName, SnapshotId, SnapshotName};
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;

/// A sandbox as a path names it: by id or (Addition) by name. A name means the account's living sandbox of that
/// name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxReference {
    /// By id; also finds destroyed sandboxes while they are kept.
    Id(SandboxId),
    /// By name.
    Name(SandboxName),
}

impl SandboxReference {
    /// Reads an id or a name. A text that is neither can name nothing, so the error is "not found".
    pub fn parse(text: &str) -> Result<Self, Error> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        SandboxName::parse(text).map(Self::Name).map_err(|_| Error::not_found("sandbox", text))
    }

    /// The error of an operation that found no such sandbox, or one of another account.
    pub fn not_found(&self) -> Error {
        Error::not_found("sandbox", &self.to_string())
    }
}

impl fmt::Display for SandboxReference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(out),
            Self::Name(name) => name.fmt(out),
        }
    }
}

/// A snapshot as a request names it: by id or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotReference {
    /// By id.
    Id(SnapshotId),
    /// By name.
    Name(SnapshotName),
}

impl SnapshotReference {
    /// Reads an id or a name. A text that is neither can name nothing, so the error is "not found".
    pub fn parse(text: &str) -> Result<Self, Error> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        SnapshotName::parse(text).map(Self::Name).map_err(|_| Error::not_found("snapshot", text))
    }

    /// The error of an operation that found no such snapshot, or one of another account.
    pub fn not_found(&self) -> Error {
        Error::not_found("snapshot", &self.to_string())
    }
}

impl fmt::Display for SnapshotReference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(out),
            Self::Name(name) => name.fmt(out),
        }
    }
}

/// An absolute path in a sandbox: begins with `/`, at most 4095 bytes, no NUL. It may hold `..`, which the guest
/// resolves: a path cannot lead out of the sandbox, because the host never opens it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct GuestPath(String);

impl GuestPath {
    /// Checks a path; `field` is the name of the request's field, for the error.
    pub fn parse(field: &str, text: &str) -> Result<Self, Error> {
        Self::check(text).map_err(|reason| Error::field(field, reason))?;
        Ok(Self(text.to_owned()))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn check(text: &str) -> Result<(), String> {
        if !text.starts_with('/') {
            let shown: String = text.chars().take(80).collect();
            return Err(format!("must be an absolute path like /tmp/file, got {shown:?}"));
        }
        if text.len() > 4095 {
            return Err(format!("has {} bytes, a path has at most 4095", text.len()));
        }
        if text.contains('\0') {
            return Err("contains a NUL character".to_owned());
        }
        Ok(())
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for GuestPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::check(&text).map_err(serde::de::Error::custom)?;
        Ok(Self(text))
    }
}

impl schemars::JsonSchema for GuestPath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GuestPath".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^/", "maxLength": 4095 })
    }
}
