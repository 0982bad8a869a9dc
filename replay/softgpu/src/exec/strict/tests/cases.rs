//! Launches of every shipped kernel, at several positions and sizes, with the buffer that shows the
//! result.

use super::support::{Args, Gpu, Random, bytes};
use crate::exec::Dispatch;
use half::f16;

/// One launch.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) kernel: &'static str,
    pub(super) dispatch: Dispatch,
    /// Buffers that it writes, with their lengths in dwords.
    pub(super) outputs: Vec<(u64, usize)>,
}

impl Case {
    /// Whether a second run starts from what the first one left.
    pub(super) fn in_place(&self) -> bool {
        matches!(self.kernel, "qk_norm" | "rope" | "advance")
    }
}

struct Cases<'a> {
    gpu: &'a Gpu,
    random: Random,
    list: Vec<Case>,
}

/// All cases, on buffers of `gpu`. Twice the same call gives the same addresses' contents.
pub(super) fn all(gpu: &Gpu) -> Vec<Case> {
    let mut cases = Cases {
        gpu,
        random: Random(41),
        list: Vec::new(),
    };
    for (rows, k) in [(5, 32), (33, 256), (16, 288), (40, 704)] {
        cases.gemv(rows, k);
    }
    for n in [8, 260, 1100] {
        cases.rmsnorm(n);
    }
    cases.qk_norm();
    for position in [0, 1, 31, 32, 63, 300, u32::MAX - 5] {
        cases.rope(position);
        cases.attention(position);
    }
    for done in [0, 1] {
        cases.kv_write(done);
    }
    cases.silu_mul();
    cases.embed();
    cases.argmax();
    cases.advance();
    cases.list
}

