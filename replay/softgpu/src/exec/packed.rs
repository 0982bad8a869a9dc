//! VOP3P: dot products, mixed-precision multiply-add, packed halves. Their modifiers select halves
//! and signs per source, so they are read here and not by the general modifier wrapper.

use super::context::Ctx;
use super::float::{f, h, half_num, half_to_single, num, single_to_half};
use super::lanes::Lane;
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{Row, Wave};
use crate::isa::Mods;
use crate::isa::op::Op;

/// `Uop::ext` of this file: [2:0] neg, [5:3] abs or neg of the high half, [8:6] op_sel,
/// [11:9] op_sel_hi, [12] clamp.
pub(super) const fn flags(m: &Mods) -> u16 {
    (m.neg as u16 & 7)
        | (m.abs as u16 & 7) << 3
        | (m.opsel as u16 & 7) << 6
        | (m.opsel_hi as u16 & 7) << 9
        | (m.clamp as u16) << 12
}

const fn flag(ext: u16, group: u16, k: usize) -> bool {
    ext >> (3 * group + k as u16) & 1 == 1
}

/// Signed or unsigned bytes, fixed by the neg bits.
struct Dot4<const SA: bool, const SB: bool>;

impl<const SA: bool, const SB: bool> Exec for Dot4<SA, SB> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let c = w.lanes(x, u.c, &mut rc);
        let out = L::dot4::<SA, SB>(a, b, c);
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Nibbles, signed as the neg bits say.
struct Dot8;

impl Exec for Dot8 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let c = w.lanes(x, u.c, &mut rc);
        let nibble = |v: u32, k: u32, signed: bool| {
            let raw = v >> (4 * k) & 15;
            if signed {
                (raw ^ 8) as i32 - 8
            } else {
                raw as i32
            }
        };
        let (sa, sb) = (flag(u.ext, 0, 0), flag(u.ext, 0, 1));
        let out: Row = std::array::from_fn(|i| {
            (0..8).fold(c[i], |sum, k| {
                sum.wrapping_add((nibble(a[i], k, sa) * nibble(b[i], k, sb)) as u32)
            })
        });
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// One source of a mixed multiply-add, as singles.
#[inline(always)]
fn mix_source<'a>(u: &Uop, k: usize, lanes: &'a Row, room: &'a mut Row) -> &'a Row {
    let (neg, abs) = (flag(u.ext, 0, k), flag(u.ext, 1, k));
    let is_half = flag(u.ext, 3, k);
    if !is_half && !neg && !abs {
        return lanes;
    }
    if is_half {
        let shift = if flag(u.ext, 2, k) { 16 } else { 0 };
        for i in 0..32 {
            room[i] = half_to_single(lanes[i] >> shift & 0xffff);
        }
    } else {
        *room = *lanes;
    }
    if neg || abs {
        let keep = if abs { 0x7fff_ffff } else { u32::MAX };
        let flip = if neg { 0x8000_0000 } else { 0 };
        for lane in room.iter_mut() {
            *lane = *lane & keep ^ flip;
        }
    }
    room
}

/// Where a mixed multiply-add puts its result.
const SINGLE: u8 = 0;
const LOW: u8 = 1;
const HIGH: u8 = 2;

struct Mix<const TO: u8>;

