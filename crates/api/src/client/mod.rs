//! A typed client of the contract, over HTTP/1.1.
//!
//! A call takes its method and path from the table. Connections are kept and used again. A call is repeated only when
//! that is safe: when nothing of it had been sent, or when it only reads and the connection broke before an answer.

mod call;
mod catalogue;
mod endpoint;
mod error;
mod execution;
mod file;
mod pool;
mod sandbox;
mod snapshot;
mod usage;

pub use endpoint::Endpoint;
pub use error::{ClientError, EndpointError, Refusal};
pub use execution::Execution;
pub use file::Download;
pub use pool::Client;
