//! Small models in every weight format, made of splitmix64: random codes, scales that keep the numbers
//! near those of a trained model. `tests/oracle/int8.py` makes the same bytes on its own.

use half::f16;
use refrain_kernels::Dtype;

pub const HIDDEN: u64 = 256;
pub const FFN: u64 = 512;
pub const VOCAB: u64 = 256;
pub const LAYERS: u64 = 2;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const HEAD: u64 = 64;

/// Name, rows, columns, type, file bytes.
pub struct Tensor {
    pub name: String,
    pub rows: u64,
    pub cols: u64,
    pub dtype: Dtype,
    pub bytes: Vec<u8>,
}

/// Matrices of a layer: GGUF name, HF name, rows, columns.
const MATRICES: [(&str, &str, u64, u64); 7] = [
    ("attn_q", "self_attn.q_proj", HEADS * HEAD, HIDDEN),
    ("attn_k", "self_attn.k_proj", KV_HEADS * HEAD, HIDDEN),
    ("attn_v", "self_attn.v_proj", KV_HEADS * HEAD, HIDDEN),
    ("attn_output", "self_attn.o_proj", HIDDEN, HEADS * HEAD),
    ("ffn_gate", "mlp.gate_proj", FFN, HIDDEN),
    ("ffn_up", "mlp.up_proj", FFN, HIDDEN),
    ("ffn_down", "mlp.down_proj", HIDDEN, FFN),
];

struct SplitMix(u64);

