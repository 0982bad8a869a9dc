//! The rotation table: frequency of each pair in turns per position, as a sum of two f32.

use crate::arch::ArchError;
use crate::plan::Geometry;
use std::f64::consts::TAU;

/// `[rope_dims / 2]` pairs of f32 (high, low), little endian: `theta^(-2j/rope_dims) / (2 pi)`,
/// divided by `factors[j]` where there are any. Computed in f64 with libm's own `pow`, so that the
/// bytes are the same on every machine.
pub fn table(geometry: &Geometry, factors: Option<&[f32]>) -> Vec<u8> {
    let dims = geometry.rope_dims;
    let pairs = dims / 2;
    let mut bytes = Vec::with_capacity(pairs as usize * 8);
    for pair in 0..pairs {
        let exponent = -2.0 * f64::from(pair) / f64::from(dims);
        let factor = factors
            .and_then(|list| list.get(pair as usize))
            .copied()
            .unwrap_or(1.0);
        let turns = libm::pow(f64::from(geometry.rope_theta), exponent) / TAU / f64::from(factor);
        let high = turns as f32;
        let low = (turns - f64::from(high)) as f32;
        bytes.extend_from_slice(&high.to_le_bytes());
        bytes.extend_from_slice(&low.to_le_bytes());
    }
    bytes
}

/// Factors from the bytes of a `rope_freqs` tensor of f32.
pub fn factors(tensor: &str, bytes: &[u8]) -> Result<Vec<f32>, ArchError> {
    let words = bytes.as_chunks::<4>().0;
    let factors: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
    match factors
        .iter()
        .position(|factor| !(factor.is_finite() && *factor > 0.0))
    {
        None => Ok(factors),
        Some(index) => Err(ArchError::RopeFactor {
            tensor: tensor.to_owned(),
            index,
            value: factors[index],
        }),
    }
}
