//! The loops over packed rows: one for all instruction sets ([`Wide`]) and formats ([`Layout`]).

use std::ops::Range;

use super::packed::{Packed16, ROWS};
use super::wide::{Portable, Wide};
use super::{Activation, Kind, Layout, PARTIALS, Scaling, Sums, Write};
use crate::Isa;

type Weight<'w> = (&'w Packed16<'w>, &'w Layout);

const NIBBLES: u32 = 0x0f0f_0f0f;
const BYTES: u8 = Kind::Bytes as u8;
const FOUR: u8 = Kind::Four as u8;
const TABLE: u8 = Kind::Table as u8;
const FIVE: u8 = Kind::Five as u8;
const SIX: u8 = Kind::Six as u8;

/// The first N bytes from `at` on; packed blocks are as long as their layout says.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..at + N].first_chunk().unwrap_or(&[0; N])
}

/// Integers of group `j` of 32 elements of a block: those of its first and second 16. `index` is the
/// group's number in the activation.
#[inline(always)]
fn group<W: Wide, const KIND: u8>(
    w: W,
    layout: &Layout,
    words: &[[u8; 64]],
    x: &Activation<'_>,
    (j, index): (usize, usize),
) -> (W::I, W::I) {
    let (q, sums) = x.group(index);
    let bias = match KIND {
        BYTES | TABLE => W::SIGNED_BIAS,
        _ => layout.zero,
    };
    let (mut low, mut high) = (w.splat(-bias * sums[0]), w.splat(-bias * sums[1]));
    if KIND == BYTES {
        let words = &words[8 * j..8 * j + 8];
        for c in 0..4 {
            low = w.dot_signed(low, w.load(&words[c]), q[c]);
            high = w.dot_signed(high, w.load(&words[c + 4]), q[c + 4]);
        }
        return (low, high);
    }
    // Words of the higher bits follow all nibbles of the block.
    let above = layout.block / 8;
    let nibbles = &words[4 * j..4 * j + 4];
    for c in 0..4 {
        let v = w.load(&nibbles[c]);
        let mut a = w.bits(v, 0, NIBBLES);
        let mut b = w.bits(v, 4, NIBBLES);
        match KIND {
            FIVE => {
                let h = w.load(&words[above + j]);
                a = w.or(a, w.up4(w.bits(h, c as u32, 0x0101_0101)));
                b = w.or(b, w.up4(w.bits(h, c as u32 + 4, 0x0101_0101)));
            }
            SIX => {
                let h = [
                    w.load(&words[above + 2 * j]),
                    w.load(&words[above + 2 * j + 1]),
                ];
                a = w.or(a, w.up4(w.bits(h[0], 2 * c as u32, 0x0303_0303)));
                b = w.or(b, w.up4(w.bits(h[1], 2 * c as u32, 0x0303_0303)));
            }
            _ => {}
        }
        if KIND == TABLE {
            low = w.dot_signed(low, w.lookup(&layout.table, a), q[c]);
            high = w.dot_signed(high, w.lookup(&layout.table, b), q[c + 4]);
        } else {
            low = w.dot(low, a, q[c]);
            high = w.dot(high, b, q[c + 4]);
        }
    }
    (low, high)
}

