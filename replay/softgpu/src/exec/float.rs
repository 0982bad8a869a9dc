//! Scalar floating point, written so that every CPU and every speed gives the same bits.
//!
//! Results that are NaN become the canonical quiet NaN 0x7fc00000: payloads differ between host
//! CPUs and are not a card's. Transcendental functions are computed in double precision and rounded
//! once; AMD documents 1 ulp for them, so their last bit need not be a card's.

/// The canonical quiet NaN.
pub(crate) const NAN: u32 = 0x7fc0_0000;
const NAN64: u64 = 0x7ff8_0000_0000_0000;

/// Bits as f32.
#[inline(always)]
pub(crate) fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// Bits of an arithmetic result.
#[inline(always)]
pub(crate) fn num(x: f32) -> u32 {
    if x.is_nan() { NAN } else { x.to_bits() }
}

/// Bits as f64.
#[inline(always)]
pub(crate) fn d(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// Bits of an arithmetic result.
#[inline(always)]
pub(crate) fn num64(x: f64) -> u64 {
    if x.is_nan() { NAN64 } else { x.to_bits() }
}

/// `a * b + c`, rounded once, without a hardware FMA. The product is exact in f64; the sum is
/// rounded to odd there, which makes the second rounding innocuous (53 >= 24 + 2 bits).
#[inline(always)]
pub(crate) fn soft_fma(a: f32, b: f32, c: f32) -> f32 {
    let p = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let sum = p + c;
    let part = sum - p;
    let error = (p - (sum - part)) + (c - part);
    let bits = sum.to_bits();
    let inexact_even = sum.is_finite() && error != 0.0 && bits & 1 == 0;
    let away = (error > 0.0) == (sum > 0.0);
    let step = if away { 1 } else { u64::MAX };
    let odd = if inexact_even {
        bits.wrapping_add(step)
    } else {
        bits
    };
    f64::from_bits(odd) as f32
}

/// Half to single, exact; a signalling NaN becomes quiet.
#[inline(always)]
pub(crate) fn half_to_single(half: u32) -> u32 {
    let sign = (half & 0x8000) << 16;
    let magnitude = (half & 0x7fff) << 13;
    // Multiplying by 2^112 rebiases the exponent and normalises denormals.
    let scaled = (f(magnitude) * f(0x7780_0000)).to_bits();
    let special = if magnitude >= 0x0f80_0000 {
        0x7f80_0000
    } else {
        0
    };
    let quiet = if magnitude > 0x0f80_0000 {
        0x0040_0000
    } else {
        0
    };
    sign | scaled | special | quiet
}

/// Single to half, to nearest even.
#[inline(always)]
pub(crate) fn single_to_half(x: u32) -> u32 {
    let sign = (x >> 16) & 0x8000;
    let a = x & 0x7fff_ffff;
    let normal = (a
        .wrapping_add(0xfff + ((a >> 13) & 1))
        .wrapping_sub(0x3800_0000))
        >> 13;
    // 0.5 has the ulp of a half denormal, so adding it rounds there.
    let tiny = (f(a) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let magnitude = if a > 0x7f80_0000 {
        0x7e00
    } else if a >= 0x477f_f000 {
        0x7c00
    } else if a < 0x3880_0000 {
        tiny
    } else {
        normal
    };
    sign | magnitude
}

/// Single to half, toward zero.
#[inline(always)]
pub(crate) fn single_to_half_rtz(x: u32) -> u32 {
    let sign = (x >> 16) & 0x8000;
    let a = x & 0x7fff_ffff;
    let magnitude = if a > 0x7f80_0000 {
        0x7e00
    } else if a == 0x7f80_0000 {
        0x7c00
    } else if a >= 0x4780_0000 {
        0x7bff
    } else if a < 0x3880_0000 {
        (f(a) * 16_777_216.0) as u32
    } else {
        (a - 0x3800_0000) >> 13
    };
    sign | magnitude
}

/// A half result: NaN becomes canonical.
#[inline(always)]
pub(crate) fn half_num(x: f32) -> u32 {
    single_to_half(num(x)) & 0xffff
}

/// Half as f32 value.
#[inline(always)]
pub(crate) fn h(bits: u32) -> f32 {
    f(half_to_single(bits & 0xffff))
}

/// bfloat16 as f32 value.
#[inline(always)]
pub(crate) fn bf16(bits: u32) -> f32 {
    f(bits << 16)
}

/// A bfloat16 result, to nearest even.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u32 {
    let bits = num(x);
    if x.is_nan() {
        return bits >> 16;
    }
    (bits + 0x7fff + (bits >> 16 & 1)) >> 16
}

/// How the smaller or larger of two halves is picked; as for singles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A NaN loses (`max_num`).
    Num,
    /// A NaN loses, a signalling one wins (gfx11 in IEEE mode).
    Ieee,
    /// A NaN wins (`maximum`).
    Wins,
}

