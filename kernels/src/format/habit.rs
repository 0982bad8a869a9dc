//! The forms in which an activation meets integer weights: int8 codes, scales and sums, planar in one
//! buffer that is made once and read by every consumer, GPU and CPU.
//!
//! The numbers are ggml's (ggml-quants.c and its x86 versions): what llama.cpp multiplies with is what
//! is multiplied with here.

use half::f16;

use crate::CatalogError;

/// A form of the activation.
#[allow(non_camel_case_types, reason = "the names that ggml gives these forms")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Habit {
    /// i8 `q[k]`, then f16 `d[k/32]`.
    Q8_0,
    /// i8 `q[k]`, then f16 `d[k/32]`, then f16 `s[k/32]`, s = d * sum of the block's q.
    Q8_1,
    /// i8 `q[k]`, then f32 `d[k/256]`, then i16 `sums[k/16]` of q.
    Q8_K,
}

/// Largest magnitude of a code: -128 is never made.
const TOP: f32 = 127.0;

impl Habit {
    /// Name in kernel symbols.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q8_1 => "q8_1",
            Self::Q8_K => "q8_k",
        }
    }

    /// Elements that share one scale.
    #[must_use]
    pub const fn block(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q8_1 => 32,
            Self::Q8_K => 256,
        }
    }

    /// Byte at which the scales of an activation of `k` elements start.
    #[must_use]
    pub const fn scales_at(self, k: usize) -> usize {
        k
    }

    /// Byte at which the sums of an activation of `k` elements start: the end, where there are none.
    #[must_use]
    pub const fn sums_at(self, k: usize) -> usize {
        match self {
            Self::Q8_0 | Self::Q8_1 => k + k / 16,
            Self::Q8_K => k + k / 64,
        }
    }

    /// Bytes of an activation of `k` elements.
    ///
    /// # Errors
    /// [`CatalogError::Block`] if `k` is no multiple of the block, [`CatalogError::Size`] if the sum
    /// leaves usize.
    pub const fn bytes(self, k: usize) -> Result<usize, CatalogError> {
        if !k.is_multiple_of(self.block()) {
            return Err(CatalogError::Block {
                dtype: self.name(),
                cols: k as u64,
                block: self.block() as u64,
            });
        }
        if k > usize::MAX / 2 {
            return Err(CatalogError::Size {
                dtype: self.name(),
                rows: 1,
                cols: k as u64,
            });
        }
        Ok(match self {
            Self::Q8_0 => k + k / 16,
            Self::Q8_1 | Self::Q8_K => {
                k + k / 8
                    + if matches!(self, Self::Q8_K) {
                        k / 64
                    } else {
                        0
                    }
            }
        })
    }
}

/// Quantises `x` into `out`, laid out as [`Habit`] says. All operations are f32, rounded once each.
///
/// Q8_0, Q8_1: amax = greatest |x| of 32; d = amax / 127, stored as f16; q = round half even of
/// `x * (127 / amax)`; s = f16 of (d before its rounding times the sum of q).
/// Q8_K: max = first x of greatest |x| of 256; i = -127 / max; q = min(127, round half even of `i * x`);
/// d = 1 / i.
///
/// A block of zeros, or one so small that 127 / amax is not finite (below 3.8e-37), has q = 0 and
/// d = +0. A block with a NaN or an infinity has q = 0 and a NaN for d (and s): every product with it is
/// a NaN, never a wrong number. d of Q8_0 and Q8_1 is infinite where amax exceeds 8.3e6, as f16 ends there.
///
/// # Errors
/// [`CatalogError::Block`] as [`Habit::bytes`]; [`CatalogError::Bytes`] if `out` has another length.
pub fn quantise(habit: Habit, x: &[f32], out: &mut [u8]) -> Result<(), CatalogError> {
    let expected = habit.bytes(x.len())?;
    if out.len() != expected {
        return Err(CatalogError::Bytes {
            dtype: habit.name(),
            rows: 1,
            cols: x.len() as u64,
            expected: expected as u64,
            given: out.len() as u64,
        });
    }
    let (codes, rest) = out.split_at_mut(habit.scales_at(x.len()));
    let (scales, sums) = rest.split_at_mut(habit.sums_at(x.len()) - x.len());
    let blocks = x.chunks_exact(habit.block());
    for (index, (x, codes)) in blocks
        .zip(codes.chunks_exact_mut(habit.block()))
        .enumerate()
    {
        match habit {
            Habit::Q8_0 | Habit::Q8_1 => {
                let (d, sum) = block32(x, codes);
                put(scales, index, f16::from_f32(d).to_le_bytes());
                if habit == Habit::Q8_1 {
                    put(sums, index, f16::from_f32(d * sum as f32).to_le_bytes());
                }
            }
            Habit::Q8_K => {
                put(scales, index, block256(x, codes).to_le_bytes());
                for (part, codes) in codes.chunks_exact(16).enumerate() {
                    let sum: i16 = codes.iter().map(|q| i16::from(q.cast_signed())).sum();
                    put(sums, 16 * index + part, sum.to_le_bytes());
                }
            }
        }
    }
    Ok(())
}

fn put<const N: usize>(plane: &mut [u8], index: usize, value: [u8; N]) {
    plane[index * N..][..N].copy_from_slice(&value);
}

/// Codes of 32 elements; returns d before its rounding, and the sum of the codes.
fn block32(x: &[f32], codes: &mut [u8]) -> (f32, i32) {
    let amax = x.iter().fold(0.0f32, |top, x| top.max(x.abs()));
    let inverse = TOP / amax;
    codes.fill(0);
    if x.iter().any(|x| !x.is_finite()) {
        return (f32::NAN, 0);
    }
    if !inverse.is_finite() {
        return (0.0, 0);
    }
    let mut sum = 0;
    for (code, x) in codes.iter_mut().zip(x) {
        let q = (x * inverse).round_ties_even() as i8;
        *code = q.cast_unsigned();
        sum += i32::from(q);
    }
    (amax / TOP, sum)
}

