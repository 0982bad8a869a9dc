//! Models to plan: the ones in the repository, and tiny ones written on the spot.

use refrain_planner::ModelSource;
use refrain_planner::lowering::fusions;
use refrain_planner::machine::Machine;
use refrain_planner::plan::Plan;
use refrain_planner::{CheckedPlan, CompileOptions, PlanError, compile};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// A model file of this repository.
pub fn repository(path: &str) -> ModelSource {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    ModelSource::open(root.join(path)).unwrap()
}

pub const AUSTEN: &str = "golden/models/austen-qwen3-4m.q8_0.gguf";
pub const NANO_LLAMA: &str = "tests/models/nano-llama.bf16.gguf";
/// Every architecture's nano model.
pub const NANO: [&str; 6] = [
    NANO_LLAMA,
    "tests/models/nano-qwen2.bf16.gguf",
    NANO_QWEN3,
    "tests/models/nano-qwen3_5.bf16.gguf",
    "tests/models/nano-qwen3_5_moe.bf16.gguf",
    "tests/models/nano-lfm2.bf16.gguf",
];
pub const AUSTEN_LINEAR: &str = "golden/models/austen-qwen35-6m.q8_0.gguf";
pub const NANO_QWEN3: &str = "tests/models/nano-qwen3.bf16.gguf";

/// A metadata value of a tiny model.
#[derive(Debug, Clone)]
pub enum Meta {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(&'static str),
    U32s(Vec<u32>),
    Texts(usize),
}

/// ggml type ids.
pub const F32: u32 = 0;
pub const F16: u32 = 1;
pub const Q8_0: u32 = 8;
/// One that has no kernel.
pub const Q2_0: u32 = 42;

/// What a tiny model file holds; tests change it before it is written.
#[derive(Debug, Clone)]
pub struct Tiny {
    pub meta: BTreeMap<String, Meta>,
    /// Name to dimensions (contiguous first), type, content (zeros where empty).
    pub tensors: BTreeMap<String, (Vec<u64>, u32, Vec<u8>)>,
}

impl Tiny {
    /// Two layers, hidden 64, 4 query and 2 key heads of 32, ffn 96, vocab 80, untied head. Hybrids
    /// have attention in the second layer only.
    pub fn new(arch: &'static str) -> Self {
        let mut tiny = Self {
            meta: BTreeMap::new(),
            tensors: BTreeMap::new(),
        };
        tiny.meta
            .insert("general.architecture".into(), Meta::Text(arch));
        let counts = [
            ("block_count", 2),
            ("context_length", 128),
            ("embedding_length", 64),
            ("feed_forward_length", 96),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("attention.key_length", 32),
        ];
        for (key, value) in counts {
            tiny.meta.insert(format!("{arch}.{key}"), Meta::U32(value));
        }
        let eps = format!("{arch}.attention.layer_norm_rms_epsilon");
        tiny.meta.insert(eps, Meta::F32(1e-6));
        for (name, dims) in [("token_embd", [64, 80]), ("output", [64, 80])] {
            tiny.tensor(name, &dims, F16);
        }
        tiny.tensor("output_norm", &[64], F32);
        for layer in 0..2 {
            for (name, dims, ty) in layer_tensors(arch, layer) {
                tiny.tensors
                    .insert(format!("blk.{layer}.{name}"), (dims, ty, Vec::new()));
            }
        }
        for (key, value) in counts_of(arch) {
            tiny.meta.insert(format!("{arch}.{key}"), value);
        }
        if arch == "lfm2" {
            tiny.tensors.remove("output_norm.weight");
            tiny.tensor("token_embd_norm", &[64], F32);
        }
        tiny
    }

    /// Adds or replaces a `.weight` tensor of zeros.
    pub fn tensor(&mut self, name: &str, dims: &[u64], ty: u32) {
        self.tensors
            .insert(format!("{name}.weight"), (dims.to_vec(), ty, Vec::new()));
    }

    /// Sets a metadata key.
    pub fn set(&mut self, key: &str, value: Meta) {
        self.meta.insert(key.into(), value);
    }