impl Cases<'_> {
    fn push(
        &mut self,
        name: String,
        kernel: &'static str,
        grid: (u32, u32),
        args: &Args,
        outputs: &[(u64, usize)],
    ) {
        self.list.push(Case {
            name,
            kernel,
            dispatch: self.gpu.dispatch(kernel, grid.0, grid.1, args),
            outputs: outputs.to_vec(),
        });
    }

    fn floats(&mut self, name: &str, n: usize) -> u64 {
        let values = self.random.floats(n);
        self.gpu.f32s(name, &values)
    }

    /// A buffer of zeros.
    fn zeros(&self, name: &str, dwords: usize) -> u64 {
        self.gpu.u32s(name, &vec![0; dwords])
    }

    fn control(&self, token: u32, position: u32, done: u32) -> u64 {
        self.gpu
            .u32s("control", &[token, position, done, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    fn gemv(&mut self, rows: usize, k: usize) {
        let plain = self.random.floats(rows * k);
        let halves = |f: &dyn Fn(f32) -> u16| -> Vec<u8> {
            plain.iter().flat_map(|v| f(*v).to_le_bytes()).collect()
        };
        let as_f16 = halves(&|v| f16::from_f32(v).to_bits());
        let as_bf16 = halves(&|v| (v.to_bits() >> 16) as u16);
        let as_f32 = bytes(plain.iter().map(|v| v.to_bits()));
        let as_q8 = self.q8_0(rows, k);
        for (plain, add, data, tail) in [
            ("gemv_f32", "gemv_f32_add", &as_f32, false),
            ("gemv_f16", "gemv_f16_add", &as_f16, false),
            ("gemv_bf16", "gemv_bf16_add", &as_bf16, false),
            ("gemv_q8_0", "gemv_q8_0_add", &as_q8, true),
        ] {
            for kernel in [plain, add] {
                let (w, x) = (self.gpu.buffer("w", data), self.floats("x", k));
                let (r, y) = (self.floats("residual", rows), self.zeros("y", rows));
                let mut args = Args::default().ptr(w).ptr(x);
                if kernel == add {
                    args = args.ptr(r);
                }
                args = args.ptr(y).u32(0).u32(rows as u32).u32(k as u32);
                if tail {
                    args = args.u32(rows as u32);
                }
                let name = format!("{kernel} {rows}x{k}");
                let grid = (rows.div_ceil(16) as u32, 256);
                self.push(name, kernel, grid, &args, &[(y, rows)]);
            }
        }
    }

    fn q8_0(&mut self, rows: usize, k: usize) -> Vec<u8> {
        let mut data: Vec<u8> = (0..rows * k).map(|_| self.random.next() as u8).collect();
        for _ in 0..rows * k / 32 {
            let scale = f16::from_f32(self.random.float() * 0.01);
            data.extend(scale.to_le_bytes());
        }
        data
    }

    fn rmsnorm(&mut self, n: usize) {
        let (x, w) = (self.floats("x", n), self.floats("w", n));
        let y = self.zeros("y", n);
        let args = Args::default().ptr(x).ptr(w).ptr(y).u32(n as u32).f32(1e-6);
        self.push(
            format!("rmsnorm {n}"),
            "rmsnorm",
            (1, 256),
            &args,
            &[(y, n)],
        );
    }

    fn qk_norm(&mut self) {
        for dim in [64, 128] {
            let (heads, kv_heads) = (3, 2);
            let (q, k) = (
                self.floats("q", heads * dim),
                self.floats("k", kv_heads * dim),
            );
            let (qw, kw) = (self.floats("qw", dim), self.floats("kw", dim));
            let args = Args::default().ptr(q).ptr(k).ptr(qw).ptr(kw);
            let args = args.u32(heads as u32).u32(kv_heads as u32);
            let args = args.u32(dim as u32).f32(1e-6);
            let grid = ((heads + kv_heads) as u32, 32);
            let outputs = [(q, heads * dim), (k, kv_heads * dim)];
            self.push(format!("qk_norm {dim}"), "qk_norm", grid, &args, &outputs);
        }
    }

    fn rope(&mut self, position: u32) {
        for interleaved in [0, 1] {
            let (heads, kv_heads, dim, rot) = (2usize, 1usize, 64usize, 48usize);
            let (q, k) = (
                self.floats("q", heads * dim),
                self.floats("k", kv_heads * dim),
            );
            let table = self.floats("table", rot);
            let control = self.control(0, position, 0);
            let args = Args::default().ptr(q).ptr(k).ptr(table).ptr(control);
            let args = args.u32(heads as u32).u32(kv_heads as u32).u32(dim as u32);
            let args = args.u32(rot as u32).u32(interleaved);
            let grid = ((heads + kv_heads) as u32, 32);
            let outputs = [(q, heads * dim), (k, kv_heads * dim)];
            let name = format!("rope at {position}, interleaved {interleaved}");
            self.push(name, "rope", grid, &args, &outputs);
        }
    }

    fn attention(&mut self, position: u32) {
        for (kernel, half, dim) in [
            ("attn_decode_f32_d32", false, 32),
            ("attn_decode_f32_d64", false, 64),
            ("attn_decode_f32_d128", false, 128),
            ("attn_decode_f32_d256", false, 256),
            ("attn_decode_f16_d32", true, 32),
            ("attn_decode_f16_d64", true, 64),
            ("attn_decode_f16_d128", true, 128),
            ("attn_decode_f16_d256", true, 256),
        ] {
            let (heads, kv_heads) = (4usize, 2usize);
            let q = self.floats("q", heads * dim);
            // A position at the end of the numbers has no tile: no row of the cache is read.
            let len = (position as usize % 512 + 1) * kv_heads * dim;
            let mut cache = || {
                let values = self.random.floats(len);
                if half {
                    let halves = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes());
                    self.gpu.buffer("cache", &halves.collect::<Vec<_>>())
                } else {
                    self.gpu.f32s("cache", &values)
                }
            };
            let (k, v) = (cache(), cache());
            let control = self.control(0, position, 0);
            let out = self.zeros("out", heads * dim);
            let args = Args::default().ptr(q).ptr(k).ptr(v).ptr(control).ptr(out);
            let args = args.u32(heads as u32).u32(kv_heads as u32).f32(0.125);
            let name = format!("{kernel} at {position}");
            let outputs = [(out, heads * dim)];
            self.push(name, kernel, (heads as u32, 256), &args, &outputs);
        }
    }

    fn kv_write(&mut self, done: u32) {
        for (kernel, size) in [("kv_write_f32", 4), ("kv_write_f16", 2)] {
            let dim = 300;
            let (k, v) = (self.floats("k", dim), self.floats("v", dim));
            let room = dim * size;
            let (kc, vc) = (self.zeros("kcache", room), self.zeros("vcache", room));
            let control = self.control(0, 2, done);
            let args = Args::default().ptr(k).ptr(v).ptr(kc).ptr(vc);
            let args = args.ptr(control).u32(dim as u32);
            let grid = (dim.div_ceil(256) as u32, 256);
            let name = format!("{kernel}, done {done}");
            self.push(name, kernel, grid, &args, &[(kc, room), (vc, room)]);
        }
    }

    fn silu_mul(&mut self) {
        let n = 600;
        let (gate, up) = (self.floats("gate", n), self.floats("up", n));
        let out = self.zeros("out", n);
        let args = Args::default().ptr(gate).ptr(up).ptr(out).u32(n as u32);
        let grid = (n.div_ceil(256) as u32, 256);
        self.push("silu_mul".to_owned(), "silu_mul", grid, &args, &[(out, n)]);
    }

    fn embed(&mut self) {
        let (rows, e) = (7usize, 288usize);
        let control = self.control(5, 0, 0);
        let quants = self.q8_0(rows, e);
        for kernel in ["embed_f32", "embed_f16", "embed_bf16", "embed_q8_0"] {
            let table = match kernel {
                "embed_q8_0" => self.gpu.buffer("table", &quants),
                _ => self.floats("table", rows * e),
            };
            let out = self.zeros("out", e);
            let mut args = Args::default().ptr(table).ptr(control).ptr(out);
            args = args.u32(e as u32);
            if kernel == "embed_q8_0" {
                args = args.u32(rows as u32);
            }
            let grid = (e.div_ceil(256) as u32, 256);
            self.push(kernel.to_owned(), kernel, grid, &args, &[(out, e)]);
        }
    }

    fn argmax(&mut self) {
        for n in [1usize, 40, 3000] {
            let logits = self.floats("logits", n);
            let control = self.control(0, 0, 0);
            let args = Args::default().ptr(logits).ptr(control).u32(n as u32);
            let name = format!("argmax {n}");
            self.push(name, "argmax", (1, 1024), &args, &[(control, 11)]);
        }
    }

    fn advance(&mut self) {
        // token, pos, done, prompt_len, generated, gen_limit, ctx_len, eos, seq, ring_mask, sampled.
        let base = [9, 4, 0, 3, 2, 100, 64, 77, 2, 7, 55];
        for (what, change) in [
            ("generated", None),
            ("prompt", Some((1, 0))),
            ("end of text", Some((10, 77))),
            ("limit", Some((5, 3))),
            ("context", Some((6, 5))),
            ("done", Some((2, 2))),
        ] {
            let mut words = base;
            if let Some((at, value)) = change {
                words[at] = value;
            }
            let control = self.gpu.u32s("control", &words);
            let prompt = self.gpu.u32s("prompt", &[30, 31, 32]);
            let ring = self.zeros("ring", 16);
            let args = Args::default().ptr(control).ptr(prompt).ptr(ring);
            let name = format!("advance, {what}");
            self.push(
                name,
                "advance",
                (1, 32),
                &args,
                &[(control, 11), (ring, 16)],
            );
        }
    }
}
