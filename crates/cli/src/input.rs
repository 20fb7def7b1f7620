//! Standard input on its way into a sandbox.

use std::io::{self, IsTerminal as _, Read as _};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::failure::Failure;

/// Input up to this size travels with the command; more goes through a file.
const WITH_COMMAND: usize = 4 << 20;
/// After this long without an end of the input the user is told what is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a command will read.
pub(crate) enum Input {
    /// Nothing: an immediate end of file.
    Nothing,
    /// This.
    Whole(Vec<u8>),
    /// More than travels with the command.
    Stream(BoxStream<'static, io::Result<Bytes>>),
}

/// Reads standard input of this process, unless it is a terminal: to its end, or until it is known to be large.
pub(crate) async fn read(context: &Context) -> Result<Input, Failure> {
    if io::stdin().is_terminal() {
        return Ok(Input::Nothing);
    }
    let mut pieces = standard_input();
    let mut whole = Vec::new();
    let large = match tokio::time::timeout(PATIENCE, collect(&mut pieces, &mut whole)).await {
        Ok(large) => large,
        Err(_) => {
            context.tell("waiting for standard input to end (--no-stdin or </dev/null for a command that reads none)");
            collect(&mut pieces, &mut whole).await
        }
    };
    let large = large.map_err(|error| Failure::because("standard input cannot be read", &error))?;
    if large {
        let first = stream::once(async move { Ok(Bytes::from(whole)) });
        return Ok(Input::Stream(first.chain(as_stream(pieces)).boxed()));
    }
    Ok(if whole.is_empty() { Input::Nothing } else { Input::Whole(whole) })
}

/// Takes pieces until the end, or until there are more than travel with a command: then `true`. Cancel-safe.
async fn collect(pieces: &mut mpsc::Receiver<io::Result<Bytes>>, whole: &mut Vec<u8>) -> io::Result<bool> {
    while whole.len() <= WITH_COMMAND {
        match pieces.recv().await {
            Some(piece) => whole.extend_from_slice(&piece?),
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Standard input as a stream, as it comes.
pub(crate) fn stream() -> BoxStream<'static, io::Result<Bytes>> {
    as_stream(standard_input()).boxed()
}

fn as_stream(pieces: mpsc::Receiver<io::Result<Bytes>>) -> impl futures_util::Stream<Item = io::Result<Bytes>> {
    stream::unfold(pieces, |mut pieces| async move { pieces.recv().await.map(|piece| (piece, pieces)) })
}

/// Standard input, read by a thread of its own that nobody waits for: a read cannot be called off.
fn standard_input() -> mpsc::Receiver<io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut buffer = vec![0; 64 << 10];
            let piece = match input.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    buffer.truncate(count);
                    Ok(Bytes::from(buffer))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = piece.is_err();
            if sender.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    receiver
}
