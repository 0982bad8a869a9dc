//! VOP3P: dot products, mixed-precision multiply-add, packed halves. Their modifiers select halves
//! and signs per source, so they are read here and not by the general modifier wrapper.

use super::context::Ctx;
use super::float::{Rule, bf16, f, h, half_extreme, half_num, half_to_single, num, single_to_half};
use super::lanes::Lane;
use super::level::{Level, Speed, dot4_terms};
use super::moded::{Modes, Soft};
use super::softfloat::{self, HALF, SINGLE as FORMAT_SINGLE};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{MODE_DX10_CLAMP, MODE_IEEE, Row, Wave};
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

/// [`flags`] of an operation without modifiers: high halves come from high halves.
pub(super) const PLAIN: u16 = 7 << 9;

/// The operation with three sources that an accumulating one is.
pub(super) const fn accumulating(op: Op) -> Op {
    match op {
        Op::VPkFmacF16 => Op::VPkFmaF16,
        Op::VDot2accF32F16 => Op::VDot2F32F16,
        _ => Op::VDot2F32Bf16,
    }
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

/// As [`Dot4`], saturating: signed if either source is.
struct Dot4Clamped;

impl Exec for Dot4Clamped {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let c = w.lanes(x, u.c, &mut rc);
        let (sa, sb) = (flag(u.ext, 0, 0), flag(u.ext, 0, 1));
        let out: Row = std::array::from_fn(|i| {
            saturated(dot4_terms(a[i], b[i], sa, sb).into(), c[i], sa || sb)
        });
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// `sum + c` in 32 bits, saturating.
fn saturated(sum: i64, c: u32, signed: bool) -> u32 {
    if signed {
        let total = sum + i64::from(c as i32);
        total.clamp(i32::MIN.into(), i32::MAX.into()) as u32
    } else {
        (sum + i64::from(c)).clamp(0, u32::MAX.into()) as u32
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
        let clamp = flag(u.ext, 4, 0);
        let out: Row = std::array::from_fn(|i| {
            let products = (0..8).map(|k| nibble(a[i], k, sa) * nibble(b[i], k, sb));
            let sum: i32 = products.sum();
            if clamp {
                saturated(sum.into(), c[i], sa || sb)
            } else {
                c[i].wrapping_add(sum as u32)
            }
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
            let dx10 = w.mode & MODE_DX10_CLAMP != 0;
            for lane in &mut out {
                *lane = super::modified::clamp_single(*lane, dx10);
            }
        }
        if TO != SINGLE {
            let old = &w.v[usize::from(u.dst & 511)];
            for i in 0..32 {
                out[i] = place::<TO>(old[i], single_to_half(out[i]));
            }
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Puts a half into one end of a register.
#[inline(always)]
fn place<const TO: u8>(old: u32, half: u32) -> u32 {
    if TO == LOW {
        old & 0xffff_0000 | half
    } else {
        old & 0xffff | half << 16
    }
}

/// As [`Mix`], under an unusual MODE: the multiply-add is one of singles, its conversion to a half
/// follows the half's fields.
struct MixModed<const TO: u8>;

impl<const TO: u8> Exec for MixModed<TO> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let m = Modes::of(w.mode);
        let mut rows = [[0; 32]; 3];
        for (k, (row, src)) in rows.iter_mut().zip([u.a, u.b, u.c]).enumerate() {
            let (mut room, mut taken) = ([0; 32], *w.lanes(x, src, &mut [0; 32]));
            if flag(u.ext, 3, k) {
                for lane in &mut taken {
                    let shift = if flag(u.ext, 2, k) { 16 } else { 0 };
                    let half = m.source(HALF, u64::from(*lane >> shift & 0xffff));
                    *lane = *lane & !(0xffff << shift) | (half as u32) << shift;
                }
            }
            *row = *mix_source(u, k, &taken, &mut room);
            for lane in row.iter_mut() {
                *lane = m.source(FORMAT_SINGLE, u64::from(*lane)) as u32;
            }
        }
        let dx10 = w.mode & MODE_DX10_CLAMP != 0;
        let old = w.v[usize::from(u.dst & 511)];
        let out: Row = std::array::from_fn(|i| {
            let [a, b, c] = [rows[0][i], rows[1][i], rows[2][i]].map(u64::from);
            let r = softfloat::fma(FORMAT_SINGLE, m.single, a, b, c);
            let mut r = m.result(FORMAT_SINGLE, r) as u32;
            if flag(u.ext, 4, 0) {
                r = super::modified::clamp_single(r, dx10);
            }
            if TO == SINGLE {
                return r;
            }
            let half = softfloat::convert(FORMAT_SINGLE, HALF, m.half, u64::from(r));
            place::<TO>(old[i], m.result(HALF, half) as u32)
        });
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

/// Half `k` of the packed sources of a lane, as the flags pick and negate it.
#[inline(always)]
fn pick(ext: u16, value: u32, k: usize, high: bool) -> u32 {
    let upper = flag(ext, if high { 3 } else { 2 }, k);
    let neg = flag(ext, u16::from(high), k);
    (if upper { value >> 16 } else { value & 0xffff }) ^ if neg { 0x8000 } else { 0 }
}

/// Both halves of each lane through `part`, which is given three halves.
#[inline(always)]
fn halves(w: &mut Wave, u: &Uop, x: &Ctx<'_>, part: impl Fn(u32, u32, u32) -> u32) -> Flow {
    let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
    let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
    let c = w.lanes(x, u.c, &mut rc);
    let out: Row = std::array::from_fn(|i| {
        let one = |high: bool| {
            part(
                pick(u.ext, a[i], 0, high),
                pick(u.ext, b[i], 1, high),
                pick(u.ext, c[i], 2, high),
            ) & 0xffff
        };
        one(false) | one(true) << 16
    });
    w.put(u.dst, &out);
    Flow::NEXT
}

/// Two integers per lane.
struct Packed<O>(std::marker::PhantomData<O>);

impl<O: Lane> Exec for Packed<O> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        halves(w, u, x, O::lane::<L>)
    }
}

/// Two floats per lane.
struct PackedFloat<O>(std::marker::PhantomData<O>);

impl<O: Lane> Exec for PackedFloat<O> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (clamp, dx10) = (flag(u.ext, 4, 0), w.mode & MODE_DX10_CLAMP != 0);
        halves(w, u, x, |a, b, c| {
            clamp_half(O::lane::<L>(a, b, c), clamp, dx10)
        })
    }
}

/// Two floats per lane, under an unusual MODE. `S` computes what the ordinary operation rounds.
struct PackedModed<S>(std::marker::PhantomData<S>);

impl<S: Soft> Exec for PackedModed<S> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (clamp, dx10) = (flag(u.ext, 4, 0), w.mode & MODE_DX10_CLAMP != 0);
        let m = Modes::of(w.mode);
        halves(w, u, x, |a, b, c| {
            let [a, b, c] = [a, b, c].map(|v| m.source(HALF, u64::from(v)));
            let r = m.result(HALF, S::lane(a, b, c, m) & 0xffff) as u32;
            clamp_half(r, clamp, dx10)
        })
    }
}

