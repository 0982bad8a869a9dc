//! The fused and grouped GEMVs: bits equal to the plain kernels they stand for, in every dtype and
//! on every target, with f32 and with int8 activations. The plain GEMV on f32 is compared with its written
//! order here, that on int8 in `kernels_int8`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/everywhere.rs"]
mod everywhere;
mod support;
#[path = "support/launch.rs"]
mod tools;

use everywhere::on_all_targets;
use refrain_kernels::{Dtype, find};
use support::{Gpu, Random};
use tools::{Form, close, declared, dot, fresh, launch, weight};

fn matrix(rows: usize, k: usize, random: &mut Random) -> Vec<Vec<f32>> {
    (0..rows).map(|_| random.floats(k)).collect()
}

/// The immediates of a row-range GEMV; only types with several planes take the row count.
fn ranged(form: Form, r0: u32, r1: u32, k: u32, rows: u32) -> Vec<(&'static str, u32)> {
    let mut imms = vec![("r0", r0), ("r1", r1), ("k", k)];
    if form.dtype.element_bytes().is_none() {
        imms.push(("rows", rows));
    }
    imms
}

/// `[r0, r1)` of the plain GEMV.
fn plain(gpu: &Gpu, form: Form, w: u64, x: u64, range: (u32, u32), k: u32, rows: u32) -> Vec<f32> {
    let y = gpu.empty("y", u64::from(range.1) * 4);
    let symbol = form.symbol("gemv");
    let imms = ranged(form, range.0, range.1, k, rows);
    launch(gpu, &symbol, &[("w", w), ("x", x), ("y", y)], &imms);
    let from = y + u64::from(range.0) * 4;
    gpu.read_f32s(from, (range.1 - range.0) as usize)
}

/// Rows, columns, and a row range that is not the whole.
const SHAPES: [(u32, u32, u32, u32); 4] = [
    (5, 32, 0, 5),
    (33, 256, 7, 30),
    (16, 288, 0, 16),
    (40, 704, 1, 2),
];

/// Every form of a kernel and every shape on every target.
fn everywhere(kernel: &str, check: impl Fn(&Gpu, Form, (u32, u32, u32, u32)) -> Vec<u32>) {
    on_all_targets(|gpu| {
        let forms = Form::all().filter(|form| find(&form.symbol(kernel)).is_some());
        let cases = forms.flat_map(|form| SHAPES.map(|shape| (form, shape)));
        cases
            .flat_map(|(form, (rows, k, r0, r1))| check(gpu, form, (rows, form.columns(k), r0, r1)))
            .collect()
    });
}

#[test]
fn f32_activations_are_summed_in_the_written_order() {
    everywhere("gemv", |gpu, form, (rows, k, r0, r1)| {
        if form.int8 {
            return Vec::new();
        }
        let mut random = Random(2 + u64::from(k));
        let w = weight(form.dtype, &matrix(rows as usize, k as usize, &mut random));
        let x = random.floats(k as usize);
        let (wv, xv) = (gpu.buffer("w", &w.bytes), gpu.f32s("x", &x));
        let got = plain(gpu, form, wv, xv, (r0, r1), k, rows);
        let rows = &w.values[r0 as usize..r1 as usize];
        let want: Vec<f32> = rows.iter().map(|row| dot(row, &x)).collect();
        assert_eq!(
            bits(&got),
            bits(&want),
            "{form:?} [{}][{k}]",
            w.values.len()
        );
        bits(&got)
    });
}