/// The larger (`LARGER`) or smaller of two halves; +0 is larger than -0.
#[inline(always)]
pub(crate) fn half_extreme<const LARGER: bool>(a: u32, b: u32, rule: Rule) -> u32 {
    const QUIET: u32 = 0x200;
    let (a, b) = (a & 0xffff, b & 0xffff);
    let nan = |v: u32| v & 0x7fff > 0x7c00;
    let signalling = |v: u32| nan(v) && v & QUIET == 0;
    if nan(a) || nan(b) {
        let wins = match rule {
            Rule::Num => false,
            Rule::Ieee => signalling(a) || signalling(b),
            Rule::Wins => true,
        };
        let first = if wins {
            signalling(a) || (nan(a) && !signalling(b))
        } else {
            nan(b)
        };
        let chosen = if first { a } else { b };
        return if nan(chosen) { chosen | QUIET } else { chosen };
    }
    let zeros = (a | b) & 0x7fff == 0;
    let less = h(a) < h(b) || (zeros && a > b);
    if less == LARGER { b } else { a }
}

/// Median of halves by the ISA's rule: with a NaN the minimum of all three.
pub(crate) fn half_median(a: u32, b: u32, c: u32, rule: Rule) -> u32 {
    let nan = |v: u32| v & 0x7fff > 0x7c00;
    let max = |x, y| half_extreme::<true>(x, y, rule);
    let min = |x, y| half_extreme::<false>(x, y, rule);
    if nan(a) || nan(b) || nan(c) {
        return min(min(a, b), c);
    }
    let top = h(max(max(a, b), c));
    if top == h(a) {
        max(b, c)
    } else if top == h(b) {
        max(a, c)
    } else {
        max(a, b)
    }
}

/// IEEE 754-2019 `maximum` or `minimum` of doubles: a NaN wins.
pub(crate) fn wins64(a: u64, b: u64, larger: bool) -> u64 {
    const QUIET: u64 = 1 << 51;
    let signalling = |v: u64| d(v).is_nan() && v & QUIET == 0;
    match (d(a).is_nan(), d(b).is_nan()) {
        (false, false) if larger => max64(a, b, false),
        (false, false) => min64(a, b, false),
        (true, _) if signalling(a) || !signalling(b) => a | QUIET,
        _ => b | QUIET,
    }
}

/// `v_div_fixup_f16`: special cases of the quotient s2/s1 whose value is s0.
pub(crate) fn half_div_fixup(s0: u32, s1: u32, s2: u32) -> u32 {
    const INF: u32 = 0x7c00;
    let sign = (s1 ^ s2) & 0x8000;
    let (a1, a2) = (s1 & 0x7fff, s2 & 0x7fff);
    match (a1, a2) {
        _ if a1 > INF || a2 > INF => 0x7e00,
        (0, 0) | (INF, INF) => 0xfe00,
        (0, _) | (_, INF) => sign | INF,
        (INF, _) | (_, 0) => sign,
        _ => sign | s0 & 0x7fff,
    }
}

/// A value clamped to [-1, 1] or [0, 1] as a 16-bit fraction of `scale`, to nearest even.
pub(crate) fn normalised(x: f32, low: f32, scale: f32) -> u32 {
    if x.is_nan() {
        return 0;
    }
    // The product has at most 40 bits, so it is exact before it is rounded.
    let product = f64::from(x.clamp(low, 1.0)) * f64::from(scale);
    (product.round_ties_even() as i32) as u32 & 0xffff
}

#[inline(always)]
fn is_nan(x: u32) -> bool {
    x & 0x7fff_ffff > 0x7f80_0000
}

#[inline(always)]
fn is_signalling(x: u32) -> bool {
    is_nan(x) && x & 0x0040_0000 == 0
}

