//! Kernels of `tests/objects/coverage.hip`, on every target, against plain host arithmetic: code
//! that nobody shaped for this executor.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use refrain_softgpu::exec::{RunConfig, run_batch};
use refrain_softgpu::isa::Target;
use std::path::Path;
use support::{Args, Gpu, Random};

fn on_all_targets(check: impl Fn(&Gpu) -> Vec<u32>) {
    let mut first: Option<Vec<u32>> = None;
    for target in Target::ALL {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/objects")
            .join(target.name())
            .join("coverage.co");
        for baseline in [false, true] {
            let gpu = Gpu::with(support::load(target, &path), baseline);
            let got = check(&gpu);
            match &first {
                None => first = Some(got),
                Some(want) => assert!(*want == got, "{target} baseline {baseline} differs"),
            }
        }
    }
}

#[test]
fn ids_in_three_dimensions() {
    on_all_targets(|gpu| {
        let (width, height, depth) = (300u32, 3, 2);
        let out = gpu.empty("out", u64::from(width * height * depth) * 4);
        let args = Args::default().ptr(out).u32(width).u32(height);
        let d = gpu.dispatch3("ids", [2, height, depth], [256, 1, 1], &args);
        gpu.go(&[d]).unwrap();
        let got = gpu.read_u32s(out, (width * height * depth) as usize);
        for (i, value) in got.iter().enumerate() {
            let i = i as u32;
            let (x, y, z) = (i % width, i / width % height, i / width / height);
            assert_eq!(*value, x + 1000 * y + 1_000_000 * z);
        }
        let out = gpu.empty("out", 256);
        let d = gpu.dispatch3("items", [1, 1, 1], [4, 4, 4], &Args::default().ptr(out));
        gpu.go(&[d]).unwrap();
        let items = gpu.read_u32s(out, 64);
        for (i, value) in items.iter().enumerate() {
            let i = i as u32;
            assert_eq!(*value, (i % 4) | (i / 4 % 4) << 8 | (i / 16) << 16);
        }
        got.into_iter().chain(items).collect()
    });
}

#[test]
fn float_division_rounds_correctly() {
    on_all_targets(|gpu| {
        let mut random = Random(5);
        let n = 1000;
        let edge = [
            0.0,
            -0.0,
            1.0,
            f32::INFINITY,
            3.0,
            1e-38,
            -1e38,
            f32::MAX,
            7e-45,
            0.1,
        ];
        let mut pick = |i: usize| match i % 3 {
            0 => edge[random.next() as usize % edge.len()],
            1 => random.float(),
            _ => f32::from_bits(random.next() as u32),
        };
        let a: Vec<f32> = (0..n).map(&mut pick).collect();
        let b: Vec<f32> = (0..n).map(|i| pick(i + 1)).collect();
        let out = gpu.empty("out", n as u64 * 4);
        let args = Args::default()
            .ptr(gpu.f32s("a", &a))
            .ptr(gpu.f32s("b", &b))
            .ptr(out);
        gpu.run("divide", n.div_ceil(256) as u32, 256, &args.u32(n as u32));
        for (i, got) in gpu.read_f32s(out, n).into_iter().enumerate() {
            let want = a[i] / b[i];
            let tiny = want.abs() < f32::MIN_POSITIVE && (got - want).abs() <= f32::from_bits(1);
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same || tiny, "{} / {}: {got}, want {want}", a[i], b[i]);
        }
        gpu.read_u32s(out, n)
    });
}

#[test]
fn integer_arithmetic() {
    on_all_targets(|gpu| {
        let mut random = Random(6);
        let n = 500;
        let edge = [1, -1, 2, 7, i32::MAX, i32::MIN + 1, 1000, -1000];
        let mut pick = |i: usize| match i % 2 {
            0 => edge[random.next() as usize % edge.len()],
            _ => random.next() as i32 | 1,
        };
        let a: Vec<i32> = (0..n).map(&mut pick).collect();
        let b: Vec<i32> = (0..n).map(|i| pick(i / 2)).collect();
        let out = gpu.empty("out", n as u64 * 48);
        let words = |v: &[i32]| v.iter().map(|x| *x as u32).collect::<Vec<_>>();
        let args = Args::default()
            .ptr(gpu.u32s("a", &words(&a)))
            .ptr(gpu.u32s("b", &words(&b)));
        gpu.run(
            "integers",
            n.div_ceil(256) as u32,
            256,
            &args.ptr(out).u32(n as u32),
        );
        let got = gpu.read_u32s(out, n * 12);
        for i in 0..n {
            let (x, y) = (a[i], b[i]);
            let (ux, uy) = (x as u32, y as u32);
            let wide = i64::from(x) as u64;
            let want = [
                x.wrapping_div(y),
                (ux % uy) as i32,
                x.wrapping_abs(),
                ux.count_ones() as i32,
                (ux | 1).leading_zeros() as i32,
                (ux | 1 << 31).trailing_zeros() as i32,
                x.max(y),
                ux.min(uy) as i32,
                ux.rotate_right(3) as i32,
                (wide.wrapping_mul(u64::from(uy)) >> 32) as i32,
                i32::from(x.wrapping_mul(3) as i16) >> 2,
                ((i64::from(x) * i64::from(y)).wrapping_add(i64::from(y) << 7) >> 5) as i32,
            ];
            for (k, want) in want.into_iter().enumerate() {
                assert_eq!(got[i * 12 + k] as i32, want, "result {k} of {x} and {y}");
            }
        }
        got
    });
}

