//! Vector operations that work lane by lane on 32-bit, 16-bit or 64-bit values.
//!
//! Each operation is one entry of a macro table: its name in `Op`, its sources, its value. The macro
//! makes a handler per speed from it. Accumulating forms (`v_fmac`) and reversed forms (`v_subrev`)
//! are rewritten to these by `lower`.

use super::context::Ctx;
use super::float::{
    cos, d, div_fixup, exp2, f, fract, h, half_num, half_to_single, ldexp, ldexp64, log2, max_ieee,
    max_num, max64, maximum, median, min_ieee, min_num, min64, minimum, num, num64, rcp, rsq, sin,
    single_to_half, single_to_half_rtz, split, split64, sqrt, to_i32, wins64,
};
use super::level::{Level, Speed, dot4_lane};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{MODE_IEEE, Wave};
use crate::isa::op::Op;
use std::marker::PhantomData;

/// A function of up to three 32-bit lanes.
pub(super) trait Lane {
    /// Sources read.
    const N: usize;
    fn lane<L: Level>(a: u32, b: u32, c: u32) -> u32;
}

/// Handler of a [`Lane`].
pub(super) struct Vector<O>(PhantomData<O>);

impl<O: Lane> Exec for Vector<O> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut out = [0; 32];
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        match O::N {
            1 => {
                let a = w.lanes(x, u.a, &mut ra);
                for i in 0..32 {
                    out[i] = O::lane::<L>(a[i], 0, 0);
                }
            }
            2 => {
                let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
                for i in 0..32 {
                    out[i] = O::lane::<L>(a[i], b[i], 0);
                }
            }
            _ => {
                let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
                let c = w.lanes(x, u.c, &mut rc);
                for i in 0..32 {
                    out[i] = O::lane::<L>(a[i], b[i], c[i]);
                }
            }
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Handler of a [`Lane`] whose result is 16 bits wide: the other half of the register stays.
pub(super) struct Half<O>(PhantomData<O>);

impl<O: Lane> Exec for Half<O> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (mut ra, mut rb, mut rc) = ([0; 32], [0; 32], [0; 32]);
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let c = w.lanes(x, u.c, &mut rc);
        let mut out = w.v[usize::from(u.dst & 511)];
        for i in 0..32 {
            out[i] = out[i] & 0xffff_0000 | O::lane::<L>(a[i], b[i], c[i]) & 0xffff;
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// A function of up to three 64-bit lanes.
pub(super) trait Lane64 {
    const N: usize;
    /// Which sources are 64 bits wide; the others are zero-extended.
    const WIDE: [bool; 3];
    /// Whether the result is.
    const RESULT: bool;
    fn lane<L: Level>(a: u64, b: u64, c: u64, ieee: bool) -> u64;
}

type Row64 = [u64; 32];

/// A vector operand of 64 bits, or of 32 zero-extended.
#[inline(always)]
pub(super) fn lanes64(w: &Wave, x: &Ctx<'_>, src: super::uop::Src, wide: bool) -> Row64 {
    let (mut rl, mut rh) = ([0; 32], [0; 32]);
    let low = w.lanes(x, src, &mut rl);
    if !wide {
        return each64(|i| u64::from(low[i]));
    }
    let high = w.lanes(x, src.next(), &mut rh);
    each64(|i| u64::from(low[i]) | u64::from(high[i]) << 32)
}

/// A 64-bit value per lane. `std::array::from_fn` of as many is a function of its own, compiled
/// without the caller's CPU features.
#[inline(always)]
pub(super) fn each64(value: impl Fn(usize) -> u64) -> Row64 {
    let mut out = [0; 32];
    for (i, lane) in out.iter_mut().enumerate() {
        *lane = value(i);
    }
    out
}

/// Handler of a [`Lane64`].
pub(super) struct Vector64<O>(PhantomData<O>);

impl<O: Lane64> Exec for Vector64<O> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let ieee = w.mode & MODE_IEEE != 0;
        let a = lanes64(w, x, u.a, O::WIDE[0]);
        let b = if O::N > 1 {
            lanes64(w, x, u.b, O::WIDE[1])
        } else {
            [0; 32]
        };
        let c = if O::N > 2 {
            lanes64(w, x, u.c, O::WIDE[2])
        } else {
            [0; 32]
        };
        let mut low = [0; 32];
        let mut high = [0; 32];
        for i in 0..32 {
            let r = O::lane::<L>(a[i], b[i], c[i], ieee);
            low[i] = r as u32;
            high[i] = (r >> 32) as u32;
        }
        w.put(u.dst, &low);
        if O::RESULT {
            w.put(u.dst + 1, &high);
        }
        Flow::NEXT
    }
}