/// Maximum of AMD's non-IEEE mode and of gfx12's `max_num`: a NaN loses, +0 beats -0.
#[inline(always)]
pub(crate) fn max_num(a: u32, b: u32) -> u32 {
    let (x, y) = (f(a), f(b));
    let first = x > y || (x == y && b >> 31 == 1);
    let chosen = if first { a } else { b };
    let chosen = if is_nan(b) { a } else { chosen };
    let chosen = if is_nan(a) { b } else { chosen };
    if is_nan(a) && is_nan(b) {
        a | 0x0040_0000
    } else {
        chosen
    }
}

/// Minimum, as [`max_num`]; -0 beats +0.
#[inline(always)]
pub(crate) fn min_num(a: u32, b: u32) -> u32 {
    let (x, y) = (f(a), f(b));
    let first = x < y || (x == y && a >> 31 == 1);
    let chosen = if first { a } else { b };
    let chosen = if is_nan(b) { a } else { chosen };
    let chosen = if is_nan(a) { b } else { chosen };
    if is_nan(a) && is_nan(b) {
        a | 0x0040_0000
    } else {
        chosen
    }
}

/// Maximum of gfx11 in IEEE mode: as [`max_num`], but a signalling NaN wins and becomes quiet.
#[inline(always)]
pub(crate) fn max_ieee(a: u32, b: u32) -> u32 {
    let chosen = max_num(a, b);
    let chosen = if is_signalling(b) {
        b | 0x0040_0000
    } else {
        chosen
    };
    if is_signalling(a) {
        a | 0x0040_0000
    } else {
        chosen
    }
}

/// Minimum, as [`max_ieee`].
#[inline(always)]
pub(crate) fn min_ieee(a: u32, b: u32) -> u32 {
    let chosen = min_num(a, b);
    let chosen = if is_signalling(b) {
        b | 0x0040_0000
    } else {
        chosen
    };
    if is_signalling(a) {
        a | 0x0040_0000
    } else {
        chosen
    }
}

/// IEEE 754-2019 `maximum` of gfx12: a NaN wins.
#[inline(always)]
pub(crate) fn maximum(a: u32, b: u32) -> u32 {
    let quiet = 0x0040_0000;
    match (is_nan(a), is_nan(b)) {
        (false, false) => max_num(a, b),
        (_, true) if is_signalling(b) && !is_signalling(a) => b | quiet,
        (true, _) => a | quiet,
        (false, true) => b | quiet,
    }
}

/// IEEE 754-2019 `minimum` of gfx12: a NaN wins.
#[inline(always)]
pub(crate) fn minimum(a: u32, b: u32) -> u32 {
    let quiet = 0x0040_0000;
    match (is_nan(a), is_nan(b)) {
        (false, false) => min_num(a, b),
        (_, true) if is_signalling(b) && !is_signalling(a) => b | quiet,
        (true, _) => a | quiet,
        (false, true) => b | quiet,
    }
}

/// Median by the ISA's rule: with a NaN the minimum of all three.
#[inline(always)]
pub(crate) fn median(
    a: u32,
    b: u32,
    c: u32,
    max: impl Fn(u32, u32) -> u32,
    min: impl Fn(u32, u32) -> u32,
) -> u32 {
    if is_nan(a) || is_nan(b) || is_nan(c) {
        return min(min(a, b), c);
    }
    let top = f(max(max(a, b), c));
    if top == f(a) {
        max(b, c)
    } else if top == f(b) {
        max(a, c)
    } else {
        max(a, b)
    }
}

/// Maximum of doubles; `ieee` lets a signalling NaN win (gfx11).
#[inline(always)]
pub(crate) fn max64(a: u64, b: u64, ieee: bool) -> u64 {
    pick64(a, b, ieee, d(a) > d(b) || (d(a) == d(b) && b >> 63 == 1))
}

/// Minimum of doubles, as [`max64`].
#[inline(always)]
pub(crate) fn min64(a: u64, b: u64, ieee: bool) -> u64 {
    pick64(a, b, ieee, d(a) < d(b) || (d(a) == d(b) && a >> 63 == 1))
}

#[inline(always)]
fn pick64(a: u64, b: u64, ieee: bool, first: bool) -> u64 {
    const QUIET: u64 = 1 << 51;
    let (na, nb) = (d(a).is_nan(), d(b).is_nan());
    if ieee && na && a & QUIET == 0 {
        return a | QUIET;
    }
    if ieee && nb && b & QUIET == 0 {
        return b | QUIET;
    }
    match (na, nb) {
        (true, true) => a | QUIET,
        (true, false) => b,
        (false, true) => a,
        (false, false) if first => a,
        _ => b,
    }
}

