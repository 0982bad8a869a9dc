//! Byte arithmetic (sums of absolute differences, interpolation), cube maps, the multiply of lighting,
//! and the argument reduction of double-precision trigonometry.

use super::context::Ctx;
use super::float::{f, ldexp64, num};
use super::lanes::{Lane, Lane64, Vector, Vector64, lane_fns, lane_table, lanes64};
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::Wave;
use crate::isa::op::Op;

#[inline(always)]
fn byte(x: u32, k: u32) -> u32 {
    x >> (8 * k) & 0xff
}

/// Sum of the absolute differences of four bytes; `MASKED`: where the second is not zero.
#[inline(always)]
fn sad<const MASKED: bool>(a: u32, b: u32, c: u32) -> u32 {
    (0..4).fold(c, |sum, k| {
        let skip = MASKED && byte(b, k) == 0;
        let difference = byte(a, k).abs_diff(byte(b, k));
        sum.wrapping_add(if skip { 0 } else { difference })
    })
}

/// Which face of a cube a direction points at: axis (0 x, 1 y, 2 z) and whether backwards.
fn face(x: u32, y: u32, z: u32) -> (u32, bool) {
    let (ax, ay, az) = (f(x).abs(), f(y).abs(), f(z).abs());
    if az >= ax && az >= ay {
        (2, f(z) < 0.0)
    } else if ay >= ax {
        (1, f(y) < 0.0)
    } else {
        (0, f(x) < 0.0)
    }
}

const SIGN: u32 = 1 << 31;

lane_table! { find, Vector;
    VLerpU8 3 |a, b, c| {
        (0..4).fold(0, |out, k| {
            out | (byte(a, k) + byte(b, k) + (byte(c, k) & 1)) >> 1 << (8 * k)
        })
    };
    VSadHiU8 3 |a, b, c| (sad::<false>(a, b, 0) << 16).wrapping_add(c);
    VSadU16 3 |a, b, c| {
        let at = |v: u32, k: u32| v >> k & 0xffff;
        c.wrapping_add(at(a, 0).abs_diff(at(b, 0))).wrapping_add(at(a, 16).abs_diff(at(b, 16)))
    };
    VMsadU8 3 |a, b, c| sad::<true>(a, b, c);
    VCvtPkU8F32 3 |a, b, c| {
        let shift = 8 * (b & 3);
        c & !(0xff << shift) | u32::from(f(a) as u8) << shift
    };
    VCubeidF32 3 |a, b, c| {
        let (axis, back) = face(a, b, c);
        ((2 * axis + u32::from(back)) as f32).to_bits()
    };
    VCubescF32 3 |a, b, c| match face(a, b, c) {
        (2, back) => if back { a ^ SIGN } else { a },
        (1, _) => a,
        (_, back) => if back { c } else { c ^ SIGN },
    };
    VCubetcF32 3 |a, b, c| match face(a, b, c) {
        (1, back) => if back { c ^ SIGN } else { c },
        _ => b ^ SIGN,
    };
    VCubemaF32 3 |a, b, c| {
        let major = [a, b, c][face(a, b, c).0 as usize];
        num(f(major) * 2.0)
    };
    VMullitF32 3 |a, b, c| {
        let (y, z) = (f(b), f(c));
        let floor = y == -f32::MAX || y == f32::NEG_INFINITY || y.is_nan() || z <= 0.0 || z.is_nan();
        if floor { (-f32::MAX).to_bits() } else { num(f(a) * y) }
    };
}

/// Four sums of absolute differences at byte offsets 0..4 of the 64-bit source.
fn quads<const MASKED: bool>(a: u64, b: u64, c: u64) -> u64 {
    (0..4).fold(0, |out, k| {
        let start = (c >> (16 * k)) as u32 & 0xffff;
        let sum = sad::<MASKED>((a >> (8 * k)) as u32, b as u32, start);
        out | u64::from(sum & 0xffff) << (16 * k)
    })
}

struct Qsad;
struct Mqsad;
struct TrigPreop;

impl Lane64 for Qsad {
    const N: usize = 3;
    const WIDE: [bool; 3] = [true, false, true];
    const RESULT: bool = true;
    fn lane<L: Level>(a: u64, b: u64, c: u64, _ieee: bool) -> u64 {
        quads::<false>(a, b, c)
    }
}

impl Lane64 for Mqsad {
    const N: usize = 3;
    const WIDE: [bool; 3] = [true, false, true];
    const RESULT: bool = true;
    fn lane<L: Level>(a: u64, b: u64, c: u64, _ieee: bool) -> u64 {
        quads::<true>(a, b, c)
    }
}

/// The first 1,216 bits of 2/pi after the point; the instruction knows 1,201 of them.
const TWO_OVER_PI: [u64; 19] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
    0x5603_3046_fc7b_0000,
];

/// 53 bits of 2/pi from `shift` bits after the point on.
fn two_over_pi(shift: u32) -> u64 {
    let (word, bit) = ((shift / 64) as usize, shift % 64);
    let at = |k: usize| u128::from(TWO_OVER_PI.get(k).copied().unwrap_or(0));
    let window = at(word) << 64 | at(word + 1);
    (window << bit >> (128 - 53)) as u64 & ((1 << 53) - 1)
}

impl Lane64 for TrigPreop {
    const N: usize = 2;
    const WIDE: [bool; 3] = [true, false, false];
    const RESULT: bool = true;
    fn lane<L: Level>(a: u64, b: u64, _c: u64, _ieee: bool) -> u64 {
        let exponent = (a >> 52 & 0x7ff) as u32;
        let shift = 53 * (b as u32 & 31) + exponent.saturating_sub(1077);
        let back = if exponent >= 1968 { 128 } else { 0 };
        ldexp64(two_over_pi(shift) as f64, back - 53 - shift as i32).to_bits()
    }
}

/// Four masked sums in four registers.
struct MqsadWide;

impl Exec for MqsadWide {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let a = lanes64(w, x, u.a, true);
        let b = lanes64(w, x, u.b, false);
        let mut rows = [[0; 32]; 4];
        for (k, row) in rows.iter_mut().enumerate() {
            let mut room = [0; 32];
            let src = super::uop::Src(u.c.0 + k as u16);
            let c = w.lanes(x, src, &mut room);
            for i in 0..32 {
                row[i] = sad::<true>((a[i] >> (8 * k)) as u32, b[i] as u32, c[i]);
            }
        }
        for (k, row) in rows.iter().enumerate() {
            w.put(u.dst + k as u16, row);
        }
        Flow::NEXT
    }
}

/// The handler of an operation with 64-bit sources.
pub(super) fn wide(op: Op, speed: Speed) -> Option<Handler> {
    Some(match op {
        Op::VQsadPkU16U8 => handler::<Vector64<Qsad>>(speed),
        Op::VMqsadPkU16U8 => handler::<Vector64<Mqsad>>(speed),
        Op::VMqsadU32U8 => handler::<MqsadWide>(speed),
        Op::VTrigPreopF64 => handler::<Vector64<TrigPreop>>(speed),
        _ => return None,
    })
}
