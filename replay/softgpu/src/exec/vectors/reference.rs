//! Plain second implementations, lane by lane, in the host's double precision: of what AMD documents
//! to one unit in the last place, and of what the published text leaves open.

use super::operands::Set;
use crate::isa::Row as TableRow;
use half::f16;

fn single(bits: u64) -> f64 {
    f64::from(f32::from_bits(bits as u32))
}

fn half(bits: u64) -> f64 {
    f16::from_bits(bits as u16).to_f64()
}

/// The true value of an approximated function, in double precision.
fn exact(name: &str, x: f64) -> f64 {
    let turns = |quarter: f64| {
        let limit = if quarter == 0.0 { 0.0 } else { 1.0 };
        if x.abs() > 256.0 && x.is_finite() {
            return limit;
        }
        // Whole revolutions are exact to take away.
        let r = x - x.round_ties_even() + quarter;
        if r == 0.0 || r.abs() == 0.5 {
            return 0.0;
        }
        (r * std::f64::consts::TAU).sin()
    };
    match () {
        () if name.contains("_exp_") => x.exp2(),
        () if name.contains("_log_") => x.log2(),
        () if name.contains("_rcp_") => 1.0 / x,
        () if name.contains("_rsq_") => 1.0 / x.sqrt(),
        () if name.contains("_sqrt_") => x.sqrt(),
        () if name.contains("_sin_") => turns(0.0),
        () => turns(0.25),
    }
}

/// What is wrong with an approximated result: more than one unit in the last place of the format
/// from the true value. Singles flush denormals on both sides.
pub(super) fn distance(row: &TableRow, set: &Set, got: u64) -> Option<String> {
    let name = row.mnemonic;
    let a = set.sources[0];
    let (x, y, unit) = match () {
        () if name.ends_with("f64") => {
            let y = f64::from_bits(got);
            let unit = f64::from_bits(y.abs().to_bits() + 1) - y.abs();
            (f64::from_bits(a), y, unit)
        }
        () if name.ends_with("f16") => {
            let y = half(got);
            (half(a), y, half((got & 0x7fff) + 1) - y.abs())
        }
        () => {
            let tiny = a & 0x7f80_0000 == 0;
            let x = if tiny {
                f64::from_bits(a >> 31 << 63)
            } else {
                single(a)
            };
            let y = single(got);
            (
                x,
                y,
                (single((got & 0x7fff_ffff) + 1) - y.abs()).max(1.2e-38),
            )
        }
    };
    let want = exact(name, x);
    if want.is_nan() || y.is_nan() {
        return (want.is_nan() != y.is_nan()).then(|| format!("{y} for {want}"));
    }
    // A function of turns is documented for its argument in radians, with an absolute error.
    let slack = if name.contains("_sin_") || name.contains("_cos_") {
        1.0e-7
    } else {
        0.0
    };
    let infinite = y.is_infinite() || want.is_infinite();
    let good = if infinite {
        y == want || overflows(name, want)
    } else {
        (y - want).abs() <= unit + slack
    };
    (!good).then(|| format!("{y:e} for {want:e}, unit {unit:e}"))
}

/// Whether a value is beyond the largest of the format.
fn overflows(name: &str, value: f64) -> bool {
    let largest = match () {
        () if name.ends_with("f16") => 65_519.0,
        () if name.ends_with("f64") => f64::MAX,
        () => f64::from(f32::MAX),
    };
    value.abs() >= largest
}

/// A result of a set, or nothing where it is open.
pub(super) type Plain = fn(&Set) -> Option<u64>;

