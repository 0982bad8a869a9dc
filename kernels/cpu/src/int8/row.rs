//! The loops over rows in device layout: the CPU's half of a split weight, read from the bytes that the
//! GPU reads.

use std::ops::Range;

use refrain_kernels::format::PlaneKind;

use super::group::e8m0;
use super::{Activation, Kind, Layout, PARTIALS, Scaling, Sums, Write};
use crate::exact::half;
use crate::{Isa, Matrix};

type Weight<'w> = (&'w Matrix<'w>, &'w Layout);

/// Operations on 32 consecutive elements of a row, eight lanes of four.
///
/// Implementors are tokens: a value exists only where the machine has the instructions.
pub(crate) trait Narrow: Copy {
    /// 32 bytes, or eight integers.
    type V: Copy;
    /// What [`Narrow::dot_signed`] adds per unit of activation code, to be taken off by the caller.
    const SIGNED_BIAS: i32;

    fn bytes(self, bytes: &[u8; 32]) -> Self::V;
    /// Low halves of the bytes, then high halves.
    fn nibbles(self, bytes: &[u8; 16]) -> Self::V;
    /// Bit 4 of 32 codes from a word of [`PlaneKind::Bit4`].
    fn bit4(self, h: u32) -> Self::V;
    /// Bits 4 and 5 of 32 codes from two words of [`PlaneKind::Bits45`].
    fn bits45(self, h: [u32; 2]) -> Self::V;
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    /// Table entry of each byte, which is below 16.
    fn lookup(self, table: &[i8; 16], codes: Self::V) -> Self::V;
    /// Products summed by four; codes unsigned and below 128.
    fn dot(self, codes: Self::V, q: &[u8; 32]) -> Self::V;
    /// The same for signed codes, plus SIGNED_BIAS times the sum of q; no byte of q is -128.
    fn dot_signed(self, codes: Self::V, q: &[u8; 32]) -> Self::V;
    /// Sums of the first and the last four lanes.
    fn reduce(self, v: Self::V) -> [i32; 2];
    /// Sum of the lanes of each.
    fn reduce8(self, v: [Self::V; 8]) -> [i32; 8];
}

/// Every machine: a code per element, or eight sums in the first elements.
#[derive(Clone, Copy)]
struct Portable;

impl Narrow for Portable {
    type V = [i32; 32];
    const SIGNED_BIAS: i32 = 0;

    fn bytes(self, bytes: &[u8; 32]) -> [i32; 32] {
        bytes.map(|byte| i32::from(byte.cast_signed()))
    }

    fn nibbles(self, bytes: &[u8; 16]) -> [i32; 32] {
        std::array::from_fn(|i| i32::from(bytes[i % 16] >> (i / 16 * 4) & 15))
    }

    fn bit4(self, h: u32) -> [i32; 32] {
        let bit = |i: usize| (h >> (i % 4 * 8 + i / 4) & 1) << 4;
        std::array::from_fn(|i| bit(i).cast_signed())
    }

    fn bits45(self, h: [u32; 2]) -> [i32; 32] {
        let bits = |i: usize| (h[i / 16] >> (i % 4 * 8 + i % 16 / 4 * 2) & 3) << 4;
        std::array::from_fn(|i| bits(i).cast_signed())
    }

    fn or(self, a: [i32; 32], b: [i32; 32]) -> [i32; 32] {
        std::array::from_fn(|i| a[i] | b[i])
    }

    fn lookup(self, table: &[i8; 16], codes: [i32; 32]) -> [i32; 32] {
        codes.map(|code| i32::from(table[(code & 15) as usize]))
    }

    fn dot(self, codes: [i32; 32], q: &[u8; 32]) -> [i32; 32] {
        let mut sums = [0; 32];
        for (i, (code, q)) in codes.iter().zip(q).enumerate() {
            sums[i / 4] += code * i32::from(q.cast_signed());
        }
        sums
    }