/// Operations whose rule depends on IEEE mode (gfx11): one lane function for each.
struct ByMode<I, N>(PhantomData<(I, N)>);

impl<I: Lane, N: Lane> Exec for ByMode<I, N> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        if w.mode & MODE_IEEE != 0 {
            Vector::<I>::run::<L>(w, u, x)
        } else {
            Vector::<N>::run::<L>(w, u, x)
        }
    }
}

/// Defines lane functions without a name in `Op`.
macro_rules! lane_fns {
    ($($name:ident $n:literal |$a:ident, $b:ident, $c:ident| $value:expr;)*) => {
        $(
            pub(super) struct $name;
            impl Lane for $name {
                const N: usize = $n;
                #[inline(always)]
                fn lane<L: Level>($a: u32, $b: u32, $c: u32) -> u32 {
                    $value
                }
            }
        )*
    };
}

/// Defines lane functions and the function that finds their handler by operation.
macro_rules! lane_table {
    ($find:ident, $wrapper:ident; $($name:ident $n:literal |$a:ident, $b:ident, $c:ident| $value:expr;)*) => {
        lane_fns! { $($name $n |$a, $b, $c| $value;)* }
        /// The handler of an operation of this table.
        pub(super) fn $find(op: Op, speed: Speed) -> Option<Handler> {
            match op {
                $(Op::$name => Some(handler::<$wrapper<$name>>(speed)),)*
                _ => None,
            }
        }
    };
}

pub(super) use {lane_fns, lane_table};

#[inline(always)]
fn s24(x: u32) -> i64 {
    i64::from(((x << 8) as i32) >> 8)
}

#[inline(always)]
fn u24(x: u32) -> u64 {
    u64::from(x & 0xff_ffff)
}

#[inline(always)]
fn i(x: u32) -> i32 {
    x as i32
}

/// Bits `[offset, offset + width)`, zero- or sign-extended; width 0 gives 0.
#[inline(always)]
fn bfe_u(x: u32, offset: u32, width: u32) -> u32 {
    let width = width & 31;
    (x >> (offset & 31)) & (1u32 << width).wrapping_sub(1)
}

#[inline(always)]
fn bfe_i(x: u32, offset: u32, width: u32) -> u32 {
    let width = width & 31;
    let field = bfe_u_signed_shift(x, offset) & (1u32 << width).wrapping_sub(1);
    let sign = if width == 0 { 0 } else { 1u32 << (width - 1) };
    (field ^ sign).wrapping_sub(sign)
}

#[inline(always)]
fn bfe_u_signed_shift(x: u32, offset: u32) -> u32 {
    (i(x) >> (offset & 31)) as u32
}

/// `v_perm_b32` on the 8 bytes of `{a, b}` (RDNA ISA: BYTE_PERMUTE).
#[inline(always)]
fn perm(a: u32, b: u32, select: u32) -> u32 {
    let data = u64::from(a) << 32 | u64::from(b);
    let mut out = 0;
    for k in 0..4 {
        let s = select >> (8 * k) & 0xff;
        let byte = match s {
            0..=7 => (data >> (8 * s)) as u32 & 0xff,
            // Sign of byte 1, 3, 5 or 7.
            8..=11 => ((data >> (16 * (s - 8) + 15)) as u32 & 1) * 0xff,
            12 => 0,
            _ => 0xff,
        };
        out |= byte << (8 * k);
    }
    out
}

#[inline(always)]
fn med3<T: Ord>(a: T, b: T, c: T) -> T {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if c < low {
        low
    } else if c > high {
        high
    } else {
        c
    }
}

/// Leading bits equal to the sign bit after it; -1 when all bits are equal.
#[inline(always)]
pub(super) fn cls(x: u32) -> u32 {
    let folded = x ^ ((i(x) >> 31) as u32);
    if folded == 0 {
        u32::MAX
    } else {
        folded.leading_zeros()
    }
}

