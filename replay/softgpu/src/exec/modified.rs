//! Input and output modifiers and DPP, as a wrapper: it prepares modified sources in scratch rows,
//! runs the plain operation on those, and finishes the result.

use super::context::Ctx;
use super::float::{f, flush, num};
use super::level::Level;
use super::uop::{Exec, Flow, Handler, Src, Uop};
use super::wave::{Row, SCRATCH, Wave};
use crate::isa::operand::EXEC;
use crate::isa::shape::Ty;
use crate::isa::{Dpp, Mods};

/// Scratch row of the result; sources use the two rows from `SCRATCH + 2 + 2k`.
const RESULT: u16 = SCRATCH;

/// What the wrapper does around one micro-operation.
#[derive(Clone, Debug)]
pub(crate) struct Modifier {
    pub(crate) inner: Handler,
    pub(crate) mods: Mods,
    pub(crate) types: [Ty; 3],
    pub(crate) result: Ty,
    pub(crate) crossing: Option<Crossing>,
    /// The operation writes EXEC, so DPP must not restore it.
    pub(crate) writes_exec: bool,
    /// Value of `Uop::ext` for the inner operation.
    pub(crate) ext: u16,
}

impl Modifier {
    /// Whether source `k` differs from the plain operand.
    fn touches(&self, k: usize) -> bool {
        let bit = |v: u8| v >> k & 1 == 1;
        bit(self.mods.neg)
            || bit(self.mods.abs)
            || bit(self.mods.opsel)
            || (k == 0 && self.crossing.is_some())
    }

    fn finishes(&self) -> bool {
        self.mods.clamp || self.mods.omod != 0 || self.mods.opsel & 8 != 0
    }
}

/// The wrapper.
pub(super) struct Modified;

impl Exec for Modified {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let program = x.program;
        let Some(m) = program.modifiers.get(usize::from(u.ext)) else {
            return Flow::NEXT;
        };
        let exec = w.exec();
        let mut inner = *u;
        inner.ext = m.ext;
        let mut active = exec;
        let mut served = u32::MAX;
        if let Some(crossing) = &m.crossing {
            served = crossing.served(exec);
            active &= crossing.written(served);
        }
        for (k, src) in [&mut inner.a, &mut inner.b, &mut inner.c]
            .into_iter()
            .enumerate()
        {
            if m.touches(k) {
                *src = prepare::<L>(w, x, m, *src, k, served);
            }
        }
        let finishes = m.finishes();
        if finishes {
            inner.dst = RESULT;
            // 16-bit operations keep the other half, so the scratch row starts as the destination.
            w.v[usize::from(RESULT)] = w.v[usize::from(u.dst & 511)];
        }
        w.set(EXEC, active);
        // SAFETY: `inner` was chosen for this CPU when the program was decoded, as `Modified` was.
        let flow = unsafe { (m.inner)(w, &inner, x) };
        if finishes {
            finish(w, m, u.dst);
        }
        if !m.writes_exec {
            w.set(EXEC, exec);
        }
        flow
    }
}

/// Builds the modified source `k` in its scratch rows.
#[inline(always)]
fn prepare<L: Level>(
    w: &mut Wave,
    x: &Ctx<'_>,
    m: &Modifier,
    src: Src,
    k: usize,
    served: u32,
) -> Src {
    let at = SCRATCH + 2 + 2 * k as u16;
    let ty = m.types[k];
    for part in 0..ty.regs().clamp(1, 2) as u16 {
        let mut room = [0; 32];
        let mut row = *w.lanes(x, Src(src.0 + part), &mut room);
        if k == 0
            && let Some(crossing) = &m.crossing
        {
            row = crossing.apply::<L>(&row, served);
        }
        let top = part + 1 == ty.regs().clamp(1, 2) as u16;
        modify(&mut row, m, ty, k, top);
        w.v[usize::from(at + part)] = row;
    }
    Src(at)
}