/// As [`PackedModed`], for operations that do not round.
struct PackedFlushed<O>(std::marker::PhantomData<O>);

impl<O: Lane> Exec for PackedFlushed<O> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (clamp, dx10) = (flag(u.ext, 4, 0), w.mode & MODE_DX10_CLAMP != 0);
        let m = Modes::of(w.mode);
        halves(w, u, x, |a, b, c| {
            let [a, b, c] = [a, b, c].map(|v| m.source(HALF, u64::from(v)) as u32);
            let r = O::lane::<L>(a, b, c) & 0xffff;
            clamp_half(m.result(HALF, u64::from(r)) as u32, clamp, dx10)
        })
    }
}

/// The larger or smaller of halves; gfx11's IEEE mode lets signalling NaNs win (gfx12 never has the
/// mode bit).
struct PackedExtreme<const LARGER: bool, const MODED: bool>;

impl<const LARGER: bool, const MODED: bool> Exec for PackedExtreme<LARGER, MODED> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (clamp, dx10) = (flag(u.ext, 4, 0), w.mode & MODE_DX10_CLAMP != 0);
        let rule = if w.mode & MODE_IEEE != 0 {
            Rule::Ieee
        } else {
            Rule::Num
        };
        let m = Modes::of(w.mode);
        halves(w, u, x, |a, b, _c| {
            let source = |v: u32| {
                if MODED {
                    m.source(HALF, u64::from(v)) as u32
                } else {
                    v
                }
            };
            let r = half_extreme::<LARGER>(source(a), source(b), rule);
            let r = if MODED {
                m.result(HALF, u64::from(r)) as u32
            } else {
                r
            };
            clamp_half(r, clamp, dx10)
        })
    }
}