#[inline(always)]
pub(super) fn clz(x: u32) -> u32 {
    if x == 0 { u32::MAX } else { x.leading_zeros() }
}

#[inline(always)]
pub(super) fn ctz(x: u32) -> u32 {
    if x == 0 { u32::MAX } else { x.trailing_zeros() }
}

#[inline(always)]
fn frexp_exp(x: f32) -> u32 {
    if x.is_finite() { split(x).1 as u32 } else { 0 }
}

#[inline(always)]
fn nibble_dot<const SIGNED: bool>(a: u32, b: u32, c: u32) -> u32 {
    let mut sum = c;
    for k in 0..8 {
        let at = |v: u32| {
            let raw = v >> (4 * k) & 15;
            if SIGNED {
                ((raw ^ 8).wrapping_sub(8)) as i32
            } else {
                raw as i32
            }
        };
        sum = sum.wrapping_add((at(a) * at(b)) as u32);
    }
    sum
}

lane_table! { integer, Vector;
    VMovB32 1 |a, _b, _c| a;
    VNotB32 1 |a, _b, _c| !a;
    VBfrevB32 1 |a, _b, _c| a.reverse_bits();
    VClzI32U32 1 |a, _b, _c| clz(a);
    VCtzI32B32 1 |a, _b, _c| ctz(a);
    VClsI32 1 |a, _b, _c| cls(a);
    VCvtI32I16 1 |a, _b, _c| i32::from(a as i16) as u32;
    VCvtU32U16 1 |a, _b, _c| a & 0xffff;
    VMulI32I24 2 |a, b, _c| (s24(a) * s24(b)) as u32;
    VMulHiI32I24 2 |a, b, _c| ((s24(a) * s24(b)) >> 32) as u32;
    VMulU32U24 2 |a, b, _c| (u24(a) * u24(b)) as u32;
    VMulHiU32U24 2 |a, b, _c| ((u24(a) * u24(b)) >> 32) as u32;
    VMinI32 2 |a, b, _c| i(a).min(i(b)) as u32;
    VMaxI32 2 |a, b, _c| i(a).max(i(b)) as u32;
    VMinU32 2 |a, b, _c| a.min(b);
    VMaxU32 2 |a, b, _c| a.max(b);
    VLshlrevB32 2 |a, b, _c| b << (a & 31);
    VLshrrevB32 2 |a, b, _c| b >> (a & 31);
    VAshrrevI32 2 |a, b, _c| (i(b) >> (a & 31)) as u32;
    VAndB32 2 |a, b, _c| a & b;
    VOrB32 2 |a, b, _c| a | b;
    VXorB32 2 |a, b, _c| a ^ b;
    VXnorB32 2 |a, b, _c| !(a ^ b);
    VAddNcU32 2 |a, b, _c| a.wrapping_add(b);
    VSubNcU32 2 |a, b, _c| a.wrapping_sub(b);
    VSubrevNcU32 2 |a, b, _c| b.wrapping_sub(a);
    VAddNcI32 2 |a, b, _c| a.wrapping_add(b);
    VSubNcI32 2 |a, b, _c| a.wrapping_sub(b);
    VMulLoU32 2 |a, b, _c| a.wrapping_mul(b);
    VMulHiU32 2 |a, b, _c| ((u64::from(a) * u64::from(b)) >> 32) as u32;
    VMulHiI32 2 |a, b, _c| ((i64::from(i(a)) * i64::from(i(b))) >> 32) as u32;
    VBfmB32 2 |a, b, _c| (1u32 << (a & 31)).wrapping_sub(1) << (b & 31);
    VBcntU32B32 2 |a, b, _c| a.count_ones().wrapping_add(b);
    VCvtPkU16U32 2 |a, b, _c| a.min(0xffff) | b.min(0xffff) << 16;
    VCvtPkI16I32 2 |a, b, _c| {
        let part = |v: u32| i(v).clamp(-32768, 32767) as u32 & 0xffff;
        part(a) | part(b) << 16
    };
    VMadI32I24 3 |a, b, c| ((s24(a) * s24(b)) as u32).wrapping_add(c);
    VMadU32U24 3 |a, b, c| ((u24(a) * u24(b)) as u32).wrapping_add(c);
    VMadU32U16 3 |a, b, c| ((a & 0xffff) * (b & 0xffff)).wrapping_add(c);
    VMadI32I16 3 |a, b, c| {
        ((i32::from(a as i16) * i32::from(b as i16)) as u32).wrapping_add(c)
    };
    VBfeU32 3 |a, b, c| bfe_u(a, b, c);
    VBfeI32 3 |a, b, c| bfe_i(a, b, c);
    VBfiB32 3 |a, b, c| a & b | !a & c;
    VAlignbitB32 3 |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32;
    VAlignbyteB32 3 |a, b, c| ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32;
    VMin3I32 3 |a, b, c| i(a).min(i(b)).min(i(c)) as u32;
    VMin3U32 3 |a, b, c| a.min(b).min(c);
    VMax3I32 3 |a, b, c| i(a).max(i(b)).max(i(c)) as u32;
    VMax3U32 3 |a, b, c| a.max(b).max(c);
    VMed3I32 3 |a, b, c| med3(i(a), i(b), i(c)) as u32;
    VMed3U32 3 |a, b, c| med3(a, b, c);
    VMaxminU32 3 |a, b, c| a.max(b).min(c);
    VMinmaxU32 3 |a, b, c| a.min(b).max(c);
    VMaxminI32 3 |a, b, c| i(a).max(i(b)).min(i(c)) as u32;
    VMinmaxI32 3 |a, b, c| i(a).min(i(b)).max(i(c)) as u32;
    VSadU8 3 |a, b, c| {
        let mut sum = c;
        for k in 0..4 {
            let at = |v: u32| v >> (8 * k) & 0xff;
            sum = sum.wrapping_add(at(a).abs_diff(at(b)));
        }
        sum
    };
    VSadU32 3 |a, b, c| a.abs_diff(b).wrapping_add(c);
    VXor3B32 3 |a, b, c| a ^ b ^ c;
    VPermB32 3 |a, b, c| perm(a, b, c);
    VXadU32 3 |a, b, c| (a ^ b).wrapping_add(c);
    VLshlAddU32 3 |a, b, c| (a << (b & 31)).wrapping_add(c);
    VAddLshlU32 3 |a, b, c| a.wrapping_add(b) << (c & 31);
    VAdd3U32 3 |a, b, c| a.wrapping_add(b).wrapping_add(c);
    VLshlOrB32 3 |a, b, c| a << (b & 31) | c;
    VAndOrB32 3 |a, b, c| a & b | c;
    VOr3B32 3 |a, b, c| a | b | c;
    VDot4U32U8 3 |a, b, c| dot4_lane::<false, false>(a, b, c);
    VDot8U32U4 3 |a, b, c| nibble_dot::<false>(a, b, c);
    VPackB32F16 2 |a, b, _c| a & 0xffff | b << 16;
}

