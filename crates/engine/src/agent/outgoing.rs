//! Frames on their way to the agent.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use hutch_protocol::frame::{Channel, Frame, Header, PayloadTooLarge};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Notify;

/// Bytes in the queue above which bulk data waits. Control frames never wait: there are only ever a few of
/// them for each stream.
const HIGH: usize = 512 << 10;

/// Most pieces given to the kernel in one call.
const GATHER: usize = 32;

/// A queue between any number of streams and the one task that writes.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    queue: Mutex<Queue>,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    closed: bool,
}

impl Outgoing {
    /// Queues a control frame at once.
    pub(super) fn control(&self, frame: &Frame<'_>) -> Result<(), PayloadTooLarge> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes)?;
        self.push([Bytes::from(bytes), Bytes::new()]);
        Ok(())
    }

    /// Queues a frame of bulk data without copying it. The caller has waited for [`Outgoing::room`].
    pub(super) fn data(&self, stream: u32, channel: Channel, bytes: Bytes) {
        let header = Header::data(stream, channel, bytes.len()).encode();
        self.push([Bytes::copy_from_slice(&header), bytes]);
    }

    /// Waits until bulk data may be queued, or until nothing will be sent any more.
    pub(super) async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            {
                let queue = self.lock();
                if queue.bytes < HIGH || queue.closed {
                    return;
                }
            }
            drained.await;
        }
    }

    /// From now on everything is thrown away.
    pub(super) fn close(&self) {
        let mut queue = self.lock();
        *queue = Queue { closed: true, ..Queue::default() };
        drop(queue);
        self.filled.notify_one();
        self.drained.notify_waiters();
    }

    /// Writes the queue to the socket until it is closed or the socket fails.
    pub(super) async fn write_to(&self, mut socket: OwnedWriteHalf) -> std::io::Result<()> {
        let mut batch: VecDeque<Bytes> = VecDeque::new();
        loop {
            let closed = {
                let mut queue = self.lock();
                std::mem::swap(&mut queue.pieces, &mut batch);
                queue.bytes = 0;
                queue.closed
            };
            if closed {
                return Ok(());
            }
            self.drained.notify_waiters();
            if batch.is_empty() {
                self.filled.notified().await;
                continue;
            }
            while !batch.is_empty() {
                let slices: Vec<IoSlice<'_>> = batch.iter().take(GATHER).map(|piece| IoSlice::new(piece)).collect();
                let written = socket.write_vectored(&slices).await?;
                if written == 0 {
                    return Err(std::io::ErrorKind::WriteZero.into());
                }
                advance(&mut batch, written);
            }
        }
    }

    fn push(&self, pieces: [Bytes; 2]) {
        let mut queue = self.lock();
        if queue.closed {
            return;
        }
        for piece in pieces {
            if !piece.is_empty() {
                queue.bytes += piece.len();
                queue.pieces.push_back(piece);
            }
        }
        drop(queue);
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic while the lock was held cannot leave the queue half changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops the first `count` bytes.
fn advance(batch: &mut VecDeque<Bytes>, mut count: usize) {
    while count > 0 {
        let Some(front) = batch.front_mut() else { return };
        let step = count.min(front.len());
        front.advance(step);
        count -= step;
        if front.is_empty() {
            batch.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_write_is_continued_where_it_stopped() {
        let mut batch = VecDeque::from([Bytes::from_static(b"abc"), Bytes::from_static(b"de")]);
        advance(&mut batch, 1);
        assert_eq!(batch, [&b"bc"[..], b"de"]);
        advance(&mut batch, 3);
        assert_eq!(batch, [&b"e"[..]]);
        advance(&mut batch, 1);
        assert!(batch.is_empty());
    }
}
