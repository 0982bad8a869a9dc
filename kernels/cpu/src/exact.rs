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
use refrain_kernels::format::{Blocks, Coding, Levels, Params, PlaneKind};

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
    // One loop per kind of code, so that the inner ones have no branch.
    match (blocks.planes[0].kind, blocks.planes[1].kind) {
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
struct Bytes<'a>(&'a Blocks);
/// Nibbles with `HIGH` bits above them.
struct Nibbles<'a, const HIGH: usize>(&'a Blocks);

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

/// Scale and minimum of each lane's block, and whether minimums are added.
#[inline(always)]
fn scales(
    w: &Matrix<'_>,
    blocks: &Blocks,
    (at, length): (usize, usize),
) -> ([f32; LANES], [f32; LANES]) {
    let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
    let block = w.format().block;
    let mut params = Params::default();
    for lane in 0..length / BLOCK {
        let element = at + lane * BLOCK;
        let inside = element % block;
        if lane == 0 || inside == 0 {
            parameters(w, blocks, element / block, &mut params);
        }
        if lane == 0 || inside.is_multiple_of(blocks.group) {
            (a[lane], b[lane]) = blocks.affine(&params, inside / blocks.group);
        } else {
            (a[lane], b[lane]) = (a[lane - 1], b[lane - 1]);
        }
    }
    (a, b)
}

/// The parameters of block `index`, through all rows.
#[inline(always)]
fn parameters(w: &Matrix<'_>, blocks: &Blocks, index: usize, params: &mut Params) {
    let mut to = 0;
    for (number, plane) in blocks.planes.iter().enumerate() {
        if plane.kind == PlaneKind::Params {
            let bytes = &w.plane(number)[index * plane.block_bytes..][..plane.block_bytes];
            params[to..to + plane.block_bytes].copy_from_slice(bytes);
            to += plane.block_bytes;
        }
    }
}

/// Weights from codes `[lane][element]`.
#[inline(always)]
fn weights(
    w: &Matrix<'_>,
    blocks: &Blocks,
    place: (usize, usize),
    codes: &[[u8; BLOCK]; LANES],
    tile: &mut Tile,
) {
    let (a, b) = scales(w, blocks, place);
    let mut turned = [[0u8; LANES]; BLOCK];
    for lane in 0..LANES {
        for element in 0..BLOCK {
            turned[element][lane] = codes[lane][element];
        }
    }
    for (tile, codes) in tile.iter_mut().zip(&turned) {
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
            // A word serves 32 elements at one bit each, or 16 at two.
            for (lane, codes) in codes.iter_mut().enumerate().take(place.1 / BLOCK) {
                let (word, from) = if HIGH == 1 {
                    (high[lane / 2], lane % 2 * 4)
                } else {
                    (high[lane], 0)
                };
                for (element, code) in codes.iter_mut().enumerate() {
                    let bits = word[element % 4] >> (HIGH * (element / 4 + from));
                    *code |= (bits & ((1 << HIGH) - 1)) << 4;
                }
            }
        }
        weights(w, self.0, place, &codes, tile);
    }
}
