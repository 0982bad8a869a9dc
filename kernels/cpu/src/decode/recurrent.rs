//! Recurrent mixers: the gated delta rule in parts and in one launch, and the short convolution:
//! `kernels/hip/recurrent.hip`. Nothing is written to a state once the text has ended.

use refrain_kernels::Word;

use super::DecodeError;
use super::launch::Call;
use super::math::{exp, rsqrt, sigmoid, silu, softplus};
use super::norm::{dot_wave, head_scale};

/// Largest head dimension of the catalog.
const DIM: usize = 128;

/// Position, or `None` once the text has ended.
#[inline(always)]
fn position(call: &Call<'_>) -> Result<Option<usize>, DecodeError> {
    let words = call.words()?;
    Ok((words.get(Word::Done) == 0).then_some(words.get(Word::Pos) as usize))
}

/// The input of channel `c` `back` steps ago, zero before the text.
#[inline(always)]
fn tap(ring: &[f32], channels: usize, c: usize, position: usize, back: usize) -> f32 {
    match position.checked_sub(back) {
        Some(past) => ring[(past & 3) * channels + c],
        None => 0.0,
    }
}

/// Causal depthwise convolution over four positions, then SiLU: oldest tap first.
#[inline(always)]
fn conv4_silu(
    m: f32,
    w: &[f32; 4],
    ring: &[f32],
    (channels, c): (usize, usize),
    position: usize,
) -> f32 {
    let acc = w[0] * tap(ring, channels, c, position, 3);
    let acc = w[1].mul_add(tap(ring, channels, c, position, 2), acc);
    let acc = w[2].mul_add(tap(ring, channels, c, position, 1), acc);
    silu(w[3].mul_add(m, acc))
}

#[inline(always)]
pub(super) fn conv_silu(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let Some(position) = position(call)? else {
        return Ok(());
    };
    let channels = call.size("channels")?;
    let m = call.input("m")?.floats(0..channels)?;
    let w: &[[f32; 4]] = call.input("conv_w")?.slice(0..channels)?;
    let (mut ring, mut u) = (call.output("conv_state")?, call.output("u")?);
    let ring = ring.floats(0..4 * channels)?;
    for (c, u) in u.floats(0..channels)?.iter_mut().enumerate() {
        *u = conv4_silu(m[c], &w[c], ring, (channels, c), position);
        ring[(position & 3) * channels + c] = m[c];
    }
    Ok(())
}

#[inline(always)]
pub(super) fn short_conv(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let Some(position) = position(call)? else {
        return Ok(());
    };
    let e = call.size("e")?;
    let bcx = call.input("bcx")?.floats(0..3 * e)?;
    let w: &[[f32; 3]] = call.input("conv_w")?.slice(0..e)?;
    let (mut ring, mut out) = (call.output("conv_state")?, call.output("out")?);
    let ring = ring.floats(0..4 * e)?;
    for (c, out) in out.floats(0..e)?.iter_mut().enumerate() {
        let s = bcx[c] * bcx[2 * e + c];
        let acc = w[c][0] * tap(ring, e, c, position, 2);
        let acc = w[c][1].mul_add(tap(ring, e, c, position, 1), acc);
        *out = bcx[e + c] * w[c][2].mul_add(s, acc);
        ring[(position & 3) * e + c] = s;
    }
    Ok(())
}

/// x * rsqrt(sum of squares + eps), then times `scale`.
#[inline(always)]
fn l2_head(x: &mut [f32], eps: f32, scale: f32) {
    let inverse = rsqrt(dot_wave(x, x) + eps);
    for x in x {
        *x = (*x * inverse) * scale;
    }
}

#[inline(always)]
pub(super) fn l2_norm(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let (nk, dim) = (call.size("nk")?, call.size("head_dim")?);
    let (eps, scale) = (call.float("eps")?, call.float("scale")?);
    let mut u = call.output("u")?;
    let heads = u.floats(0..2 * nk * dim)?.chunks_exact_mut(dim);
    for (h, head) in heads.enumerate() {
        l2_head(head, eps, if h < nk { scale } else { 1.0 });
    }
    Ok(())
}