#[test]
fn residual_is_added_last() {
    everywhere("gemv_add", |gpu, form, (rows, k, r0, r1)| {
        let mut random = Random(4 + u64::from(k));
        let w = weight(form.dtype, &matrix(rows as usize, k as usize, &mut random));
        let wv = gpu.buffer("w", &w.bytes);
        let x = form.activation(gpu, &random.floats(k as usize));
        let residual = random.floats(r1 as usize);
        let y = gpu.f32s("residual", &residual);
        let imms = ranged(form, r0, r1, k, rows);
        let pointers = [("w", wv), ("x", x), ("residual", y), ("y", y)];
        launch(gpu, &form.symbol("gemv_add"), &pointers, &imms);
        let got = gpu.read_u32s(y + u64::from(r0) * 4, (r1 - r0) as usize);
        let dots = plain(gpu, form, wv, x, (r0, r1), k, rows);
        let added = residual[r0 as usize..].iter().zip(dots);
        let want: Vec<u32> = added.map(|(r, d)| (r + d).to_bits()).collect();
        assert_eq!(got, want, "{form:?}");
        got
    });
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn bias_is_added_last() {
    everywhere("gemv_bias", |gpu, form, (rows, k, r0, r1)| {
        let mut random = Random(3 + u64::from(k));
        let w = weight(form.dtype, &matrix(rows as usize, k as usize, &mut random));
        let wv = gpu.buffer("w", &w.bytes);
        let x = form.activation(gpu, &random.floats(k as usize));
        let bias = random.floats(r1 as usize);
        let symbol = form.symbol("gemv_bias");
        let imms = ranged(form, r0, r1, k, rows);
        let y = fresh(gpu, &symbol, "y", &imms, 0);
        let pointers = [
            ("w", wv),
            ("x", x),
            ("bias", gpu.f32s("bias", &bias)),
            ("y", y),
        ];
        launch(gpu, &symbol, &pointers, &imms);
        let got = gpu.read_u32s(y + u64::from(r0) * 4, (r1 - r0) as usize);
        let plain = plain(gpu, form, wv, x, (r0, r1), k, rows);
        let want: Vec<u32> = plain
            .iter()
            .zip(&bias[r0 as usize..])
            .map(|(p, b)| (p + b).to_bits())
            .collect();
        assert_eq!(got, want, "{symbol}");
        got
    });
}

#[test]
fn gate_and_up_in_one_launch() {
    everywhere("gemv_silu", |gpu, form, (rows, k, r0, r1)| {
        let mut random = Random(5 + u64::from(k));
        let mut make = || {
            let w = weight(form.dtype, &matrix(rows as usize, k as usize, &mut random));
            gpu.buffer("w", &w.bytes)
        };
        let (wg, wu) = (make(), make());
        let x = form.activation(gpu, &random.floats(k as usize));
        let symbol = form.symbol("gemv_silu");
        let imms = ranged(form, r0, r1, k, rows);
        let y = fresh(gpu, &symbol, "y", &imms, 0);
        launch(
            gpu,
            &symbol,
            &[("wg", wg), ("wu", wu), ("x", x), ("y", y)],
            &imms,
        );
        let got = gpu.read_u32s(y + u64::from(r0) * 4, (r1 - r0) as usize);
        let gate = gpu.f32s("g", &plain(gpu, form, wg, x, (r0, r1), k, rows));
        let up = gpu.f32s("u", &plain(gpu, form, wu, x, (r0, r1), k, rows));
        let pointers = [("gate", gate), ("up", up), ("out", gate)];
        launch(gpu, "silu_mul", &pointers, &[("n", r1 - r0)]);
        assert_eq!(got, gpu.read_u32s(gate, (r1 - r0) as usize), "{symbol}");
        got
    });
}

#[test]
fn gated_residual_in_one_launch() {
    everywhere("gemv_gated_add", |gpu, form, (rows, k, r0, r1)| {
        let mut random = Random(7 + u64::from(k));
        let w = weight(form.dtype, &matrix(rows as usize, k as usize, &mut random));
        let wv = gpu.buffer("w", &w.bytes);
        let x = form.activation(gpu, &random.floats(k as usize));
        let gate = random.float() * 4.0;
        let gv = gpu.f32s("gate", &[gate]);
        let residual = random.floats(r1 as usize);
        let rv = gpu.f32s("residual", &residual);
        let symbol = form.symbol("gemv_gated_add");
        let imms = ranged(form, r0, r1, k, rows);
        let dots = plain(gpu, form, wv, x, (r0, r1), k, rows);
        let pointers = [
            ("w", wv),
            ("x", x),
            ("gate", gv),
            ("residual", rv),
            ("y", rv),
        ];
        launch(gpu, &symbol, &pointers, &imms);
        let got = gpu.read_f32s(rv + u64::from(r0) * 4, (r1 - r0) as usize);
        let part = gpu.f32s("residual", &residual[r0 as usize..]);
        let y = gpu.f32s("x", &dots);
        let pointers = [("x", y), ("gate", gv), ("residual", part), ("y", y)];
        launch(gpu, "gated_add", &pointers, &[("e", r1 - r0)]);
        assert_eq!(bits(&got), gpu.read_u32s(y, got.len()), "{symbol}");
        let sigmoid = 1.0 / (1.0 + (-f64::from(gate)).exp());
        let want: Vec<f64> = dots
            .iter()
            .zip(&residual[r0 as usize..])
            .map(|(d, r)| f64::from(*r) + sigmoid * f64::from(*d))
            .collect();
        close(&symbol, &got, &want, 1e-6);
        bits(&got)
    });
}

/// Matrices, their weights' and outputs' argument names and their row counts' names.
const PARTS: [(&str, &str, &str, &str); 4] = [
    ("w0", "y0", "m0", "b0"),
    ("w1", "y1", "m1", "b1"),
    ("w2", "y2", "m2", "b2"),
    ("w3", "y3", "m3", "b3"),
];

fn several(gpu: &Gpu, form: Form, rows: &[u32], k: u32, biased: bool) -> Vec<u32> {
    let mut random = Random(11 + u64::from(k));
    let k = form.columns(k);
    let bias = if biased { "_bias" } else { "" };
    let symbol = form.symbol(&format!("gemv{}{bias}", rows.len()));
    if find(&symbol).is_none() {
        return Vec::new();
    }
    let mut imms = vec![("k", k)];
    imms.extend(rows.iter().zip(PARTS).map(|(m, part)| (part.2, *m)));
    let x = form.activation(gpu, &random.floats(k as usize));
    let mut pointers = vec![("x", x)];
    let mut want = Vec::new();
    for (m, (w, y, _, b)) in rows.iter().zip(PARTS) {
        let values = weight(form.dtype, &matrix(*m as usize, k as usize, &mut random));
        let wv = gpu.buffer("w", &values.bytes);
        assert_eq!(declared(&symbol, w, &imms, 0), values.bytes.len() as u64);
        pointers.push((w, wv));
        pointers.push((y, fresh(gpu, &symbol, y, &imms, 0)));
        let mut dots = plain(gpu, form, wv, x, (0, *m), k, *m);
        if biased {
            let bias = random.floats(*m as usize);
            pointers.push((b, gpu.f32s("b", &bias)));
            dots.iter_mut().zip(&bias).for_each(|(d, b)| *d += b);
        }
        want.extend(bits(&dots));
    }
    launch(gpu, &symbol, &pointers, &imms);
    let mut got = Vec::new();
    for (m, (_, y, _, _)) in rows.iter().zip(PARTS) {
        let at = pointers.iter().find(|p| p.0 == y).unwrap().1;
        got.extend(gpu.read_u32s(at, *m as usize));
    }
    assert_eq!(got, want, "{symbol} {rows:?}");
    got
}

#[test]
fn several_matrices_in_one_launch() {
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for form in Form::all() {
            // A boundary inside a half-wave's block, and one row alone.
            all.extend(several(gpu, form, &[20, 1], 96, false));
            all.extend(several(gpu, form, &[40, 16, 9], 288, false));
            all.extend(several(gpu, form, &[33, 17, 4, 4], 64, false));
            all.extend(several(gpu, form, &[24, 5, 8], 32, true));
        }
        all
    });
}