    fn dot_signed(self, codes: [i32; 32], q: &[u8; 32]) -> [i32; 32] {
        self.dot(codes, q)
    }

    fn reduce(self, v: [i32; 32]) -> [i32; 2] {
        [v[..4].iter().sum(), v[4..8].iter().sum()]
    }

    fn reduce8(self, v: [[i32; 32]; 8]) -> [i32; 8] {
        v.map(|v| v[..8].iter().sum())
    }
}

const BYTES: u8 = Kind::Bytes as u8;
const FOUR: u8 = Kind::Four as u8;
const TABLE: u8 = Kind::Table as u8;
const FIVE: u8 = Kind::Five as u8;
const SIX: u8 = Kind::Six as u8;

/// Planes of a weight by use: codes, their higher bits, then parameters.
#[derive(Clone, Copy)]
struct Planes<'a> {
    codes: &'a [u8],
    high: &'a [u8],
    params: [&'a [u8]; 2],
}

impl<'a> Planes<'a> {
    /// From row `row` on.
    fn of((w, layout): Weight<'a>, row: usize) -> Self {
        let first = row * w.k() / layout.block;
        let at = |kinds: &[PlaneKind], nth: usize| {
            let planes = w.planes().iter().enumerate();
            let mut planes = planes.filter(|(_, plane)| kinds.contains(&plane.kind));
            planes.nth(nth).map_or(&[][..], |(index, plane)| {
                &w.plane(index)[first * plane.block_bytes..]
            })
        };
        Self {
            codes: at(&[PlaneKind::Bytes, PlaneKind::Nibbles], 0),
            high: at(&[PlaneKind::Bit4, PlaneKind::Bits45], 0),
            params: [at(&[PlaneKind::Params], 0), at(&[PlaneKind::Params], 1)],
        }
    }
}

/// N bytes from `at` on; the matrix was checked to hold its rows.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..at + N].first_chunk().unwrap_or(&[0; N])
}

/// Products of group `index` of 32 elements of a row, not yet less the offset of the codes.
#[inline(always)]
fn products<N: Narrow, const KIND: u8>(
    n: N,
    layout: &Layout,
    planes: &Planes<'_>,
    x: &Activation<'_>,
    index: usize,
) -> N::V {
    let q = x.codes(index);
    if KIND == BYTES {
        return n.dot_signed(n.bytes(part(planes.codes, 32 * index)), q);
    }
    let mut codes = n.nibbles(part(planes.codes, 16 * index));
    let word = |at: usize| u32::from_le_bytes(*part(planes.high, 4 * at));
    match KIND {
        TABLE => return n.dot_signed(n.lookup(&layout.table, codes), q),
        FIVE => codes = n.or(codes, n.bit4(word(index))),
        SIX => codes = n.or(codes, n.bits45([word(2 * index), word(2 * index + 1)])),
        _ => {}
    }
    n.dot(codes, q)
}

#[inline(always)]
fn bias<N: Narrow, const KIND: u8>(layout: &Layout) -> i32 {
    match KIND {
        BYTES | TABLE => N::SIGNED_BIAS,
        _ => layout.zero,
    }
}

