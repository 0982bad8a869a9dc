//! Weights from a seed, with edge scales, and comparison of bits.
#![allow(dead_code, reason = "each test binary uses another part")]

use refrain_kernels::format::Coding;
use refrain_kernels::{Dtype, relayout};

/// f16: zeros, denormals, one, largest, infinities, NaN.
const EDGES: [u16; 11] = [
    0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00,
];

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// In (-1, 1), now and then a power of ten away from it.
    pub fn float(&mut self) -> f32 {
        let bits = self.next();
        let unit = (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
        match bits & 63 {
            0 => unit * 1e6,
            1 => unit * 1e-6,
            2 => -0.0,
            _ => unit,
        }
    }
}

/// Offsets of f16 fields in a file block.
fn halves(dtype: Dtype) -> &'static [usize] {
    match dtype {
        Dtype::Q4_1 | Dtype::Q5_1 | Dtype::Q4_K | Dtype::Q5_K | Dtype::MQ4C_G256 => &[0, 2],
        Dtype::MQ4_G256_V2 => &[0, 2, 4, 6],
        Dtype::Q6_K => &[208],
        Dtype::Q8_0 | Dtype::Q4_0 | Dtype::Q5_0 | Dtype::IQ4_NL => &[0],
        _ => &[],
    }
}

/// Random file bytes in device layout: scales of ordinary size, one in eight an edge.
pub fn weight(dtype: Dtype, rows: usize, k: usize, random: &mut Random) -> Vec<u8> {
    weight_with(dtype, rows, k, random, true)
}

pub fn weight_with(
    dtype: Dtype,
    rows: usize,
    k: usize,
    random: &mut Random,
    edges: bool,
) -> Vec<u8> {
    let length = dtype.file_bytes(rows as u64, k as u64).unwrap() as usize;
    let mut file: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    let format = dtype.format();
    for block in file.chunks_exact_mut(format.block_bytes) {
        for field in halves(dtype) {
            let bits = random.next();
            let scale = if edges && bits & 7 == 0 {
                EDGES[(bits >> 8) as usize % EDGES.len()]
            } else {
                // 2^-8 to 2^-1, either sign.
                (0x1c00 + (bits >> 8) as u16 % 0x2000) | ((bits >> 48) as u16 & 0x8000)
            };
            block[*field..field + 2].copy_from_slice(&scale.to_le_bytes());
        }
        match &format.coding {
            Coding::Plain(_) if format.block_bytes == 4 => {
                block.copy_from_slice(&random.float().to_le_bytes());
            }
            Coding::Plain(_) if dtype == Dtype::BF16 => {
                block.copy_from_slice(&random.float().to_le_bytes()[2..]);
            }
            Coding::Blocks(_) if dtype == Dtype::MXFP4 && !edges => {
                block[0] = 118 + block[0] % 16;
            }
            Coding::Blocks(blocks) => {
                block[blocks.reserved.0..blocks.reserved.1].fill(0);
                if halves(dtype).is_empty() && dtype != Dtype::MXFP4 {
                    block[..4].copy_from_slice(&(random.float() * 0.01).to_le_bytes());
                    block[4..8].copy_from_slice(&random.float().to_le_bytes());
                }
            }
            Coding::Plain(_) => {}
        }
    }
    relayout(dtype, &file, rows as u64, k as u64)
        .unwrap()
        .into_owned()
}

/// Equal bits; any NaN equals any other.
pub fn same(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let equal = g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan();
        assert!(
            equal,
            "{what}, row {i}: {g:e} ({:08x}), want {w:e} ({:08x})",
            g.to_bits(),
            w.to_bits()
        );
    }
}
