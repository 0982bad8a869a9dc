//! Device planes: which bits of a block's codes, or which of its parameters, lie together.

use super::Block;

/// One plane of the device layout: `[rows][blocks of a row][block_bytes]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// What it holds.
    pub kind: PlaneKind,
    /// Bytes of one block in it.
    pub block_bytes: usize,
    /// Bytes that stay together when rows are interleaved: a word of codes, or one parameter.
    pub unit_bytes: usize,
    /// Contents in words, with element type and shape per block.
    pub holds: &'static str,
}

/// Contents of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneKind {
    /// Whole codes, one byte each, in order.
    Bytes,
    /// Low four bits: per 32 elements 16 bytes, element `j` low and `j + 16` high in byte `j`.
    Nibbles,
    /// Bit 4: per 32 elements one little-endian u32, element `4 w + b` in bit `8 b + w`, so that
    /// `h >> w & 0x01010101` serves the four codes of word `w`.
    Bit4,
    /// Bits 4 and 5: per 16 elements one little-endian u32, element `4 w + b` in bits `8 b + 2 w` and
    /// up, so that `h >> 2 w & 0x03030303` serves the four codes of word `w`.
    Bits45,
    /// Parameters, as the format's `split` leaves them.
    Params,
}

const GROUP: usize = 32;

impl Plane {
    /// Writes the block's bytes of this plane; `params` is where its parameters start.
    pub(crate) fn put(&self, block: &Block, params: usize, out: &mut [u8]) {
        let codes = &block.codes;
        match self.kind {
            PlaneKind::Bytes => out.copy_from_slice(&codes[..out.len()]),
            PlaneKind::Params => out.copy_from_slice(&block.params[params..params + out.len()]),
            PlaneKind::Nibbles => {
                for (group, codes) in out.chunks_exact_mut(16).zip(codes.chunks_exact(GROUP)) {
                    let (low, high) = codes.split_at(16);
                    for ((byte, low), high) in group.iter_mut().zip(low).zip(high) {
                        *byte = (low & 15) | (high & 15) << 4;
                    }
                }
            }
            PlaneKind::Bit4 => put_bits(codes, 1, GROUP, out),
            PlaneKind::Bits45 => put_bits(codes, 2, 16, out),
        }
    }

    /// Inverse of [`Plane::put`]: adds this plane's bits to the block, which starts as zero.
    pub(crate) fn take(&self, bytes: &[u8], params: usize, block: &mut Block) {
        let codes = &mut block.codes;
        match self.kind {
            PlaneKind::Bytes => codes[..bytes.len()].copy_from_slice(bytes),
            PlaneKind::Params => block.params[params..params + bytes.len()].copy_from_slice(bytes),
            PlaneKind::Nibbles => {
                for (group, codes) in bytes.chunks_exact(16).zip(codes.chunks_exact_mut(GROUP)) {
                    let (low, high) = codes.split_at_mut(16);
                    for ((byte, low), high) in group.iter().zip(low).zip(high) {
                        *low |= byte & 15;
                        *high |= byte >> 4;
                    }
                }
            }
            PlaneKind::Bit4 => take_bits(bytes, 1, GROUP, codes),
            PlaneKind::Bits45 => take_bits(bytes, 2, 16, codes),
        }
    }
}

/// `bits` bits from bit 4 of each code, one u32 per `per` codes.
fn put_bits(codes: &[u8], bits: usize, per: usize, out: &mut [u8]) {
    let mask = (1u32 << bits) - 1;
    for (word, codes) in out.chunks_exact_mut(4).zip(codes.chunks_exact(per)) {
        let mut h = 0u32;
        for (index, code) in codes.iter().enumerate() {
            let (w, b) = (index / 4, index % 4);
            h |= (u32::from(code >> 4) & mask) << (8 * b + bits * w);
        }
        word.copy_from_slice(&h.to_le_bytes());
    }
}

fn take_bits(bytes: &[u8], bits: usize, per: usize, codes: &mut [u8]) {
    let mask = (1u32 << bits) - 1;
    for (word, codes) in bytes.chunks_exact(4).zip(codes.chunks_exact_mut(per)) {
        let h = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        for (index, code) in codes.iter_mut().enumerate() {
            let (w, b) = (index / 4, index % 4);
            *code |= ((h >> (8 * b + bits * w) & mask) << 4) as u8;
        }
    }
}
