//! Integer mode: the integers of every format and layout against plain loops over the reference codes,
//! bit by bit on every instruction set, and the f32 part against its written order.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use proptest::prelude::{any, prop, proptest};
use refrain_cpu::int8::{self, Activation, Packed16, Sums, Write};
use refrain_cpu::{CpuError, Isa, Matrix};
use refrain_kernels::format::{Block, Blocks, Coding};
use refrain_kernels::{Dtype, Habit, decode_row, file_layout, quantise};
use support::{Random, same, weight, weight_with};

fn integer_types() -> Vec<Dtype> {
    let integer = |dtype: &Dtype| dtype.format().habit.is_some();
    Dtype::ALL.into_iter().filter(integer).collect()
}

fn storage(dtype: Dtype) -> &'static Blocks {
    match &dtype.format().coding {
        Coding::Blocks(blocks) => blocks,
        Coding::Plain(_) => unreachable!(),
    }
}

/// The blocks of each row, from the file form.
fn blocks_of(dtype: Dtype, device: &[u8], rows: usize, k: usize) -> Vec<Vec<Block>> {
    let file = file_layout(dtype, device, rows as u64, k as u64).unwrap();
    let format = dtype.format();
    let blocks = |row: &[u8]| -> Vec<Block> {
        let blocks = row.chunks(format.block_bytes);
        blocks
            .map(|bytes| format.take_apart(bytes).unwrap())
            .collect()
    };
    file.chunks(file.len() / rows).map(blocks).collect()
}

/// The integers by the table of the module's documentation.
fn reference(dtype: Dtype, blocks: &[Block], q: &[i32]) -> Vec<Sums> {
    let unit = int8::unit(dtype).unwrap();
    let block = dtype.format().block;
    let v = |i: usize| {
        storage(dtype)
            .levels
            .value(blocks[i / block].codes[i % block])
    };
    let param = |i: usize, at: usize| blocks[i / block].params[at];
    let mut all = Vec::new();
    for first in (0..q.len()).step_by(unit) {
        let mut sums = Sums::default();
        for (i, q) in q.iter().enumerate().skip(first).take(unit) {
            let inside = i % block;
            match dtype {
                Dtype::Q4_K | Dtype::Q5_K => {
                    let group = inside / 32;
                    sums.isum += i32::from(param(i, 2 * group)) * v(i) * q;
                    sums.msum += i32::from(param(i, 2 * group + 1)) * q;
                }
                Dtype::Q6_K => {
                    let scale = param(i, inside / 16) as i8;
                    sums.isum += i32::from(scale) * v(i) * q;
                }
                _ => {
                    sums.isum += v(i) * q;
                    if block == 256 {
                        sums.msum += q;
                    }
                }
            }
        }
        all.push(sums);
    }
    all
}

struct Case {
    device: Vec<u8>,
    packed: Vec<u8>,
    x: Vec<u8>,
    rows: usize,
    k: usize,
}

fn case(dtype: Dtype, rows: usize, k: usize, random: &mut Random, edges: bool) -> Case {
    let device = weight_with(dtype, rows, k, random, edges);
    // s of Q8_1 ends with f16: large elements belong to the edges.
    let most = if edges { f32::MAX } else { 1.0 };
    let values: Vec<f32> = (0..k).map(|_| random.float().clamp(-most, most)).collect();
    let habit = dtype.format().habit.unwrap();
    let mut x = vec![0; habit.bytes(k).unwrap()];
    quantise(habit, &values, &mut x).unwrap();
    let size = Packed16::bytes_for(dtype, rows as u64, k as u64).unwrap();
    let mut packed = vec![0xee; size as usize];
    let w = Matrix::new(dtype, &device, rows as u64, k as u64).unwrap();
    Packed16::pack(&w, &mut packed).unwrap();
    Case {
        device,
        packed,
        x,
        rows,
        k,
    }
}

