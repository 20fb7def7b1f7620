//! Bytes that come in pieces, as text.

/// Turns pieces of bytes into pieces of text without ever splitting a character. Bytes that can be no part of a
/// character become U+FFFD, as `String::from_utf8_lossy` of the whole would have them.
#[derive(Debug, Default)]
pub(super) struct TextDecoder {
    /// The beginning of a character whose rest has not come: at most three bytes.
    pending: Vec<u8>,
}

impl TextDecoder {
    /// The text that is complete with this piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> String {
        let joined;
        let bytes = if self.pending.is_empty() {
            piece
        } else {
            joined = [&self.pending, piece].concat();
            &joined
        };
        let complete = bytes.len() - unfinished(bytes);
        let text = String::from_utf8_lossy(&bytes[..complete]).into_owned();
        self.pending = bytes[complete..].to_vec();
        text
    }

    /// What is left when nothing more will come.
    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// How many bytes at the end are the valid beginning of an unfinished character.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let tail = &bytes[bytes.len() - back..];
        match std::str::from_utf8(tail) {
            // `error_len` is `None` exactly when more bytes could still make it valid.
            Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => return back,
            Err(_) => {}
            Ok(_) => return 0,
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_character_that_comes_byte_by_byte_comes_whole() {
        let mut decoder = TextDecoder::default();
        let pieces: Vec<String> = "é€😀".bytes().map(|byte| decoder.push(&[byte])).collect();
        assert_eq!(pieces, ["", "é", "", "", "€", "", "", "", "😀"]);
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn an_unfinished_character_at_the_end_is_replaced() {
        let mut decoder = TextDecoder::default();
        assert_eq!(decoder.push(b"a\xe2\x82"), "a");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn pieces_make_the_same_text_as_the_whole(
            pieces in prop::collection::vec(prop::collection::vec(
                prop_oneof![Just(0xe2_u8), Just(0x82), Just(0xac), Just(0xf0), Just(0x9f), Just(0xff), any::<u8>()],
                0..6), 0..20),
        ) {
            let mut decoder = TextDecoder::default();
            let mut text: String = pieces.iter().map(|piece| decoder.push(piece)).collect();
            text.push_str(&decoder.finish());
            let whole = pieces.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }

        #[test]
        fn valid_text_survives_any_split(text in "\\PC{0,40}", size in 1usize..5) {
            let mut decoder = TextDecoder::default();
            let mut out = String::new();
            for piece in text.as_bytes().chunks(size) {
                let part = decoder.push(piece);
                prop_assert!(!part.contains(char::REPLACEMENT_CHARACTER) || text.contains(char::REPLACEMENT_CHARACTER));
                out.push_str(&part);
            }
            prop_assert_eq!(out, text);
        }
    }
}
