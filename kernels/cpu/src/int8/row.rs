//! The loops over rows in device layout: the CPU's half of a split weight, read from the bytes that the
//! GPU reads.

use std::ops::Range;

use refrain_kernels::format::PlaneKind;

use super::activation::Group;
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

    fn zero(self) -> Self::V;
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
    /// Sum of the lanes.
    fn reduce(self, v: Self::V) -> i32;
    /// acc + v times the signed scales 2 j (first four lanes) and 2 j + 1 (last four).
    fn add_scaled(self, acc: Self::V, v: Self::V, scales: &[u8; 16], j: usize) -> Self::V;
    /// acc + v times the scale.
    fn add_times(self, acc: Self::V, v: Self::V, scale: i32) -> Self::V;
    /// p + (scale * d) * isum in eight lanes, scales in f16.
    fn scale8(self, scales: &[u8; 16], d: &[f32; 8], isum: &[i32; 8], p: &mut [f32; 8]);
    /// Sum of the lanes of each.
    fn reduce8(self, v: [Self::V; 8]) -> [i32; 8];
}

/// Every machine: a code per element, or eight sums in the first elements.
#[derive(Clone, Copy)]
struct Portable;

impl Narrow for Portable {
    type V = [i32; 32];
    const SIGNED_BIAS: i32 = 0;

    fn zero(self) -> [i32; 32] {
        [0; 32]
    }

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

    fn reduce(self, v: [i32; 32]) -> i32 {
        v[..8].iter().sum()
    }

    fn add_scaled(self, acc: [i32; 32], v: [i32; 32], scales: &[u8; 16], j: usize) -> [i32; 32] {
        let scale = |lane: usize| i32::from(scales[2 * j + lane / 4 % 2].cast_signed());
        std::array::from_fn(|lane| acc[lane] + v[lane] * scale(lane))
    }

    fn add_times(self, acc: [i32; 32], v: [i32; 32], scale: i32) -> [i32; 32] {
        std::array::from_fn(|lane| acc[lane] + v[lane] * scale)
    }

    fn scale8(self, scales: &[u8; 16], d: &[f32; 8], isum: &[i32; 8], p: &mut [f32; 8]) {
        for i in 0..8 {
            p[i] = (half_at(scales, i) * d[i]).mul_add(isum[i] as f32, p[i]);
        }
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

/// Products of group `j` of 32 elements, not yet less the offset of the codes. Planes and activation
/// start at group 0.
#[inline(always)]
fn products<N: Narrow, const KIND: u8>(
    n: N,
    layout: &Layout,
    (codes, high): (&[u8], &[u8]),
    q: &[Group],
    j: usize,
) -> N::V {
    let q = part(q[j].as_flattened(), 0);
    if KIND == BYTES {
        return n.dot_signed(n.bytes(part(codes, 32 * j)), q);
    }
    let low = n.nibbles(part(codes, 16 * j));
    match KIND {
        TABLE => n.dot_signed(n.lookup(&layout.table, low), q),
        FIVE => {
            let h = u32::from_le_bytes(*part(high, 4 * j));
            n.dot(n.or(low, n.bit4(h)), q)
        }
        SIX => {
            let h = [
                u32::from_le_bytes(*part(high, 8 * j)),
                u32::from_le_bytes(*part(high, 8 * j + 4)),
            ];
            n.dot(n.or(low, n.bits45(h)), q)
        }
        _ => n.dot(low, q),
    }
}

/// Bytes of a group of 32 elements: of codes, and of the bits above them.
const fn group_bytes(kind: u8) -> (usize, usize) {
    match kind {
        BYTES => (32, 0),
        FIVE => (16, 4),
        SIX => (16, 8),
        _ => (16, 0),
    }
}

#[inline(always)]
fn bias<N: Narrow, const KIND: u8>(layout: &Layout) -> i32 {
    match KIND {
        BYTES | TABLE => N::SIGNED_BIAS,
        _ => layout.zero,
    }
}

/// The integers of a row's units; msum stays 0 where a format has none.
struct Units {
    isum: Vec<i32>,
    msum: Vec<i32>,
}

impl Units {
    fn of(layout: &Layout, k: usize) -> Self {
        let zeros = || vec![0; k / layout.unit];
        Self {
            isum: zeros(),
            msum: zeros(),
        }
    }
}

/// A row of a weight and the activation.
#[derive(Clone, Copy)]
struct Row<'a, N: Narrow> {
    n: N,
    layout: &'a Layout,
    planes: &'a Planes<'a>,
    x: &'a Activation<'a>,
}

// No closures around vector operations: a closure is compiled without the instruction set of the loop.
impl<N: Narrow> Row<'_, N> {
    #[inline(always)]
    fn product<const KIND: u8>(&self, index: usize) -> N::V {
        let planes = (self.planes.codes, self.planes.high);
        products::<N, KIND>(self.n, self.layout, planes, self.x.groups(), index)
    }

