//! The asynchronous client of the agent in a guest.

/// A connection to the agent of one machine.
#[derive(Debug, Clone)]
pub struct Client {
    _private: (),
}

/// Why the agent could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection ended: the guest is gone or the agent is.
    #[error("the connection to the agent was lost")]
    Lost,
}
