//! State of one wave: vector rows, scalar slots, program counter.

use super::context::Ctx;
use super::flat::Private;
use super::uop::Src;
use crate::isa::operand::{EXEC, VCC};

/// One vector register: 32 lanes.
pub(crate) type Row = [u32; 32];

/// First scratch row of the modifier wrapper; rows below are v0..v255.
pub(crate) const SCRATCH: u16 = 256;
/// Scalar slot of SCC, holding 0 or 1.
pub(crate) const SCC_SLOT: u16 = 128;
/// Scalar slots that swallow writes to NULL; as many as the widest load has.
pub(crate) const SINK: u16 = 160;

/// One wave.
#[repr(C, align(64))]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Wave {
    pub(crate) v: [Row; 512],
    /// Slots 0..=127 as operand codes, then SCC and the sink.
    pub(crate) s: [u32; 256],
    /// Next micro-operation.
    pub(crate) pc: u32,
    /// Position in the work-group.
    pub(crate) index: u32,
    /// Instructions executed.
    pub(crate) count: u64,
    /// MODE as far as it is modelled: [3:0] rounding, [7:4] denormals, [8] DX10_CLAMP, [9] IEEE,
    /// [23] FP16_OVFL.
    pub(crate) mode: u32,
    /// Vector registers allocated.
    pub(crate) vgprs: u32,
    pub(crate) private: Private,
    pub(crate) state: State,
    /// The barrier completed after this wave signalled and it has not waited since.
    pub(crate) released: bool,
}

/// What a wave is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    AtBarrier,
    Ended,
}

/// MODE bit of IEEE mode (gfx11).
pub(crate) const MODE_IEEE: u32 = 1 << 9;
/// MODE bit: clamping turns NaN into 0 (gfx11; gfx12 always does).
pub(crate) const MODE_DX10_CLAMP: u32 = 1 << 8;
/// MODE bit: halves overflow to the largest finite value.
pub(crate) const MODE_FP16_OVFL: u32 = 1 << 23;

impl Wave {
    /// A wave whose registers mean nothing yet.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            v: [[0; 32]; 512],
            s: [0; 256],
            pc: 0,
            index: 0,
            count: 0,
            mode: 0,
            vgprs: 256,
            private: Private::default(),
            state: State::Ended,
            released: false,
        })
    }

    #[inline(always)]
    pub(crate) fn exec(&self) -> u32 {
        self.s[EXEC as usize]
    }

    #[inline(always)]
    pub(crate) fn vcc(&self) -> u32 {
        self.s[VCC as usize]
    }

    /// The value of a scalar operand.
    #[inline(always)]
    pub(crate) fn scalar(&self, x: &Ctx<'_>, src: Src) -> u32 {
        if src.0 >= Src::SCALAR {
            self.s[usize::from(src.0 & 0xff)]
        } else {
            x.constant(src)[0]
        }
    }

    /// The value of a 64-bit scalar operand.
    #[inline(always)]
    pub(crate) fn scalar64(&self, x: &Ctx<'_>, src: Src) -> u64 {
        u64::from(self.scalar(x, src)) | u64::from(self.scalar(x, src.next())) << 32
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, slot: u16, value: u32) {
        self.s[usize::from(slot & 0xff)] = value;
    }

    #[inline(always)]
    pub(crate) fn set64(&mut self, slot: u16, value: u64) {
        self.set(slot, value as u32);
        self.set(slot + 1, (value >> 32) as u32);
    }

    #[inline(always)]
    pub(crate) fn scc(&self) -> bool {
        self.s[SCC_SLOT as usize] != 0
    }

    #[inline(always)]
    pub(crate) fn set_scc(&mut self, value: bool) {
        self.s[SCC_SLOT as usize] = u32::from(value);
    }

    /// The lanes of a vector operand; scalars are broadcast into `room`.
    #[inline(always)]
    pub(crate) fn lanes<'a>(&'a self, x: &'a Ctx<'_>, src: Src, room: &'a mut Row) -> &'a Row {
        if src.0 < Src::CONST {
            &self.v[usize::from(src.0 & 511)]
        } else if src.0 < Src::SCALAR {
            x.constant(src)
        } else {
            *room = [self.s[usize::from(src.0 & 0xff)]; 32];
            room
        }
    }

    /// Writes the active lanes of a vector row.
    #[inline(always)]
    pub(crate) fn put(&mut self, dst: u16, row: &Row) {
        let mask = self.exec();
        let to = &mut self.v[usize::from(dst & 511)];
        if mask == u32::MAX {
            *to = *row;
        } else {
            blend(to, row, mask);
        }
    }
}

/// Replaces the lanes of `to` whose mask bit is set.
#[inline(always)]
pub(crate) fn blend(to: &mut Row, from: &Row, mask: u32) {
    for i in 0..32 {
        to[i] = if mask & (1 << i) != 0 { from[i] } else { to[i] };
    }
}
