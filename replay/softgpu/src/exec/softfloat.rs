//! Binary floating point in integers: any of three formats, any rounding mode, rounded once.
//!
//! Used where a wave runs with a MODE that host arithmetic does not follow (`moded`), and by tests
//! as a second implementation of the ordinary one. NaN results are the format's canonical quiet NaN.
//! Slow by design. Flushing of denormals is the caller's.

/// An IEEE binary format, held in the low bits of a `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Bits of the whole value.
    pub(super) size: u32,
    /// Explicit mantissa bits.
    mantissa: u32,
}

/// IEEE half.
pub(super) const HALF: Format = Format {
    size: 16,
    mantissa: 10,
};
/// IEEE single.
pub(super) const SINGLE: Format = Format {
    size: 32,
    mantissa: 23,
};
/// IEEE double.
pub(super) const DOUBLE: Format = Format {
    size: 64,
    mantissa: 52,
};

/// How results are rounded; the numbers are those of MODE.FP_ROUND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// Toward plus infinity.
    Up,
    /// Toward minus infinity.
    Down,
    /// Toward zero.
    Zero,
}

impl Round {
    /// From two bits of MODE.FP_ROUND.
    pub(super) const fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::Nearest,
            1 => Self::Up,
            2 => Self::Down,
            _ => Self::Zero,
        }
    }
}

/// Rounding direction, and what happens to results beyond the largest finite value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) round: Round,
    /// Overflow gives the largest finite value in every mode (MODE.FP16_OVFL).
    pub(super) saturate: bool,
}

impl Rule {
    /// The rule with a rounding direction and ordinary overflow.
    pub(super) const fn new(round: Round) -> Self {
        Self {
            round,
            saturate: false,
        }
    }
}

impl Format {
    const fn exponent_bits(self) -> u32 {
        self.size - 1 - self.mantissa
    }

    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits() - 1)) - 1
    }

    const fn sign(self) -> u64 {
        1 << (self.size - 1)
    }

    const fn infinity(self) -> u64 {
        ((1 << self.exponent_bits()) - 1) << self.mantissa
    }

    /// The canonical quiet NaN.
    pub(super) const fn nan(self) -> u64 {
        self.infinity() | 1 << (self.mantissa - 1)
    }

    /// Exponent of the last bit of a denormal.
    const fn lowest(self) -> i32 {
        1 - self.bias() - self.mantissa as i32
    }

    /// Whether `bits` is a denormal.
    pub(super) const fn is_denormal(self, bits: u64) -> bool {
        let magnitude = bits & (self.sign() - 1);
        magnitude != 0 && magnitude < 1 << self.mantissa
    }
}

/// A value taken apart. A finite one is `mantissa * 2^exponent`, mantissa not zero.
#[derive(Clone, Copy)]
enum Parts {
    Nan,
    Infinite {
        negative: bool,
    },
    Zero {
        negative: bool,
    },
    Finite {
        negative: bool,
        exponent: i32,
        mantissa: u128,
    },
}

fn unpack(format: Format, bits: u64) -> Parts {
    let negative = bits & format.sign() != 0;
    let magnitude = bits & (format.sign() - 1);
    if magnitude > format.infinity() {
        return Parts::Nan;
    }
    if magnitude == format.infinity() {
        return Parts::Infinite { negative };
    }
    if magnitude == 0 {
        return Parts::Zero { negative };
    }
    let field = (magnitude >> format.mantissa) as i32;
    let fraction = magnitude & ((1 << format.mantissa) - 1);
    let implicit = if field == 0 { 0 } else { 1 << format.mantissa };
    Parts::Finite {
        negative,
        exponent: format.lowest() + (field - 1).max(0),
        mantissa: u128::from(fraction | implicit),
    }
}

/// `mantissa * 2^exponent`, plus something below the last bit if `sticky`, as bits of `format`.
/// The mantissa is not zero.
fn round(
    format: Format,
    rule: Rule,
    negative: bool,
    exponent: i32,
    mantissa: u128,
    sticky: bool,
) -> u64 {
    let top = exponent + 127 - mantissa.leading_zeros() as i32;
    let last = (top - format.mantissa as i32).max(format.lowest());
    let (mut kept, mut above, mut exact) = (0, false, !sticky);
    let shift = last - exponent;
    if shift <= 0 {
        // The result has at least as many bits as the value.
        kept = mantissa << shift.unsigned_abs();
    } else if shift < 128 {
        kept = mantissa >> shift;
        above = mantissa >> (shift - 1) & 1 == 1;
        exact &= mantissa & ((1 << (shift - 1)) - 1) == 0;
    } else {
        exact = false;
    }
    let inexact = above || !exact;
    let increment = match rule.round {
        Round::Nearest => above && (!exact || kept & 1 == 1),
        Round::Up => inexact && !negative,
        Round::Down => inexact && negative,
        Round::Zero => false,
    };
    let steps = (last - format.lowest()) as u64;
    // Past the largest exponent the sum below could wrap; there it is beyond infinity anyway.
    let beyond = steps >= format.infinity() >> format.mantissa;
    let magnitude = (steps << format.mantissa).wrapping_add(kept as u64 + u64::from(increment));
    let sign = if negative { format.sign() } else { 0 };
    if !beyond && magnitude < format.infinity() {
        return sign | magnitude;
    }
    let to_infinity = match rule.round {
        Round::Nearest => true,
        Round::Up => !negative,
        Round::Down => negative,
        Round::Zero => false,
    };
    sign | (format.infinity() - u64::from(!to_infinity || rule.saturate))
}

