//! The commands, a file for each.

pub mod audit;
pub mod completions;
pub mod create;
pub mod doctor;
pub mod exec;
pub mod fork;
pub mod get;
pub mod images;
pub mod keys;
pub mod list;
pub mod pause;
pub mod pull;
pub mod push;
pub mod reference;
pub mod remove;
pub mod resume;
pub mod run;
pub mod serve;
pub mod snapshot;
pub mod update;
pub mod usage;
pub mod version;
pub mod whoami;
