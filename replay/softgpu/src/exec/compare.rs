//! Vector comparisons: a lane mask as result, in a scalar register or in EXEC.

#![expect(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    reason = "`nlt` is defined as not less than: true for unordered operands, unlike `ge`"
)]

use super::context::Ctx;
use super::float::{d, f, half_to_single};
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{Row, Wave};
use crate::isa::op::{CmpTy, Cond};
use crate::isa::operand::EXEC;
use std::marker::PhantomData;

/// A comparison of two lanes.
trait Compare {
    /// Whether the sources are 64 bits wide (source 1 of a class test never is).
    const WIDE: bool;
    fn holds(a: u64, b: u64) -> bool;
}

/// Writes the mask to scalar slot `dst`.
struct ToMask<O>(PhantomData<O>);
/// Writes the mask to EXEC.
struct ToExec<O>(PhantomData<O>);

#[inline(always)]
fn mask<O: Compare, L: Level>(w: &Wave, u: &Uop, x: &Ctx<'_>) -> u32 {
    let mut out: Row = [0; 32];
    let (mut ra, mut rb) = ([0; 32], [0; 32]);
    let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
    if O::WIDE {
        let (mut rc, mut rd) = ([0; 32], [0; 32]);
        let high_a = w.lanes(x, u.a.next(), &mut rc);
        // A narrow source 1 (class mask) has no high half; `c` then names a zero constant.
        let high_b = w.lanes(x, u.c, &mut rd);
        for i in 0..32 {
            let wide = |low: &Row, high: &Row| u64::from(low[i]) | u64::from(high[i]) << 32;
            out[i] = if O::holds(wide(a, high_a), wide(b, high_b)) {
                u32::MAX
            } else {
                0
            };
        }
    } else {
        for i in 0..32 {
            out[i] = if O::holds(u64::from(a[i]), u64::from(b[i])) {
                u32::MAX
            } else {
                0
            };
        }
    }
    L::pack(&out) & w.exec()
}

impl<O: Compare> Exec for ToMask<O> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mask = mask::<O, L>(w, u, x);
        w.set(u.dst, mask);
        Flow::NEXT
    }
}

impl<O: Compare> Exec for ToExec<O> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mask = mask::<O, L>(w, u, x);
        w.set(EXEC, mask);
        Flow::NEXT
    }
}

/// Scalar comparison of raw operands; shared with the scalar unit.
pub(super) fn scalar(ty: CmpTy, cond: Cond, a: u64, b: u64) -> bool {
    match ty {
        CmpTy::F16 => float(cond, f64::from(half(a)), f64::from(half(b))),
        CmpTy::F32 => float(cond, f64::from(f(a as u32)), f64::from(f(b as u32))),
        CmpTy::F64 => float(cond, d(a), d(b)),
        CmpTy::I16 => integer(cond, i64::from(a as i16), i64::from(b as i16)),
        CmpTy::U16 => integer(cond, i64::from(a as u16), i64::from(b as u16)),
        CmpTy::I32 => integer(cond, i64::from(a as i32), i64::from(b as i32)),
        CmpTy::U32 => integer(cond, i64::from(a as u32), i64::from(b as u32)),
        CmpTy::I64 => integer(cond, a as i64, b as i64),
        CmpTy::U64 => integer(cond, (a ^ 1 << 63) as i64, (b ^ 1 << 63) as i64),
    }
}

fn integer(cond: Cond, a: i64, b: i64) -> bool {
    match cond {
        Cond::Lt => a < b,
        Cond::Eq => a == b,
        Cond::Le => a <= b,
        Cond::Gt => a > b,
        Cond::Lg => a != b,
        Cond::Ge => a >= b,
        Cond::T => true,
        _ => false,
    }
}

fn float(cond: Cond, a: f64, b: f64) -> bool {
    match cond {
        Cond::Lt => a < b,
        Cond::Eq => a == b,
        Cond::Le => a <= b,
        Cond::Gt => a > b,
        Cond::Lg => a < b || a > b,
        Cond::Ge => a >= b,
        Cond::O => !a.is_nan() && !b.is_nan(),
        Cond::U => a.is_nan() || b.is_nan(),
        Cond::Nge => !(a >= b),
        Cond::Nlg => !(a < b || a > b),
        Cond::Ngt => !(a > b),
        Cond::Nle => !(a <= b),
        Cond::Neq => a != b,
        Cond::Nlt => !(a < b),
        Cond::T => true,
        Cond::F | Cond::Class => false,
    }
}

#[inline(always)]
fn half(bits: u64) -> f32 {
    f(half_to_single(bits as u32 & 0xffff))
}

