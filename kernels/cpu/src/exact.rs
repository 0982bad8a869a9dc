//! Exact mode: weights decoded to f32 times f32 activations, in the written order that the GPU kernels
//! share (`kernels/hip/gemv.hpp`), so that both give the same bits.
//!
//! Written order of one row: blocks of 16 consecutive elements; block b adds to partial `p[b mod 32]`,
//! blocks ascending; inside a block acc = fma(w, x, acc), elements ascending, from +0. Then
//! p[i] = p[i] + p[i xor s] for s = 16, 8, 4, 2, 1, and p[0] is the result.
//!
//! All instruction sets run the same source: sixteen blocks at a time, one per lane, which the compiler
//! turns into vectors of the set at hand. No operation is reordered by that.

use std::ops::Range;

use refrain_kernels::Dtype;
use refrain_kernels::format::{Blocks, Coding, Levels, PlaneKind};

use crate::int8::{Layout, Scaling, e8m0};
use crate::{CpuError, Isa, Matrix};

/// Elements of a block of the written order.
const BLOCK: usize = 16;
/// Blocks that are worked on together, and half of the partials.
const LANES: usize = 16;
/// Elements of such a group of blocks.
const TILE: usize = BLOCK * LANES;

/// `[element of the block][lane]`.
type Tile = [[f32; LANES]; BLOCK];

/// `y = W[rows] x` in exact mode; `y` has one element per row of the range.
///
/// A set that this machine lacks is replaced by its best: the results are the same.
/// Not-a-numbers and infinities of weights and activations follow IEEE 754; denormals are kept.
///
/// # Errors
/// [`CpuError::Length`] if `x` is not k long or `y` not as long as the range, [`CpuError::Rows`] if the
/// range leaves the matrix.
pub fn gemv_exact(
    isa: Isa,
    w: &Matrix<'_>,
    x: &[f32],
    rows: Range<usize>,
    y: &mut [f32],
) -> Result<(), CpuError> {
    Input::new(w, x)?.gemv(isa, w, rows, y)
}

/// An activation as the loops read it, made once per product.
pub(crate) struct Input {
    tiles: Vec<Tile>,
    k: usize,
}

impl Input {
    /// An activation for rows of `w`.
    pub(crate) fn new(w: &Matrix<'_>, x: &[f32]) -> Result<Self, CpuError> {
        if x.len() != w.k() {
            return Err(CpuError::Length {
                what: "x",
                expected: w.k(),
                given: x.len(),
            });
        }
        let tiles = x.chunks(TILE).map(transposed).collect();
        Ok(Self { tiles, k: x.len() })
    }

