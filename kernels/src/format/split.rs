//! File blocks taken apart into codes and parameters, and put together again.
//!
//! Sources: ggml/src/ggml-common.h (block structs) and ggml-quants.c (order of bits) for the GGUF types;
//! hipfire's quantiser for the 256-group types. A function here sees exactly one block.

use super::Block;

/// Nibbles as ggml's blocks of 32 keep them, which is also the device's order.
fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(16);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

fn put_nibbles(codes: &[u8], bytes: &mut [u8]) {
    let (low, high) = codes.split_at(16);
    for ((byte, low), high) in bytes.iter_mut().zip(low).zip(high) {
        *byte = (low & 15) | high << 4;
    }
}

/// `D` parameter bytes, then 32 bytes of codes.
pub(super) fn bytes32<const D: usize>(file: &[u8], block: &mut Block) {
    block.params[..D].copy_from_slice(&file[..D]);
    block.codes[..32].copy_from_slice(&file[D..]);
}

pub(super) fn join_bytes32<const D: usize>(block: &Block, file: &mut [u8]) {
    file[..D].copy_from_slice(&block.params[..D]);
    file[D..].copy_from_slice(&block.codes[..32]);
}

/// `D` parameter bytes, then 16 bytes of nibbles.
pub(super) fn four32<const D: usize>(file: &[u8], block: &mut Block) {
    block.params[..D].copy_from_slice(&file[..D]);
    nibbles(&file[D..], &mut block.codes[..32]);
}

pub(super) fn join_four32<const D: usize>(block: &Block, file: &mut [u8]) {
    file[..D].copy_from_slice(&block.params[..D]);
    put_nibbles(&block.codes[..32], &mut file[D..]);
}

/// `D` parameter bytes, a u32 with bit 4 of element `j` in bit `j`, 16 bytes of nibbles.
pub(super) fn five32<const D: usize>(file: &[u8], block: &mut Block) {
    block.params[..D].copy_from_slice(&file[..D]);
    nibbles(&file[D + 4..], &mut block.codes[..32]);
    for (j, code) in block.codes[..32].iter_mut().enumerate() {
        *code |= (file[D + j / 8] >> (j % 8) & 1) << 4;
    }
}

pub(super) fn join_five32<const D: usize>(block: &Block, file: &mut [u8]) {
    file.fill(0);
    file[..D].copy_from_slice(&block.params[..D]);
    put_nibbles(&block.codes[..32], &mut file[D + 4..]);
    for (j, code) in block.codes[..32].iter().enumerate() {
        file[D + j / 8] |= (code >> 4 & 1) << (j % 8);
    }
}

/// The twelve bytes of eight 6-bit scales and eight 6-bit minimums, as (scale, minimum) pairs.
fn k_scales(s: &[u8], pairs: &mut [u8]) {
    for (j, pair) in pairs.chunks_exact_mut(2).enumerate() {
        let (scale, min) = if j < 4 {
            (s[j] & 63, s[j + 4] & 63)
        } else {
            let top = |byte: u8| byte >> 6 << 4;
            let both = s[j + 4];
            (both & 15 | top(s[j - 4]), both >> 4 | top(s[j]))
        };
        pair.copy_from_slice(&[scale, min]);
    }
}

fn put_k_scales(pairs: &[u8], s: &mut [u8]) {
    for j in 0..4 {
        let (scale, min) = (pairs[2 * j + 8], pairs[2 * j + 9]);
        s[j] = pairs[2 * j] & 63 | scale >> 4 << 6;
        s[j + 4] = pairs[2 * j + 1] & 63 | min >> 4 << 6;
        s[j + 8] = scale & 15 | min << 4;
    }
}

