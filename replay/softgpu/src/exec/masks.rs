//! Vector operations that read or write lane masks: selection, carries, division helpers, wide
//! multiply-add.

use super::context::Ctx;
use super::float::{d, div_scale, f, fmas_scale, ldexp, ldexp64, num, num64, split64};
use super::lanes::{each64, lanes64};
use super::level::{Level, Speed};
use super::moded::Modes;
use super::softfloat::{self, DOUBLE, SINGLE};
use super::uop::{Exec, Flow, Handler, Src, Uop, handler};
use super::wave::{Row, Wave};
use crate::isa::op::Op;
use crate::isa::operand::VCC;

/// Lanes of `b` where the mask bit is set, else of `a`.
struct Select;

impl Exec for Select {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mask = w.scalar(x, u.c);
        let (mut ra, mut rb) = ([0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let mut out = [0; 32];
        for i in 0..32 {
            out[i] = if mask & (1 << i) != 0 { b[i] } else { a[i] };
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// As [`Select`], the low half only.
struct SelectHalf;

impl Exec for SelectHalf {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mask = w.scalar(x, u.c);
        let (mut ra, mut rb) = ([0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let mut out = w.v[usize::from(u.dst & 511)];
        for i in 0..32 {
            let chosen = if mask & (1 << i) != 0 { b[i] } else { a[i] };
            out[i] = out[i] & 0xffff_0000 | chosen & 0xffff;
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Lanes below this one whose mask bit is set, plus the second source.
struct Mbcnt<const LOW: bool>;

impl<const LOW: bool> Exec for Mbcnt<LOW> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb) = ([0; 32], [0; 32]);
        let (mask, base) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let mut out = *base;
        // A wave32 has no lanes above 31, so the high form counts nothing.
        if LOW {
            for (i, lane) in out.iter_mut().enumerate() {
                let below = mask[i] & ((1 << i) - 1);
                *lane = lane.wrapping_add(below.count_ones());
            }
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Add or subtract (`REV`: the second minus the first) with a carry mask out and, if `IN`, one in
/// (`c`). `CLAMP` saturates an unsigned result.
struct Carry<const SUB: bool, const REV: bool, const IN: bool, const CLAMP: bool = false>;

impl<const SUB: bool, const REV: bool, const IN: bool, const CLAMP: bool> Exec
    for Carry<SUB, REV, IN, CLAMP>
{
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let carry = if IN { w.scalar(x, u.c) } else { 0 };
        let (mut ra, mut rb) = ([0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let mut out = [0; 32];
        let mut over = [0; 32];
        for i in 0..32 {
            let c = if IN && carry & (1 << i) != 0 { 1 } else { 0 };
            let (p, q) = if REV { (b[i], a[i]) } else { (a[i], b[i]) };
            // Carry and borrow as the top bit of the majority function.
            if SUB {
                let r = p.wrapping_sub(q).wrapping_sub(c);
                out[i] = r;
                over[i] = (!p & q) | ((!(p ^ q)) & r);
            } else {
                let r = p.wrapping_add(q).wrapping_add(c);
                out[i] = r;
                over[i] = (p & q) | ((p | q) & !r);
            }
        }
        if CLAMP {
            for i in 0..32 {
                if over[i] >> 31 == 1 {
                    out[i] = if SUB { 0 } else { u32::MAX };
                }
            }
        }
        let mask = L::pack(&over) & w.exec();
        w.put(u.dst, &out);
        w.set(u.sdst, mask);
        Flow::NEXT
    }
}

#[inline(always)]
fn wide(low: &Row, high: &Row, i: usize) -> u64 {
    u64::from(low[i]) | u64::from(high[i]) << 32
}

#[inline(always)]
fn pair(w: &Wave, x: &Ctx<'_>, src: Src) -> [u64; 32] {
    let (mut rl, mut rh) = ([0; 32], [0; 32]);
    let (low, high) = (w.lanes(x, src, &mut rl), w.lanes(x, src.next(), &mut rh));
    each64(|i| wide(low, high, i))
}

#[inline(always)]
fn put_pair(w: &mut Wave, dst: u16, values: &[u64; 32]) {
    let (mut low, mut high) = ([0; 32], [0; 32]);
    for (i, v) in values.iter().enumerate() {
        low[i] = *v as u32;
        high[i] = (*v >> 32) as u32;
    }
    w.put(dst, &low);
    w.put(dst + 1, &high);
}

/// 32 x 32 + 64 bits; the mask is bit 64 of the sum (RDNA ISA pseudocode).
/// `CLAMP` saturates it.
struct WideMad<const SIGNED: bool, const CLAMP: bool = false>;

impl<const SIGNED: bool, const CLAMP: bool> Exec for WideMad<SIGNED, CLAMP> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb) = ([0; 32], [0; 32]);
        let c = pair(w, x, u.c);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let mut out = [0; 32];
        let mut over = [0; 32];
        for i in 0..32 {
            if SIGNED {
                let p = i64::from(a[i] as i32) * i64::from(b[i] as i32);
                let sum = i128::from(p) + i128::from(c[i] as i64);
                let bound = i128::from(i64::MIN)..=i128::from(i64::MAX);
                out[i] = match CLAMP && !bound.contains(&sum) {
                    false => sum as u64,
                    true if sum < 0 => i64::MIN as u64,
                    true => i64::MAX as u64,
                };
                over[i] = ((sum >> 64) as u32 & 1) << 31;
            } else {
                let p = u64::from(a[i]) * u64::from(b[i]);
                let (r, o) = p.overflowing_add(c[i]);
                out[i] = if CLAMP && o { u64::MAX } else { r };
                over[i] = u32::from(o) << 31;
            }
        }
        let mask = L::pack(&over) & w.exec();
        put_pair(w, u.dst, &out);
        w.set(u.sdst, mask);
        Flow::NEXT
    }
}

struct DivScale32;

impl Exec for DivScale32 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let c = w.lanes(x, u.c, &mut rc);
        let mut out = [0; 32];
        let mut mask = 0;
        for i in 0..32 {
            let (value, scaled) = div_scale(a[i], b[i], c[i]);
            out[i] = value;
            mask |= u32::from(scaled) << i;
        }
        let mask = mask & w.exec();
        w.put(u.dst, &out);
        w.set(u.sdst, mask);
        Flow::NEXT
    }
}

/// `v_div_scale_f64`, with the thresholds of doubles (RDNA ISA pseudocode).
fn div_scale64(s0: u64, s1: u64, s2: u64) -> (u64, bool) {
    let exponent = |v: u64| ((v >> 52) & 0x7ff) as i32;
    let denormal = |v: f64| v != 0.0 && v.abs() < f64::MIN_POSITIVE;
    let (x, den, numer) = (d(s0), d(s1), d(s2));
    let up = num64(ldexp64(x, 128));
    if numer == 0.0 || den == 0.0 {
        return (num64(f64::NAN), false);
    }
    // The quotient's exponent decides; a division would round it to zero.
    let ratio_exponent = split64(numer).1 - split64(den).1;
    let ratio_denormal = ratio_exponent < -1022 && numer.is_finite() && den.is_finite();
    if exponent(s2) - exponent(s1) >= 768 {
        return (if s0 == s1 { up } else { s0 }, true);
    }
    if denormal(den) {
        return (up, false);
    }
    match (denormal(1.0 / den), ratio_denormal) {
        (true, true) => (
            if s0 == s1 {
                num64(ldexp64(x, -128))
            } else {
                s0
            },
            true,
        ),
        (true, false) => (num64(ldexp64(x, -128)), false),
        (false, true) => (if s0 == s2 { up } else { s0 }, true),
        _ if exponent(s2) <= 53 => (up, false),
        _ => (s0, false),
    }
}

struct DivScale64;

impl Exec for DivScale64 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (a, b, c) = (pair(w, x, u.a), pair(w, x, u.b), pair(w, x, u.c));
        let mut out = [0; 32];
        let mut mask = 0;
        for i in 0..32 {
            let (value, scaled) = div_scale64(a[i], b[i], c[i]);
            out[i] = value;
            mask |= u32::from(scaled) << i;
        }
        let mask = mask & w.exec();
        put_pair(w, u.dst, &out);
        w.set(u.sdst, mask);
        Flow::NEXT
    }
}

/// Fused multiply-add, scaled back where VCC says that the operands were scaled.
struct DivFmas32;

impl Exec for DivFmas32 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let vcc = w.s[usize::from(VCC)];
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let c = w.lanes(x, u.c, &mut rc);
        let mut out = [0; 32];
        for i in 0..32 {
            let r = L::fma(f(a[i]), f(b[i]), f(c[i]));
            out[i] = num(if vcc & (1 << i) != 0 {
                ldexp(r, fmas_scale(c[i]))
            } else {
                r
            });
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// As `fmas_scale`, for doubles.
fn fmas_scale64(s2: u64) -> i32 {
    if s2 >> 52 & 0x7ff > 1023 { 128 } else { -128 }
}

struct DivFmas64;

impl Exec for DivFmas64 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let vcc = w.s[usize::from(VCC)];
        let (a, b, c) = (pair(w, x, u.a), pair(w, x, u.b), pair(w, x, u.c));
        let out = std::array::from_fn(|i| {
            let r = libm::fma(d(a[i]), d(b[i]), d(c[i]));
            num64(if vcc & (1 << i) != 0 {
                ldexp64(r, fmas_scale64(c[i]))
            } else {
                r
            })
        });
        put_pair(w, u.dst, &out);
        Flow::NEXT
    }
}

struct DivFixup64;

impl Exec for DivFixup64 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (a, b, c) = (pair(w, x, u.a), pair(w, x, u.b), pair(w, x, u.c));
        let out = std::array::from_fn(|i| div_fixup64(a[i], b[i], c[i]));
        put_pair(w, u.dst, &out);
        Flow::NEXT
    }
}

