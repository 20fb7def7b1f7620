//! One stream of a connection, seen from the host.
//!
//! ```text
//!   Open ──► live ──(Result, Error)──► answered      events that came before are still delivered
//!             │ │
//!             │ └──(handle dropped)──► abandoned ──(Result, Error)──► gone
//!             └──(connection lost)───► lost          whatever waits fails
//! ```

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use hutch_protocol::credit::{ReceiveCredit, SendCredit};
use hutch_protocol::frame::{Body, Channel};
use tokio::sync::Notify;

use super::error::{Loss, Violation};

/// Pieces that keep the order between channels; beyond it bytes join the newest piece of their channel, so
/// that a guest that sends single bytes cannot make the host hold a piece for each.
const PIECES: usize = 64;

/// Size beyond which a piece is not extended.
const PIECE: usize = 256 << 10;

/// What both the reading task and the stream's handle know.
#[derive(Debug, Default)]
pub(super) struct Cell {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<(Source, BytesMut)>,
    output: ReceiveCredit,
    error: ReceiveCredit,
    input: SendCredit,
    input_closed: bool,
    answer: Option<Answer>,
    abandoned: bool,
    lost: Option<Loss>,
}

/// Where received bytes belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Data on `Output`.
    Output,
    /// Data on `Error`.
    Error,
    /// One `Item`, whole; never joined with others.
    Item,
}

/// The last frame of a stream.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// A `Result`.
    Result(Bytes),
    /// An `Error`.
    Failure(Bytes),
}

/// What a stream delivers next.
#[derive(Debug)]
pub(super) enum Delivery {
    /// Bytes, and the credit to grant for having taken them.
    Bytes(Source, Bytes, Option<u32>),
    /// The end; delivered again whenever asked again.
    Answer(Answer),
}

/// What a frame meant for its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// More will come.
    Open,
    /// It was the last.
    Answered,
}

impl Cell {
    /// Applies a frame from the agent.
    pub(super) fn apply(&self, stream: u32, body: &Body<'_>) -> Result<Progress, Violation> {
        let mut state = self.lock();
        let progress = state.apply(stream, body)?;
        drop(state);
        self.changed.notify_waiters();
        Ok(progress)
    }

    /// The connection is gone.
    pub(super) fn lose(&self, loss: Loss) {
        self.lock().lost.get_or_insert(loss);
        self.changed.notify_waiters();
    }

    /// Nobody will ask for what comes any more.
    pub(super) fn abandon(&self) -> Abandoned {
        let mut state = self.lock();
        state.abandoned = true;
        state.pieces.clear();
        if state.answer.is_some() || state.lost.is_some() { Abandoned::Ended } else { Abandoned::Live }
    }

    /// Waits for the next bytes or the end.
    pub(super) async fn next(&self) -> Result<Delivery, Loss> {
        loop {
            let changed = self.changed.notified();
            if let Some(delivery) = self.lock().deliver()? {
                return Ok(delivery);
            }
            changed.await;
        }
    }

