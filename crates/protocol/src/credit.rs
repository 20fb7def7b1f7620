//! Credit: how much a side may still send on a channel of a stream.
//!
//! Every channel of every stream begins with [`INITIAL`] bytes of credit in the direction in which it
//! carries data. Sending takes from it, a `Credit` frame adds to it. The receiver grants what its consumer
//! has taken away, so that what lies between the two ends is never more than the window.

/// Bytes of credit with which every channel begins.
pub const INITIAL: u32 = 256 << 10;

/// The most credit that a channel may ever have.
pub const MAX: u32 = 64 << 20;

/// The sender's side of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendCredit(u32);

/// The receiver's side of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveCredit {
    /// What the other end may still send.
    outstanding: u32,
    /// What the consumer took and has not been granted again.
    owed: u32,
    /// What `outstanding` and unread bytes add up to.
    window: u32,
}

/// A violation of the accounting by the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CreditError {
    /// More data than there was credit for.
    #[error("{sent} bytes arrived where only {allowed} were allowed")]
    Overrun {
        /// Bytes that came.
        sent: usize,
        /// Bytes that had credit.
        allowed: u32,
    },
    /// More credit than a channel may have.
    #[error("credit of {granted} bytes on top of {held}: more than a channel may have")]
    Overflow {
        /// Credit that came.
        granted: u32,
        /// Credit that there was.
        held: u32,
    },
}

impl Default for SendCredit {
    fn default() -> Self {
        Self(INITIAL)
    }
}

impl SendCredit {
    /// Bytes that may be sent now.
    pub fn available(self) -> usize {
        self.0 as usize
    }

    /// `count` bytes are being sent. The caller has checked [`SendCredit::available`]; a larger count takes all.
    pub fn take(&mut self, count: usize) {
        self.0 = self.0.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// A `Credit` frame has come.
    pub fn grant(&mut self, granted: u32) -> Result<(), CreditError> {
        match self.0.checked_add(granted) {
            Some(sum) if sum <= MAX => {
                self.0 = sum;
                Ok(())
            }
            _ => Err(CreditError::Overflow { granted, held: self.0 }),
        }
    }
}

impl Default for ReceiveCredit {
    fn default() -> Self {
        Self { outstanding: INITIAL, owed: 0, window: INITIAL }
    }
}

impl ReceiveCredit {
    /// Data of `count` bytes has come.
    pub fn received(&mut self, count: usize) -> Result<(), CreditError> {
        let overrun = CreditError::Overrun { sent: count, allowed: self.outstanding };
        let count = u32::try_from(count).map_err(|_| overrun)?;
        self.outstanding = self.outstanding.checked_sub(count).ok_or(overrun)?;
        Ok(())
    }

    /// The consumer took `count` bytes away. Returns the credit to grant now: nothing until half a window is
    /// owed, so that small reads do not each cost a frame.
    #[must_use]
    pub fn consumed(&mut self, count: usize) -> Option<u32> {
        let unread = self.window - self.outstanding - self.owed;
        self.owed += u32::try_from(count).unwrap_or(u32::MAX).min(unread);
        if self.owed >= self.window / 2 { self.grant_owed() } else { None }
    }

    /// Makes the window larger, to at most [`MAX`]. Returns the credit to grant for it.
    #[must_use]
    pub fn widen(&mut self, window: u32) -> Option<u32> {
        let more = window.min(MAX).saturating_sub(self.window);
        self.window += more;
        self.outstanding += more;
        (more > 0).then_some(more)
    }

    /// Bytes that the other end may still send.
    pub fn outstanding(self) -> u32 {
        self.outstanding
    }

    fn grant_owed(&mut self) -> Option<u32> {
        let grant = std::mem::take(&mut self.owed);
        self.outstanding += grant;
        (grant > 0).then_some(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_other_end_cannot_overrun_or_overflow() {
        let mut receive = ReceiveCredit::default();
        assert_eq!(receive.received(INITIAL as usize), Ok(()));
        assert_eq!(receive.received(1), Err(CreditError::Overrun { sent: 1, allowed: 0 }));
        let mut send = SendCredit::default();
        assert!(send.grant(u32::MAX).is_err());
        assert!(send.grant(MAX).is_err());
        assert_eq!(send.available(), INITIAL as usize);
    }

    proptest! {
        /// Whatever the order of sends and reads: both ends agree, and no more than the window lies between them.
        #[test]
        fn both_ends_agree(steps in prop::collection::vec((any::<bool>(), 0_usize..400_000), 0..200), wide in any::<bool>()) {
            let (mut send, mut receive, mut unread) = (SendCredit::default(), ReceiveCredit::default(), 0_usize);
            let mut window = INITIAL as usize;
            if wide {
                window = 1 << 20;
                send.grant(receive.widen(1 << 20).unwrap()).unwrap();
            }
            for (sends, amount) in steps {
                if sends {
                    let amount = amount.min(send.available());
                    send.take(amount);
                    receive.received(amount).unwrap();
                    unread += amount;
                } else {
                    let amount = amount.min(unread);
                    unread -= amount;
                    if let Some(grant) = receive.consumed(amount) {
                        send.grant(grant).unwrap();
                    }
                }
                prop_assert_eq!(send.available(), receive.outstanding() as usize);
                prop_assert!(unread + send.available() <= window);
                // Never stuck: a consumer that has read everything leaves at least half a window.
                prop_assert!(unread > 0 || send.available() >= window / 2);
            }
        }
    }
}
