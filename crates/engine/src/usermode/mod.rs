//! The engine that runs Linux's user-mode port as a jailed process.
//!
//! ```text
//!                 start                                    the kernel's process
//!   nothing ──────────────▶ launching ──▶ booting ──▶ configuring ──▶ running ──▶ ended
//!      ▲                        │            │             │             │          │
//!      └──────── teardown ◀─────┴────────────┴─────────────┴─────────────┴──────────┘
//! ```
//!
//! Launching is the launcher's work ([`launch`]); booting ends when the agent says its first word, configuring
//! with its acknowledgement. A start runs in a task of its own: when its caller goes away the task sees that,
//! and tears down what there is. Teardown ([`teardown`]) needs only the sandbox's id and directory, so it serves
//! a failed start, a wanted end, and the leftovers of a service that was killed.
//!
//! For each process that this service started or adopted a watcher ([`process`]) waits on its pidfd, takes its
//! status, and is the only one to do so. Everything that touches one sandbox holds that sandbox's lock.

mod adopt;
mod audit;
mod configure;
mod console;
mod control;
mod kept;
mod launch;
mod options;
mod plan;
mod probe;
mod process;
mod save;
mod start;
mod sys;
mod teardown;
mod template;
mod user_mode;

pub use options::Options;
pub use user_mode::UserMode;
