//! The agent and its client against each other: every command and file case that is known to go wrong
//! somewhere.
//!
//! By default the agent runs as a program of this machine (`hutch-agent --serve`), in a mount namespace of
//! its own. With `HUTCH_AGENT_SOCKET` the same tests run against the agent that listens there, which may be a
//! guest's; then use `--test-threads=1`, since an agent has one connection at a time.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod rig;

mod table;

mod commands;

mod lifecycle;

mod files;

mod loss;

mod resume;

mod signals;

mod hostile;
