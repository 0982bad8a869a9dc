//! From a catalog row's effects and a launch's arguments to the plan's regions.
//!
//! A span that moves with one word becomes a row or a run of rows; whatever does not have that form
//! becomes its union over every word value. Regions are therefore never smaller than the effects.

use crate::plan::{Arg, BufferId, Extent, Geometry, Options, Region};
use refrain_kernels::{ArgKind, CatalogError, Effect, KernelRow, Span, Word, WordValues};

/// Values that control words can take while a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordRanges {
    /// Vocabulary rows: `token` is below.
    pub vocab: u32,
    /// Positions of the plan: `pos` is below.
    pub positions: u32,
    /// KV rows: `prompt_len` is at most this.
    pub context: u32,
    /// Entries of the token ring, a power of two.
    pub ring_entries: u32,
}

impl WordRanges {
    /// Ranges for a model under the options of a plan.
    pub const fn of(geometry: &Geometry, options: &Options) -> Self {
        Self {
            vocab: geometry.vocab,
            positions: options.bucket,
            context: options.context,
            ring_entries: options.ring_entries,
        }
    }

    /// Number of values of a word that starts at 0; every other word takes all of u32.
    const fn count(&self, word: Word) -> u64 {
        match word {
            Word::Token => self.vocab as u64,
            Word::Pos => self.positions as u64,
            Word::PromptLen => self.context as u64 + 1,
            _ => 1 << 32,
        }
    }

    fn lowest(&self) -> WordValues {
        let mut words = WordValues::default();
        words.set(Word::RingMask, self.ring_entries.saturating_sub(1));
        words
    }

    fn highest(&self) -> WordValues {
        let mut words = self.lowest();
        words.set(Word::Token, self.vocab.saturating_sub(1));
        words.set(Word::Pos, self.positions.saturating_sub(1));
        words.set(Word::PromptLen, self.context);
        words.set(Word::Seq, u32::MAX);
        words
    }
}

/// Declared regions of one launch, with the position of the argument each belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// Bytes that may be read.
    pub reads: Vec<(usize, Region)>,
    /// Bytes that may be written.
    pub writes: Vec<(usize, Region)>,
}

impl Effects {
    /// Only the regions.
    pub fn regions(&self) -> (Vec<Region>, Vec<Region>) {
        let strip = |list: &[(usize, Region)]| list.iter().map(|(_, region)| *region).collect();
        (strip(&self.reads), strip(&self.writes))
    }
}

/// The immediates of a launch in the row's order.
pub fn immediates(args: &[Arg]) -> Vec<u32> {
    args.iter()
        .filter_map(|arg| {
            if let Arg::Imm(bits) = arg {
                Some(*bits)
            } else {
                None
            }
        })
        .collect()
}

/// Whether an argument has the kind that the row declares.
pub fn kind_matches(kind: ArgKind, arg: &Arg) -> bool {
    matches!(kind, ArgKind::Pointer(_)) != matches!(arg, Arg::Imm(_))
}

/// Regions of a launch of `row` with `args`, which must match the row's kinds. `control` is the
/// buffer that word addresses point into.
pub fn declare(
    row: &KernelRow,
    args: &[Arg],
    ranges: &WordRanges,
    control: BufferId,
) -> Result<Effects, CatalogError> {
    let imms = immediates(args);
    let mut effects = Effects::default();
    for effect in row.effects {
        let Some(position) = row.args.iter().position(|arg| arg.name == effect.arg) else {
            continue;
        };
        let (buffer, base) = match args.get(position) {
            Some(Arg::Region { buffer, offset }) => (*buffer, *offset),
            Some(Arg::WordAddr { offset }) => (control, u64::from(*offset)),
            _ => continue,
        };
        let (start, extent) = extent(row, effect, &imms, ranges)?;
        let region = Region {
            buffer,
            offset: base.saturating_add(start),
            extent,
        };
        if effect.access.reads() {
            effects.reads.push((position, region));
        }
        if effect.access.writes() {
            effects.writes.push((position, region));
        }
    }
    Ok(effects)
}

/// Offset from the pointer, and extent, of one effect.
fn extent(
    row: &KernelRow,
    effect: &Effect,
    imms: &[u32],
    ranges: &WordRanges,
) -> Result<(u64, Extent), CatalogError> {
    let (low, high) = (ranges.lowest(), ranges.highest());
    if let (Span::Bytes { .. } | Span::Plane { .. }, [word]) =
        (effect.span, effect.moves_with().as_slice())
    {
        let at = |value: u32| {
            let mut words = low;
            words.set(*word, value);
            row.range(effect, imms, &words)
        };
        let count = ranges.count(*word);
        let (first, second) = (at(0)?, at(1)?);
        let from = second.start.saturating_sub(first.start);
        let to = second.end.saturating_sub(first.end);
        let bytes = first.end.saturating_sub(first.start);
        let word_offset = word.offset();
        if let Ok(count) = u32::try_from(count) {
            if from == to {
                let extent = Extent::Row {
                    word: word_offset,
                    stride: to,
                    bytes,
                    count,
                };
                return Ok((first.start, extent));
            }
            if from == 0 && bytes == to {
                let extent = Extent::RowsTo {
                    word: word_offset,
                    stride: to,
                    count,
                };
                return Ok((first.start, extent));
            }
        }
    }
    let hull = row.hull(effect, imms, &low, &high)?;
    Ok((
        hull.start,
        Extent::Fixed {
            bytes: hull.end.saturating_sub(hull.start),
        },
    ))
}