lane_table! { single, Vector;
    VCvtF32I32 1 |a, _b, _c| (i(a) as f32).to_bits();
    VCvtF32U32 1 |a, _b, _c| (a as f32).to_bits();
    VCvtOffF32I4 1 |a, _b, _c| ((((a & 15) ^ 8) as f32 - 8.0) * 0.0625).to_bits();
    VCvtF32Ubyte0 1 |a, _b, _c| ((a & 0xff) as f32).to_bits();
    VCvtF32Ubyte1 1 |a, _b, _c| ((a >> 8 & 0xff) as f32).to_bits();
    VCvtF32Ubyte2 1 |a, _b, _c| ((a >> 16 & 0xff) as f32).to_bits();
    VCvtF32Ubyte3 1 |a, _b, _c| ((a >> 24) as f32).to_bits();
    VCvtU32F32 1 |a, _b, _c| f(a) as u32;
    VCvtI32F32 1 |a, _b, _c| to_i32(f(a));
    VCvtNearestI32F32 1 |a, _b, _c| to_i32((f(a) + 0.5).floor());
    VCvtFloorI32F32 1 |a, _b, _c| to_i32(f(a).floor());
    VFrexpExpI32F32 1 |a, _b, _c| frexp_exp(f(a));
    VFrexpMantF32 1 |a, _b, _c| if f(a).is_finite() { num(split(f(a)).0) } else { num(f(a)) };
    VCvtF32F16 1 |a, _b, _c| half_to_single(a & 0xffff);
    VFractF32 1 |a, _b, _c| fract(a);
    VTruncF32 1 |a, _b, _c| num(f(a).trunc());
    VCeilF32 1 |a, _b, _c| num(f(a).ceil());
    VRndneF32 1 |a, _b, _c| num(f(a).round_ties_even());
    VFloorF32 1 |a, _b, _c| num(f(a).floor());
    VExpF32 1 |a, _b, _c| exp2(a);
    VLogF32 1 |a, _b, _c| log2(a);
    VRcpF32 1 |a, _b, _c| rcp(a);
    VRcpIflagF32 1 |a, _b, _c| rcp(a);
    VRsqF32 1 |a, _b, _c| rsq(a);
    VSqrtF32 1 |a, _b, _c| sqrt(a);
    VSinF32 1 |a, _b, _c| sin(a);
    VCosF32 1 |a, _b, _c| cos(a);
    VAddF32 2 |a, b, _c| num(f(a) + f(b));
    VSubF32 2 |a, b, _c| num(f(a) - f(b));
    VSubrevF32 2 |a, b, _c| num(f(b) - f(a));
    VMulF32 2 |a, b, _c| num(f(a) * f(b));
    VMulDx9ZeroF32 2 |a, b, _c| if f(a) == 0.0 || f(b) == 0.0 { 0 } else { num(f(a) * f(b)) };
    VMinimumF32 2 |a, b, _c| minimum(a, b);
    VMaximumF32 2 |a, b, _c| maximum(a, b);
    VMinimummaximumF32 3 |a, b, c| maximum(minimum(a, b), c);
    VMaximumminimumF32 3 |a, b, c| minimum(maximum(a, b), c);
    VMinimum3F32 3 |a, b, c| minimum(minimum(a, b), c);
    VMaximum3F32 3 |a, b, c| maximum(maximum(a, b), c);
    VCvtPkRtzF16F32 2 |a, b, _c| single_to_half_rtz(a) | single_to_half_rtz(b) << 16;
    VLdexpF32 2 |a, b, _c| num(ldexp(f(a), i(b)));
    VCvtPkI16F32 2 |a, b, _c| {
        let part = |v: u32| (f(v) as i16) as u16 as u32;
        part(a) | part(b) << 16
    };
    VCvtPkU16F32 2 |a, b, _c| u32::from(f(a) as u16) | u32::from(f(b) as u16) << 16;
    VFmaF32 3 |a, b, c| num(L::fma(f(a), f(b), f(c)));
    VFmaDx9ZeroF32 3 |a, b, c| {
        if f(a) == 0.0 || f(b) == 0.0 { num(f(c)) } else { num(L::fma(f(a), f(b), f(c))) }
    };
    VDivFixupF32 3 |a, b, c| div_fixup(a, b, c);
    VDot2F32F16 3 |a, b, c| {
        let first = f(c) + h(a) * h(b);
        num(first + h(a >> 16) * h(b >> 16))
    };
}