#[test]
fn float_functions() {
    on_all_targets(|gpu| {
        let mut random = Random(8);
        let edge = [
            0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e10, -1e-30, 65504.0, 65520.0,
        ];
        let mut a: Vec<f32> = edge.to_vec();
        a.extend((0..90).map(|_| random.float() * 50.0));
        let n = a.len();
        let out = gpu.empty("out", n as u64 * 40);
        let args = Args::default()
            .ptr(gpu.f32s("a", &a))
            .ptr(out)
            .u32(n as u32);
        gpu.run("floats", n.div_ceil(256) as u32, 256, &args);
        let got = gpu.read_f32s(out, n * 10);
        for (i, x) in a.iter().copied().enumerate() {
            let want = [
                x.floor(),
                x.ceil(),
                x.trunc(),
                x.round_ties_even(),
                x.abs().sqrt(),
                x.clamp(-1.0, 1.0),
                half::f16::from_f32(x).to_f32(),
                x as i32 as f32,
                x.min(2.0) + x.max(-2.0),
                x * 2f32.powi(i as i32 - 20),
            ];
            for (k, want) in want.into_iter().enumerate() {
                assert_eq!(got[i * 10 + k], want, "result {k} of {x}");
            }
        }
        gpu.read_u32s(out, n * 10)
    });
}

#[test]
fn transcendentals_are_close() {
    on_all_targets(|gpu| {
        let mut random = Random(9);
        let a: Vec<f32> = (0..300).map(|_| random.float() * 6.0).collect();
        let out = gpu.empty("out", 4800);
        let args = Args::default().ptr(gpu.f32s("a", &a)).ptr(out).u32(300);
        gpu.run("transcendentals", 2, 256, &args);
        let got = gpu.read_f32s(out, 1200);
        for (i, x) in a.iter().enumerate() {
            let x = f64::from(*x);
            for (k, want) in [x.exp(), (x.abs() + 1.0).log2(), x.sin(), x.cos()]
                .into_iter()
                .enumerate()
            {
                let g = f64::from(got[i * 4 + k]);
                assert!(
                    (g - want).abs() <= 2e-6 * want.abs().max(1.0),
                    "{k} of {x}: {g} {want}"
                );
            }
        }
        gpu.read_u32s(out, 1200)
    });
}

#[test]
fn doubles_and_wide_integers() {
    on_all_targets(|gpu| {
        let mut random = Random(10);
        let n = 300;
        let a: Vec<f64> = (0..n).map(|_| f64::from(random.float()) * 1e6).collect();
        let b: Vec<i64> = (0..n).map(|_| random.next() as i64).collect();
        let bytes = |v: Vec<[u8; 8]>| v.concat();
        let av = gpu.buffer("a", &bytes(a.iter().map(|x| x.to_le_bytes()).collect()));
        let bv = gpu.buffer("b", &bytes(b.iter().map(|x| x.to_le_bytes()).collect()));
        let (out, whole) = (gpu.empty("out", n * 8), gpu.empty("whole", n * 8));
        let args = Args::default()
            .ptr(av)
            .ptr(bv)
            .ptr(out)
            .ptr(whole)
            .u32(n as u32);
        gpu.run("doubles", n.div_ceil(256) as u32, 256, &args);
        let pair = |v: &[u32], i: usize| u64::from(v[2 * i]) | u64::from(v[2 * i + 1]) << 32;
        let (o, w) = (
            gpu.read_u32s(out, n as usize * 2),
            gpu.read_u32s(whole, n as usize * 2),
        );
        for i in 0..n as usize {
            assert_eq!(f64::from_bits(pair(&o, i)), a[i] * a[i] + 1.0);
            let less = if f64::from(b[i] as i32) < a[i] { 1 } else { 2 };
            let want = b[i]
                .wrapping_mul(3)
                .wrapping_add(b[i] >> 5)
                .wrapping_add(less);
            assert_eq!(pair(&w, i) as i64, want);
        }
        o.into_iter().chain(w).collect()
    });
}

