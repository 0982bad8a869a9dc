//! Operand sets from a seed, as `tests/vectors/generate.py` makes them.

use crate::isa::Row as TableRow;
use crate::isa::op::Op;
use crate::isa::shape::Ty;

/// What an operation starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) sources: [u64; 3],
    /// The destination before; of an atomic, the memory cell.
    pub(super) old: u64,
    pub(super) scc: u32,
    pub(super) vcc: u32,
}

const F32: [u64; 20] = [
    0x0000_0000,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x4049_0fdb,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0x0000_0001,
    0x807f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0x3380_0000,
    0x4b00_0001,
    0xc2fe_0000,
    0x3eff_ffff,
    0x4f00_0000,
    0xcf00_0001,
    0x477f_e000,
];
const F64: [u64; 16] = [
    0,
    1 << 63,
    0x3ff << 52,
    0xbff << 52,
    0x4009_21fb_5444_2d18,
    0x7ff << 52,
    0xfff << 52,
    0x7ff8 << 48,
    1,
    0x000f_ffff_ffff_ffff,
    0x0010 << 48,
    0x7fef_ffff_ffff_ffff,
    0x41df_ffff_ffc0_0000,
    0xc1e0_0000_0020_0000,
    0x3ca0 << 48,
    0x4330_0000_0000_0001,
];
const F16: [u64; 16] = [
    0, 0x8000, 0x3c00, 0xbc00, 0x4248, 0x7c00, 0xfc00, 0x7e00, 1, 0x83ff, 0x0400, 0x7bff, 0x3555,
    0x5640, 0x7c01, 0xb800,
];
const INT: [u64; 14] = [
    0,
    1,
    2,
    0xffff_ffff,
    0x8000_0000,
    0x7fff_ffff,
    0x1234_5678,
    0xdead_beef,
    31,
    32,
    0xffff,
    0x00ff_00ff,
    0x8000_8000,
    0x7f80_ff01,
];

/// SplitMix64, started from the FNV-1a hash of a mnemonic.
struct Source(u64);

impl Source {
    fn new(name: &str) -> Self {
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
        }))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = self.0;
        let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

fn pick(list: &[u64], r: u64) -> u64 {
    list[(r % list.len() as u64) as usize]
}

fn operand(source: &mut Source, ty: Ty, edge: bool) -> u64 {
    let (a, b) = (source.next(), source.next());
    match ty {
        Ty::F32 if edge => pick(&F32, a),
        Ty::F32 if a & 3 == 0 => b & 0xffff_ffff,
        Ty::F32 => b >> 63 << 31 | (107 + (b >> 40) % 41) << 23 | b & 0x7f_ffff,
        Ty::F64 if edge => pick(&F64, a),
        Ty::F64 if a & 3 == 0 => b,
        Ty::F64 => {
            let exponent = 963 + (b >> 52 & 0x7ff) % 121;
            b >> 63 << 63 | exponent << 52 | b & ((1 << 52) - 1)
        }
        Ty::F16 | Ty::B16 => {
            let low = if edge {
                pick(&F16, a)
            } else {
                a >> 32 & 0xffff
            };
            low | (b & 0xffff) << 16
        }
        Ty::Packed if edge => pick(&F16, a) | pick(&F16, a >> 32) << 16,
        Ty::B64 | Ty::I64 if edge => pick(&INT, a) | pick(&INT, a >> 32) << 32,
        Ty::B64 | Ty::I64 => b,
        _ => {
            let value = if edge { pick(&INT, a) } else { b & 0xffff_ffff };
            match ty {
                Ty::Mask => value & 1,
                Ty::Imm16 => value & 0xffff,
                _ => value,
            }
        }
    }
}

/// Types that operands are drawn by: those of the row, except that an atomic's follow its name.
fn types(row: &TableRow) -> ([Ty; 3], Ty) {
    let atomic = matches!(
        row.op,
        Op::DsAtomic(..) | Op::GAtomic(..) | Op::FlatAtomic(..)
    );
    if !atomic {
        return (row.shape.src, row.shape.dst);
    }
    let name = row.mnemonic;
    let cell = match () {
        () if name.ends_with("f32") => Ty::F32,
        () if name.ends_with("f64") => Ty::F64,
        () if name.ends_with("64") => Ty::B64,
        () => Ty::B32,
    };
    let mut src = row.shape.src;
    src[0] = Ty::None;
    for ty in &mut src[1..] {
        if matches!(ty, Ty::B32 | Ty::B64) && !name.contains("cmpswap") {
            *ty = cell;
        }
    }
    (src, cell)
}

/// The first `count` sets of a row.
pub(super) fn sets(row: &TableRow, count: usize) -> Vec<Set> {
    let mut source = Source::new(row.mnemonic);
    let (types, dst) = types(row);
    (0..count)
        .map(|_| {
            let r = source.next();
            let mut sources = [0; 3];
            for (k, ty) in types.into_iter().enumerate() {
                if ty != Ty::None {
                    sources[k] = operand(&mut source, ty, r >> k & 1 == 1);
                }
            }
            // A row without a destination draws an integer.
            let old = operand(&mut source, dst, r >> 3 & 1 == 1);
            let mask = types[2] == Ty::Mask;
            Set {
                sources,
                old,
                scc: (r >> 8 & 1) as u32,
                vcc: if mask {
                    sources[2] as u32
                } else {
                    (r >> 9 & 1) as u32
                },
            }
        })
        .collect()
}