    /// Products of eight groups of 32 elements.
    #[inline(always)]
    fn products<const KIND: u8>(&self, first: usize) -> [N::V; 8] {
        let (n, layout) = (self.n, self.layout);
        // Slices of known length: no bounds are checked below.
        let (codes, high) = group_bytes(KIND);
        let codes = &self.planes.codes[first * codes..][..8 * codes];
        let high = &self.planes.high[first * high..][..8 * high];
        let (planes, q) = ((codes, high), &self.x.groups()[first..][..8]);
        [
            products::<N, KIND>(n, layout, planes, q, 0),
            products::<N, KIND>(n, layout, planes, q, 1),
            products::<N, KIND>(n, layout, planes, q, 2),
            products::<N, KIND>(n, layout, planes, q, 3),
            products::<N, KIND>(n, layout, planes, q, 4),
            products::<N, KIND>(n, layout, planes, q, 5),
            products::<N, KIND>(n, layout, planes, q, 6),
            products::<N, KIND>(n, layout, planes, q, 7),
        ]
    }

    /// Integers of eight groups of 32 elements, and the sums of their activations.
    #[inline(always)]
    fn eight<const KIND: u8>(&self, first: usize) -> ([i32; 8], &[i32; 8]) {
        let mut all = self.n.reduce8(self.products::<KIND>(first));
        let sums = self.x.sums()[first..].first_chunk().unwrap_or(&[0; 8]);
        let bias = bias::<N, KIND>(self.layout);
        for (all, sum) in all.iter_mut().zip(sums) {
            *all -= bias * sum;
        }
        (all, sums)
    }

