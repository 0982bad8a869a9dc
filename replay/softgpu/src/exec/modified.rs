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
    pub(crate) dpp: Dpp,
    /// The operation writes EXEC, so DPP must not restore it.
    pub(crate) writes_exec: bool,
    /// Value of `Uop::ext` for the inner operation.
    pub(crate) ext: u16,
}

impl Modifier {
    /// Whether source `k` differs from the plain operand.
    fn touches(&self, k: usize) -> bool {
        let bit = |v: u8| v >> k & 1 == 1;
        bit(self.mods.neg) || bit(self.mods.abs) || bit(self.mods.opsel)
            || (k == 0 && self.dpp != Dpp::None)
    }

    fn finishes(&self) -> bool {
        self.mods.clamp || self.mods.omod != 0 || self.mods.opsel & 8 != 0
    }
}

/// The wrapper.
pub(super) struct Modified;

impl Exec for Modified {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let program = x.program;
        let Some(m) = program.modifiers.get(usize::from(u.ext)) else {
            return Flow::NEXT;
        };
        let exec = w.exec();
        let mut inner = *u;
        inner.ext = m.ext;
        let mut active = exec;
        if m.dpp != Dpp::None {
            active &= dpp_active(&m.dpp, exec);
        }
        for (k, src) in [&mut inner.a, &mut inner.b, &mut inner.c].into_iter().enumerate() {
            if m.touches(k) {
                *src = prepare(w, x, m, *src, k, exec);
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
fn prepare(w: &mut Wave, x: &Ctx<'_>, m: &Modifier, src: Src, k: usize, exec: u32) -> Src {
    let at = SCRATCH + 2 + 2 * k as u16;
    let ty = m.types[k];
    for part in 0..ty.regs().clamp(1, 2) as u16 {
        let mut room = [0; 32];
        let mut row = *w.lanes(x, Src(src.0 + part), &mut room);
        if k == 0 && m.dpp != Dpp::None {
            row = dpp_row(&m.dpp, &row, exec);
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
    if mods.clamp { clamp_single(scaled) } else { scaled }
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
pub(super) fn dpp_lane(dpp: &Dpp, i: u32) -> Option<u32> {
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

const fn fetches_inactive(dpp: &Dpp) -> bool {
    match dpp {
        Dpp::None => true,
        Dpp::Row8 { fetch_inactive, .. } | Dpp::Row16 { fetch_inactive, .. } => *fetch_inactive,
    }
}

/// Whether lane `i` has a source under `exec`.
fn source_of(dpp: &Dpp, i: u32, exec: u32) -> Option<u32> {
    dpp_lane(dpp, i).filter(|s| fetches_inactive(dpp) || exec >> s & 1 == 1)
}

/// Lanes that write: those with a source (or zero by bound_ctrl), in enabled rows and banks.
fn dpp_active(dpp: &Dpp, exec: u32) -> u32 {
    let Dpp::Row16 { bound_ctrl, row_mask, bank_mask, .. } = *dpp else {
        // DPP8 has no masks, and a lane without a source reads zero.
        return u32::MAX;
    };
    let mut mask = 0;
    for i in 0..32 {
        let enabled = row_mask >> (i / 16) & 1 == 1 && bank_mask >> (i % 16 / 4) & 1 == 1;
        let served = bound_ctrl || source_of(dpp, i, exec).is_some();
        mask |= u32::from(enabled && served) << i;
    }
    mask
}

fn dpp_row(dpp: &Dpp, row: &Row, exec: u32) -> Row {
    std::array::from_fn(|i| source_of(dpp, i as u32, exec).map_or(0, |s| row[(s & 31) as usize]))
}
