//! int8 activations: what the quantising kernels write against the catalog's reference byte for byte,
//! integer products against exact sums, and the rotation of hipfire's types. Fused kernels are compared
//! with the plain ones in `kernels_gemv`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/everywhere.rs"]
mod everywhere;
mod support;
#[path = "support/launch.rs"]
mod tools;

use everywhere::on_all_targets;
use refrain_kernels::{Dtype, Habit, format, quantise};
use support::{Gpu, Random};
use tools::{Form, blocks_of, control, fresh, launch, nans, weight};

const HABITS: [Habit; 3] = [Habit::Q8_0, Habit::Q8_1, Habit::Q8_K];

fn reference(habit: Habit, x: &[f32]) -> Vec<u8> {
    let mut out = vec![0; habit.bytes(x.len()).unwrap()];
    quantise(habit, x, &mut out).unwrap();
    out
}

fn bytes(gpu: &Gpu, at: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    gpu.memory.read_bytes(at, &mut out).unwrap();
    out
}

fn quantised(gpu: &Gpu, habit: Habit, x: &[f32]) -> Vec<u8> {
    let symbol = format!("quantise_{}", habit.name());
    let imms = [("n", x.len() as u32)];
    let q = fresh(gpu, &symbol, "q", &imms, 0);
    launch(gpu, &symbol, &[("x", gpu.f32s("x", x)), ("q", q)], &imms);
    bytes(gpu, q, habit.bytes(x.len()).unwrap())
}

/// Vectors at the edges: each is filled up with a ramp.
fn edges() -> Vec<Vec<f32>> {
    let ramp = |i: usize| (i as f32 - 20.0) * 0.37;
    let with = |values: &[f32]| -> Vec<f32> {
        (0..512)
            .map(|i| values.get(i).copied().unwrap_or_else(|| ramp(i)))
            .collect()
    };
    let mut all = vec![
        with(&[]),
        with(&[127.0, 0.5, 1.5, -2.5, -127.0]),
        vec![0.0; 512],
        vec![-0.0; 512],
        vec![1e-40; 512],
        vec![3.7e-37; 512],
        vec![3.8e-37; 512],
        vec![f32::MAX; 512],
        vec![1e7; 512],
        vec![f32::MIN_POSITIVE; 512],
    ];
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = with(&[]);
        x[300] = bad;
        all.push(x);
    }
    // Equal magnitudes of both signs in two lanes: the first gives Q8_K its sign.
    let mut x = vec![0.25; 512];
    (x[37], x[200]) = (-9.0, 9.0);
    (x[300], x[500]) = (9.0, -9.0);
    all.push(x);
    all
}

#[test]
fn edges_are_quantised_as_the_reference_does() {
    on_all_targets(|gpu| {
        for habit in HABITS {
            for (case, x) in edges().iter().enumerate() {
                assert_eq!(
                    quantised(gpu, habit, x),
                    reference(habit, x),
                    "{habit:?} case {case}"
                );
            }
        }
        Vec::new()
    });
}

#[test]
fn random_vectors_of_every_magnitude_are_quantised_as_the_reference_does() {
    on_all_targets(|gpu| {
        let mut random = Random(31);
        for habit in HABITS {
            for n in [32u32, 256, 1024, 2048 + 32, 4096 + 96] {
                let n = n.next_multiple_of(habit.block() as u32) as usize;
                for exponent in [-90, -20, -3, 0, 5, 40, 100] {
                    let scale = 2f32.powi(exponent);
                    let x: Vec<f32> = random.floats(n).iter().map(|v| v * scale).collect();
                    let got = quantised(gpu, habit, &x);
                    assert_eq!(got, reference(habit, &x), "{habit:?} {n} 2^{exponent}");
                }
            }
        }
        Vec::new()
    });
}

#[test]
fn normalised_and_quantised_in_one_launch() {
    on_all_targets(|gpu| {
        let mut random = Random(37);
        for habit in HABITS {
            for n in [32u32, 512, 2048 + 96, 4096] {
                let n = n.next_multiple_of(habit.block() as u32);
                let (x, w) = (random.floats(n as usize), random.floats(n as usize));
                let pointers = [("x", gpu.f32s("x", &x)), ("w", gpu.f32s("w", &w))];
                let imms = [("n", n), ("eps", 1e-6f32.to_bits())];
                let plain = fresh(gpu, "rmsnorm", "y", &imms, 0);
                launch(
                    gpu,
                    "rmsnorm",
                    &[&pointers[..], &[("y", plain)]].concat(),
                    &imms,
                );
                let symbol = format!("rmsnorm_quantise_{}", habit.name());
                let y = fresh(gpu, &symbol, "y", &imms, 0);
                let q = fresh(gpu, &symbol, "q", &imms, 0);
                let both = [&pointers[..], &[("y", y), ("q", q)]].concat();
                launch(gpu, &symbol, &both, &imms);
                let normed = gpu.read_f32s(plain, n as usize);
                assert_eq!(
                    gpu.read_u32s(y, n as usize),
                    gpu.read_u32s(plain, n as usize)
                );
                let want = reference(habit, &normed);
                assert_eq!(bytes(gpu, q, want.len()), want, "{symbol} {n}");
            }
        }
        Vec::new()
    });
}