/// The integers of every unit of a row.
#[inline(always)]
fn integers<N: Narrow, const KIND: u8>(
    n: N,
    layout: &Layout,
    planes: &Planes<'_>,
    x: &Activation<'_>,
    sums: &mut [Sums],
) {
    let bias = bias::<N, KIND>(layout);
    let product = |index: usize| products::<N, KIND>(n, layout, planes, x, index);
    let each = |first: usize| {
        let all = n.reduce8(std::array::from_fn(|j| product(first + j)));
        std::array::from_fn::<i32, 8, _>(|j| all[j] - bias * x.sum32(first + j))
    };
    if layout.unit == 32 {
        for (eight, sums) in sums.chunks_mut(8).enumerate() {
            if sums.len() == 8 {
                let all = each(8 * eight);
                for (sums, isum) in sums.iter_mut().zip(all) {
                    sums.isum = isum;
                }
            } else {
                for (j, sums) in sums.iter_mut().enumerate() {
                    let [low, high] = n.reduce(product(8 * eight + j));
                    sums.isum = low + high - bias * x.sum32(8 * eight + j);
                }
            }
        }
        return;
    }
    let per = layout.unit / 32;
    let blocks = sums.chunks_exact_mut(layout.block / layout.unit);
    for (block, units) in blocks.enumerate() {
        let first = 8 * block;
        match layout.scaling {
            Scaling::KSigned => {
                let scales: &[u8; 16] = part(planes.params[0], 16 * block);
                let mut isum = 0;
                for j in 0..8 {
                    let (_, parts) = x.group(first + j);
                    let dots = n.reduce(product(first + j));
                    for side in 0..2 {
                        let scale = i32::from(scales[2 * j + side].cast_signed());
                        isum += scale * (dots[side] - bias * parts[side]);
                    }
                }
                units[0] = Sums { isum, msum: 0 };
            }
            Scaling::KMins => {
                let pairs: &[u8; 16] = part(planes.params[0], 16 * block);
                let mut unit = Sums::default();
                for (j, isum) in each(first).into_iter().enumerate() {
                    unit.isum += i32::from(pairs[2 * j]) * isum;
                    unit.msum += i32::from(pairs[2 * j + 1]) * x.sum32(first + j);
                }
                units[0] = unit;
            }
            _ => {
                let all = each(first);
                for (index, unit) in units.iter_mut().enumerate() {
                    let groups = index * per..(index + 1) * per;
                    unit.isum = all[groups.clone()].iter().sum();
                    unit.msum = groups.map(|j| x.sum32(first + j)).sum();
                }
            }
        }
    }
}

/// Adds the units to the partials, in the written order, and the partials to the result.
#[inline(always)]
fn scaled(layout: &Layout, planes: &Planes<'_>, x: &Activation<'_>, sums: &[Sums]) -> f32 {
    let mut p = [0.0f32; PARTIALS];
    let f16 = |at: usize| half(u16::from_le_bytes(*part(planes.params[0], 2 * at)));
    let f32s = |at: usize| f32::from_le_bytes(*part(planes.params[0], 4 * at));
    let last = |at: usize| half(u16::from_le_bytes(*part(planes.params[1], 2 * at)));
    let d = |unit: usize| x.d()[unit * layout.unit / x.habit().block()];
    if layout.scaling == Scaling::D {
        return scaled_by_d(planes, x, sums);
    }
    for (unit, sums) in sums.iter().enumerate() {
        let p = &mut p[unit % PARTIALS];
        let (isum, msum) = (sums.isum as f32, sums.msum as f32);
        let d = d(unit);
        *p = match layout.scaling {
            Scaling::D => (f16(unit) * d).mul_add(isum, *p),
            Scaling::DM => {
                let first = (f16(2 * unit) * d).mul_add(isum, *p);
                f16(2 * unit + 1).mul_add(x.s()[unit], first)
            }
            Scaling::E8m0 => (e8m0(planes.params[0][unit]) * d).mul_add(isum, *p),
            Scaling::KMins => {
                let first = (last(2 * unit) * d).mul_add(isum, *p);
                (-(last(2 * unit + 1) * d)).mul_add(msum, first)
            }
            Scaling::KSigned => (last(unit) * d).mul_add(isum, *p),
            Scaling::Singles => {
                let first = (f32s(2 * unit) * d).mul_add(isum, *p);
                (f32s(2 * unit + 1) * d).mul_add(msum, first)
            }
            Scaling::Halves => {
                let first = (f16(2 * unit) * d).mul_add(isum, *p);
                (f16(2 * unit + 1) * d).mul_add(msum, first)
            }
        };
    }
    tree(p)
}

