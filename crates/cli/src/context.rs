//! What commands share: the options that all have, and how a failed call is explained.

use hutch_api::ErrorKind;
use hutch_api::client::{Client, ClientError};

use crate::arguments::Global;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output;

/// The options that all commands have.
#[derive(Debug)]
pub(crate) struct Context {
    global: Global,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        Self { global }
    }

    /// Whether output is for programs.
    pub(crate) fn json(&self) -> bool {
        self.global.json
    }

    /// Whether people want no more than data and errors.
    pub(crate) fn quiet(&self) -> bool {
        self.global.quiet
    }

    /// Tells the user how things go, on standard error, unless they want quiet.
    pub(crate) fn tell(&self, text: &str) {
        if !self.quiet() {
            output::tell(text);
        }
    }

    /// The service.
    pub(crate) fn service(&self) -> Result<Remote, Failure> {
        Connection::new(self.global.url.as_deref()).map(Remote)
    }
}

/// A service whose failures are explained.
#[derive(Debug)]
pub(crate) struct Remote(Connection);

impl Remote {
    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// The service's answer, when it is a service that the user did not name and that does not run: `None`.
    pub(crate) fn if_there<T>(&self, result: Result<T, ClientError>) -> Result<Option<T>, Failure> {
        match result {
            Err(ClientError::Connect { .. }) if !self.0.is_named => Ok(None),
            other => other.map(Some).map_err(|error| self.explain(&error)),
        }
    }

    /// What a failed call means and what to do.
    pub(crate) fn explain(&self, error: &ClientError) -> Failure {
        let failure = Failure::of(error);
        let ClientError::Refused(refusal) = error else {
            return match error {
                ClientError::Connect { .. } if self.0.is_named => failure
                    .with_hint("is the service running? `hutch serve` starts one; HUTCH_URL names the one to use"),
                ClientError::Connect { .. } => {
                    failure.with_hint("start the service with `hutch serve`, or name another with HUTCH_URL")
                }
                ClientError::Silent { .. } | ClientError::Broken { .. } => {
                    failure.with_hint("did the service end? its log tells")
                }
                _ => failure,
            };
        };
        match (error.kind(), &refusal.request_id) {
            (Some(ErrorKind::Unauthenticated), _) => {
                failure.with_hint(format!("{}; `hutch keys create` makes one", self.0.key_origin))
            }
            (Some(ErrorKind::NameTaken), _) => failure.with_hint("choose another name, or remove the other one"),
            (Some(ErrorKind::Unavailable), _) => {
                failure.with_hint("`hutch ls` shows what runs, `hutch doctor` what is missing")
            }
            (Some(ErrorKind::SandboxPaused), _) => {
                failure.with_hint("what ran in it goes on after `hutch resume`; its output from then on is lost")
            }
            (Some(ErrorKind::WrongState), _) if refusal.message.contains("paused") => {
                failure.with_hint("`hutch resume` brings it back")
            }
            (Some(ErrorKind::TooLarge), _) => {
                failure.with_hint("the service's --max-upload sets how large a file may be")
            }
            (Some(ErrorKind::StorageFull), _) => failure.with_hint("create the sandbox with a larger --disk"),
            (Some(ErrorKind::Internal | ErrorKind::SandboxLost), Some(id)) => {
                failure.with_hint(format!("the service's log has more about the request {id}"))
            }
            _ => failure,
        }
    }
}