/// Denormals of transcendental inputs and results are flushed, keeping the sign (LLVM treats
/// v_rcp, v_rsq, v_sqrt, v_exp and v_log as not supporting denormals).
#[inline(always)]
pub(crate) fn flush(x: u32) -> u32 {
    if x & 0x7f80_0000 == 0 {
        x & 0x8000_0000
    } else {
        x
    }
}

/// `1 / x`.
#[inline(always)]
pub(crate) fn rcp(x: u32) -> u32 {
    flush(num(1.0 / f(flush(x))))
}

/// `1 / sqrt(x)`.
#[inline(always)]
pub(crate) fn rsq(x: u32) -> u32 {
    num((1.0 / f64::from(f(flush(x))).sqrt()) as f32)
}

/// Square root.
#[inline(always)]
pub(crate) fn sqrt(x: u32) -> u32 {
    num(f(flush(x)).sqrt())
}

/// 2 to the x.
#[inline(always)]
pub(crate) fn exp2(x: u32) -> u32 {
    let v = f64::from(f(flush(x)));
    let clamped = if v > 200.0 { 200.0 } else { v };
    let clamped = if clamped < -200.0 { -200.0 } else { clamped };
    // Adding 1.5 * 2^52 rounds to an integer that sits in the low mantissa bits.
    let shifted = clamped + 6_755_399_441_055_744.0;
    let n = shifted - 6_755_399_441_055_744.0;
    let t = (clamped - n) * std::f64::consts::LN_2;
    // Taylor series; |t| <= 0.3466, so the term of degree 13 is below 2^-52.
    const C: [f64; 14] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let mut p = C[0];
    let mut k = 1;
    while k < 14 {
        p = p * t + C[k];
        k += 1;
    }
    let scale = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    let result = flush(num((p * scale) as f32));
    if is_nan(x) { NAN } else { result }
}

/// Logarithm to base 2.
#[inline(always)]
pub(crate) fn log2(x: u32) -> u32 {
    let x = flush(x);
    let v = f64::from(f(x));
    let bits = v.to_bits();
    // Mantissa in [sqrt(1/2), sqrt(2)).
    let shift = bits.wrapping_sub(0x3fe6_a09e_667f_3bcd);
    let n = (shift as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((n as u64) << 52));
    let s = (m - 1.0) / (m + 1.0);
    let s2 = s * s;
    let mut p = 1.0 / 23.0;
    for k in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        p = p * s2 + 1.0 / k;
    }
    let value = n as f64 + 2.0 * s * p * std::f64::consts::LOG2_E;
    match x {
        _ if is_nan(x) => NAN,
        0x7f80_0000 => x,
        _ if x << 1 == 0 => 0xff80_0000,
        _ if x >> 31 == 1 => NAN,
        _ => num(value as f32),
    }
}

/// Sine of `x` revolutions; inputs beyond 256 revolutions give 0 (RDNA ISA, v_sin_f32 range).
pub(crate) fn sin(x: u32) -> u32 {
    turn(x, 0.0, 0.0)
}

/// Cosine of `x` revolutions; inputs beyond 256 revolutions give 1.
pub(crate) fn cos(x: u32) -> u32 {
    turn(x, 0.25, 1.0)
}

/// `sin(2 pi (x + quarter))`.
fn turn(x: u32, quarter: f64, beyond: f32) -> u32 {
    let v = f64::from(f(flush(x)));
    if !v.is_finite() {
        return NAN;
    }
    if v.abs() > 256.0 {
        return beyond.to_bits();
    }
    let r = v + quarter;
    let r = r - r.round_ties_even();
    // Fold into [-1/4, 1/4], where sine is monotonic.
    let r = if r > 0.25 {
        0.5 - r
    } else if r < -0.25 {
        -0.5 - r
    } else {
        r
    };
    let t = r * std::f64::consts::TAU;
    let t2 = t * t;
    let mut p = 1.0;
    for k in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        p = 1.0 - t2 / (k * (k - 1.0)) * p;
    }
    flush(num((t * p) as f32))
}