/// Half selection, magnitude, negation.
fn modify(row: &mut Row, m: &Modifier, ty: Ty, k: usize, top: bool) {
    let bit = |v: u8| v >> k & 1 == 1;
    if bit(m.mods.opsel) && matches!(ty, Ty::F16 | Ty::B16) {
        for lane in row.iter_mut() {
            *lane >>= 16;
        }
    }
    let sign = match ty {
        Ty::F16 => 0x8000,
        Ty::F32 => 0x8000_0000,
        Ty::F64 if top => 0x8000_0000,
        _ => return,
    };
    if bit(m.mods.abs) {
        for lane in row.iter_mut() {
            *lane &= !sign;
        }
    }
    if bit(m.mods.neg) {
        for lane in row.iter_mut() {
            *lane ^= sign;
        }
    }
}

/// Output scaling, clamping and half selection; moves the result to its register.
fn finish(w: &mut Wave, m: &Modifier, dst: u16) {
    let rows = m.result.regs().clamp(1, 2);
    if rows == 2 {
        let mut low = w.v[usize::from(RESULT)];
        let mut high = w.v[usize::from(RESULT + 1)];
        for i in 0..32 {
            let value = u64::from(low[i]) | u64::from(high[i]) << 32;
            let value = finish_double(value, &m.mods);
            low[i] = value as u32;
            high[i] = (value >> 32) as u32;
        }
        w.put(dst, &low);
        w.put(dst + 1, &high);
        return;
    }
    let mut row = w.v[usize::from(RESULT)];
    for lane in &mut row {
        *lane = match m.result {
            Ty::F32 => finish_single(*lane, &m.mods),
            Ty::F16 => finish_half(*lane, &m.mods),
            _ => *lane,
        };
    }
    if m.mods.opsel & 8 != 0 && matches!(m.result, Ty::F16 | Ty::B16) {
        let old = w.v[usize::from(dst & 511)];
        for i in 0..32 {
            row[i] = old[i] & 0xffff | row[i] << 16;
        }
    }
    w.put(dst, &row);
}

fn factor(mods: &Mods) -> f32 {
    [1.0, 2.0, 4.0, 0.5][usize::from(mods.omod & 3)]
}

fn finish_single(bits: u32, mods: &Mods) -> u32 {
    let scaled = if mods.omod == 0 {
        bits
    } else {
        // Output modifiers work with denormals flushed (RDNA ISA: OMOD).
        flush(num(f(flush(bits)) * factor(mods)))
    };
    if mods.clamp {
        clamp_single(scaled)
    } else {
        scaled
    }
}

fn finish_half(bits: u32, mods: &Mods) -> u32 {
    let value = super::float::half_to_single(bits & 0xffff);
    let value = finish_single(value, mods);
    bits & 0xffff_0000 | super::float::single_to_half(value) & 0xffff
}

fn finish_double(bits: u64, mods: &Mods) -> u64 {
    let value = f64::from_bits(bits) * f64::from(factor(mods));
    let value = match (mods.clamp, value) {
        (false, v) => v,
        (true, v) if v.is_nan() || v <= 0.0 => 0.0,
        (true, v) => v.min(1.0),
    };
    super::float::num64(value)
}

/// Clamp to [0, 1]; NaN becomes 0 (DX10_CLAMP, which compute kernels set).
#[inline(always)]
pub(super) fn clamp_single(bits: u32) -> u32 {
    let v = f(bits);
    let low = if v > 0.0 { v } else { 0.0 };
    let high = if low < 1.0 { low } else { 1.0 };
    high.to_bits()
}

/// The lane that lane `i` reads under DPP; `None` outside its row.
fn dpp_lane(dpp: &Dpp, i: u32) -> Option<u32> {
    let (row, at) = (i & !15, i & 15);
    match *dpp {
        Dpp::None => Some(i),
        Dpp::Row8 { select, .. } => Some(i & !7 | select >> (3 * (i & 7)) & 7),
        Dpp::Row16 { ctrl, .. } => {
            let n = u32::from(ctrl & 15);
            match ctrl {
                0..=0xff => Some(i & !3 | u32::from(ctrl >> (2 * (i & 3)) & 3)),
                0x101..=0x10f => (at + n < 16).then_some(row | (at + n)),
                0x111..=0x11f => (at >= n).then(|| row | (at - n)),
                0x121..=0x12f => Some(row | (at + 16 - n) & 15),
                0x140 => Some(row | (15 - at)),
                0x141 => Some(row | at & 8 | (7 - (at & 7))),
                0x150..=0x15f => Some(row | n),
                0x160..=0x16f => Some(row | at ^ n),
                _ => None,
            }
        }
    }
}