fn div_fixup64(s0: u64, s1: u64, s2: u64) -> u64 {
    const INF: u64 = 0x7ff << 52;
    let sign = (s1 ^ s2) & 1 << 63;
    let exponent = |v: u64| ((v >> 52) & 0x7ff) as i32;
    let (a1, a2) = (s1 & !(1 << 63), s2 & !(1 << 63));
    if d(s1).is_nan() || d(s2).is_nan() {
        return num64(f64::NAN);
    }
    match (a1, a2) {
        (0, 0) | (INF, INF) => 0xfff8 << 48,
        (0, _) | (_, INF) => sign | INF,
        (INF, _) | (_, 0) => sign,
        _ if exponent(s2) - exponent(s1) < -1075 => sign,
        // As in single precision: the refinement of an overflowing quotient.
        _ if d(s0).is_nan() => sign | INF,
        _ => sign | s0 & !(1 << 63),
    }
}

/// `v_div_fmas` that rounds as MODE says.
struct DivFmasModed<const WIDE: bool>;

impl<const WIDE: bool> Exec for DivFmasModed<WIDE> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let vcc = w.s[usize::from(VCC)];
        let m = Modes::of(w.mode);
        let (format, rule) = if WIDE {
            (DOUBLE, m.double)
        } else {
            (SINGLE, m.single)
        };
        let (a, b) = (lanes64(w, x, u.a, WIDE), lanes64(w, x, u.b, WIDE));
        let c = lanes64(w, x, u.c, WIDE);
        let out = std::array::from_fn(|i| {
            let r = softfloat::fma(format, rule, a[i], b[i], c[i]);
            if vcc & (1 << i) == 0 {
                return r;
            }
            let by = if WIDE {
                fmas_scale64(c[i])
            } else {
                fmas_scale(c[i] as u32)
            };
            softfloat::ldexp(format, rule, r, by)
        });
        if WIDE {
            put_pair(w, u.dst, &out);
        } else {
            w.put(u.dst, &out.map(|v| v as u32));
        }
        Flow::NEXT
    }
}

