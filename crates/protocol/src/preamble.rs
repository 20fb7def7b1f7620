//! The first sixteen bytes of each direction.

/// Length of a preamble in bytes.
pub const LENGTH: usize = 16;

/// The first eight bytes of every connection, both ways.
pub const MAGIC: [u8; 8] = *b"hutch\r\n\0";

/// The newest generation of the protocol that this crate speaks.
pub const GENERATION: u16 = 1;

/// The oldest generation that this crate still speaks.
pub const OLDEST: u16 = 1;

/// What a side says about itself before anything else. The layout never changes: magic (8), generation
/// (u16), oldest generation still spoken (u16), zero (u32); little endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// Newest generation that the sender speaks.
    pub generation: u16,
    /// Oldest generation that the sender speaks.
    pub oldest: u16,
}

/// Why a preamble was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PreambleError {
    /// The other end is no end of this protocol.
    #[error("the connection does not begin with the magic of the agent protocol")]
    Magic,
    /// There is no generation that both ends speak.
    #[error(
        "the other end speaks generations {oldest} to {generation} of the agent protocol, this end {OLDEST} to {GENERATION}"
    )]
    Generation {
        /// Newest generation of the other end.
        generation: u16,
        /// Oldest generation of the other end.
        oldest: u16,
    },
}

impl Preamble {
    /// The preamble of this crate.
    pub const OURS: Self = Self { generation: GENERATION, oldest: OLDEST };

    /// The bytes to send.
    pub fn encode(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.generation.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.oldest.to_le_bytes());
        bytes
    }

    /// Reads a preamble; its last four bytes are reserved and ignored.
    pub fn decode(bytes: &[u8; LENGTH]) -> Result<Self, PreambleError> {
        if bytes[..8] != MAGIC {
            return Err(PreambleError::Magic);
        }
        let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Ok(Self { generation: number(8), oldest: number(10) })
    }

    /// The generation to speak with an end that sent `self`: the newest that both know.
    pub fn agree(self) -> Result<u16, PreambleError> {
        let newest = self.generation.min(GENERATION);
        if self.oldest <= self.generation && newest >= self.oldest.max(OLDEST) {
            Ok(newest)
        } else {
            Err(PreambleError::Generation { generation: self.generation, oldest: self.oldest })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_agree_on_the_newest_common_generation() {
        assert_eq!(Preamble::OURS.agree(), Ok(GENERATION));
        assert_eq!(Preamble { generation: GENERATION + 7, oldest: OLDEST }.agree(), Ok(GENERATION));
        let newer = Preamble { generation: GENERATION + 7, oldest: GENERATION + 1 };
        assert!(matches!(newer.agree(), Err(PreambleError::Generation { .. })));
        assert!(Preamble { generation: 0, oldest: 0 }.agree().is_err());
        assert!(Preamble { generation: 1, oldest: 2 }.agree().is_err());
    }

    #[test]
    fn another_protocol_is_told_apart() {
        assert_eq!(Preamble::decode(b"GET / HTTP/1.1\r\n"), Err(PreambleError::Magic));
        assert_eq!(Preamble::decode(&Preamble::OURS.encode()), Ok(Preamble::OURS));
    }
}