/// A vector that quantises to itself: a 127 in each block, so that every scale is 1 (of Q8_K -1).
fn integers(random: &mut Random, k: usize, habit: Habit) -> Vec<f32> {
    let mut x: Vec<f32> = (0..k)
        .map(|_| (random.next() % 255) as f32 - 127.0)
        .collect();
    for block in x.chunks_mut(habit.block()) {
        let at = random.next() as usize % block.len();
        block[at] = 127.0;
        // The first of the greatest decides the sign.
        block
            .iter_mut()
            .filter(|v| **v == -127.0)
            .for_each(|v| *v = -126.0);
    }
    x
}

fn gemv(gpu: &Gpu, form: Form, w: &[u8], x: &[f32], rows: u32) -> Vec<f32> {
    let imms = [
        ("r0", 0),
        ("r1", rows),
        ("k", x.len() as u32),
        ("rows", rows),
    ];
    let symbol = form.symbol("gemv");
    let y = fresh(gpu, &symbol, "y", &imms, 0);
    let pointers = [
        ("w", gpu.buffer("w", w)),
        ("x", form.activation(gpu, x)),
        ("y", y),
    ];
    launch(gpu, &symbol, &pointers, &imms);
    gpu.read_f32s(y, rows as usize)
}

/// Scales of one make every product an integer and every partial sum exact in f32, so the order does
/// not matter and the bits are those of the exact sum.
#[test]
fn integer_products_are_exact() {
    on_all_targets(|gpu| {
        let mut random = Random(43);
        let mut all = Vec::new();
        for form in Form::all().filter(|form| form.int8) {
            let habit = form.dtype.format().habit.unwrap();
            for k in [32u32, 256, 288, 768] {
                let k = form.columns(k) as usize;
                let w = blocks_of(form.dtype, 19, k, &mut random, |_| 1.0);
                let x = integers(&mut random, k, habit);
                let got = gemv(gpu, form, &w.bytes, &x, 19);
                for (row, (got, values)) in got.iter().zip(&w.values).enumerate() {
                    let terms = values.iter().zip(&x);
                    let exact: f64 = terms
                        .clone()
                        .map(|(w, x)| f64::from(*w) * f64::from(*x))
                        .sum();
                    let size: f64 = terms.map(|(w, x)| f64::from((w * x).abs())).sum();
                    // MXFP4's scales are powers of two of their own; sums past 2^24 round.
                    if size < 16_777_216.0 {
                        assert_eq!(f64::from(*got), exact, "{form:?} k {k} row {row}");
                    } else {
                        let error = (f64::from(*got) - exact).abs();
                        assert!(
                            error <= size * 3e-7,
                            "{form:?} k {k} row {row}: {got} {exact}"
                        );
                    }
                }
                all.extend(got.iter().map(|v| v.to_bits()));
            }
        }
        all
    });
}

/// Any scales: close to the exact sum over the dequantised weight and activation. Q8_1's stored sum is
/// a half of its own, so its minimums are off by 2^-11 of it.
#[test]
fn products_are_close_to_the_exact_sum() {
    on_all_targets(|gpu| {
        let mut random = Random(47);
        let mut all = Vec::new();
        for form in Form::all().filter(|form| form.int8) {
            let habit = form.dtype.format().habit.unwrap();
            let k = form.columns(1088) as usize;
            let w = weight(form.dtype, &vec![random.floats(k); 5]);
            let x = random.floats(k);
            let back = dequantised(habit, &x);
            let got = gemv(gpu, form, &w.bytes, &x, 5);
            let tolerance = if habit == Habit::Q8_1 { 1e-3 } else { 1e-6 };
            for (got, values) in got.iter().zip(&w.values) {
                let terms = values.iter().zip(&back);
                let exact: f64 = terms.clone().map(|(w, x)| f64::from(*w) * x).sum();
                let size: f64 = terms.map(|(w, x)| (f64::from(*w) * x).abs()).sum();
                let error = (f64::from(*got) - exact).abs();
                assert!(error <= size * tolerance, "{form:?}: {got} {exact}");
            }
            all.extend(got.iter().map(|v| v.to_bits()));
        }
        all
    });
}

fn dequantised(habit: Habit, x: &[f32]) -> Vec<f64> {
    let buffer = reference(habit, x);
    let scale = |i: usize| match habit {
        Habit::Q8_K => {
            let at = habit.scales_at(x.len()) + i / 256 * 4;
            f32::from_le_bytes(buffer[at..at + 4].try_into().unwrap())
        }
        _ => {
            let at = habit.scales_at(x.len()) + i / 32 * 2;
            half::f16::from_le_bytes(buffer[at..at + 2].try_into().unwrap()).to_f32()
        }
    };
    (0..x.len())
        .map(|i| f64::from(scale(i)) * f64::from(buffer[i].cast_signed()))
        .collect()
}