lane_fns! {
    MaxNum 2 |a, b, _c| max_num(a, b);
    MinNum 2 |a, b, _c| min_num(a, b);
    MaxIeee 2 |a, b, _c| max_ieee(a, b);
    MinIeee 2 |a, b, _c| min_ieee(a, b);
    Max3Num 3 |a, b, c| max_num(max_num(a, b), c);
    Min3Num 3 |a, b, c| min_num(min_num(a, b), c);
    Max3Ieee 3 |a, b, c| max_ieee(max_ieee(a, b), c);
    Min3Ieee 3 |a, b, c| min_ieee(min_ieee(a, b), c);
    Med3Num 3 |a, b, c| median(a, b, c, max_num, min_num);
    Med3Ieee 3 |a, b, c| median(a, b, c, max_ieee, min_ieee);
    MaxminNum 3 |a, b, c| min_num(max_num(a, b), c);
    MinmaxNum 3 |a, b, c| max_num(min_num(a, b), c);
    MaxminIeee 3 |a, b, c| min_ieee(max_ieee(a, b), c);
    MinmaxIeee 3 |a, b, c| max_ieee(min_ieee(a, b), c);
}

/// Minimum and maximum: gfx11 follows IEEE mode, gfx12 has one rule.
pub(super) fn extremes(op: Op, speed: Speed, by_mode: bool) -> Option<Handler> {
    macro_rules! rule {
        ($ieee:ident, $num:ident) => {
            if by_mode {
                handler::<ByMode<$ieee, $num>>(speed)
            } else {
                handler::<Vector<$num>>(speed)
            }
        };
    }
    Some(match op {
        Op::VMaxF32 => rule!(MaxIeee, MaxNum),
        Op::VMinF32 => rule!(MinIeee, MinNum),
        Op::VMax3F32 => rule!(Max3Ieee, Max3Num),
        Op::VMin3F32 => rule!(Min3Ieee, Min3Num),
        Op::VMed3F32 => rule!(Med3Ieee, Med3Num),
        Op::VMaxminF32 => rule!(MaxminIeee, MaxminNum),
        Op::VMinmaxF32 => rule!(MinmaxIeee, MinmaxNum),
        _ => return None,
    })
}

