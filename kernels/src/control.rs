//! The control block: the words that change from token to token, and the token ring's entries.
//!
//! The block lies in device memory; kernels read and write its words by address, so that no kernel
//! argument changes between tokens. `kernels/hip/refrain.hpp` mirrors the offsets (struct Control).

/// Bytes of the control block. Words past the last one in [`WORDS`] are reserved and zero.
pub const CONTROL_BYTES: u64 = 256;

/// What `sampled` holds when no logit was comparable (all NaN or -inf).
pub const NOT_A_TOKEN: u32 = 0xFFFF_FFFF;

/// A word of the control block; the discriminant is its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Word {
    /// Id of the token that this step embeds.
    Token,
    /// Position of this step: the row of the cache that it writes.
    Pos,
    /// 0 while running, otherwise a [`StopReason`].
    Done,
    /// Tokens in the prompt buffer.
    PromptLen,
    /// Tokens generated so far, which is the number of ring entries written for this text.
    Generated,
    /// The text ends when `generated` reaches this.
    GenLimit,
    /// Rows of the cache: positions are below it.
    CtxLen,
    /// The end-of-sequence token, or [`NOT_A_TOKEN`] for none.
    Eos,
    /// Sequence number of the last ring entry written, 0 before the first.
    Seq,
    /// Entries of the ring less one; the number of entries is a power of two.
    RingMask,
    /// The token that the sampler chose in this step.
    Sampled,
    /// Lower half of the seed that a drawing sampler uses.
    SeedLo,
    /// Upper half of it.
    SeedHi,
}

/// Who writes a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The host, before a text starts; nothing writes it while tokens are in flight.
    Host,
    /// The host once, then the one of these kernels that the plan holds.
    Kernels(&'static [&'static str]),
}

/// One word of the control block.
#[derive(Clone, Copy, Debug)]
pub struct WordRow {
    /// The word.
    pub word: Word,
    /// Its name in plans and dumps.
    pub name: &'static str,
    /// Byte offset in the block; every word is a little-endian u32.
    pub offset: u32,
    /// Who writes it.
    pub writer: Writer,
}

const fn word(word: Word, name: &'static str, writer: Writer) -> WordRow {
    WordRow {
        word,
        name,
        offset: word as u32 * 4,
        writer,
    }
}

/// Every word, by ascending offset.
pub const WORDS: [WordRow; 13] = [
    word(Word::Token, "token", Writer::Kernels(&["advance"])),
    word(Word::Pos, "pos", Writer::Kernels(&["advance"])),
    word(Word::Done, "done", Writer::Kernels(&["advance"])),
    word(Word::PromptLen, "prompt_len", Writer::Host),
    word(Word::Generated, "generated", Writer::Kernels(&["advance"])),
    word(Word::GenLimit, "gen_limit", Writer::Host),
    word(Word::CtxLen, "ctx_len", Writer::Host),
    word(Word::Eos, "eos", Writer::Host),
    word(Word::Seq, "seq", Writer::Kernels(&["advance"])),
    word(Word::RingMask, "ring_mask", Writer::Host),
    word(
        Word::Sampled,
        "sampled",
        Writer::Kernels(&["argmax", "sample"]),
    ),
    word(Word::SeedLo, "seed_lo", Writer::Host),
    word(Word::SeedHi, "seed_hi", Writer::Host),
];

impl Word {
    /// The word's row.
    #[must_use]
    pub const fn row(self) -> &'static WordRow {
        &WORDS[self as usize]
    }

    /// Byte offset in the control block.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.row().offset
    }

    /// Name in plans and dumps.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The word of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Word> {
        WORDS
            .iter()
            .find(|row| row.name == name)
            .map(|row| row.word)
    }
}

/// A value for every word, for evaluating effects and for writing the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordValues([u32; WORDS.len()]);

impl WordValues {
    /// The value of one word.
    #[must_use]
    pub const fn get(&self, word: Word) -> u32 {
        self.0[word as usize]
    }

    /// Sets one word.
    pub const fn set(&mut self, word: Word, value: u32) {
        self.0[word as usize] = value;
    }

    /// The block's bytes, reserved words zero.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CONTROL_BYTES as usize] {
        let mut bytes = [0; CONTROL_BYTES as usize];
        for (slot, value) in bytes.chunks_exact_mut(4).zip(self.0) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// The words in a block's bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; CONTROL_BYTES as usize]) -> WordValues {
        let mut values = WordValues::default();
        for (value, slot) in values.0.iter_mut().zip(bytes.chunks_exact(4)) {
            *value = slot
                .iter()
                .rev()
                .fold(0, |word, &byte| word << 8 | u32::from(byte));
        }
        values
    }
}

