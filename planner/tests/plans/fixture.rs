//! Models to plan: the ones in the repository, and tiny ones written on the spot.

use refrain_planner::ModelSource;
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
pub const Q4_0: u32 = 2;
pub const Q8_0: u32 = 8;

/// What a tiny model file holds; tests change it before it is written.
#[derive(Debug, Clone)]
pub struct Tiny {
    pub meta: BTreeMap<String, Meta>,
    /// Name to dimensions (contiguous first), type, content (zeros where empty).
    pub tensors: BTreeMap<String, (Vec<u64>, u32, Vec<u8>)>,
}

impl Tiny {
    /// Two layers, hidden 64, 4 query and 2 key heads of 32, ffn 96, vocab 80, untied head.
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
            let mut add = |name: &str, dims: &[u64]| {
                let ty = if dims.len() == 1 { F32 } else { F16 };
                tiny.tensor(&format!("blk.{layer}.{name}"), dims, ty);
            };
            add("attn_norm", &[64]);
            add("ffn_norm", &[64]);
            add("attn_q", &[64, 128]);
            add("attn_k", &[64, 64]);
            add("attn_v", &[64, 64]);
            add("attn_output", &[128, 64]);
            add("ffn_gate", &[64, 96]);
            add("ffn_up", &[64, 96]);
            add("ffn_down", &[96, 64]);
            if arch == "qwen3" {
                add("attn_q_norm", &[32]);
                add("attn_k_norm", &[32]);
            }
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
                Q4_0 => elements / 32 * 18,
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

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Compiles for a built-in machine with a context of 32.
pub fn plan(file: &ModelSource, machine: &str) -> Result<CheckedPlan, PlanError> {
    let options = CompileOptions {
        context: Some(32),
        ..CompileOptions::default()
    };
    compile(file, &Machine::load(machine).unwrap(), &options)
}

/// A small valid plan to damage.
pub fn sample() -> Plan {
    (*plan(&Tiny::new("qwen3").open(), "gfx1201").unwrap()).clone()
}