impl SplitMix {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Where a block has a scale and how large: byte, power of two, factor; and whether it is an f32.
type Scale = (usize, i32, f32);

const fn scales(dtype: Dtype) -> (&'static [Scale], bool) {
    match dtype {
        Dtype::Q8_0 | Dtype::IQ4_NL => (&[(0, -11, 1.0)], false),
        Dtype::Q4_0 => (&[(0, -7, 1.0)], false),
        Dtype::Q4_1 => (&[(0, -7, 1.0), (2, -7, -8.0)], false),
        Dtype::Q5_0 => (&[(0, -8, 1.0)], false),
        Dtype::Q5_1 => (&[(0, -8, 1.0), (2, -8, -16.0)], false),
        Dtype::Q4_K => (&[(0, -12, 1.0), (2, -12, 8.0)], false),
        Dtype::Q5_K => (&[(0, -13, 1.0), (2, -13, 16.0)], false),
        Dtype::Q6_K => (&[(208, -15, 1.0)], false),
        Dtype::HFQ4_G256 | Dtype::MQ4_G256 => (&[(0, -7, 1.0), (4, -7, -8.0)], true),
        Dtype::MQ4_G256_V2 => (
            &[(0, -7, 1.0), (2, -7, -8.0), (4, -8, 1.0), (6, -8, -8.0)],
            false,
        ),
        Dtype::MQ4C_G256 => (&[(0, -7, 1.0), (2, -7, -8.0)], false),
        Dtype::HFQ6_G256 | Dtype::MQ6_G256 => (&[(0, -9, 1.0), (4, -9, -32.0)], true),
        _ => (&[], false),
    }
}

/// Blocks of a tensor: random bytes, then scales of 64 to 127 sixty-fourths of their size by the first
/// byte drawn.
fn blocks(dtype: Dtype, count: u64, random: &mut SplitMix) -> Vec<u8> {
    let bytes = dtype.format().block_bytes;
    let (scales, singles) = scales(dtype);
    let mut out = Vec::new();
    for _ in 0..count {
        let drawn = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes());
        let mut block: Vec<u8> = drawn.collect();
        block.truncate(bytes);
        let part = f32::from(64 + (block[0] & 63)) / 64.0;
        if dtype == Dtype::MXFP4 {
            block[0] = 121 + (block[0] & 1);
        }
        if dtype == Dtype::MQ4C_G256 {
            block[4..8].fill(0);
        }
        for (at, power, factor) in scales {
            let scale = part * 2f32.powi(*power) * factor;
            if singles {
                block[*at..at + 4].copy_from_slice(&scale.to_le_bytes());
            } else {
                block[*at..at + 2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
            }
        }
        out.extend(block);
    }
    out
}

/// A norm's weight near 1, in steps of 1/512: with all ones the few levels of a 4-bit embedding would
/// be exact ties of the first rounding to int8.
fn norm(count: u64, random: &mut SplitMix) -> Vec<u8> {
    let weight = |_| 1.0 + (f32::from((random.next() & 255) as u8) - 128.0) / 512.0;
    (0..count).map(weight).flat_map(f32::to_le_bytes).collect()
}

/// The tensors of a model. `of` says the type of each matrix by its GGUF name without layer.
pub fn tensors(of: impl Fn(&str) -> Dtype, hf: bool) -> Vec<Tensor> {
    let mut list: Vec<(String, u64, u64, Option<Dtype>)> = Vec::new();
    let named = |gguf: &str, hf_name: &str| {
        if hf {
            hf_name.to_owned()
        } else {
            gguf.to_owned()
        }
    };
    let table = named("token_embd.weight", "model.embed_tokens.weight");
    list.push((table, VOCAB, HIDDEN, Some(of("token_embd"))));
    for layer in 0..LAYERS {
        for (gguf, hf_name, rows, cols) in MATRICES {
            let name = named(
                &format!("blk.{layer}.{gguf}.weight"),
                &format!("model.layers.{layer}.{hf_name}.weight"),
            );
            list.push((name, rows, cols, Some(of(gguf))));
        }
        let norms = [
            ("attn_norm", "input_layernorm", HIDDEN),
            ("ffn_norm", "post_attention_layernorm", HIDDEN),
        ];
        let heads = [
            ("attn_q_norm", "self_attn.q_norm", HEAD),
            ("attn_k_norm", "self_attn.k_norm", HEAD),
        ];
        for (gguf, hf_name, len) in norms.into_iter().chain(heads.into_iter().filter(|_| hf)) {
            let name = named(
                &format!("blk.{layer}.{gguf}.weight"),
                &format!("model.layers.{layer}.{hf_name}.weight"),
            );
            list.push((name, 1, len, None));
        }
    }
    let last_norm = named("output_norm.weight", "model.norm.weight");
    list.push((last_norm, 1, HIDDEN, None));
    let head = named("output.weight", "lm_head.weight");
    list.push((head, VOCAB, HIDDEN, Some(of("output"))));
    let mut seed = 1000;
    let tensors = list.into_iter().map(|(name, rows, cols, dtype)| {
        seed += 1;
        let bytes = match dtype {
            Some(dtype) => blocks(dtype, rows * cols / dtype.block(), &mut SplitMix(seed)),
            None => norm(cols, &mut SplitMix(seed)),
        };
        let dtype = dtype.unwrap_or(Dtype::F32);
        Tensor {
            name,
            rows,
            cols,
            dtype,
            bytes,
        }
    });
    tensors.collect()
}

/// The same tensors decoded to f32 by the catalog's reference.
pub fn decoded(tensors: &[Tensor]) -> Vec<Tensor> {
    let decode = |tensor: &Tensor| {
        let format = tensor.dtype.format();
        let mut values = vec![0.0f32; format.block];
        let mut bytes = Vec::new();
        for block in tensor.bytes.chunks(format.block_bytes) {
            format.decode(block, &mut values).unwrap();
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        Tensor {
            name: tensor.name.clone(),
            dtype: Dtype::F32,
            bytes,
            ..*tensor
        }
    };
    tensors.iter().map(decode).collect()
}

/// A GGUF file of architecture llama.
pub fn gguf(tensors: &[Tensor]) -> Vec<u8> {
    let mut kv: Vec<(&str, Vec<u8>)> = Vec::new();
    let text = |s: &str| {
        [
            &8u32.to_le_bytes()[..],
            &(s.len() as u64).to_le_bytes(),
            s.as_bytes(),
        ]
        .concat()
    };
    let count = |n: u64| [4u32.to_le_bytes(), (n as u32).to_le_bytes()].concat();
    let float = |x: f32| [6u32.to_le_bytes(), x.to_le_bytes()].concat();
    kv.push(("general.architecture", text("llama")));
    for (key, value) in [
        ("llama.block_count", LAYERS),
        ("llama.context_length", 64),
        ("llama.embedding_length", HIDDEN),
        ("llama.feed_forward_length", FFN),
        ("llama.attention.head_count", HEADS),
        ("llama.attention.head_count_kv", KV_HEADS),
        ("llama.rope.dimension_count", HEAD),
        ("llama.vocab_size", VOCAB),
    ] {
        kv.push((key, count(value)));
    }
    kv.push(("llama.attention.layer_norm_rms_epsilon", float(1e-5)));
    kv.push(("llama.rope.freq_base", float(10000.0)));
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((kv.len() as u64).to_le_bytes());
    for (key, value) in kv {
        out.extend((key.len() as u64).to_le_bytes());
        out.extend(key.as_bytes());
        out.extend(value);
    }
    let mut offset = 0u64;
    for tensor in tensors {
        out.extend((tensor.name.len() as u64).to_le_bytes());
        out.extend(tensor.name.as_bytes());
        let dims: &[u64] = if tensor.rows == 1 {
            &[tensor.cols]
        } else {
            &[tensor.cols, tensor.rows]
        };
        out.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
        out.extend(tensor.dtype.format().ggml.unwrap().to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset = (offset + tensor.bytes.len() as u64).next_multiple_of(32);
    }
    for tensor in tensors {
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&tensor.bytes);
    }
    out
}

/// An HFQ file of architecture qwen3.
pub fn hfq(tensors: &[Tensor]) -> Vec<u8> {
    let config = serde_json::json!({"config": {
        "model_type": "qwen3", "hidden_size": HIDDEN, "intermediate_size": FFN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD, "vocab_size": VOCAB,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 64,
        "hidden_act": "silu", "tie_word_embeddings": false, "attention_bias": false,
    }});
    let mut out = b"HFQM".to_vec();
    let count = tensors.len() as u32;
    for word in [1, 1, count] {
        out.extend(word.to_le_bytes());
    }
    out.extend(32u64.to_le_bytes());
    out.extend([0; 8]);
    out.extend(config.to_string().into_bytes());
    out.extend(count.to_le_bytes());
    for tensor in tensors {
        out.extend((tensor.name.len() as u16).to_le_bytes());
        out.extend(tensor.name.as_bytes());
        let dims: &[u64] = if tensor.rows == 1 {
            &[tensor.cols]
        } else {
            &[tensor.rows, tensor.cols]
        };
        out.extend([tensor.dtype.format().hfq.unwrap(), dims.len() as u8]);
        dims.iter()
            .for_each(|dim| out.extend((*dim as u32).to_le_bytes()));
        out.extend((tensor.dtype.block() as u32).to_le_bytes());
        out.extend((tensor.bytes.len() as u64).to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(4096), 0);
    let data = out.len() as u64;
    out[24..32].copy_from_slice(&data.to_le_bytes());
    tensors.iter().for_each(|tensor| out.extend(&tensor.bytes));
    out
}
