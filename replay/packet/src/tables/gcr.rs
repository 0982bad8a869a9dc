//! GCR_CNTL: the cache controls of ACQUIRE_MEM, bit by bit, and the words seen in the field.
//!
//! Sources: PAL gfx9/gfx12 `CmdUtil`, Mesa `sid.h`. RELEASE_MEM packs the same controls at other
//! positions; those are fields of that packet in [`super::opcodes`].

use super::Field;
use crate::target::GenSet;

/// Instruction cache: 1 = invalidate all.
pub const GLI_INV_ALL: u32 = 1;
/// Metadata cache writeback; reserved on gfx12.
pub const GLM_WB: u32 = 1 << 4;
/// Metadata cache invalidate; reserved on gfx12.
pub const GLM_INV: u32 = 1 << 5;
/// Scalar cache writeback.
pub const GLK_WB: u32 = 1 << 6;
/// Scalar cache invalidate.
pub const GLK_INV: u32 = 1 << 7;
/// Vector L0 invalidate.
pub const GLV_INV: u32 = 1 << 8;
/// Shader-array L1 invalidate; reserved on gfx12.
pub const GL1_INV: u32 = 1 << 9;
/// L2 discard of dirty lines; never used.
pub const GL2_DISCARD: u32 = 1 << 13;
/// L2 invalidate.
pub const GL2_INV: u32 = 1 << 14;
/// L2 writeback.
pub const GL2_WB: u32 = 1 << 15;
/// Bits above the defined ones.
pub const RESERVED: u32 = 0xFFF8_0000;
/// Range selectors (GLI, GL1, GL2) other than "all", as mask.
pub const GL1_RANGE: u32 = 3 << 2;
/// L2 range selector.
pub const GL2_RANGE: u32 = 3 << 11;
/// The range is given in physical addresses; never used.
pub const RANGE_IS_PA: u32 = 1 << 18;

const GLI: &[(u32, &str)] = &[(0, "NONE"), (1, "ALL"), (2, "RANGE"), (3, "FIRST_LAST")];
pub(super) const RANGE: &[(u32, &str)] = &[(0, "ALL"), (1, "VOL"), (2, "RANGE"), (3, "FIRST_LAST")];
pub(super) const SEQ: &[(u32, &str)] = &[(0, "PARALLEL"), (1, "FORWARD"), (2, "REVERSE")];

/// The fields of GCR_CNTL in ACQUIRE_MEM (dword 7).
pub const GCR_FIELDS: &[Field] = &[
    Field::new("GLI_INV", 7, 1, 0).named(GLI),
    Field::new("GL1_RANGE", 7, 3, 2).named(RANGE),
    Field::new("GLM_WB", 7, 4, 4).on(GenSet::BEFORE_12),
    Field::new("GLM_INV", 7, 5, 5).on(GenSet::BEFORE_12),
    Field::new("GLK_WB", 7, 6, 6),
    Field::new("GLK_INV", 7, 7, 7),
    Field::new("GLV_INV", 7, 8, 8),
    Field::new("GL1_INV", 7, 9, 9).on(GenSet::BEFORE_12),
    Field::new("GL2_US", 7, 10, 10),
    Field::new("GL2_RANGE", 7, 12, 11).named(RANGE),
    Field::new("GL2_DISCARD", 7, 13, 13),
    Field::new("GL2_INV", 7, 14, 14),
    Field::new("GL2_WB", 7, 15, 15),
    Field::new("SEQ", 7, 17, 16).named(SEQ),
    Field::new("RANGE_IS_PA", 7, 18, 18),
];

/// GCR words that public producers send: (word, meaning, who).
pub const KNOWN_GCR: &[(u32, &str, &str)] = &[
    (
        0x380,
        "same-agent read after write: scalar, L0, L1",
        "hipEngine, validated on gfx1100",
    ),
    (0x180, "the same without L1", "the gfx12 form; likely"),
    (0x300, "vector-only consumers: L0, L1", "LLVM memory model"),
    (
        0x100,
        "vector-only consumers on gfx12: L0",
        "LLVM memory model",
    ),
    (
        0xC380,
        "0x380 with L2 invalidate and writeback",
        "RADV-style global",
    ),
    (
        0x383,
        "agent scope",
        "IREE; its instruction-cache value 3 is FIRST_LAST in PAL",
    ),
    (0xC3B3, "system scope", "IREE"),
    (
        0x1_C3F1,
        "system scope, gfx10 and gfx11",
        "ROCr WSL translator; retained PM4 fork",
    ),
    (
        0x1_C1D1,
        "system scope on gfx12, reserved bit 4 still set",
        "hipfire",
    ),
    (
        0x1_C1C1,
        "system scope on gfx12 without reserved bits",
        "this project; likely",
    ),
    (
        0x1_0180,
        "head acquire: scalar, L0, forward",
        "retained PM4 fork and hipfire on gfx12",
    ),
    (0x4381, "code caches after loading", "ROCr, gfx10 and later"),
    (0x1_8000, "flush", "aqlprofile"),
    (0x8000, "L2 writeback before a DMA", "ROCr on gfx12.0"),
];

/// What a GCR word is known for, if it is one of [`KNOWN_GCR`].
pub fn known(word: u32) -> Option<&'static str> {
    KNOWN_GCR.iter().find(|row| row.0 == word).map(|row| row.1)
}
