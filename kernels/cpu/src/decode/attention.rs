//! Attention of one token over the cache, whole and in parts: `kernels/hip/attention.hip`, which has
//! the written order. Heads are independent and divided over the team.

use bytemuck::AnyBitPattern;
use refrain_kernels::{Dtype, Word};

use super::DecodeError;
use super::launch::{Call, Input};
use super::math::{exp, larger, max_lanes, rcp, sigmoid, sum_lanes};
use super::product::refused;
use crate::Isa;
use crate::exact::half;

/// Positions of a tile.
const TILE: usize = 32;
/// Waves of a work-group.
const WAVES: usize = 8;
/// Largest head dimension of the catalog.
const DIM: usize = 256;

/// An element of the cache.
trait Element: AnyBitPattern + Sync {
    fn wide(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }
}

/// IEEE binary16 by its bits.
impl Element for u16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        half(self)
    }
}

/// What one wave holds: maximum score, and sum and weighted values relative to it.
struct Wave {
    top: f32,
    total: f32,
    value: [f32; DIM],
}

/// What every head of a launch shares.
struct Context<'m, T> {
    keys: &'m [T],
    values: &'m [T],
    /// Positions in the cache, this one included.
    len: usize,
    dim: usize,
    kv_heads: usize,
    heads: usize,
    scale: f32,
}

impl<T: Element> Context<'_, T> {
    /// Scores of a tile's positions from `start` on, one per lane: dims ascending by fma, times scale.
    #[inline(always)]
    fn scores(&self, query: &[f32], kv_head: usize, start: usize) -> [f32; TILE] {
        let stride = self.kv_heads * self.dim;
        let valid = (self.len - start).min(TILE);
        let mut scores = [f32::NEG_INFINITY; TILE];
        // Eight positions at a time, as many chains of fma.
        for base in (0..valid).step_by(8) {
            let row = |lane: usize| {
                let position = start + (base + lane).min(valid - 1);
                let from = position * stride + kv_head * self.dim;
                &self.keys[from..from + self.dim]
            };
            let rows: [&[T]; 8] = std::array::from_fn(row);
            let mut acc = [0.0f32; 8];
            for (d, q) in query.iter().enumerate() {
                for (acc, row) in acc.iter_mut().zip(&rows) {
                    *acc = q.mul_add(row[d].wide(), *acc);
                }
            }
            for (lane, acc) in acc.iter().enumerate().take(valid - base) {
                scores[base + lane] = acc * self.scale;
            }
        }
        scores
    }

    /// One tile added to a wave.
    #[inline(always)]
    fn tile(&self, wave: &mut Wave, query: &[f32], kv_head: usize, start: usize) {
        let scores = self.scores(query, kv_head, start);
        let valid = (self.len - start).min(TILE);
        let top = larger(wave.top, max_lanes(scores));
        let c = exp(wave.top - top);
        let mut p = [0.0f32; TILE];
        for (p, score) in p.iter_mut().zip(scores) {
            *p = exp(score - top);
        }
        wave.total = wave.total.mul_add(c, sum_lanes(p));
        wave.top = top;
        let value = &mut wave.value[..self.dim];
        for value in value.iter_mut() {
            *value *= c;
        }
        let stride = self.kv_heads * self.dim;
        for (n, p) in p.iter().enumerate().take(valid) {
            let from = (start + n) * stride + kv_head * self.dim;
            for (value, v) in value.iter_mut().zip(&self.values[from..from + self.dim]) {
                *value = p.mul_add(v.wide(), *value);
            }
        }
    }

    /// Tiles `first + wave`, stepping by `8 * parts`, of one query head, and the merge of the waves.
    /// `None` if there is no tile.
    #[inline(always)]
    fn attend(&self, query: &[f32], head: usize, first: usize, parts: usize) -> Option<Wave> {
        let tiles = self.len.div_ceil(TILE);
        let kv_head = head * self.kv_heads / self.heads;
        let waves = tiles.checked_sub(first).filter(|n| *n > 0)?.min(WAVES);
        let mut each: [Wave; WAVES] = std::array::from_fn(|_| Wave {
            top: f32::NEG_INFINITY,
            total: 0.0,
            value: [0.0; DIM],
        });
        for (number, wave) in each.iter_mut().enumerate().take(waves) {
            for tile in (first + number..tiles).step_by(WAVES * parts) {
                self.tile(wave, query, kv_head, tile * TILE);
            }
        }
        let each = &each[..waves];
        let top = each[1..]
            .iter()
            .fold(each[0].top, |top, w| larger(top, w.top));
        let mut merged = Wave {
            top,
            total: 0.0,
            value: [0.0; DIM],
        };
        for wave in each {
            let w = exp(wave.top - top);
            merged.total = w.mul_add(wave.total, merged.total);
            let values = merged.value.iter_mut().zip(&wave.value).take(self.dim);
            for (merged, value) in values {
                *merged = w.mul_add(*value, *merged);
            }
        }
        Some(merged)
    }
}

