#!/usr/bin/env python3
"""Makes a llama of 1.1 billion random weights, for measuring speed and nothing else.

    python3 tools/measure/synthetic_llama.py q8_0 OUT.gguf

E 2048, FF 5632, 22 layers, 32 query and 4 key heads of 64, 32000 tokens: the shape in which decode
speeds are compared (recorder/examples/cpu_decode.rs). Codes are uniform and scales constant, so that
weights have standard deviation 0.02; the same bytes on every machine (PCG64, seed 1). Needs numpy and
gguf from PyPI. A file without a tokenizer: prompts are token ids.
"""

import sys

import gguf
import numpy as np

EMBED, FEED, LAYERS, HEADS, KV_HEADS, VOCAB = 2048, 5632, 22, 32, 4, 32000
KV = KV_HEADS * EMBED // HEADS
STD = 0.02


def q8_0(rng, rows, cols):
    """f16 d, i8 q[32]."""
    blocks = np.empty((rows, cols // 32, 34), np.uint8)
    blocks[..., :2] = np.frombuffer(np.float16(STD / 73.3).tobytes(), np.uint8)
    blocks[..., 2:] = rng.integers(-127, 128, blocks.shape[:2] + (32,), np.int8).view(np.uint8)
    return blocks.reshape(rows, -1)


def q4_0(rng, rows, cols):
    """f16 d, 16 bytes of nibbles less 8."""
    blocks = np.empty((rows, cols // 32, 18), np.uint8)
    blocks[..., :2] = np.frombuffer(np.float16(STD / 4.61).tobytes(), np.uint8)
    blocks[..., 2:] = rng.integers(0, 256, blocks.shape[:2] + (16,), np.uint8)
    return blocks.reshape(rows, -1)


TYPES = {
    "q8_0": (q8_0, gguf.GGMLQuantizationType.Q8_0),
    "q4_0": (q4_0, gguf.GGMLQuantizationType.Q4_0),
}


def main(kind, path):
    make, dtype = TYPES[kind]
    rng = np.random.Generator(np.random.PCG64(1))
    out = gguf.GGUFWriter(path, "llama")
    out.add_name(f"synthetic llama 1.1B {kind}")
    out.add_context_length(2048)
    out.add_embedding_length(EMBED)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(FEED)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_rope_dimension_count(EMBED // HEADS)
    out.add_rope_freq_base(10000.0)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(VOCAB)
    out.add_tokenizer_model("none")

    def matrix(name, rows, cols):
        out.add_tensor(name, make(rng, rows, cols), raw_dtype=dtype)

    def ones(name):
        out.add_tensor(name, np.ones(EMBED, np.float32))

    matrix("token_embd.weight", VOCAB, EMBED)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        ones(at + "attn_norm.weight")
        matrix(at + "attn_q.weight", EMBED, EMBED)
        matrix(at + "attn_k.weight", KV, EMBED)
        matrix(at + "attn_v.weight", KV, EMBED)
        matrix(at + "attn_output.weight", EMBED, EMBED)
        ones(at + "ffn_norm.weight")
        matrix(at + "ffn_gate.weight", FEED, EMBED)
        matrix(at + "ffn_up.weight", FEED, EMBED)
        matrix(at + "ffn_down.weight", EMBED, FEED)
    ones("output_norm.weight")
    matrix("output.weight", VOCAB, EMBED)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