lane_table! { half, Half;
    VCvtF16F32 1 |a, _b, _c| single_to_half(a);
    VCvtF16U16 1 |a, _b, _c| half_num((a & 0xffff) as f32);
    VCvtF16I16 1 |a, _b, _c| half_num(f32::from(a as i16));
    VCvtU16F16 1 |a, _b, _c| u32::from(h(a) as u16);
    VCvtI16F16 1 |a, _b, _c| (h(a) as i16) as u16 as u32;
    VRcpF16 1 |a, _b, _c| half_num(1.0 / h(a));
    VSqrtF16 1 |a, _b, _c| half_num(h(a).sqrt());
    VRsqF16 1 |a, _b, _c| half_num((1.0 / f64::from(h(a)).sqrt()) as f32);
    VLogF16 1 |a, _b, _c| half_num(f(log2(half_to_single(a & 0xffff))));
    VExpF16 1 |a, _b, _c| half_num(f(exp2(half_to_single(a & 0xffff))));
    VFloorF16 1 |a, _b, _c| half_num(h(a).floor());
    VCeilF16 1 |a, _b, _c| half_num(h(a).ceil());
    VTruncF16 1 |a, _b, _c| half_num(h(a).trunc());
    VRndneF16 1 |a, _b, _c| half_num(h(a).round_ties_even());
    VFractF16 1 |a, _b, _c| match half_num(h(a) - h(a).floor()) {
        // As for singles: below 1.
        0x3c00 => 0x3bff,
        r => r,
    };
    VAddF16 2 |a, b, _c| half_num(h(a) + h(b));
    VSubF16 2 |a, b, _c| half_num(h(a) - h(b));
    VSubrevF16 2 |a, b, _c| half_num(h(b) - h(a));
    VMulF16 2 |a, b, _c| half_num(h(a) * h(b));
    VFmaF16 3 |a, b, c| super::packed::half_fma(a, b, c);
    VMadU16 3 |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    VMadI16 3 |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    VAddNcU16 2 |a, b, _c| a.wrapping_add(b);
    VSubNcU16 2 |a, b, _c| a.wrapping_sub(b);
    VAddNcI16 2 |a, b, _c| a.wrapping_add(b);
    VSubNcI16 2 |a, b, _c| a.wrapping_sub(b);
    VMulLoU16 2 |a, b, _c| a.wrapping_mul(b);
    VMaxU16 2 |a, b, _c| (a & 0xffff).max(b & 0xffff);
    VMinU16 2 |a, b, _c| (a & 0xffff).min(b & 0xffff);
    VMaxI16 2 |a, b, _c| (a as i16).max(b as i16) as u16 as u32;
    VMinI16 2 |a, b, _c| (a as i16).min(b as i16) as u16 as u32;
    VLshlrevB16 2 |a, b, _c| b << (a & 15);
    VLshrrevB16 2 |a, b, _c| (b & 0xffff) >> (a & 15);
    VAshrrevI16 2 |a, b, _c| (i32::from(b as i16) >> (a & 15)) as u32;
}

