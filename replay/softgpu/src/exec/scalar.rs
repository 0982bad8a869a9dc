//! The scalar unit: arithmetic, bits, comparisons, EXEC masks, and scalar floating point.

use super::compare;
use super::context::Ctx;
use super::float::{
    Rule, exp2, f, h, half_extreme, half_num, half_to_single, log2, max_ieee, max_num, maximum,
    min_ieee, min_num, minimum, num, rcp, rsq, single_to_half, single_to_half_rtz, sqrt, to_i32,
};
use super::lanes::{cls, clz, ctz};
use super::level::{Level, Speed};
use super::packed::half_fma;
use super::uop::{Exec, Flow, Handler, Src, Uop, handler};
use super::wave::{MODE_IEEE, Wave};
use crate::isa::op::{CmpTy, Cond, Op};
use crate::isa::operand::EXEC;
use std::marker::PhantomData;

/// A scalar function of up to two operands and the old destination.
trait Scalar {
    /// Register widths of a, b and the destination: 32 or 64; 0 when absent.
    const BITS: [u8; 3];
    /// Whether SCC is written.
    const FLAG: bool;
    /// Value and SCC; `s` gives SCC and MODE before, and EXEC.
    fn value<L: Level>(a: u64, b: u64, old: u64, s: &Before) -> (u64, bool);
}

/// State that scalar functions may look at.
struct Before {
    scc: bool,
    ieee: bool,
}

struct Unit<O>(PhantomData<O>);

impl<O: Scalar> Exec for Unit<O> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let read = |src, bits| match bits {
            64 => w.scalar64(x, src),
            32 => u64::from(w.scalar(x, src)),
            _ => 0,
        };
        let before = Before {
            scc: w.scc(),
            ieee: w.mode & MODE_IEEE != 0,
        };
        let (a, b) = (read(u.a, O::BITS[0]), read(u.b, O::BITS[1]));
        let slot = usize::from(u.dst & 0xff);
        let old = u64::from(w.s[slot]) | u64::from(w.s[(slot + 1) & 0xff]) << 32;
        let (value, flag) = O::value::<L>(a, b, old, &before);
        match O::BITS[2] {
            64 => w.set64(u.dst, value),
            32 => w.set(u.dst, value as u32),
            _ => {}
        }
        if O::FLAG {
            w.set_scc(flag);
        }
        Flow::NEXT
    }
}

/// Defines scalar operations: `name [bits of a, b, result] |operands| value`, where the value is a
/// 64-bit integer, and with `scc` a pair of that and the flag.
macro_rules! scalar_table {
    ($find:ident; $($name:ident [$ba:literal $bb:literal $bd:literal] $kind:ident
       |$a:ident, $b:ident, $old:ident, $s:ident| $value:expr;)*) => {
        $(
            struct $name;
            impl Scalar for $name {
                const BITS: [u8; 3] = [$ba, $bb, $bd];
                const FLAG: bool = scalar_table!(@flag $kind);
                #[inline(always)]
                fn value<L: Level>($a: u64, $b: u64, $old: u64, $s: &Before) -> (u64, bool) {
                    scalar_table!(@pair $kind, $value)
                }
            }
        )*
        fn $find(op: Op, speed: Speed) -> Option<Handler> {
            match op {
                $(Op::$name => Some(handler::<Unit<$name>>(speed)),)*
                _ => None,
            }
        }
    };
    (@flag plain) => { false };
    (@flag scc) => { true };
    (@flag nonzero) => { true };
    (@flag nonzero32) => { true };
    (@pair plain, $value:expr) => { ($value, false) };
    (@pair scc, $value:expr) => { $value };
    (@pair nonzero, $value:expr) => {{ let v: u64 = $value; (v, v != 0) }};
    (@pair nonzero32, $value:expr) => {{ let v: u32 = $value; (u64::from(v), v != 0) }};
}

const fn lo(x: u64) -> u32 {
    x as u32
}

const fn sx(x: u64) -> i32 {
    x as u32 as i32
}

const fn wide(x: i32) -> u64 {
    x as u32 as u64
}

#[inline(always)]
fn add(a: u32, b: u32, c: bool) -> (u64, bool) {
    let sum = u64::from(a) + u64::from(b) + u64::from(c);
    (sum & 0xffff_ffff, sum >> 32 != 0)
}