/// Fraction: `x - floor(x)`, below 1 (RDNA ISA: v_fract_f32).
#[inline(always)]
pub(crate) fn fract(x: u32) -> u32 {
    let v = f(x);
    let r = v - v.floor();
    // For tiny negative x the difference rounds to 1; hardware returns the largest value below.
    num(if r >= 1.0 { f(0x3f7f_ffff) } else { r })
}

/// `x * 2^n`, rounded once.
#[inline(always)]
pub(crate) fn ldexp(x: f32, n: i32) -> f32 {
    let n = n.clamp(-400, 400);
    // Exact in f64: 24 mantissa bits and exponents of at most 550.
    let scale = f64::from_bits(((1023 + n) as u64) << 52);
    (f64::from(x) * scale) as f32
}

/// `x * 2^n` in double, rounded once.
pub(crate) fn ldexp64(x: f64, n: i32) -> f64 {
    libm::scalbn(x, n.clamp(-5000, 5000))
}

/// Mantissa in [0.5, 1) and exponent of a finite non-zero double.
pub(crate) fn split64(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let (y, bias) = if x.abs() < f64::MIN_POSITIVE {
        (x * f64::from_bits(0x4350_0000_0000_0000), -54)
    } else {
        (x, 0)
    };
    let bits = y.to_bits();
    let e = ((bits >> 52) & 0x7ff) as i32 - 1022;
    (f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52), e + bias)
}

/// Mantissa in [0.5, 1) and exponent of a single.
pub(crate) fn split(x: f32) -> (f32, i32) {
    let (m, e) = split64(f64::from(x));
    (m as f32, e)
}

/// Exponent field of a single.
#[inline(always)]
fn exponent(x: u32) -> i32 {
    ((x >> 23) & 0xff) as i32
}

/// `v_div_scale_f32`: source 0 scaled by 2^64 or 2^-64 when the quotient s2/s1 needs it; the flag
/// says that `v_div_fmas` must scale back (RDNA ISA pseudocode). A denominator whose reciprocal and
/// quotient are both denormal is scaled down: the text says up, which would overflow it.
pub(crate) fn div_scale(s0: u32, s1: u32, s2: u32) -> (u32, bool) {
    let (x, den, numer) = (f(s0), f(s1), f(s2));
    let denormal = |v: u32| exponent(v) == 0 && v << 1 != 0;
    if numer == 0.0 || den == 0.0 {
        return (NAN, false);
    }
    let up = || num(ldexp(x, 64));
    let rcp_denormal = {
        // 1 / s1 as a single would be denormal.
        let r = (1.0 / den).abs();
        r != 0.0 && r < f32::MIN_POSITIVE
    };
    let ratio_denormal = {
        let r = (f64::from(numer) / f64::from(den)).abs();
        r != 0.0 && r < f64::from(f32::MIN_POSITIVE)
    };
    if exponent(s2) - exponent(s1) >= 96 {
        return (if s0 == s1 { up() } else { s0 }, true);
    }
    if denormal(s1) {
        return (up(), false);
    }
    if rcp_denormal && ratio_denormal {
        return (if s0 == s1 { num(ldexp(x, -64)) } else { s0 }, true);
    }
    if rcp_denormal {
        return (num(ldexp(x, -64)), false);
    }
    if ratio_denormal {
        return (if s0 == s2 { up() } else { s0 }, true);
    }
    if exponent(s2) <= 23 {
        return (up(), false);
    }
    (s0, false)
}

/// `v_div_fmas_f32`'s scale for lanes that `v_div_scale` flagged, by the exponent of the quotient
/// estimate s2: up if only the denominator was scaled up, down if the quotient was. The published
/// text has a constant 2^32, which would not undo either scaling.
#[inline(always)]
pub(crate) fn fmas_scale(s2: u32) -> i32 {
    if exponent(s2) > 127 { 64 } else { -64 }
}

/// `v_div_fixup_f32`: special cases of the quotient s2/s1 whose value is s0.
pub(crate) fn div_fixup(s0: u32, s1: u32, s2: u32) -> u32 {
    let sign = (s1 ^ s2) & 0x8000_0000;
    let (a1, a2) = (s1 & 0x7fff_ffff, s2 & 0x7fff_ffff);
    const INF: u32 = 0x7f80_0000;
    if is_nan(s2) || is_nan(s1) {
        return NAN;
    }
    match (a1, a2) {
        (0, 0) | (INF, INF) => 0xffc0_0000,
        (0, _) | (_, INF) => sign | INF,
        (INF, _) | (_, 0) => sign,
        _ if exponent(s2) - exponent(s1) < -150 => sign,
        _ if exponent(s1) == 255 => sign | INF,
        // Only a quotient beyond 2^192 turns the refinement into inf - inf.
        _ if is_nan(s0) => sign | INF,
        _ => sign | s0 & 0x7fff_ffff,
    }
}

