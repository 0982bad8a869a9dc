//! One row per weight format: its block in the file, its planes on the device, what its codes mean,
//! and the form that an activation takes before it is multiplied with integers.
//!
//! A format that is not plain floats is a string of *codes* (4 to 8 bits each) and of *parameters*
//! (scales and minimums) per block. Three small functions of a row say how: `split` takes a file block
//! apart, `join` is its inverse, `affine` gives scale and minimum of a group of codes. Everything else
//! (device layout, its inverse, the reference decoder) is written once over these. A new format is a
//! row, these functions, and one inner loop per engine.
//!
//! Device layout: planes one after the other without gaps, each `[rows][row bytes]`: codes (or their
//! low nibbles), then their higher bits, then parameters. A row of the first plane starts at a multiple
//! of 16 bytes from the start of the tensor, because every block is a multiple of 32 elements. Formats
//! of 4 to 6 bits are cut into groups of 32 elements: byte `j` of 16 holds the low nibbles of elements
//! `j` (low half) and `j + 16` (high half), so the masks `v & 0x0f0f0f0f` and `v >> 4 & 0x0f0f0f0f` of
//! one 16-byte load give the codes of 16 consecutive elements each.
//!
//! Left to others: kernels that multiply (`kernels/hip`, `refrain-cpu`), and which formats have any.

mod affine;
mod habit;
mod planes;
mod rotate;
mod rows;
mod split;

pub use habit::{Habit, quantise};
pub use planes::{Plane, PlaneKind};
pub use rotate::{ROTATION, rotate, unrotate};

use crate::{CatalogError, Dtype};

/// Elements of the longest block.
pub const MAX_BLOCK: usize = 256;
/// Bytes of the most parameters of a block, in device form.
pub const MAX_PARAMS: usize = 20;

/// One weight format.
#[derive(Debug)]
pub struct Format {
    /// The type it describes.
    pub dtype: Dtype,
    /// Name in kernel symbols: the type's name in its file format, in lower case.
    pub name: &'static str,
    /// Type number in GGUF files.
    pub ggml: Option<u32>,
    /// Quant type in HFQ files.
    pub hfq: Option<u8>,
    /// Elements of a block.
    pub block: usize,
    /// Bytes of a block in the file.
    pub block_bytes: usize,
    /// Form of the activation in integer products; `None`: f32.
    pub habit: Option<Habit>,
    /// The file holds `R * w` per 256 elements, so the activation is rotated by [`rotate`] first.
    pub rotated: bool,
    /// How elements are stored.
    pub coding: Coding,
}

/// How the elements of a format are stored.
#[derive(Debug)]
pub enum Coding {
    /// One float per element, the same in file and device layout.
    Plain(fn(&[u8]) -> f32),
    /// Blocks of codes and parameters.
    Blocks(Blocks),
}

/// Storage in blocks.
#[derive(Debug)]
pub struct Blocks {
    /// Device planes in order.
    pub planes: &'static [Plane],
    /// What a code stands for.
    pub levels: Levels,
    /// Elements that share one scale (and minimum).
    pub group: usize,
    /// Whether a minimum is added: x = fma(a, v, b); without it x = a * v.
    pub mins: bool,
    /// Bytes of a file block that are zero and not stored on the device: first and end.
    pub reserved: (usize, usize),
    split: fn(&[u8], &mut Block),
    join: fn(&Block, &mut [u8]),
    affine: fn(&Params, usize) -> (f32, f32),
}

/// Parameters of a block as the device holds them: the block's bytes of each parameter plane, in order.
pub type Params = [u8; MAX_PARAMS];

/// One block taken apart.
#[derive(Clone, Debug)]
pub struct Block {
    /// Code per element, unsigned except where [`Levels::Signed`].
    pub codes: [u8; MAX_BLOCK],
    /// Parameters.
    pub params: Params,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            codes: [0; MAX_BLOCK],
            params: [0; MAX_PARAMS],
        }
    }
}

/// The integer that a code stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// The byte as i8.
    Signed,
    /// The code less this number.
    Offset(u8),
    /// Entry of a table of 16.
    Table(&'static [i8; 16]),
}

impl Levels {
    /// Value of a code.
    #[must_use]
    pub fn value(self, code: u8) -> i32 {
        match self {
            Self::Signed => i32::from(code.cast_signed()),
            Self::Offset(zero) => i32::from(code) - i32::from(zero),
            Self::Table(table) => i32::from(table[usize::from(code & 15)]),
        }
    }
}

impl Format {
    /// Every format, in the order of [`Dtype::ALL`].
    pub const ALL: &'static [Format] = rows::FORMATS;

    /// Codes and parameters of one file block; `None` for plain types and for another number of bytes.
    #[must_use]
    pub fn take_apart(&self, file: &[u8]) -> Option<Block> {
        let Coding::Blocks(blocks) = &self.coding else {
            return None;
        };
        let mut block = Block::default();
        (file.len() == self.block_bytes).then(|| (blocks.split)(file, &mut block))?;
        Some(block)
    }

    /// The reference decoder: the elements of one file block. A row's elements are exactly those of
    /// ggml's dequantisation (checked bit by bit against the `gguf` Python package; HFQ types, which it
    /// does not know: one fma per element).
    ///
    /// # Errors
    /// [`CatalogError::Bytes`] if `file` or `out` is not one block.
    pub fn decode(&self, file: &[u8], out: &mut [f32]) -> Result<(), CatalogError> {
        if file.len() != self.block_bytes || out.len() != self.block {
            return Err(CatalogError::Bytes {
                dtype: self.name,
                rows: 1,
                cols: out.len() as u64,
                expected: self.block_bytes as u64,
                given: file.len() as u64,
            });
        }
        match &self.coding {
            Coding::Plain(value) => out.fill(value(file)),
            Coding::Blocks(blocks) => {
                let mut block = Block::default();
                (blocks.split)(file, &mut block);
                blocks.values(&block, out);
            }
        }
        Ok(())
    }
}

impl Blocks {
    /// Elements of a block: x = a * v, or fma(a, v, b) with minimums, in f32.
    pub fn values(&self, block: &Block, out: &mut [f32]) {
        for (index, group) in out.chunks_mut(self.group).enumerate() {
            let (a, b) = (self.affine)(&block.params, index);
            let codes = &block.codes[index * self.group..];
            for (x, code) in group.iter_mut().zip(codes) {
                let v = self.levels.value(*code) as f32;
                *x = if self.mins { a.mul_add(v, b) } else { a * v };
            }
        }
    }

    /// Scale and minimum (0 without minimums) of group `index` of a block.
    #[must_use]
    pub fn affine(&self, params: &Params, index: usize) -> (f32, f32) {
        (self.affine)(params, index)
    }

    pub(crate) fn split(&self, file: &[u8], block: &mut Block) {
        (self.split)(file, block);
    }

    pub(crate) fn join(&self, block: &Block, file: &mut [u8]) {
        (self.join)(block, file);
    }

    /// Bytes of a block on the device, over all planes.
    #[must_use]
    pub const fn device_bytes(&self) -> usize {
        let (mut sum, mut plane) = (0, 0);
        while plane < self.planes.len() {
            sum += self.planes[plane].block_bytes;
            plane += 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests;
