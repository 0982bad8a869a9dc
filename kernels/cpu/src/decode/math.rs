//! The exact arithmetic of `kernels/hip/refrain.hpp`, operation by operation, so that the bits are
//! those of the GPU kernels. Accuracy and ranges: docs/measurements/exact-math.md.

/// 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, which the sum's low bits hold.
const ROUND_BITS: u32 = 0x4B40_0000;
const ROUND: f32 = f32::from_bits(ROUND_BITS);

const fn constant(bits: u32) -> f32 {
    f32::from_bits(bits)
}

#[inline(always)]
fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// e^x.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = fma(x, constant(0x3FB8_AA3B), ROUND);
    let n = shifted.to_bits().wrapping_sub(ROUND_BITS).cast_signed();
    let whole = shifted - ROUND;
    let r = fma(whole, constant(0xBF31_7200), x);
    let r = fma(whole, constant(0xB5BF_BE8E), r);
    let mut p = constant(0x3950_0D01); // 1/5040
    p = fma(p, r, constant(0x3AB6_0B61)); // 1/720
    p = fma(p, r, constant(0x3C08_8889)); // 1/120
    p = fma(p, r, constant(0x3D2A_AAAB)); // 1/24
    p = fma(p, r, constant(0x3E2A_AAAB)); // 1/6
    p = fma(p, r, 0.5);
    p = fma(p * r, r, r);
    p += 1.0;
    let low = n >> 1;
    let high = n.wrapping_sub(low);
    let power = |e: i32| f32::from_bits(e.wrapping_add(127).cast_unsigned() << 23);
    p *= power(low);
    p * power(high)
}

/// 1/x for 2^-125 <= |x| <= 2^125.
#[inline(always)]
pub(super) fn rcp(x: f32) -> f32 {
    let sign = x.to_bits() & 0x8000_0000;
    let a = f32::from_bits(x.to_bits() ^ sign);
    let mut y = f32::from_bits(0x7EF3_11C7u32.wrapping_sub(a.to_bits()));
    for _ in 0..4 {
        y = fma(y, fma(-a, y, 1.0), y);
    }
    f32::from_bits(y.to_bits() ^ sign)
}

/// a/b.
#[inline(always)]
pub(super) fn div(a: f32, b: f32) -> f32 {
    let y = rcp(b);
    let q = a * y;
    fma(fma(-b, q, a), y, q)
}

/// 1/sqrt(x) for normal x > 0.
#[inline(always)]
pub(super) fn rsqrt(x: f32) -> f32 {
    let mut y = f32::from_bits(0x5F37_59DFu32.wrapping_sub(x.to_bits() >> 1));
    let h = 0.5 * x;
    for _ in 0..3 {
        y *= fma(-(h * y), y, 1.5);
    }
    let t = x * y;
    let t_low = fma(x, y, -t);
    let e = fma(-t, y, 1.0);
    let e = fma(-t_low, y, e);
    fma(0.5 * y, e, y)
}

/// 1 / (1 + exp(-z)).
#[inline(always)]
pub(super) fn sigmoid(z: f32) -> f32 {
    let e = exp(-f32::from_bits(z.to_bits() & 0x7FFF_FFFF));
    let inverse = rcp(1.0 + e);
    if z < 0.0 { e * inverse } else { inverse }
}

/// z * sigmoid(z).
#[inline(always)]
pub(super) fn silu(z: f32) -> f32 {
    z * sigmoid(z)
}

/// log(1 + e^z).
#[inline(always)]
pub(super) fn softplus(z: f32) -> f32 {
    let e = exp(-f32::from_bits(z.to_bits() & 0x7FFF_FFFF));
    let s = div(e, 2.0 + e);
    let x = s * s;
    let mut p = constant(0x3E08_8889); // 2/15
    p = fma(p, x, constant(0x3E1D_89D9)); // 2/13
    p = fma(p, x, constant(0x3E3A_2E8C)); // 2/11
    p = fma(p, x, constant(0x3E63_8E39)); // 2/9
    p = fma(p, x, constant(0x3E92_4925)); // 2/7
    p = fma(p, x, constant(0x3ECC_CCCD)); // 2/5
    p = fma(p, x, constant(0x3F2A_AAAB)); // 2/3
    let log1p = fma(p, s * x, 2.0 * s);
    (if z > 0.0 { z } else { 0.0 }) + log1p
}

