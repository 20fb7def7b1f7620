//! The daemon: implements the contract of `hutch-api` on one host.
//!
//! [`serve`] runs it. What it must not forget lies in the [`store`]; each sandbox has one owner task that alone
//! changes it, by the table in [`lifecycle`]; what is on the host and whose it is tells [`audit`]. It is an
//! unprivileged mind in a privileged process: it starts jailed programs and talks to them, and it neither maps guest
//! memory nor opens `/dev/kvm`.

pub mod config;
pub mod log;

pub mod clock;
pub mod lifecycle;

pub mod api_key;
pub mod keys;

pub mod data_directory;
pub mod store;

pub mod capacity;
pub mod images;
pub mod metrics;

pub mod audit;
pub mod doctor;

mod core;
mod idle;
mod metering;
mod names;
mod operations;
mod owner;
mod pool;
mod recovery;
mod registry;
mod report;
mod serve;
mod snapshots;
mod sweep;
mod templates;
mod view;

#[cfg(test)]
mod tests;

pub use config::{Config, OnStop, Preparation, TlsFiles};
pub use log::LogFormat;
pub use serve::{ServeError, serve};