/// Integers of all rows on all sets in both layouts, then results in both layouts and a row range.
fn check(dtype: Dtype, case: &Case, range: (usize, usize)) {
    let (rows, k) = (case.rows, case.k);
    let what = format!("{dtype} [{rows}][{k}]");
    let w = Matrix::new(dtype, &case.device, rows as u64, k as u64).unwrap();
    let packed = Packed16::new(dtype, &case.packed, rows, k).unwrap();
    let x = Activation::new(dtype.format().habit.unwrap(), &case.x, k).unwrap();
    let q: Vec<i32> = case.x[..k].iter().map(|q| i32::from(*q as i8)).collect();
    let want: Vec<Vec<Sums>> = blocks_of(dtype, &case.device, rows, k)
        .iter()
        .map(|blocks| reference(dtype, blocks, &q))
        .collect();
    let mut first: Option<Vec<f32>> = None;
    for isa in Isa::available() {
        for (row, want) in want.iter().enumerate() {
            let got = int8::row_sums(isa, &w, &x, row).unwrap();
            assert_eq!(got, *want, "{what} {isa:?} row {row}");
            let got = packed.sums(isa, &x, row / 16).unwrap();
            let got: Vec<Sums> = got.iter().map(|rows| rows[row % 16]).collect();
            assert_eq!(got, *want, "{what} {isa:?} packed row {row}");
        }
        let mut y = vec![0.0; rows];
        int8::gemv_int8(isa, &w, &x, 0..rows, Write::Set, &mut y).unwrap();
        let first = first.get_or_insert_with(|| y.clone());
        same(&format!("{what} {isa:?}"), &y, first);
        packed.gemv(isa, &x, 0..rows, Write::Set, &mut y).unwrap();
        same(&format!("{what} {isa:?} packed"), &y, first);
        // A range, added to what is there.
        let part = range.0..range.1;
        let want: Vec<f32> = first[part.clone()].iter().map(|y| 0.75 + y).collect();
        let mut y = vec![0.75; part.len()];
        int8::gemv_int8(isa, &w, &x, part.clone(), Write::Add, &mut y).unwrap();
        same(&format!("{what} {isa:?} range"), &y, &want);
        let mut y = vec![0.75; part.len()];
        packed.gemv(isa, &x, part, Write::Add, &mut y).unwrap();
        same(&format!("{what} {isa:?} packed range"), &y, &want);
    }
}

#[test]
fn every_format_at_every_tail() {
    for dtype in integer_types() {
        let ks: &[usize] = match dtype.format().block {
            32 => &[32, 64, 224, 256, 288, 512, 544],
            _ => &[256, 512, 2304],
        };
        for (index, k) in ks.iter().enumerate() {
            let rows = [1, 5, 16, 17, 33, 48, 2][index];
            let case = case(dtype, rows, *k, &mut Random(3 + *k as u64), true);
            check(dtype, &case, (rows / 3, rows - rows / 4));
        }
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(96))]
    #[test]
    fn any_shape(
        dtype in prop::sample::select(integer_types()),
        rows in 1usize..40, blocks in 1usize..12, from in 0usize..40, seed in any::<u64>(),
    ) {
        let k = blocks * dtype.format().block;
        let case = case(dtype, rows, k, &mut Random(seed), true);
        check(dtype, &case, (from.min(rows), rows));
    }
}

/// Greatest codes, scales and activations: no i16 of an instruction set saturates, no i32 overflows.
#[test]
fn extreme_integers() {
    for dtype in integer_types() {
        for (fill, sign) in [
            (0xffu8, 1.0f32),
            (0xff, -1.0),
            (0x00, 1.0),
            (0x80, 1.0),
            (0x80, -1.0),
            (0x7f, -1.0),
        ] {
            let (rows, k) = (16, 512);
            let length = dtype.file_bytes(rows, k).unwrap() as usize;
            let mut file = vec![fill; length];
            if dtype == Dtype::MQ4C_G256 {
                file.chunks_mut(136).for_each(|block| block[4..8].fill(0));
            }
            let device = refrain_kernels::relayout(dtype, &file, rows, k).unwrap();
            let mut random = Random(1);
            let mut case = case(dtype, rows as usize, k as usize, &mut random, false);
            let w = Matrix::new(dtype, &device, rows, k).unwrap();
            Packed16::pack(&w, &mut case.packed).unwrap();
            let values: Vec<f32> = (0..k)
                .map(|i| if i % 3 == 2 { -sign } else { sign })
                .collect();
            quantise(dtype.format().habit.unwrap(), &values, &mut case.x).unwrap();
            case.device = device.into_owned();
            check(dtype, &case, (0, 16));
        }
    }
}

/// The result is that of the decoded weights, as near as int8 activations allow.
#[test]
fn results_are_near_the_decoded_product() {
    for dtype in integer_types() {
        let (rows, k) = (16, 1024);
        let case = case(dtype, rows, k, &mut Random(11), false);
        let habit = dtype.format().habit.unwrap();
        let x = Activation::new(habit, &case.x, k).unwrap();
        let packed = Packed16::new(dtype, &case.packed, rows, k).unwrap();
        let mut y = vec![0.0; rows];
        packed
            .gemv(Isa::best(), &x, 0..rows, Write::Set, &mut y)
            .unwrap();
        // The activation as its codes say.
        let scale = |i: usize| match habit {
            Habit::Q8_K => {
                let at = k + i / 256 * 4;
                f64::from(f32::from_le_bytes(case.x[at..at + 4].try_into().unwrap()))
            }
            _ => {
                let at = k + i / 32 * 2;
                half::f16::from_le_bytes([case.x[at], case.x[at + 1]]).to_f64()
            }
        };
        let mut w = vec![0.0; k];
        for (row, y) in y.iter().enumerate() {
            decode_row(
                dtype,
                &case.device,
                (rows as u64, k as u64),
                row as u64,
                &mut w,
            )
            .unwrap();
            let terms = w.iter().enumerate();
            let terms: Vec<f64> = terms
                .map(|(i, w)| f64::from(*w) * scale(i) * f64::from(case.x[i] as i8))
                .collect();
            let (sum, size) = (
                terms.iter().sum::<f64>(),
                terms.iter().map(|t| t.abs()).sum::<f64>(),
            );
            // s of Q8_1 is rounded to f16.
            let bound = if habit == Habit::Q8_1 { 1e-3 } else { 1e-5 };
            let error = (f64::from(*y) - sum).abs();
            assert!(
                error <= bound * size,
                "{dtype} row {row}: {y} for {sum} of {size}"
            );
        }
    }
}