lane_fns! {
    ClampAddU32 2 |a, b, _c| a.saturating_add(b);
    ClampSubU32 2 |a, b, _c| a.saturating_sub(b);
    ClampSubrevU32 2 |a, b, _c| b.saturating_sub(a);
    ClampAddI32 2 |a, b, _c| i(a).saturating_add(i(b)) as u32;
    ClampSubI32 2 |a, b, _c| i(a).saturating_sub(i(b)) as u32;
    ClampAddU16 2 |a, b, _c| u32::from((a as u16).saturating_add(b as u16));
    ClampSubU16 2 |a, b, _c| u32::from((a as u16).saturating_sub(b as u16));
    ClampAddI16 2 |a, b, _c| u32::from((a as i16).saturating_add(b as i16) as u16);
    ClampSubI16 2 |a, b, _c| u32::from((a as i16).saturating_sub(b as i16) as u16);
    ClampMadU16 3 |a, b, c| {
        ((a & 0xffff) * (b & 0xffff)).saturating_add(c & 0xffff).min(0xffff)
    };
    ClampMadI16 3 |a, b, c| {
        let at = |v: u32| i64::from(v as i16);
        (at(a) * at(b) + at(c)).clamp(-32768, 32767) as u32 & 0xffff
    };
    ClampMadU32U16 3 |a, b, c| ((a & 0xffff) * (b & 0xffff)).saturating_add(c);
    ClampMadI32I16 3 |a, b, c| {
        (i32::from(a as i16) * i32::from(b as i16)).saturating_add(i(c)) as u32
    };
    ClampMadU32U24 3 |a, b, c| to_u32(i128::from(u24(a) * u24(b)) + i128::from(c));
    ClampMadI32I24 3 |a, b, c| {
        (s24(a) * s24(b) + i64::from(i(c))).clamp(i32::MIN.into(), i32::MAX.into()) as u32
    };
    ClampSadU8 3 |a, b, c| {
        let at = |v: u32, k: u32| v >> (8 * k) & 0xff;
        let sum: u32 = (0..4).map(|k| at(a, k).abs_diff(at(b, k))).sum();
        sum.saturating_add(c)
    };
    ClampSadU32 3 |a, b, c| a.abs_diff(b).saturating_add(c);
}

#[inline(always)]
fn to_u32(x: i128) -> u32 {
    x.clamp(0, u32::MAX.into()) as u32
}

/// The handler of an integer operation whose result saturates instead of wrapping.
pub(super) fn clamped(op: Op, speed: Speed) -> Option<Handler> {
    Some(match op {
        Op::VAddNcU32 => handler::<Vector<ClampAddU32>>(speed),
        Op::VSubNcU32 => handler::<Vector<ClampSubU32>>(speed),
        Op::VSubrevNcU32 => handler::<Vector<ClampSubrevU32>>(speed),
        Op::VAddNcI32 => handler::<Vector<ClampAddI32>>(speed),
        Op::VSubNcI32 => handler::<Vector<ClampSubI32>>(speed),
        Op::VAddNcU16 => handler::<Half<ClampAddU16>>(speed),
        Op::VSubNcU16 => handler::<Half<ClampSubU16>>(speed),
        Op::VAddNcI16 => handler::<Half<ClampAddI16>>(speed),
        Op::VSubNcI16 => handler::<Half<ClampSubI16>>(speed),
        Op::VMadU16 => handler::<Half<ClampMadU16>>(speed),
        Op::VMadI16 => handler::<Half<ClampMadI16>>(speed),
        Op::VMadU32U16 => handler::<Vector<ClampMadU32U16>>(speed),
        Op::VMadI32I16 => handler::<Vector<ClampMadI32I16>>(speed),
        Op::VMadU32U24 => handler::<Vector<ClampMadU32U24>>(speed),
        Op::VMadI32I24 => handler::<Vector<ClampMadI32I24>>(speed),
        Op::VSadU8 => handler::<Vector<ClampSadU8>>(speed),
        Op::VSadU32 => handler::<Vector<ClampSadU32>>(speed),
        _ => return None,
    })
}