#[inline(always)]
fn clamp_half(r: u32, clamp: bool, dx10: bool) -> u32 {
    if clamp {
        single_to_half(super::modified::clamp_single(
            half_to_single(r & 0xffff),
            dx10,
        ))
    } else {
        r
    }
}

/// Two half products added to a single, in order.
/// `BF16`: of bfloat16.
struct Dot2<const BF16: bool>;

impl<const BF16: bool> Exec for Dot2<BF16> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let c = w.lanes(x, u.c, &mut rc);
        let pick = |v: u32, k: usize, high: bool| {
            let upper = flag(u.ext, if high { 3 } else { 2 }, k);
            let half = if upper { v >> 16 } else { v & 0xffff };
            let value = if BF16 { bf16(half) } else { h(half) };
            if flag(u.ext, u16::from(high), k) {
                -value
            } else {
                value
            }
        };
        let start = |v: u32| if flag(u.ext, 0, 2) { -f(v) } else { f(v) };
        let out: Row = std::array::from_fn(|i| {
            let first = start(c[i]) + pick(a[i], 0, false) * pick(b[i], 1, false);
            let sum = num(first + pick(a[i], 0, true) * pick(b[i], 1, true));
            if flag(u.ext, 4, 0) {
                super::modified::clamp_single(sum, w.mode & MODE_DX10_CLAMP != 0)
            } else {
                sum
            }
        });
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Why there is no handler.
pub(super) enum Refusal {
    /// The operation is not known here.
    Unknown,
    /// The operation does not have one of the modifiers.
    Modifier,
}

/// The handler of a packed operation with these modifiers.
pub(super) fn find(op: Op, m: &Mods, moded: bool, speed: Speed) -> Result<Handler, Refusal> {
    if let Some(run) = float(op, moded, speed) {
        return Ok(run);
    }
    // Integer operations: neg says that a source is signed, where that is a choice.
    let chooses = matches!(op, Op::VDot4I32Iu8 | Op::VDot8I32Iu4);
    if m.abs != 0 || m.neg & if chooses { 4 } else { 7 } != 0 {
        return Err(Refusal::Modifier);
    }
    let run = match op {
        _ if integer(op, m.clamp, speed).is_some() => {
            return integer(op, m.clamp, speed).ok_or(Refusal::Unknown);
        }
        Op::VDot4I32Iu8 | Op::VDot4U32U8 if m.clamp => handler::<Dot4Clamped>(speed),
        Op::VDot4I32Iu8 => match m.neg & 3 {
            0 => handler::<Dot4<false, false>>(speed),
            1 => handler::<Dot4<true, false>>(speed),
            2 => handler::<Dot4<false, true>>(speed),
            _ => handler::<Dot4<true, true>>(speed),
        },
        Op::VDot4U32U8 => handler::<Dot4<false, false>>(speed),
        Op::VDot8I32Iu4 | Op::VDot8U32U4 => handler::<Dot8>(speed),
        _ => return Err(Refusal::Unknown),
    };
    Ok(run)
}

