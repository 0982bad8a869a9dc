//! The loops over packed rows: one for all instruction sets ([`Wide`]) and formats ([`Layout`]).

use std::ops::Range;

use super::packed::{Packed16, ROWS};
use super::wide::{Portable, Wide};
use super::{Activation, Kind, Layout, PARTIALS, Scaling, Sums, Write, specialise};
use crate::Isa;

type Weight<'w> = (&'w Packed16<'w>, &'w Layout);

const NIBBLES: u32 = 0x0f0f_0f0f;
const BYTES: u8 = Kind::Bytes as u8;
const TABLE: u8 = Kind::Table as u8;
const FIVE: u8 = Kind::Five as u8;
const SIX: u8 = Kind::Six as u8;
const D: u8 = Scaling::D as u8;
const DM: u8 = Scaling::DM as u8;
const E8M0: u8 = Scaling::E8m0 as u8;
const K_MINS: u8 = Scaling::KMins as u8;
const K_SIGNED: u8 = Scaling::KSigned as u8;
const SINGLES: u8 = Scaling::Singles as u8;

/// The first N bytes from `at` on; packed blocks are as long as their layout says.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..at + N].first_chunk().unwrap_or(&[0; N])
}

/// An activation, and what the sums of each group's halves start from: less the offset of the codes.
struct Input<'a> {
    x: &'a Activation<'a>,
    starts: Vec<[i32; 2]>,
}

impl<'a> Input<'a> {
    fn of<W: Wide>(layout: &Layout, x: &'a Activation<'a>) -> Self {
        let bias = match layout.kind {
            Kind::Bytes | Kind::Table => W::SIGNED_BIAS,
            _ => layout.zero,
        };
        let start = |sums: &[i32; 2]| [-bias * sums[0], -bias * sums[1]];
        let starts = x.halves().iter().map(start).collect();
        Self { x, starts }
    }
}

/// Bytes of codes of a group of 32 elements in sixteen rows; its parameters follow.
const fn code_bytes(kind: u8) -> usize {
    match kind {
        BYTES => 512,
        FIVE => 256 + 64,
        SIX => 256 + 128,
        _ => 256,
    }
}

