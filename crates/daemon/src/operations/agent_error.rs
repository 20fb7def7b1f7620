//! What goes wrong between the daemon and an agent, as the API says it.

use std::time::Duration;

use hutch_api::{Error, ErrorKind};
use hutch_engine::agent::ClientError;
use hutch_engine::agent::protocol::failure::{Code, Failure};

use crate::core::Core;
use crate::lifecycle::State;
use crate::metrics::Count;
use crate::owner::Handle;
use crate::report::chain;

/// How long the death of a machine is waited for after its connection was lost, to be able to say why.
const CAUSE: Duration = Duration::from_millis(500);

impl Core {
    /// The API's error for an agent's.
    pub(super) async fn agent_error(&self, handle: &Handle, error: ClientError) -> Error {
        match error {
            ClientError::Refused { source, .. } => refusal(&source),
            ClientError::Source { source, .. } => broken_upload(source),
            ClientError::RequestTooLarge { limit, .. } => {
                let message = format!("the request is larger than the {limit} bytes that fit into one");
                Error::new(ErrorKind::TooLarge, message)
            }
            error => self.lost(handle, &error).await,
        }
    }

    /// The answer to what is not known the end of.
    async fn lost(&self, handle: &Handle, error: &ClientError) -> Error {
        self.metrics.count(Count::AgentError);
        let ended = handle.wait_for(|snapshot| snapshot.row.state != State::Running);
        let row = match tokio::time::timeout(CAUSE, ended).await {
            Ok(snapshot) => snapshot.row,
            Err(_) => handle.snapshot().row,
        };
        if matches!(row.state, State::Pausing | State::Paused | State::Forking | State::Resuming) {
            let message = "the sandbox was paused; what was attached to it has been detached";
            return Error::new(ErrorKind::SandboxPaused, message).with_log(chain(error));
        }
        let message = match (row.state, &row.reason) {
            (State::Failed, Some(reason)) => format!("the sandbox was lost: {reason}"),
            (State::Destroying | State::Destroyed, _) => "the sandbox was destroyed meanwhile".to_owned(),
            _ => "the sandbox stopped answering; what became of the operation is not known".to_owned(),
        };
        Error::new(ErrorKind::SandboxLost, message).with_log(chain(error))
    }
}

/// What the guest refused, in the API's kinds. The text is the guest's own, which only its owner sees.
fn refusal(failure: &Failure) -> Error {
    let kind = match failure.code {
        Code::NotFound => ErrorKind::NotFound,
        Code::NotADirectory | Code::IsADirectory | Code::Exists | Code::NotEmpty | Code::Busy => ErrorKind::Conflict,
        Code::Permission => ErrorKind::Forbidden,
        Code::NoSpace => ErrorKind::StorageFull,
        Code::TooLarge => ErrorKind::TooLarge,
        Code::InvalidPath | Code::InvalidRequest | Code::UserNotFound => ErrorKind::InvalidRequest,
        Code::Exhausted | Code::NotConfigured => ErrorKind::Unavailable,
        Code::Unsupported => ErrorKind::NotImplemented,
        Code::Cancelled => ErrorKind::SandboxLost,
        Code::Other => ErrorKind::Internal,
    };
    let message: String = failure.message.chars().take(1024).collect();
    let error = Error::new(kind, message);
    if kind == ErrorKind::Unavailable { error.with_retry_after(Duration::from_secs(1)) } else { error }
}

/// An upload whose source broke off: the error that the source gave, if it was one of the API's.
fn broken_upload(source: std::io::Error) -> Error {
    match source.downcast::<Error>() {
        Ok(error) => error,
        Err(source) => Error::new(ErrorKind::InvalidRequest, "the upload broke off").with_log(source.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_507_and_a_missing_file_404() {
        let kind = |code| refusal(&Failure::new(code, "m")).kind;
        assert_eq!(kind(Code::NoSpace).status(), 507);
        assert_eq!(kind(Code::NotFound).status(), 404);
        assert_eq!(kind(Code::TooLarge).status(), 413);
        assert_eq!(kind(Code::IsADirectory).status(), 409);
    }

    #[test]
    fn the_error_of_an_upload_comes_through_the_agents_client() {
        let given = Error::new(ErrorKind::TooLarge, "more than 500 MiB");
        let error = broken_upload(std::io::Error::other(given));
        assert_eq!((error.kind, error.message.as_ref()), (ErrorKind::TooLarge, "more than 500 MiB"));
        assert_eq!(broken_upload(std::io::Error::other("reset")).kind, ErrorKind::InvalidRequest);
    }
}