/// Whether a DPP control code is one that is modelled.
pub(super) const fn dpp_known(ctrl: u16) -> bool {
    matches!(ctrl, 0..=0xff | 0x101..=0x10f | 0x111..=0x11f | 0x121..=0x12f | 0x140 | 0x141 | 0x150..=0x16f)
}

/// A DPP control, worked out for all lanes when the program is decoded.
#[derive(Clone, Debug)]
pub(crate) struct Crossing {
    /// Lane of the own row of 16 that each lane reads; 0 where there is none.
    from: Row,
    /// Lanes that have a source inside their row.
    sourced: u32,
    /// Lanes in enabled rows and banks.
    enabled: u32,
    /// Inactive lanes may be read.
    fetch_inactive: bool,
    /// A lane without a source reads zero instead of staying as it is.
    zero_fill: bool,
}

impl Crossing {
    /// `None` for an instruction without DPP.
    pub(super) fn new(dpp: &Dpp) -> Option<Self> {
        let (fetch_inactive, zero_fill, rows, banks) = match *dpp {
            Dpp::None => return None,
            // DPP8 has no masks, and a lane without a source reads zero.
            Dpp::Row8 { fetch_inactive, .. } => (fetch_inactive, true, 15, 15),
            Dpp::Row16 {
                fetch_inactive,
                bound_ctrl,
                row_mask,
                bank_mask,
                ..
            } => (fetch_inactive, bound_ctrl, row_mask, bank_mask),
        };
        let mut crossing = Self {
            from: [0; 32],
            sourced: 0,
            enabled: 0,
            fetch_inactive,
            zero_fill,
        };
        for i in 0..32u32 {
            if let Some(source) = dpp_lane(dpp, i) {
                crossing.from[i as usize] = source & 15;
                crossing.sourced |= 1 << i;
            }
            let enabled = rows >> (i / 16) & 1 == 1 && banks >> (i % 16 / 4) & 1 == 1;
            crossing.enabled |= u32::from(enabled) << i;
        }
        Some(crossing)
    }

    /// Lanes that have a readable source under `exec`.
    #[inline(always)]
    fn served(&self, exec: u32) -> u32 {
        if self.fetch_inactive || exec == u32::MAX {
            return self.sourced;
        }
        let mut readable = 0;
        for (i, from) in self.from.iter().enumerate() {
            readable |= (exec >> ((i as u32 & 16) | (from & 15)) & 1) << i;
        }
        readable & self.sourced
    }

    /// Lanes that are written.
    #[inline(always)]
    fn written(&self, served: u32) -> u32 {
        self.enabled & if self.zero_fill { u32::MAX } else { served }
    }

    /// Lanes that are written under `exec`.
    pub(super) fn writes(&self, exec: u32) -> u32 {
        exec & self.written(self.served(exec))
    }

    /// A lane mask as the lanes it describes are moved; lanes without a source are clear.
    pub(super) fn moved(&self, mask: u32, exec: u32) -> u32 {
        let served = self.served(exec);
        let mut out = 0;
        for (i, from) in self.from.iter().enumerate() {
            out |= (mask >> ((i as u32 & 16) | (from & 15)) & 1) << i;
        }
        out & served
    }

    #[inline(always)]
    fn apply<L: Level>(&self, row: &Row, served: u32) -> Row {
        let mut out = L::permute(row, &self.from);
        if served != u32::MAX {
            for (i, lane) in out.iter_mut().enumerate() {
                *lane = if served >> i & 1 == 1 { *lane } else { 0 };
            }
        }
        out
    }
}
