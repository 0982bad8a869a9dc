//! Normalisations, int8 forms and the rotation of an activation: `kernels/hip/norm.hip`,
//! `kernels/hip/quantise.hip`.

use refrain_kernels::{format, quantise as codes};

use super::DecodeError;
use super::launch::Call;
use super::math::{div, rsqrt, sum_lanes};

/// rsqrt(mean of squares + eps) in the order of a work-group of 256: thread t takes the groups of four
/// t, t + 256, ...; lanes pairwise; waves ascending.
#[inline(always)]
fn rms_scale(x: &[f32], eps: f32) -> f32 {
    let mut threads = [0.0f32; 256];
    for groups in x.chunks(1024) {
        for (acc, group) in threads.iter_mut().zip(groups.as_chunks::<4>().0) {
            for v in group {
                *acc = v.mul_add(*v, *acc);
            }
        }
    }
    let mut waves = threads
        .as_chunks::<32>()
        .0
        .iter()
        .map(|lanes| sum_lanes(*lanes));
    let first = waves.next().unwrap_or_default();
    let total = waves.fold(first, |total, wave| total + wave);
    rsqrt(div(total, x.len() as f32) + eps)
}

#[inline(always)]
fn scaled(x: &[f32], scale: f32, w: &[f32], y: &mut [f32]) {
    for (y, (x, w)) in y.iter_mut().zip(x.iter().zip(w)) {
        *y = (x * scale) * w;
    }
}

#[inline(always)]
pub(super) fn rmsnorm(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let (n, eps) = (call.size("n")?, call.float("eps")?);
    let x = call.input("x")?.floats(0..n)?;
    let w = call.input("w")?.floats(0..n)?;
    let mut y = call.output("y")?;
    scaled(x, rms_scale(x, eps), w, y.floats(0..n)?);
    Ok(())
}

/// Writes a vector's codes in the kernel's form.
#[inline(always)]
fn encode(call: &mut Call<'_>, x: &[f32]) -> Result<(), DecodeError> {
    let error = DecodeError::NoFunction {
        symbol: call.row.symbol,
        op: format!("{:?} without a form", call.row.op),
    };
    let habit = call.row.habit.ok_or(error)?;
    let mut q = call.output("q")?;
    Ok(codes(habit, x, q.bytes())?)
}

#[inline(always)]
pub(super) fn rmsnorm_quantise(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let (n, eps) = (call.size("n")?, call.float("eps")?);
    let x = call.input("x")?.floats(0..n)?;
    let w = call.input("w")?.floats(0..n)?;
    let mut y = call.output("y")?;
    let y = y.floats(0..n)?;
    scaled(x, rms_scale(x, eps), w, y);
    encode(call, y)
}

#[inline(always)]
pub(super) fn quantise(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let n = call.size("n")?;
    let x = call.input("x")?.floats(0..n)?;
    encode(call, x)
}

#[inline(always)]
pub(super) fn rotate(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let n = call.size("n")?;
    let x = call.input("x")?.floats(0..n)?;
    let mut y = call.output("y")?;
    let y = y.floats(0..n)?;
    y.copy_from_slice(x);
    format::rotate(y);
    Ok(())
}

/// Dot product in the order of one wave: lane l takes elements l, l + 32, ...; lanes pairwise.
#[inline(always)]
pub(super) fn dot_wave(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 32];
    for (a, b) in a.as_chunks::<32>().0.iter().zip(b.as_chunks::<32>().0) {
        for (acc, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *acc = a.mul_add(*b, *acc);
        }
    }
    sum_lanes(lanes)
}

/// rsqrt(mean of squares + eps) of a head, in the order of one wave.
#[inline(always)]
pub(super) fn head_scale(x: &[f32], eps: f32) -> f32 {
    rsqrt(div(dot_wave(x, x), x.len() as f32) + eps)
}

#[inline(always)]
pub(super) fn qk_norm(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let (dim, eps) = (call.size("head_dim")?, call.float("eps")?);
    for (x, w, heads) in [("q", "qw", "heads"), ("k", "kw", "kv_heads")] {
        let heads = call.size(heads)?;
        let w = call.input(w)?.floats(0..dim)?;
        let mut x = call.output(x)?;
        for head in x.floats(0..heads * dim)?.chunks_exact_mut(dim) {
            let scale = head_scale(head, eps);
            for (x, w) in head.iter_mut().zip(w) {
                *x = (*x * scale) * w;
            }
        }
    }
    Ok(())
}
