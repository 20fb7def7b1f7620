//! Amounts of memory and storage.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount of memory or storage in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// An amount of memory or storage in mebibytes (2^20 bytes), the unit of shapes on the wire.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Mebibytes(pub u32);

impl Mebibytes {
    /// The same amount in bytes. Cannot overflow: 2^32 MiB is 2^52 bytes.
    pub const fn bytes(self) -> Bytes {
        Bytes((self.0 as u64) << 20)
    }
}

impl Bytes {
    /// Whole mebibytes, rounded up.
    pub const fn mebibytes_ceiling(self) -> u64 {
        self.0.div_ceil(1 << 20)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut scaled = self.0 as f64;
        let mut unit = 0;
        while scaled >= 1024.0 && unit + 1 < UNITS.len() {
            scaled /= 1024.0;
            unit += 1;
        }
        if unit == 0 { write!(out, "{} B", self.0) } else { write!(out, "{scaled:.1} {}", UNITS[unit]) }
    }
}

impl fmt::Display for Mebibytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Mebibytes(10240).to_string(), "10.0 GiB");
    }

    #[test]
    fn mebibytes_convert_without_loss_at_the_upper_end() {
        assert_eq!(Mebibytes(u32::MAX).bytes().mebibytes_ceiling(), u64::from(u32::MAX));
    }
}