    /// [`gemv_exact`] for a matrix of the same width.
    pub(crate) fn gemv(
        &self,
        isa: Isa,
        w: &Matrix<'_>,
        rows: Range<usize>,
        y: &mut [f32],
    ) -> Result<(), CpuError> {
        w.check(&rows, y)?;
        debug_assert_eq!(self.k, w.k());
        let x = &self.tiles;
        match isa.min(Isa::best()) {
            Isa::Scalar => run(w, x, rows, y),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `isa` is at most `Isa::best()`: Avx2 only where its features were detected.
            Isa::Avx2 => unsafe { run_avx2(w, x, rows, y) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above, for Avx512.
            Isa::Avx512 => unsafe { run_avx512(w, x, rows, y) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => run(w, x, rows, y),
        }
        Ok(())
    }
}

fn transposed(x: &[f32]) -> Tile {
    let mut tile = Tile::default();
    for (lane, block) in x.chunks(BLOCK).enumerate() {
        for (element, x) in block.iter().enumerate() {
            tile[element][lane] = *x;
        }
    }
    tile
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2(w: &Matrix<'_>, x: &[Tile], rows: Range<usize>, y: &mut [f32]) {
    run(w, x, rows, y);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi")]
fn run_avx512(w: &Matrix<'_>, x: &[Tile], rows: Range<usize>, y: &mut [f32]) {
    run(w, x, rows, y);
}

#[inline(always)]
fn run(w: &Matrix<'_>, x: &[Tile], rows: Range<usize>, y: &mut [f32]) {
    let Coding::Blocks(blocks) = &w.format().coding else {
        return match w.dtype() {
            Dtype::F16 => each(w, x, rows, y, &Halves),
            Dtype::BF16 => each(w, x, rows, y, &Bf16),
            _ => each(w, x, rows, y, &Singles),
        };
    };
    let Some(layout) = &Layout::of(w.dtype()) else {
        return;
    };
    // One loop per kind of code, so that the inner ones have no branch.
    let blocks = (blocks, layout);
    match (blocks.0.planes[0].kind, blocks.0.planes[1].kind) {
        (PlaneKind::Bytes, _) => each(w, x, rows, y, &Bytes(blocks)),
        (_, PlaneKind::Bit4) => each(w, x, rows, y, &Nibbles::<1>(blocks)),
        (_, PlaneKind::Bits45) => each(w, x, rows, y, &Nibbles::<2>(blocks)),
        _ => each(w, x, rows, y, &Nibbles::<0>(blocks)),
    }
}

/// Where weights of a kind come from. A trait and no closure: a closure is compiled without the
/// instruction set of the loop that calls it.
trait Load {
    /// The weights from an element (through all rows) on, and how many.
    fn load(&self, w: &Matrix<'_>, place: (usize, usize), tile: &mut Tile);
}

struct Singles;
struct Halves;
struct Bf16;
struct Bytes<'a>((&'a Blocks, &'a Layout));
/// Nibbles with `HIGH` bits above them.
struct Nibbles<'a, const HIGH: usize>((&'a Blocks, &'a Layout));

/// All rows of a range.
#[inline(always)]
fn each(w: &Matrix<'_>, x: &[Tile], rows: Range<usize>, y: &mut [f32], source: &impl Load) {
    let k = w.k();
    let mut tile = Tile::default();
    for (row, y) in rows.zip(y) {
        let mut partials = [[0.0f32; LANES]; 2];
        for (index, x) in x.iter().enumerate() {
            let length = TILE.min(k - index * TILE);
            source.load(w, (row * k + index * TILE, length), &mut tile);
            let acc = &mut partials[index % 2];
            if length == TILE {
                let mut sums = *acc;
                for (w, x) in tile.iter().zip(x) {
                    for lane in 0..LANES {
                        sums[lane] = w[lane].mul_add(x[lane], sums[lane]);
                    }
                }
                *acc = sums;
            } else {
                // Only what is there: fma(0, 0, -0) would be +0.
                for (lane, sum) in acc.iter_mut().enumerate().take(length.div_ceil(BLOCK)) {
                    for element in 0..BLOCK.min(length - lane * BLOCK) {
                        *sum = tile[element][lane].mul_add(x[element][lane], *sum);
                    }
                }
            }
        }
        *y = tree(&partials);
    }
}

/// The xor tree over 32 partials.
#[inline(always)]
fn tree(partials: &[[f32; LANES]; 2]) -> f32 {
    let mut p = [0.0; LANES];
    for lane in 0..LANES {
        p[lane] = partials[0][lane] + partials[1][lane];
    }
    for step in [8, 4, 2, 1] {
        for lane in 0..step {
            p[lane] += p[lane + step];
        }
    }
    p[0]
}

/// IEEE binary16 to binary32, exactly.
#[inline(always)]
pub(crate) fn half(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // 2^112 moves the exponent from bias 15 to bias 127, and makes denormals normal.
    let finite = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let value = if magnitude >= 0x0f80_0000 {
        magnitude | 0x7f80_0000
    } else {
        finite
    };
    f32::from_bits(value | u32::from(bits & 0x8000) << 16)
}

/// The bytes of elements of N bytes each.
#[inline(always)]
fn elements<'a, const N: usize>(w: &Matrix<'a>, (at, length): (usize, usize)) -> &'a [[u8; N]] {
    w.bytes()[at * N..(at + length) * N].as_chunks::<N>().0
}

impl Load for Singles {
    #[inline(always)]
    fn load(&self, w: &Matrix<'_>, place: (usize, usize), tile: &mut Tile) {
        for (lane, block) in elements::<4>(w, place).chunks(BLOCK).enumerate() {
            for (element, bytes) in block.iter().enumerate() {
                tile[element][lane] = f32::from_le_bytes(*bytes);
            }
        }
    }
}

impl Load for Halves {
    #[inline(always)]
    fn load(&self, w: &Matrix<'_>, place: (usize, usize), tile: &mut Tile) {
        for (lane, block) in elements::<2>(w, place).chunks(BLOCK).enumerate() {
            for (element, bytes) in block.iter().enumerate() {
                tile[element][lane] = half(u16::from_le_bytes(*bytes));
            }
        }
    }
}

impl Load for Bf16 {
    #[inline(always)]
    fn load(&self, w: &Matrix<'_>, place: (usize, usize), tile: &mut Tile) {
        for (lane, block) in elements::<2>(w, place).chunks(BLOCK).enumerate() {
            for (element, bytes) in block.iter().enumerate() {
                let bits = u32::from(u16::from_le_bytes(*bytes)) << 16;
                tile[element][lane] = f32::from_bits(bits);
            }
        }
    }
}

/// Scale and minimum of each lane's block: the format's affine pairs, without its function pointers.
#[inline(always)]
fn scales(
    w: &Matrix<'_>,
    layout: &Layout,
    (at, length): (usize, usize),
) -> ([f32; LANES], [f32; LANES]) {
    let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
    let (first, last) = w.params();
    let f16 = |bytes: &[u8], index: usize| {
        half(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]))
    };
    let f32s = |bytes: &[u8], index: usize| {
        let (words, _) = bytes.as_chunks::<4>();
        f32::from_le_bytes(words[index])
    };
    // Sixteenths and groups of 32 elements, counted through all rows.
    let (sixteenth, group, block) = (at / BLOCK, at / 32, at / layout.block);
    for pair in 0..length / 32 {
        let (index, inside) = (group + pair, block + pair / 8);
        let lanes = 2 * pair..2 * pair + 2;
        let (scale, min) = match layout.scaling {
            Scaling::D => (f16(first, index), 0.0),
            Scaling::DM => (f16(first, 2 * index), f16(first, 2 * index + 1)),
            Scaling::E8m0 => (e8m0(first[index]), 0.0),
            Scaling::KMins => {
                let (d, dmin) = (f16(last, 2 * inside), f16(last, 2 * inside + 1));
                let (scale, min) = (first[2 * index], first[2 * index + 1]);
                (d * f32::from(scale), -(dmin * f32::from(min)))
            }
            Scaling::KSigned => {
                let d = f16(last, inside);
                let signed = |lane: usize| f32::from(first[sixteenth + lane].cast_signed());
                for lane in lanes {
                    a[lane] = d * signed(lane);
                }
                continue;
            }
            Scaling::Singles => (f32s(first, 2 * inside), f32s(first, 2 * inside + 1)),
            Scaling::Halves => {
                let unit = index / (layout.unit / 32);
                (f16(first, 2 * unit), f16(first, 2 * unit + 1))
            }
        };
        a[lanes.clone()].fill(scale);
        b[lanes].fill(min);
    }
    (a, b)
}

/// `[element][lane]` from `[lane][element]`.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn turned(codes: &[[u8; BLOCK]; LANES]) -> [[u8; LANES]; BLOCK] {
    let mut turned = [[0u8; LANES]; BLOCK];
    for lane in 0..LANES {
        for element in 0..BLOCK {
            turned[element][lane] = codes[lane][element];
        }
    }
    turned
}

