//! What is written into the FIFO: a line `park` asks for a pause, a line `retire` for the end. Writers forget
//! the end of a line, write half a word, or anything at all: the next who writes a word is still heard.

use hutch_protocol::machine::SelfAction;

const WORDS: [(&[u8], SelfAction); 2] = [(b"park", SelfAction::Pause), (b"retire", SelfAction::Delete)];

/// Longest line that is kept to see what it becomes.
const LINE_MAX: usize = 64;

/// Finds words in pieces of a byte stream.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// The beginning of a line, as long as it can become a word.
    line: Vec<u8>,
    /// The line is none: it is read to its end.
    skips: bool,
}

impl Words {
    /// Takes what was read at once; the last of the words in it.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<SelfAction> {
        if let Some(action) = word(bytes) {
            // What was left before belonged to somebody else.
            *self = Self::default();
            return Some(action);
        }
        let mut last = None;
        for byte in bytes {
            if *byte == b'\n' {
                last = word(&self.line).filter(|_| !self.skips).or(last);
                *self = Self::default();
            } else if self.line.len() < LINE_MAX {
                self.line.push(*byte);
            } else {
                self.skips = true;
            }
        }
        if let Some(action) = word(&self.line).filter(|_| !self.skips) {
            *self = Self::default();
            return Some(action);
        }
        let text = self.line.trim_ascii_start();
        if self.skips || !WORDS.iter().any(|(word, _)| word.starts_with(text)) {
            *self = Self::default();
        }
        last
    }
}

fn word(line: &[u8]) -> Option<SelfAction> {
    let line = line.trim_ascii();
    WORDS.iter().find(|(word, _)| *word == line).map(|(_, action)| *action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use SelfAction::{Delete, Pause};
    use proptest::prelude::*;

    fn feed(pieces: &[&str]) -> Vec<Option<SelfAction>> {
        let mut words = Words::default();
        pieces.iter().map(|piece| words.feed(piece.as_bytes())).collect()
    }

    #[test]
    fn words_are_found_however_they_are_written() {
        assert_eq!(feed(&["park\n", "retire\n"]), [Some(Pause), Some(Delete)]);
        assert_eq!(feed(&["park", "park", "\n", "retire"]), [Some(Pause), Some(Pause), None, Some(Delete)]);
        assert_eq!(feed(&["p", "ar", "k", "\n"]), [None, None, Some(Pause), None]);
        assert_eq!(feed(&["  park \r\n"]), [Some(Pause)]);
        assert_eq!(feed(&["park\nretire\nx\n"]), [Some(Delete)], "the last counts");
        assert_eq!(feed(&["x\npark"]), [Some(Pause)]);
    }

    #[test]
    fn what_is_no_word_is_nothing_and_harms_nobody() {
        assert_eq!(feed(&["parked\n", "Park\n", "retire now\n", "\n", ""]), [None; 5]);
        assert_eq!(feed(&["hello", "park\n"]), [None, Some(Pause)]);
        assert_eq!(feed(&["pa", "park"]), [None, Some(Pause)]);
        assert_eq!(feed(&[&"x".repeat(100_000), "park\n"]), [None, Some(Pause)]);
        assert_eq!(feed(&["\0\u{7f}", "retire"]), [None, Some(Delete)]);
    }

    proptest! {
        #[test]
        fn after_anything_a_word_is_heard(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..10)) {
            let mut words = Words::default();
            for piece in &pieces {
                words.feed(piece);
            }
            prop_assert!(words.line.len() <= LINE_MAX);
            prop_assert_eq!(words.feed(b"retire\n"), Some(Delete));
        }
    }
}
