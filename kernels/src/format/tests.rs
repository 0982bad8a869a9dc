//! The reference decoders against an independent decoder, and by hand where there is none.

use super::{Coding, Format};
use crate::Dtype;

const BLOCKS: usize = 64;
/// f16: zeros, denormals, largest, infinities, NaN.
const EDGES: [u16; 10] = [
    0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00,
];
/// Offsets of f16 fields in a file block.
const HALVES: [(Dtype, &[usize]); 10] = [
    (Dtype::Q8_0, &[0]),
    (Dtype::Q4_0, &[0]),
    (Dtype::Q4_1, &[0, 2]),
    (Dtype::Q5_0, &[0]),
    (Dtype::Q5_1, &[0, 2]),
    (Dtype::Q4_K, &[0, 2]),
    (Dtype::Q5_K, &[0, 2]),
    (Dtype::Q6_K, &[208]),
    (Dtype::IQ4_NL, &[0]),
    (Dtype::MXFP4, &[]),
];

fn splitmix64(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        out.extend((z ^ z >> 31).to_le_bytes());
    }
    out.truncate(bytes);
    out
}

fn decoded(format: &Format, file: &[u8]) -> Vec<u32> {
    let mut out = vec![0.0; format.block];
    file.chunks_exact(format.block_bytes)
        .flat_map(|block| {
            format.decode(block, &mut out).unwrap();
            let bits = |x: &f32| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() };
            out.iter().map(bits).collect::<Vec<_>>()
        })
        .collect()
}

/// `tests/formats/dequantised.txt`, made by the script beside it.
#[test]
fn elements_are_those_of_ggml() {
    let lines: Vec<Vec<&str>> = include_str!("../../tests/formats/dequantised.txt")
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    assert_eq!(lines.len(), HALVES.len());
    for (line, (dtype, fields)) in lines.iter().zip(HALVES) {
        let format = dtype.format();
        assert_eq!(line[0], format.name);
        let id = format.ggml.unwrap();
        assert_eq!(line[1], id.to_string());
        let mut file = splitmix64(u64::from(id), BLOCKS * format.block_bytes);
        for (block, edge) in EDGES.iter().enumerate() {
            for field in fields {
                let at = block * format.block_bytes + field;
                file[at..at + 2].copy_from_slice(&edge.to_le_bytes());
            }
        }
        let bits = decoded(format, &file);
        let last = &bits[(BLOCKS - 1) * format.block..];
        let first: Vec<String> = last[..8].iter().map(|bits| format!("{bits:08x}")).collect();
        assert_eq!(line[3..], first, "{dtype}");
        let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        assert_eq!(line[2], blake3::hash(&bytes).to_hex().as_str(), "{dtype}");
    }
}

/// One block of each 256-group type, written out by the container's description.
#[test]
fn elements_of_256_groups() {
    let code = |i: usize| (i * 7 + i / 16) % 64;
    let mut four = vec![0u8; 128];
    let mut six = vec![0u8; 192];
    for i in 0..256 {
        four[i / 2] |= ((code(i) & 15) << (4 * (i % 2))) as u8;
    }
    for i in 0..64 {
        let [q0, q1, q2, q3] = [0, 1, 2, 3].map(|j| code(4 * i + j) as u8);
        six[3 * i] = q0 | q1 << 6;
        six[3 * i + 1] = q1 >> 2 | q2 << 4;
        six[3 * i + 2] = q2 >> 4 | q3 << 2;
    }
    let singles = [0.031_25f32, -0.3].map(f32::to_le_bytes).concat();
    let halves = [0x3400u16, 0xb800, 0x2c00, 0x3c00]
        .map(u16::to_le_bytes)
        .concat();
    let pair = [&halves[..4], &[0; 4]].concat();
    let one = |_: usize| (0.031_25, -0.3);
    let two = |i: usize| if i < 128 { (0.25, -0.5) } else { (0.0625, 1.0) };
    let first = |_: usize| (0.25, -0.5);
    type Affine<'a> = &'a dyn Fn(usize) -> (f32, f32);
    let cases: [(Dtype, &[u8], &[u8], Affine<'_>); 6] = [
        (Dtype::HFQ4_G256, &singles, &four, &one),
        (Dtype::MQ4_G256, &singles, &four, &one),
        (Dtype::MQ4_G256_V2, &halves, &four, &two),
        (Dtype::MQ4C_G256, &pair, &four, &first),
        (Dtype::HFQ6_G256, &singles, &six, &one),
        (Dtype::MQ6_G256, &singles, &six, &one),
    ];
    for (dtype, header, codes, affine) in cases {
        let format = dtype.format();
        let file = [header, codes].concat();
        let mut out = vec![0.0; 256];
        format.decode(&file, &mut out).unwrap();
        let mask = if format.block_bytes == 136 { 15 } else { 63 };
        for (i, x) in out.iter().enumerate() {
            let (scale, zero) = affine(i);
            let want = scale.mul_add((code(i) & mask) as f32, zero);
            assert_eq!(x.to_bits(), want.to_bits(), "{dtype} {i}");
        }
        assert_eq!(format.rotated, format.name.starts_with("mq"), "{dtype}");
    }
}

#[test]
fn rows_agree_with_themselves() {
    for format in Format::ALL {
        let Coding::Blocks(blocks) = &format.coding else {
            assert_eq!((format.block, format.habit), (1, None), "{}", format.name);
            continue;
        };
        assert!(format.habit.is_some(), "{}", format.name);
        assert!(format.block.is_multiple_of(blocks.group));
        assert!(format.block <= super::MAX_BLOCK);
        let params = |plane: &&super::Plane| plane.kind == super::PlaneKind::Params;
        let bytes: usize = blocks
            .planes
            .iter()
            .filter(params)
            .map(|p| p.block_bytes)
            .sum();
        assert!(bytes <= super::MAX_PARAMS, "{}", format.name);
        assert!(format.decode(&[0; 3], &mut [0.0; 2]).is_err());
    }
}