/// `[element][lane]` from `[lane][element]`: four perfect shuffles of rows i and i + 8.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn turned(codes: &[[u8; BLOCK]; LANES]) -> [[u8; LANES]; BLOCK] {
    use std::arch::x86_64 as x86;
    let mut turned = [[0u8; LANES]; BLOCK];
    // SAFETY: SSE2 is part of x86-64; each load and store is of one array of 16 bytes.
    unsafe {
        let mut rows = [x86::_mm_setzero_si128(); 16];
        for (row, codes) in rows.iter_mut().zip(codes) {
            *row = x86::_mm_loadu_si128(codes.as_ptr().cast());
        }
        for _ in 0..4 {
            let mut next = rows;
            for i in 0..8 {
                next[2 * i] = x86::_mm_unpacklo_epi8(rows[i], rows[i + 8]);
                next[2 * i + 1] = x86::_mm_unpackhi_epi8(rows[i], rows[i + 8]);
            }
            rows = next;
        }
        for (row, turned) in rows.iter().zip(&mut turned) {
            x86::_mm_storeu_si128(turned.as_mut_ptr().cast(), *row);
        }
    }
    turned
}

/// Weights from codes `[lane][element]`.
#[inline(always)]
fn weights(
    w: &Matrix<'_>,
    (blocks, layout): (&Blocks, &Layout),
    place: (usize, usize),
    codes: &[[u8; BLOCK]; LANES],
    tile: &mut Tile,
) {
    let (a, b) = scales(w, layout, place);
    for (tile, codes) in tile.iter_mut().zip(&turned(codes)) {
        let mut v = [0.0f32; LANES];
        match blocks.levels {
            Levels::Signed => {
                for lane in 0..LANES {
                    v[lane] = f32::from(codes[lane].cast_signed());
                }
            }
            Levels::Offset(zero) => {
                for lane in 0..LANES {
                    v[lane] = (i32::from(codes[lane]) - i32::from(zero)) as f32;
                }
            }
            Levels::Table(table) => {
                for lane in 0..LANES {
                    v[lane] = f32::from(table[usize::from(codes[lane] & 15)]);
                }
            }
        }
        if blocks.mins {
            for lane in 0..LANES {
                tile[lane] = a[lane].mul_add(v[lane], b[lane]);
            }
        } else {
            for lane in 0..LANES {
                tile[lane] = a[lane] * v[lane];
            }
        }
    }
}