#[inline(always)]
fn sub(a: u32, b: u32, c: bool) -> (u64, bool) {
    let want = u64::from(b) + u64::from(c);
    (
        u64::from(a).wrapping_sub(want) & 0xffff_ffff,
        want > u64::from(a),
    )
}

#[inline(always)]
fn shift_add(a: u64, b: u64, by: u32) -> (u64, bool) {
    let sum = (u64::from(lo(a)) << by) + u64::from(lo(b));
    (sum & 0xffff_ffff, sum >> 32 != 0)
}

/// `x >> offset` masked to `width` bits; width in source bits [22:16], offset in the low bits.
#[inline(always)]
fn field(b: u64, offset_bits: u32) -> (u32, u32) {
    (lo(b) & ((1 << offset_bits) - 1), lo(b) >> 16 & 0x7f)
}

#[inline(always)]
fn bfe32(a: u64, b: u64, signed: bool) -> u32 {
    let (offset, width) = field(b, 5);
    if width == 0 {
        return 0;
    }
    let width = width.min(32);
    if signed {
        // Bits past the register are copies of its sign.
        let x = i64::from(sx(a)) >> offset;
        ((x << (64 - width)) >> (64 - width)) as u32
    } else {
        let x = u64::from(lo(a)) >> offset;
        (x & ((1u64 << width) - 1)) as u32
    }
}

#[inline(always)]
fn bfe64(a: u64, b: u64, signed: bool) -> u64 {
    let (offset, width) = field(b, 6);
    if width == 0 {
        return 0;
    }
    let keep = 64 - width.min(64);
    if signed {
        let x = ((a as i64) >> offset) << keep;
        (x >> keep) as u64
    } else {
        (a >> offset) << keep >> keep
    }
}

/// Bit i is set where any of the four bits from `4 i` on is.
fn quads(x: u64) -> u64 {
    (0..16).fold(0, |out, k| out | u64::from(x >> (4 * k) & 15 != 0) << k)
}

/// All four bits of a quad are set where any is.
fn whole_quads(x: u64) -> u64 {
    (0..16).fold(0, |out, k| {
        out | if x >> (4 * k) & 15 != 0 {
            15 << (4 * k)
        } else {
            0
        }
    })
}

/// Each bit twice.
fn replicate(x: u32) -> u64 {
    (0..32).fold(0, |out, k| out | (u64::from(x >> k & 1) * 3) << (2 * k))
}

/// Leading bits equal to the sign bit, counted with it; -1 when all are.
fn cls64(x: u64) -> u64 {
    let folded = x ^ ((x as i64) >> 63) as u64;
    if folded == 0 {
        0xffff_ffff
    } else {
        u64::from(folded.leading_zeros())
    }
}