/// A sparse layer: experts, chosen, rows per expert, columns.
const EXPERTS: (u32, u32, u32, u32) = (6, 3, 32, 64);
const CHOSEN: [u32; 3] = [4, 0, 5];

#[test]
fn experts_are_gathered_by_id() {
    let (experts, top_k, m, k) = EXPERTS;
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for form in Form::all() {
            let k = form.columns(k);
            let imms = [("experts", experts), ("top_k", top_k), ("m", m), ("k", k)];
            let mut random = Random(13);
            let mut make = || {
                let w = weight(
                    form.dtype,
                    &matrix((experts * m) as usize, k as usize, &mut random),
                );
                gpu.buffer("w", &w.bytes)
            };
            let (wg, wu) = (make(), make());
            let x = form.activation(gpu, &random.floats(k as usize));
            let ids = gpu.u32s("ids", &CHOSEN);
            let mut outputs = Vec::new();
            for w in [wg, wu] {
                let symbol = form.symbol("moe_gemv");
                let y = fresh(gpu, &symbol, "y", &imms, 0);
                launch(
                    gpu,
                    &symbol,
                    &[("w", w), ("x", x), ("ids", ids), ("y", y)],
                    &imms,
                );
                for (slot, expert) in CHOSEN.iter().enumerate() {
                    let range = (expert * m, expert * m + m);
                    let want = plain(gpu, form, w, x, range, k, experts * m);
                    let got = gpu.read_u32s(y + (slot as u64) * u64::from(m) * 4, m as usize);
                    assert_eq!(got, bits(&want), "{symbol} slot {slot}");
                }
                outputs.push(y);
            }
            let symbol = form.symbol("moe_gate_up");
            let y = fresh(gpu, &symbol, "y", &imms, 0);
            let pointers = [("wg", wg), ("wu", wu), ("x", x), ("ids", ids), ("y", y)];
            launch(gpu, &symbol, &pointers, &imms);
            let pair = [
                ("gate", outputs[0]),
                ("up", outputs[1]),
                ("out", outputs[0]),
            ];
            launch(gpu, "silu_mul", &pair, &[("n", top_k * m)]);
            let got = gpu.read_u32s(y, (top_k * m) as usize);
            assert_eq!(got, gpu.read_u32s(outputs[0], got.len()), "{symbol}");
            all.extend(got);
        }
        all
    });
}

