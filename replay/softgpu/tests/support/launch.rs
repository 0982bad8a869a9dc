//! Launches by catalog row: grid, kernarg and limits come from the row, and every buffer is exactly
//! as long as its declared effects, so that an access outside them is out of bounds.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "test support: each test binary uses another part, and failing loudly is the point"
)]

use super::support::{Args, Gpu, bytes};
use half::{bf16, f16};
use refrain_kernels::{ArgKind, ArgValue, Dtype, KernelRow, WordValues, find, relayout};
use refrain_softgpu::exec::{Dispatch, RunStats};

/// Words of a control block with this position and done flag.
pub fn control(gpu: &Gpu, pos: u32, done: u32) -> u64 {
    gpu.u32s("control", &[0, pos, done, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// Row and immediates in its order.
pub fn row(symbol: &str, imms: &[(&str, u32)]) -> (&'static KernelRow, Vec<u32>) {
    let row = find(symbol).unwrap_or_else(|| panic!("no row {symbol}"));
    let values: Vec<u32> = row
        .imms()
        .map(|arg| {
            let found = imms.iter().find(|(name, _)| *name == arg.name);
            found
                .unwrap_or_else(|| panic!("{symbol} needs {}", arg.name))
                .1
        })
        .collect();
    assert_eq!(values.len(), imms.len(), "{symbol} takes fewer immediates");
    row.check(&values).unwrap();
    (row, values)
}

/// Launches `symbol`, arguments by name.
pub fn launch(gpu: &Gpu, symbol: &str, pointers: &[(&str, u64)], imms: &[(&str, u32)]) -> RunStats {
    let (row, values) = row(symbol, imms);
    let dispatch = dispatch(gpu, row, pointers, &values);
    gpu.noted(dispatch)
        .unwrap_or_else(|e| panic!("{} {symbol}: {e}", gpu.code.target))
}

/// One launch of a row: pointers by name, immediates in its order.
pub fn dispatch(gpu: &Gpu, row: &KernelRow, pointers: &[(&str, u64)], imms: &[u32]) -> Dispatch {
    let symbol = row.symbol;
    assert_eq!(row.pointers().count(), pointers.len(), "{symbol}");
    let mut next = imms.iter();
    let args: Vec<ArgValue> = row
        .args
        .iter()
        .map(|arg| match arg.kind {
            ArgKind::Pointer(_) => {
                let found = pointers.iter().find(|(name, _)| *name == arg.name);
                ArgValue::Pointer(
                    found
                        .unwrap_or_else(|| panic!("{symbol} needs {}", arg.name))
                        .1,
                )
            }
            ArgKind::U32 | ArgKind::F32Bits => ArgValue::Imm(*next.next().unwrap()),
        })
        .collect();
    let kernarg = Args(row.pack(&args).unwrap());
    gpu.dispatch(symbol, row.blocks(imms).unwrap(), row.block, &kernarg)
}

/// Bytes that the row declares for an argument at this position: the end of its furthest effect.
pub fn declared(symbol: &str, arg: &str, imms: &[(&str, u32)], pos: u32) -> u64 {
    let (row, values) = row(symbol, imms);
    let mut words = WordValues::default();
    words.set(refrain_kernels::Word::Pos, pos);
    extent(row, arg, &values, &words)
}

/// [`declared`] for immediates in the row's order and any words.
pub fn extent(row: &KernelRow, arg: &str, imms: &[u32], words: &WordValues) -> u64 {
    row.effects
        .iter()
        .filter(|effect| effect.arg == arg)
        .map(|effect| row.range(effect, imms, words).unwrap().end)
        .max()
        .unwrap_or_else(|| panic!("{} has no effect on {arg}", row.symbol))
}

/// A buffer full of NaN: what a kernel must not read, or must overwrite, shows.
pub fn nans(gpu: &Gpu, name: &str, bytes: u64) -> u64 {
    gpu.buffer(name, &vec![0xff; usize::try_from(bytes).unwrap()])
}

/// [`nans`] of exactly the declared bytes.
pub fn fresh(gpu: &Gpu, symbol: &str, arg: &str, imms: &[(&str, u32)], pos: u32) -> u64 {
    nans(gpu, arg, declared(symbol, arg, imms, pos))
}

/// A weight `[rows][cols]`, its device bytes and its values.
pub struct Weight {
    pub bytes: Vec<u8>,
    pub values: Vec<Vec<f32>>,
}

/// `values` in a dtype, rounded by it.
pub fn weight(dtype: Dtype, values: &[Vec<f32>]) -> Weight {
    let flat = || values.iter().flatten();
    let each = |f: &dyn Fn(f32) -> f32| -> Vec<Vec<f32>> {
        let row = |r: &Vec<f32>| r.iter().map(|v| f(*v)).collect();
        values.iter().map(row).collect()
    };
    match dtype {
        Dtype::F32 => Weight {
            bytes: bytes(flat().map(|v| v.to_bits())),
            values: values.to_vec(),
        },
        Dtype::F16 => Weight {
            bytes: flat()
                .flat_map(|v| f16::from_f32(*v).to_le_bytes())
                .collect(),
            values: each(&|v| f16::from_f32(v).to_f32()),
        },
        Dtype::BF16 => Weight {
            bytes: flat()
                .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
                .collect(),
            values: each(&|v| bf16::from_f32(v).to_f32()),
        },
        Dtype::Q8_0 => q8_0(values),
        _ => panic!("no encoder for {dtype}"),
    }
}

/// The types with a GEMV, in the catalog's order of types.
pub fn gemv_types() -> impl Iterator<Item = Dtype> {
    let known = |dtype: &Dtype| find(&format!("gemv_{}", dtype.name())).is_some();
    Dtype::ALL.into_iter().filter(known)
}

fn q8_0(values: &[Vec<f32>]) -> Weight {
    let (rows, cols) = (values.len(), values[0].len());
    let mut file = Vec::new();
    let mut out = Vec::new();
    for row in values {
        let mut back = Vec::new();
        for block in row.chunks(32) {
            let top = block.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            let d = f16::from_f32(top / 127.0);
            file.extend(d.to_le_bytes());
            for v in block {
                let q = (v * 127.0 / top).round() as i8;
                file.push(q as u8);
                back.push(d.to_f32() * f32::from(q));
            }
        }
        out.push(back);
    }
    let device = relayout(Dtype::Q8_0, &file, rows as u64, cols as u64).unwrap();
    Weight {
        bytes: device.into_owned(),
        values: out,
    }
}

/// |got - want| <= tolerance * max(1, |want|) everywhere.
pub fn close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*g) - w).abs();
        assert!(
            error <= tolerance * w.abs().max(1.0),
            "{what}, element {i}: got {g}, want {w}"
        );
    }
}
