//! Input and output modifiers and DPP, as a wrapper: it prepares modified sources in scratch rows,
//! runs the plain operation on those, and finishes the result.

use super::context::Ctx;
use super::float::{f, flush, half_to_single, num, num64, single_to_half};
use super::level::Level;
use super::moded::Modes;
use super::softfloat::{DOUBLE, Format, HALF, SINGLE};
use super::uop::{Exec, Flow, Handler, Src, Uop};
use super::wave::{MODE_DX10_CLAMP, MODE_IEEE, Row, SCRATCH, Wave};
use crate::isa::operand::EXEC;
use crate::isa::shape::Ty;
use crate::isa::{Dpp, Mods};

/// Scratch row of the result; sources use the two rows from `SCRATCH + 2 + 2k`.
const RESULT: u16 = SCRATCH;
/// Scalar slots for the sources and the result of a scalar operation; above the sink.
const SCALAR_SOURCE: u16 = 192;
const SCALAR_RESULT: u16 = 200;

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
    /// Denormals of sources and result are flushed as MODE says.
    pub(crate) flushes: bool,
}

/// The format of a type whose denormals can be flushed by itself.
const fn format(ty: Ty) -> Option<Format> {
    match ty {
        Ty::F16 => Some(HALF),
        Ty::F32 => Some(SINGLE),
        Ty::F64 => Some(DOUBLE),
        _ => None,
    }
}

impl Modifier {
    /// Whether source `k` differs from the plain operand.
    fn touches(&self, k: usize) -> bool {
        let bit = |v: u8| v >> k & 1 == 1;
        bit(self.mods.neg)
            || bit(self.mods.abs)
            || bit(self.mods.opsel)
            || (k == 0 && self.crossing.is_some())
            || (self.flushes && format(self.types[k]).is_some())
    }

    fn finishes(&self) -> bool {
        self.mods.clamp
            || self.mods.omod != 0
            || self.mods.opsel & 8 != 0
            || (self.flushes && format(self.result).is_some())
    }
}

/// The wrapper. `MODED`: of the micro-operations for unusual modes.
pub(super) struct Modified<const MODED: bool>;