scalar_table! { integer;
    SClsI32I64 [64 0 32] plain |a, _b, _o, _s| cls64(a);
    SBitreplicateB64B32 [32 0 64] plain |a, _b, _o, _s| replicate(lo(a));
    SQuadmaskB32 [32 0 32] nonzero32 |a, _b, _o, _s| lo(quads(a));
    SQuadmaskB64 [64 0 64] nonzero |a, _b, _o, _s| quads(a);
    SWqmB32 [32 0 32] nonzero32 |a, _b, _o, _s| lo(whole_quads(a));
    SWqmB64 [64 0 64] nonzero |a, _b, _o, _s| whole_quads(a);
    SMovB32 [32 0 32] plain |a, _b, _o, _s| a;
    SMovB64 [64 0 64] plain |a, _b, _o, _s| a;
    SCmovB32 [32 0 32] plain |a, _b, o, s| if s.scc { a } else { o };
    SCmovB64 [64 0 64] plain |a, _b, o, s| if s.scc { a } else { o };
    SBrevB32 [32 0 32] plain |a, _b, _o, _s| u64::from(lo(a).reverse_bits());
    SBrevB64 [64 0 64] plain |a, _b, _o, _s| a.reverse_bits();
    SCtzI32B32 [32 0 32] plain |a, _b, _o, _s| u64::from(ctz(lo(a)));
    SClzI32U32 [32 0 32] plain |a, _b, _o, _s| u64::from(clz(lo(a)));
    SClsI32 [32 0 32] plain |a, _b, _o, _s| u64::from(cls(lo(a)));
    SCtzI32B64 [64 0 32] plain |a, _b, _o, _s| {
        if a == 0 { 0xffff_ffff } else { u64::from(a.trailing_zeros()) }
    };
    SClzI32U64 [64 0 32] plain |a, _b, _o, _s| {
        if a == 0 { 0xffff_ffff } else { u64::from(a.leading_zeros()) }
    };
    SSextI32I8 [32 0 32] plain |a, _b, _o, _s| wide(i32::from(a as i8));
    SSextI32I16 [32 0 32] plain |a, _b, _o, _s| wide(i32::from(a as i16));
    SBitset0B32 [32 0 32] plain |a, _b, o, _s| o & !(1u64 << (a & 31));
    SBitset1B32 [32 0 32] plain |a, _b, o, _s| o | 1u64 << (a & 31);
    SBitset0B64 [32 0 64] plain |a, _b, o, _s| o & !(1u64 << (a & 63));
    SBitset1B64 [32 0 64] plain |a, _b, o, _s| o | 1u64 << (a & 63);
    SAbsI32 [32 0 32] nonzero32 |a, _b, _o, _s| sx(a).unsigned_abs();
    SBcnt0I32B32 [32 0 32] nonzero32 |a, _b, _o, _s| lo(a).count_zeros();
    SBcnt1I32B32 [32 0 32] nonzero32 |a, _b, _o, _s| lo(a).count_ones();
    SBcnt0I32B64 [64 0 32] nonzero32 |a, _b, _o, _s| a.count_zeros();
    SBcnt1I32B64 [64 0 32] nonzero32 |a, _b, _o, _s| a.count_ones();
    SNotB32 [32 0 32] nonzero32 |a, _b, _o, _s| !lo(a);
    SNotB64 [64 0 64] nonzero |a, _b, _o, _s| !a;
    SAddU32 [32 32 32] scc |a, b, _o, _s| add(lo(a), lo(b), false);
    SSubU32 [32 32 32] scc |a, b, _o, _s| sub(lo(a), lo(b), false);
    SAddcU32 [32 32 32] scc |a, b, _o, s| add(lo(a), lo(b), s.scc);
    SSubbU32 [32 32 32] scc |a, b, _o, s| sub(lo(a), lo(b), s.scc);
    SAddI32 [32 32 32] scc |a, b, _o, _s| {
        let (r, over) = sx(a).overflowing_add(sx(b));
        (wide(r), over)
    };
    SSubI32 [32 32 32] scc |a, b, _o, _s| {
        let (r, over) = sx(a).overflowing_sub(sx(b));
        (wide(r), over)
    };
    SAbsdiffI32 [32 32 32] nonzero32 |a, b, _o, _s| sx(a).wrapping_sub(sx(b)).unsigned_abs();
    SLshlB32 [32 32 32] nonzero32 |a, b, _o, _s| lo(a) << (b & 31);
    SLshrB32 [32 32 32] nonzero32 |a, b, _o, _s| lo(a) >> (b & 31);
    SAshrI32 [32 32 32] nonzero32 |a, b, _o, _s| (sx(a) >> (b & 31)) as u32;
    SLshlB64 [64 32 64] nonzero |a, b, _o, _s| a << (b & 63);
    SLshrB64 [64 32 64] nonzero |a, b, _o, _s| a >> (b & 63);
    SAshrI64 [64 32 64] nonzero |a, b, _o, _s| ((a as i64) >> (b & 63)) as u64;
    SLshl1AddU32 [32 32 32] scc |a, b, _o, _s| shift_add(a, b, 1);
    SLshl2AddU32 [32 32 32] scc |a, b, _o, _s| shift_add(a, b, 2);
    SLshl3AddU32 [32 32 32] scc |a, b, _o, _s| shift_add(a, b, 3);
    SLshl4AddU32 [32 32 32] scc |a, b, _o, _s| shift_add(a, b, 4);
    SMinI32 [32 32 32] scc |a, b, _o, _s| (wide(sx(a).min(sx(b))), sx(a) < sx(b));
    SMinU32 [32 32 32] scc |a, b, _o, _s| (a.min(b), a < b);
    SMaxI32 [32 32 32] scc |a, b, _o, _s| (wide(sx(a).max(sx(b))), sx(a) >= sx(b));
    SMaxU32 [32 32 32] scc |a, b, _o, _s| (a.max(b), a >= b);
    SAndB32 [32 32 32] nonzero32 |a, b, _o, _s| lo(a & b);
    SOrB32 [32 32 32] nonzero32 |a, b, _o, _s| lo(a | b);
    SXorB32 [32 32 32] nonzero32 |a, b, _o, _s| lo(a ^ b);
    SNandB32 [32 32 32] nonzero32 |a, b, _o, _s| lo(!(a & b));
    SNorB32 [32 32 32] nonzero32 |a, b, _o, _s| lo(!(a | b));
    SXnorB32 [32 32 32] nonzero32 |a, b, _o, _s| lo(!(a ^ b));
    SAndNot1B32 [32 32 32] nonzero32 |a, b, _o, _s| lo(a & !b);
    SOrNot1B32 [32 32 32] nonzero32 |a, b, _o, _s| lo(a | !b);
    SAndB64 [64 64 64] nonzero |a, b, _o, _s| a & b;
    SOrB64 [64 64 64] nonzero |a, b, _o, _s| a | b;
    SXorB64 [64 64 64] nonzero |a, b, _o, _s| a ^ b;
    SNandB64 [64 64 64] nonzero |a, b, _o, _s| !(a & b);
    SNorB64 [64 64 64] nonzero |a, b, _o, _s| !(a | b);
    SXnorB64 [64 64 64] nonzero |a, b, _o, _s| !(a ^ b);
    SAndNot1B64 [64 64 64] nonzero |a, b, _o, _s| a & !b;
    SOrNot1B64 [64 64 64] nonzero |a, b, _o, _s| a | !b;
    SBfeU32 [32 32 32] nonzero32 |a, b, _o, _s| bfe32(a, b, false);
    SBfeI32 [32 32 32] nonzero32 |a, b, _o, _s| bfe32(a, b, true);
    SBfeU64 [64 32 64] nonzero |a, b, _o, _s| bfe64(a, b, false);
    SBfeI64 [64 32 64] nonzero |a, b, _o, _s| bfe64(a, b, true);
    SBfmB32 [32 32 32] plain |a, b, _o, _s| {
        u64::from((1u32 << (a & 31)).wrapping_sub(1) << (b & 31))
    };
    SBfmB64 [32 32 64] plain |a, b, _o, _s| (1u64 << (a & 63)).wrapping_sub(1) << (b & 63);
    SMulI32 [32 32 32] plain |a, b, _o, _s| u64::from(lo(a).wrapping_mul(lo(b)));
    SMulHiU32 [32 32 32] plain |a, b, _o, _s| a.wrapping_mul(b) >> 32;
    SMulHiI32 [32 32 32] plain |a, b, _o, _s| {
        wide(((i64::from(sx(a)) * i64::from(sx(b))) >> 32) as i32)
    };
    SCselectB32 [32 32 32] plain |a, b, _o, s| if s.scc { a } else { b };
    SCselectB64 [64 64 64] plain |a, b, _o, s| if s.scc { a } else { b };
    SPackLlB32B16 [32 32 32] plain |a, b, _o, _s| a & 0xffff | (b & 0xffff) << 16;
    SPackLhB32B16 [32 32 32] plain |a, b, _o, _s| a & 0xffff | b & 0xffff_0000;
    SPackHhB32B16 [32 32 32] plain |a, b, _o, _s| a >> 16 | b & 0xffff_0000;
    SPackHlB32B16 [32 32 32] plain |a, b, _o, _s| a >> 16 | (b & 0xffff) << 16;
    SAddNcU64 [64 64 64] plain |a, b, _o, _s| a.wrapping_add(b);
    SSubNcU64 [64 64 64] plain |a, b, _o, _s| a.wrapping_sub(b);
    SMulU64 [64 64 64] plain |a, b, _o, _s| a.wrapping_mul(b);
    SBitcmp0B32 [32 32 0] scc |a, b, _o, _s| (0, a >> (b & 31) & 1 == 0);
    SBitcmp1B32 [32 32 0] scc |a, b, _o, _s| (0, a >> (b & 31) & 1 == 1);
    SBitcmp0B64 [64 32 0] scc |a, b, _o, _s| (0, a >> (b & 63) & 1 == 0);
    SBitcmp1B64 [64 32 0] scc |a, b, _o, _s| (0, a >> (b & 63) & 1 == 1);
    SMovkI32 [32 0 32] plain |a, _b, _o, _s| a;
    SCmovkI32 [32 0 32] plain |a, _b, o, s| if s.scc { a } else { o };
    SAddkI32 [32 0 32] scc |a, _b, o, _s| {
        let (r, over) = sx(o).overflowing_add(sx(a));
        (wide(r), over)
    };
    SMulkI32 [32 0 32] plain |a, _b, o, _s| u64::from(lo(o).wrapping_mul(lo(a)));
}

