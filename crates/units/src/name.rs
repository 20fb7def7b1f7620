//! Names that users give.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of a sandbox: its host name in the guest and a DNS label, so 1 to 63 of `a-z`, `0-9` and `-`,
/// beginning and ending with a letter or digit (RFC 1123, section 2.1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxName(String);

/// Why a text is not a sandbox name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or longer than a DNS label may be.
    #[error("a name has 1 to 63 characters, this one has {0}")]
    Length(usize),
    /// A character that no DNS label has.
    #[error("a name has only a-z, 0-9 and '-', this one has {0:?}")]
    Character(char),
    /// Begins or ends with a hyphen.
    #[error("a name begins and ends with a letter or a digit")]
    Edge,
    /// Reads like an id, so that a look-up by name or id would be ambiguous.
    #[error("a name does not have the form of an id")]
    LooksLikeId,
}

/// The name of a snapshot: what keeps to the rules of a DNS label, or has dots between such parts, like `v1.2`; 1 to
/// 63 characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotName(String);

/// Why a text is not a snapshot name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotNameError {
    /// Empty or too long.
    #[error("a snapshot's name has 1 to 63 characters, this one has {0}")]
    Length(usize),
    /// A character that no name has.
    #[error("a snapshot's name has only a-z, 0-9, '-' and '.', this one has {0:?}")]
    Character(char),
    /// A part between dots is empty, or begins or ends with a hyphen.
    #[error("a snapshot's name, and each part of it between dots, begins and ends with a letter or a digit")]
    Edge,
    /// Reads like an id, so that a look-up by name or id would be ambiguous.
    #[error("a snapshot's name does not have the form of an id")]
    LooksLikeId,
}

impl SnapshotName {
    /// Checks a text against the rules. Upper case is not folded: it is refused.
    pub fn parse(text: &str) -> Result<Self, SnapshotNameError> {
        let length = text.chars().count();
        if !(1..=63).contains(&length) {
            return Err(SnapshotNameError::Length(length));
        }
        let wrong = |c: &char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'));
        if let Some(wrong) = text.chars().find(wrong) {
            return Err(SnapshotNameError::Character(wrong));
        }
        if text.split('.').any(|part| part.is_empty() || part.starts_with('-') || part.ends_with('-')) {
            return Err(SnapshotNameError::Edge);
        }
        if text.parse::<crate::SnapshotId>().is_ok() || text.parse::<crate::SandboxId>().is_ok() {
            return Err(SnapshotNameError::LooksLikeId);
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SandboxName {
    /// Checks a text against the rules of a name. Upper case is not folded: it is refused.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let length = text.chars().count();
        if !(1..=63).contains(&length) {
            return Err(NameError::Length(length));
        }
        let wrong = |c: &char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-');
        if let Some(wrong) = text.chars().find(wrong) {
            return Err(NameError::Character(wrong));
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(NameError::Edge);
        }
        if text.parse::<crate::SandboxId>().is_ok() || text.parse::<crate::SnapshotId>().is_ok() {
            return Err(NameError::LooksLikeId);
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

text!(SandboxName);
text!(SnapshotName);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rules() {
        assert!(SandboxName::parse("quick-otter").is_ok());
        assert_eq!(SandboxName::parse(""), Err(NameError::Length(0)));
        assert_eq!(SandboxName::parse(&"a".repeat(64)), Err(NameError::Length(64)));
        assert_eq!(SandboxName::parse("A"), Err(NameError::Character('A')));
        assert_eq!(SandboxName::parse("-a"), Err(NameError::Edge));
        assert_eq!(SandboxName::parse(&crate::SandboxId::generate().to_string()), Err(NameError::LooksLikeId));
    }

    #[test]
    fn the_rules_of_a_snapshot_name() {
        assert!(SnapshotName::parse("v1.2-clean").is_ok());
        assert_eq!(SnapshotName::parse("V1"), Err(SnapshotNameError::Character('V')));
        for wrong in [".", "a..b", ".a", "a.", "-a", "a-.b"] {
            assert_eq!(SnapshotName::parse(wrong), Err(SnapshotNameError::Edge), "{wrong}");
        }
        let id = crate::SnapshotId::generate().to_string();
        assert_eq!(SnapshotName::parse(&id), Err(SnapshotNameError::LooksLikeId));
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_is_a_dns_label(text in ".{0,70}") {
            if let Ok(name) = SandboxName::parse(&text) {
                prop_assert!(!name.as_str().contains(['.', '/', '_', '\n']));
            }
        }
    }
}
