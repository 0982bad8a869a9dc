//! Embedding rows, gates and products element by element: `kernels/hip/embed.hip`,
//! `kernels/hip/elementwise.hip`, `q_gate_split` of `kernels/hip/prepare.hip`.

use refrain_kernels::format::Coding;
use refrain_kernels::{Word, decode_row};

use super::DecodeError;
use super::launch::Call;
use super::math::{sigmoid, silu};
use super::product::dtype;

#[inline(always)]
pub(super) fn embed(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let e = call.size("e")?;
    let dtype = dtype(call);
    let token = call.words()?.get(Word::Token) as usize;
    let table = call.input("table")?;
    let mut out = call.output("out")?;
    let out = out.floats(0..e)?;
    // Of a plain table only the row is looked at: how many there are is not an argument.
    let (rows, row) = match dtype.format().coding {
        Coding::Plain(_) => (token.saturating_add(1), token),
        Coding::Blocks(_) => (call.size("rows")?, token),
    };
    let bytes = dtype.device_bytes(rows as u64, e as u64)?;
    let bytes = table.slice(0..usize::try_from(bytes).unwrap_or(usize::MAX))?;
    let shape = (rows as u64, e as u64);
    Ok(decode_row(dtype, bytes, shape, row as u64, out)?)
}

/// `out = f(x, y)`, where `out` may be either.
#[inline(always)]
fn pairs(
    call: &mut Call<'_>,
    (x, y): (&'static str, &'static str),
    f: impl Fn(f32, f32) -> f32,
) -> Result<(), DecodeError> {
    let n = call.size("n")?;
    let x = call.input(x)?.floats(0..n)?;
    let y = call.input(y)?.floats(0..n)?;
    let mut out = call.output("out")?;
    for (out, (x, y)) in out.floats(0..n)?.iter_mut().zip(x.iter().zip(y)) {
        *out = f(*x, *y);
    }
    Ok(())
}

#[inline(always)]
pub(super) fn silu_mul(call: &mut Call<'_>) -> Result<(), DecodeError> {
    pairs(call, ("gate", "up"), |gate, up| silu(gate) * up)
}

#[inline(always)]
pub(super) fn sigmoid_mul(call: &mut Call<'_>) -> Result<(), DecodeError> {
    pairs(call, ("x", "gate"), |x, gate| x * sigmoid(gate))
}

#[inline(always)]
pub(super) fn gated_add(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let e = call.size("e")?;
    let gate = call.input("gate")?.floats(0..1)?;
    let sigmoid = sigmoid(gate.first().copied().unwrap_or_default());
    let x = call.input("x")?.floats(0..e)?;
    let residual = call.input("residual")?.floats(0..e)?;
    let mut y = call.output("y")?;
    for (y, (x, residual)) in y.floats(0..e)?.iter_mut().zip(x.iter().zip(residual)) {
        *y = sigmoid.mul_add(*x, *residual);
    }
    Ok(())
}

#[inline(always)]
pub(super) fn q_gate_split(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let (heads, dim) = (call.size("heads")?, call.size("head_dim")?);
    let qg = call.input("qg")?.floats(0..2 * heads * dim)?;
    let (mut q, mut gate) = (call.output("q")?, call.output("gate")?);
    let q = q.floats(0..heads * dim)?.chunks_exact_mut(dim);
    let gate = gate.floats(0..heads * dim)?.chunks_exact_mut(dim);
    for (pair, (q, gate)) in qg.chunks_exact(2 * dim).zip(q.zip(gate)) {
        let (from_q, from_gate) = pair.split_at(dim);
        q.copy_from_slice(from_q);
        gate.copy_from_slice(from_gate);
    }
    Ok(())
}
