//! The gated delta rule over several positions: the fused kernel equals the plain chain bit for bit,
//! and both follow the recurrence in f64. The short convolution likewise.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/everywhere.rs"]
mod everywhere;
mod support;
#[path = "support/launch.rs"]
mod tools;

use everywhere::on_all_targets;
use support::{Gpu, Random};
use tools::{close, control, fresh, launch, nans};

const STEPS: u32 = 6;
const EPS: f32 = 1e-6;
const NORM_EPS: f32 = 1e-5;

/// Sizes of a layer and its weights on the device and here.
struct Layer {
    nk: usize,
    nv: usize,
    dim: usize,
    tiled: bool,
    conv_w: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
    norm_w: Vec<f32>,
}

impl Layer {
    fn new(nk: usize, nv: usize, dim: usize, tiled: bool, random: &mut Random) -> Self {
        let channels = (2 * nk + nv) * dim;
        Self {
            nk,
            nv,
            dim,
            tiled,
            conv_w: random.floats(channels * 4),
            a_log: (0..nv).map(|_| -(random.float() * 2.0).exp()).collect(),
            dt_bias: random.floats(nv),
            norm_w: random.floats(dim),
        }
    }

    fn channels(&self) -> usize {
        (2 * self.nk + self.nv) * self.dim
    }

    fn key_head(&self, j: usize) -> usize {
        if self.tiled {
            j % self.nk
        } else {
            j * self.nk / self.nv
        }
    }
}

/// The inputs of one step.
struct Inputs {
    m: Vec<f32>,
    z: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Inputs {
    fn new(layer: &Layer, random: &mut Random) -> Self {
        let wide = |v: Vec<f32>| -> Vec<f32> { v.iter().map(|x| x * 4.0).collect() };
        Self {
            m: random.floats(layer.channels()),
            z: wide(random.floats(layer.nv * layer.dim)),
            a: wide(random.floats(layer.nv)),
            b: wide(random.floats(layer.nv)),
        }
    }
}

/// The recurrence in f64.
struct Reference {
    past: Vec<Vec<f64>>,
    state: Vec<f64>,
}

fn silu(z: f64) -> f64 {
    z / (1.0 + (-z).exp())
}

impl Reference {
    fn convolve(&mut self, layer: &Layer, m: &[f32]) -> Vec<f64> {
        self.past.push(m.iter().map(|v| f64::from(*v)).collect());
        let last = self.past.len() - 1;
        (0..m.len())
            .map(|c| {
                let tap = |i: usize| match (last + i).checked_sub(3) {
                    Some(t) => f64::from(layer.conv_w[4 * c + i]) * self.past[t][c],
                    None => 0.0,
                };
                silu((0..4).map(tap).sum())
            })
            .collect()
    }

    fn step(&mut self, layer: &Layer, inputs: &Inputs) -> Vec<f64> {
        let u = self.convolve(layer, &inputs.m);
        let (nk, dim) = (layer.nk, layer.dim);
        let unit = |x: &[f64]| -> Vec<f64> {
            let norm = (x.iter().map(|v| v * v).sum::<f64>() + f64::from(EPS)).sqrt();
            x.iter().map(|v| v / norm).collect()
        };
        let mut out = Vec::new();
        for j in 0..layer.nv {
            let head = |i: usize| &u[i * dim..][..dim];
            let kh = layer.key_head(j);
            let q: Vec<f64> = unit(head(kh))
                .iter()
                .map(|v| v / (dim as f64).sqrt())
                .collect();
            let (k, v) = (unit(head(nk + kh)), head(2 * nk + j));
            let softplus = (f64::from(inputs.a[j]) + f64::from(layer.dt_bias[j]))
                .exp()
                .ln_1p();
            let decay = (f64::from(layer.a_log[j]) * softplus).exp();
            let beta = 1.0 / (1.0 + (-f64::from(inputs.b[j])).exp());
            let s = &mut self.state[j * dim * dim..][..dim * dim];
            s.iter_mut().for_each(|x| *x *= decay);
            let mut o = vec![0.0; dim];
            for c in 0..dim {
                let seen: f64 = (0..dim).map(|i| s[i * dim + c] * k[i]).sum();
                let d = beta * (v[c] - seen);
                (0..dim).for_each(|i| s[i * dim + c] += k[i] * d);
                o[c] = (0..dim).map(|i| s[i * dim + c] * q[i]).sum();
            }
            let mean = o.iter().map(|x| x * x).sum::<f64>() / dim as f64;
            let scale = 1.0 / (mean + f64::from(NORM_EPS)).sqrt();
            out.extend((0..dim).map(|c| {
                o[c] * scale * f64::from(layer.norm_w[c]) * silu(f64::from(inputs.z[j * dim + c]))
            }));
        }
        out
    }
}

/// Weights on the device and the states of one way of computing.
struct Device<'a> {
    gpu: &'a Gpu,
    layer: &'a Layer,
    conv_w: u64,
    a_log: u64,
    dt_bias: u64,
    norm_w: u64,
    conv_state: u64,
    state: u64,
}