#[inline(always)]
fn fa(x: u64) -> f32 {
    f(lo(x))
}

#[inline(always)]
fn ha(x: u64) -> f32 {
    h(lo(x))
}

/// The rule of minima and maxima of halves.
fn half_rule(s: &Before) -> Rule {
    if s.ieee { Rule::Ieee } else { Rule::Num }
}

#[inline(always)]
fn out(x: f32) -> u64 {
    u64::from(num(x))
}

scalar_table! { floating;
    SCeilF32 [32 0 32] plain |a, _b, _o, _s| out(fa(a).ceil());
    SFloorF32 [32 0 32] plain |a, _b, _o, _s| out(fa(a).floor());
    STruncF32 [32 0 32] plain |a, _b, _o, _s| out(fa(a).trunc());
    SRndneF32 [32 0 32] plain |a, _b, _o, _s| out(fa(a).round_ties_even());
    SCvtF32I32 [32 0 32] plain |a, _b, _o, _s| out(sx(a) as f32);
    SCvtF32U32 [32 0 32] plain |a, _b, _o, _s| out(lo(a) as f32);
    SCvtI32F32 [32 0 32] plain |a, _b, _o, _s| u64::from(to_i32(fa(a)));
    SCvtU32F32 [32 0 32] plain |a, _b, _o, _s| u64::from(fa(a) as u32);
    SCvtF16F32 [32 0 32] plain |a, _b, _o, _s| u64::from(single_to_half(lo(a)));
    SCvtF32F16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_to_single(lo(a) & 0xffff));
    SCvtHiF32F16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_to_single(lo(a) >> 16));
    SCeilF16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_num(ha(a).ceil()));
    SFloorF16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_num(ha(a).floor()));
    STruncF16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_num(ha(a).trunc()));
    SRndneF16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_num(ha(a).round_ties_even()));
    SAddF16 [32 32 32] plain |a, b, _o, _s| u64::from(half_num(ha(a) + ha(b)));
    SSubF16 [32 32 32] plain |a, b, _o, _s| u64::from(half_num(ha(a) - ha(b)));
    SMulF16 [32 32 32] plain |a, b, _o, _s| u64::from(half_num(ha(a) * ha(b)));
    SFmacF16 [32 32 32] plain |a, b, o, _s| u64::from(half_fma(lo(a), lo(b), lo(o)));
    SMinF16 [32 32 32] plain |a, b, _o, s| {
        u64::from(half_extreme::<false>(lo(a), lo(b), half_rule(s)))
    };
    SMaxF16 [32 32 32] plain |a, b, _o, s| {
        u64::from(half_extreme::<true>(lo(a), lo(b), half_rule(s)))
    };
    SMinimumF16 [32 32 32] plain |a, b, _o, _s| {
        u64::from(half_extreme::<false>(lo(a), lo(b), Rule::Wins))
    };
    SMaximumF16 [32 32 32] plain |a, b, _o, _s| {
        u64::from(half_extreme::<true>(lo(a), lo(b), Rule::Wins))
    };
    VSExpF16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_num(f(exp2(ha(a).to_bits()))));
    VSLogF16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_num(f(log2(ha(a).to_bits()))));
    VSRcpF16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_num(1.0 / ha(a)));
    VSRsqF16 [32 0 32] plain |a, _b, _o, _s| {
        u64::from(half_num((1.0 / f64::from(ha(a)).sqrt()) as f32))
    };
    VSSqrtF16 [32 0 32] plain |a, _b, _o, _s| u64::from(half_num(ha(a).sqrt()));
    SAddF32 [32 32 32] plain |a, b, _o, _s| out(fa(a) + fa(b));
    SSubF32 [32 32 32] plain |a, b, _o, _s| out(fa(a) - fa(b));
    SMulF32 [32 32 32] plain |a, b, _o, _s| out(fa(a) * fa(b));
    SMinF32 [32 32 32] plain |a, b, _o, s| {
        u64::from(if s.ieee { min_ieee(lo(a), lo(b)) } else { min_num(lo(a), lo(b)) })
    };
    SMaxF32 [32 32 32] plain |a, b, _o, s| {
        u64::from(if s.ieee { max_ieee(lo(a), lo(b)) } else { max_num(lo(a), lo(b)) })
    };
    SMinimumF32 [32 32 32] plain |a, b, _o, _s| u64::from(minimum(lo(a), lo(b)));
    SMaximumF32 [32 32 32] plain |a, b, _o, _s| u64::from(maximum(lo(a), lo(b)));
    SFmacF32 [32 32 32] plain |a, b, o, _s| out(L::fma(fa(a), fa(b), fa(o)));
    SCvtPkRtzF16F32 [32 32 32] plain |a, b, _o, _s| {
        u64::from(single_to_half_rtz(lo(a)) | single_to_half_rtz(lo(b)) << 16)
    };
    VSExpF32 [32 0 32] plain |a, _b, _o, _s| u64::from(exp2(lo(a)));
    VSLogF32 [32 0 32] plain |a, _b, _o, _s| u64::from(log2(lo(a)));
    VSRcpF32 [32 0 32] plain |a, _b, _o, _s| u64::from(rcp(lo(a)));
    VSRsqF32 [32 0 32] plain |a, _b, _o, _s| u64::from(rsq(lo(a)));
    VSSqrtF32 [32 0 32] plain |a, _b, _o, _s| u64::from(sqrt(lo(a)));
}

