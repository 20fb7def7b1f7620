//! The agent: one loop that waits for everything that can happen, and the tables of what goes on.

mod poll;

mod commands;

mod transfers;

mod signals;

mod requests;

mod event_loop;

pub(crate) use event_loop::{Agent, Setup};