/// Runs `$body` compiled for an instruction set: closures on other threads do not inherit the
/// caller's.
macro_rules! compiled {
    ($name:ident, $body:path, ($($arg:ident: $type:ty),*)) => {
        fn $name<T: Element>(isa: Isa, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2<T: Element>($($arg: $type),*) {
                $body($($arg),*);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
            fn avx512<T: Element>($($arg: $type),*) {
                $body($($arg),*);
            }
            match isa.min(Isa::best()) {
                Isa::Scalar => $body($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: at most `Isa::best()`, which is Avx2 only where those features were detected.
                Isa::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above, for Avx512.
                Isa::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(not(target_arch = "x86_64"))]
                _ => $body($($arg),*),
            }
        }
    };
}

#[inline(always)]
fn whole_heads<T: Element>(context: &Context<'_, T>, q: &[f32], from: usize, out: &mut [f32]) {
    let heads = out
        .chunks_exact_mut(context.dim)
        .zip(q.chunks_exact(context.dim));
    for (index, (out, query)) in heads.enumerate() {
        if let Some(found) = context.attend(query, from / context.dim + index, 0, 1) {
            let inverse = rcp(found.total);
            for (out, value) in out.iter_mut().zip(&found.value) {
                *out = value * inverse;
            }
        }
    }
}
compiled!(
    run_whole_heads,
    whole_heads,
    (context: &Context<'_, T>, q: &[f32], from: usize, out: &mut [f32])
);

/// The cache of a launch and its shape.
fn context<'m, T: Element>(
    call: &Call<'_>,
    (keys, values): (&Input<'m>, &Input<'m>),
) -> Result<Context<'m, T>, DecodeError> {
    let dim = call.row.head_dim.unwrap_or_default() as usize;
    let (heads, kv_heads) = (call.size("heads")?, call.size("kv_heads")?);
    let len = call.words()?.get(Word::Pos) as usize + 1;
    let elements = 0..len.saturating_mul(kv_heads * dim);
    Ok(Context {
        keys: keys.slice(elements.clone())?,
        values: values.slice(elements)?,
        len,
        dim: dim.min(DIM),
        kv_heads,
        heads,
        scale: call.float("scale")?,
    })
}

#[inline(always)]
fn decode_of<T: Element>(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let cache = (&call.input("kcache")?, &call.input("vcache")?);
    let context = context::<T>(call, cache)?;
    let n = context.heads * context.dim;
    let q = call.input("q")?.floats(0..n)?;
    let mut out = call.output("out")?;
    let out = out.floats(0..n)?;
    let isa = call.engine.isa();
    let done = call
        .engine
        .pool()
        .rows(0..n, context.dim, out, |elements, out| {
            run_whole_heads(isa, &context, &q[elements.clone()], elements.start, out);
            Ok(())
        });
    done.map_err(|source| refused(call, source))
}

