//! 8-bit floats of gfx12: fp8 (4 exponent bits, no infinity) and bf8 (5 exponent bits), the formats of
//! the Open Compute Project.

use super::context::Ctx;
use super::float::{f, num};
use super::lanes::lanes64;
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{MODE_FP16_OVFL, Wave};
use crate::isa::op::Op;

/// An 8-bit format.
#[derive(Clone, Copy)]
struct Format {
    mantissa: u32,
    bias: i32,
    /// Largest finite magnitude.
    largest: u32,
    /// What larger values become, unless they saturate.
    beyond: u32,
    nan: u32,
}

const FP8: Format = Format {
    mantissa: 3,
    bias: 7,
    largest: 0x7e,
    beyond: 0x7f,
    nan: 0x7f,
};
const BF8: Format = Format {
    mantissa: 2,
    bias: 15,
    largest: 0x7b,
    beyond: 0x7c,
    nan: 0x7f,
};

const FORMATS: [Format; 2] = [FP8, BF8];

/// An 8-bit float as single.
fn widen(format: Format, bits: u32) -> f32 {
    let magnitude = bits & 0x7f;
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    if magnitude > format.beyond || magnitude == format.nan {
        return f32::NAN;
    }
    if magnitude > format.largest {
        return sign * f32::INFINITY;
    }
    let field = (magnitude >> format.mantissa) as i32;
    let fraction = magnitude & ((1 << format.mantissa) - 1);
    let implicit = if field == 0 { 0 } else { 1 << format.mantissa };
    let exponent = field.max(1) - format.bias - format.mantissa as i32;
    sign * (fraction | implicit) as f32 * (exponent as f32).exp2()
}

/// A single as 8-bit float, to nearest even; values beyond the largest saturate on demand.
fn narrow(format: Format, x: u32, saturate: bool) -> u32 {
    let sign = x >> 24 & 0x80;
    let v = f(x).abs();
    if v.is_nan() {
        return sign | format.nan;
    }
    if v.is_infinite() {
        return sign | format.beyond;
    }
    // In units of the last place of the result's binade, exactly.
    let exponent = ((x >> 23 & 0xff) as i32 - 127).max(1 - format.bias);
    let unit = exponent - format.mantissa as i32;
    let units = (f64::from(v) * f64::from(-unit).exp2()).round_ties_even() as u32;
    let steps = (exponent + format.bias - 1) as u32;
    let magnitude = units.saturating_add(steps << format.mantissa);
    let over = if saturate {
        format.largest
    } else {
        format.beyond
    };
    sign | if magnitude > format.largest {
        over
    } else {
        magnitude
    }
}

/// One byte, picked by the two bits of op_sel in `ext`, as single.
struct Widen<const FORMAT: usize>;

impl<const FORMAT: usize> Exec for Widen<FORMAT> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        // The two bits of the byte number are swapped (RDNA4 ISA, v_cvt_f32_fp8).
        let byte = (u.ext >> 1 & 1) | (u.ext & 1) << 1;
        let mut room = [0; 32];
        let out = w
            .lanes(x, u.a, &mut room)
            .map(|v| num(widen(FORMATS[FORMAT], v >> (8 * byte) & 0xff)));
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Two bytes as two singles.
struct WidenTwo<const FORMAT: usize>;

impl<const FORMAT: usize> Exec for WidenTwo<FORMAT> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let from = *w.lanes(x, u.a, &mut room);
        w.put(u.dst, &from.map(|v| num(widen(FORMATS[FORMAT], v & 0xff))));
        let high = from.map(|v| num(widen(FORMATS[FORMAT], v >> 8 & 0xff)));
        w.put(u.dst + 1, &high);
        Flow::NEXT
    }
}

/// Two singles as two bytes in the low half.
struct NarrowTwo<const FORMAT: usize>;

