//! Declared effects: which bytes behind each pointer a kernel may read or write, as data that is
//! evaluated with the launch's immediates and the control words.
//!
//! A span is an upper bound: the kernel touches nothing outside it, and may touch less (partial
//! rotary embedding, a prompt already consumed). Every term is non-negative and grows with each
//! word, so the union over a range of words is the span from the lowest start to the highest end.

use std::ops::Range;

use crate::format::Coding;
use crate::{CatalogError, Dtype, KernelRow, RingEntry, Word, WordValues, plane_offset};

/// How an argument's bytes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read only.
    Read,
    /// Written only; old contents do not matter.
    Write,
    /// Read, then written.
    ReadWrite,
}

impl Access {
    /// Whether bytes are read.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadWrite)
    }

    /// Whether bytes are written.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Access::Write | Access::ReadWrite)
    }

    /// "read", "write" or "read-write".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::ReadWrite => "read-write",
        }
    }
}

/// A factor of a [`Term`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// An immediate argument of the kernel, by name.
    Imm(&'static str),
    /// A word of the control block.
    Word(Word),
}

/// `times / over * product(factors)`; the product is a multiple of `over` for every shape that the
/// row's needs admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Multiplier, in bytes.
    pub times: u64,
    /// Divisor.
    pub over: u64,
    /// What is multiplied.
    pub factors: &'static [Factor],
}

/// A byte range relative to the pointer argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// `[sum of start, sum of end)`.
    Bytes {
        /// First byte: a sum, empty for 0.
        start: &'static [Term],
        /// One past the last byte: a sum.
        end: &'static [Term],
    },
    /// The rows `[sum of start, sum of end)` of one plane of a weight `[rows][cols]` of the kernel's
    /// type. Plain types have one plane.
    Plane {
        /// Which plane of [`crate::Format`].
        plane: usize,
        /// First row: a sum, empty for 0.
        start: &'static [Term],
        /// One past the last row: a sum.
        end: &'static [Term],
        /// Rows of the weight; any factor where there is one plane.
        rows: Factor,
        /// Elements of a row.
        cols: Factor,
    },
    /// The whole of a weight of the kernel's type: all planes.
    Matrix {
        /// What is multiplied to the number of rows.
        rows: &'static [Factor],
        /// Elements of a row.
        cols: Factor,
    },
    /// An activation of as many elements as the product, in the kernel's form
    /// ([`KernelRow::habit`]; f32 without one).
    Activation(&'static [Factor]),
    /// One word of the control block.
    Word(Word),
    /// The ring entry that follows entry `seq`: 8 bytes at `(seq & ring_mask) * 8`.
    NextRingEntry,
}

/// One declared effect of a kernel on one of its pointer arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Name of the pointer argument.
    pub arg: &'static str,
    /// Read, written or both.
    pub access: Access,
    /// Which bytes.
    pub span: Span,
}

impl Effect {
    /// The words that move or resize the span, without repetition.
    #[must_use]
    pub fn moves_with(&self) -> Vec<Word> {
        let mut words = match self.span {
            Span::Word(_) => Vec::new(),
            Span::NextRingEntry => vec![Word::Seq, Word::RingMask],
            Span::Bytes { start, end } | Span::Plane { start, end, .. } => start
                .iter()
                .chain(end)
                .flat_map(|term| term.factors)
                .filter_map(|factor| match factor {
                    Factor::Word(word) => Some(*word),
                    Factor::Imm(_) => None,
                })
                .collect(),
            Span::Matrix { .. } | Span::Activation(_) => Vec::new(),
        };
        words.sort_unstable();
        words.dedup();
        words
    }
}

impl KernelRow {
    /// The bytes of `effect` for one setting of the words, relative to its argument's pointer.
    /// `imms` holds the immediates in the row's order.
    ///
    /// # Errors
    /// [`CatalogError::Count`] for another number of immediates, [`CatalogError::Overflow`] if a
    /// sum leaves u64.
    pub fn range(
        &self,
        effect: &Effect,
        imms: &[u32],
        words: &WordValues,
    ) -> Result<Range<u64>, CatalogError> {
        self.hull(effect, imms, words, words)
    }