/// Calls `unit` with number, isum, msum and parameters of every unit of sixteen rows.
#[inline(always)]
fn units<W: Wide, const KIND: u8>(
    w: W,
    layout: &Layout,
    run: &[u8],
    x: &Activation<'_>,
    mut unit: impl FnMut(usize, W::I, W::I, &[u8]),
) {
    let groups = layout.block / 32;
    let size = ROWS * (4 * layout.words + layout.params);
    let whole = |words: &[[u8; 64]], j: usize, block: usize| {
        let (low, high) = group::<W, KIND>(w, layout, words, x, (j, block * groups + j));
        w.add(low, high)
    };
    for (block, bytes) in run.chunks_exact(size).enumerate() {
        let (codes, params) = bytes.split_at(ROWS * 4 * layout.words);
        let (words, _) = codes.as_chunks::<64>();
        let (mut isum, mut msum) = (w.splat(0), w.splat(0));
        match layout.scaling {
            Scaling::D | Scaling::DM | Scaling::E8m0 => isum = whole(words, 0, block),
            Scaling::KMins => {
                for j in 0..groups {
                    let scale = w.unsigned(part(params, 32 * j));
                    let min = w.unsigned(part(params, 32 * j + 16));
                    isum = w.add(isum, w.mul(whole(words, j, block), scale));
                    let sum = w.splat(x.sum32(block * groups + j));
                    msum = w.add(msum, w.mul(min, sum));
                }
            }
            Scaling::KSigned => {
                for j in 0..groups {
                    let place = (j, block * groups + j);
                    let (low, high) = group::<W, KIND>(w, layout, words, x, place);
                    isum = w.add(isum, w.mul(low, w.signed(part(params, 32 * j))));
                    isum = w.add(isum, w.mul(high, w.signed(part(params, 32 * j + 16))));
                }
            }
            Scaling::Singles | Scaling::Halves => {
                let (per, mut sum) = (layout.unit / 32, 0);
                for j in 0..groups {
                    isum = w.add(isum, whole(words, j, block));
                    sum += x.sum32(block * groups + j);
                    if (j + 1).is_multiple_of(per) {
                        let index = (block * groups + j) / per;
                        let params = &params[j / per * 64..];
                        unit(index, isum, w.splat(sum), params);
                        (isum, sum) = (w.splat(0), 0);
                    }
                }
                continue;
            }
        }
        unit(block, isum, msum, params);
    }
}

/// 2^(e - 128) of every exponent byte.
static E8M0: [f32; 256] = {
    let (mut table, mut e) = ([0.0; 256], 0u32);
    while e < 256 {
        let bits = if e < 2 {
            0x0020_0000 << e
        } else {
            (e - 1) << 23
        };
        table[e as usize] = f32::from_bits(bits);
        e += 1;
    }
    table
};

/// 2^(e - 128).
pub(super) fn e8m0(e: u8) -> f32 {
    E8M0[usize::from(e)]
}

/// Adds a unit to its partial, in the written order.
#[inline(always)]
fn scale<W: Wide>(
    w: W,
    layout: &Layout,
    x: &Activation<'_>,
    unit: usize,
    (isum, msum, params): (W::I, W::I, &[u8]),
    p: W::F,
) -> W::F {
    let d = x.d()[unit * layout.unit / x.habit().block()];
    let isum = w.float(isum);
    let scaled = |a: W::F| w.fma(w.fmul(a, w.fsplat(d)), isum, p);
    let less = |m: W::F, d: f32, p: W::F| w.fma(w.fmul(m, w.fsplat(d)), w.float(msum), p);
    match layout.scaling {
        Scaling::D => scaled(w.halves(part(params, 0))),
        Scaling::DM => {
            let p = scaled(w.halves(part(params, 0)));
            w.fma(w.halves(part(params, 32)), w.fsplat(x.s()[unit]), p)
        }
        Scaling::E8m0 => scaled(w.floats(part::<16>(params, 0).map(e8m0))),
        Scaling::KMins => {
            let p = scaled(w.halves(part(params, 256)));
            less(w.halves(part(params, 288)), -d, p)
        }
        Scaling::KSigned => scaled(w.halves(part(params, 256))),
        Scaling::Singles => {
            let p = scaled(w.singles(part(params, 0)));
            less(w.singles(part(params, 64)), d, p)
        }
        Scaling::Halves => {
            let p = scaled(w.halves(part(params, 0)));
            less(w.halves(part(params, 32)), d, p)
        }
    }
}

