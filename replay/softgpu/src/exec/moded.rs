//! Arithmetic under a MODE that is not the ordinary one: another rounding direction, or denormals
//! flushed. A program has a second set of micro-operations for it, so that the ordinary ones never
//! look at MODE; waves change between the two when they start or write MODE.
//!
//! Here are the operations that round. What the tables leave out is exact, or rounds to nearest in
//! every mode (the transcendental functions). Denormals of sources and results are flushed around
//! the operation, by type, by the modifier wrapper (`modified`).

use super::context::Ctx;
use super::lanes::lanes64;
use super::level::{Level, Speed};
use super::softfloat::{
    DOUBLE, Format, HALF, Round, Rule, SINGLE, add, convert, fma, fract, from_int, ldexp, mul, sub,
};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{MODE_FP16_OVFL, Wave};
use crate::isa::op::Op;
use std::marker::PhantomData;

/// MODE.FP_ROUND and MODE.FP_DENORM of waves that the ordinary micro-operations are right for: to
/// nearest even, all denormals kept.
pub(super) const ORDINARY: u32 = 0xf0;

/// Whether a wave with this MODE runs the ordinary micro-operations.
pub(super) const fn is_ordinary(mode: u32) -> bool {
    mode & (0xff | MODE_FP16_OVFL) == ORDINARY
}

/// MODE, taken apart. Singles have fields of their own, halves share theirs with doubles.
#[derive(Clone, Copy)]
pub(super) struct Modes {
    pub(super) single: Rule,
    pub(super) half: Rule,
    pub(super) double: Rule,
    bits: u32,
}

impl Modes {
    pub(super) const fn of(mode: u32) -> Self {
        let wide = Rule::new(Round::from_bits(mode >> 2));
        Self {
            single: Rule::new(Round::from_bits(mode)),
            half: Rule {
                saturate: mode & MODE_FP16_OVFL != 0,
                ..wide
            },
            double: wide,
            bits: mode,
        }
    }

    const fn denormals(self, format: Format) -> u32 {
        let field = if format.size == 32 { 4 } else { 6 };
        self.bits >> field & 3
    }

    /// A source: a denormal becomes a zero of its sign if the mode flushes sources.
    #[inline(always)]
    pub(super) const fn source(self, format: Format, bits: u64) -> u64 {
        let keeps = self.denormals(format) & 1 == 1;
        flushed(format, bits, keeps)
    }

    /// A result: as [`Self::source`], if the mode flushes results.
    #[inline(always)]
    pub(super) const fn result(self, format: Format, bits: u64) -> u64 {
        flushed(format, bits, self.keeps_results(format))
    }

    /// Whether results that are denormal stay.
    pub(super) const fn keeps_results(self, format: Format) -> bool {
        self.denormals(format) & 2 == 2
    }
}

const fn flushed(format: Format, bits: u64, keeps: bool) -> u64 {
    if !keeps && format.is_denormal(bits) {
        bits & 1 << (format.size - 1)
    } else {
        bits
    }
}

/// A function of up to three lanes that rounds as MODE says.
pub(super) trait Soft {
    /// Sources read.
    const N: usize;
    /// Widths of the sources.
    const BITS: [u8; 3];
    /// Width of the result; 16 keeps the other half of the register.
    const RESULT: u8;
    fn lane(a: u64, b: u64, c: u64, m: Modes) -> u64;
}

struct Lanes<O>(PhantomData<O>);

impl<O: Soft> Exec for Lanes<O> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let m = Modes::of(w.mode);
        let a = lanes64(w, x, u.a, O::BITS[0] == 64);
        let (mut b, mut c) = ([0; 32], [0; 32]);
        if O::N > 1 {
            b = lanes64(w, x, u.b, O::BITS[1] == 64);
        }
        if O::N > 2 {
            c = lanes64(w, x, u.c, O::BITS[2] == 64);
        }
        let mut low = w.v[usize::from(u.dst & 511)];
        let mut high = [0; 32];
        let narrow = O::RESULT == 16;
        for i in 0..32 {
            let r = O::lane(a[i], b[i], c[i], m);
            low[i] = if narrow {
                low[i] & 0xffff_0000 | r as u32 & 0xffff
            } else {
                r as u32
            };
            high[i] = (r >> 32) as u32;
        }
        w.put(u.dst, &low);
        if O::RESULT == 64 {
            w.put(u.dst + 1, &high);
        }
        Flow::NEXT
    }
}

