//! Between projections and attention: rotary embedding, per-head normalisation, append to the cache:
//! `kernels/hip/rope.hip`, `kernels/hip/prepare.hip`, `kernels/hip/kv.hip`.

use half::f16;
use refrain_kernels::{Dtype, Word};

use super::DecodeError;
use super::launch::{Call, Output};
use super::math::{sincos_turns, turns};
use super::norm::head_scale;

/// Rotary embedding of one launch.
struct Rotation {
    /// Per pair of elements: sine and cosine.
    angles: Vec<(f32, f32)>,
    interleaved: bool,
}

impl Rotation {
    #[inline(always)]
    fn new(call: &mut Call<'_>) -> Result<Self, DecodeError> {
        let position = call.words()?.get(Word::Pos);
        let rot_dim = call.size("rot_dim")?;
        let table: &[[f32; 2]] = call.input("table")?.slice(0..rot_dim / 2)?;
        let angle = |[hi, lo]: &[f32; 2]| sincos_turns(turns(position, (*hi, *lo)));
        Ok(Self {
            angles: table.iter().map(angle).collect(),
            interleaved: call.size("interleaved")? != 0,
        })
    }

    /// Rotates the front of a head in place.
    #[inline(always)]
    fn apply(&self, head: &mut [f32]) {
        let half = self.angles.len();
        for (j, (sin, cos)) in self.angles.iter().enumerate() {
            let (first, second) = if self.interleaved {
                (2 * j, 2 * j + 1)
            } else {
                (j, j + half)
            };
            let (Some(a), Some(b)) = (head.get(first).copied(), head.get(second).copied()) else {
                continue;
            };
            head[first] = (-b).mul_add(*sin, a * cos);
            head[second] = a.mul_add(*sin, b * cos);
        }
    }
}

#[inline(always)]
pub(super) fn rope(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let dim = call.size("head_dim")?;
    let rotation = Rotation::new(call)?;
    for (x, heads) in [("q", "heads"), ("k", "kv_heads")] {
        let heads = call.size(heads)?;
        let mut x = call.output(x)?;
        for head in x.floats(0..heads * dim)?.chunks_exact_mut(dim) {
            rotation.apply(head);
        }
    }
    Ok(())
}

/// Writes `from` to the cache from element `at` on.
#[inline(always)]
fn append(
    dtype: Option<Dtype>,
    cache: &mut Output<'_>,
    at: usize,
    from: &[f32],
) -> Result<(), DecodeError> {
    let elements = at..at + from.len();
    if dtype == Some(Dtype::F16) {
        for (to, from) in cache.slice::<u16>(elements)?.iter_mut().zip(from) {
            *to = f16::from_f32(*from).to_bits();
        }
    } else {
        cache.floats(elements)?.copy_from_slice(from);
    }
    Ok(())
}

#[inline(always)]
pub(super) fn kv_write(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let words = call.words()?;
    if words.get(Word::Done) != 0 {
        return Ok(());
    }
    let kv_dim = call.size("kv_dim")?;
    let at = words.get(Word::Pos) as usize * kv_dim;
    for (from, cache) in [("k", "kcache"), ("v", "vcache")] {
        let from = call.input(from)?.floats(0..kv_dim)?;
        append(call.row.dtype, &mut call.output(cache)?, at, from)?;
    }
    Ok(())
}

/// `norm`: weights of queries and keys, and eps.
#[inline(always)]
fn prepare(
    call: &mut Call<'_>,
    norm: Option<(&'static str, &'static str, f32)>,
) -> Result<(), DecodeError> {
    let words = call.words()?;
    if words.get(Word::Done) != 0 {
        return Ok(());
    }
    let rotation = Rotation::new(call)?;
    let (heads, kv_heads) = (call.size("heads")?, call.size("kv_heads")?);
    let (dim, stride) = (call.size("head_dim")?, call.size("q_stride")?);
    let dtype = call.row.dtype;
    let mut head = vec![0.0f32; dim];
    let make = |x: &[f32], w: Option<(&[f32], f32)>, head: &mut [f32]| {
        head.copy_from_slice(x);
        if let Some((w, eps)) = w {
            let scale = head_scale(x, eps);
            for (x, w) in head.iter_mut().zip(w) {
                *x = (*x * scale) * w;
            }
        }
        rotation.apply(head);
    };
    let weights = match norm {
        None => None,
        Some((qw, kw, eps)) => {
            let qw = call.input(qw)?.floats(0..dim)?;
            Some((qw, call.input(kw)?.floats(0..dim)?, eps))
        }
    };
    let q = call.input("q")?;
    let mut q_out = call.output("q_out")?;
    for h in 0..heads {
        let x = q.floats(h * stride..h * stride + dim)?;
        let to = q_out.floats(h * dim..(h + 1) * dim)?;
        make(x, weights.map(|(qw, _, eps)| (qw, eps)), to);
    }
    let (k, v) = (call.input("k")?, call.input("v")?);
    let (mut kcache, mut vcache) = (call.output("kcache")?, call.output("vcache")?);
    let row = words.get(Word::Pos) as usize * kv_heads * dim;
    for g in 0..kv_heads {
        let elements = g * dim..(g + 1) * dim;
        let x = k.floats(elements.clone())?;
        make(x, weights.map(|(_, kw, eps)| (kw, eps)), &mut head);
        append(dtype, &mut kcache, row + elements.start, &head)?;
        append(
            dtype,
            &mut vcache,
            row + elements.start,
            v.floats(elements)?,
        )?;
    }
    Ok(())
}

#[inline(always)]
pub(super) fn qk_norm_rope_kv(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let eps = call.float("eps")?;
    prepare(call, Some(("qw", "kw", eps)))
}

#[inline(always)]
pub(super) fn rope_kv(call: &mut Call<'_>) -> Result<(), DecodeError> {
    prepare(call, None)
}
