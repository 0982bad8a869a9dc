//! Matrix times vector, plain and with what is fused to it: `kernels/hip/gemv.hip`.

use super::DecodeError;
use super::launch::Call;
use super::math::{sigmoid, silu as silu_of};
use super::product::{matrix, multiply, rows, vector};

/// `y[r0..r1] = W x`, and then what comes last: `then(acc, added)`.
#[inline(always)]
fn ranged(
    call: &mut Call<'_>,
    added: Option<&'static str>,
    then: impl Fn(f32, f32) -> f32,
) -> Result<(), DecodeError> {
    let (r0, r1, k) = (call.size("r0")?, call.size("r1")?, call.size("k")?);
    let w = rows(call, r1)?;
    let w = matrix(call, "w", w, k)?;
    let x = call.input("x")?;
    let x = vector(call, &x, k)?;
    let mut y = call.output("y")?;
    let y = y.floats(r0..r1)?;
    multiply(call, &w, &x, r0..r1, y)?;
    if let Some(added) = added {
        let added = call.input(added)?.floats(r0..r1)?;
        for (y, added) in y.iter_mut().zip(added) {
            *y = then(*y, *added);
        }
    }
    Ok(())
}

#[inline(always)]
pub(super) fn plain(call: &mut Call<'_>) -> Result<(), DecodeError> {
    ranged(call, None, |acc, _| acc)
}

#[inline(always)]
pub(super) fn add(call: &mut Call<'_>) -> Result<(), DecodeError> {
    ranged(call, Some("residual"), |acc, residual| residual + acc)
}

#[inline(always)]
pub(super) fn bias(call: &mut Call<'_>) -> Result<(), DecodeError> {
    ranged(call, Some("bias"), |acc, bias| acc + bias)
}

#[inline(always)]
pub(super) fn gated_add(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let gate = call.input("gate")?.floats(0..1)?;
    let sigmoid = sigmoid(gate.first().copied().unwrap_or_default());
    ranged(call, Some("residual"), |acc, residual| {
        sigmoid.mul_add(acc, residual)
    })
}

/// silu(gate) * up, into `gate`.
#[inline(always)]
pub(super) fn silu_times(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = silu_of(*gate) * up;
    }
}

#[inline(always)]
pub(super) fn silu(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let (r0, r1, k) = (call.size("r0")?, call.size("r1")?, call.size("k")?);
    let count = rows(call, r1)?;
    let gate = matrix(call, "wg", count, k)?;
    let up = matrix(call, "wu", count, k)?;
    let x = call.input("x")?;
    let x = vector(call, &x, k)?;
    let mut y = call.output("y")?;
    let y = y.floats(r0..r1)?;
    let mut ups = vec![0.0; y.len()];
    multiply(call, &gate, &x, r0..r1, y)?;
    multiply(call, &up, &x, r0..r1, &mut ups)?;
    silu_times(y, &ups);
    Ok(())
}

/// Names of one matrix of several: weight, output, rows, bias.
type Names = (
    &'static str,
    &'static str,
    &'static str,
    Option<&'static str>,
);

#[inline(always)]
fn several(call: &mut Call<'_>, names: &[Names]) -> Result<(), DecodeError> {
    let k = call.size("k")?;
    let x = call.input("x")?;
    let x = vector(call, &x, k)?;
    for (w, y, m, bias) in names {
        let m = call.size(m)?;
        let w = matrix(call, w, m, k)?;
        let mut y = call.output(y)?;
        let y = y.floats(0..m)?;
        multiply(call, &w, &x, 0..m, y)?;
        if let Some(bias) = bias {
            let bias = call.input(bias)?.floats(0..m)?;
            for (y, bias) in y.iter_mut().zip(bias) {
                *y += bias;
            }
        }
    }
    Ok(())
}

const WEIGHTS: [Names; 4] = [
    ("w0", "y0", "m0", None),
    ("w1", "y1", "m1", None),
    ("w2", "y2", "m2", None),
    ("w3", "y3", "m3", None),
];

#[inline(always)]
pub(super) fn two(call: &mut Call<'_>) -> Result<(), DecodeError> {
    several(call, &WEIGHTS[..2])
}

#[inline(always)]
pub(super) fn three(call: &mut Call<'_>) -> Result<(), DecodeError> {
    several(call, &WEIGHTS[..3])
}

#[inline(always)]
pub(super) fn four(call: &mut Call<'_>) -> Result<(), DecodeError> {
    several(call, &WEIGHTS)
}

#[inline(always)]
pub(super) fn three_bias(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let names = [
        ("w0", "y0", "m0", Some("b0")),
        ("w1", "y1", "m1", Some("b1")),
        ("w2", "y2", "m2", Some("b2")),
    ];
    several(call, &names)
}
