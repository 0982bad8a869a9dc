//! What each software GPU says about itself: one row per target. The numbers are those that AMD
//! publishes for one card of the target (documented; of no influence on execution, except that
//! device allocations end at `vram_bytes`).

use crate::isa::Target;

/// One target's answers.
pub(super) struct Model {
    /// Product that the numbers are taken from.
    pub(super) product: &'static str,
    /// Compute units; a work-group processor (WGP) is two of them.
    pub(super) compute_units: u32,
    /// Bytes of device memory.
    pub(super) vram_bytes: u64,
    /// Shares its memory with the host.
    pub(super) integrated: bool,
    /// Major and minor version of the instruction set, as HIP's compute capability.
    pub(super) capability: (i32, i32),
}

/// Lanes of a wave.
pub(super) const WAVE_SIZE: i32 = 32;
/// Work-items of a work-group at most, in all and per dimension.
pub(super) const MAX_GROUP: i32 = 1024;
/// LDS bytes that one work-group may have.
pub(super) const LDS_BYTES: i32 = 65_536;
/// Ring sizes of a queue in packets (ROCr).
pub(super) const QUEUE_PACKETS: (u32, u32) = (64, 131_072);

const GIB: u64 = 1 << 30;

const GFX1100: Model = Model {
    product: "Radeon RX 7900 XTX",
    compute_units: 96,
    vram_bytes: 24 * GIB,
    integrated: false,
    capability: (11, 0),
};
const GFX1151: Model = Model {
    product: "Radeon 8060S",
    compute_units: 40,
    vram_bytes: 64 * GIB,
    integrated: true,
    capability: (11, 5),
};
const GFX1201: Model = Model {
    product: "Radeon RX 9070 XT",
    compute_units: 64,
    vram_bytes: 16 * GIB,
    integrated: false,
    capability: (12, 0),
};

/// The row of a target.
pub(super) fn of(target: Target) -> &'static Model {
    match target {
        Target::Gfx1100 => &GFX1100,
        Target::Gfx1151 => &GFX1151,
        Target::Gfx1201 => &GFX1201,
    }
}