/// The handler of an operation of this file that rounds as MODE says.
pub(super) fn moded(op: Op, speed: Speed) -> Option<Handler> {
    match op {
        Op::VDivFmasF32 => Some(handler::<DivFmasModed<false>>(speed)),
        Op::VDivFmasF64 => Some(handler::<DivFmasModed<true>>(speed)),
        _ => None,
    }
}

/// The handler of an operation of this file with a saturating result.
pub(super) fn clamped(op: Op, speed: Speed) -> Option<Handler> {
    Some(match op {
        Op::VAddCoU32 => handler::<Carry<false, false, false, true>>(speed),
        Op::VSubCoU32 => handler::<Carry<true, false, false, true>>(speed),
        Op::VSubrevCoU32 => handler::<Carry<true, true, false, true>>(speed),
        Op::VAddCoCiU32 => handler::<Carry<false, false, true, true>>(speed),
        Op::VSubCoCiU32 => handler::<Carry<true, false, true, true>>(speed),
        Op::VSubrevCoCiU32 => handler::<Carry<true, true, true, true>>(speed),
        Op::VMadU64U32 => handler::<WideMad<false, true>>(speed),
        Op::VMadI64I32 => handler::<WideMad<true, true>>(speed),
        _ => return None,
    })
}

/// The handler of an operation of this file.
pub(super) fn find(op: Op, speed: Speed) -> Option<Handler> {
    Some(match op {
        Op::VMbcntLoU32B32 => handler::<Mbcnt<true>>(speed),
        Op::VMbcntHiU32B32 => handler::<Mbcnt<false>>(speed),
        Op::VCndmaskB16 => handler::<SelectHalf>(speed),
        Op::VCndmaskB32 => handler::<Select>(speed),
        Op::VAddCoU32 => handler::<Carry<false, false, false>>(speed),
        Op::VSubCoU32 => handler::<Carry<true, false, false>>(speed),
        Op::VSubrevCoU32 => handler::<Carry<true, true, false>>(speed),
        Op::VAddCoCiU32 => handler::<Carry<false, false, true>>(speed),
        Op::VSubCoCiU32 => handler::<Carry<true, false, true>>(speed),
        Op::VSubrevCoCiU32 => handler::<Carry<true, true, true>>(speed),
        Op::VMadU64U32 => handler::<WideMad<false>>(speed),
        Op::VMadI64I32 => handler::<WideMad<true>>(speed),
        Op::VDivScaleF32 => handler::<DivScale32>(speed),
        Op::VDivScaleF64 => handler::<DivScale64>(speed),
        Op::VDivFmasF32 => handler::<DivFmas32>(speed),
        Op::VDivFmasF64 => handler::<DivFmas64>(speed),
        Op::VDivFixupF64 => handler::<DivFixup64>(speed),
        _ => return None,
    })
}
