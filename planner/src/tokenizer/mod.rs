//! The tokenizer of a model, from the metadata of its GGUF file: byte-level BPE with a named splitting rule.
//!
//! Texts are taken as they are: no Unicode normalisation (Qwen's own tokenizer brings texts to NFC first; a prompt that
//! is not NFC should be normalised before). Chat templates are left to the caller.

mod bpe;
mod bytes;
mod error;
mod pre;
mod special;
mod stream;

use std::collections::HashMap;

use crate::gguf::{GgufError, GgufHeader, Metadata, StringList};

use bpe::Merges;
use special::SpecialFinder;

pub use error::TokenizerError;
pub(crate) use pre::GPT2;
pub use pre::{PRE_RULES, PreRule, Splitter};
pub use stream::{StreamDecoder, Utf8Stream};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const BOS: &str = "tokenizer.ggml.bos_token_id";
/// Keys of tokens that end a text: end of sequence, of turn, of message.
const ENDS: [&str; 3] = [
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
];

/// How control tokens written out in a text, such as `<|endoftext|>`, are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialTokens {
    /// As ordinary text, which is safe for text from anybody.
    AsText,
    /// As the control tokens that they name.
    Parse,
}

/// Kind of a token, `tokenizer.ggml.token_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// 1: part of the merged vocabulary.
    Normal,
    /// 2: stands for what the vocabulary cannot express.
    Unknown,
    /// 3: steers the model and is no text.
    Control,
    /// 4: text that is always taken whole.
    UserDefined,
    /// 5: a free place.
    Unused,
    /// 6: a single byte.
    Byte,
}

/// A byte-level BPE tokenizer.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    splitter: Splitter,
    /// Bytes of all tokens, one after the other, and where each ends.
    text: Vec<u8>,
    ends: Vec<usize>,
    kinds: Vec<TokenKind>,
    by_bytes: HashMap<Box<[u8]>, u32>,
    /// Token of each single byte.
    byte_tokens: Vec<Option<u32>>,
    merges: Merges,
    specials: SpecialFinder,
    bos: Option<u32>,
    add_bos: bool,
    end_tokens: Vec<u32>,
}

impl Tokenizer {
    /// Builds the tokenizer of a file. `None` where `tokenizer.ggml.model` is `none`: token ids in, token ids out.
    ///
    /// # Errors
    /// [`TokenizerError`]: an unknown model or splitting rule, missing keys, or a vocabulary that contradicts itself.
    pub fn from_gguf(header: &GgufHeader) -> Result<Option<Tokenizer>, TokenizerError> {
        Self::from_metadata(&header.metadata)
    }

    /// As [`Tokenizer::from_gguf`], from metadata alone.
    ///
    /// # Errors
    /// As [`Tokenizer::from_gguf`].
    pub fn from_metadata(metadata: &Metadata) -> Result<Option<Tokenizer>, TokenizerError> {
        match metadata.get("tokenizer.ggml.model")? {
            "none" => return Ok(None),
            "gpt2" => {}
            other => {
                return Err(TokenizerError::Model {
                    found: other.to_owned(),
                });
            }
        }
        let rule = PreRule::find(metadata.get("tokenizer.ggml.pre")?)?;
        let tokens: &StringList = metadata.get(TOKENS)?;
        if tokens.is_empty() {
            return Err(TokenizerError::Empty);
        }
        let kinds = read_kinds(metadata, tokens.len())?;
        let id = |key| read_id(metadata, key, tokens.len());
        let bos = id(BOS)?;
        let add_bos = metadata.opt("tokenizer.ggml.add_bos_token")?;
        if add_bos == Some(true) && bos.is_none() {
            return Err(TokenizerError::NoBos);
        }
        let mut end_tokens = Vec::new();
        for key in ENDS {
            end_tokens.extend(id(key)?.filter(|end| !end_tokens.contains(end)));
        }
        let mut tokenizer = Tokenizer {
            splitter: Splitter::new(rule)?,
            text: Vec::new(),
            ends: Vec::with_capacity(tokens.len()),
            kinds,
            by_bytes: HashMap::with_capacity(tokens.len()),
            byte_tokens: Vec::new(),
            merges: Merges::default(),
            specials: SpecialFinder::default(),
            bos,
            add_bos: add_bos.unwrap_or(rule.add_bos && bos.is_some()),
            end_tokens,
        };
        tokenizer.add_tokens(tokens)?;
        tokenizer.add_merges(metadata.get(MERGES)?)?;
        Ok(Some(tokenizer))
    }