/// Normalised values times weight and silu(z), head by head.
#[inline(always)]
fn gated(o: &[f32], scale: f32, w: &[f32], z: &[f32], y: &mut [f32]) {
    for (i, y) in y.iter_mut().enumerate() {
        *y = ((o[i] * scale) * w[i]) * silu(z[i]);
    }
}

#[inline(always)]
pub(super) fn gated_norm(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let (heads, dim) = (call.size("heads")?, call.size("head_dim")?);
    let eps = call.float("norm_eps")?;
    let o = call.input("o")?.floats(0..heads * dim)?;
    let w = call.input("norm_w")?.floats(0..dim)?;
    let z = call.input("z")?.floats(0..heads * dim)?;
    let mut y = call.output("y")?;
    let y = y.floats(0..heads * dim)?.chunks_exact_mut(dim);
    for ((o, z), y) in o.chunks_exact(dim).zip(z.chunks_exact(dim)).zip(y) {
        gated(o, head_scale(o, eps), w, z, y);
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Gates {
    decay: f32,
    beta: f32,
}

#[inline(always)]
fn gates(a: f32, b: f32, a_log: f32, dt_bias: f32) -> Gates {
    Gates {
        decay: exp(a_log * softplus(a + dt_bias)),
        beta: sigmoid(b),
    }
}

#[inline(always)]
pub(super) fn delta_gates(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let nv = call.size("nv")?;
    let a = call.input("a")?.floats(0..nv)?;
    let b = call.input("b")?.floats(0..nv)?;
    let a_log = call.input("a_log")?.floats(0..nv)?;
    let dt_bias = call.input("dt_bias")?.floats(0..nv)?;
    let (mut decay, mut beta) = (call.output("decay")?, call.output("beta")?);
    let (decay, beta) = (decay.floats(0..nv)?, beta.floats(0..nv)?);
    for j in 0..nv {
        let found = gates(a[j], b[j], a_log[j], dt_bias[j]);
        (decay[j], beta[j]) = (found.decay, found.beta);
    }
    Ok(())
}

/// One step of the recurrence of a head: `state` is `[key][value]`, `o` the result.
///
/// Order per column: ROWS = 1024 / D partial sums, row i to sum i mod ROWS, rows ascending by fma from
/// +0; the sums ascending.
#[inline(always)]
fn step(
    state: &mut [f32],
    (q, k, v): (&[f32], &[f32], &[f32]),
    gates: Gates,
    position: usize,
    o: &mut [f32],
) {
    let dim = o.len();
    if position == 0 {
        state.fill(0.0);
    }
    let sums = 1024 / dim;
    let (mut p, mut y) = ([0.0f32; DIM], [0.0f32; DIM]);
    let (p, y) = (&mut p[..dim], &mut y[..dim]);
    for first in 0..sums {
        let (mut sk, mut sq) = ([0.0f32; DIM], [0.0f32; DIM]);
        for i in (first..dim).step_by(sums) {
            let row = &state[i * dim..(i + 1) * dim];
            for c in 0..dim {
                sk[c] = row[c].mul_add(k[i], sk[c]);
                sq[c] = row[c].mul_add(q[i], sq[c]);
            }
        }
        for c in 0..dim {
            (p[c], y[c]) = if first == 0 {
                (sk[c], sq[c])
            } else {
                (p[c] + sk[c], y[c] + sq[c])
            };
        }
    }
    let qk = dot_wave(q, k);
    let mut d = [0.0f32; DIM];
    for c in 0..dim {
        d[c] = gates.beta * (-gates.decay).mul_add(p[c], v[c]);
        o[c] = qk.mul_add(d[c], gates.decay * y[c]);
    }
    for (row, k) in state.chunks_exact_mut(dim).zip(k) {
        for c in 0..dim {
            row[c] = k.mul_add(d[c], gates.decay * row[c]);
        }
    }
}

/// The key head of value head `j`.
#[inline(always)]
const fn key_head(j: usize, nk: usize, nv: usize, tiled: bool) -> usize {
    if tiled { j % nk } else { j * nk / nv }
}

/// Sizes of a recurrence: head dimension, key heads, value heads, whether heads are tiled.
#[inline(always)]
fn shape(call: &Call<'_>) -> Result<(usize, usize, usize, bool), DecodeError> {
    let dim = call.row.head_dim.unwrap_or_default() as usize;
    let tiled = call.size("tiled")? != 0;
    Ok((dim.min(DIM), call.size("nk")?, call.size("nv")?, tiled))
}

#[inline(always)]
pub(super) fn delta_step(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let Some(position) = position(call)? else {
        return Ok(());
    };
    let (dim, nk, nv, tiled) = shape(call)?;
    let u = call.input("u")?.floats(0..(2 * nk + nv) * dim)?;
    let decay = call.input("decay")?.floats(0..nv)?;
    let beta = call.input("beta")?.floats(0..nv)?;
    let (mut state, mut o) = (call.output("state")?, call.output("o")?);
    let states = state.floats(0..nv * dim * dim)?.chunks_exact_mut(dim * dim);
    let heads = states.zip(o.floats(0..nv * dim)?.chunks_exact_mut(dim));
    let head = |h: usize| &u[h * dim..(h + 1) * dim];
    for (j, (state, o)) in heads.enumerate() {
        let key = key_head(j, nk, nv, tiled);
        let vectors = (head(key), head(nk + key), head(2 * nk + j));
        let gates = Gates {
            decay: decay[j],
            beta: beta[j],
        };
        step(state, vectors, gates, position, o);
    }
    Ok(())
}

#[inline(always)]
pub(super) fn delta_net(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let Some(position) = position(call)? else {
        return Ok(());
    };
    let (dim, nk, nv, tiled) = shape(call)?;
    let (eps, scale) = (call.float("eps")?, call.float("scale")?);
    let norm_eps = call.float("norm_eps")?;
    let channels = (2 * nk + nv) * dim;
    let m = call.input("m")?.floats(0..channels)?;
    let z = call.input("z")?.floats(0..nv * dim)?;
    let a = call.input("a")?.floats(0..nv)?;
    let b = call.input("b")?.floats(0..nv)?;
    let conv_w: &[[f32; 4]] = call.input("conv_w")?.slice(0..channels)?;
    let a_log = call.input("a_log")?.floats(0..nv)?;
    let dt_bias = call.input("dt_bias")?.floats(0..nv)?;
    let norm_w = call.input("norm_w")?.floats(0..dim)?;
    let mut ring = call.output("conv_state")?;
    let ring = ring.floats(0..4 * channels)?;
    let (mut state, mut y) = (call.output("state")?, call.output("y")?);
    // Every channel belongs to one head, so each is convolved once, before any head is worked on.
    let mut u = vec![0.0f32; channels];
    for (c, u) in u.iter_mut().enumerate() {
        *u = conv4_silu(m[c], &conv_w[c], ring, (channels, c), position);
        ring[(position & 3) * channels + c] = m[c];
    }
    let (keys, values) = u.split_at_mut(2 * nk * dim);
    for (h, head) in keys.chunks_exact_mut(dim).enumerate() {
        l2_head(head, eps, if h < nk { scale } else { 1.0 });
    }
    let states = state.floats(0..nv * dim * dim)?.chunks_exact_mut(dim * dim);
    let heads = states.zip(y.floats(0..nv * dim)?.chunks_exact_mut(dim));
    let mut o = [0.0f32; DIM];
    let o = &mut o[..dim];
    for (j, (state, y)) in heads.enumerate() {
        let key = key_head(j, nk, nv, tiled);
        let vectors = (
            &keys[key * dim..(key + 1) * dim],
            &keys[(nk + key) * dim..(nk + key + 1) * dim],
            &values[j * dim..(j + 1) * dim],
        );
        let gates = gates(a[j], b[j], a_log[j], dt_bias[j]);
        step(state, vectors, gates, position, o);
        let scale = head_scale(o, norm_eps);
        gated(o, scale, norm_w, &z[j * dim..(j + 1) * dim], y);
    }
    Ok(())
}