/// Bit that leading bits are moved to before a sum.
const TOP: u32 = 125;

/// A sum of two finite values with their leading bits at [`TOP`].
fn sum(format: Format, rule: Rule, a: (bool, i32, u128), b: (bool, i32, u128)) -> u64 {
    let (high, low) = if a.1 >= b.1 { (a, b) } else { (b, a) };
    let by = (high.1 - low.1).unsigned_abs();
    let (shifted, sticky) = match by {
        0 => (low.2, false),
        1..128 => (low.2 >> by, low.2 & ((1 << by) - 1) != 0),
        _ => (0, true),
    };
    if high.0 == low.0 {
        return round(format, rule, high.0, high.1, high.2 + shifted, sticky);
    }
    // What was shifted out makes the subtrahend a little larger.
    let taken = shifted + u128::from(sticky);
    if high.2 == taken && !sticky {
        let negative = rule.round == Round::Down;
        return if negative { format.sign() } else { 0 };
    }
    if high.2 >= taken {
        round(format, rule, high.0, high.1, high.2 - taken, sticky)
    } else {
        // Only with equal exponents, where nothing is shifted out.
        round(format, rule, low.0, high.1, taken - high.2, sticky)
    }
}

fn normal(exponent: i32, mantissa: u128) -> (i32, u128) {
    let by = mantissa.leading_zeros() as i32 - (127 - TOP as i32);
    if by >= 0 {
        (exponent - by, mantissa << by)
    } else {
        (exponent + 1, mantissa >> 1)
    }
}

/// `a * b + c`, rounded once.
pub(super) fn fma(format: Format, rule: Rule, a: u64, b: u64, c: u64) -> u64 {
    let (pa, pb, pc) = (unpack(format, a), unpack(format, b), unpack(format, c));
    let signs = (a ^ b) & format.sign() != 0;
    let infinity = |negative| format.infinity() | if negative { format.sign() } else { 0 };
    let product = match (pa, pb) {
        (Parts::Nan, _) | (_, Parts::Nan) => return format.nan(),
        (Parts::Infinite { .. }, Parts::Zero { .. })
        | (Parts::Zero { .. }, Parts::Infinite { .. }) => return format.nan(),
        (Parts::Infinite { .. }, _) | (_, Parts::Infinite { .. }) => {
            return match pc {
                Parts::Nan => format.nan(),
                Parts::Infinite { negative } if negative != signs => format.nan(),
                _ => infinity(signs),
            };
        }
        (Parts::Zero { .. }, _) | (_, Parts::Zero { .. }) => None,
        (
            Parts::Finite {
                exponent: ea,
                mantissa: ma,
                ..
            },
            Parts::Finite {
                exponent: eb,
                mantissa: mb,
                ..
            },
        ) => Some((ea + eb, ma * mb)),
    };
    match (product, pc) {
        (_, Parts::Nan) => format.nan(),
        (_, Parts::Infinite { negative }) => infinity(negative),
        (None, Parts::Zero { negative }) => {
            let sign = if negative == signs {
                negative
            } else {
                rule.round == Round::Down
            };
            if sign { format.sign() } else { 0 }
        }
        (None, _) => c,
        (Some((exponent, mantissa)), Parts::Zero { .. }) => {
            round(format, rule, signs, exponent, mantissa, false)
        }
        (
            Some((exponent, mantissa)),
            Parts::Finite {
                negative,
                exponent: ec,
                mantissa: mc,
            },
        ) => {
            let (ep, mp) = normal(exponent, mantissa);
            let (ec, mc) = normal(ec, mc);
            sum(format, rule, (signs, ep, mp), (negative, ec, mc))
        }
    }
}

