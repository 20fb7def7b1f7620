//! The daemon.

pub mod api_key;
pub mod clock;
pub mod lifecycle;
pub mod store;