/// Scalar operations: as for lanes; `N` 3 reads `c`, and an accumulating one its destination.
struct Unit<O>(PhantomData<O>);

impl<O: Soft> Exec for Unit<O> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let at = |k: usize, src| {
            if k < O::N {
                u64::from(w.scalar(x, src))
            } else {
                0
            }
        };
        let value = O::lane(at(0, u.a), at(1, u.b), at(2, u.c), Modes::of(w.mode));
        let mask = if O::RESULT == 16 { 0xffff } else { u32::MAX };
        w.set(u.dst, value as u32 & mask);
        Flow::NEXT
    }
}

macro_rules! soft_table {
    ($find:ident, $wrapper:ident; $($name:ident $n:literal [$wa:literal $wb:literal $wc:literal] -> $wr:literal
       |$a:ident, $b:ident, $c:ident, $m:ident| $value:expr;)*) => {
        $(
            pub(super) struct $name;
            impl Soft for $name {
                const N: usize = $n;
                const BITS: [u8; 3] = [$wa, $wb, $wc];
                const RESULT: u8 = $wr;
                #[inline(always)]
                fn lane($a: u64, $b: u64, $c: u64, $m: Modes) -> u64 {
                    $value
                }
            }
        )*
        /// The handler of an operation that rounds as MODE says; `None` where the ordinary one is
        /// right in every mode.
        pub(super) fn $find(op: Op, speed: Speed) -> Option<Handler> {
            match op {
                $(Op::$name => Some(handler::<$wrapper<$name>>(speed)),)*
                _ => None,
            }
        }
    };
}

/// A half in the low bits of a register.
const fn h(x: u64) -> u64 {
    x & 0xffff
}

/// `a * b + c` where a zero factor gives a zero product whatever the other is.
fn fma_dx9(m: Modes, a: u64, b: u64, c: u64) -> u64 {
    let zero = |v: u64| v & 0x7fff_ffff == 0;
    if zero(a) || zero(b) {
        // The accumulator as it is, but for a NaN.
        convert(SINGLE, SINGLE, m.single, c)
    } else {
        fma(SINGLE, m.single, a, b, c)
    }
}

fn mul_dx9(m: Modes, a: u64, b: u64) -> u64 {
    let zero = |v: u64| v & 0x7fff_ffff == 0;
    if zero(a) || zero(b) {
        0
    } else {
        mul(SINGLE, m.single, a, b)
    }
}

const fn signed(x: u64) -> i64 {
    x as i32 as i64
}