/// `a + b`.
pub(super) fn add(format: Format, rule: Rule, a: u64, b: u64) -> u64 {
    let one = (format.bias() as u64) << format.mantissa;
    fma(format, rule, a, one, b)
}

/// `a - b`.
pub(super) fn sub(format: Format, rule: Rule, a: u64, b: u64) -> u64 {
    add(format, rule, a, b ^ format.sign())
}

/// `a * b`.
pub(super) fn mul(format: Format, rule: Rule, a: u64, b: u64) -> u64 {
    // A zero of the product's sign leaves the sign of a zero product alone.
    fma(format, rule, a, b, (a ^ b) & format.sign())
}

/// `a * 2^n`.
pub(super) fn ldexp(format: Format, rule: Rule, a: u64, n: i32) -> u64 {
    match unpack(format, a) {
        Parts::Nan => format.nan(),
        Parts::Infinite { .. } | Parts::Zero { .. } => a,
        Parts::Finite {
            negative,
            exponent,
            mantissa,
        } => {
            let exponent = exponent + n.clamp(-10_000, 10_000);
            round(format, rule, negative, exponent, mantissa, false)
        }
    }
}

/// A value of one format in another.
pub(super) fn convert(from: Format, to: Format, rule: Rule, a: u64) -> u64 {
    let sign = |negative| if negative { to.sign() } else { 0 };
    match unpack(from, a) {
        Parts::Nan => to.nan(),
        Parts::Infinite { negative } => sign(negative) | to.infinity(),
        Parts::Zero { negative } => sign(negative),
        Parts::Finite {
            negative,
            exponent,
            mantissa,
        } => round(to, rule, negative, exponent, mantissa, false),
    }
}

/// An integer as a float.
pub(super) fn from_int(format: Format, rule: Rule, n: i64) -> u64 {
    if n == 0 {
        return 0;
    }
    round(format, rule, n < 0, 0, u128::from(n.unsigned_abs()), false)
}

/// `a - floor(a)`, below 1; infinities give NaN.
pub(super) fn fract(format: Format, rule: Rule, a: u64) -> u64 {
    let below_one = ((format.bias() as u64) << format.mantissa) - 1;
    let r = sub(format, rule, a, floor(format, a));
    if r > below_one && r < format.infinity() {
        below_one
    } else {
        r
    }
}

/// The largest integer that is not above `a`.
fn floor(format: Format, a: u64) -> u64 {
    let Parts::Finite {
        negative,
        exponent,
        mantissa,
    } = unpack(format, a)
    else {
        return a;
    };
    if exponent >= 0 {
        return a;
    }
    let by = exponent.unsigned_abs().min(127);
    let whole = mantissa >> by;
    let part = mantissa & ((1 << by) - 1) != 0;
    let whole = whole + u128::from(part && negative);
    let sign = if negative { format.sign() } else { 0 };
    if whole == 0 {
        return sign;
    }
    let rule = Rule::new(Round::Nearest);
    round(format, rule, negative, 0, whole, false)
}

#[cfg(test)]
mod tests {
    use super::{DOUBLE, Format, HALF, Round, Rule, SINGLE};
    use super::{add, convert, fma, fract, from_int, ldexp, mul, sub};

    const NEAREST: Rule = Rule::new(Round::Nearest);

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Edge values, close exponents that cancel, and anything.
    fn operand(state: &mut u64, format: Format) -> u64 {
        let mask = u64::MAX >> (64 - format.size);
        let edges = [0, 1, format.infinity(), format.infinity() - 1, format.nan()];
        let r = random(state);
        let sign = r & 1 << (format.size - 1);
        match r >> 60 {
            0..4 => edges[(r >> 20) as usize % edges.len()] | sign,
            4..10 => {
                let one = (format.bias() as u64) << format.mantissa;
                let near = one + ((r >> 40 & 7) << format.mantissa);
                (near | random(state) & ((1 << format.mantissa) - 1)) | sign
            }
            _ => random(state) & mask,
        }
    }

    fn same(format: Format, got: u64, want: u64) -> bool {
        let nan = |v: u64| v & (format.sign() - 1) > format.infinity();
        got == want || (nan(got) && nan(want))
    }