/// Operations whose published text cannot be followed.
pub(super) const PLAIN: [(&str, Plain); 11] = [
    ("v_dot4_i32_iu8", |s| Some(dot(s, 8).into())),
    ("v_dot8_i32_iu4", |s| Some(dot(s, 4).into())),
    ("v_fma_mix_f32", |s| Some(u64::from(mixed(s).to_bits()))),
    ("v_fma_mixlo_f16", |s| {
        let half = f16::from_f32(mixed(s)).to_bits();
        Some(s.old & 0xffff_0000 | u64::from(half))
    }),
    ("v_fma_mixhi_f16", |s| {
        let half = f16::from_f32(mixed(s));
        let bits = if half.is_nan() {
            0x7e00
        } else {
            half.to_bits()
        };
        Some(s.old & 0xffff | u64::from(bits) << 16)
    }),
    ("v_div_fixup_f32", |s| fixup_single(s)),
    ("v_div_fixup_f64", |s| fixup_double(s)),
    // Whole quotients are checked in `exec::tests::alu`; here, what needs no scaling.
    ("v_div_scale_f32", |s| {
        let [a, b, c] = s.sources.map(single);
        let plain = |v: f64| v.is_finite() && (1e-20..1e20).contains(&v.abs());
        (plain(b) && plain(c) && plain(a)).then_some(s.sources[0])
    }),
    ("v_div_scale_f64", |s| {
        let [a, b, c] = s.sources.map(f64::from_bits);
        let plain = |v: f64| v.is_finite() && (1e-200..1e200).contains(&v.abs());
        (plain(b) && plain(c) && plain(a)).then_some(s.sources[0])
    }),
    ("v_div_fmas_f32", |s| {
        let [a, b, c] = s.sources.map(|v| f32::from_bits(v as u32));
        (s.vcc == 0).then(|| u64::from(a.mul_add(b, c).to_bits()))
    }),
    ("v_div_fmas_f64", |s| {
        let [a, b, c] = s.sources.map(f64::from_bits);
        (s.vcc == 0).then(|| a.mul_add(b, c).to_bits())
    }),
];

/// The second implementation of a mnemonic.
pub(super) fn plain(name: &str) -> Option<Plain> {
    PLAIN.iter().find(|(n, _)| *n == name).map(|(_, f)| *f)
}

/// Unsigned digits multiplied and summed: the neg bits, which make them signed, are clear here.
fn dot(s: &Set, bits: u32) -> u32 {
    let digit = |v: u64, k: u32| (v >> (k * bits)) as u32 & ((1 << bits) - 1);
    (0..32 / bits).fold(s.sources[2] as u32, |sum, k| {
        sum.wrapping_add(digit(s.sources[0], k) * digit(s.sources[1], k))
    })
}

/// Halves, because all op_sel_hi bits are set; low ones, because op_sel is clear.
fn mixed(s: &Set) -> f32 {
    let [a, b, c] = s.sources.map(|v| f16::from_bits(v as u16).to_f32());
    a.mul_add(b, c)
}

/// IEEE's rules for the quotient s2 / s1; otherwise the magnitude of s0.
fn fixup<T: Copy>(
    n: f64,
    d: f64,
    value: T,
    nan: T,
    of: impl Fn(f64) -> T,
    with: impl Fn(T, bool) -> T,
) -> T {
    let negative = n.is_sign_negative() != d.is_sign_negative();
    let quotient = n / d;
    let special = n == 0.0 || d == 0.0 || n.is_infinite() || d.is_infinite();
    match () {
        () if quotient.is_nan() => nan,
        () if special => of(if negative {
            -quotient.abs()
        } else {
            quotient.abs()
        }),
        () => with(value, negative),
    }
}

fn fixup_single(s: &Set) -> Option<u64> {
    let [a, d, n] = s.sources;
    let exponent = |v: u64| (v >> 23 & 0xff) as i64;
    // Out of the quotient's range the hardware decides by exponents.
    let open = exponent(n) - exponent(d) < -149 || f32::from_bits(a as u32).is_nan();
    let special = |v: u64| v << 33 == 0 || exponent(v) == 255;
    if open && !special(d) && !special(n) {
        return None;
    }
    let sign = 1u64 << 31;
    Some(fixup(
        single(n),
        single(d),
        a,
        0x7fc0_0000,
        |q| u64::from((q as f32).to_bits()),
        |v, negative| v & !sign | if negative { sign } else { 0 },
    ))
}

fn fixup_double(s: &Set) -> Option<u64> {
    let [a, d, n] = s.sources;
    let exponent = |v: u64| (v >> 52 & 0x7ff) as i64;
    let open = exponent(n) - exponent(d) < -1074 || f64::from_bits(a).is_nan();
    let special = |v: u64| v << 1 == 0 || exponent(v) == 0x7ff;
    if open && !special(d) && !special(n) {
        return None;
    }
    let sign = 1u64 << 63;
    Some(fixup(
        f64::from_bits(n),
        f64::from_bits(d),
        a,
        0x7ff8 << 48,
        f64::to_bits,
        |v, negative| v & !sign | if negative { sign } else { 0 },
    ))
}
