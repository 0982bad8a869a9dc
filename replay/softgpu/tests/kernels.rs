//! The shipped kernels against references that follow each kernel's written order, on every target.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/everywhere.rs"]
mod everywhere;
mod support;

use everywhere::on_all_targets;
use half::f16;
use support::{Args, Gpu, Random};

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
fn dot(weights: &[f32], x: &[f32]) -> f32 {
    let mut partials = [0.0f32; 32];
    for (c, (w, v)) in weights.chunks(16).zip(x.chunks(16)).enumerate() {
        for (a, b) in w.iter().zip(v) {
            partials[c % 32] = a.mul_add(*b, partials[c % 32]);
        }
    }
    sum_tree(&mut partials)
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
    let add = kernel.starts_with("gemv_add");
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
        let product = dot(row, &x);
        let want = if add { residual[r] + product } else { product };
        assert_eq!(
            f32::from_bits(got[r]),
            want,
            "{} {kernel} row {r}",
            gpu.code.target
        );
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
        let f16_bytes: Vec<u8> = flat()
            .flat_map(|v| f16::from_f32(*v).to_le_bytes())
            .collect();
        let bf16_bytes: Vec<u8> = flat()
            .flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes())
            .collect();
        let round = |f: &dyn Fn(f32) -> f32| -> Vec<Vec<f32>> {
            plain
                .iter()
                .map(|r| r.iter().map(|v| f(*v)).collect())
                .collect()
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
                out.extend(gemv_case(
                    gpu,
                    &format!("gemv_add_{name}"),
                    data,
                    weights,
                    tail,
                ));
            }
            out
        });
    }
}