    fn add_tokens(&mut self, tokens: &StringList) -> Result<(), TokenizerError> {
        // Texts of the tokens that `by_bytes` does not hold: special ones, and those that stand for no bytes.
        let mut others = HashMap::new();
        let mut user_defined = Vec::new();
        for ((id, token), kind) in (0u32..).zip(tokens.iter()).zip(self.kinds.iter().copied()) {
            let special = matches!(
                kind,
                TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown
            );
            if special {
                self.specials.add(token, id, kind == TokenKind::UserDefined);
            }
            if kind == TokenKind::UserDefined {
                user_defined.push((token, id));
            }
            let start = self.text.len();
            let first = if !special && bytes::append_bytes(token, &mut self.text) {
                let bytes = self.text.get(start..).unwrap_or_default();
                self.by_bytes.insert(bytes.into(), id)
            } else {
                self.text.extend_from_slice(token.as_bytes());
                others.insert(token, id)
            };
            if let Some(first) = first {
                return Err(TokenizerError::DuplicateToken {
                    id,
                    first,
                    text: token.to_owned(),
                });
            }
            self.ends.push(self.text.len());
        }
        for (token, id) in others {
            let same = self.by_bytes.get(token.as_bytes()).copied();
            if let Some(first) = same.filter(|same| tokens.get(*same as usize) == Some(token)) {
                let (first, id) = (first.min(id), first.max(id));
                return Err(TokenizerError::DuplicateToken {
                    id,
                    first,
                    text: token.to_owned(),
                });
            }
        }
        // A run of spaces may be a token that only merges reach; an ordinary token of the same bytes goes first.
        for (token, id) in user_defined {
            self.by_bytes.entry(token.as_bytes().into()).or_insert(id);
        }
        let byte_token = |byte| self.by_bytes.get(&[byte][..]).copied();
        self.byte_tokens = (0..=u8::MAX).map(byte_token).collect();
        Ok(())
    }

    fn add_merges(&mut self, merges: &StringList) -> Result<(), TokenizerError> {
        self.merges.reserve(merges.len());
        let mut buffer = Vec::new();
        for (index, merge) in merges.iter().enumerate() {
            let parts = merge.split_once(' ');
            let parts = parts.filter(|(l, r)| !l.is_empty() && !r.is_empty() && !r.contains(' '));
            let Some((left, right)) = parts else {
                return Err(TokenizerError::MergeForm {
                    index,
                    text: merge.to_owned(),
                });
            };
            let missing = |part: String| TokenizerError::MergeToken {
                index,
                merge: merge.to_owned(),
                part,
            };
            buffer.clear();
            let known = bytes::append_bytes(left, &mut buffer);
            let middle = buffer.len();
            let id = |range: &[u8]| self.by_bytes.get(range).copied();
            let left_id = id(&buffer)
                .filter(|_| known)
                .ok_or_else(|| missing(left.to_owned()))?;
            let known = bytes::append_bytes(right, &mut buffer);
            let tail = buffer.get(middle..).unwrap_or_default();
            let right_id = id(tail)
                .filter(|_| known)
                .ok_or_else(|| missing(right.to_owned()))?;
            let merged = id(&buffer).ok_or_else(|| missing([left, right].concat()))?;
            self.merges
                .insert((left_id, right_id), index as u32, merged);
        }
        Ok(())
    }

