//! The engine that runs Linux's user-mode port as a jailed process.

mod options;

pub use options::Options;
