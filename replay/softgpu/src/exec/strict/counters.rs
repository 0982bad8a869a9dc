//! Wait counters: which instruction raises which, what a wait names, and what it guarantees.
//!
//! Sources: RDNA3 and RDNA4 ISA documents ("S_WAITCNT", "Wait counters") and LLVM's
//! SIInsertWaitcnts; provenance: documented. Data that a store sends is read when the store issues,
//! so registers of a store are free at once on these generations.

use crate::isa::{Generation, Row};

/// A counter of outstanding memory instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    /// Vector loads and returning atomics: vmcnt, loadcnt.
    Load,
    /// Vector stores and other atomics: vscnt, storecnt.
    Store,
    /// LDS: lgkmcnt (with scalar loads), dscnt.
    Lds,
    /// Scalar loads: lgkmcnt (with LDS), kmcnt.
    Scalar,
}

impl Counter {
    /// Name as in the generation's assembly.
    pub(super) const fn name(self, generation: Generation) -> &'static str {
        match (generation, self) {
            (Generation::Gfx11, Self::Load) => "vmcnt",
            (Generation::Gfx11, Self::Store) => "vscnt",
            (Generation::Gfx11, _) => "lgkmcnt",
            (Generation::Gfx12, Self::Load) => "loadcnt",
            (Generation::Gfx12, Self::Store) => "storecnt",
            (Generation::Gfx12, Self::Lds) => "dscnt",
            (Generation::Gfx12, Self::Scalar) => "kmcnt",
        }
    }

    /// Whether two kinds of instruction share a hardware counter.
    pub(super) const fn shares(self, other: Self, generation: Generation) -> bool {
        match generation {
            Generation::Gfx11 => self as u8 == other as u8 || self.is_lgkm() && other.is_lgkm(),
            Generation::Gfx12 => self as u8 == other as u8,
        }
    }

    const fn is_lgkm(self) -> bool {
        matches!(self, Self::Lds | Self::Scalar)
    }
}

/// One field of a wait instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) counter: Counter,
    /// Lowest bit in the 16-bit immediate.
    pub(super) low: u32,
    pub(super) bits: u32,
}

const fn field(counter: Counter, low: u32, bits: u32) -> Field {
    Field { counter, low, bits }
}

/// Wait instructions and their fields. Waits for counters that compute kernels cannot raise
/// (exports, samplers, ray tracing) have none.
const WAITS: [(&str, &[Field]); 15] = [
    // gfx11: expcnt [2:0], lgkmcnt [9:4], vmcnt [15:10].
    (
        "s_waitcnt",
        &[field(Counter::Load, 10, 6), field(Counter::Lds, 4, 6)],
    ),
    ("s_waitcnt_vmcnt", &[field(Counter::Load, 0, 6)]),
    ("s_waitcnt_vscnt", &[field(Counter::Store, 0, 6)]),
    ("s_waitcnt_lgkmcnt", &[field(Counter::Lds, 0, 6)]),
    ("s_waitcnt_expcnt", &[]),
    // gfx12, one counter each, and the combined forms: dscnt [5:0], the other [13:8].
    ("s_wait_loadcnt", &[field(Counter::Load, 0, 6)]),
    ("s_wait_storecnt", &[field(Counter::Store, 0, 6)]),
    ("s_wait_dscnt", &[field(Counter::Lds, 0, 6)]),
    ("s_wait_kmcnt", &[field(Counter::Scalar, 0, 5)]),
    (
        "s_wait_loadcnt_dscnt",
        &[field(Counter::Load, 8, 6), field(Counter::Lds, 0, 6)],
    ),
    (
        "s_wait_storecnt_dscnt",
        &[field(Counter::Store, 8, 6), field(Counter::Lds, 0, 6)],
    ),
    ("s_wait_samplecnt", &[]),
    ("s_wait_bvhcnt", &[]),
    ("s_wait_expcnt", &[]),
    // Waits for everything; its fields have no bits, so their value is 0.
    (
        "s_wait_idle",
        &[
            field(Counter::Load, 0, 0),
            field(Counter::Store, 0, 0),
            field(Counter::Lds, 0, 0),
            field(Counter::Scalar, 0, 0),
        ],
    ),
];

/// The fields of a wait instruction; `None` for any other instruction.
pub(super) fn wait_fields(row: &Row) -> Option<&'static [Field]> {
    WAITS
        .iter()
        .find(|(name, _)| *name == row.mnemonic)
        .map(|(_, fields)| *fields)
}

impl Field {
    /// The count that this field of `immediate` allows to stay outstanding.
    pub(super) const fn allowed(&self, immediate: u32) -> u32 {
        immediate >> self.low & ((1 << self.bits) - 1)
    }
}
