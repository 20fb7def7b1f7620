//! API keys: made once, shown once, kept only as a digest.
//!
//! A key is `skp_` and 64 hexadecimal digits, 256 bits from the kernel's generator. What the store keeps is its
//! SHA-256. A slow password hash would add nothing here: those exist because people choose guessable passwords,
//! and nobody guesses 256 random bits however fast the hash is; but it would cost each request milliseconds.
//! The digest is compared in constant time all the same, so that no clock tells how much of it was right.

use std::fmt;

use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};

/// A key in clear. `Debug` and logs see only its [`ApiKey::hint`].
#[derive(Clone)]
pub struct ApiKey(String);

/// What the store keeps of a key.
#[derive(Debug, Clone, Copy)]
pub struct KeyDigest([u8; 32]);

/// The kernel gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's random generator failed")]
pub struct RandomError(#[source] rustix::io::Errno);

impl ApiKey {
    const PREFIX: &'static str = "skp_";
    /// `skp_` and eight digits: enough to tell keys apart in a list, and 224 bits short of the key.
    const HINT_LENGTH: usize = 12;

    /// A new key from the kernel's generator.
    ///
    /// # Errors
    /// [`RandomError`] when the kernel has no `getrandom`.
    pub fn generate() -> Result<Self, RandomError> {
        let mut bytes = [0_u8; 32];
        let mut filled = 0;
        while filled < bytes.len() {
            match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(RandomError(errno)),
            }
        }
        Ok(Self(format!("{}{}", Self::PREFIX, hexadecimal(&bytes))))
    }

    /// The key as its owner sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The part of the key that may be shown and stored in clear.
    pub fn hint(&self) -> &str {
        Self::hint_of(&self.0)
    }

    /// The hint of a text that claims to be a key; the whole text when it is shorter.
    pub fn hint_of(text: &str) -> &str {
        text.get(..Self::HINT_LENGTH).unwrap_or(text)
    }

    /// The digest to store.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::of(&self.0)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ApiKey({}…)", self.hint())
    }
}

impl KeyDigest {
    /// The digest of what a caller sent.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// The digest as the store returns it; `None` when the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The digest's bytes, to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether both are the same, in a time that does not depend on where they differ.
    pub fn matches(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0_u8, |sum, (a, b)| sum | std::hint::black_box(a ^ b));
        std::hint::black_box(difference) == 0
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_long_random_and_hidden() {
        let key = ApiKey::generate().unwrap();
        let other = ApiKey::generate().unwrap();
        assert_eq!(key.reveal().len(), 4 + 64);
        assert!(key.reveal().starts_with("skp_") && !key.reveal().starts_with("skp_sb_"));
        assert_ne!(key.reveal(), other.reveal());
        assert!(!format!("{key:?}").contains(&key.reveal()[12..]));
        assert_eq!(ApiKey::hint_of("é"), "é");
    }

    #[test]
    fn digests_match_only_themselves() {
        let digest = KeyDigest::of("skp_a");
        assert!(digest.matches(&KeyDigest::of("skp_a")));
        assert!(!digest.matches(&KeyDigest::of("skp_b")));
        assert!(KeyDigest::from_bytes(digest.as_bytes()).is_some_and(|copy| copy.matches(&digest)));
        assert!(KeyDigest::from_bytes(&[0; 31]).is_none());
    }
}
