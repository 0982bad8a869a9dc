//! Generated tokens as text: streamed to stdout as they come, or collected for the JSON object.

use crate::cli::{Format, RunArgs};
use crate::output;
use refrain_planner::tokenizer::{StreamDecoder, Tokenizer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Streams text, or collects it for the JSON object.
pub(super) struct Printer<'a> {
    decoder: Option<StreamDecoder<'a>>,
    text: String,
    stream: bool,
    error: Option<anyhow::Error>,
    /// Set when nobody reads stdout any more, so that decoding stops.
    cancel: Arc<AtomicBool>,
}

impl<'a> Printer<'a> {
    pub(super) fn new(
        args: &RunArgs,
        tokenizer: Option<&'a Tokenizer>,
        cancel: Arc<AtomicBool>,
    ) -> Self {
        let decoder = tokenizer.map(StreamDecoder::new);
        Self {
            decoder,
            text: String::new(),
            stream: args.format == Format::Text,
            error: None,
            cancel,
        }
    }

    fn say(&mut self, text: &str) {
        if !self.stream || self.error.is_some() {
            return;
        }
        match output::stream(text) {
            Ok(true) => {}
            Ok(false) => self.cancel.store(true, Ordering::Relaxed),
            Err(error) => {
                self.cancel.store(true, Ordering::Relaxed);
                self.error = Some(error.into());
            }
        }
    }

    pub(super) fn prompt(&mut self, args: &RunArgs) {
        if let Some(prompt) = &args.prompt {
            self.say(prompt);
        }
    }

    pub(super) fn token(&mut self, token: u32) {
        let before = self.text.len();
        match &mut self.decoder {
            Some(decoder) => {
                if let Err(error) = decoder.push(token, &mut self.text) {
                    self.error.get_or_insert(error.into());
                }
            }
            None => {
                let separator = if self.text.is_empty() { "" } else { " " };
                self.text.push_str(&format!("{separator}{token}"));
            }
        }
        let new = self.text[before..].to_owned();
        self.say(&new);
    }

    /// The text; null without a tokenizer.
    pub(super) fn finish(mut self) -> anyhow::Result<Option<String>> {
        let before = self.text.len();
        if let Some(decoder) = &mut self.decoder {
            decoder.finish(&mut self.text);
        }
        let rest = self.text[before..].to_owned() + "\n";
        self.say(&rest);
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.decoder.is_some().then_some(self.text)),
        }
    }
}