/// f32 to i32, toward zero, saturating, NaN to 0.
#[inline(always)]
pub(crate) fn to_i32(x: f32) -> u32 {
    (x as i32) as u32
}

#[cfg(test)]
mod tests {
    use super::{exp2, f, half_to_single, log2, max_num, min_num, single_to_half, soft_fma};
    use super::{max_ieee, maximum, single_to_half_rtz};
    use half::f16;

    fn random(state: &mut u64) -> u32 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 16) as u32
    }

    #[test]
    fn halves_convert_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let (got, want) = (half_to_single(bits.into()), f16::from_bits(bits).to_f32());
            assert!(
                f(got).to_bits() == want.to_bits() || want.is_nan() && f(got).is_nan(),
                "{bits:x}"
            );
        }
        let mut state = 1;
        for k in 0..400_000u32 {
            let bits = if k < 1000 {
                0x3300_0000 + k * 0x1357
            } else {
                random(&mut state)
            };
            let (got, want) = (single_to_half(bits), f16::from_f32(f(bits)));
            assert!(
                got == u32::from(want.to_bits()) || want.is_nan(),
                "{bits:x}: {got:x}"
            );
            let low = f16::from_bits(single_to_half_rtz(bits) as u16);
            assert!(
                low.to_f32().abs() <= f(bits).abs() || f(bits).is_nan(),
                "{bits:x}"
            );
        }
    }

    #[test]
    fn soft_fma_rounds_once() {
        let mut state = 2;
        let edges = [
            0,
            1 << 31,
            1,
            0x7f7f_ffff,
            0x7f80_0000,
            0x0080_0000,
            0x3f80_0001,
            0xbf80_0000,
        ];
        for k in 0..2_000_000u32 {
            let mut pick = || match random(&mut state) % 4 {
                0 if k % 3 == 0 => edges[random(&mut state) as usize % edges.len()],
                // Close exponents, so that sums cancel and round on ties.
                1 | 2 => 0x3f00_0000 + (random(&mut state) & 0x81ff_ffff),
                _ => random(&mut state),
            };
            let (a, b, c) = (f(pick()), f(pick()), f(pick()));
            let (got, want) = (soft_fma(a, b, c), a.mul_add(b, c));
            assert!(
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                "{a} {b} {c}"
            );
        }
    }

    #[test]
    fn exponential_and_logarithm_are_within_one_ulp() {
        let mut state = 3;
        for _ in 0..200_000 {
            let x = (random(&mut state) as f32 / u32::MAX as f32 - 0.5) * 250.0;
            let want = f64::from(x).exp2() as f32;
            let got = f(exp2(x.to_bits()));
            assert!(
                got.to_bits().abs_diff(want.to_bits()) <= 1 || want < f32::MIN_POSITIVE,
                "2^{x}"
            );
            let y = f(random(&mut state) & 0x7fff_ffff);
            if y.is_normal() {
                let (got, want) = (f(log2(y.to_bits())), f64::from(y).log2() as f32);
                assert!(
                    (got - want).abs() <= want.abs() * 1.2e-7,
                    "log2 {y}: {got} {want}"
                );
            }
        }
    }

    #[test]
    fn extremes_follow_their_rules() {
        const QUIET: u32 = 0x7fc0_0000;
        const SIGNALLING: u32 = 0x7f80_0001;
        let (one, zero, minus) = (0x3f80_0000, 0, 1 << 31);
        for (a, b, max, min, ieee, wins) in [
            (one, zero, one, zero, one, one),
            (minus, zero, zero, minus, zero, zero),
            (zero, minus, zero, minus, zero, zero),
            (QUIET, one, one, one, one, QUIET),
            (one, QUIET, one, one, one, QUIET),
            (SIGNALLING, one, one, one, 0x7fc0_0001, 0x7fc0_0001),
        ] {
            let got = [max_num(a, b), min_num(a, b), max_ieee(a, b), maximum(a, b)];
            assert_eq!(got, [max, min, ieee, wins], "{a:x} {b:x}");
        }
    }
}