#[inline(always)]
fn runs<W: Wide, const KIND: u8>(
    w: W,
    (packed, layout): Weight<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) {
    let first = rows.start / ROWS;
    for run in first..rows.end.div_ceil(ROWS) {
        let mut p = [w.fsplat(0.0); PARTIALS];
        units::<W, KIND>(w, layout, packed.run(run), x, |unit, isum, msum, params| {
            let p = &mut p[unit % PARTIALS];
            *p = scale(w, layout, x, unit, (isum, msum, params), *p);
        });
        for step in [4, 2, 1] {
            for i in 0..step {
                p[i] = w.fadd(p[i], p[i + step]);
            }
        }
        let sums = w.array(p[0]);
        let (from, to) = (rows.start.max(run * ROWS), rows.end.min((run + 1) * ROWS));
        let out = &mut y[from - rows.start..to - rows.start];
        for (y, sum) in out.iter_mut().zip(&sums[from - run * ROWS..]) {
            *y = match write {
                Write::Set => *sum,
                Write::Add => *y + *sum,
            };
        }
    }
}

#[inline(always)]
fn any<W: Wide>(
    w: W,
    weight: Weight<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) {
    match weight.1.kind {
        Kind::Bytes => runs::<W, BYTES>(w, weight, x, rows, write, y),
        Kind::Four => runs::<W, FOUR>(w, weight, x, rows, write, y),
        Kind::Table => runs::<W, TABLE>(w, weight, x, rows, write, y),
        Kind::Five => runs::<W, FIVE>(w, weight, x, rows, write, y),
        Kind::Six => runs::<W, SIX>(w, weight, x, rows, write, y),
    }
}

#[inline(always)]
fn collect<W: Wide>(
    w: W,
    (packed, layout): Weight<'_>,
    x: &Activation<'_>,
    run: usize,
) -> Vec<[Sums; ROWS]> {
    let mut all = Vec::new();
    let keep = |_: usize, isum: W::I, msum: W::I, _: &[u8]| {
        let (isum, msum) = (w.ints(isum), w.ints(msum));
        all.push(std::array::from_fn(|row| Sums {
            isum: isum[row],
            msum: msum[row],
        }));
    };
    let run = packed.run(run);
    match layout.kind {
        Kind::Bytes => units::<W, BYTES>(w, layout, run, x, keep),
        Kind::Four => units::<W, FOUR>(w, layout, run, x, keep),
        Kind::Table => units::<W, TABLE>(w, layout, run, x, keep),
        Kind::Five => units::<W, FIVE>(w, layout, run, x, keep),
        Kind::Six => units::<W, SIX>(w, layout, run, x, keep),
    }
    all
}

#[cfg(target_arch = "x86_64")]
use super::wide_x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn any_avx2(
    w: Avx2,
    weight: Weight<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) {
    any(w, weight, x, rows, write, y);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn any_avx512(
    w: Avx512,
    weight: Weight<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) {
    any(w, weight, x, rows, write, y);
}

pub(super) fn gemv(
    isa: Isa,
    weight: Weight<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(w) = Avx512::for_isa(isa) {
            // SAFETY: an Avx512 exists only where all of its features were detected.
            unsafe { any_avx512(w, weight, x, rows, write, y) };
            return;
        }
        if let Some(w) = Avx2::for_isa(isa) {
            // SAFETY: an Avx2 exists only where all of its features were detected.
            unsafe { any_avx2(w, weight, x, rows, write, y) };
            return;
        }
    }
    let _ = isa;
    any(Portable, weight, x, rows, write, y);
}

pub(super) fn sums(
    isa: Isa,
    weight: Weight<'_>,
    x: &Activation<'_>,
    run: usize,
) -> Vec<[Sums; ROWS]> {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(w) = Avx512::for_isa(isa) {
            return collect(w, weight, x, run);
        }
        if let Some(w) = Avx2::for_isa(isa) {
            return collect(w, weight, x, run);
        }
    }
    let _ = isa;
    collect(Portable, weight, x, run)
}