/// `a * b + c` of scalars; the literal's place is settled by the decoder.
struct Fma;

impl Exec for Fma {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let at = |src| f(w.scalar(x, src));
        let value = num(L::fma(at(u.a), at(u.b), at(u.c)));
        w.set(u.dst, value);
        Flow::NEXT
    }
}

/// Saves EXEC to the destination and combines it with the source.
macro_rules! exec_masks {
    ($($name:ident $saves:literal |$a:ident, $e:ident| $value:expr;)*) => {
        $(
            struct $name;
            impl Exec for $name {
                fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
                    let ($a, $e) = (w.scalar(x, u.a), w.exec());
                    let value: u32 = $value;
                    w.set(u.dst, if $saves { $e } else { value });
                    w.set(EXEC, value);
                    w.set_scc(value != 0);
                    Flow::NEXT
                }
            }
        )*
        fn exec_mask(op: Op, speed: Speed) -> Option<Handler> {
            match op {
                $(Op::$name => Some(handler::<$name>(speed)),)*
                _ => None,
            }
        }
    };
}

/// As [`exec_masks`], of 64 bits: a wave32's high half of EXEC is an ordinary register here.
macro_rules! wide_exec_masks {
    ($($name:ident $saves:literal |$a:ident, $e:ident| $value:expr;)*) => {
        $(
            struct $name;
            impl Exec for $name {
                fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
                    let $a = w.scalar64(x, u.a);
                    let $e = w.scalar64(x, Src(Src::SCALAR + EXEC));
                    let value: u64 = $value;
                    w.set64(u.dst, if $saves { $e } else { value });
                    w.set64(EXEC, value);
                    w.set_scc(value != 0);
                    Flow::NEXT
                }
            }
        )*
        fn wide_exec_mask(op: Op, speed: Speed) -> Option<Handler> {
            match op {
                $(Op::$name => Some(handler::<$name>(speed)),)*
                _ => None,
            }
        }
    };
}