#[test]
fn wrong_inputs_are_refused() {
    let bytes = weight(Dtype::Q8_0, 3, 64, &mut Random(5));
    let w = Matrix::new(Dtype::Q8_0, &bytes, 3, 64).unwrap();
    let mut x = vec![0; 68];
    assert!(matches!(
        Activation::new(Habit::Q8_0, &x, 32),
        Err(CpuError::Catalog(_))
    ));
    assert!(matches!(
        Activation::new(Habit::Q8_0, &x, 63),
        Err(CpuError::Catalog(_))
    ));
    x[9] = 0x80;
    assert_eq!(
        Activation::new(Habit::Q8_0, &x, 64).unwrap_err(),
        CpuError::Code { at: 9 }
    );
    x[9] = 0;
    let isa = Isa::best();
    let mut y = [0.0; 3];
    let q8 = Activation::new(Habit::Q8_0, &x, 64).unwrap();
    let long = vec![0; 72];
    let other = Activation::new(Habit::Q8_1, &long, 64).unwrap();
    let given = int8::gemv_int8(isa, &w, &other, 0..3, Write::Set, &mut y);
    assert!(matches!(
        given,
        Err(CpuError::Habit {
            expected: "q8_0",
            given: "q8_1",
            ..
        })
    ));
    let given = int8::gemv_int8(isa, &w, &q8, 0..4, Write::Set, &mut y);
    assert!(matches!(given, Err(CpuError::Rows { .. })));
    let given = int8::gemv_int8(isa, &w, &q8, 0..2, Write::Set, &mut y);
    assert!(matches!(given, Err(CpuError::Length { what: "y", .. })));
    let short = Activation::new(Habit::Q8_0, &x[..34], 32).unwrap();
    let given = int8::gemv_int8(isa, &w, &short, 0..3, Write::Set, &mut y);
    assert!(matches!(given, Err(CpuError::Length { what: "x", .. })));
    assert!(int8::row_sums(isa, &w, &q8, 3).is_err());
    assert!(int8::row_sums(isa, &w, &q8, usize::MAX).is_err());
    let plain = Matrix::new(Dtype::F32, &[0; 256], 1, 64).unwrap();
    let given = int8::gemv_int8(isa, &plain, &q8, 0..1, Write::Set, &mut y[..1]);
    assert!(matches!(given, Err(CpuError::Habit { .. })));
    assert!(Packed16::new(Dtype::F16, &[0; 16 * 64 * 2], 16, 64).is_err());
    assert!(Packed16::new(Dtype::Q8_0, &[0; 16 * 68], 17, 64).is_err());
    assert!(Packed16::bytes_for(Dtype::Q8_0, u64::MAX, 64).is_err());
    let mut packed = vec![0; 16 * 68];
    let view = Packed16::pack(&w, &mut packed).unwrap();
    assert!(view.sums(isa, &q8, 1).is_err());
    assert!(view.gemv(isa, &q8, 2..4, Write::Set, &mut y[..2]).is_err());
}

/// A NaN of the activation reaches every row; a NaN or infinite scale its own row.
#[test]
fn what_is_not_finite_shows() {
    let mut values = vec![1.0; 256];
    let mut file = vec![1u8; 4 * 34 * 8];
    for (row, scale) in [0x7e00u16, 0x7c00, 0x0001, 0x3c00].iter().enumerate() {
        for block in 0..8 {
            file[34 * (8 * row + block)..][..2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    let device = refrain_kernels::relayout(Dtype::Q8_0, &file, 4, 256).unwrap();
    let w = Matrix::new(Dtype::Q8_0, &device, 4, 256).unwrap();
    let mut x = vec![0; 272];
    for isa in Isa::available() {
        values[77] = 1.0;
        quantise(Habit::Q8_0, &values, &mut x).unwrap();
        let mut y = [0.0; 4];
        let run = |x: &[u8], y: &mut [f32]| {
            let x = Activation::new(Habit::Q8_0, x, 256).unwrap();
            int8::gemv_int8(isa, &w, &x, 0..4, Write::Set, y).unwrap();
        };
        run(&x, &mut y);
        assert!(y[0].is_nan() && y[1] == f32::INFINITY, "{y:?}");
        assert!(
            y[2] > 0.0 && y[2] < 2e-5 && (y[3] - 256.0).abs() < 0.2,
            "{y:?}"
        );
        values[77] = f32::INFINITY;
        quantise(Habit::Q8_0, &values, &mut x).unwrap();
        run(&x, &mut y);
        assert!(y.iter().all(|y| y.is_nan()), "{y:?}");
    }
}
