//! `hutch`, the command line.
//!
//! Data goes to standard output, everything else to standard error. [`arguments`] says what there is, each file in
//! [`commands`] is one command with its flags, its text and what it does; [`failure`] says how it ends when it fails.

pub mod arguments;
pub mod commands;
pub mod failure;

mod connection;
mod context;
mod duration;
mod execution;
mod idle;
mod image_build;
mod input;
mod interpreter;
mod output;
mod pair;
mod progress;
mod reference;
mod selection;
mod signals;
mod style;
mod table;
mod transfer;
mod transition;
mod tree;

pub use reference::{command_line, openapi};
