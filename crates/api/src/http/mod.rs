//! The HTTP adapter: everything between a socket and the trait [`Operations`](crate::Operations).
//!
//! A request passes [`serve`] (HTTP/1.1, TLS, deadlines), the [`router`](fn@router) (which row of the table is it, whose
//! key is it) and `dispatch` (one arm for each operation), which reads the body, calls the operation and writes the
//! answer. Answers are JSend: `{"status":"success","data":…}`, on a refusal `{"status":"fail","data":{…}}` with a
//! `code` and text for each field, on a fault of ours `{"status":"error","message":…,"code":…}`.

mod body;
mod dispatch;
mod envelope;
mod execute;
mod file;
mod json;
mod query;
mod request;
mod router;
mod sandbox;
mod serve;
mod snapshot;
mod tls;
mod usage;
mod utf8;

pub use router::{Limits, router};
pub use serve::{ServeOptions, serve};
pub use tls::{Tls, TlsError};