wide_exec_masks! {
    SAndSaveexecB64 true |a, e| a & e;
    SOrSaveexecB64 true |a, e| a | e;
    SXorSaveexecB64 true |a, e| a ^ e;
    SNandSaveexecB64 true |a, e| !(a & e);
    SNorSaveexecB64 true |a, e| !(a | e);
    SXnorSaveexecB64 true |a, e| !(a ^ e);
    SAndNot0SaveexecB64 true |a, e| !a & e;
    SOrNot0SaveexecB64 true |a, e| !a | e;
    SAndNot1SaveexecB64 true |a, e| a & !e;
    SOrNot1SaveexecB64 true |a, e| a | !e;
    SAndNot0WrexecB64 false |a, e| !a & e;
    SAndNot1WrexecB64 false |a, e| a & !e;
}

exec_masks! {
    SAndSaveexecB32 true |a, e| a & e;
    SOrSaveexecB32 true |a, e| a | e;
    SXorSaveexecB32 true |a, e| a ^ e;
    SNandSaveexecB32 true |a, e| !(a & e);
    SNorSaveexecB32 true |a, e| !(a | e);
    SXnorSaveexecB32 true |a, e| !(a ^ e);
    SAndNot0SaveexecB32 true |a, e| !a & e;
    SOrNot0SaveexecB32 true |a, e| !a | e;
    SAndNot1SaveexecB32 true |a, e| a & !e;
    SOrNot1SaveexecB32 true |a, e| a | !e;
    SAndNot0WrexecB32 false |a, e| !a & e;
    SAndNot1WrexecB32 false |a, e| a & !e;
}

