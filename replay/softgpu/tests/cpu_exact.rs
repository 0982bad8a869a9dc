//! The CPU engine in exact mode and the GEMV kernels in execution: the same bits, in every type of
//! weight, on every target, whole and in row ranges.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/everywhere.rs"]
mod everywhere;
mod support;
#[path = "support/launch.rs"]
mod tools;

use everywhere::on_all_targets;
use refrain_cpu::{Isa, Matrix, gemv_exact};
use refrain_kernels::Dtype;
use support::Random;
use tools::{launch, row, weight};

/// Rows, columns, and a row range.
const SHAPES: [(u32, u32, u32, u32); 4] = [
    (5, 256, 0, 5),
    (33, 768, 7, 30),
    (16, 1280, 0, 16),
    (9, 3328, 8, 9),
];

#[test]
fn cpu_rows_have_the_bits_of_gpu_rows() {
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for dtype in Dtype::ALL {
            for (rows, k, r0, r1) in SHAPES {
                let mut random = Random(41 + u64::from(k));
                let values: Vec<Vec<f32>> = (0..rows).map(|_| random.floats(k as usize)).collect();
                let w = weight(dtype, &values);
                let mut x = random.floats(k as usize);
                // Denormals, and magnitudes far apart.
                x[3] = f32::from_bits(77);
                x[40] *= 1e20;
                let symbol = format!("gemv_{}", dtype.name());
                let known = [("r0", r0), ("r1", r1), ("k", k), ("rows", rows)];
                let takes = |name: &str| {
                    let row = refrain_kernels::find(&symbol).unwrap();
                    row.imms().any(|arg| arg.name == name)
                };
                let imms: Vec<_> = known.into_iter().filter(|imm| takes(imm.0)).collect();
                row(&symbol, &imms);
                let y = gpu.empty("y", u64::from(r1) * 4);
                let pointers = [
                    ("w", gpu.buffer("w", &w.bytes)),
                    ("x", gpu.f32s("x", &x)),
                    ("y", y),
                ];
                launch(gpu, &symbol, &pointers, &imms);
                let got = gpu.read_u32s(y + u64::from(r0) * 4, (r1 - r0) as usize);
                let matrix = Matrix::new(dtype, &w.bytes, u64::from(rows), u64::from(k)).unwrap();
                for isa in Isa::available() {
                    let mut cpu = vec![0.0; got.len()];
                    gemv_exact(isa, &matrix, &x, r0 as usize..r1 as usize, &mut cpu).unwrap();
                    let cpu: Vec<u32> = cpu.iter().map(|y| y.to_bits()).collect();
                    assert_eq!(cpu, got, "{symbol} [{rows}][{k}] {isa:?}");
                }
                all.extend(got);
            }
        }
        all
    });
}