impl<'a> Device<'a> {
    /// States start as NaN: position 0 must not read them.
    fn new(gpu: &'a Gpu, layer: &'a Layer) -> Self {
        Self {
            gpu,
            layer,
            conv_w: gpu.f32s("conv_w", &layer.conv_w),
            a_log: gpu.f32s("a_log", &layer.a_log),
            dt_bias: gpu.f32s("dt_bias", &layer.dt_bias),
            norm_w: gpu.f32s("norm_w", &layer.norm_w),
            conv_state: nans(gpu, "conv_state", layer.channels() as u64 * 16),
            state: nans(gpu, "state", (layer.nv * layer.dim * layer.dim) as u64 * 4),
        }
    }

    fn heads(&self) -> [(&'static str, u32); 3] {
        let tiled = u32::from(self.layer.tiled);
        [
            ("nk", self.layer.nk as u32),
            ("nv", self.layer.nv as u32),
            ("tiled", tiled),
        ]
    }

    fn scale(&self) -> (&'static str, u32) {
        ("scale", (1.0 / (self.layer.dim as f32).sqrt()).to_bits())
    }

    fn fused(&self, inputs: &Inputs, control: u64) -> u64 {
        let gpu = self.gpu;
        let symbol = format!("delta_net_d{}", self.layer.dim);
        let mut imms = self.heads().to_vec();
        imms.extend([
            ("eps", EPS.to_bits()),
            self.scale(),
            ("norm_eps", NORM_EPS.to_bits()),
        ]);
        let y = fresh(gpu, &symbol, "y", &imms, 0);
        let pointers = [
            ("m", gpu.f32s("m", &inputs.m)),
            ("z", gpu.f32s("z", &inputs.z)),
            ("a", gpu.f32s("a", &inputs.a)),
            ("b", gpu.f32s("b", &inputs.b)),
            ("conv_w", self.conv_w),
            ("a_log", self.a_log),
            ("dt_bias", self.dt_bias),
            ("norm_w", self.norm_w),
            ("conv_state", self.conv_state),
            ("state", self.state),
            ("control", control),
            ("y", y),
        ];
        launch(gpu, &symbol, &pointers, &imms);
        y
    }

    fn plain(&self, inputs: &Inputs, control: u64) -> u64 {
        let (gpu, layer) = (self.gpu, self.layer);
        let (nv, dim) = (layer.nv as u32, layer.dim as u32);
        let u = gpu.empty("u", layer.channels() as u64 * 4);
        let pointers = [
            ("m", gpu.f32s("m", &inputs.m)),
            ("conv_w", self.conv_w),
            ("conv_state", self.conv_state),
            ("control", control),
            ("u", u),
        ];
        launch(
            gpu,
            "conv_silu_k4",
            &pointers,
            &[("channels", layer.channels() as u32)],
        );
        let imms = [
            ("nk", layer.nk as u32),
            ("head_dim", dim),
            ("eps", EPS.to_bits()),
            self.scale(),
        ];
        launch(gpu, "l2_norm", &[("u", u)], &imms);
        let (decay, beta) = (
            gpu.empty("decay", layer.nv as u64 * 4),
            gpu.empty("beta", layer.nv as u64 * 4),
        );
        let pointers = [
            ("a", gpu.f32s("a", &inputs.a)),
            ("b", gpu.f32s("b", &inputs.b)),
            ("a_log", self.a_log),
            ("dt_bias", self.dt_bias),
            ("decay", decay),
            ("beta", beta),
        ];
        launch(gpu, "delta_gates", &pointers, &[("nv", nv)]);
        let symbol = format!("delta_step_d{dim}");
        let o = fresh(gpu, &symbol, "o", &self.heads(), 0);
        let pointers = [
            ("u", u),
            ("decay", decay),
            ("beta", beta),
            ("state", self.state),
            ("control", control),
            ("o", o),
        ];
        launch(gpu, &symbol, &pointers, &self.heads());
        let y = gpu.empty("y", u64::from(nv * dim) * 4);
        let z = gpu.f32s("z", &inputs.z);
        let pointers = [("o", o), ("norm_w", self.norm_w), ("z", z), ("y", y)];
        let imms = [
            ("heads", nv),
            ("head_dim", dim),
            ("norm_eps", NORM_EPS.to_bits()),
        ];
        launch(gpu, "gated_norm", &pointers, &imms);
        y
    }

    /// The columns of the ring that have been written, and the state.
    fn states(&self, pos: u32) -> Vec<u32> {
        let channels = self.layer.channels();
        let columns = (pos as usize + 1).min(4);
        let mut all = self.gpu.read_u32s(self.conv_state, columns * channels);
        let square = self.layer.dim * self.layer.dim;
        all.extend(self.gpu.read_u32s(self.state, self.layer.nv * square));
        all
    }
}

fn delta_case(gpu: &Gpu, nk: usize, nv: usize, dim: usize, tiled: bool) -> Vec<u32> {
    let mut random = Random(53 + dim as u64);
    let layer = Layer::new(nk, nv, dim, tiled, &mut random);
    let (fused, plain) = (Device::new(gpu, &layer), Device::new(gpu, &layer));
    let mut reference = Reference {
        past: Vec::new(),
        state: vec![0.0; nv * dim * dim],
    };
    let mut all = Vec::new();
    for pos in 0..STEPS {
        let inputs = Inputs::new(&layer, &mut random);
        let words = control(gpu, pos, 0);
        let (f, p) = (fused.fused(&inputs, words), plain.plain(&inputs, words));
        let what = format!("d{dim} {nk}/{nv} tiled {tiled} pos {pos}");
        let got = gpu.read_u32s(f, nv * dim);
        assert_eq!(got, gpu.read_u32s(p, nv * dim), "{what}");
        assert_eq!(fused.states(pos), plain.states(pos), "{what} states");
        let want = reference.step(&layer, &inputs);
        close(&what, &gpu.read_f32s(f, nv * dim), &want, 2e-5);
        all.extend(got);
    }
    let state: Vec<f32> = gpu.read_f32s(fused.state, nv * dim * dim);
    close("state", &state, &reference.state, 1e-5);
    all
}

#[test]
fn delta_net_equals_the_plain_chain_and_the_recurrence() {
    on_all_targets(|gpu| {
        let mut all = delta_case(gpu, 2, 4, 32, true);
        all.extend(delta_case(gpu, 2, 6, 32, false));
        all.extend(delta_case(gpu, 3, 3, 64, false));
        all.extend(delta_case(gpu, 1, 2, 128, true));
        all
    });
}

#[test]
fn states_keep_still_once_done() {
    on_all_targets(|gpu| {
        let mut random = Random(59);
        let layer = Layer::new(2, 4, 32, true, &mut random);
        let device = Device::new(gpu, &layer);
        for pos in 0..4 {
            let inputs = Inputs::new(&layer, &mut random);
            device.fused(&inputs, control(gpu, pos, 0));
        }
        let before = device.states(4);
        let inputs = Inputs::new(&layer, &mut random);
        let done = control(gpu, 4, 1);
        device.fused(&inputs, done);
        assert_eq!(device.states(4), before, "fused");
        let (channels, m) = (layer.channels(), gpu.f32s("m", &inputs.m));
        let u = gpu.f32s("u", &random.floats(channels));
        let kept = gpu.read_u32s(u, channels);
        let pointers = [
            ("m", m),
            ("conv_w", device.conv_w),
            ("conv_state", device.conv_state),
            ("control", done),
            ("u", u),
        ];
        launch(
            gpu,
            "conv_silu_k4",
            &pointers,
            &[("channels", channels as u32)],
        );
        let gates = gpu.f32s("gates", &random.floats(4));
        let o = gpu.empty("o", 4 * 32 * 4);
        let pointers = [
            ("u", u),
            ("decay", gates),
            ("beta", gates),
            ("state", device.state),
            ("control", done),
            ("o", o),
        ];
        launch(gpu, "delta_step_d32", &pointers, &device.heads());
        assert_eq!(device.states(4), before, "plain");
        assert_eq!(gpu.read_u32s(u, channels), kept);
        before
    });
}

/// A text that starts again at position 0 gives the first text's bits over stale states.
#[test]
fn position_zero_forgets() {
    on_all_targets(|gpu| {
        let mut random = Random(61);
        let layer = Layer::new(1, 2, 64, false, &mut random);
        let device = Device::new(gpu, &layer);
        let steps: Vec<Inputs> = (0..3).map(|_| Inputs::new(&layer, &mut random)).collect();
        let text = || -> Vec<u32> {
            let run = |(pos, inputs): (usize, &Inputs)| {
                let y = device.fused(inputs, control(gpu, pos as u32, 0));
                gpu.read_u32s(y, 2 * 64)
            };
            steps.iter().enumerate().flat_map(run).collect()
        };
        let first = text();
        assert_eq!(first, text());
        first
    });
}

#[test]
fn short_convolution_follows_the_formula() {
    on_all_targets(|gpu| {
        let mut random = Random(67);
        let e = 300usize;
        let w = random.floats(3 * e);
        let wv = gpu.f32s("conv_w", &w);
        let imms = [("e", e as u32)];
        let state = fresh(gpu, "short_conv_k3", "conv_state", &imms, 0);
        let mut past: Vec<Vec<f64>> = Vec::new();
        let mut all = Vec::new();
        for pos in 0..STEPS {
            let bcx = random.floats(3 * e);
            past.push(
                (0..e)
                    .map(|c| f64::from(bcx[c]) * f64::from(bcx[2 * e + c]))
                    .collect(),
            );
            let out = fresh(gpu, "short_conv_k3", "out", &imms, 0);
            let run = |done: u32, out: u64| {
                let pointers = [
                    ("bcx", gpu.f32s("bcx", &bcx)),
                    ("conv_w", wv),
                    ("conv_state", state),
                    ("control", control(gpu, pos, done)),
                    ("out", out),
                ];
                launch(gpu, "short_conv_k3", &pointers, &imms);
            };
            run(0, out);
            let want: Vec<f64> = (0..e)
                .map(|c| {
                    let tap = |i: usize| match (pos as usize + i).checked_sub(2) {
                        Some(t) => f64::from(w[3 * c + i]) * past[t][c],
                        None => 0.0,
                    };
                    f64::from(bcx[e + c]) * (0..3).map(tap).sum::<f64>()
                })
                .collect();
            close(&format!("pos {pos}"), &gpu.read_f32s(out, e), &want, 1e-6);
            let columns = (pos as usize + 1).min(4);
            let before = gpu.read_u32s(state, columns * e);
            run(1, fresh(gpu, "short_conv_k3", "out", &imms, 0));
            assert_eq!(gpu.read_u32s(state, columns * e), before);
            all.extend(gpu.read_u32s(out, e));
        }
        all
    });
}