/// Type and condition are picked at decode time for the common cases.
struct Compare<const TY: u8, const COND: u8>;

macro_rules! fast_compares {
    ($($ty:ident $t:literal $cond:ident $c:literal |$a:ident, $b:ident| $value:expr;)*) => {
        $(
            impl Exec for Compare<$t, $c> {
                fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
                    let ($a, $b) = (w.scalar(x, u.a), w.scalar(x, u.b));
                    w.set_scc($value);
                    Flow::NEXT
                }
            }
        )*
        fn fast_compare(ty: CmpTy, cond: Cond, speed: Speed) -> Option<Handler> {
            match (ty, cond) {
                $((CmpTy::$ty, Cond::$cond) => Some(handler::<Compare<$t, $c>>(speed)),)*
                _ => None,
            }
        }
    };
}

fast_compares! {
    I32 0 Eq 0 |a, b| a == b;
    I32 0 Lg 1 |a, b| a != b;
    I32 0 Gt 2 |a, b| a as i32 > b as i32;
    I32 0 Ge 3 |a, b| a as i32 >= b as i32;
    I32 0 Lt 4 |a, b| (a as i32) < b as i32;
    I32 0 Le 5 |a, b| a as i32 <= b as i32;
    U32 1 Eq 0 |a, b| a == b;
    U32 1 Lg 1 |a, b| a != b;
    U32 1 Gt 2 |a, b| a > b;
    U32 1 Ge 3 |a, b| a >= b;
    U32 1 Lt 4 |a, b| a < b;
    U32 1 Le 5 |a, b| a <= b;
}

struct CompareU64<const EQUAL: bool>;

impl<const EQUAL: bool> Exec for CompareU64<EQUAL> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let same = w.scalar64(x, u.a) == w.scalar64(x, u.b);
        w.set_scc(same == EQUAL);
        Flow::NEXT
    }
}

/// Float comparison; the condition is in `ext`.
struct CompareF32;

impl Exec for CompareF32 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (a, b) = (u64::from(w.scalar(x, u.a)), u64::from(w.scalar(x, u.b)));
        w.set_scc(compare::scalar(CmpTy::F32, compare::condition(u.ext), a, b));
        Flow::NEXT
    }
}

/// As [`CompareF32`], of halves.
struct CompareF16;

impl Exec for CompareF16 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (a, b) = (u64::from(w.scalar(x, u.a)), u64::from(w.scalar(x, u.b)));
        w.set_scc(compare::scalar(CmpTy::F16, compare::condition(u.ext), a, b));
        Flow::NEXT
    }
}

/// A scalar comparison's handler, and the value of `Uop::ext` that it wants.
pub(super) fn comparison(ty: CmpTy, cond: Cond, speed: Speed) -> Option<(Handler, u16)> {
    match (ty, cond) {
        (CmpTy::U64, Cond::Eq) => Some((handler::<CompareU64<true>>(speed), 0)),
        (CmpTy::U64, Cond::Lg) => Some((handler::<CompareU64<false>>(speed), 0)),
        (CmpTy::F16, _) => Some((handler::<CompareF16>(speed), compare::code(ty, cond))),
        (CmpTy::F32, _) => Some((handler::<CompareF32>(speed), compare::code(ty, cond))),
        _ => fast_compare(ty, cond, speed).map(|h| (h, 0)),
    }
}

/// The handler of a scalar operation without control flow.
pub(super) fn find(op: Op, speed: Speed) -> Option<Handler> {
    if matches!(op, Op::SFmaakF32 | Op::SFmamkF32) {
        return Some(handler::<Fma>(speed));
    }
    integer(op, speed)
        .or_else(|| floating(op, speed))
        .or_else(|| exec_mask(op, speed))
        .or_else(|| wide_exec_mask(op, speed))
}
