//! Signals that end a command that has something to clean up.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// SIGINT (Ctrl-C), SIGTERM and SIGHUP of this process, from now on ours to act on.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(crate) fn take() -> Result<Self, Failure> {
        let take = |kind| signal(kind).map_err(|error| Failure::because("signals cannot be received", &error));
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hang_up: take(SignalKind::hangup())?,
        })
    }

    /// The exit code that the next signal asks for: 128 and its number.
    pub(crate) async fn next(&mut self) -> u8 {
        let number = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
        };
        u8::try_from(128 + number.as_raw_value()).unwrap_or(u8::MAX)
    }
}
