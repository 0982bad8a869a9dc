//! Vector operations on 16-bit lanes that `lanes` lacks: extremes, logic, and the packed forms'
//! integer parts. As there, each is one entry of a table.

use super::context::Ctx;
use super::float::{
    Rule, cos, f, h, half_div_fixup, half_extreme, half_median, half_num, half_to_single, ldexp,
    normalised, sin, split,
};
use super::lanes::{Half, Lane, Vector, lane_fns, lane_table};
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{MODE_IEEE, Wave};
use crate::isa::op::Op;
use std::marker::PhantomData;

/// 16-bit operations whose rule depends on IEEE mode (gfx11).
struct ByMode<I, N>(PhantomData<(I, N)>);

impl<I: Lane, N: Lane> Exec for ByMode<I, N> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        if w.mode & MODE_IEEE != 0 {
            Half::<I>::run::<L>(w, u, x)
        } else {
            Half::<N>::run::<L>(w, u, x)
        }
    }
}

#[inline(always)]
fn max(a: u32, b: u32, rule: Rule) -> u32 {
    half_extreme::<true>(a, b, rule)
}

#[inline(always)]
fn min(a: u32, b: u32, rule: Rule) -> u32 {
    half_extreme::<false>(a, b, rule)
}

#[inline(always)]
fn s(x: u32) -> i16 {
    x as i16
}

#[inline(always)]
fn u(x: u32) -> u32 {
    x & 0xffff
}

#[inline(always)]
fn word(x: i16) -> u32 {
    u32::from(x as u16)
}

/// Mantissa of a half in [0.5, 1).
fn mantissa(x: f32) -> u32 {
    half_num(if x.is_finite() { split(x).0 } else { x })
}

fn exponent(x: f32) -> u32 {
    if x.is_finite() { split(x).1 as u32 } else { 0 }
}

lane_table! { find, Half;
    VMovB16 1 |a, _b, _c| a;
    VNotB16 1 |a, _b, _c| !a;
    VAndB16 2 |a, b, _c| a & b;
    VOrB16 2 |a, b, _c| a | b;
    VXorB16 2 |a, b, _c| a ^ b;
    VMin3I16 3 |a, b, c| word(s(a).min(s(b)).min(s(c)));
    VMax3I16 3 |a, b, c| word(s(a).max(s(b)).max(s(c)));
    VMed3I16 3 |a, b, c| word(s(a).max(s(b)).min(s(a).min(s(b)).max(s(c))));
    VMin3U16 3 |a, b, c| u(a).min(u(b)).min(u(c));
    VMax3U16 3 |a, b, c| u(a).max(u(b)).max(u(c));
    VMed3U16 3 |a, b, c| u(a).max(u(b)).min(u(a).min(u(b)).max(u(c)));
    VFrexpMantF16 1 |a, _b, _c| mantissa(h(a));
    VFrexpExpI16F16 1 |a, _b, _c| exponent(h(a));
    VSinF16 1 |a, _b, _c| half_num(f(sin(half_to_single(u(a)))));
    VCosF16 1 |a, _b, _c| half_num(f(cos(half_to_single(u(a)))));
    VLdexpF16 2 |a, b, _c| half_num(ldexp(h(a), i32::from(s(b))));
    VCvtNormI16F16 1 |a, _b, _c| normalised(h(a), -1.0, 32767.0);
    VCvtNormU16F16 1 |a, _b, _c| normalised(h(a), 0.0, 65535.0);
    VDivFixupF16 3 |a, b, c| half_div_fixup(a, b, c);
    VMinimumF16 2 |a, b, _c| min(a, b, Rule::Wins);
    VMaximumF16 2 |a, b, _c| max(a, b, Rule::Wins);
    VMinimum3F16 3 |a, b, c| min(min(a, b, Rule::Wins), c, Rule::Wins);
    VMaximum3F16 3 |a, b, c| max(max(a, b, Rule::Wins), c, Rule::Wins);
    VMinimummaximumF16 3 |a, b, c| max(min(a, b, Rule::Wins), c, Rule::Wins);
    VMaximumminimumF16 3 |a, b, c| min(max(a, b, Rule::Wins), c, Rule::Wins);
    VSatPkU8I16 1 |a, _b, _c| {
        let part = |v: u32| s(v).clamp(0, 255) as u32;
        part(a) | part(a >> 16) << 8
    };
    VDot2F16F16 3 |a, b, c| {
        let first = half_num(h(c) + h(half_num(h(a) * h(b))));
        half_num(h(first) + h(half_num(h(a >> 16) * h(b >> 16))))
    };
    VDot2Bf16Bf16 3 |a, b, c| {
        use super::float::{bf16, to_bf16};
        let product = |k: u32| bf16(to_bf16(bf16(u(a >> k)) * bf16(u(b >> k))));
        let first = to_bf16(bf16(u(c)) + product(0));
        to_bf16(bf16(first) + product(16))
    };
}