impl<const MODED: bool> Exec for Modified<MODED> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let program = x.program;
        let Some(m) = program.modifiers(MODED).get(usize::from(u.ext)) else {
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

/// The wrapper for operations on scalar registers.
pub(super) struct ModifiedScalar<const MODED: bool>;

impl<const MODED: bool> Exec for ModifiedScalar<MODED> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let program = x.program;
        let Some(m) = program.modifiers(MODED).get(usize::from(u.ext)) else {
            return Flow::NEXT;
        };
        let mut inner = *u;
        inner.ext = m.ext;
        for (k, src) in [&mut inner.a, &mut inner.b, &mut inner.c]
            .into_iter()
            .enumerate()
        {
            if m.touches(k) {
                let mut row = [w.scalar(x, *src); 32];
                modify(&mut row, m, m.types[k], k, true);
                flush_row(&mut row, m, m.types[k], w.mode);
                let slot = SCALAR_SOURCE + k as u16;
                w.set(slot, row[0]);
                *src = Src(Src::SCALAR + slot);
            }
        }
        let finishes = m.finishes();
        if finishes {
            let old = w.s[usize::from(u.dst & 0xff)];
            w.set(SCALAR_RESULT, old);
            inner.dst = SCALAR_RESULT;
        }
        // SAFETY: as in `Modified`.
        let flow = unsafe { (m.inner)(w, &inner, x) };
        if finishes {
            let after = After::of(m, w.mode);
            let value = w.s[usize::from(SCALAR_RESULT)];
            let value = match m.result {
                Ty::F16 => after.half(value),
                _ => after.single(value),
            };
            w.set(u.dst, value);
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
    if m.flushes {
        flush_source(w, m, ty, at);
    }
    Src(at)
}

/// Flushes denormals of a source in its scratch rows.
#[inline(never)]
fn flush_source(w: &mut Wave, m: &Modifier, ty: Ty, at: u16) {
    let mode = w.mode;
    if ty != Ty::F64 {
        flush_row(&mut w.v[usize::from(at)], m, ty, mode);
        return;
    }
    let modes = Modes::of(mode);
    for i in 0..32 {
        let high = u64::from(w.v[usize::from(at + 1)][i]) << 32;
        let value = modes.source(DOUBLE, high | u64::from(w.v[usize::from(at)][i]));
        w.v[usize::from(at)][i] = value as u32;
        w.v[usize::from(at + 1)][i] = (value >> 32) as u32;
    }
}

/// Flushes denormals of a source of at most 32 bits.
fn flush_row(row: &mut Row, m: &Modifier, ty: Ty, mode: u32) {
    let Some(format) = format(ty) else { return };
    if !m.flushes {
        return;
    }
    let modes = Modes::of(mode);
    let mask = if ty == Ty::F16 { 0xffff } else { u32::MAX };
    for lane in row.iter_mut() {
        let value = modes.source(format, u64::from(*lane & mask)) as u32;
        *lane = *lane & !mask | value;
    }
}

/// Half selection, magnitude, negation.
fn modify(row: &mut Row, m: &Modifier, ty: Ty, k: usize, top: bool) {
    let bit = |v: u8| v >> k & 1 == 1;
    if bit(m.mods.opsel) && ty.is_half() {
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

/// Output scaling, clamping, flushing and half selection; moves the result to its register.
fn finish(w: &mut Wave, m: &Modifier, dst: u16) {
    let after = After::of(m, w.mode);
    let rows = m.result.regs().clamp(1, 2);
    if rows == 2 {
        let mut low = w.v[usize::from(RESULT)];
        let mut high = w.v[usize::from(RESULT + 1)];
        for i in 0..32 {
            let value = u64::from(low[i]) | u64::from(high[i]) << 32;
            let value = after.double(value);
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
            Ty::F32 => after.single(*lane),
            Ty::F16 => after.half(*lane),
            _ => *lane,
        };
    }
    if m.mods.opsel & 8 != 0 && m.result.is_half() {
        let old = w.v[usize::from(dst & 511)];
        for i in 0..32 {
            row[i] = old[i] & 0xffff | row[i] << 16;
        }
    }
    w.put(dst, &row);
}

/// What happens to a float result: scaling, flushing, clamping, in this order.
struct After {
    omod: u8,
    clamp: bool,
    /// Clamping turns NaN into 0 (MODE.DX10_CLAMP).
    dx10: bool,
    flushes: bool,
    modes: Modes,
}

impl After {
    fn of(m: &Modifier, mode: u32) -> Self {
        Self {
            // Output scaling is ignored in IEEE mode (RDNA ISA: OMOD).
            omod: if mode & MODE_IEEE == 0 {
                m.mods.omod
            } else {
                0
            },
            clamp: m.mods.clamp,
            dx10: mode & MODE_DX10_CLAMP != 0,
            flushes: m.flushes,
            modes: Modes::of(mode),
        }
    }

    /// The factor of the result, 1 where scaling is ignored: output scaling works only with
    /// denormal results flushed (RDNA ISA: OMOD), and then turns -0 into +0.
    fn factor(&self, format: Format) -> Option<f32> {
        let applies = self.omod != 0 && !self.modes.keeps_results(format);
        applies.then(|| [1.0, 2.0, 4.0, 0.5][usize::from(self.omod & 3)])
    }

    fn single(&self, bits: u32) -> u32 {
        let mut bits = bits;
        if let Some(factor) = self.factor(SINGLE) {
            bits = flush(num(f(flush(bits)) * factor));
            bits = if bits << 1 == 0 { 0 } else { bits };
        }
        if self.flushes {
            bits = self.modes.result(SINGLE, u64::from(bits)) as u32;
        }
        if self.clamp {
            clamp_single(bits, self.dx10)
        } else {
            bits
        }
    }

    fn half(&self, bits: u32) -> u32 {
        let mut value = half_to_single(bits & 0xffff);
        if let Some(factor) = self.factor(HALF) {
            value = num(f(value) * factor);
            value = if value << 1 == 0 { 0 } else { value };
        }
        if self.clamp {
            value = clamp_single(value, self.dx10);
        }
        let mut half = single_to_half(value) & 0xffff;
        if self.flushes {
            half = self.modes.result(HALF, u64::from(half)) as u32;
        }
        bits & 0xffff_0000 | half
    }

    fn double(&self, bits: u64) -> u64 {
        let mut bits = bits;
        if let Some(factor) = self.factor(DOUBLE) {
            bits = num64(f64::from_bits(bits) * f64::from(factor));
            bits = if bits << 1 == 0 { 0 } else { bits };
        }
        if self.flushes {
            bits = self.modes.result(DOUBLE, bits);
        }
        if !self.clamp {
            return bits;
        }
        let value = f64::from_bits(bits);
        match value {
            v if v.is_nan() && !self.dx10 => bits,
            v if v > 0.0 => v.min(1.0).to_bits(),
            _ => 0,
        }
    }
}

/// Clamp to [0, 1]; NaN becomes 0 under DX10 rules (MODE.DX10_CLAMP, which compute kernels set and
/// gfx12 always has), else stays.
#[inline(always)]
pub(super) fn clamp_single(bits: u32, dx10: bool) -> u32 {
    let v = f(bits);
    if v.is_nan() && !dx10 {
        return bits;
    }
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