    /// The integers of every unit.
    #[inline(always)]
    fn integers<const KIND: u8>(&self, sums: &mut Units) {
        let Units { isum, msum } = sums;
        match (self.layout.unit, self.layout.scaling) {
            (32, _) => self.by_32::<KIND>(isum),
            (_, Scaling::KSigned) => self.by_16ths::<KIND>(isum),
            (_, Scaling::KMins) => {
                let (pairs, _) = self.planes.params[0].as_chunks::<16>();
                let units = isum.iter_mut().zip(msum).zip(pairs);
                for (block, ((isum, msum), pairs)) in units.enumerate() {
                    // These formats have no offset to take off.
                    let products = self.products::<KIND>(8 * block);
                    let x = &self.x.sums()[8 * block..][..8];
                    let (mut acc, mut min) = (self.n.zero(), 0);
                    for j in 0..8 {
                        let scale = i32::from(pairs[2 * j]);
                        acc = self.n.add_times(acc, products[j], scale);
                        min += i32::from(pairs[2 * j + 1]) * x[j];
                    }
                    (*isum, *msum) = (self.n.reduce(acc), min);
                }
            }
            (unit, _) => {
                let per = unit / 32;
                let blocks = isum.chunks_exact_mut(8 / per);
                let blocks = blocks.zip(msum.chunks_exact_mut(8 / per));
                for (block, (isum, msum)) in blocks.enumerate() {
                    let (all, x) = self.eight::<KIND>(8 * block);
                    for (index, (isum, msum)) in isum.iter_mut().zip(msum).enumerate() {
                        let groups = index * per..(index + 1) * per;
                        *isum = all[groups.clone()].iter().sum();
                        *msum = x[groups].iter().sum();
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn by_32<const KIND: u8>(&self, isum: &mut [i32]) {
        let (eights, rest) = isum.as_chunks_mut::<8>();
        let first = 8 * eights.len();
        for (eight, isum) in eights.iter_mut().enumerate() {
            (*isum, _) = self.eight::<KIND>(8 * eight);
        }
        for (index, isum) in (first..).zip(rest) {
            let bias = bias::<N, KIND>(self.layout) * self.x.sums()[index];
            *isum = self.n.reduce(self.product::<KIND>(index)) - bias;
        }
    }

    #[inline(always)]
    fn by_16ths<const KIND: u8>(&self, isum: &mut [i32]) {
        let bias = bias::<N, KIND>(self.layout);
        let (scales, _) = self.planes.params[0].as_chunks::<16>();
        for (block, (isum, scales)) in isum.iter_mut().zip(scales).enumerate() {
            let products = self.products::<KIND>(8 * block);
            let halves = &self.x.halves()[8 * block..][..8];
            let mut acc = self.n.zero();
            let mut offset = 0;
            for j in 0..8 {
                acc = self.n.add_scaled(acc, products[j], scales, j);
                offset += i32::from(scales[2 * j].cast_signed()) * halves[j][0];
                offset += i32::from(scales[2 * j + 1].cast_signed()) * halves[j][1];
            }
            *isum = self.n.reduce(acc) - bias * offset;
        }
    }
}

#[inline(always)]
fn half_at(bytes: &[u8], index: usize) -> f32 {
    half(u16::from_le_bytes(*part(bytes, 2 * index)))
}

#[inline(always)]
fn single_at(bytes: &[u8], index: usize) -> f32 {
    f32::from_le_bytes(*part(bytes, 4 * index))
}

/// Adds the units to the partials, in the written order, and the partials to the result.
#[inline(always)]
fn scaled<N: Narrow>(
    n: N,
    layout: &Layout,
    planes: &Planes<'_>,
    x: &Activation<'_>,
    sums: &Units,
) -> f32 {
    if layout.scaling == Scaling::D {
        return scaled_by_d(n, planes, x, &sums.isum);
    }
    let mut p = [0.0f32; PARTIALS];
    let [first, last] = planes.params;
    for (unit, (isum, msum)) in sums.isum.iter().zip(&sums.msum).enumerate() {
        let d = x.d()[unit >> layout.units_per_d];
        let (isum, msum) = (*isum as f32, *msum as f32);
        let p = &mut p[unit % PARTIALS];
        *p = match layout.scaling {
            Scaling::D => (half_at(first, unit) * d).mul_add(isum, *p),
            Scaling::DM => {
                let p = (half_at(first, 2 * unit) * d).mul_add(isum, *p);
                half_at(first, 2 * unit + 1).mul_add(x.s()[unit], p)
            }
            Scaling::E8m0 => (e8m0(first[unit]) * d).mul_add(isum, *p),
            Scaling::KMins => {
                let p = (half_at(last, 2 * unit) * d).mul_add(isum, *p);
                (-(half_at(last, 2 * unit + 1) * d)).mul_add(msum, p)
            }
            Scaling::KSigned => (half_at(last, unit) * d).mul_add(isum, *p),
            Scaling::Singles => {
                let p = (single_at(first, 2 * unit) * d).mul_add(isum, *p);
                (single_at(first, 2 * unit + 1) * d).mul_add(msum, p)
            }
            Scaling::Halves => {
                let p = (half_at(first, 2 * unit) * d).mul_add(isum, *p);
                (half_at(first, 2 * unit + 1) * d).mul_add(msum, p)
            }
        };
    }
    tree(p)
}

/// [`scaled`] for one f16 scale per unit, eight partials at a time.
#[inline(always)]
fn scaled_by_d<N: Narrow>(n: N, planes: &Planes<'_>, x: &Activation<'_>, isum: &[i32]) -> f32 {
    let mut p = [0.0f32; PARTIALS];
    let scales = &planes.params[0][..2 * isum.len()];
    let (whole, rest) = isum.as_chunks::<PARTIALS>();
    let (d, last_d) = x.d().as_chunks::<PARTIALS>();
    let (eights, last) = scales.as_chunks::<{ 2 * PARTIALS }>();
    for ((isum, d), scales) in whole.iter().zip(d).zip(eights) {
        n.scale8(scales, d, isum, &mut p);
    }
    for (i, isum) in rest.iter().enumerate() {
        p[i] = (half_at(last, i) * last_d[i]).mul_add(*isum as f32, p[i]);
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
fn one<N: Narrow>(
    n: N,
    layout: &Layout,
    planes: &Planes<'_>,
    x: &Activation<'_>,
    sums: &mut Units,
) {
    let row = Row {
        n,
        layout,
        planes,
        x,
    };
    match layout.kind {
        Kind::Bytes => row.integers::<BYTES>(sums),
        Kind::Four => row.integers::<FOUR>(sums),
        Kind::Table => row.integers::<TABLE>(sums),
        Kind::Five => row.integers::<FIVE>(sums),
        Kind::Six => row.integers::<SIX>(sums),
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
    let mut sums = Units::of(weight.1, x.k());
    for (row, y) in rows.zip(y) {
        let planes = &Planes::of(weight, row);
        one(n, weight.1, planes, x, &mut sums);
        let sum = scaled(n, weight.1, planes, x, &sums);
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

pub(super) fn sums(isa: Isa, weight: Weight<'_>, x: &Activation<'_>, row: usize) -> Vec<Sums> {
    let (layout, planes) = (weight.1, &Planes::of(weight, row));
    let mut units = Units::of(layout, x.k());
    #[cfg(target_arch = "x86_64")]
    if let Some(n) = Avx512::for_isa(isa) {
        one(n, layout, planes, x, &mut units);
    } else if let Some(n) = Avx2::for_isa(isa) {
        one(n, layout, planes, x, &mut units);
    } else {
        one(Portable, layout, planes, x, &mut units);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = isa;
        one(Portable, layout, planes, x, &mut units);
    }
    let pairs = units.isum.into_iter().zip(units.msum);
    pairs.map(|(isum, msum)| Sums { isum, msum }).collect()
}
