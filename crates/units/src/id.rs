//! Ids: one type for each kind of thing, each with its prefix on the wire.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use ulid::Ulid;

/// The id of a sandbox, `sb-` and a lower-case [ULID](https://github.com/ulid/spec): valid as a DNS label,
/// sorts by time of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxId(Ulid);

/// A text that is no id of the kind asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a sandbox id: expected `sb-` and 26 characters of Crockford base 32")]
pub struct IdError {
    /// The text that was given.
    pub text: String,
}

impl SandboxId {
    const PREFIX: &'static str = "sb-";

    /// A new id, unique by its time stamp and 80 random bits.
    pub fn generate() -> Self {
        Self(Ulid::new())
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", Self::PREFIX, self.0.to_string().to_ascii_lowercase())
    }
}

impl FromStr for SandboxId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let error = || IdError { text: text.chars().take(64).collect() };
        let digits = text.strip_prefix(Self::PREFIX).ok_or_else(error)?;
        let ulid = Ulid::from_string(digits).map_err(|_| error())?;
        // Only the canonical spelling is an id: two spellings would be two rows, two folders, two cgroups.
        let id = Self(ulid);
        if id.to_string() == text { Ok(id) } else { Err(error()) }
    }
}

impl Serialize for SandboxId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SandboxId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for SandboxId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SandboxId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^sb-[0-9a-hjkmnp-tv-z]{26}$" })
    }
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
}
