//! Attention's fused and split forms: preparation in one launch equals the plain sequence bit for
//! bit; one part equals the unsplit kernel bit for bit; more parts are compared with f64.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/everywhere.rs"]
mod everywhere;
mod support;
#[path = "support/launch.rs"]
mod tools;

use everywhere::on_all_targets;
use half::f16;
use support::{Gpu, Random};
use tools::{close, control, declared, fresh, launch};

/// One head layout.
#[derive(Clone, Copy, Debug)]
struct Shape {
    heads: u32,
    kv_heads: u32,
    dim: u32,
    rot: u32,
    interleaved: u32,
    gated: bool,
}

const fn shape(
    heads: u32,
    kv_heads: u32,
    dim: u32,
    rot: u32,
    interleaved: u32,
    gated: bool,
) -> Shape {
    Shape {
        heads,
        kv_heads,
        dim,
        rot,
        interleaved,
        gated,
    }
}

const SHAPES: [Shape; 4] = [
    shape(4, 2, 32, 8, 0, true),
    shape(2, 1, 256, 64, 0, true),
    shape(3, 3, 64, 64, 1, false),
    shape(4, 1, 128, 128, 0, false),
];

fn table(rot: u32) -> Vec<f32> {
    (0..rot / 2)
        .map(|j| 1e6f64.powf(-2.0 * f64::from(j) / f64::from(rot)) / std::f64::consts::TAU)
        .flat_map(|t| [t as f32, (t - f64::from(t as f32)) as f32])
        .collect()
}

const EPS: f32 = 1e-6;

/// Queries, keys, values, weights of one step, and where the plain and the fused form put theirs.
struct Step {
    q: u64,
    k: u64,
    v: u64,
    qw: u64,
    kw: u64,
    table: u64,
}

fn step(gpu: &Gpu, s: Shape, random: &mut Random) -> Step {
    let per_head = if s.gated { 2 * s.dim } else { s.dim };
    let mut make = |name: &str, n: u32| gpu.f32s(name, &random.floats(n as usize));
    Step {
        q: make("q", s.heads * per_head),
        k: make("k", s.kv_heads * s.dim),
        v: make("v", s.kv_heads * s.dim),
        qw: make("qw", s.dim),
        kw: make("kw", s.dim),
        table: gpu.f32s("table", &table(s.rot)),
    }
}

/// Queries and caches after the fused launch; the caches hold `rows` rows, all zero before.
fn fused(
    gpu: &Gpu,
    s: Shape,
    step: &Step,
    norm: bool,
    half: bool,
    control: u64,
    room: u64,
) -> [u64; 3] {
    let dtype = if half { "f16" } else { "f32" };
    let name = if norm { "qk_norm_rope_kv" } else { "rope_kv" };
    let symbol = format!("{name}_{dtype}");
    let mut imms = vec![
        ("heads", s.heads),
        ("kv_heads", s.kv_heads),
        ("head_dim", s.dim),
        ("q_stride", if s.gated { 2 * s.dim } else { s.dim }),
        ("rot_dim", s.rot),
        ("interleaved", s.interleaved),
    ];
    let q = gpu.f32s("q_out", &vec![0.0; (s.heads * s.dim) as usize]);
    let caches = [0, 1].map(|_| gpu.buffer("cache", &vec![0; room as usize]));
    let mut pointers = vec![
        ("q", step.q),
        ("k", step.k),
        ("v", step.v),
        ("table", step.table),
        ("control", control),
        ("q_out", q),
        ("kcache", caches[0]),
        ("vcache", caches[1]),
    ];
    if norm {
        imms.push(("eps", EPS.to_bits()));
        pointers.extend([("qw", step.qw), ("kw", step.kw)]);
    }
    launch(gpu, &symbol, &pointers, &imms);
    [q, caches[0], caches[1]]
}