    /// Waits until input may be sent and takes at most `wanted` bytes of the credit for it; `None` if nobody
    /// reads input any more.
    pub(super) async fn take_credit(&self, wanted: usize) -> Result<Option<usize>, Loss> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                if let Some(loss) = state.lost {
                    return Err(loss);
                }
                if state.input_closed || state.answer.is_some() {
                    return Ok(None);
                }
                let count = wanted.min(state.input.available());
                if count > 0 {
                    state.input.take(count);
                    return Ok(Some(count));
                }
            }
            changed.await;
        }
    }

    /// Makes the window of `Output` larger; returns the credit to grant.
    pub(super) fn widen(&self, window: u32) -> Option<u32> {
        self.lock().output.widen(window)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic can happen while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a stream was still open when its handle went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Abandoned {
    /// It had ended.
    Ended,
    /// The agent has to be told.
    Live,
}

impl State {
    fn apply(&mut self, stream: u32, body: &Body<'_>) -> Result<Progress, Violation> {
        match *body {
            Body::Data { channel: Channel::Output, bytes } => {
                self.output.received(bytes.len()).map_err(Violation::Credit)?;
                self.keep(Source::Output, bytes);
            }
            Body::Data { channel: Channel::Error, bytes } => {
                self.error.received(bytes.len()).map_err(Violation::Credit)?;
                self.keep(Source::Error, bytes);
            }
            Body::Item(json) => {
                // An empty item would cost no credit and still take room.
                if json.is_empty() {
                    return Err(Violation::Unexpected(stream));
                }
                self.output.received(json.len()).map_err(Violation::Credit)?;
                self.keep(Source::Item, json);
            }
            Body::Credit { channel: Channel::Input, bytes } => {
                self.input.grant(bytes).map_err(Violation::Credit)?;
            }
            Body::End { channel: Channel::Input } => self.input_closed = true,
            // The end of an output stream is known from the answer; nothing has to be done for it.
            Body::End { .. } => {}
            Body::Result(json) => {
                self.answer = Some(Answer::Result(Bytes::copy_from_slice(json)));
                return Ok(Progress::Answered);
            }
            Body::Error(json) => {
                self.answer = Some(Answer::Failure(Bytes::copy_from_slice(json)));
                return Ok(Progress::Answered);
            }
            Body::Data { channel: Channel::Input, .. }
            | Body::Credit { .. }
            | Body::Open { .. }
            | Body::Cancel
            | Body::Signal(_)
            | Body::Ping(_)
            | Body::Pong(_) => return Err(Violation::Unexpected(stream)),
        }
        Ok(Progress::Open)
    }

    fn keep(&mut self, source: Source, bytes: &[u8]) {
        if self.abandoned || bytes.is_empty() {
            return;
        }
        if source != Source::Item {
            let crowded = self.pieces.len() >= PIECES;
            let fits = |piece: &&mut (Source, BytesMut)| piece.0 == source && (crowded || piece.1.len() < PIECE);
            let candidate = if crowded {
                self.pieces.iter_mut().rev().find(fits)
            } else {
                self.pieces.back_mut().filter(|piece| fits(piece))
            };
            if let Some((_, piece)) = candidate {
                piece.extend_from_slice(bytes);
                return;
            }
        }
        self.pieces.push_back((source, BytesMut::from(bytes)));
    }

    fn deliver(&mut self) -> Result<Option<Delivery>, Loss> {
        if let Some((source, bytes)) = self.pieces.pop_front() {
            let credit = match source {
                Source::Error => &mut self.error,
                Source::Output | Source::Item => &mut self.output,
            };
            let grant = credit.consumed(bytes.len());
            // Nobody needs credit for a stream that has ended.
            let grant = grant.filter(|_| self.answer.is_none());
            return Ok(Some(Delivery::Bytes(source, bytes.freeze(), grant)));
        }
        match (&self.answer, self.lost) {
            (Some(answer), _) => Ok(Some(Delivery::Answer(answer.clone()))),
            (None, Some(loss)) => Err(loss),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hutch_protocol::credit::INITIAL;

    fn data(channel: Channel, bytes: &[u8]) -> Body<'_> {
        Body::Data { channel, bytes }
    }

    #[test]
    fn single_bytes_on_alternating_channels_make_few_pieces_and_lose_nothing() {
        let mut state = State::default();
        for number in 0..INITIAL {
            let byte = [number as u8];
            state.apply(1, &data(Channel::Output, &byte)).unwrap();
            state.apply(1, &data(Channel::Error, &byte)).unwrap();
        }
        assert!(state.pieces.len() <= PIECES);
        let total: usize = state.pieces.iter().map(|piece| piece.1.len()).sum();
        assert_eq!(total, 2 * INITIAL as usize);
        assert!(matches!(state.apply(1, &data(Channel::Output, b"x")), Err(Violation::Credit(_))));
    }

    #[test]
    fn items_are_delivered_whole_and_before_the_answer() {
        let mut state = State::default();
        state.apply(1, &Body::Item(b"{1}")).unwrap();
        state.apply(1, &Body::Item(b"{2}")).unwrap();
        assert_eq!(state.apply(1, &Body::Result(b"{}")), Ok(Progress::Answered));
        for expected in [&b"{1}"[..], b"{2}"] {
            let Ok(Some(Delivery::Bytes(Source::Item, bytes, None))) = state.deliver() else { panic!() };
            assert_eq!(bytes, expected);
        }
        assert!(matches!(state.deliver(), Ok(Some(Delivery::Answer(Answer::Result(_))))));
        assert!(state.apply(1, &Body::Item(b"")).is_err());
    }

    #[test]
    fn a_loss_never_hides_an_answer_and_never_looks_like_one() {
        let mut state = State { lost: Some(Loss::Closed), ..State::default() };
        assert!(matches!(state.deliver(), Err(Loss::Closed)));
        state.apply(1, &Body::Result(b"{}")).unwrap();
        assert!(matches!(state.deliver(), Ok(Some(Delivery::Answer(_)))));
    }

    #[test]
    fn frames_of_the_host_from_the_guest_are_violations() {
        let mut state = State::default();
        let input = Channel::Input;
        for body in [data(input, b"x"), Body::Cancel, Body::Signal(b"{}"), Body::Open { operation: 1, request: b"" }] {
            assert_eq!(state.apply(9, &body), Err(Violation::Unexpected(9)));
        }
        assert!(state.apply(9, &Body::Credit { channel: input, bytes: u32::MAX }).is_err());
    }
}