/// [`scaled`] for one f16 scale per unit, eight partials at a time.
#[inline(always)]
fn scaled_by_d(planes: &Planes<'_>, x: &Activation<'_>, sums: &[Sums]) -> f32 {
    let mut p = [0.0f32; PARTIALS];
    let (scales, _) = planes.params[0].as_chunks::<2>();
    let units = sums.chunks(PARTIALS).zip(x.d().chunks(PARTIALS));
    for ((sums, d), scales) in units.zip(scales.chunks(PARTIALS)) {
        let a = |scale: [u8; 2], d: f32| half(u16::from_le_bytes(scale)) * d;
        if let (Some(sums), Some(d), Some(scales)) = (
            sums.first_chunk::<PARTIALS>(),
            d.first_chunk::<PARTIALS>(),
            scales.first_chunk::<PARTIALS>(),
        ) {
            for i in 0..PARTIALS {
                p[i] = a(scales[i], d[i]).mul_add(sums[i].isum as f32, p[i]);
            }
        } else {
            for (i, sums) in sums.iter().enumerate() {
                p[i] = a(scales[i], d[i]).mul_add(sums.isum as f32, p[i]);
            }
        }
    }
    tree(p)
}

#[inline(always)]
fn tree(mut p: [f32; PARTIALS]) -> f32 {
    for step in [4, 2, 1] {
        for i in 0..step {
            p[i] += p[i + step];
        }
    }
    p[0]
}

#[inline(always)]
fn one<N: Narrow>(n: N, weight: Weight<'_>, x: &Activation<'_>, row: usize, sums: &mut [Sums]) {
    let layout = weight.1;
    let planes = &Planes::of(weight, row);
    match layout.kind {
        Kind::Bytes => integers::<N, BYTES>(n, layout, planes, x, sums),
        Kind::Four => integers::<N, FOUR>(n, layout, planes, x, sums),
        Kind::Table => integers::<N, TABLE>(n, layout, planes, x, sums),
        Kind::Five => integers::<N, FIVE>(n, layout, planes, x, sums),
        Kind::Six => integers::<N, SIX>(n, layout, planes, x, sums),
    }
}

#[inline(always)]
fn all<N: Narrow>(
    n: N,
    weight: Weight<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) {
    let mut sums = vec![Sums::default(); x.k() / weight.1.unit];
    for (row, y) in rows.zip(y) {
        one(n, weight, x, row, &mut sums);
        let sum = scaled(weight.1, &Planes::of(weight, row), x, &sums);
        *y = match write {
            Write::Set => sum,
            Write::Add => *y + sum,
        };
    }
}

#[cfg(target_arch = "x86_64")]
use super::wide_x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn all_avx2(
    n: Avx2,
    weight: Weight<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) {
    all(n, weight, x, rows, write, y);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni")]
fn all_avx512(
    n: Avx512,
    weight: Weight<'_>,
    x: &Activation<'_>,
    rows: Range<usize>,
    write: Write,
    y: &mut [f32],
) {
    all(n, weight, x, rows, write, y);
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
        if let Some(n) = Avx512::for_isa(isa) {
            // SAFETY: an Avx512 exists only where all of its features were detected.
            unsafe { all_avx512(n, weight, x, rows, write, y) };
            return;
        }
        if let Some(n) = Avx2::for_isa(isa) {
            // SAFETY: an Avx2 exists only where all of its features were detected.
            unsafe { all_avx2(n, weight, x, rows, write, y) };
            return;
        }
    }
    let _ = isa;
    all(Portable, weight, x, rows, write, y);
}

pub(super) fn sums(
    isa: Isa,
    weight: Weight<'_>,
    x: &Activation<'_>,
    row: usize,
    sums: &mut [Sums],
) {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(n) = Avx512::for_isa(isa) {
            return one(n, weight, x, row, sums);
        }
        if let Some(n) = Avx2::for_isa(isa) {
            return one(n, weight, x, row, sums);
        }
    }
    let _ = isa;
    one(Portable, weight, x, row, sums);
}
