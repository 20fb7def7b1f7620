//! What the guest asks for itself: its pause or its end, over HTTP on the loopback interface and by a FIFO.
//! Anybody in the guest may ask, and nobody there can make the agent wait.

pub(crate) mod signal;

pub(crate) mod request;

pub(crate) mod words;

pub(crate) mod conversation;

pub(crate) mod server;

pub(crate) mod sources;

pub(crate) mod watchers;

pub(crate) use signal::SelfSignal;
pub(crate) use sources::Sources;
pub(crate) use watchers::Watchers;