/// The same by the plain kernels; they work in place, so on copies.
fn plain(
    gpu: &Gpu,
    s: Shape,
    step: &Step,
    norm: bool,
    half: bool,
    control: u64,
    room: u64,
) -> [u64; 3] {
    let (heads, kv_heads, head_dim) = (
        ("heads", s.heads),
        ("kv_heads", s.kv_heads),
        ("head_dim", s.dim),
    );
    let queries = (s.heads * s.dim) as usize;
    let q = if s.gated {
        let (q, gate) = (
            gpu.empty("q", queries as u64 * 4),
            gpu.empty("gate", queries as u64 * 4),
        );
        launch(
            gpu,
            "q_gate_split",
            &[("qg", step.q), ("q", q), ("gate", gate)],
            &[heads, head_dim],
        );
        let both = gpu.read_u32s(step.q, 2 * queries);
        let gates = both.chunks(s.dim as usize).skip(1).step_by(2);
        assert_eq!(
            gpu.read_u32s(gate, queries),
            gates.flatten().copied().collect::<Vec<_>>()
        );
        q
    } else {
        gpu.u32s("q", &gpu.read_u32s(step.q, queries))
    };
    let k = gpu.u32s("k", &gpu.read_u32s(step.k, (s.kv_heads * s.dim) as usize));
    if norm {
        let pointers = [("q", q), ("k", k), ("qw", step.qw), ("kw", step.kw)];
        launch(
            gpu,
            "qk_norm",
            &pointers,
            &[heads, kv_heads, head_dim, ("eps", EPS.to_bits())],
        );
    }
    let pointers = [
        ("q", q),
        ("k", k),
        ("table", step.table),
        ("control", control),
    ];
    let turn = [("rot_dim", s.rot), ("interleaved", s.interleaved)];
    launch(
        gpu,
        "rope",
        &pointers,
        &[heads, kv_heads, head_dim, turn[0], turn[1]],
    );
    let caches = [0, 1].map(|_| gpu.buffer("cache", &vec![0; room as usize]));
    let symbol = if half { "kv_write_f16" } else { "kv_write_f32" };
    let pointers = [
        ("k", k),
        ("v", step.v),
        ("kcache", caches[0]),
        ("vcache", caches[1]),
        ("control", control),
    ];
    launch(gpu, symbol, &pointers, &[("kv_dim", s.kv_heads * s.dim)]);
    [q, caches[0], caches[1]]
}

#[test]
fn preparation_in_one_launch_equals_the_sequence() {
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        let mut random = Random(31);
        for s in SHAPES {
            for (norm, half) in [(true, false), (true, true), (false, false), (false, true)] {
                let pos = 5;
                let step = step(gpu, s, &mut random);
                let words = control(gpu, pos, 0);
                let row = u64::from(s.kv_heads * s.dim) * if half { 2 } else { 4 };
                let room = row * u64::from(pos + 1);
                let got = fused(gpu, s, &step, norm, half, words, room);
                let want = plain(gpu, s, &step, norm, half, words, room);
                let counts = [
                    (s.heads * s.dim) as usize,
                    room as usize / 4,
                    room as usize / 4,
                ];
                for ((g, w), n) in got.iter().zip(want).zip(counts) {
                    let bits = gpu.read_u32s(*g, n);
                    assert_eq!(bits, gpu.read_u32s(w, n), "{s:?} norm {norm} half {half}");
                    all.extend(bits);
                }
                let idle = fused(gpu, s, &step, norm, half, control(gpu, pos, 2), room);
                for (at, n) in idle.iter().zip(counts) {
                    assert!(
                        gpu.read_u32s(*at, n).iter().all(|word| *word == 0),
                        "written though done"
                    );
                }
            }
        }
        all
    });
}

/// A cache of random rows in either type: address and values.
fn cache(gpu: &Gpu, n: usize, half: bool, random: &mut Random) -> (u64, Vec<f32>) {
    let values = random.floats(n);
    if half {
        let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
        let bytes: Vec<u8> = halves.iter().flat_map(|h| h.to_le_bytes()).collect();
        (
            gpu.buffer("cache", &bytes),
            halves.iter().map(|h| h.to_f32()).collect(),
        )
    } else {
        (gpu.f32s("cache", &values), values)
    }
}