    /// The union of the effect's bytes over all words between `low` and `high`, each word on its
    /// own. Both must agree on words that the effect does not move with.
    ///
    /// # Errors
    /// As [`KernelRow::range`].
    pub fn hull(
        &self,
        effect: &Effect,
        imms: &[u32],
        low: &WordValues,
        high: &WordValues,
    ) -> Result<Range<u64>, CatalogError> {
        Ok(match effect.span {
            Span::Bytes { start, end } => self.sum(start, imms, low)?..self.sum(end, imms, high)?,
            Span::Plane {
                plane,
                start,
                end,
                rows,
                cols,
            } => {
                let (rows, cols) = (self.factor(rows, imms, low)?, self.factor(cols, imms, low)?);
                let (base, row_bytes) = self.plane(plane, rows, cols)?;
                let at = |rows: u64| {
                    let byte = rows.checked_mul(row_bytes);
                    byte.and_then(|byte| byte.checked_add(base))
                        .ok_or_else(|| self.overflow())
                };
                at(self.sum(start, imms, low)?)?..at(self.sum(end, imms, high)?)?
            }
            Span::Matrix { rows, cols } => {
                let rows = self.product(1, rows, imms, low)?;
                0..self
                    .dtype
                    .unwrap_or(Dtype::F32)
                    .device_bytes(rows, self.factor(cols, imms, low)?)?
            }
            Span::Activation(count) => {
                let count = self.product(1, count, imms, low)?;
                let bytes = match self.habit {
                    None => count.checked_mul(4),
                    Some(habit) => {
                        let count = usize::try_from(count).map_err(|_| self.overflow())?;
                        Some(habit.bytes(count)? as u64)
                    }
                };
                0..bytes.ok_or_else(|| self.overflow())?
            }
            Span::Word(word) => u64::from(word.offset())..u64::from(word.offset()) + 4,
            Span::NextRingEntry => {
                let mask = high.get(Word::RingMask);
                let (first, last) = (low.get(Word::Seq), high.get(Word::Seq));
                let (first, last) = (u64::from(first & mask), u64::from(last & mask));
                if low.get(Word::Seq) == high.get(Word::Seq) {
                    first * RingEntry::BYTES..(last + 1) * RingEntry::BYTES
                } else {
                    0..(u64::from(mask) + 1) * RingEntry::BYTES
                }
            }
        })
    }

    fn sum(&self, terms: &[Term], imms: &[u32], words: &WordValues) -> Result<u64, CatalogError> {
        terms.iter().try_fold(0u64, |sum, term| {
            let value = self.product(term.times, term.factors, imms, words)?;
            sum.checked_add(value / term.over)
                .ok_or_else(|| self.overflow())
        })
    }

    fn product(
        &self,
        times: u64,
        factors: &[Factor],
        imms: &[u32],
        words: &WordValues,
    ) -> Result<u64, CatalogError> {
        factors.iter().try_fold(times, |value, factor| {
            value
                .checked_mul(self.factor(*factor, imms, words)?)
                .ok_or_else(|| self.overflow())
        })
    }

    fn factor(
        &self,
        factor: Factor,
        imms: &[u32],
        words: &WordValues,
    ) -> Result<u64, CatalogError> {
        Ok(match factor {
            Factor::Imm(name) => u64::from(self.imm(name, imms)?),
            Factor::Word(word) => u64::from(words.get(word)),
        })
    }

    /// First byte of a plane of a weight of the kernel's type, and bytes of a row in it.
    fn plane(&self, plane: usize, rows: u64, cols: u64) -> Result<(u64, u64), CatalogError> {
        let dtype = self.dtype.unwrap_or(Dtype::F32);
        let block_bytes = match &dtype.format().coding {
            Coding::Plain(_) => dtype.format().block_bytes,
            Coding::Blocks(blocks) => blocks.planes.get(plane).map_or(0, |p| p.block_bytes),
        };
        let base = match plane {
            0 => 0,
            _ => plane_offset(dtype, plane, rows, cols)?,
        };
        Ok((base, cols / dtype.block() * block_bytes as u64))
    }