macro_rules! lane64_table {
    ($($name:ident $n:literal [$wa:literal, $wb:literal, $wc:literal] -> $wr:literal
       |$a:ident, $b:ident, $c:ident, $ieee:ident| $value:expr;)*) => {
        $(
            struct $name;
            impl Lane64 for $name {
                const N: usize = $n;
                const WIDE: [bool; 3] = [$wa == 64, $wb == 64, $wc == 64];
                const RESULT: bool = $wr == 64;
                #[inline(always)]
                fn lane<L: Level>($a: u64, $b: u64, $c: u64, $ieee: bool) -> u64 {
                    $value
                }
            }
        )*
        /// The handler of a 64-bit operation.
        pub(super) fn double(op: Op, speed: Speed) -> Option<Handler> {
            match op {
                $(Op::$name => Some(handler::<Vector64<$name>>(speed)),)*
                _ => None,
            }
        }
    };
}

lane64_table! {
    VCvtI32F64 1 [64, 0, 0] -> 32 |a, _b, _c, _m| u64::from((d(a) as i32) as u32);
    VCvtU32F64 1 [64, 0, 0] -> 32 |a, _b, _c, _m| u64::from(d(a) as u32);
    VCvtF64I32 1 [32, 0, 0] -> 64 |a, _b, _c, _m| f64::from(a as i32).to_bits();
    VCvtF64U32 1 [32, 0, 0] -> 64 |a, _b, _c, _m| f64::from(a as u32).to_bits();
    VCvtF32F64 1 [64, 0, 0] -> 32 |a, _b, _c, _m| u64::from(num(d(a) as f32));
    VCvtF64F32 1 [32, 0, 0] -> 64 |a, _b, _c, _m| num64(f64::from(f(a as u32)));
    VTruncF64 1 [64, 0, 0] -> 64 |a, _b, _c, _m| num64(d(a).trunc());
    VCeilF64 1 [64, 0, 0] -> 64 |a, _b, _c, _m| num64(d(a).ceil());
    VRndneF64 1 [64, 0, 0] -> 64 |a, _b, _c, _m| num64(d(a).round_ties_even());
    VFloorF64 1 [64, 0, 0] -> 64 |a, _b, _c, _m| num64(d(a).floor());
    VFractF64 1 [64, 0, 0] -> 64 |a, _b, _c, _m| {
        let r = d(a) - d(a).floor();
        num64(if r >= 1.0 { 1.0 - f64::EPSILON / 2.0 } else { r })
    };
    VRcpF64 1 [64, 0, 0] -> 64 |a, _b, _c, _m| num64(1.0 / d(a));
    VRsqF64 1 [64, 0, 0] -> 64 |a, _b, _c, _m| num64(1.0 / d(a).sqrt());
    VSqrtF64 1 [64, 0, 0] -> 64 |a, _b, _c, _m| num64(d(a).sqrt());
    VFrexpMantF64 1 [64, 0, 0] -> 64 |a, _b, _c, _m| num64(split64(d(a)).0);
    VFrexpExpI32F64 1 [64, 0, 0] -> 32 |a, _b, _c, _m| u64::from(split64(d(a)).1 as u32);
    VAddF64 2 [64, 64, 0] -> 64 |a, b, _c, _m| num64(d(a) + d(b));
    VMulF64 2 [64, 64, 0] -> 64 |a, b, _c, _m| num64(d(a) * d(b));
    VMinF64 2 [64, 64, 0] -> 64 |a, b, _c, ieee| min64(a, b, ieee);
    VMaxF64 2 [64, 64, 0] -> 64 |a, b, _c, ieee| max64(a, b, ieee);
    VMinimumF64 2 [64, 64, 0] -> 64 |a, b, _c, _m| wins64(a, b, false);
    VMaximumF64 2 [64, 64, 0] -> 64 |a, b, _c, _m| wins64(a, b, true);
    VLdexpF64 2 [64, 32, 0] -> 64 |a, b, _c, _m| num64(ldexp64(d(a), b as i32));
    VFmaF64 3 [64, 64, 64] -> 64 |a, b, c, _m| num64(libm::fma(d(a), d(b), d(c)));
    VLshlrevB64 2 [32, 64, 0] -> 64 |a, b, _c, _m| b << (a & 63);
    VLshrrevB64 2 [32, 64, 0] -> 64 |a, b, _c, _m| b >> (a & 63);
    VAshrrevI64 2 [32, 64, 0] -> 64 |a, b, _c, _m| ((b as i64) >> (a & 63)) as u64;
}