/// Why a text ended: the value of `done` and of the last ring entry's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StopReason {
    /// The end-of-sequence token was sampled; the last entry holds it.
    Eos = 1,
    /// `gen_limit` tokens were generated.
    Limit = 2,
    /// The context is full.
    ContextEnd = 3,
    /// No logit was comparable: all NaN or -inf. The last entry holds no token.
    NotFinite = 4,
}

impl StopReason {
    /// The reason of that number; `None` for 0 and for numbers without a meaning.
    #[must_use]
    pub const fn from_word(value: u32) -> Option<StopReason> {
        match value {
            1 => Some(StopReason::Eos),
            2 => Some(StopReason::Limit),
            3 => Some(StopReason::ContextEnd),
            4 => Some(StopReason::NotFinite),
            _ => None,
        }
    }

    /// A word for machine-readable output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            StopReason::Eos => "eos",
            StopReason::Limit => "limit",
            StopReason::ContextEnd => "context_end",
            StopReason::NotFinite => "not_finite",
        }
    }
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            StopReason::Eos => "the end-of-sequence token",
            StopReason::Limit => "the number of tokens asked for",
            StopReason::ContextEnd => "the end of the context",
            StopReason::NotFinite => "no logit was comparable (NaN or -inf)",
        })
    }
}

/// One entry of the host-visible token ring: `seq << 32 | reason << 24 | token`, written by one
/// 8-byte store at system scope. Entry `seq` lies at index `(seq - 1) & ring_mask`. Only generated
/// tokens have entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingEntry {
    /// Sequence number, from 1; 0 marks an entry never written.
    pub seq: u32,
    /// 0 while the text goes on, otherwise the number of a [`StopReason`].
    pub reason: u8,
    /// Token id, 24 bits.
    pub token: u32,
}

impl RingEntry {
    /// Bytes of an entry.
    pub const BYTES: u64 = 8;
    /// Vocabularies must be smaller than this: an entry has 24 bits for the token.
    pub const TOKEN_LIMIT: u32 = 1 << 24;

    /// The entry in a ring word.
    #[must_use]
    pub const fn unpack(word: u64) -> RingEntry {
        RingEntry {
            seq: (word >> 32) as u32,
            reason: (word >> 24) as u8,
            token: word as u32 & (Self::TOKEN_LIMIT - 1),
        }
    }

    /// The ring word of an entry. Of the token the low 24 bits are kept.
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.seq as u64) << 32
            | (self.reason as u64) << 24
            | (self.token & (Self::TOKEN_LIMIT - 1)) as u64
    }

    /// The reason for which the text ended with this entry.
    #[must_use]
    pub const fn stop(self) -> Option<StopReason> {
        StopReason::from_word(self.reason as u32)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{CONTROL_BYTES, RingEntry, StopReason, WORDS, Word, WordValues};

    #[test]
    fn table_order_is_the_enum_order_and_fits_the_block() {
        for (index, row) in WORDS.iter().enumerate() {
            assert_eq!(row.word as usize, index);
            assert_eq!(row.offset as usize, index * 4);
            assert_eq!(Word::parse(row.name), Some(row.word));
            assert!(u64::from(row.offset) + 4 <= CONTROL_BYTES);
        }
    }

    #[test]
    fn kernel_header_mirrors_the_words() {
        let header = include_str!("../hip/refrain.hpp");
        let body = header
            .split("struct Control {")
            .nth(1)
            .unwrap()
            .split('}')
            .next()
            .unwrap();
        let fields: Vec<&str> = body
            .lines()
            .filter_map(|line| line.trim().strip_prefix("u32 ")?.strip_suffix(';'))
            .collect();
        let names: Vec<&str> = WORDS.iter().map(|row| row.name).collect();
        assert_eq!(fields, names);
    }

    #[test]
    fn ring_entry_fields_do_not_overlap() {
        let entry = RingEntry {
            seq: 7,
            reason: 2,
            token: 0x00AB_CDEF,
        };
        assert_eq!(entry.pack(), 0x0000_0007_02AB_CDEF);
        assert_eq!(entry.stop(), Some(StopReason::Limit));
        assert_eq!(RingEntry::unpack(0).stop(), None);
        assert_eq!(
            RingEntry {
                token: u32::MAX,
                ..entry
            }
            .pack(),
            0x0000_0007_02FF_FFFF
        );
    }

    proptest! {
        #[test]
        fn ring_words_survive(word in any::<u64>()) {
            assert_eq!(RingEntry::unpack(word).pack(), word);
        }

        #[test]
        fn words_survive(values in any::<[u32; WORDS.len()]>()) {
            let mut words = WordValues::default();
            for (row, value) in WORDS.iter().zip(values) {
                words.set(row.word, value);
            }
            let bytes = words.to_bytes();
            assert_eq!(WordValues::from_bytes(&bytes), words);
            assert!(bytes[WORDS.len() * 4..].iter().all(|&byte| byte == 0));
            assert_eq!(words.get(Word::Eos), values[Word::Eos as usize]);
        }
    }
}