impl<const TO: u8> Exec for Mix<TO> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let (mut ta, mut tb, mut tc) = ([0; 32], [0; 32], [0; 32]);
        let a = mix_source(u, 0, w.lanes(x, u.a, &mut ra), &mut ta);
        let b = mix_source(u, 1, w.lanes(x, u.b, &mut rb), &mut tb);
        let c = mix_source(u, 2, w.lanes(x, u.c, &mut rc), &mut tc);
        let mut out = [0; 32];
        for i in 0..32 {
            out[i] = num(L::fma(f(a[i]), f(b[i]), f(c[i])));
        }
        if flag(u.ext, 4, 0) {
            for lane in &mut out {
                *lane = super::modified::clamp_single(*lane);
            }
        }
        if TO != SINGLE {
            let old = &w.v[usize::from(u.dst & 511)];
            for i in 0..32 {
                let half = single_to_half(out[i]);
                out[i] = if TO == LOW {
                    old[i] & 0xffff_0000 | half
                } else {
                    old[i] & 0xffff | half << 16
                };
            }
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Fused multiply-add of halves, rounded once: the product and sum are exact enough in f64 that
/// rounding to odd (by `soft_fma`) and then to half is correct.
#[inline(always)]
pub(super) fn half_fma(a: u32, b: u32, c: u32) -> u32 {
    // Products of halves have 22 bits and exponents within +-32, sums fit in 53 bits unless one
    // operand is negligible; f64 addition then rounds far below the half's ulp, to odd.
    let (p, q) = (f64::from(h(a)) * f64::from(h(b)), f64::from(h(c)));
    let sum = p + q;
    let part = sum - p;
    let error = (p - (sum - part)) + (q - part);
    let odd = if sum.is_finite() && error != 0.0 && sum.to_bits() & 1 == 0 {
        let step = if (error > 0.0) == (sum > 0.0) {
            1
        } else {
            u64::MAX
        };
        f64::from_bits(sum.to_bits().wrapping_add(step))
    } else {
        sum
    };
    round_to_half(odd)
}

/// f64 to half through a single that is rounded to odd.
#[inline(always)]
fn round_to_half(x: f64) -> u32 {
    let s = x as f32;
    let exact = f64::from(s) == x || x.is_nan();
    let bits = s.to_bits();
    let odd = if !exact && bits & 1 == 0 && s.is_finite() {
        let away = f64::from(s).abs() < x.abs();
        if away { bits + 1 } else { bits.wrapping_sub(1) }
    } else {
        bits
    };
    half_num(f(odd))
}

/// Two halves per lane.
struct Packed<O>(std::marker::PhantomData<O>);

impl<O: Lane> Exec for Packed<O> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let c = w.lanes(x, u.c, &mut rc);
        let pick = |v: u32, k: usize, high: bool| {
            let upper = flag(u.ext, if high { 3 } else { 2 }, k);
            let neg = flag(u.ext, u16::from(high), k);
            (if upper { v >> 16 } else { v & 0xffff }) ^ if neg { 0x8000 } else { 0 }
        };
        let out: Row = std::array::from_fn(|i| {
            let part = |high: bool| {
                let r = O::lane::<L>(
                    pick(a[i], 0, high),
                    pick(b[i], 1, high),
                    pick(c[i], 2, high),
                );
                if flag(u.ext, 4, 0) {
                    single_to_half(super::modified::clamp_single(half_to_single(r & 0xffff)))
                } else {
                    r & 0xffff
                }
            };
            part(false) | part(true) << 16
        });
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Two half products added to a single, in order.
struct Dot2;

impl Exec for Dot2 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let c = w.lanes(x, u.c, &mut rc);
        let pick = |v: u32, k: usize, high: bool| {
            let upper = flag(u.ext, if high { 3 } else { 2 }, k);
            let value = h(if upper { v >> 16 } else { v });
            if flag(u.ext, u16::from(high), k) {
                -value
            } else {
                value
            }
        };
        let start = |v: u32| if flag(u.ext, 0, 2) { -f(v) } else { f(v) };
        let out: Row = std::array::from_fn(|i| {
            let first = start(c[i]) + pick(a[i], 0, false) * pick(b[i], 1, false);
            num(first + pick(a[i], 0, true) * pick(b[i], 1, true))
        });
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// The handler of a packed operation with these modifiers.
pub(super) fn find(op: Op, mods: &Mods, speed: Speed) -> Option<Handler> {
    use super::lanes::{VAddF16, VFmaF16, VMulF16};
    Some(match op {
        Op::VDot4I32Iu8 => match mods.neg & 3 {
            0 => handler::<Dot4<false, false>>(speed),
            1 => handler::<Dot4<true, false>>(speed),
            2 => handler::<Dot4<false, true>>(speed),
            _ => handler::<Dot4<true, true>>(speed),
        },
        Op::VDot4U32U8 => handler::<Dot4<false, false>>(speed),
        Op::VDot8I32Iu4 | Op::VDot8U32U4 => handler::<Dot8>(speed),
        Op::VDot2F32F16 => handler::<Dot2>(speed),
        Op::VFmaMixF32 => handler::<Mix<SINGLE>>(speed),
        Op::VFmaMixloF16 => handler::<Mix<LOW>>(speed),
        Op::VFmaMixhiF16 => handler::<Mix<HIGH>>(speed),
        Op::VPkFmaF16 => handler::<Packed<VFmaF16>>(speed),
        Op::VPkAddF16 => handler::<Packed<VAddF16>>(speed),
        Op::VPkMulF16 => handler::<Packed<VMulF16>>(speed),
        _ => return None,
    })
}