/// NaN and infinite scales, of weights and of activations, show in every row that they belong to, and
/// in no other.
#[test]
fn scales_that_are_no_numbers_show_in_their_row() {
    on_all_targets(|gpu| {
        let mut random = Random(53);
        for form in Form::all().filter(|form| form.int8 && form.dtype != Dtype::MXFP4) {
            let k = form.columns(256) as usize;
            let mut bytes = weight(form.dtype, &vec![random.floats(k); 3]).bytes;
            let x = random.floats(k);
            // Parameters are the last plane, rows in order: the last row's end with the tensor.
            let end = bytes.len();
            bytes[end - 2..].copy_from_slice(&0x7fffu16.to_le_bytes());
            let got = gemv(gpu, form, &bytes, &x, 3);
            let nan: Vec<bool> = got.iter().map(|v| v.is_nan()).collect();
            assert_eq!(nan, [false, false, true], "{form:?}");
            let mut x = x;
            x[70] = f32::NAN;
            let got = gemv(
                gpu,
                form,
                &weight(form.dtype, &vec![random.floats(k); 3]).bytes,
                &x,
                3,
            );
            assert!(got.iter().all(|v| v.is_nan()), "{form:?} {got:?}");
        }
        Vec::new()
    });
}

#[test]
fn rotation_is_the_reference_bit_by_bit() {
    on_all_targets(|gpu| {
        let mut random = Random(59);
        let mut all = Vec::new();
        for n in [256usize, 2048, 2048 + 512] {
            let mut x = random.floats(n);
            let imms = [("n", n as u32)];
            let y = fresh(gpu, "rotate_256", "y", &imms, 0);
            launch(
                gpu,
                "rotate_256",
                &[("x", gpu.f32s("x", &x)), ("y", y)],
                &imms,
            );
            format::rotate(&mut x);
            let want: Vec<u32> = x.iter().map(|v| v.to_bits()).collect();
            assert_eq!(gpu.read_u32s(y, n), want, "{n}");
            all.extend(want);
        }
        all
    });
}

/// The cache in Q8_0: appended rows are those of the reference, and attention gives the bits of the f32
/// kernels on the decoded cache.
#[test]
fn a_q8_0_cache_is_its_decoded_self() {
    let (ctx, heads, kv_heads) = (320u32, 4u32, 2u32);
    on_all_targets(|gpu| {
        let mut random = Random(61);
        let mut all = Vec::new();
        for dim in [32u32, 64, 128, 256] {
            let kv_dim = kv_heads * dim;
            let (n, rows) = (kv_dim as usize, ctx as usize);
            let bytes_of = Dtype::Q8_0.device_bytes(ctx.into(), kv_dim.into()).unwrap();
            let (kcache, vcache) = (nans(gpu, "kcache", bytes_of), nans(gpu, "vcache", bytes_of));
            let mut decoded = [Vec::new(), Vec::new()];
            let (k, v) = (random.floats(n * rows), random.floats(n * rows));
            for pos in 0..ctx {
                let row = |m: &[f32]| m[pos as usize * n..][..n].to_vec();
                let (k, v) = (row(&k), row(&v));
                let pointers = [
                    ("k", gpu.f32s("k", &k)),
                    ("v", gpu.f32s("v", &v)),
                    ("kcache", kcache),
                    ("vcache", vcache),
                    ("control", control(gpu, pos, 0)),
                ];
                let imms = [("kv_dim", kv_dim), ("ctx", ctx)];
                launch(gpu, "kv_write_q8_0", &pointers, &imms);
                for (cache, x) in decoded.iter_mut().zip([k, v]) {
                    let back = dequantised(Habit::Q8_0, &x);
                    cache.extend(back.into_iter().map(|x| x as f32));
                }
                // One position is one row; the others are not read.
                if ![0, 40, 319].contains(&pos) {
                    continue;
                }
                let q = gpu.f32s("q", &random.floats((heads * dim) as usize));
                let scale = ("scale", 0.125f32.to_bits());
                let shape = [("heads", heads), ("kv_heads", kv_heads)];
                let run = |dtype: &str, kcache: u64, vcache: u64, more: &[(&str, u32)]| {
                    let out = nans(gpu, "out", u64::from(heads * dim) * 4);
                    let pointers = [
                        ("q", q),
                        ("kcache", kcache),
                        ("vcache", vcache),
                        ("control", control(gpu, pos, 0)),
                        ("out", out),
                    ];
                    let imms = [&shape[..], more, &[scale]].concat();
                    launch(
                        gpu,
                        &format!("attn_decode_{dtype}_d{dim}"),
                        &pointers,
                        &imms,
                    );
                    gpu.read_u32s(out, (heads * dim) as usize)
                };
                let [k, v] = decoded.each_ref().map(|cache| gpu.f32s("cache", cache));
                let want = run("f32", k, v, &[]);
                let got = run("q8_0", kcache, vcache, &[("ctx", ctx), ("kv_dim", kv_dim)]);
                assert_eq!(got, want, "{dim} at {pos}");
                all.extend(got);
            }
        }
        all
    });
}
