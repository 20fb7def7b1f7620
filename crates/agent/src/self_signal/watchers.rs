//! Who is told what the guest asks for, and what was asked while nobody was there.

use std::collections::BTreeMap;

use hutch_protocol::credit::{CreditError, SendCredit};
use hutch_protocol::frame::Body;
use hutch_protocol::machine::MachineEvent;

use super::SelfSignal;
use crate::channel::Outgoing;
use crate::files::task::json;

/// The streams of the host that watch.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    streams: BTreeMap<u32, SendCredit>,
    /// What nobody was told yet. Only the last: a guest that floods floods nobody.
    pending: Option<SelfSignal>,
}

impl Watchers {
    /// A stream begins to watch.
    pub(crate) fn add(&mut self, stream: u32) {
        self.streams.insert(stream, SendCredit::default());
    }

    /// A stream watches no more.
    pub(crate) fn remove(&mut self, stream: u32) {
        self.streams.remove(&stream);
    }

    /// The connection is over. What was not told yet is for the next.
    pub(crate) fn clear(&mut self) {
        self.streams.clear();
    }

    /// What was asked for before is another machine's matter.
    pub(crate) fn forget(&mut self) {
        self.pending = None;
    }

    /// Something is asked for.
    pub(crate) fn raise(&mut self, signal: Option<SelfSignal>) {
        self.pending = signal.or(self.pending.take());
    }

    /// Credit has come for a stream.
    pub(crate) fn grant(&mut self, stream: u32, bytes: u32) -> Result<(), CreditError> {
        self.streams.get_mut(&stream).map_or(Ok(()), |credit| credit.grant(bytes))
    }

    /// Tells every stream that can be told.
    pub(crate) fn turn(&mut self, outgoing: &mut Outgoing) {
        let Some(signal) = &self.pending else { return };
        if self.streams.is_empty() || !outgoing.has_room() {
            return;
        }
        let event = MachineEvent::SelfSignal { action: signal.action, reason: signal.reason.clone() };
        let item = json(&event);
        let mut told = false;
        for (stream, credit) in self.streams.iter_mut().filter(|(_, credit)| credit.available() >= item.len()) {
            credit.take(item.len());
            told |= outgoing.frame(*stream, Body::Item(&item)).is_ok();
        }
        if told {
            self.pending = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hutch_protocol::machine::SelfAction;

    fn signal(action: SelfAction) -> Option<SelfSignal> {
        Some(SelfSignal { action, reason: Some("r".into()) })
    }

    #[test]
    fn the_last_signal_waits_for_a_watcher_and_is_told_once() {
        let (mut watchers, mut outgoing) = (Watchers::default(), Outgoing::default());
        watchers.raise(signal(SelfAction::Pause));
        watchers.raise(signal(SelfAction::Delete));
        watchers.raise(None);
        watchers.turn(&mut outgoing);
        assert_eq!(watchers.pending, signal(SelfAction::Delete));
        watchers.add(3);
        watchers.turn(&mut outgoing);
        assert_eq!(watchers.pending, None);
        watchers.raise(signal(SelfAction::Pause));
        watchers.clear();
        watchers.turn(&mut outgoing);
        assert_eq!(watchers.pending, signal(SelfAction::Pause));
        watchers.forget();
        watchers.add(4);
        watchers.turn(&mut outgoing);
        assert!(watchers.streams[&4].available() == hutch_protocol::credit::INITIAL as usize);
    }

    #[test]
    fn a_flood_is_bounded_by_credit() {
        let (mut watchers, mut outgoing) = (Watchers::default(), Outgoing::default());
        watchers.add(1);
        for _ in 0..100_000 {
            watchers.raise(signal(SelfAction::Pause));
            watchers.turn(&mut outgoing);
        }
        assert!(outgoing.has_room() && watchers.pending.is_some());
        watchers.grant(1, 1000).unwrap();
        watchers.turn(&mut outgoing);
        assert_eq!(watchers.pending, None);
        assert!(watchers.grant(1, u32::MAX).is_err() && watchers.grant(2, u32::MAX).is_ok());
    }
}
