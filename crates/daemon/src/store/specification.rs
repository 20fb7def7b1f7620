//! What was asked for, as the store keeps it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

/// The version of [`Spec`] that this program writes, and the newest that it reads.
pub const SPEC_VERSION: u32 = 1;

/// What a sandbox was created with. It does not change afterwards; what may change has columns of its own.
///
/// Persisted as JSON; the version comes first and can be read without understanding the rest. Fields are only
/// ever added, with a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// [`SPEC_VERSION`] of the writer.
    pub version: u32,
    /// The engine that runs it, in its word on the wire.
    pub engine: String,
    /// The id of the shape.
    pub shape: String,
    /// Virtual processors.
    pub vcpu: u32,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Upper bound of processor time in per cent of one processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota_percent: Option<u32>,
    /// Size of the writable disk in MiB.
    pub disk_mib: u32,
    /// The name of the image.
    pub rootfs: String,
    /// The image's file, so that an adopted machine is described as it was started even when the name has since
    /// come to mean a newer build.
    #[serde(default)]
    pub base_image: PathBuf,
    /// Variables that every command sees.
    #[serde(default)]
    pub envs: BTreeMap<String, String>,
    /// Rules for what the guest may reach.
    #[serde(default)]
    pub egress: Vec<String>,
    /// Keys that may log in.
    #[serde(default)]
    pub ssh_pubkeys: Vec<String>,
    /// The key that made it, for `created_by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
}

impl ToSql for Spec {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        serde_json::to_string(self)
            .map(ToSqlOutput::from)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
    }
}

impl FromSql for Spec {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        #[derive(Deserialize)]
        struct Header {
            version: u32,
        }
        let text = value.as_str()?;
        let other = |error: serde_json::Error| FromSqlError::Other(Box::new(error));
        let Header { version } = serde_json::from_str(text).map_err(other)?;
        if version > SPEC_VERSION {
            let problem = format!("the specification has version {version}, this program knows up to {SPEC_VERSION}");
            return Err(FromSqlError::Other(problem.into()));
        }
        serde_json::from_str(text).map_err(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_form_is_read_and_written() {
        let golden = r#"{"version":1,"engine":"usermode","shape":"s-1vcpu-256mb","vcpu":1,"memory_mib":256,"cpu_quota_percent":50,"disk_mib":10240,"rootfs":"debian:13","base_image":"/cache/a.erofs","envs":{"A":"1"},"egress":["example.com"],"ssh_pubkeys":["ssh-ed25519 AAAA"],"created_by":"key-1"}"#;
        let spec = Spec::column_result(ValueRef::Text(golden.as_bytes())).unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), golden);
    }

    #[test]
    fn what_version_1_left_out_has_a_default() {
        let least =
            r#"{"version":1,"engine":"usermode","shape":"s","vcpu":1,"memory_mib":256,"disk_mib":1,"rootfs":"r"}"#;
        let spec = Spec::column_result(ValueRef::Text(least.as_bytes())).unwrap();
        assert!(spec.envs.is_empty() && spec.cpu_quota_percent.is_none());
    }

    #[test]
    fn a_newer_form_is_refused_before_it_is_decoded() {
        let error = Spec::column_result(ValueRef::Text(br#"{"version":2,"shape":7}"#)).unwrap_err();
        assert!(matches!(&error, FromSqlError::Other(why) if why.to_string().contains("version 2")), "{error}");
    }
}
