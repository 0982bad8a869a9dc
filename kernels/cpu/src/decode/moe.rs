//! Mixture of experts: `kernels/hip/moe.hip`.

use super::DecodeError;
use super::gemv::silu_times;
use super::launch::Call;
use super::math::{div, exp, larger, max_lanes, rcp, sum_lanes};
use super::product::{Vector, matrix, multiply, one_of, refused, vector};
use crate::int8::Activation;

/// Waves of the router's work-group.
const WAVES: usize = 8;
/// Threads of it.
const THREADS: usize = WAVES * 32;

/// Eight values as the router joins what its waves found.
#[inline(always)]
fn per_wave(threads: &[f32; THREADS], join: impl Fn([f32; 32]) -> f32) -> [f32; WAVES] {
    let mut out = [0.0; WAVES];
    for (out, lanes) in out.iter_mut().zip(threads.as_chunks::<32>().0) {
        *out = join(*lanes);
    }
    out
}

#[inline(always)]
pub(super) fn route(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let (n, top_k) = (call.size("n")?, call.size("top_k")?);
    let normalize = call.size("normalize")? != 0;
    let logits = call.input("logits")?.floats(0..n)?;
    let (mut ids, mut weights) = (call.output("ids")?, call.output("weights")?);
    let ids = ids.slice::<u32>(0..top_k)?;
    let weights = weights.floats(0..top_k)?;
    let mut tops = [f32::NEG_INFINITY; THREADS];
    for (i, logit) in logits.iter().enumerate() {
        tops[i % THREADS] = larger(*logit, tops[i % THREADS]);
    }
    let [first, rest @ ..] = per_wave(&tops, max_lanes);
    let top = rest
        .into_iter()
        .fold(first, |top, other| larger(other, top));
    let mut sums = [0.0f32; THREADS];
    let mut keys: Vec<f32> = Vec::with_capacity(n);
    for (i, logit) in logits.iter().enumerate() {
        let e = exp(*logit - top);
        sums[i % THREADS] += e;
        keys.push(e);
    }
    let [first, rest @ ..] = per_wave(&sums, sum_lanes);
    let inverse = rcp(rest.into_iter().fold(first, |sum, other| sum + other));
    for key in &mut keys {
        let p = *key * inverse;
        *key = if p.is_nan() { -1.0 } else { p };
    }
    for (id, weight) in ids.iter_mut().zip(weights.iter_mut()) {
        let (mut best, mut at) = (f32::NEG_INFINITY, 0);
        for (i, key) in keys.iter().enumerate() {
            if *key > best {
                (best, at) = (*key, i);
            }
        }
        if let Some(key) = keys.get_mut(at) {
            *key = f32::NEG_INFINITY;
        }
        // At most 1024 experts.
        *id = at as u32;
        *weight = if best < 0.0 { f32::NAN } else { best };
    }
    if normalize {
        let (first, rest) = weights
            .split_first()
            .map_or((0.0, &[][..]), |(f, r)| (*f, r));
        let total = rest.iter().fold(first, |total, weight| total + weight);
        for weight in weights {
            *weight = div(*weight, total);
        }
    }
    Ok(())
}

/// The experts chosen; ids past the last one are clamped to it.
#[inline(always)]
fn chosen(call: &mut Call<'_>, top_k: usize, experts: usize) -> Result<Vec<usize>, DecodeError> {
    let ids: &[u32] = call.input("ids")?.slice(0..top_k)?;
    let last = experts.saturating_sub(1);
    Ok(ids.iter().map(|id| (*id as usize).min(last)).collect())
}

/// Sizes of all experts: experts, chosen ones, rows of one, columns.
#[inline(always)]
fn sizes(call: &Call<'_>) -> Result<[usize; 4], DecodeError> {
    Ok([
        call.size("experts")?,
        call.size("top_k")?,
        call.size("m")?,
        call.size("k")?,
    ])
}

#[inline(always)]
pub(super) fn gemv(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let [experts, top_k, m, k] = sizes(call)?;
    let w = matrix(call, "w", experts * m, k)?;
    let x = call.input("x")?;
    let x = vector(call, &x, k)?;
    let chosen = chosen(call, top_k, experts)?;
    let mut y = call.output("y")?;
    let y = y.floats(0..top_k * m)?;
    for (expert, y) in chosen.iter().zip(y.chunks_exact_mut(m)) {
        multiply(call, &w, &x, expert * m..(expert + 1) * m, y)?;
    }
    Ok(())
}

#[inline(always)]
pub(super) fn gate_up(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let [experts, top_k, m, k] = sizes(call)?;
    let gate = matrix(call, "wg", experts * m, k)?;
    let up = matrix(call, "wu", experts * m, k)?;
    let x = call.input("x")?;
    let x = vector(call, &x, k)?;
    let chosen = chosen(call, top_k, experts)?;
    let mut y = call.output("y")?;
    let y = y.floats(0..top_k * m)?;
    let mut ups = vec![0.0; m];
    for (expert, y) in chosen.iter().zip(y.chunks_exact_mut(m)) {
        let rows = expert * m..(expert + 1) * m;
        multiply(call, &gate, &x, rows.clone(), y)?;
        multiply(call, &up, &x, rows, &mut ups)?;
        silu_times(y, &ups);
    }
    Ok(())
}

#[inline(always)]
pub(super) fn down_add(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let [experts, top_k, m, k] = sizes(call)?;
    let (r0, r1) = (call.size("r0")?, call.size("r1")?);
    let w = matrix(call, "w", experts * m, k)?;
    let x = call.input("x")?;
    let chosen = chosen(call, top_k, experts)?;
    let weights = call.input("weights")?.floats(0..top_k)?;
    let residual = call.input("residual")?.floats(r0..r1)?;
    let mut y = call.output("y")?;
    let y = y.floats(r0..r1)?;
    let (mut total, mut acc) = (vec![0.0f32; y.len()], vec![0.0f32; y.len()]);
    for (j, (expert, weight)) in chosen.iter().zip(weights).enumerate() {
        let rows = expert * m + r0..expert * m + r1;
        match call.row.habit {
            None => {
                let x = Vector::Exact(x.floats(j * k..(j + 1) * k)?);
                multiply(call, &w, &x, rows, &mut acc)?;
            }
            Some(habit) => {
                let all = x.slice(0..habit.bytes(top_k * k)?)?;
                let own = one_of(all, habit, (j, top_k), k)?;
                let codes = Activation::new(habit, &own, k);
                let codes = codes.map_err(|source| refused(call, source))?;
                multiply(call, &w, &Vector::Codes(codes), rows, &mut acc)?;
            }
        }
        for (total, acc) in total.iter_mut().zip(&acc) {
            *total = weight.mul_add(*acc, *total);
        }
    }
    for (y, (residual, total)) in y.iter_mut().zip(residual.iter().zip(&total)) {
        *y = residual + total;
    }
    Ok(())
}