    #[test]
    fn nearest_even_is_what_the_host_computes() {
        let mut state = 9;
        for _ in 0..400_000 {
            let mut s = || operand(&mut state, SINGLE);
            let (a, b, c) = (s(), s(), s());
            let [x, y, z] = [a, b, c].map(|v| f32::from_bits(v as u32));
            for (got, want) in [
                (add(SINGLE, NEAREST, a, b), x + y),
                (sub(SINGLE, NEAREST, a, b), x - y),
                (mul(SINGLE, NEAREST, a, b), x * y),
                (fma(SINGLE, NEAREST, a, b, c), x.mul_add(y, z)),
            ] {
                let want = u64::from(want.to_bits());
                assert!(same(SINGLE, got, want), "{x} {y} {z}: {got:x} {want:x}");
            }
            let mut s = || operand(&mut state, DOUBLE);
            let (a, b, c) = (s(), s(), s());
            let [x, y, z] = [a, b, c].map(f64::from_bits);
            for (got, want) in [
                (add(DOUBLE, NEAREST, a, b), x + y),
                (mul(DOUBLE, NEAREST, a, b), x * y),
                (fma(DOUBLE, NEAREST, a, b, c), x.mul_add(y, z)),
            ] {
                assert!(same(DOUBLE, got, want.to_bits()), "{x} {y} {z} {got:x}");
            }
            let part = x - x.floor();
            let part = if part >= 1.0 {
                1.0f64.next_down()
            } else {
                part
            };
            let got = fract(DOUBLE, NEAREST, a);
            assert!(same(DOUBLE, got, part.to_bits()), "fract {x}: {got:x}");
            let narrow = convert(DOUBLE, SINGLE, NEAREST, a);
            assert!(same(SINGLE, narrow, u64::from((x as f32).to_bits())), "{x}");
            let single = a as u32;
            let half = convert(SINGLE, HALF, NEAREST, u64::from(single));
            let want = half::f16::from_f32(f32::from_bits(single)).to_bits();
            assert!(same(HALF, half, want.into()), "{single:x}");
            let int = b as i64;
            assert_eq!(
                from_int(SINGLE, NEAREST, int),
                u64::from((int as f32).to_bits())
            );
        }
    }

    #[test]
    fn directed_modes_bracket_the_value() {
        let mut state = 10;
        let order = |v: u64| {
            let x = f64::from(f32::from_bits(v as u32));
            if x.is_nan() { f64::INFINITY } else { x }
        };
        for _ in 0..300_000 {
            let mut s = || operand(&mut state, SINGLE);
            let (a, b, c) = (s(), s(), s());
            let at = |round| fma(SINGLE, Rule::new(round), a, b, c);
            let (near, up, down) = (at(Round::Nearest), at(Round::Up), at(Round::Down));
            let zero = at(Round::Zero);
            if order(near).is_nan() || near == SINGLE.nan() {
                assert_eq!([up, down, zero], [near; 3]);
                continue;
            }
            assert!(order(down) <= order(near) && order(near) <= order(up));
            assert!(zero == up || zero == down, "{a:x} {b:x} {c:x}");
            assert!(order(zero).abs() <= order(up).abs().min(order(down).abs()));
            // Adjacent or equal: one step at most, also across the largest finite value.
            let steps = |v: u64| {
                let m = (v & 0x7fff_ffff) as i64;
                if v >> 31 & 1 == 1 { -m } else { m }
            };
            assert!(
                steps(up) - steps(down) <= 1,
                "{a:x} {b:x} {c:x}: {up:x} {down:x}"
            );
            // The exact product of singles is a double: its comparison decides the direction.
            let exact = order(a) * order(b);
            let product = mul(SINGLE, Rule::new(Round::Down), a, b);
            if exact.is_finite() && product != SINGLE.nan() {
                assert!(order(product) <= exact, "{a:x} * {b:x}");
            }
        }
    }

    #[test]
    fn overflow_and_underflow_follow_the_direction() {
        let max = SINGLE.infinity() - 1;
        let inf = SINGLE.infinity();
        let sign = SINGLE.sign();
        for (round, plus, minus, tiny) in [
            (Round::Nearest, inf, sign | inf, 0),
            (Round::Up, inf, sign | max, 1),
            (Round::Down, max, sign | inf, 0),
            (Round::Zero, max, sign | max, 0),
        ] {
            let rule = Rule::new(round);
            assert_eq!(mul(SINGLE, rule, max, max), plus, "{round:?}");
            assert_eq!(mul(SINGLE, rule, max | sign, max), minus, "{round:?}");
            assert_eq!(mul(SINGLE, rule, 1, 1), tiny, "{round:?}");
            assert_eq!(ldexp(SINGLE, rule, 0x3f80_0000, -400), tiny, "{round:?}");
            let saturate = Rule {
                round,
                saturate: true,
            };
            assert_eq!(convert(SINGLE, HALF, saturate, 0x4b00_0000), 0x7bff);
            assert_eq!(convert(SINGLE, HALF, saturate, inf), HALF.infinity());
            let cancelled = add(SINGLE, rule, 0x3f80_0000, 0xbf80_0000);
            assert_eq!(cancelled == sign, round == Round::Down, "{round:?}");
        }
    }
}