    const fn overflow(&self) -> CatalogError {
        CatalogError::Overflow {
            symbol: self.symbol,
            what: "a declared span",
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, CatalogError, Word, WordValues, find};

    fn words(pairs: &[(Word, u32)]) -> WordValues {
        let mut values = WordValues::default();
        for &(word, value) in pairs {
            values.set(word, value);
        }
        values
    }

    /// Symbol, immediates in row order, argument, access, expected range.
    type Case = (
        &'static str,
        &'static [u32],
        &'static str,
        Access,
        std::ops::Range<u64>,
    );

    fn check(cases: &[Case], at: &WordValues) {
        for (symbol, imms, arg, access, expected) in cases {
            let row = find(symbol).unwrap();
            let effect = row
                .effects
                .iter()
                .find(|e| e.arg == *arg && e.access == *access)
                .unwrap();
            assert_eq!(
                row.range(effect, imms, at),
                Ok(expected.clone()),
                "{symbol} {arg}"
            );
        }
    }

    #[test]
    fn spans_of_fused_kernels() {
        let cases: &[Case] = &[
            (
                "gemv3_q8_0",
                &[16, 8, 4, 64],
                "w1",
                Access::Read,
                0..8 * 64 / 32 * 34,
            ),
            ("gemv3_q8_0", &[16, 8, 4, 64], "y2", Access::Write, 0..16),
            (
                "moe_gate_up_q8_0",
                &[6, 2, 16, 64],
                "wu",
                Access::Read,
                0..6 * 16 * 64 / 32 * 34,
            ),
            (
                "qk_norm_rope_kv_f16",
                &[4, 2, 32, 64, 8, 0, 0],
                "vcache",
                Access::Write,
                10 * 128..11 * 128,
            ),
            (
                "delta_net_d64",
                &[2, 4, 1, 0, 0, 0],
                "state",
                Access::ReadWrite,
                0..4 * 64 * 64 * 4,
            ),
            (
                "delta_net_d64",
                &[2, 4, 1, 0, 0, 0],
                "conv_w",
                Access::Read,
                0..8 * 64 * 4 * 4,
            ),
        ];
        check(cases, &words(&[(Word::Pos, 10)]));
    }

    #[test]
    fn spans_follow_immediates_and_words() {
        let at = words(&[
            (Word::Token, 7),
            (Word::Pos, 10),
            (Word::PromptLen, 5),
            (Word::Seq, 9),
            (Word::RingMask, 7),
        ]);
        let cases: &[Case] = &[
            ("embed_f16", &[64], "table", Access::Read, 7 * 128..8 * 128),
            (
                "embed_q8_0",
                &[64, 100],
                "table",
                Access::Read,
                7 * 64..8 * 64,
            ),
            (
                "gemv_f32",
                &[16, 48, 64],
                "w",
                Access::Read,
                16 * 256..48 * 256,
            ),
            ("gemv_q8_0", &[16, 48, 64, 96], "y", Access::Write, 64..192),
            (
                "gemv_add_bf16",
                &[0, 3, 32],
                "residual",
                Access::Read,
                0..12,
            ),
            (
                "kv_write_f16",
                &[128],
                "kcache",
                Access::Write,
                10 * 256..11 * 256,
            ),
            (
                "attn_decode_f32_d64",
                &[4, 2, 0],
                "vcache",
                Access::Read,
                0..11 * 2 * 64 * 4,
            ),
            ("rope", &[4, 2, 64, 32, 0], "table", Access::Read, 0..128),
            ("advance", &[], "prompt", Access::Read, 0..20),
            ("advance", &[], "ring", Access::Write, 8..16),
            ("argmax", &[10], "control", Access::Write, 40..44),
        ];
        check(cases, &at);
    }

    #[test]
    fn q8_0_scales_are_a_second_span() {
        let row = find("gemv_q8_0").unwrap();
        let at = WordValues::default();
        let spans: Vec<_> = row
            .effects
            .iter()
            .filter(|e| e.arg == "w")
            .map(|e| row.range(e, &[16, 48, 64, 96], &at).unwrap())
            .collect();
        // 96 rows of 64 quants, then two f16 scales a row.
        assert_eq!(
            spans,
            [16 * 64..48 * 64, 96 * 64 + 16 * 4..96 * 64 + 48 * 4]
        );
    }

    #[test]
    fn hull_covers_every_position_between() {
        let row = find("kv_write_f32").unwrap();
        let effect = row.effects.iter().find(|e| e.arg == "kcache").unwrap();
        assert_eq!(effect.moves_with(), [Word::Pos]);
        let (low, high) = (words(&[(Word::Pos, 3)]), words(&[(Word::Pos, 9)]));
        let hull = row.hull(effect, &[8], &low, &high).unwrap();
        for pos in 3..=9 {
            let one = row
                .range(effect, &[8], &words(&[(Word::Pos, pos)]))
                .unwrap();
            assert!(hull.start <= one.start && one.end <= hull.end);
        }
        assert_eq!(hull, 3 * 32..10 * 32);
    }

    #[test]
    fn overflow_and_wrong_counts_are_errors() {
        let row = find("embed_f32").unwrap();
        let effect = &row.effects[0];
        let at = words(&[(Word::Token, u32::MAX)]);
        assert!(row.range(effect, &[u32::MAX], &at).is_err());
        assert!(matches!(
            row.range(effect, &[1, 2], &at),
            Err(CatalogError::Count {
                expected: 1,
                given: 2,
                ..
            })
        ));
    }
}
