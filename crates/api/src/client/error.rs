//! How a call fails.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

use crate::ErrorKind;

/// Why a text cannot be the address of a service, or its certificates cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// No URL, or one without a host.
    #[error("{url:?} is not the URL of a service: expected one like http://127.0.0.1:8480")]
    Url {
        /// The text.
        url: String,
    },
    /// Neither `http` nor `https`.
    #[error("the URL {url:?} has the scheme {scheme:?}: only http and https are spoken")]
    Scheme {
        /// The text.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// The API key has characters that no header can carry.
    #[error("the API key holds characters that cannot be sent")]
    Key,
    /// The file of trusted certificates cannot be read.
    #[error("the trusted certificates {path} cannot be read")]
    Roots {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers at the address.
    #[error("no connection to {address}")]
    Connect {
        /// Host and port.
        address: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke before the answer was complete.
    #[error("the connection to {address} broke")]
    Broken {
        /// Host and port.
        address: String,
        /// How.
        #[source]
        source: hyper::Error,
    },
    /// What is to be sent could not be read.
    #[error("what is to be sent could not be read")]
    Source(#[source] std::io::Error),
    /// Nothing came for a while, not even a sign of life.
    #[error("{address} has been silent for {} s", silence.as_secs())]
    Silent {
        /// Host and port.
        address: String,
        /// How long.
        silence: Duration,
    },
    /// The answer is not what the contract promises.
    #[error("{address} does not answer like a Hutch service: {what}")]
    Answer {
        /// Host and port.
        address: String,
        /// What is wrong with it.
        what: String,
    },
    /// The service refused, or failed.
    #[error(transparent)]
    Refused(Box<Refusal>),
}

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// The stable code, for example `name_taken`.
    pub code: String,
    /// The message.
    pub message: String,
    /// Messages about single fields of the request.
    pub fields: BTreeMap<String, String>,
    /// When trying again may succeed.
    pub retry_after: Option<Duration>,
    /// The request's id, to find it in the service's log.
    pub request_id: Option<String>,
}

impl ClientError {
    /// The kind of failure, when the service named one of the contract.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Refused(refusal) => ErrorKind::ALL.iter().copied().find(|kind| kind.code() == refusal.code),
            _ => None,
        }
    }
}

impl Refusal {
    /// Reads the body of an answer that is an error; whatever is in it, there is a message.
    pub(super) fn read(status: StatusCode, headers: &http::HeaderMap, body: &[u8]) -> Self {
        let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        let envelope: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut fields: BTreeMap<String, String> = match &envelope["data"] {
            Value::Object(data) => {
                data.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
            }
            _ => BTreeMap::new(),
        };
        let code = fields.remove("code").unwrap_or_default();
        let message = fields.remove("message").or_else(|| envelope["message"].as_str().map(str::to_owned));
        let message = message.unwrap_or_else(|| format!("the service answered {status}"));
        let retry_after = text("retry-after").and_then(|text| text.parse().ok()).map(Duration::from_secs);
        Self { status, code, message, fields, retry_after, request_id: text("x-request-id") }
    }
}
