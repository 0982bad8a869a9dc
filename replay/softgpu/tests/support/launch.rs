//! Launches by catalog row: grid, kernarg and limits come from the row, and every buffer is exactly
//! as long as its declared effects, so that an access outside them is out of bounds.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "test support: each test binary uses another part, and failing loudly is the point"
)]

use super::support::{Args, Gpu, Random, bytes};
use half::{bf16, f16};
use refrain_kernels::{ArgKind, ArgValue, Dtype, KernelRow, WordValues};
use refrain_kernels::{decode_row, find, quantise, relayout};
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
        _ => blocks(dtype, values.len(), values[0].len(), values[0][0].to_bits()),
    }
}

/// Where a file block keeps its scales: halves, then singles, then an exponent.
type Scales = (&'static [usize], &'static [usize], Option<usize>);

fn scales(dtype: Dtype) -> Scales {
    match dtype {
        Dtype::Q8_0 | Dtype::Q4_0 | Dtype::Q5_0 | Dtype::IQ4_NL => (&[0], &[], None),
        Dtype::Q4_1 | Dtype::Q5_1 | Dtype::Q4_K | Dtype::Q5_K => (&[0, 2], &[], None),
        Dtype::MQ4C_G256 => (&[0, 2], &[], None),
        Dtype::MQ4_G256_V2 => (&[0, 2, 4, 6], &[], None),
        Dtype::Q6_K => (&[208], &[], None),
        Dtype::MXFP4 => (&[], &[], Some(0)),
        _ => (&[], &[0, 4], None),
    }
}

/// Random blocks of a type: any codes, small scales. No type needs an encoder for it.
pub fn blocks(dtype: Dtype, rows: usize, cols: usize, seed: u32) -> Weight {
    let mut random = Random(0x9e37_79b9 ^ u64::from(seed) << 8);
    let small = |random: &mut Random| random.float() * 0.03;
    blocks_of(dtype, rows, cols, &mut random, small)
}

/// The same with the given scales.
pub fn blocks_of(
    dtype: Dtype,
    rows: usize,
    cols: usize,
    random: &mut Random,
    scale: impl Fn(&mut Random) -> f32,
) -> Weight {
    let format = dtype.format();
    let (halves, singles, exponent) = scales(dtype);
    let mut file = Vec::new();
    for _ in 0..rows * cols / format.block {
        let mut block: Vec<u8> = (0..format.block_bytes)
            .map(|_| random.next() as u8)
            .collect();
        if dtype == Dtype::MQ4C_G256 {
            block[4..8].fill(0);
        }
        for at in halves {
            let half = f16::from_f32(scale(random));
            block[*at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        for at in singles {
            block[*at..at + 4].copy_from_slice(&scale(random).to_le_bytes());
        }
        if let Some(at) = exponent {
            block[at] = 120 + (random.next() % 9) as u8;
        }
        file.extend(block);
    }
    let device = relayout(dtype, &file, rows as u64, cols as u64).unwrap();
    let row = |row: usize| {
        let mut out = vec![0.0; cols];
        let shape = (rows as u64, cols as u64);
        decode_row(dtype, &device, shape, row as u64, &mut out).unwrap();
        out
    };
    Weight {
        values: (0..rows).map(row).collect(),
        bytes: device.to_vec(),
    }
}

/// A weight type with the form of the activation that its kernels take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    pub dtype: Dtype,
    pub int8: bool,
}

impl Form {
    /// Every form that has a GEMV.
    pub fn all() -> impl Iterator<Item = Form> {
        let both = |dtype| [false, true].map(|int8| Form { dtype, int8 });
        let known = |form: &Form| find(&form.symbol("gemv")).is_some();
        Dtype::ALL.into_iter().flat_map(both).filter(known)
    }

    /// The kernel of that name.
    pub fn symbol(self, name: &str) -> String {
        let suffix = if self.int8 { "_i8" } else { "" };
        format!("{name}_{}{suffix}", self.dtype.name())
    }

    /// `k`, or the next number of columns that the type has.
    pub fn columns(self, k: u32) -> u32 {
        k.next_multiple_of(self.dtype.block().max(16) as u32)
    }

    /// A vector as the kernels take it.
    pub fn activation(self, gpu: &Gpu, x: &[f32]) -> u64 {
        if !self.int8 {
            return gpu.f32s("x", x);
        }
        let habit = self.dtype.format().habit.unwrap();
        let mut out = vec![0; habit.bytes(x.len()).unwrap()];
        quantise(habit, x, &mut out).unwrap();
        gpu.buffer("x", &out)
    }
}

/// The written order of a row on f32 activations.
pub fn dot(weights: &[f32], x: &[f32]) -> f32 {
    let mut partials = [0.0f32; 32];
    for (c, (w, v)) in weights.chunks(16).zip(x.chunks(16)).enumerate() {
        for (a, b) in w.iter().zip(v) {
            partials[c % 32] = a.mul_add(*b, partials[c % 32]);
        }
    }
    for step in [16, 8, 4, 2, 1] {
        partials = std::array::from_fn(|i| partials[i] + partials[i ^ step]);
    }
    partials[0]
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
