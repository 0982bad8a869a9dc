//! What can be wrong with a tokenizer or its input.

use crate::gguf::GgufError;

/// Why a tokenizer was refused, or a text or token id could not be handled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// A metadata key is missing or of the wrong type.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// `tokenizer.ggml.model` names an algorithm that is not built in.
    #[error(
        "tokenizer.ggml.model is {found:?}, known are \"gpt2\" (byte-level BPE) and \"none\"; use a model with one of these"
    )]
    Model {
        /// Name in the file.
        found: String,
    },
    /// `tokenizer.ggml.pre` names a splitting rule that no table row knows.
    #[error(
        "tokenizer.ggml.pre is {found:?}, known are {known}; add a row to the table of splitting rules"
    )]
    Pre {
        /// Name in the file.
        found: String,
        /// Known names, separated by commas.
        known: String,
    },
    /// A splitting rule could not be compiled or ran out of its step budget.
    #[error(
        "splitting rule {rule} failed at byte {at} of the text: {message}; shorten runs of equal characters in the prompt"
    )]
    Split {
        /// Name of the rule.
        rule: &'static str,
        /// Byte offset in the text.
        at: usize,
        /// Message of the regex engine.
        message: String,
    },
    /// The vocabulary is empty.
    #[error("tokenizer.ggml.tokens is empty; convert the model again")]
    Empty,
    /// An array beside the vocabulary has another length.
    #[error(
        "{key} has {found} elements, tokenizer.ggml.tokens has {tokens}; convert the model again"
    )]
    Length {
        /// Key of the array.
        key: &'static str,
        /// Its length.
        found: usize,
        /// Length of the vocabulary.
        tokens: usize,
    },
    /// A token type outside 1..=6.
    #[error("token {id} has type {found}, known are 1 to 6; convert the model again")]
    TokenType {
        /// Token id.
        id: u32,
        /// Type in the file.
        found: i32,
    },
    /// Two tokens of the same text.
    #[error("token {id} and token {first} are both {text:?}; convert the model again")]
    DuplicateToken {
        /// Later token id.
        id: u32,
        /// Earlier token id.
        first: u32,
        /// Text of both, as stored.
        text: String,
    },
    /// A merge is not two parts separated by a space.
    #[error(
        "merge {index} is {text:?}, expected two parts separated by one space; convert the model again"
    )]
    MergeForm {
        /// Index in `tokenizer.ggml.merges`.
        index: usize,
        /// The entry.
        text: String,
    },
    /// A merge names a part, or makes a token, that the vocabulary does not have.
    #[error(
        "merge {index} ({merge:?}): {part:?} is no token of the vocabulary; convert the model again"
    )]
    MergeToken {
        /// Index in `tokenizer.ggml.merges`.
        index: usize,
        /// The entry.
        merge: String,
        /// The missing token, as stored.
        part: String,
    },
    /// A special token id is outside the vocabulary.
    #[error("{key} is {found}, the vocabulary has {tokens} tokens; convert the model again")]
    SpecialId {
        /// Key of the id.
        key: &'static str,
        /// Id in the file.
        found: u32,
        /// Length of the vocabulary.
        tokens: usize,
    },
    /// The file asks for a first token but does not say which.
    #[error(
        "tokenizer.ggml.add_bos_token is true but tokenizer.ggml.bos_token_id is missing; convert the model again"
    )]
    NoBos,
    /// A byte of the text has no token.
    #[error(
        "byte {byte:#04x} at {at} of the text has no token in this vocabulary; leave that character out of the prompt"
    )]
    ByteWithoutToken {
        /// The byte.
        byte: u8,
        /// Byte offset in the text.
        at: usize,
    },
    /// A token id outside the vocabulary.
    #[error(
        "token id {id} at position {position} is outside the vocabulary of {tokens}; give ids below that"
    )]
    TokenOutOfRange {
        /// Position in the sequence.
        position: usize,
        /// The id.
        id: u32,
        /// Length of the vocabulary.
        tokens: usize,
    },
    /// The embedding has fewer rows than the vocabulary has tokens.
    #[error(
        "the vocabulary has {tokens} tokens, the embedding {rows} rows; file and tokenizer do not belong together, convert the model again"
    )]
    VocabularyMismatch {
        /// Length of the vocabulary.
        tokens: usize,
        /// Rows of the embedding.
        rows: u64,
    },
}