/// Sine and cosine of 2 pi t, t in turns, |t| <= 2^20.
#[inline(always)]
pub(super) fn sincos_turns(t: f32) -> (f32, f32) {
    let shifted = fma(t, 4.0, ROUND);
    let quarter = shifted.to_bits() & 3;
    let f = fma(shifted - ROUND, -0.25, t);
    let y = f * constant(0x40C9_0FDB); // 2 pi
    let z = y * y;
    let mut s = constant(0x3638_EF1D); // 1/9!
    s = fma(s, z, constant(0xB950_0D01)); // -1/7!
    s = fma(s, z, constant(0x3C08_8889)); // 1/5!
    s = fma(s, z, constant(0xBE2A_AAAB)); // -1/3!
    s = fma(s * z, y, y);
    let mut c = constant(0xB493_F27E); // -1/10!
    c = fma(c, z, constant(0x37D0_0D01)); // 1/8!
    c = fma(c, z, constant(0xBAB6_0B61)); // -1/6!
    c = fma(c, z, constant(0x3D2A_AAAB)); // 1/4!
    c = fma(c, z, -0.5);
    c = fma(c, z, 1.0);
    let odd = quarter & 1 != 0;
    let (a, b) = if odd { (c, s) } else { (s, c) };
    (
        f32::from_bits(a.to_bits() ^ (quarter & 2) << 30),
        f32::from_bits(b.to_bits() ^ ((quarter + 1) & 2) << 30),
    )
}

/// The angle position * (hi + lo) turns, less its nearest integer.
#[inline(always)]
pub(super) fn turns(position: u32, (hi, lo): (f32, f32)) -> f32 {
    let p = position as f32;
    let whole = p * hi;
    let rest = fma(p, hi, -whole);
    whole - whole.round_ties_even() + fma(p, lo, rest)
}

/// Sum over 16 or 32 lanes as every lane gets it: halves added pairwise down to one.
#[inline(always)]
pub(super) fn sum_lanes<const N: usize>(mut lanes: [f32; N]) -> f32 {
    let mut step = N / 2;
    while step > 0 {
        for lane in 0..step {
            lanes[lane] += lanes[lane + step];
        }
        step /= 2;
    }
    lanes[0]
}

/// The larger; `b` where they are not comparable.
#[inline(always)]
pub(super) fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Maximum over 32 lanes, in the order of the kernels (it matters for not-a-numbers).
#[inline(always)]
pub(super) fn max_lanes(mut lanes: [f32; 32]) -> f32 {
    for step in [16, 8, 4, 2, 1] {
        for lane in 0..step {
            lanes[lane] = larger(lanes[lane], lanes[lane + step]);
        }
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::{div, exp, rcp, rsqrt, sigmoid, sincos_turns, softplus, turns};

    /// Constants were copied as bits: a wrong one shows as an error far above rounding.
    #[test]
    fn functions_are_close_to_the_libraries() {
        let mut x = -80.0f32;
        while x < 80.0 {
            let close = |got: f32, want: f64| {
                let error = (f64::from(got) - want).abs() / want.abs().max(1e-30);
                assert!(error < 4e-7, "{x}: {got} {want}");
            };
            let wide = f64::from(x);
            close(exp(x), wide.exp());
            close(sigmoid(x), 1.0 / (1.0 + (-wide).exp()));
            if x > -15.0 {
                close(softplus(x), wide.exp().ln_1p());
            }
            close(rcp(x + 0.01), 1.0 / f64::from(x + 0.01));
            close(div(3.0, x + 0.01), 3.0 / f64::from(x + 0.01));
            close(
                rsqrt(x.abs() + 0.01),
                1.0 / f64::from(x.abs() + 0.01).sqrt(),
            );
            let (sin, cos) = sincos_turns(x);
            let angle = wide * std::f64::consts::TAU;
            assert!((f64::from(sin) - angle.sin()).abs() < 1e-6, "{x}");
            assert!((f64::from(cos) - angle.cos()).abs() < 1e-6, "{x}");
            x += 0.37;
        }
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(200.0), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert!(turns(3, (0.25, 0.0)).abs() <= 0.5);
    }
}