/// Planar Q8_0: quants, then half scales; and the values.
fn q8_0(rows: usize, k: usize, random: &mut Random) -> (Vec<u8>, Vec<Vec<f32>>) {
    let quants: Vec<i8> = (0..rows * k).map(|_| random.next() as i8).collect();
    let scales: Vec<f16> = (0..rows * k / 32)
        .map(|_| f16::from_f32(random.float() * 0.01))
        .collect();
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

#[test]
fn rmsnorm_and_qk_norm() {
    on_all_targets(|gpu| {
        let mut random = Random(11);
        let n = 260;
        let (x, w) = (random.floats(n), random.floats(n));
        let (xv, wv) = (gpu.f32s("x", &x), gpu.f32s("w", &w));
        let y = gpu.empty("y", n as u64 * 4);
        let args = Args::default()
            .ptr(xv)
            .ptr(wv)
            .ptr(y)
            .u32(n as u32)
            .f32(1e-6);
        gpu.run("rmsnorm", 1, 256, &args);
        let want = |x: &[f32], w: &[f32]| -> Vec<f32> {
            let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (mean + 1e-6).sqrt();
            x.iter()
                .zip(w)
                .map(|(x, w)| (f64::from(*x) * scale) as f32 * w)
                .collect()
        };
        close(&gpu.read_f32s(y, n), &want(&x, &w), 1e-6);

        let (heads, kv_heads, dim) = (3, 2, 64);
        let (q, k) = (random.floats(heads * dim), random.floats(kv_heads * dim));
        let (qw, kw) = (random.floats(dim), random.floats(dim));
        let (qv, kv) = (gpu.f32s("q", &q), gpu.f32s("k", &k));
        let args = Args::default()
            .ptr(qv)
            .ptr(kv)
            .ptr(gpu.f32s("qw", &qw))
            .ptr(gpu.f32s("kw", &kw));
        let args = args
            .u32(heads as u32)
            .u32(kv_heads as u32)
            .u32(dim as u32)
            .f32(1e-6);
        gpu.run("qk_norm", (heads + kv_heads) as u32, 32, &args);
        let by_head =
            |v: &[f32], w: &[f32]| -> Vec<f32> { v.chunks(dim).flat_map(|h| want(h, w)).collect() };
        close(&gpu.read_f32s(qv, q.len()), &by_head(&q, &qw), 1e-6);
        close(&gpu.read_f32s(kv, k.len()), &by_head(&k, &kw), 1e-6);
        let mut out = gpu.read_u32s(y, n);
        out.extend(gpu.read_u32s(qv, q.len()));
        out
    });
}

#[test]
fn rope_rotates_both_layouts() {
    for interleaved in [0, 1] {
        on_all_targets(|gpu| {
            let mut random = Random(13);
            let (heads, kv_heads, dim, rot) = (2usize, 1usize, 64usize, 48usize);
            let (q, k) = (random.floats(heads * dim), random.floats(kv_heads * dim));
            let turns: Vec<f64> = (0..rot / 2)
                .map(|j| 10000f64.powf(-2.0 * j as f64 / rot as f64) / std::f64::consts::TAU)
                .collect();
            let table: Vec<f32> = turns
                .iter()
                .flat_map(|t| [*t as f32, (t - f64::from(*t as f32)) as f32])
                .collect();
            let position = 777;
            let (qv, kv) = (gpu.f32s("q", &q), gpu.f32s("k", &k));
            let control = gpu.u32s("control", &[0, position, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            let args = Args::default()
                .ptr(qv)
                .ptr(kv)
                .ptr(gpu.f32s("table", &table))
                .ptr(control);
            let args = args.u32(heads as u32).u32(kv_heads as u32).u32(dim as u32);
            let args = args.u32(rot as u32).u32(interleaved);
            gpu.run("rope", (heads + kv_heads) as u32, 32, &args);
            let want = |x: &[f32]| -> Vec<f32> {
                let mut out = x.to_vec();
                for (j, t) in turns.iter().enumerate() {
                    let angle = (f64::from(position) * t).fract() * std::f64::consts::TAU;
                    let (a, b) = if interleaved == 1 {
                        (2 * j, 2 * j + 1)
                    } else {
                        (j, j + rot / 2)
                    };
                    let (xa, xb) = (f64::from(x[a]), f64::from(x[b]));
                    out[a] = (xa * angle.cos() - xb * angle.sin()) as f32;
                    out[b] = (xa * angle.sin() + xb * angle.cos()) as f32;
                }
                out
            };
            let got = gpu.read_f32s(qv, q.len());
            close(
                &got,
                &q.chunks(dim).flat_map(want).collect::<Vec<_>>(),
                2e-6,
            );
            close(&gpu.read_f32s(kv, k.len()), &want(&k), 2e-6);
            gpu.read_u32s(qv, q.len())
        });
    }
}

#[test]
fn kv_write_appends_one_row_unless_done() {
    for (done, half) in [(0, false), (0, true), (1, false), (1, true)] {
        on_all_targets(|gpu| {
            let mut random = Random(17);
            let dim = 300;
            let (k, v) = (random.floats(dim), random.floats(dim));
            let size = if half { 2 } else { 4 };
            let room = (4 * dim * size) as u64;
            let (kc, vc) = (gpu.empty("kcache", room), gpu.empty("vcache", room));
            gpu.memory.fill(kc, room, 0).unwrap();
            gpu.memory.fill(vc, room, 0).unwrap();
            let control = gpu.u32s("control", &[0, 2, done, 0, 0, 0, 0, 0, 0, 0, 0]);
            let args = Args::default()
                .ptr(gpu.f32s("k", &k))
                .ptr(gpu.f32s("v", &v));
            let args = args.ptr(kc).ptr(vc).ptr(control).u32(dim as u32);
            let name = if half { "kv_write_f16" } else { "kv_write_f32" };
            gpu.run(name, dim.div_ceil(256) as u32, 256, &args);
            for (cache, values) in [(kc, &k), (vc, &v)] {
                let mut bytes = vec![0; room as usize];
                gpu.memory.read_bytes(cache, &mut bytes).unwrap();
                let mut want = vec![0u8; room as usize];
                if done == 0 {
                    let row: Vec<u8> = values
                        .iter()
                        .flat_map(|v| match half {
                            true => f16::from_f32(*v).to_le_bytes().to_vec(),
                            false => v.to_le_bytes().to_vec(),
                        })
                        .collect();
                    want[2 * dim * size..3 * dim * size].copy_from_slice(&row);
                }
                assert!(bytes == want, "{name} done={done}");
            }
            gpu.read_u32s(kc, room as usize / 4)
        });
    }
}

fn attention_case(gpu: &Gpu, half: bool, dim: usize, position: usize) -> Vec<u32> {
    let mut random = Random(19 + position as u64);
    let (heads, kv_heads) = (4usize, 2usize);
    let q = random.floats(heads * dim);
    let len = position + 1;
    let mut cache = || -> (Vec<f32>, u64) {
        let values = random.floats(len * kv_heads * dim);
        if half {
            let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
            let bytes: Vec<u8> = halves.iter().flat_map(|h| h.to_le_bytes()).collect();
            (
                halves.iter().map(|h| h.to_f32()).collect(),
                gpu.buffer("cache", &bytes),
            )
        } else {
            let va = gpu.f32s("cache", &values);
            (values, va)
        }
    };
    let (k, kv) = cache();
    let (v, vv) = cache();
    let control = gpu.u32s("control", &[0, position as u32, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let out = gpu.empty("out", (heads * dim) as u64 * 4);
    let scale = 1.0 / (dim as f32).sqrt();
    let args = Args::default()
        .ptr(gpu.f32s("q", &q))
        .ptr(kv)
        .ptr(vv)
        .ptr(control)
        .ptr(out);
    let args = args.u32(heads as u32).u32(kv_heads as u32).f32(scale);
    let name = format!("attn_decode_{}_d{dim}", if half { "f16" } else { "f32" });
    gpu.run(&name, heads as u32, 256, &args);
    let mut want = Vec::new();
    for h in 0..heads {
        let kv_head = h * kv_heads / heads;
        let row = |m: &[f32], t: usize, d: usize| f64::from(m[(t * kv_heads + kv_head) * dim + d]);
        let scores: Vec<f64> = (0..len)
            .map(|t| {
                let dot: f64 = (0..dim)
                    .map(|d| f64::from(q[h * dim + d]) * row(&k, t, d))
                    .sum();
                dot * f64::from(scale)
            })
            .collect();
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        for d in 0..dim {
            let sum: f64 = weights
                .iter()
                .enumerate()
                .map(|(t, w)| w * row(&v, t, d))
                .sum();
            want.push((sum / total) as f32);
        }
    }
    close(&gpu.read_f32s(out, heads * dim), &want, 2e-6);
    gpu.read_u32s(out, heads * dim)
}

#[test]
fn attention_matches_the_formula() {
    for half in [false, true] {
        for dim in [32, 64, 128, 256] {
            on_all_targets(|gpu| {
                let positions = if dim == 64 {
                    vec![0, 1, 31, 32, 63, 300]
                } else {
                    vec![0, 40]
                };
                positions
                    .into_iter()
                    .flat_map(|p| attention_case(gpu, half, dim, p))
                    .collect()
            });
        }
    }
}

#[test]
fn silu_mul_follows_the_formula() {
    on_all_targets(|gpu| {
        let mut random = Random(23);
        let n = 600;
        let gate: Vec<f32> = random.floats(n).iter().map(|v| v * 20.0).collect();
        let up = random.floats(n);
        let out = gpu.empty("out", n as u64 * 4);
        let args = Args::default()
            .ptr(gpu.f32s("gate", &gate))
            .ptr(gpu.f32s("up", &up));
        gpu.run(
            "silu_mul",
            n.div_ceil(256) as u32,
            256,
            &args.ptr(out).u32(n as u32),
        );
        let silu = |z: &f32| f64::from(*z) / (1.0 + (-f64::from(*z)).exp());
        let want: Vec<f32> = gate
            .iter()
            .zip(&up)
            .map(|(g, u)| (silu(g) * f64::from(*u)) as f32)
            .collect();
        close(&gpu.read_f32s(out, n), &want, 1e-6);
        gpu.read_u32s(out, n)
    });
}

#[test]
fn embeddings_widen_one_row() {
    on_all_targets(|gpu| {
        let mut random = Random(25);
        let (rows, e) = (7, 288);
        let token = 5;
        let control = gpu.u32s("control", &[token, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let plain = random.floats(rows * e);
        let (q8, values) = q8_0(rows, e, &mut random);
        let row = &plain[token as usize * e..][..e];
        let f16s: Vec<u8> = plain
            .iter()
            .flat_map(|v| f16::from_f32(*v).to_le_bytes())
            .collect();
        let bf16s: Vec<u8> = plain
            .iter()
            .flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes())
            .collect();
        let cases = [
            (
                "embed_f32",
                support::bytes(plain.iter().map(|v| v.to_bits())),
                row.to_vec(),
            ),
            (
                "embed_f16",
                f16s,
                row.iter().map(|v| f16::from_f32(*v).to_f32()).collect(),
            ),
            (
                "embed_bf16",
                bf16s,
                row.iter()
                    .map(|v| f32::from_bits(v.to_bits() & 0xffff_0000))
                    .collect(),
            ),
            ("embed_q8_0", q8, values[token as usize].clone()),
        ];
        let mut all = Vec::new();
        for (name, table, want) in cases {
            let out = gpu.empty("out", e as u64 * 4);
            let args = Args::default()
                .ptr(gpu.buffer("table", &table))
                .ptr(control)
                .ptr(out);
            let mut args = args.u32(e as u32);
            if name == "embed_q8_0" {
                args = args.u32(rows as u32);
            }
            // Blocks: 16 elements to a thread.
            let per_group = if name == "embed_q8_0" { 4096 } else { 256 };
            gpu.run(name, e.div_ceil(per_group) as u32, 256, &args);
            assert_eq!(gpu.read_f32s(out, e), want, "{name}");
            all.extend(gpu.read_u32s(out, e));
        }
        all
    });
}

#[test]
fn argmax_takes_the_lowest_of_equals() {
    let mut random = Random(29);
    let mut ties = random.floats(3000);
    ties[2999] = 5.0;
    ties[1234] = 5.0;
    ties[1300] = 5.0;
    let mut with_nan = ties.clone();
    with_nan[0] = f32::NAN;
    let cases = [
        (ties, 1234),
        (with_nan, 1234),
        (vec![f32::NEG_INFINITY; 40], u32::MAX),
        (vec![f32::NAN; 1], u32::MAX),
        (vec![-3.0, -1.0, -2.0], 1),
    ];
    for (logits, want) in cases {
        on_all_targets(|gpu| {
            let control = gpu.u32s("control", &[0; 11]);
            let args = Args::default()
                .ptr(gpu.f32s("logits", &logits))
                .ptr(control);
            gpu.run("argmax", 1, 1024, &args.u32(logits.len() as u32));
            let words = gpu.read_u32s(control, 11);
            assert_eq!(words[10], want);
            words
        });
    }
}

#[test]
fn advance_follows_prompt_sampling_and_ends() {
    // token, pos, done, prompt_len, generated, gen_limit, ctx_len, eos, seq, ring_mask, sampled.
    let base = [9, 4, 0, 3, 2, 100, 64, 77, 2, 7, 55];
    let with = |changes: &[(usize, u32)]| {
        let mut c = base;
        for (i, v) in changes {
            c[*i] = *v;
        }
        c
    };
    let ring = |seq: u64, reason: u64, token: u64| seq << 32 | reason << 24 | token;
    let cases = [
        // Start, end, ring entry written.
        (with(&[(1, 0)]), with(&[(1, 1), (0, 31)]), None),
        (
            base,
            with(&[(0, 55), (1, 5), (4, 3), (8, 3)]),
            Some(ring(3, 0, 55)),
        ),
        (
            with(&[(10, 77)]),
            with(&[(10, 77), (2, 1), (4, 3), (8, 3)]),
            Some(ring(3, 1, 77)),
        ),
        (
            with(&[(5, 3)]),
            with(&[(5, 3), (2, 2), (4, 3), (8, 3)]),
            Some(ring(3, 2, 55)),
        ),
        (
            with(&[(6, 5)]),
            with(&[(6, 5), (2, 3), (4, 3), (8, 3)]),
            Some(ring(3, 3, 55)),
        ),
        (with(&[(2, 2)]), with(&[(2, 2)]), None),
    ];
    for (start, end, entry) in cases {
        on_all_targets(|gpu| {
            let control = gpu.u32s("control", &start);
            let prompt = gpu.u32s("prompt", &[30, 31, 32]);
            let slots = gpu.u32s("ring", &[0; 16]);
            gpu.run(
                "advance",
                1,
                32,
                &Args::default().ptr(control).ptr(prompt).ptr(slots),
            );
            let words = gpu.read_u32s(control, 11);
            assert_eq!(words, end, "{}", gpu.code.target);
            let slots = gpu.read_u32s(slots, 16);
            let got = u64::from(slots[4]) | u64::from(slots[5]) << 32;
            assert_eq!(got, entry.unwrap_or(0));
            words.into_iter().chain(slots).collect()
        });
    }
}