lane_table! { whole, Vector;
    VCvtPkNormI16F16 2 |a, b, _c| {
        normalised(h(a), -1.0, 32767.0) | normalised(h(b), -1.0, 32767.0) << 16
    };
    VCvtPkNormU16F16 2 |a, b, _c| {
        normalised(h(a), 0.0, 65535.0) | normalised(h(b), 0.0, 65535.0) << 16
    };
    VCvtPkNormI16F32 2 |a, b, _c| {
        normalised(f(a), -1.0, 32767.0) | normalised(f(b), -1.0, 32767.0) << 16
    };
    VCvtPkNormU16F32 2 |a, b, _c| {
        normalised(f(a), 0.0, 65535.0) | normalised(f(b), 0.0, 65535.0) << 16
    };
}

lane_fns! {
    MaxNum 2 |a, b, _c| max(a, b, Rule::Num);
    MinNum 2 |a, b, _c| min(a, b, Rule::Num);
    MaxIeee 2 |a, b, _c| max(a, b, Rule::Ieee);
    MinIeee 2 |a, b, _c| min(a, b, Rule::Ieee);
    Max3Num 3 |a, b, c| max(max(a, b, Rule::Num), c, Rule::Num);
    Min3Num 3 |a, b, c| min(min(a, b, Rule::Num), c, Rule::Num);
    Max3Ieee 3 |a, b, c| max(max(a, b, Rule::Ieee), c, Rule::Ieee);
    Min3Ieee 3 |a, b, c| min(min(a, b, Rule::Ieee), c, Rule::Ieee);
    Med3Num 3 |a, b, c| half_median(a, b, c, Rule::Num);
    Med3Ieee 3 |a, b, c| half_median(a, b, c, Rule::Ieee);
    MaxminNum 3 |a, b, c| min(max(a, b, Rule::Num), c, Rule::Num);
    MinmaxNum 3 |a, b, c| max(min(a, b, Rule::Num), c, Rule::Num);
    MaxminIeee 3 |a, b, c| min(max(a, b, Rule::Ieee), c, Rule::Ieee);
    MinmaxIeee 3 |a, b, c| max(min(a, b, Rule::Ieee), c, Rule::Ieee);
}

/// Minimum and maximum: gfx11 follows IEEE mode, gfx12 has one rule.
pub(super) fn extremes(op: Op, speed: Speed, by_mode: bool) -> Option<Handler> {
    macro_rules! rule {
        ($ieee:ident, $num:ident) => {
            if by_mode {
                handler::<ByMode<$ieee, $num>>(speed)
            } else {
                handler::<Half<$num>>(speed)
            }
        };
    }
    Some(match op {
        Op::VMaxF16 => rule!(MaxIeee, MaxNum),
        Op::VMinF16 => rule!(MinIeee, MinNum),
        Op::VMax3F16 => rule!(Max3Ieee, Max3Num),
        Op::VMin3F16 => rule!(Min3Ieee, Min3Num),
        Op::VMed3F16 => rule!(Med3Ieee, Med3Num),
        Op::VMaxminF16 => rule!(MaxminIeee, MaxminNum),
        Op::VMinmaxF16 => rule!(MinmaxIeee, MinmaxNum),
        _ => return None,
    })
}