/// Softmax attention times sigmoid(gate), in f64.
fn formula(s: Shape, q: &[f32], k: &[f32], v: &[f32], gate: &[f32], len: usize) -> Vec<f64> {
    let (dim, kv_heads) = (s.dim as usize, s.kv_heads as usize);
    let mut out = Vec::new();
    for h in 0..s.heads as usize {
        let head = h * kv_heads / s.heads as usize;
        let row = |m: &[f32], t: usize, d: usize| f64::from(m[(t * kv_heads + head) * dim + d]);
        let scores: Vec<f64> = (0..len)
            .map(|t| {
                (0..dim)
                    .map(|d| f64::from(q[h * dim + d]) * row(k, t, d))
                    .sum::<f64>()
            })
            .map(|dot| dot / (dim as f64).sqrt())
            .collect();
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|x| (x - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        for d in 0..dim {
            let sum: f64 = weights
                .iter()
                .enumerate()
                .map(|(t, w)| w * row(v, t, d))
                .sum();
            let g = f64::from(gate[(2 * h + 1) * dim + d]);
            out.push(sum / total / (1.0 + (-g).exp()));
        }
    }
    out
}

/// Split and both merges; all buffers that they share start as NaN.
fn split_and_merge(
    gpu: &Gpu,
    s: Shape,
    symbol: &str,
    common: &[(&'static str, u64); 4],
    imms: &[(&'static str, u32); 4],
    qg: u64,
) -> [u64; 2] {
    let part = fresh(gpu, symbol, "part", imms, 0);
    let stats = fresh(gpu, symbol, "stats", imms, 0);
    let shared = [("part", part), ("stats", stats)];
    launch(gpu, symbol, &[&common[..], &shared].concat(), imms);
    let imms = [imms[0], ("head_dim", s.dim), imms[2]];
    [("attn_merge", &[][..]), ("attn_merge_gated", &[("qg", qg)])].map(|(symbol, more)| {
        let out = fresh(gpu, symbol, "out", &imms, 0);
        let rest = [common[3], ("out", out)];
        launch(gpu, symbol, &[&shared[..], &rest, more].concat(), &imms);
        out
    })
}

fn split_case(gpu: &Gpu, s: Shape, half: bool, len: usize, splits: u32) -> Vec<u32> {
    let mut random = Random(41 + len as u64);
    let (dim, queries) = (s.dim as usize, (s.heads * s.dim) as usize);
    let pos = len as u32 - 1;
    let words = control(gpu, pos, 0);
    let q = random.floats(queries);
    let qv = gpu.f32s("q", &q);
    let qg = random.floats(2 * queries);
    let gv = gpu.f32s("qg", &qg);
    let room = len * s.kv_heads as usize * dim;
    let ((kv, k), (vv, v)) = (
        cache(gpu, room, half, &mut random),
        cache(gpu, room, half, &mut random),
    );
    let dtype = if half { "f16" } else { "f32" };
    let scale = ("scale", (1.0 / (dim as f32).sqrt()).to_bits());
    let (heads, kv_heads) = (("heads", s.heads), ("kv_heads", s.kv_heads));
    let common = [
        ("q", qv),
        ("kcache", kv),
        ("vcache", vv),
        ("control", words),
    ];

    let symbol = format!("attn_split_{dtype}_d{dim}");
    let imms = [heads, kv_heads, ("splits", splits), scale];
    assert_eq!(
        declared(&symbol, "kcache", &imms, pos),
        room as u64 * if half { 2 } else { 4 }
    );
    let [merged, gated] = split_and_merge(gpu, s, &symbol, &common, &imms, gv);
    if splits == 1 {
        let symbol = format!("attn_decode_{dtype}_d{dim}");
        let out = gpu.empty("out", queries as u64 * 4);
        let mut pointers = common.to_vec();
        pointers.push(("out", out));
        launch(gpu, &symbol, &pointers, &[heads, kv_heads, scale]);
        assert_eq!(
            gpu.read_u32s(out, queries),
            gpu.read_u32s(merged, queries),
            "{symbol} len {len}"
        );
    }
    let gates: Vec<f32> = qg
        .chunks(dim)
        .skip(1)
        .step_by(2)
        .flatten()
        .copied()
        .collect();
    let pointers = [
        ("x", merged),
        ("gate", gpu.f32s("gate", &gates)),
        ("out", merged),
    ];
    launch(gpu, "sigmoid_mul", &pointers, &[("n", queries as u32)]);
    let bits = gpu.read_u32s(gated, queries);
    assert_eq!(
        bits,
        gpu.read_u32s(merged, queries),
        "{symbol} len {len} gate"
    );
    let want = formula(s, &q, &k, &v, &qg, len);
    close(&symbol, &gpu.read_f32s(gated, queries), &want, 2e-6);
    bits
}

#[test]
fn parts_of_the_context_merge_to_the_whole() {
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for s in SHAPES {
            for half in [false, true] {
                for (len, splits) in [(1, 4), (33, 1), (300, 1), (256, 2), (257, 2), (700, 2)] {
                    if len > 300 && s.dim != 32 {
                        continue;
                    }
                    all.extend(split_case(gpu, s, half, len, splits));
                }
            }
        }
        all.extend(split_case(gpu, SHAPES[0], false, 1300, 4));
        all.extend(split_case(gpu, SHAPES[0], true, 1024, 8));
        all
    });
}
