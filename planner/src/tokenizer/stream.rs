//! Text out of token ids as they come: only complete characters are given out.

use super::{Tokenizer, TokenizerError};

/// Turns bytes that arrive in pieces into text. Bytes that can no longer become a character come out as U+FFFD,
/// exactly as `String::from_utf8_lossy` over the whole would put them.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Takes `bytes` and appends to `out` what is certain by now. Holds back at most three bytes.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut done = 0;
        while let Some(rest) = self.pending.get(done..).filter(|rest| !rest.is_empty()) {
            let (valid, bad) = match std::str::from_utf8(rest) {
                Ok(text) => (text.len(), Some(0)),
                Err(error) => (error.valid_up_to(), error.error_len()),
            };
            out.push_str(
                rest.get(..valid)
                    .and_then(|b| std::str::from_utf8(b).ok())
                    .unwrap_or_default(),
            );
            done += valid;
            match bad {
                // The rest is the start of a character.
                None => break,
                Some(0) => {}
                Some(bad) => {
                    out.push(char::REPLACEMENT_CHARACTER);
                    done += bad;
                }
            }
        }
        self.pending.drain(..done);
    }

    /// Ends the text: an unfinished character becomes one U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
    }
}

/// Turns token ids that arrive one by one into text.
#[derive(Debug, Clone)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    stream: Utf8Stream,
    control: bool,
    position: usize,
}

impl<'a> StreamDecoder<'a> {
    /// A decoder that leaves control tokens such as `<|endoftext|>` out of the text.
    #[must_use]
    pub fn new(tokenizer: &'a Tokenizer) -> StreamDecoder<'a> {
        StreamDecoder {
            tokenizer,
            stream: Utf8Stream::default(),
            control: false,
            position: 0,
        }
    }

    /// Makes control tokens appear as their text.
    #[must_use]
    pub fn with_control_text(mut self) -> StreamDecoder<'a> {
        self.control = true;
        self
    }

    /// Takes one token id and appends to `out` what is certain by now.
    ///
    /// # Errors
    /// [`TokenizerError::TokenOutOfRange`], with the position of the id in this stream.
    pub fn push(&mut self, id: u32, out: &mut String) -> Result<(), TokenizerError> {
        let position = self.position;
        let bytes = self.tokenizer.token_bytes_at(position, id)?;
        self.position += 1;
        if self.control || !self.tokenizer.is_control(id) {
            self.stream.push(bytes, out);
        }
        Ok(())
    }

    /// Ends the text: an unfinished character becomes one U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        self.stream.finish(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that make unfinished, overlong and stray sequences likely.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let likely = proptest::sample::select(
            b"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\xff\xc0\xf4\x90".to_vec(),
        );
        proptest::collection::vec(likely, 0..24)
    }

    proptest! {
        #[test]
        fn equals_lossy_decoding_of_the_whole(bytes in bytes(), cut in 1usize..5) {
            let (mut stream, mut text) = (Utf8Stream::default(), String::new());
            for part in bytes.chunks(cut) {
                stream.push(part, &mut text);
                prop_assert!(stream.pending.len() <= 3);
            }
            stream.finish(&mut text);
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