impl Load for Bytes<'_> {
    #[inline(always)]
    fn load(&self, w: &Matrix<'_>, place: (usize, usize), tile: &mut Tile) {
        let mut codes = [[0u8; BLOCK]; LANES];
        let stored = w.bits(PlaneKind::Bytes, place.0, place.1);
        let (stored, _) = stored.unwrap_or_default().as_chunks::<BLOCK>();
        for (codes, stored) in codes.iter_mut().zip(stored) {
            *codes = *stored;
        }
        weights(w, self.0, place, &codes, tile);
    }
}

impl<const HIGH: usize> Load for Nibbles<'_, HIGH> {
    #[inline(always)]
    fn load(&self, w: &Matrix<'_>, place: (usize, usize), tile: &mut Tile) {
        let mut codes = [[0u8; BLOCK]; LANES];
        let low = w.bits(PlaneKind::Nibbles, place.0, place.1);
        let (low, _) = low.unwrap_or_default().as_chunks::<16>();
        for (pair, low) in codes.chunks_exact_mut(2).zip(low) {
            for element in 0..BLOCK {
                pair[0][element] = low[element] & 15;
                pair[1][element] = low[element] >> 4;
            }
        }
        let kind = if HIGH == 1 {
            PlaneKind::Bit4
        } else {
            PlaneKind::Bits45
        };
        if HIGH > 0 {
            let high = w.bits(kind, place.0, place.1).unwrap_or_default();
            let (high, _) = high.as_chunks::<4>();
            // A word serves 32 elements at one bit each, or 16 at two; four codes at a time.
            for (lane, codes) in codes.iter_mut().enumerate().take(place.1 / BLOCK) {
                let (word, from) = if HIGH == 1 {
                    (high[lane / 2], lane % 2 * 4)
                } else {
                    (high[lane], 0)
                };
                let word = u32::from_le_bytes(word);
                let mask = if HIGH == 1 { 0x0101_0101 } else { 0x0303_0303 };
                for (index, four) in codes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    let bits = (word >> (HIGH * (index + from)) & mask) << 4;
                    *four = (u32::from_le_bytes(*four) | bits).to_le_bytes();
                }
            }
        }
        weights(w, self.0, place, &codes, tile);
    }
}