    /// Token ids of `text`, without a first token.
    ///
    /// # Errors
    /// [`TokenizerError::ByteWithoutToken`], [`TokenizerError::Split`].
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let found = self
                .specials
                .next(text, at, special == SpecialTokens::Parse);
            let end = found.as_ref().map_or(text.len(), |(range, _)| range.start);
            self.encode_ordinary(text, at, end, &mut ids)?;
            at = end;
            if let Some((range, id)) = found {
                ids.push(id);
                at = range.end;
            }
        }
        Ok(ids)
    }

    /// Token ids of a prompt: as [`Tokenizer::encode`], with the first token that the file asks for.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(
        &self,
        text: &str,
        special: SpecialTokens,
    ) -> Result<Vec<u32>, TokenizerError> {
        let mut ids: Vec<u32> = self.bos.filter(|_| self.add_bos).into_iter().collect();
        ids.extend(self.encode(text, special)?);
        Ok(ids)
    }

    fn encode_ordinary(
        &self,
        text: &str,
        start: usize,
        end: usize,
        ids: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let part = text.get(start..end).unwrap_or_default();
        let mut symbols = Vec::new();
        for piece in self.splitter.split(part)? {
            let bytes = part.as_bytes().get(piece.clone()).unwrap_or_default();
            if self.splitter.rule().ignore_merges
                && let Some(id) = self.by_bytes.get(bytes)
            {
                ids.push(*id);
                continue;
            }
            symbols.clear();
            for (offset, byte) in bytes.iter().enumerate() {
                let token = self.byte_tokens.get(usize::from(*byte)).copied().flatten();
                symbols.push(token.ok_or(TokenizerError::ByteWithoutToken {
                    byte: *byte,
                    at: start + piece.start + offset,
                })?);
            }
            self.merges.apply(&symbols, ids);
        }
        Ok(())
    }

    /// The bytes that `ids` stand for; control tokens as their text.
    ///
    /// # Errors
    /// [`TokenizerError::TokenOutOfRange`].
    pub fn decode(&self, ids: &[u32]) -> Result<Vec<u8>, TokenizerError> {
        let mut out = Vec::new();
        for (position, id) in ids.iter().enumerate() {
            out.extend_from_slice(self.token_bytes_at(position, *id)?);
        }
        Ok(out)
    }

    fn token_bytes_at(&self, position: usize, id: u32) -> Result<&[u8], TokenizerError> {
        self.token_bytes(id).ok_or(TokenizerError::TokenOutOfRange {
            position,
            id,
            tokens: self.len(),
        })
    }

    /// The bytes of one token: what it adds to a text, or the name of a control token.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        let index = id as usize;
        let end = *self.ends.get(index)?;
        let start = match index {
            0 => 0,
            _ => *self.ends.get(index - 1)?,
        };
        self.text.get(start..end)
    }

    /// The kind of a token.
    #[must_use]
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Whether a token steers the model and is no text.
    #[must_use]
    pub fn is_control(&self, id: u32) -> bool {
        self.kind(id) == Some(TokenKind::Control)
    }

    /// Number of tokens in the vocabulary.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the vocabulary is empty; it never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of different merges.
    #[must_use]
    pub fn merge_count(&self) -> usize {
        self.merges.len()
    }

    /// The splitting rule.
    #[must_use]
    pub fn rule(&self) -> &'static PreRule {
        self.splitter.rule()
    }

    /// The first token of a sequence, if the file names one.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Whether [`Tokenizer::encode_prompt`] puts [`Tokenizer::bos`] first.
    #[must_use]
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Tokens that end a text: end of sequence first, then of turn and message where the file names them.
    #[must_use]
    pub fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// Checks the vocabulary against the rows of the embedding. More rows than tokens are allowed (padding).
    ///
    /// # Errors
    /// [`TokenizerError::VocabularyMismatch`].
    pub fn check_embedding_rows(&self, rows: u64) -> Result<(), TokenizerError> {
        match rows >= self.len() as u64 {
            true => Ok(()),
            false => Err(TokenizerError::VocabularyMismatch {
                tokens: self.len(),
                rows,
            }),
        }
    }
}

fn read_kinds(metadata: &Metadata, tokens: usize) -> Result<Vec<TokenKind>, TokenizerError> {
    let Some(types) = metadata.opt::<Vec<i32>>(TOKEN_TYPE)? else {
        return Ok(vec![TokenKind::Normal; tokens]);
    };
    if types.len() != tokens {
        return Err(TokenizerError::Length {
            key: TOKEN_TYPE,
            found: types.len(),
            tokens,
        });
    }
    let kind = |(id, found): (u32, i32)| {
        Ok(match found {
            1 => TokenKind::Normal,
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => return Err(TokenizerError::TokenType { id, found }),
        })
    };
    (0u32..).zip(types).map(kind).collect()
}

fn read_id(
    metadata: &Metadata,
    key: &'static str,
    tokens: usize,
) -> Result<Option<u32>, TokenizerError> {
    match metadata.opt::<u32>(key) {
        // Some converters write -1 for "none".
        Err(GgufError::KeyRange { found: -1, .. }) => Ok(None),
        Ok(Some(u32::MAX) | None) => Ok(None),
        Ok(Some(found)) if found as usize >= tokens => {
            Err(TokenizerError::SpecialId { key, found, tokens })
        }
        other => Ok(other?),
    }
}