/// Codes of 256 elements; returns d.
fn block256(x: &[f32], codes: &mut [u8]) -> f32 {
    let larger = |top: f32, x: &f32| if x.abs() > top.abs() { *x } else { top };
    let max = x.iter().fold(0.0f32, larger);
    let inverse = -TOP / max;
    codes.fill(0);
    if x.iter().any(|x| !x.is_finite()) {
        return f32::NAN;
    }
    if !inverse.is_finite() {
        return 0.0;
    }
    for (code, x) in codes.iter_mut().zip(x) {
        let q = (inverse * x).round_ties_even().min(TOP) as i8;
        *code = q.cast_unsigned();
    }
    1.0 / inverse
}

#[cfg(test)]
mod tests {
    use super::{Habit, quantise};
    use crate::CatalogError;
    use half::f16;

    fn made(habit: Habit, x: &[f32]) -> Vec<u8> {
        let mut out = vec![0xaa; habit.bytes(x.len()).unwrap()];
        quantise(habit, x, &mut out).unwrap();
        out
    }

    fn half_at(bytes: &[u8], at: usize) -> f32 {
        f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
    }

    fn ramp(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 - 20.0) * 0.37).collect()
    }

    #[test]
    fn planes_lie_where_they_are_documented() {
        let x = ramp(512);
        for (habit, bytes) in [(Habit::Q8_0, 544), (Habit::Q8_1, 576), (Habit::Q8_K, 584)] {
            assert_eq!(habit.bytes(512), Ok(bytes));
            let out = made(habit, &x);
            for (index, x) in x.iter().enumerate() {
                let d = match habit {
                    Habit::Q8_K => {
                        let at = habit.scales_at(512) + index / 256 * 4;
                        f32::from_le_bytes(out[at..at + 4].try_into().unwrap())
                    }
                    _ => half_at(&out, habit.scales_at(512) + index / 32 * 2),
                };
                let back = f32::from(out[index].cast_signed()) * d;
                assert!(
                    (back - x).abs() <= d.abs() * 0.51 + x.abs() * 1e-3,
                    "{habit:?} {index}"
                );
            }
        }
    }

    #[test]
    fn sums_are_of_the_codes() {
        let x = ramp(256);
        let (one, k) = (made(Habit::Q8_1, &x), made(Habit::Q8_K, &x));
        for block in 0..8 {
            let codes = &one[32 * block..][..32];
            let sum: i32 = codes.iter().map(|q| i32::from(q.cast_signed())).sum();
            let amax = x[32 * block..][..32]
                .iter()
                .fold(0.0f32, |m, v| m.max(v.abs()));
            let want = f16::from_f32(amax / 127.0 * sum as f32).to_f32();
            assert_eq!(half_at(&one, Habit::Q8_1.sums_at(256) + 2 * block), want);
        }
        for part in 0..16 {
            let sum: i16 = k[16 * part..][..16]
                .iter()
                .map(|q| i16::from(q.cast_signed()))
                .sum();
            let at = Habit::Q8_K.sums_at(256) + 2 * part;
            assert_eq!(i16::from_le_bytes([k[at], k[at + 1]]), sum);
        }
    }

    #[test]
    fn ties_go_to_even_and_the_first_of_equals_gives_the_sign() {
        let mut x = vec![0.0; 256];
        x[..5].copy_from_slice(&[127.0, 0.5, 1.5, -2.5, -127.0]);
        let zero = made(Habit::Q8_0, &x);
        assert_eq!(zero[..5], [127, 0, 2, 254, 129]);
        let k = made(Habit::Q8_K, &x);
        assert_eq!(k[..5], [129, 0, 254, 2, 127]);
        assert_eq!(f32::from_le_bytes(k[256..260].try_into().unwrap()), -1.0);
    }

    #[test]
    fn what_is_not_finite_shows_and_what_is_tiny_is_zero() {
        for habit in [Habit::Q8_0, Habit::Q8_1, Habit::Q8_K] {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = ramp(512);
                x[300] = bad;
                let out = made(habit, &x);
                let block = habit.block();
                let hit = 300 / block;
                assert!(
                    out[hit * block..][..block].iter().all(|q| *q == 0),
                    "{habit:?}"
                );
                let good = made(habit, &ramp(512));
                assert_eq!(out[..block], good[..block]);
                let d = match habit {
                    Habit::Q8_K => f32::from_le_bytes(out[516..520].try_into().unwrap()),
                    _ => half_at(&out, 512 + 2 * hit),
                };
                assert!(d.is_nan(), "{habit:?} {bad}");
            }
            for tiny in [0.0, -0.0, 1e-40, f32::from_bits(1), 3.7e-37] {
                let out = made(habit, &[tiny; 256]);
                assert!(out.iter().all(|byte| *byte == 0), "{habit:?} {tiny:e}");
            }
        }
        assert_eq!(half_at(&made(Habit::Q8_0, &[1e7; 32]), 32), f32::INFINITY);
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let block = |k| CatalogError::Block {
            dtype: "q8_k",
            cols: k,
            block: 256,
        };
        assert_eq!(Habit::Q8_K.bytes(288), Err(block(288)));
        let mut out = [0; 35];
        let given = quantise(Habit::Q8_0, &[0.0; 32], &mut out);
        assert!(matches!(
            given,
            Err(CatalogError::Bytes {
                expected: 34,
                given: 35,
                ..
            })
        ));
        assert!(Habit::Q8_0.bytes(usize::MAX & !31).is_err());
    }
}
