//! Exact mode against its written order, spelled out over the reference decoder.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use proptest::prelude::{any, prop, proptest};
use refrain_cpu::{CpuError, Isa, Matrix, gemv_exact};
use refrain_kernels::{Dtype, decode_row};
use support::{Random, same, weight};

/// The written order.
fn reference(w: &[f32], x: &[f32]) -> f32 {
    let mut p = [0.0f32; 32];
    for (b, (w, x)) in w.chunks(16).zip(x.chunks(16)).enumerate() {
        for (w, x) in w.iter().zip(x) {
            p[b % 32] = w.mul_add(*x, p[b % 32]);
        }
    }
    for step in [16, 8, 4, 2, 1] {
        for i in 0..step {
            p[i] += p[i ^ step];
        }
    }
    p[0]
}

fn check(dtype: Dtype, rows: usize, k: usize, range: (usize, usize), seed: u64) {
    let mut random = Random(seed);
    let device = weight(dtype, rows, k, &mut random);
    let x: Vec<f32> = (0..k).map(|_| random.float()).collect();
    let matrix = Matrix::new(dtype, &device, rows as u64, k as u64).unwrap();
    let mut w = vec![0.0; k];
    let want: Vec<f32> = (range.0..range.1)
        .map(|row| {
            let shape = (rows as u64, k as u64);
            decode_row(dtype, &device, shape, row as u64, &mut w).unwrap();
            reference(&w, &x)
        })
        .collect();
    for isa in Isa::available() {
        let mut y = vec![f32::NAN; want.len()];
        gemv_exact(isa, &matrix, &x, range.0..range.1, &mut y).unwrap();
        same(&format!("{dtype} [{rows}][{k}] {isa:?}"), &y, &want);
    }
}

#[test]
fn every_type_and_set_at_every_tail() {
    for dtype in Dtype::ALL {
        let block = dtype.block() as usize;
        let ks: &[usize] = match block {
            1 => &[1, 15, 16, 17, 255, 256, 500, 512, 777],
            32 => &[32, 64, 96, 224, 256, 288, 512, 544, 1056],
            _ => &[256, 512, 768, 1024],
        };
        for k in ks {
            check(dtype, 5, *k, (1, 4), 7 + *k as u64);
        }
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn any_shape(
        dtype in prop::sample::select(Dtype::ALL.to_vec()),
        rows in 1usize..6, blocks in 1usize..9, from in 0usize..6, seed in any::<u64>(),
    ) {
        let k = blocks * dtype.block() as usize;
        check(dtype, rows, k, (from.min(rows), rows), seed);
    }
}

#[test]
fn wrong_shapes_are_refused() {
    let bytes = vec![0; 3 * 34];
    let matrix = |rows, k| Matrix::new(Dtype::Q8_0, &bytes, rows, k);
    assert!(matches!(matrix(3, 33), Err(CpuError::Catalog(_))));
    assert!(matches!(matrix(2, 32), Err(CpuError::Catalog(_))));
    assert!(Matrix::new(Dtype::F16, &[], 0, u64::MAX).is_err());
    assert!(Matrix::new(Dtype::F16, &[], 0, 1 << 40).is_ok());
    let w = matrix(3, 32).unwrap();
    let mut y = [0.0; 3];
    let isa = Isa::best();
    let short = gemv_exact(isa, &w, &[0.0; 31], 0..3, &mut y);
    assert!(matches!(
        short,
        Err(CpuError::Length {
            what: "x",
            given: 31,
            ..
        })
    ));
    let long = gemv_exact(isa, &w, &[0.0; 32], 0..2, &mut y);
    assert!(matches!(long, Err(CpuError::Length { what: "y", .. })));
    let past = gemv_exact(isa, &w, &[0.0; 32], 1..4, &mut y);
    assert!(matches!(
        past,
        Err(CpuError::Rows {
            end: 4,
            rows: 3,
            ..
        })
    ));
}

/// NaN, infinite and denormal scales and activations follow IEEE 754.
#[test]
fn what_is_not_finite_shows() {
    let mut file = vec![1u8; 4 * 34];
    for (block, scale) in [0x7e00u16, 0x7c00, 0x0001, 0x3c00].iter().enumerate() {
        file[34 * block..][..2].copy_from_slice(&scale.to_le_bytes());
    }
    let device = refrain_kernels::relayout(Dtype::Q8_0, &file, 4, 32).unwrap();
    let w = Matrix::new(Dtype::Q8_0, &device, 4, 32).unwrap();
    for isa in Isa::available() {
        let mut y = [0.0; 4];
        gemv_exact(isa, &w, &[1.0; 32], 0..4, &mut y).unwrap();
        assert!(y[0].is_nan() && y[1] == f32::INFINITY);
        assert_eq!(y[2..], [32.0 * 2f32.powi(-24), 32.0]);
        gemv_exact(isa, &w, &[f32::INFINITY; 32], 0..4, &mut y).unwrap();
        assert!(y[0].is_nan() && y[1..].iter().all(|y| *y == f32::INFINITY));
    }
}