/// Operations on 16-bit integers; `clamp` saturates the sums.
fn integer(op: Op, clamp: bool, speed: Speed) -> Option<Handler> {
    use super::lanes;
    macro_rules! pick {
        ($wraps:ident, $saturates:ident) => {
            if clamp {
                handler::<Packed<lanes::$saturates>>(speed)
            } else {
                handler::<Packed<lanes::$wraps>>(speed)
            }
        };
        ($plain:ident) => {
            handler::<Packed<lanes::$plain>>(speed)
        };
    }
    Some(match op {
        Op::VPkAddU16 => pick!(VAddNcU16, ClampAddU16),
        Op::VPkSubU16 => pick!(VSubNcU16, ClampSubU16),
        Op::VPkAddI16 => pick!(VAddNcI16, ClampAddI16),
        Op::VPkSubI16 => pick!(VSubNcI16, ClampSubI16),
        Op::VPkMadU16 => pick!(VMadU16, ClampMadU16),
        Op::VPkMadI16 => pick!(VMadI16, ClampMadI16),
        Op::VPkMulLoU16 => pick!(VMulLoU16),
        Op::VPkMaxU16 => pick!(VMaxU16),
        Op::VPkMinU16 => pick!(VMinU16),
        Op::VPkMaxI16 => pick!(VMaxI16),
        Op::VPkMinI16 => pick!(VMinI16),
        Op::VPkLshlrevB16 => pick!(VLshlrevB16),
        Op::VPkLshrrevB16 => pick!(VLshrrevB16),
        Op::VPkAshrrevI16 => pick!(VAshrrevI16),
        _ => return None,
    })
}

/// Operations on floats.
fn float(op: Op, moded: bool, speed: Speed) -> Option<Handler> {
    use super::halves::{VMaximumF16, VMinimumF16};
    use super::{fp8, lanes, moded as soft};
    if let Some(run) = fp8::find(op, speed) {
        return Some(run);
    }
    macro_rules! by_mode {
        ($usual:ty, $other:ty) => {
            if moded {
                handler::<$other>(speed)
            } else {
                handler::<$usual>(speed)
            }
        };
    }
    Some(match op {
        Op::VDot2F32F16 => handler::<Dot2<false>>(speed),
        Op::VDot2F32Bf16 => handler::<Dot2<true>>(speed),
        Op::VPkMinimumF16 => by_mode!(PackedFloat<VMinimumF16>, PackedFlushed<VMinimumF16>),
        Op::VPkMaximumF16 => by_mode!(PackedFloat<VMaximumF16>, PackedFlushed<VMaximumF16>),
        Op::VPkMinF16 => by_mode!(PackedExtreme<false, false>, PackedExtreme<false, true>),
        Op::VPkMaxF16 => by_mode!(PackedExtreme<true, false>, PackedExtreme<true, true>),
        Op::VFmaMixF32 => by_mode!(Mix<SINGLE>, MixModed<SINGLE>),
        Op::VFmaMixloF16 => by_mode!(Mix<LOW>, MixModed<LOW>),
        Op::VFmaMixhiF16 => by_mode!(Mix<HIGH>, MixModed<HIGH>),
        Op::VPkFmaF16 => by_mode!(PackedFloat<lanes::VFmaF16>, PackedModed<soft::VFmaF16>),
        Op::VPkAddF16 => by_mode!(PackedFloat<lanes::VAddF16>, PackedModed<soft::VAddF16>),
        Op::VPkMulF16 => by_mode!(PackedFloat<lanes::VMulF16>, PackedModed<soft::VMulF16>),
        _ => return None,
    })
}
