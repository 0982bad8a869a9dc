//! The rotation of hipfire's MQ types: signs, a Walsh-Hadamard transform of 256, signs.
//!
//! MQ files hold `R * w` per 256 elements. R is orthogonal, so `w . x = (R w) . (R x)`: the activation
//! is rotated once and every MQ matrix that reads it takes the rotated copy.

/// Elements that are rotated together.
pub const ROTATION: usize = 256;

/// Seeds of the two sign vectors.
const SEEDS: [u32; 2] = [42, 1042];

/// Sign vectors, +1 or -1, from the low 31 bits of a linear congruential generator: plus where bit 16 of
/// the new state is set.
const fn signs(seed: u32) -> [f32; ROTATION] {
    let mut out = [0.0; ROTATION];
    let (mut state, mut i) = (seed as u64, 0);
    while i < ROTATION {
        state = (state * 1_103_515_245 + 12_345) % (1 << 31);
        out[i] = if state >> 16 & 1 == 1 { 1.0 } else { -1.0 };
        i += 1;
    }
    out
}

static FIRST: [f32; ROTATION] = signs(SEEDS[0]);
static SECOND: [f32; ROTATION] = signs(SEEDS[1]);

fn transform(v: &mut [f32], before: &[f32; ROTATION], after: &[f32; ROTATION]) {
    for (x, sign) in v.iter_mut().zip(before) {
        *x *= sign;
    }
    let mut stride = 1;
    while stride < ROTATION {
        for pair in v.chunks_exact_mut(2 * stride) {
            let (low, high) = pair.split_at_mut(stride);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        stride *= 2;
    }
    // 1/16 = 1/sqrt(256), a power of two: the product rounds nowhere but below the normal range.
    for (x, sign) in v.iter_mut().zip(after) {
        *x *= sign / 16.0;
    }
}

/// Rotates each whole 256 elements of `x` in place; elements after the last whole group stay.
/// Written order: signs, butterflies of strides 1, 2, ... 128, signs over 16, all in f32.
pub fn rotate(x: &mut [f32]) {
    for group in x.chunks_exact_mut(ROTATION) {
        transform(group, &FIRST, &SECOND);
    }
}

/// The inverse of [`rotate`], up to rounding.
pub fn unrotate(x: &mut [f32]) {
    for group in x.chunks_exact_mut(ROTATION) {
        transform(group, &SECOND, &FIRST);
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST, ROTATION, SECOND, rotate, unrotate};

    /// First signs of both seeds by the generator's definition, worked out apart from this code.
    #[test]
    fn signs_are_those_of_the_generator() {
        let first: Vec<f32> = FIRST[..8].to_vec();
        let second: Vec<f32> = SECOND[..8].to_vec();
        assert_eq!(first, SIGNS_42, "{first:?}");
        assert_eq!(second, SIGNS_1042, "{second:?}");
    }

    const SIGNS_42: [f32; 8] = [1.0, 1.0, 1.0, 1.0, -1.0, 1.0, 1.0, -1.0];
    const SIGNS_1042: [f32; 8] = [1.0, -1.0, -1.0, -1.0, -1.0, 1.0, 1.0, -1.0];

    #[test]
    fn products_survive_the_rotation() {
        let vector = |seed: u32| -> Vec<f32> {
            let mut state = seed;
            (0..2 * ROTATION)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 8) as f32 / (1 << 23) as f32 - 1.0
                })
                .collect()
        };
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
            products.sum()
        };
        let (w, x) = (vector(1), vector(2));
        let (mut rw, mut rx) = (w.clone(), x.clone());
        rotate(&mut rw);
        rotate(&mut rx);
        assert!((dot(&w, &x) - dot(&rw, &rx)).abs() < 1e-4);
        assert_ne!(x, rx);
        unrotate(&mut rx);
        for (back, x) in rx.iter().zip(&x) {
            assert!((back - x).abs() < 1e-6);
        }
    }

    /// One unit vector gives a column of R: +-1/16 everywhere.
    #[test]
    fn a_unit_vector_spreads_evenly() {
        let mut unit = [0.0; ROTATION + 3];
        unit[0] = 1.0;
        unit[ROTATION] = 7.0;
        rotate(&mut unit);
        for (i, x) in unit[..ROTATION].iter().enumerate() {
            assert_eq!(*x, FIRST[0] * SECOND[i] / 16.0);
        }
        assert_eq!(unit[ROTATION..], [7.0, 0.0, 0.0]);
    }
}
