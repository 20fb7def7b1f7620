//! A self signal.

use hutch_protocol::machine::SelfAction;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelfSignal {
    /// Pause or delete.
    pub(crate) action: SelfAction,
    /// Why, if that was said.
    pub(crate) reason: Option<String>,
}
