//! What the guest asks for.

use futures_util::Stream;
use hutch_protocol::machine::{MachineEvent, Watched};

use super::client::Handle;
use super::error::ClientError;
use super::stream::{Delivery, Source};

/// Events of a machine. Dropping it ends the watch.
#[derive(Debug)]
pub struct Events {
    handle: Handle,
    ended: bool,
}

impl Events {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, ended: false }
    }

    /// Waits for the next event, with no deadline. [`ClientError::Lost`] when the connection ends, as it does
    /// when the machine is paused or ends; `None` if the agent ended the watch. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<MachineEvent>, ClientError> {
        while !self.ended {
            match self.handle.next().await? {
                Delivery::Bytes(Source::Item, json, _) => return self.handle.decode_item(&json).map(Some),
                Delivery::Bytes(Source::Output | Source::Error, _, _) => {}
                Delivery::Answer(answer) => {
                    self.ended = true;
                    self.handle.decode::<Watched>(answer)?;
                }
            }
        }
        Ok(None)
    }

    /// The events as a stream; after an error it ends.
    pub fn into_stream(self) -> impl Stream<Item = Result<MachineEvent, ClientError>> + Send + 'static {
        futures_util::stream::try_unfold(self, |mut events| async move {
            let event = events.next().await?;
            Ok(event.map(|event| (event, events)))
        })
    }
}
