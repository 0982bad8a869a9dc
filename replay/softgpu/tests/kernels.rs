//! The shipped kernels against references that follow each kernel's written order, on every target.

mod support;

use half::f16;
use refrain_softgpu::isa::Target;
use support::{Args, Gpu, Random};

/// Runs `check` for every target and demands equal bits from all of them.
fn on_all_targets(check: impl Fn(&Gpu) -> Vec<u32>) {
    let mut first: Option<Vec<u32>> = None;
    for target in Target::ALL {
        let gpu = Gpu::shipped(target);
        let got = check(&gpu);
        match &first {
            None => first = Some(got),
            Some(want) => assert_eq!(want, &got, "{target} differs from gfx1100"),
        }
    }
}

fn close(got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let bound = tolerance * w.abs().max(1.0);
        assert!((g - w).abs() <= bound, "element {i}: got {g}, want {w}");
    }
}

fn sum_tree(lanes: &mut [f32]) -> f32 {
    let mut step = lanes.len() / 2;
    while step > 0 {
        let old = lanes.to_vec();
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = old[i] + old[i ^ step];
        }
        step /= 2;
    }
    lanes[0]
}

/// One row of `gemv` in its written order.
fn dot16(weights: &[f32], x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (c, (w, v)) in weights.chunks(16).zip(x.chunks(16)).enumerate() {
        for (a, b) in w.iter().zip(v) {
            lanes[c % 16] = a.mul_add(*b, lanes[c % 16]);
        }
    }
    sum_tree(&mut lanes)
}

fn gemv_case(gpu: &Gpu, kernel: &str, data: &[u8], weights: &[Vec<f32>], tail: bool) -> Vec<u32> {
    let (rows, k) = (weights.len(), weights[0].len());
    let mut random = Random(99);
    let x = random.floats(k);
    let residual = random.floats(rows);
    let wv = gpu.buffer("w", data);
    let xv = gpu.f32s("x", &x);
    let rv = gpu.f32s("residual", &residual);
    let yv = gpu.empty("y", rows as u64 * 4);
    let add = kernel.ends_with("_add");
    let mut args = Args::default().ptr(wv).ptr(xv);
    if add {
        args = args.ptr(rv);
    }
    args = args.ptr(yv).u32(0).u32(rows as u32).u32(k as u32);
    if tail {
        args = args.u32(rows as u32);
    }
    gpu.run(kernel, rows.div_ceil(16) as u32, 256, &args);
    let got = gpu.read_u32s(yv, rows);
    for (r, row) in weights.iter().enumerate() {
        let dot = dot16(row, &x);
        let want = if add { residual[r] + dot } else { dot };
        assert_eq!(f32::from_bits(got[r]), want, "{} {kernel} row {r}", gpu.code.target);
    }
    got
}

#[test]
fn gemv_is_exact_in_its_written_order() {
    for (rows, k) in [(5, 32), (33, 256), (16, 288), (40, 704)] {
        let mut random = Random(7 + k as u64);
        let plain: Vec<Vec<f32>> = (0..rows).map(|_| random.floats(k)).collect();
        let flat = || plain.iter().flatten();
        let f32_bytes = support::bytes(flat().map(|v| v.to_bits()));
        let f16_bytes: Vec<u8> = flat().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
        let bf16_bytes: Vec<u8> =
            flat().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes()).collect();
        let round = |f: &dyn Fn(f32) -> f32| -> Vec<Vec<f32>> {
            plain.iter().map(|r| r.iter().map(|v| f(*v)).collect()).collect()
        };
        let as_f16 = round(&|v| f16::from_f32(v).to_f32());
        let as_bf16 = round(&|v| f32::from_bits(v.to_bits() & 0xffff_0000));
        let (q8_bytes, as_q8) = q8_0(rows, k, &mut random);
        on_all_targets(|gpu| {
            let mut out = Vec::new();
            for (name, data, weights, tail) in [
                ("f32", &f32_bytes, &plain, false),
                ("f16", &f16_bytes, &as_f16, false),
                ("bf16", &bf16_bytes, &as_bf16, false),
                ("q8_0", &q8_bytes, &as_q8, true),
            ] {
                out.extend(gemv_case(gpu, &format!("gemv_{name}"), data, weights, tail));
                out.extend(gemv_case(gpu, &format!("gemv_{name}_add"), data, weights, tail));
            }
            out
        });
    }
}

/// Planar Q8_0: quants, then half scales; and the values.
fn q8_0(rows: usize, k: usize, random: &mut Random) -> (Vec<u8>, Vec<Vec<f32>>) {
    let quants: Vec<i8> = (0..rows * k).map(|_| random.next() as i8).collect();
    let scales: Vec<f16> =
        (0..rows * k / 32).map(|_| f16::from_f32(random.float() * 0.01)).collect();
    let mut data: Vec<u8> = quants.iter().map(|q| *q as u8).collect();
    data.extend(scales.iter().flat_map(|s| s.to_le_bytes()));
    let values = (0..rows)
        .map(|r| {
            let value = |c: usize| scales[(r * k + c) / 32].to_f32() * f32::from(quants[r * k + c]);
            (0..k).map(value).collect()
        })
        .collect();
    (data, values)
}