#[test]
fn experts_are_summed_by_weight() {
    let (experts, top_k, m, k) = EXPERTS;
    let (r0, r1) = (3, 30);
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for form in Form::all() {
            let k = form.columns(k);
            let mut imms = vec![("r0", r0), ("r1", r1), ("experts", experts)];
            imms.extend([("top_k", top_k), ("m", m), ("k", k)]);
            let mut random = Random(17);
            let w = weight(
                form.dtype,
                &matrix((experts * m) as usize, k as usize, &mut random),
            );
            let wv = gpu.buffer("w", &w.bytes);
            let x = random.floats((top_k * k) as usize);
            let xv = form.activation(gpu, &x);
            let weights = random.floats(top_k as usize);
            let residual = random.floats(r1 as usize);
            let y = gpu.f32s("residual", &residual);
            let symbol = form.symbol("moe_down_add");
            let pointers = [
                ("w", wv),
                ("x", xv),
                ("ids", gpu.u32s("ids", &CHOSEN)),
                ("weights", gpu.f32s("weights", &weights)),
                ("residual", y),
                ("y", y),
            ];
            launch(gpu, &symbol, &pointers, &imms);
            let got = gpu.read_f32s(y, r1 as usize);
            let mut total = vec![0.0f32; (r1 - r0) as usize];
            for (slot, expert) in CHOSEN.iter().enumerate() {
                let part = form.activation(gpu, &x[slot * k as usize..][..k as usize]);
                let range = (expert * m + r0, expert * m + r1);
                let dots = plain(gpu, form, wv, part, range, k, experts * m);
                for (t, d) in total.iter_mut().zip(dots) {
                    *t = weights[slot].mul_add(d, *t);
                }
            }
            let mut want = residual.clone();
            want[r0 as usize..]
                .iter_mut()
                .zip(total)
                .for_each(|(r, t)| *r += t);
            assert_eq!(bits(&got), bits(&want), "{symbol}");
            all.extend(bits(&got));
        }
        all
    });
}

/// An id past the last expert reads the last one: never outside the weights.
#[test]
fn ids_out_of_range_are_clamped() {
    let (experts, top_k, m, k) = EXPERTS;
    let imms = [("experts", experts), ("top_k", top_k), ("m", m), ("k", k)];
    on_all_targets(|gpu| {
        let mut random = Random(19);
        let w = weight(
            Dtype::F32,
            &matrix((experts * m) as usize, k as usize, &mut random),
        );
        let wv = gpu.buffer("w", &w.bytes);
        let x = gpu.f32s("x", &random.floats(k as usize));
        let run = |ids: &[u32]| {
            let y = fresh(gpu, "moe_gemv_f32", "y", &imms, 0);
            let pointers = [("w", wv), ("x", x), ("ids", gpu.u32s("ids", ids)), ("y", y)];
            launch(gpu, "moe_gemv_f32", &pointers, &imms);
            gpu.read_u32s(y, (top_k * m) as usize)
        };
        let got = run(&[6, u32::MAX, 1]);
        assert_eq!(got, run(&[5, 5, 1]));
        got
    });
}
