//! Ids: one type for each kind of thing, each with its prefix on the wire.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use ulid::Ulid;

/// A text that is no id of the kind asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the id of a {kind}: expected `{prefix}` and 26 characters of Crockford base 32")]
pub struct IdError {
    /// The kind of thing that was asked for, for example `sandbox`.
    pub kind: &'static str,
    /// What an id of this kind begins with.
    pub prefix: &'static str,
    /// The text that was given.
    pub text: String,
}

macro_rules! id {
    ($(#[doc = $doc:literal])* $name:ident, $kind:literal, $prefix:literal) => {
        $(#[doc = $doc])*
        ///
        /// Its prefix and a lower-case [ULID](https://github.com/ulid/spec): valid as a DNS label, sorts by time of
        /// creation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Ulid);

        impl $name {
            const PREFIX: &'static str = $prefix;

            /// A new id, unique by its time stamp and 80 random bits.
            pub fn generate() -> Self {
                Self(Ulid::new())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "{}{}", Self::PREFIX, self.0.to_string().to_ascii_lowercase())
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let shown = || text.chars().take(64).collect();
                let error = || IdError { kind: $kind, prefix: Self::PREFIX, text: shown() };
                let digits = text.strip_prefix(Self::PREFIX).ok_or_else(error)?;
                let ulid = Ulid::from_string(digits).map_err(|_| error())?;
                // Only the canonical spelling is an id: two spellings would be two rows, two folders, two cgroups.
                let id = Self(ulid);
                if id.to_string() == text { Ok(id) } else { Err(error()) }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let pattern = concat!("^", $prefix, "[0-9a-hjkmnp-tv-z]{26}$");
                schemars::json_schema!({ "type": "string", "pattern": pattern })
            }
        }
    };
}

id! {
    /// The id of a sandbox: `sb-…`.
    SandboxId, "sandbox", "sb-"
}

id! {
    /// The id of a snapshot: `sn-…`.
    SnapshotId, "snapshot", "sn-"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_text_and_is_a_dns_label() {
        let id = SandboxId::generate();
        let text = id.to_string();
        assert_eq!(text.parse(), Ok(id));
        assert!(
            text.len() <= 63
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        );
    }

    #[test]
    fn other_spellings_are_refused() {
        let text = SandboxId::generate().to_string();
        for wrong in ["", "sb-", "../../etc", &text.to_ascii_uppercase(), &text[3..], &format!("{text}0")] {
            assert!(wrong.parse::<SandboxId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_id_of_another_kind_is_refused_by_name() {
        let sandbox = SandboxId::generate().to_string();
        let error = sandbox.parse::<SnapshotId>().unwrap_err().to_string();
        assert!(error.contains("is not the id of a snapshot: expected `sn-`"), "{error}");
    }
}
