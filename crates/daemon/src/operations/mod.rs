//! The contract, implemented: [`Daemon`] is the [`Operations`](hutch_api::Operations) of this host.

mod daemon;

mod find;

mod create;

mod sandboxes;

mod pause;

mod fork;

mod snapshots;

mod execute;

mod files;

mod archive;

mod agent_error;

mod host;

mod usage;

#[cfg(test)]
mod tests;

pub(crate) use daemon::Daemon;