soft_table! { vector, Lanes;
    VAddF32 2 [32 32 0] -> 32 |a, b, _c, m| add(SINGLE, m.single, a, b);
    VSubF32 2 [32 32 0] -> 32 |a, b, _c, m| sub(SINGLE, m.single, a, b);
    VSubrevF32 2 [32 32 0] -> 32 |a, b, _c, m| sub(SINGLE, m.single, b, a);
    VMulF32 2 [32 32 0] -> 32 |a, b, _c, m| mul(SINGLE, m.single, a, b);
    VMulDx9ZeroF32 2 [32 32 0] -> 32 |a, b, _c, m| mul_dx9(m, a, b);
    VFmaF32 3 [32 32 32] -> 32 |a, b, c, m| fma(SINGLE, m.single, a, b, c);
    VFmaDx9ZeroF32 3 [32 32 32] -> 32 |a, b, c, m| fma_dx9(m, a, b, c);
    VLdexpF32 2 [32 32 0] -> 32 |a, b, _c, m| ldexp(SINGLE, m.single, a, b as i32);
    VFractF32 1 [32 0 0] -> 32 |a, _b, _c, m| fract(SINGLE, m.single, a);
    VCvtF32I32 1 [32 0 0] -> 32 |a, _b, _c, m| from_int(SINGLE, m.single, signed(a));
    VCvtF32U32 1 [32 0 0] -> 32 |a, _b, _c, m| from_int(SINGLE, m.single, a as i64);
    VCvtF32F64 1 [64 0 0] -> 32 |a, _b, _c, m| convert(DOUBLE, SINGLE, m.single, a);
    VCvtF16F32 1 [32 0 0] -> 16 |a, _b, _c, m| convert(SINGLE, HALF, m.half, a);
    VCvtF16U16 1 [32 0 0] -> 16 |a, _b, _c, m| from_int(HALF, m.half, h(a) as i64);
    VCvtF16I16 1 [32 0 0] -> 16 |a, _b, _c, m| from_int(HALF, m.half, a as i16 as i64);
    VFractF16 1 [32 0 0] -> 16 |a, _b, _c, m| fract(HALF, m.half, h(a));
    VAddF16 2 [32 32 0] -> 16 |a, b, _c, m| add(HALF, m.half, h(a), h(b));
    VSubF16 2 [32 32 0] -> 16 |a, b, _c, m| sub(HALF, m.half, h(a), h(b));
    VSubrevF16 2 [32 32 0] -> 16 |a, b, _c, m| sub(HALF, m.half, h(b), h(a));
    VMulF16 2 [32 32 0] -> 16 |a, b, _c, m| mul(HALF, m.half, h(a), h(b));
    VFmaF16 3 [32 32 32] -> 16 |a, b, c, m| fma(HALF, m.half, h(a), h(b), h(c));
    VLdexpF16 2 [32 32 0] -> 16 |a, b, _c, m| ldexp(HALF, m.half, h(a), i32::from(b as i16));
    VAddF64 2 [64 64 0] -> 64 |a, b, _c, m| add(DOUBLE, m.double, a, b);
    VMulF64 2 [64 64 0] -> 64 |a, b, _c, m| mul(DOUBLE, m.double, a, b);
    VFmaF64 3 [64 64 64] -> 64 |a, b, c, m| fma(DOUBLE, m.double, a, b, c);
    VLdexpF64 2 [64 32 0] -> 64 |a, b, _c, m| ldexp(DOUBLE, m.double, a, b as i32);
    VFractF64 1 [64 0 0] -> 64 |a, _b, _c, m| fract(DOUBLE, m.double, a);
}

soft_table! { scalar, Unit;
    SAddF32 2 [32 32 0] -> 32 |a, b, _c, m| add(SINGLE, m.single, a, b);
    SSubF32 2 [32 32 0] -> 32 |a, b, _c, m| sub(SINGLE, m.single, a, b);
    SMulF32 2 [32 32 0] -> 32 |a, b, _c, m| mul(SINGLE, m.single, a, b);
    SFmaakF32 3 [32 32 32] -> 32 |a, b, c, m| fma(SINGLE, m.single, a, b, c);
    SFmamkF32 3 [32 32 32] -> 32 |a, b, c, m| fma(SINGLE, m.single, a, b, c);
    SFmacF32 3 [32 32 32] -> 32 |a, b, c, m| fma(SINGLE, m.single, a, b, c);
    SAddF16 2 [32 32 0] -> 16 |a, b, _c, m| add(HALF, m.half, h(a), h(b));
    SSubF16 2 [32 32 0] -> 16 |a, b, _c, m| sub(HALF, m.half, h(a), h(b));
    SMulF16 2 [32 32 0] -> 16 |a, b, _c, m| mul(HALF, m.half, h(a), h(b));
    SFmacF16 3 [32 32 32] -> 16 |a, b, c, m| fma(HALF, m.half, h(a), h(b), h(c));
    SCvtF32I32 1 [32 0 0] -> 32 |a, _b, _c, m| from_int(SINGLE, m.single, signed(a));
    SCvtF32U32 1 [32 0 0] -> 32 |a, _b, _c, m| from_int(SINGLE, m.single, a as i64);
    SCvtF16F32 1 [32 0 0] -> 16 |a, _b, _c, m| convert(SINGLE, HALF, m.half, a);
}