/// Number classes by bit: sNaN, qNaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf.
fn class(negative: bool, exponent: u64, full: u64, mantissa: u64, quiet: bool, mask: u64) -> bool {
    let bit = match (exponent, mantissa) {
        (e, 0) if e == full => [9, 2][usize::from(negative)],
        (e, _) if e == full => u64::from(quiet),
        (0, 0) => [6, 5][usize::from(negative)],
        (0, _) => [7, 4][usize::from(negative)],
        _ => [8, 3][usize::from(negative)],
    };
    mask >> bit & 1 == 1
}

fn class_single(x: u64, mask: u64) -> bool {
    let mantissa = x & 0x7f_ffff;
    class(
        x >> 31 & 1 == 1,
        x >> 23 & 0xff,
        0xff,
        mantissa,
        mantissa >> 22 == 1,
        mask,
    )
}

fn class_half(x: u64, mask: u64) -> bool {
    let mantissa = x & 0x3ff;
    class(
        x >> 15 & 1 == 1,
        x >> 10 & 0x1f,
        0x1f,
        mantissa,
        mantissa >> 9 == 1,
        mask,
    )
}

fn class_double(x: u64, mask: u64) -> bool {
    let mantissa = x & 0xf_ffff_ffff_ffff;
    class(
        x >> 63 == 1,
        x >> 52 & 0x7ff,
        0x7ff,
        mantissa,
        mantissa >> 51 == 1,
        mask,
    )
}

macro_rules! compares {
    ($($name:ident $wide:literal |$a:ident, $b:ident| $value:expr;)*) => {
        $(
            struct $name;
            impl Compare for $name {
                const WIDE: bool = $wide;
                #[inline(always)]
                fn holds($a: u64, $b: u64) -> bool {
                    $value
                }
            }
        )*
    };
}

compares! {
    Never false |_a, _b| false;
    Always false |_a, _b| true;
    F32Lt false |a, b| f(a as u32) < f(b as u32);
    F32Eq false |a, b| f(a as u32) == f(b as u32);
    F32Le false |a, b| f(a as u32) <= f(b as u32);
    F32Gt false |a, b| f(a as u32) > f(b as u32);
    F32Lg false |a, b| f(a as u32) < f(b as u32) || f(a as u32) > f(b as u32);
    F32Ge false |a, b| f(a as u32) >= f(b as u32);
    F32O false |a, b| !f(a as u32).is_nan() && !f(b as u32).is_nan();
    F32U false |a, b| f(a as u32).is_nan() || f(b as u32).is_nan();
    F32Nge false |a, b| !(f(a as u32) >= f(b as u32));
    F32Nlg false |a, b| !(f(a as u32) < f(b as u32) || f(a as u32) > f(b as u32));
    F32Ngt false |a, b| !(f(a as u32) > f(b as u32));
    F32Nle false |a, b| !(f(a as u32) <= f(b as u32));
    F32Neq false |a, b| f(a as u32) != f(b as u32);
    F32Nlt false |a, b| !(f(a as u32) < f(b as u32));
    F32Class false |a, b| class_single(a, b);
    I32Lt false |a, b| (a as i32) < (b as i32);
    I32Eq false |a, b| a as i32 == b as i32;
    I32Le false |a, b| (a as i32) <= (b as i32);
    I32Gt false |a, b| (a as i32) > (b as i32);
    I32Lg false |a, b| a as i32 != b as i32;
    I32Ge false |a, b| (a as i32) >= (b as i32);
    U32Lt false |a, b| (a as u32) < (b as u32);
    U32Le false |a, b| (a as u32) <= (b as u32);
    U32Gt false |a, b| (a as u32) > (b as u32);
    U32Ge false |a, b| (a as u32) >= (b as u32);
    F16Class false |a, b| class_half(a, b);
    F64Class true |a, b| class_double(a, b);
}

const TYPES: [CmpTy; 9] = [
    CmpTy::F16,
    CmpTy::F32,
    CmpTy::F64,
    CmpTy::I16,
    CmpTy::U16,
    CmpTy::I32,
    CmpTy::U32,
    CmpTy::I64,
    CmpTy::U64,
];

const CONDITIONS: [Cond; 17] = [
    Cond::F,
    Cond::Lt,
    Cond::Eq,
    Cond::Le,
    Cond::Gt,
    Cond::Lg,
    Cond::Ge,
    Cond::O,
    Cond::U,
    Cond::Nge,
    Cond::Nlg,
    Cond::Ngt,
    Cond::Nle,
    Cond::Neq,
    Cond::Nlt,
    Cond::T,
    Cond::Class,
];

/// The condition in a number made by [`code`].
pub(super) fn condition(ext: u16) -> Cond {
    CONDITIONS[usize::from(ext >> 4).min(16)]
}

/// Comparison whose type and condition sit in the micro-operation.
struct ByTable<const WIDE: bool, const TO_EXEC: bool>;

