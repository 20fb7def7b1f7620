//! The asynchronous client of the agent in a guest.
//!
//! ```no_run
//! # async fn example() -> Result<(), hutch_engine::agent::ClientError> {
//! use std::time::Duration;
//! use hutch_engine::agent::{Client, Event, Options};
//! use hutch_protocol::exec::{Exec, Outcome};
//!
//! let client = Client::connect("agent.sock".as_ref(), Options::default(), Duration::from_secs(10)).await?;
//! # let configure = todo!();
//! client.configure(&configure).await?;
//!
//! let mut execution = client.exec(&Exec { stdin: true, ..Exec::argv(["cat"]) }).await?;
//! let mut stdin = execution.take_stdin().expect("asked for");
//! stdin.write(&b"hello"[..]).await?;
//! stdin.end();
//! while let Some(event) = execution.next().await? {
//!     match event {
//!         Event::Stdout(bytes) | Event::Stderr(bytes) => { /* pass on; not reading on is backpressure */ }
//!         Event::Ended(ended) => assert_eq!(ended.outcome, Outcome::Exited { code: 0 }),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * [`Client`] is one connection and cheap to clone; the connection ends with the last clone and the last
//!   stream made from it. [`Client::deadline`] gives a clone with another deadline for single answers.
//! * [`Execution`] is a running command: its events end with [`Event::Ended`] or an error, never silently.
//!   Dropping it kills the command and all that it started. [`Execution::collect`] gathers the output.
//! * [`Download`] and [`Client::write_file`] stream content of any size in constant memory.
//! * [`Client::watch`] gives what the guest asks for, as it comes.
//! * When the connection is lost (guest gone, agent gone, wedged, or talking nonsense) everything that waits
//!   gets [`ClientError::Lost`], and so does everything asked later. [`Client::lost`] waits for that.
//!
//! What comes from the guest is hostile: every allocation that it causes is bounded by credit or by the size
//! of a frame, and what breaks the protocol ends the connection and nothing else.

mod error;

mod outgoing;

mod stream;

mod connection;

mod client;

mod execution;

mod transfer;

mod watch;

pub use client::Client;
pub use connection::Options;
pub use error::{ClientError, Loss};
pub use execution::{Collected, Event, Execution, Input};
/// The types that requests and answers consist of.
pub use hutch_protocol as protocol;
pub use transfer::{Download, Listing};
pub use watch::Events;