impl<const FORMAT: usize> Exec for NarrowTwo<FORMAT> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let saturate = w.mode & MODE_FP16_OVFL != 0;
        let (a, b) = (lanes64(w, x, u.a, false), lanes64(w, x, u.b, false));
        let mut out = w.v[usize::from(u.dst & 511)];
        for (i, lane) in out.iter_mut().enumerate() {
            let part = |v: u64| narrow(FORMATS[FORMAT], v as u32, saturate);
            *lane = *lane & 0xffff_0000 | part(a[i]) | part(b[i]) << 8;
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// A single as one byte, the one that bits [3:2] of op_sel in `ext` name, after random bits were
/// added to its mantissa (RDNA4 ISA, v_cvt_sr_fp8_f32).
struct Stochastic<const FORMAT: usize>;

impl<const FORMAT: usize> Exec for Stochastic<FORMAT> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let saturate = w.mode & MODE_FP16_OVFL != 0;
        let shift = 8 * u32::from(u.ext >> 2 & 3);
        let dropped = if FORMAT == 0 { 12 } else { 11 };
        let (a, b) = (lanes64(w, x, u.a, false), lanes64(w, x, u.b, false));
        let mut out = w.v[usize::from(u.dst & 511)];
        for (i, lane) in out.iter_mut().enumerate() {
            let (value, random) = (a[i] as u32, b[i] as u32 >> dropped);
            let mantissa = value.wrapping_add(random) & 0x7f_ffff;
            let byte = narrow(FORMATS[FORMAT], value & 0xff80_0000 | mantissa, saturate);
            *lane = *lane & !(0xff << shift) | byte << shift;
        }
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// Four byte products added to a single, in order.
struct Dot<const A: usize, const B: usize>;

impl<const A: usize, const B: usize> Exec for Dot<A, B> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (a, b) = (lanes64(w, x, u.a, false), lanes64(w, x, u.b, false));
        let c = lanes64(w, x, u.c, false);
        let out = std::array::from_fn(|i| {
            let sum = (0..4).fold(f(c[i] as u32), |sum, k| {
                let at = |v: u64| (v >> (8 * k)) as u32 & 0xff;
                sum + widen(FORMATS[A], at(a[i])) * widen(FORMATS[B], at(b[i]))
            });
            num(sum)
        });
        w.put(u.dst, &out);
        Flow::NEXT
    }
}

/// The handler of an operation on 8-bit floats.
pub(super) fn find(op: Op, speed: Speed) -> Option<Handler> {
    Some(match op {
        Op::VCvtF32Fp8 => handler::<Widen<0>>(speed),
        Op::VCvtF32Bf8 => handler::<Widen<1>>(speed),
        Op::VCvtPkF32Fp8 => handler::<WidenTwo<0>>(speed),
        Op::VCvtPkF32Bf8 => handler::<WidenTwo<1>>(speed),
        Op::VCvtPkFp8F32 => handler::<NarrowTwo<0>>(speed),
        Op::VCvtPkBf8F32 => handler::<NarrowTwo<1>>(speed),
        Op::VCvtSrFp8F32 => handler::<Stochastic<0>>(speed),
        Op::VCvtSrBf8F32 => handler::<Stochastic<1>>(speed),
        Op::VDot4F32Fp8Fp8 => handler::<Dot<0, 0>>(speed),
        Op::VDot4F32Fp8Bf8 => handler::<Dot<0, 1>>(speed),
        Op::VDot4F32Bf8Fp8 => handler::<Dot<1, 0>>(speed),
        Op::VDot4F32Bf8Bf8 => handler::<Dot<1, 1>>(speed),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{BF8, FORMATS, FP8, narrow, widen};

    #[test]
    fn every_byte_survives_the_way_to_single_and_back() {
        for format in FORMATS {
            for bits in 0..256 {
                let value = widen(format, bits);
                let back = narrow(format, value.to_bits(), false);
                assert!(value.is_nan() || back == bits, "{bits:x} {value} {back:x}");
            }
        }
        assert_eq!(widen(FP8, 0x7e), 448.0);
        assert_eq!(widen(FP8, 0x01), 1.0 / 512.0);
        assert_eq!(widen(BF8, 0x7b), 57344.0);
        assert_eq!(widen(BF8, 0x7c), f32::INFINITY);
    }

    #[test]
    fn values_round_to_nearest_even_and_overflow_as_asked() {
        let at = |format, x: f32, saturate| narrow(format, x.to_bits(), saturate);
        for (x, fp8, bf8) in [
            (1.0, 0x38, 0x3c),
            (1.0625, 0x38, 0x3c),
            (1.1875, 0x3a, 0x3d),
            (-0.0, 0x80, 0x80),
            (464.0, 0x7e, 0x5f),
            (1.0e-9, 0, 0),
        ] {
            assert_eq!((at(FP8, x, false), at(BF8, x, false)), (fp8, bf8), "{x}");
        }
        assert_eq!(at(FP8, 1.0e6, false), 0x7f);
        assert_eq!(at(FP8, -1.0e6, true), 0xfe);
        assert_eq!(at(BF8, 1.0e6, false), 0x7c);
        assert_eq!(at(BF8, 1.0e6, true), 0x7b);
        assert_eq!(at(BF8, f32::INFINITY, true), 0x7c);
    }
}