impl<const WIDE: bool, const TO_EXEC: bool> Exec for ByTable<WIDE, TO_EXEC> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let ty = TYPES[usize::from(u.ext & 15).min(8)];
        let cond = condition(u.ext);
        let (mut ra, mut rb, mut rc, mut rd) = ([0; 32], [0; 32], [0; 32], [0; 32]);
        let zero: Row = [0; 32];
        let (a, b) = (w.lanes(x, u.a, &mut ra), w.lanes(x, u.b, &mut rb));
        let (ha, hb) = if WIDE {
            (
                w.lanes(x, u.a.next(), &mut rc),
                w.lanes(x, u.b.next(), &mut rd),
            )
        } else {
            (&zero, &zero)
        };
        let mut mask = 0;
        for i in 0..32 {
            let wide = |low: &Row, high: &Row| u64::from(low[i]) | u64::from(high[i]) << 32;
            mask |= u32::from(scalar(ty, cond, wide(a, ha), wide(b, hb))) << i;
        }
        let mask = mask & w.exec();
        w.set(if TO_EXEC { EXEC } else { u.dst }, mask);
        Flow::NEXT
    }
}

/// Type and condition as a number for `Uop::ext`.
pub(super) fn code(ty: CmpTy, cond: Cond) -> u16 {
    let t = TYPES.iter().position(|v| *v == ty).unwrap_or(0);
    let c = CONDITIONS.iter().position(|v| *v == cond).unwrap_or(0);
    (t | c << 4) as u16
}

/// A comparison's handler, and the value of `Uop::ext` that it wants.
pub(super) fn find(ty: CmpTy, cond: Cond, to_exec: bool, speed: Speed) -> (Handler, u16) {
    macro_rules! pick {
        ($name:ident) => {
            if to_exec {
                handler::<ToExec<$name>>(speed)
            } else {
                handler::<ToMask<$name>>(speed)
            }
        };
    }
    let fast = match (ty, cond) {
        (_, Cond::F) => pick!(Never),
        (_, Cond::T) => pick!(Always),
        (CmpTy::F32, Cond::Lt) => pick!(F32Lt),
        (CmpTy::F32, Cond::Eq) => pick!(F32Eq),
        (CmpTy::F32, Cond::Le) => pick!(F32Le),
        (CmpTy::F32, Cond::Gt) => pick!(F32Gt),
        (CmpTy::F32, Cond::Lg) => pick!(F32Lg),
        (CmpTy::F32, Cond::Ge) => pick!(F32Ge),
        (CmpTy::F32, Cond::O) => pick!(F32O),
        (CmpTy::F32, Cond::U) => pick!(F32U),
        (CmpTy::F32, Cond::Nge) => pick!(F32Nge),
        (CmpTy::F32, Cond::Nlg) => pick!(F32Nlg),
        (CmpTy::F32, Cond::Ngt) => pick!(F32Ngt),
        (CmpTy::F32, Cond::Nle) => pick!(F32Nle),
        (CmpTy::F32, Cond::Neq) => pick!(F32Neq),
        (CmpTy::F32, Cond::Nlt) => pick!(F32Nlt),
        (CmpTy::F32, Cond::Class) => pick!(F32Class),
        (CmpTy::F16, Cond::Class) => pick!(F16Class),
        (CmpTy::F64, Cond::Class) => pick!(F64Class),
        (CmpTy::I32, Cond::Lt) => pick!(I32Lt),
        (CmpTy::I32 | CmpTy::U32, Cond::Eq) => pick!(I32Eq),
        (CmpTy::I32, Cond::Le) => pick!(I32Le),
        (CmpTy::I32, Cond::Gt) => pick!(I32Gt),
        (CmpTy::I32 | CmpTy::U32, Cond::Lg) => pick!(I32Lg),
        (CmpTy::I32, Cond::Ge) => pick!(I32Ge),
        (CmpTy::U32, Cond::Lt) => pick!(U32Lt),
        (CmpTy::U32, Cond::Le) => pick!(U32Le),
        (CmpTy::U32, Cond::Gt) => pick!(U32Gt),
        (CmpTy::U32, Cond::Ge) => pick!(U32Ge),
        _ => return (slow(ty, to_exec, speed), code(ty, cond)),
    };
    (fast, 0)
}

fn slow(ty: CmpTy, to_exec: bool, speed: Speed) -> Handler {
    let wide = matches!(ty, CmpTy::F64 | CmpTy::I64 | CmpTy::U64);
    match (wide, to_exec) {
        (false, false) => handler::<ByTable<false, false>>(speed),
        (false, true) => handler::<ByTable<false, true>>(speed),
        (true, false) => handler::<ByTable<true, false>>(speed),
        (true, true) => handler::<ByTable<true, true>>(speed),
    }
}