/// Integers of a group of 32 elements: those of its first and second 16. `bytes` starts with its codes,
/// `index` is its number in the activation.
#[inline(always)]
fn group<W: Wide, const KIND: u8>(
    w: W,
    layout: &Layout,
    bytes: &[u8],
    x: &Input<'_>,
    index: usize,
) -> (W::I, W::I) {
    let (q, starts) = (&x.x.groups()[index], &x.starts[index]);
    let (mut low, mut high) = (w.splat(starts[0]), w.splat(starts[1]));
    // A slice of known length: no bounds are checked below.
    let (words, _) = bytes[..code_bytes(KIND)].as_chunks::<64>();
    if KIND == BYTES {
        for c in 0..4 {
            low = w.dot_signed(low, w.load(&words[c]), q[c]);
            high = w.dot_signed(high, w.load(&words[c + 4]), q[c + 4]);
        }
        return (low, high);
    }
    let (nibbles, above) = words.split_at(4);
    for c in 0..4 {
        let v = w.load(&nibbles[c]);
        let mut a = w.bits(v, 0, NIBBLES);
        let mut b = w.bits(v, 4, NIBBLES);
        match KIND {
            FIVE => {
                let h = w.load(&above[0]);
                a = w.or(a, w.up4(w.bits(h, c as u32, 0x0101_0101)));
                b = w.or(b, w.up4(w.bits(h, c as u32 + 4, 0x0101_0101)));
            }
            SIX => {
                let h = [w.load(&above[0]), w.load(&above[1])];
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

/// Integers of a whole group of 32 elements.
#[inline(always)]
fn whole<W: Wide, const KIND: u8>(
    w: W,
    layout: &Layout,
    bytes: &[u8],
    x: &Input<'_>,
    index: usize,
) -> W::I {
    let (low, high) = group::<W, KIND>(w, layout, bytes, x, index);
    w.add(low, high)
}

/// What is done with the integers of a unit. A trait and no closure: a closure is compiled without the
/// instruction set of the loop that calls it.
trait Sink<W: Wide> {
    /// Unit number, isum, msum, and where its f32 parameters start.
    fn unit(&mut self, unit: usize, isum: W::I, msum: W::I, params: &[u8]);
}

/// Bytes of f32 parameters of a unit of 32 elements in sixteen rows.
const fn param_bytes(scaling: u8) -> usize {
    match scaling {
        E8M0 => 16,
        DM => 64,
        _ => 32,
    }
}

/// [`units`] of formats in blocks of 32.
#[inline(always)]
fn units_of_32<W: Wide, const KIND: u8, const SCALING: u8>(
    w: W,
    layout: &Layout,
    run: &[u8],
    x: &Input<'_>,
    sink: &mut impl Sink<W>,
) {
    let size = code_bytes(KIND) + param_bytes(SCALING);
    for (unit, bytes) in run.chunks_exact(size).enumerate() {
        let isum = whole::<W, KIND>(w, layout, bytes, x, unit);
        sink.unit(unit, isum, w.splat(0), &bytes[code_bytes(KIND)..size]);
    }
}

/// Hands every unit of sixteen rows to the sink, ascending.
#[inline(always)]
fn units<W: Wide, const KIND: u8, const SCALING: u8>(
    w: W,
    layout: &Layout,
    run: &[u8],
    x: &Input<'_>,
    sink: &mut impl Sink<W>,
) {
    let codes = code_bytes(KIND);
    if matches!(SCALING, D | DM | E8M0) {
        return units_of_32::<W, KIND, SCALING>(w, layout, run, x, sink);
    }
    let blocks = run.chunks_exact(ROWS * layout.block_bytes);
    for (block, bytes) in blocks.enumerate() {
        let groups = 8 * block;
        let (mut isum, mut msum) = (w.splat(0), w.splat(0));
        match SCALING {
            K_MINS => {
                for j in 0..8 {
                    let (bytes, index) = (&bytes[j * (codes + 32)..][..codes + 32], groups + j);
                    let sub = whole::<W, KIND>(w, layout, bytes, x, index);
                    isum = w.add(isum, w.mul(sub, w.unsigned(part(bytes, codes))));
                    let min = w.unsigned(part(bytes, codes + 16));
                    msum = w.add(msum, w.mul(min, w.splat(x.x.sums()[index])));
                }
                sink.unit(block, isum, msum, &bytes[8 * (codes + 32)..]);
            }
            K_SIGNED => {
                let all = &bytes[..8 * (codes + 32)];
                for j in 0..8 {
                    let bytes = &all[j * (codes + 32)..][..codes + 32];
                    let (low, high) = group::<W, KIND>(w, layout, bytes, x, groups + j);
                    let low = w.mul(low, w.signed(part(bytes, codes)));
                    let high = w.mul(high, w.signed(part(bytes, codes + 16)));
                    isum = w.add(isum, w.add(low, high));
                }
                sink.unit(block, isum, msum, &bytes[8 * (codes + 32)..]);
            }
            _ => {
                let (per, mut sum) = (layout.unit / 32, 0);
                for j in 0..8 {
                    let (group, index) = (&bytes[j * codes..], groups + j);
                    isum = w.add(isum, whole::<W, KIND>(w, layout, group, x, index));
                    sum += x.x.sums()[index];
                    if (j + 1).is_multiple_of(per) {
                        let params = &bytes[8 * codes + j / per * 64..];
                        sink.unit(index / per, isum, w.splat(sum), params);
                        (isum, sum) = (w.splat(0), 0);
                    }
                }
            }
        }
    }
}

/// 2^(e - 128) of every exponent byte.
static POWERS: [f32; 256] = {
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
pub(crate) fn e8m0(e: u8) -> f32 {
    POWERS[usize::from(e)]
}

/// The f32 part, in the written order.
struct Scaled<'a, W: Wide, const SCALING: u8> {
    w: W,
    units_per_d: u32,
    x: &'a Activation<'a>,
    p: [W::F; PARTIALS],
}

impl<W: Wide, const SCALING: u8> Scaled<'_, W, SCALING> {
    /// p + (a * d) * sum.
    #[inline(always)]
    fn add(&self, a: W::F, d: f32, sum: W::F, p: W::F) -> W::F {
        self.w.fma(self.w.fmul(a, self.w.fsplat(d)), sum, p)
    }
}

impl<W: Wide, const SCALING: u8> Sink<W> for Scaled<'_, W, SCALING> {
    #[inline(always)]
    fn unit(&mut self, unit: usize, isum: W::I, msum: W::I, params: &[u8]) {
        let (w, x) = (self.w, self.x);
        let d = x.d()[unit >> self.units_per_d];
        let isum = w.float(isum);
        let p = self.p[unit % PARTIALS];
        let p = match SCALING {
            D => self.add(w.halves(part(params, 0)), d, isum, p),
            DM => {
                let p = self.add(w.halves(part(params, 0)), d, isum, p);
                w.fma(w.halves(part(params, 32)), w.fsplat(x.s()[unit]), p)
            }
            E8M0 => self.add(w.floats(powers(part(params, 0))), d, isum, p),
            K_MINS => {
                let p = self.add(w.halves(part(params, 0)), d, isum, p);
                self.add(w.halves(part(params, 32)), -d, w.float(msum), p)
            }
            K_SIGNED => self.add(w.halves(part(params, 0)), d, isum, p),
            SINGLES => {
                let p = self.add(w.singles(part(params, 0)), d, isum, p);
                self.add(w.singles(part(params, 64)), d, w.float(msum), p)
            }
            _ => {
                let p = self.add(w.halves(part(params, 0)), d, isum, p);
                self.add(w.halves(part(params, 32)), d, w.float(msum), p)
            }
        };
        self.p[unit % PARTIALS] = p;
    }
}

#[inline(always)]
fn powers(exponents: &[u8; 16]) -> [f32; 16] {
    let mut powers = [0.0; 16];
    for (power, e) in powers.iter_mut().zip(exponents) {
        *power = e8m0(*e);
    }
    powers
}

#[inline(always)]
fn runs<W: Wide, const KIND: u8, const SCALING: u8>(
    w: W,
    (packed, layout): Weight<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) {
    let input = &Input::of::<W>(layout, x);
    let first = rows.start / ROWS;
    for run in first..rows.end.div_ceil(ROWS) {
        let p = [w.fsplat(0.0); PARTIALS];
        let units_per_d = layout.units_per_d;
        let mut sink: Scaled<'_, W, SCALING> = Scaled {
            w,
            units_per_d,
            x,
            p,
        };
        units::<W, KIND, SCALING>(w, layout, packed.run(run), input, &mut sink);
        let mut p = sink.p;
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
    specialise!(weight.1, runs::<W>(w, weight, x, rows, write, y));
}

/// Keeps the integers.
struct Kept<W: Wide> {
    w: W,
    all: Vec<[Sums; ROWS]>,
}

impl<W: Wide> Sink<W> for Kept<W> {
    fn unit(&mut self, _: usize, isum: W::I, msum: W::I, _: &[u8]) {
        let (isum, msum) = (self.w.ints(isum), self.w.ints(msum));
        self.all.push(std::array::from_fn(|row| Sums {
            isum: isum[row],
            msum: msum[row],
        }));
    }
}

fn units_of<W: Wide, const KIND: u8, const SCALING: u8>(
    w: W,
    layout: &Layout,
    run: &[u8],
    x: &Input<'_>,
    sink: &mut Kept<W>,
) {
    units::<W, KIND, SCALING>(w, layout, run, x, sink);
}

fn collect<W: Wide>(
    w: W,
    (packed, layout): Weight<'_>,
    x: &Activation<'_>,
    run: usize,
) -> Vec<[Sums; ROWS]> {
    let all = Vec::with_capacity(x.k() / layout.unit);
    let input = &Input::of::<W>(layout, x);
    let (run, keep) = (packed.run(run), &mut Kept { w, all });
    specialise!(layout, units_of::<W>(w, layout, run, input, keep));
    std::mem::take(&mut keep.all)
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