    /// Writes the file and opens it.
    pub fn open(&self) -> ModelSource {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&self.bytes()).unwrap();
        // The reader keeps its own handle, so the name may go.
        ModelSource::open(file.path()).unwrap()
    }

    /// The file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.meta.len() as u64).to_le_bytes());
        for (key, value) in &self.meta {
            text(&mut out, key);
            match value {
                Meta::U32(v) => out.extend([&4u32.to_le_bytes()[..], &v.to_le_bytes()].concat()),
                Meta::F32(v) => out.extend([&6u32.to_le_bytes()[..], &v.to_le_bytes()].concat()),
                Meta::Bool(v) => out.extend([&7u32.to_le_bytes()[..], &[u8::from(*v)]].concat()),
                Meta::Text(v) => {
                    out.extend(8u32.to_le_bytes());
                    text(&mut out, v);
                }
                Meta::U32s(list) => {
                    out.extend([9u32.to_le_bytes(), 4u32.to_le_bytes()].concat());
                    out.extend((list.len() as u64).to_le_bytes());
                    list.iter().for_each(|v| out.extend(v.to_le_bytes()));
                }
                Meta::Texts(count) => {
                    out.extend([9u32.to_le_bytes(), 8u32.to_le_bytes()].concat());
                    out.extend((*count as u64).to_le_bytes());
                    (0..*count).for_each(|i| text(&mut out, &format!("t{i}")));
                }
            }
        }
        let mut data = Vec::new();
        for (name, (dims, ty, content)) in &self.tensors {
            text(&mut out, name);
            out.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(ty.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            let elements: u64 = dims.iter().product();
            let bytes = match *ty {
                F32 => elements * 4,
                F16 => elements * 2,
                Q2_0 => elements / 64 * 18,
                _ => elements / 32 * 34,
            };
            let start = data.len();
            data.extend_from_slice(content);
            data.resize(start + bytes as usize, 0);
            data.resize(data.len().next_multiple_of(32), 0);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(data);
        out
    }
}

/// Keys beyond those of every architecture: 2 key and 4 value heads with a state of 32 x 32; 8 experts
/// of 32, two of them used.
fn counts_of(arch: &str) -> Vec<(&'static str, Meta)> {
    let ssm = [
        ("ssm.conv_kernel", 4),
        ("ssm.state_size", 32),
        ("ssm.group_count", 2),
        ("ssm.time_step_rank", 4),
        ("ssm.inner_size", 128),
        ("full_attention_interval", 2),
    ];
    let experts = [
        ("expert_count", 8),
        ("expert_used_count", 2),
        ("expert_feed_forward_length", 32),
        ("expert_shared_feed_forward_length", 48),
    ];
    let numbers = |list: &[(&'static str, u32)]| {
        let number = |(key, value): &(&'static str, u32)| (*key, Meta::U32(*value));
        list.iter().map(number).collect::<Vec<_>>()
    };
    match arch {
        "qwen35" => numbers(&ssm),
        "qwen35moe" => [numbers(&ssm), numbers(&experts)].concat(),
        "lfm2" => vec![
            ("attention.head_count_kv", Meta::U32s(vec![0, 2])),
            ("shortconv.l_cache", Meta::U32(3)),
        ],
        _ => Vec::new(),
    }
}

type Tensors = &'static [(&'static str, &'static [u64])];

/// Tensors of a layer's mixer.
fn mixer(arch: &str, first_of_hybrid: bool) -> Tensors {
    match (arch, first_of_hybrid) {
        ("lfm2", true) => &[
            ("shortconv.in_proj.weight", &[64, 192]),
            ("shortconv.conv.weight", &[3, 64]),
            ("shortconv.out_proj.weight", &[64, 64]),
        ],
        (_, true) => &[
            ("attn_qkv.weight", &[64, 256]),
            ("attn_gate.weight", &[64, 128]),
            ("ssm_alpha.weight", &[64, 4]),
            ("ssm_beta.weight", &[64, 4]),
            ("ssm_conv1d.weight", &[4, 256]),
            ("ssm_a", &[4]),
            ("ssm_dt.bias", &[4]),
            ("ssm_norm.weight", &[32]),
            ("ssm_out.weight", &[128, 64]),
        ],
        ("qwen35" | "qwen35moe", false) => &[
            ("attn_q.weight", &[64, 256]),
            ("attn_k.weight", &[64, 64]),
            ("attn_v.weight", &[64, 64]),
            ("attn_output.weight", &[128, 64]),
        ],
        _ => &[
            ("attn_q.weight", &[64, 128]),
            ("attn_k.weight", &[64, 64]),
            ("attn_v.weight", &[64, 64]),
            ("attn_output.weight", &[128, 64]),
        ],
    }
}

/// Tensors of a layer's feed-forward part.
fn feed_forward(arch: &str) -> Tensors {
    match arch {
        "qwen35moe" => &[
            ("ffn_gate_inp.weight", &[64, 8]),
            ("ffn_gate_exps.weight", &[64, 32, 8]),
            ("ffn_up_exps.weight", &[64, 32, 8]),
            ("ffn_down_exps.weight", &[32, 64, 8]),
            ("ffn_gate_inp_shexp.weight", &[64, 1]),
            ("ffn_gate_shexp.weight", &[64, 48]),
            ("ffn_up_shexp.weight", &[64, 48]),
            ("ffn_down_shexp.weight", &[48, 64]),
        ],
        _ => &[
            ("ffn_gate.weight", &[64, 96]),
            ("ffn_up.weight", &[64, 96]),
            ("ffn_down.weight", &[96, 64]),
        ],
    }
}

/// Name, dimensions and type of a layer's tensors.
fn layer_tensors(arch: &str, layer: u32) -> Vec<(String, Vec<u64>, u32)> {
    let first_of_hybrid = layer == 0 && matches!(arch, "qwen35" | "qwen35moe" | "lfm2");
    let head_norms: Tensors = match arch {
        "llama" | "qwen2" => &[],
        _ if first_of_hybrid => &[],
        _ => &[("attn_q_norm.weight", &[32]), ("attn_k_norm.weight", &[32])],
    };
    let biases: Tensors = match arch {
        "qwen2" => &[
            ("attn_q.bias", &[128]),
            ("attn_k.bias", &[64]),
            ("attn_v.bias", &[64]),
        ],
        _ => &[],
    };
    let norms: Tensors = match arch {
        "qwen35" | "qwen35moe" => &[
            ("attn_norm.weight", &[64]),
            ("post_attention_norm.weight", &[64]),
        ],
        _ => &[("attn_norm.weight", &[64]), ("ffn_norm.weight", &[64])],
    };
    let mixer = mixer(arch, first_of_hybrid);
    let all = [norms, mixer, head_norms, biases, feed_forward(arch)].concat();
    let typed = |(name, dims): (&str, &[u64])| {
        let plain = dims.len() == 1 || name.contains("conv1d") || name.contains("conv.weight");
        let ty = if plain || name.contains("gate_inp") {
            F32
        } else {
            F16
        };
        (name.to_owned(), dims.to_vec(), ty)
    };
    all.into_iter().map(typed).collect()
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Compiles for a built-in machine with a context of 32.
pub fn plan(file: &ModelSource, machine: &str) -> Result<CheckedPlan, PlanError> {
    with(file, machine, |_| {})
}

/// The same, one launch per operation.
pub fn unfused(file: &ModelSource, machine: &str) -> Result<CheckedPlan, PlanError> {
    with(file, machine, |options| {
        options.no_fuse = fusions().map(str::to_owned).collect();
    })
}

/// Compiles with a context of 32 and other options as changed.
pub fn with(
    file: &ModelSource,
    machine: &str,
    change: impl FnOnce(&mut CompileOptions),
) -> Result<CheckedPlan, PlanError> {
    let mut options = CompileOptions {
        context: Some(32),
        ..CompileOptions::default()
    };
    change(&mut options);
    compile(file, &Machine::load(machine).unwrap(), &options)
}

/// A small valid plan to damage, one launch per operation.
pub fn sample() -> Plan {
    (*unfused(&Tiny::new("qwen3").open(), "gfx1201").unwrap()).clone()
}