#[inline(always)]
pub(super) fn decode(call: &mut Call<'_>) -> Result<(), DecodeError> {
    if call.row.dtype == Some(Dtype::F16) {
        decode_of::<u16>(call)
    } else {
        decode_of::<f32>(call)
    }
}

#[inline(always)]
fn split_of<T: Element>(call: &mut Call<'_>) -> Result<(), DecodeError> {
    let cache = (&call.input("kcache")?, &call.input("vcache")?);
    let context = context::<T>(call, cache)?;
    let splits = call.size("splits")?;
    let (dim, heads) = (context.dim, context.heads);
    let q = call.input("q")?.floats(0..heads * dim)?;
    let (mut part, mut stats) = (call.output("part")?, call.output("stats")?);
    let part = part.floats(0..heads * splits * dim)?.chunks_exact_mut(dim);
    let stats: &mut [[f32; 2]] = stats.slice(0..heads * splits)?;
    for (index, (part, stats)) in part.zip(stats).enumerate() {
        let (head, split) = (index / splits, index % splits);
        let query = &q[head * dim..(head + 1) * dim];
        // A part without a tile stores nothing and is not read.
        if let Some(found) = context.attend(query, head, split * WAVES, splits) {
            part.copy_from_slice(&found.value[..dim]);
            *stats = [found.top, found.total];
        }
    }
    Ok(())
}

#[inline(always)]
pub(super) fn split(call: &mut Call<'_>) -> Result<(), DecodeError> {
    if call.row.dtype == Some(Dtype::F16) {
        split_of::<u16>(call)
    } else {
        split_of::<f32>(call)
    }
}

/// Merge of the parts; the gate of a head lies behind its query in `[heads][2][head_dim]`.
#[inline(always)]
fn merged(call: &mut Call<'_>, gates: Option<&'static str>) -> Result<(), DecodeError> {
    let (heads, dim) = (call.size("heads")?, call.size("head_dim")?);
    let splits = call.size("splits")?;
    let position = call.words()?.get(Word::Pos) as usize;
    // Parts with a tile: one per 256 positions.
    let parts = position.saturating_add(256).div_euclid(256).min(splits);
    let all = call.input("part")?.floats(0..heads * splits * dim)?;
    let stats: &[[f32; 2]] = call.input("stats")?.slice(0..heads * splits)?;
    let gates = match gates {
        None => None,
        Some(arg) => Some(call.input(arg)?.floats(0..2 * heads * dim)?),
    };
    let mut out = call.output("out")?;
    let out = out.floats(0..heads * dim)?;
    let mut value = vec![0.0f32; dim];
    for (head, out) in out.chunks_exact_mut(dim).enumerate() {
        let stats = &stats[head * splits..head * splits + parts];
        let top = stats[1..]
            .iter()
            .fold(stats[0][0], |top, stat| larger(top, stat[0]));
        let mut total = 0.0f32;
        value.fill(0.0);
        for (index, [part_top, part_total]) in stats.iter().enumerate() {
            let w = exp(part_top - top);
            total = w.mul_add(*part_total, total);
            let from = (head * splits + index) * dim;
            for (value, part) in value.iter_mut().zip(&all[from..from + dim]) {
                *value = w.mul_add(*part, *value);
            }
        }
        let inverse = rcp(total);
        for (out, value) in out.iter_mut().zip(&value) {
            *out = value * inverse;
        }
        if let Some(gates) = gates {
            let from = (2 * head + 1) * dim;
            for (out, gate) in out.iter_mut().zip(&gates[from..from + dim]) {
                *out *= sigmoid(*gate);
            }
        }
    }
    Ok(())
}

#[inline(always)]
pub(super) fn merge(call: &mut Call<'_>) -> Result<(), DecodeError> {
    merged(call, None)
}

#[inline(always)]
pub(super) fn merge_gated(call: &mut Call<'_>) -> Result<(), DecodeError> {
    merged(call, Some("qg"))
}