/// Nibbles of K-quants: 32 bytes hold 64 elements, low halves first.
fn k_nibbles(bytes: &[u8], codes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact(32).zip(codes.chunks_exact_mut(64)) {
        let (low, high) = codes.split_at_mut(32);
        for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
}

fn put_k_nibbles(codes: &[u8], bytes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact_mut(32).zip(codes.chunks_exact(64)) {
        let (low, high) = codes.split_at(32);
        for ((byte, low), high) in bytes.iter_mut().zip(low).zip(high) {
            *byte = (low & 15) | high << 4;
        }
    }
}

/// Q4_K: f16 d, f16 dmin, 12 bytes of scales, 128 of nibbles.
pub(super) fn q4_k(file: &[u8], block: &mut Block) {
    block.params[16..20].copy_from_slice(&file[..4]);
    k_scales(&file[4..16], &mut block.params[..16]);
    k_nibbles(&file[16..], &mut block.codes);
}

pub(super) fn join_q4_k(block: &Block, file: &mut [u8]) {
    file[..4].copy_from_slice(&block.params[16..20]);
    put_k_scales(&block.params[..16], &mut file[4..16]);
    put_k_nibbles(&block.codes, &mut file[16..]);
}

/// Q5_K: as Q4_K, with 32 bytes before the nibbles: bit 4 of element `32 j + l` in bit `j` of byte `l`.
pub(super) fn q5_k(file: &[u8], block: &mut Block) {
    block.params[16..20].copy_from_slice(&file[..4]);
    k_scales(&file[4..16], &mut block.params[..16]);
    k_nibbles(&file[48..], &mut block.codes);
    for (index, code) in block.codes.iter_mut().enumerate() {
        *code |= (file[16 + index % 32] >> (index / 32) & 1) << 4;
    }
}

pub(super) fn join_q5_k(block: &Block, file: &mut [u8]) {
    file.fill(0);
    file[..4].copy_from_slice(&block.params[16..20]);
    put_k_scales(&block.params[..16], &mut file[4..16]);
    put_k_nibbles(&block.codes, &mut file[48..]);
    for (index, code) in block.codes.iter().enumerate() {
        file[16 + index % 32] |= (code >> 4 & 1) << (index / 32);
    }
}

/// Where Q6_K keeps element `index`: byte and shift of its low nibble, byte and shift of its high bits.
const fn q6_k_place(index: usize) -> (usize, usize, usize, usize) {
    let (half, k, l) = (index / 128, index / 32 % 4, index % 32);
    (
        64 * half + 32 * (k % 2) + l,
        4 * (k / 2),
        128 + 32 * half + l,
        2 * k,
    )
}

/// Q6_K: 128 bytes of nibbles, 64 of high bits, 16 i8 scales, f16 d.
pub(super) fn q6_k(file: &[u8], block: &mut Block) {
    block.params[..18].copy_from_slice(&file[192..]);
    for (index, code) in block.codes.iter_mut().enumerate() {
        let (low, low_shift, high, high_shift) = q6_k_place(index);
        *code = (file[low] >> low_shift & 15) | (file[high] >> high_shift & 3) << 4;
    }
}

pub(super) fn join_q6_k(block: &Block, file: &mut [u8]) {
    file.fill(0);
    file[192..].copy_from_slice(&block.params[..18]);
    for (index, code) in block.codes.iter().enumerate() {
        let (low, low_shift, high, high_shift) = q6_k_place(index);
        file[low] |= (code & 15) << low_shift;
        file[high] |= (code >> 4 & 3) << high_shift;
    }
}

/// Eight bytes of header, of which `D` are parameters and the others zero, then 128 of nibbles:
/// elements `2 i` (low) and `2 i + 1` in byte `i`.
pub(super) fn pairs256<const D: usize>(file: &[u8], block: &mut Block) {
    block.params[..D].copy_from_slice(&file[..D]);
    for (byte, codes) in file[8..].iter().zip(block.codes.chunks_exact_mut(2)) {
        codes.copy_from_slice(&[byte & 15, byte >> 4]);
    }
}

pub(super) fn join_pairs256<const D: usize>(block: &Block, file: &mut [u8]) {
    file.fill(0);
    file[..D].copy_from_slice(&block.params[..D]);
    for (byte, codes) in file[8..].iter_mut().zip(block.codes.chunks_exact(2)) {
        *byte = (codes[0] & 15) | codes[1] << 4;
    }
}

/// Eight bytes of parameters, then 192 of 6-bit codes, four in three bytes, lowest bits first.
pub(super) fn six256(file: &[u8], block: &mut Block) {
    block.params[..8].copy_from_slice(&file[..8]);
    let codes = block.codes.chunks_exact_mut(4);
    for (bytes, codes) in file[8..].chunks_exact(3).zip(codes) {
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        for (i, code) in codes.iter_mut().enumerate() {
            *code = (word >> (6 * i) & 63) as u8;
        }
    }
}

pub(super) fn join_six256(block: &Block, file: &mut [u8]) {
    file[..8].copy_from_slice(&block.params[..8]);
    let codes = block.codes.chunks_exact(4);
    for (bytes, codes) in file[8..].chunks_exact_mut(3).zip(codes) {
        let pack = |word, (i, code): (usize, &u8)| word | u32::from(code & 63) << (6 * i);
        let word = codes.iter().enumerate().fold(0u32, pack);
        bytes.copy_from_slice(&word.to_le_bytes()[..3]);
    }
}