#[test]
fn dot_products_softmax_and_sampling() {
    on_all_targets(|gpu| {
        let mut random = Random(12);
        let n = 100;
        let a: Vec<u32> = (0..n).map(|_| random.next() as u32).collect();
        let b: Vec<u32> = (0..n).map(|_| random.next() as u32).collect();
        let out = gpu.empty("out", n * 8);
        let args = Args::default()
            .ptr(gpu.u32s("a", &a))
            .ptr(gpu.u32s("b", &b))
            .ptr(out);
        gpu.run("dots", 1, 256, &args.u32(n as u32));
        let dots = gpu.read_u32s(out, n as usize * 2);
        for i in 0..n as usize {
            let (x, y) = (a[i].to_le_bytes(), b[i].to_le_bytes());
            let signed: i32 = x
                .iter()
                .zip(&y)
                .map(|(x, y)| i32::from(*x as i8) * i32::from(*y as i8))
                .sum();
            let mixed: i32 = x
                .iter()
                .zip(&y)
                .map(|(x, y)| i32::from(*x) * i32::from(*y as i8))
                .sum();
            assert_eq!(dots[2 * i] as i32, signed + 5);
            assert_eq!(dots[2 * i + 1] as i32, mixed - 7);
        }
        let x: Vec<f32> = (0..700).map(|_| random.float() * 4.0).collect();
        let row = gpu.f32s("row", &x);
        gpu.run("softmax", 1, 256, &Args::default().ptr(row).u32(700));
        let total: f64 = x.iter().map(|v| f64::from(*v).exp()).sum();
        let got = gpu.read_f32s(row, 700);
        for (g, v) in got.iter().zip(&x) {
            assert!((f64::from(*g) - f64::from(*v).exp() / total).abs() < 1e-7);
        }
        let picks: Vec<u32> = (0..20u64)
            .map(|seed| {
                let out = gpu.u32s("pick", &[u32::MAX]);
                gpu.run(
                    "sample",
                    1,
                    32,
                    &Args::default().ptr(row).u32(700).u64(seed).ptr(out),
                );
                gpu.read_u32s(out, 1)[0]
            })
            .collect();
        assert!(picks.iter().all(|p| *p < 700) && picks.iter().any(|p| *p != picks[0]));
        dots.into_iter()
            .chain(gpu.read_u32s(row, 700))
            .chain(picks)
            .collect()
    });
}

#[test]
fn atomics_count_every_item() {
    on_all_targets(|gpu| {
        let counters = gpu.u32s("counters", &[0; 8]);
        let (most, sum) = (gpu.u32s("most", &[0]), gpu.f32s("sum", &[0.0]));
        let wide = gpu.u32s("wide", &[0, 0]);
        let args = Args::default().ptr(counters).ptr(most).ptr(wide).ptr(sum);
        gpu.run("atomics", 4, 256, &args);
        for (k, got) in gpu.read_u32s(counters, 8).into_iter().enumerate() {
            let want: u32 = 4 * (0..256).filter(|i| i % 8 == k as u32).sum::<u32>();
            assert_eq!(got, want);
        }
        assert_eq!(gpu.read_f32s(sum, 1), [1024.0]);
        let w = gpu.read_u32s(wide, 2);
        assert_eq!(
            u64::from(w[0]) | u64::from(w[1]) << 32,
            (4u64 * 255 * 128) << 20
        );
        gpu.read_u32s(counters, 8)
    });
}

#[test]
fn no_wave_passes_a_barrier_before_all_have_reached_it() {
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for seed in 0..30 {
            let out = gpu.empty("out", 128);
            let d = gpu.dispatch("phases", 1, 256, &Args::default().ptr(out));
            let config = RunConfig {
                seed,
                ..support::CONFIG
            };
            run_batch(&gpu.memory, &[d], &config).unwrap();
            let got = gpu.read_u32s(out, 32);
            for (i, count) in got.iter().enumerate() {
                assert_eq!(
                    *count as usize,
                    8 * (i / 8 + 1),
                    "phase {} wave {}",
                    i / 8,
                    i % 8
                );
            }
            all.extend(got);
        }
        all
    });
}
