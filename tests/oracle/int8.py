"""First-step logits of small models in every ggml weight format, with ggml's int8 activations.

Makes the models of tests/cases/quantised/model.rs on its own (splitmix64), decodes them with the Python
package `gguf`, rounds activations as ggml does, and multiplies in f64. Writes int8-llama.json: for each
type a token and its logits. A difference of one unit in the last place of an activation can turn a
rounding to int8 that is nearly a tie, so the token taken is the one of 1 to 60 whose nearest tie is the
furthest away.

    pip install numpy gguf && python3 tests/oracle/int8.py
"""

import json
import pathlib

import gguf
import numpy as np
from gguf.quants import dequantize

HIDDEN, FFN, VOCAB, LAYERS, HEADS, KV, HEAD = 256, 512, 256, 2, 4, 2, 64
TOKENS = range(1, 61)
MATRICES = [
    ("attn_q", HEADS * HEAD, HIDDEN), ("attn_k", KV * HEAD, HIDDEN), ("attn_v", KV * HEAD, HIDDEN),
    ("attn_output", HIDDEN, HEADS * HEAD), ("ffn_gate", FFN, HIDDEN), ("ffn_up", FFN, HIDDEN),
    ("ffn_down", HIDDEN, FFN),
]
# Type: ggml type, form of the activation, halves as (byte, power of two, factor).
TYPES = {
    "q8_0": ("Q8_0", "q8_0", [(0, -11, 1)]), "q4_0": ("Q4_0", "q8_0", [(0, -7, 1)]),
    "q4_1": ("Q4_1", "q8_1", [(0, -7, 1), (2, -7, -8)]), "q5_0": ("Q5_0", "q8_0", [(0, -8, 1)]),
    "q5_1": ("Q5_1", "q8_1", [(0, -8, 1), (2, -8, -16)]),
    "q4_k": ("Q4_K", "q8_k", [(0, -12, 1), (2, -12, 8)]),
    "q5_k": ("Q5_K", "q8_k", [(0, -13, 1), (2, -13, 16)]), "q6_k": ("Q6_K", "q8_k", [(208, -15, 1)]),
    "iq4_nl": ("IQ4_NL", "q8_0", [(0, -11, 1)]), "mxfp4": ("MXFP4", "q8_0", []),
}
MASK = (1 << 64) - 1


def splitmix(seed):
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def matrix(name, rows, cols, seed):
    qtype = getattr(gguf.GGMLQuantizationType, TYPES[name][0])
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    random, out = splitmix(seed), bytearray()
    for _ in range(rows * cols // block):
        drawn = b"".join(next(random).to_bytes(8, "little") for _ in range((size + 7) // 8))[:size]
        data = bytearray(drawn)
        part = (64 + (data[0] & 63)) / 64
        if name == "mxfp4":
            data[0] = 121 + (data[0] & 1)
        for at, power, factor in TYPES[name][2]:
            data[at:at + 2] = np.float16(part * 2.0**power * factor).tobytes()
        out += data
    raw = np.frombuffer(bytes(out), np.uint8).reshape(rows, -1)
    return dequantize(raw, qtype).astype(np.float64).reshape(rows, cols)


MARGINS = []


def to_integers(scaled):
    """Rounds half to even, and notes how near the nearest tie was."""
    scaled = scaled.astype(np.float64)
    MARGINS.append(np.min(np.abs(scaled - np.floor(scaled) - 0.5)))
    return np.rint(scaled)


def rounded(x, form):
    """The activation that integer products see, and, for Q8_1, what its minimums are multiplied with."""
    x = x.astype(np.float32)
    if form == "q8_k":
        out = np.zeros_like(x, np.float64)
        for i in range(0, len(x), 256):
            part = x[i:i + 256]
            top = part[np.argmax(np.abs(part))]
            inverse = np.float32(-127) / top
            q = np.minimum(127, to_integers(inverse * part))
            out[i:i + 256] = q.astype(np.float64) * np.float64(np.float32(1) / inverse)
        return out, None
    out, sums = np.zeros_like(x, np.float64), np.zeros(len(x) // 32)
    for b in range(len(x) // 32):
        part = x[32 * b:32 * b + 32]
        top = np.max(np.abs(part))
        d = top / np.float32(127)
        q = to_integers(part * (np.float32(127) / top))
        out[32 * b:32 * b + 32] = q.astype(np.float64) * np.float64(np.float16(d))
        sums[b] = np.float64(np.float16(d * np.float32(q.sum())))
    return out, sums


def product(weight, name, minimum, x):
    form = TYPES[name][1]
    codes, sums = rounded(x, form)
    if form != "q8_1":
        return (weight @ codes).astype(np.float32)
    # x = d q + m: the minimum of a block meets the stored half of the scaled sum.
    scaled = weight - np.repeat(minimum, 32, axis=1)
    return (scaled @ codes + minimum @ sums).astype(np.float32)


def minima(name, rows, cols, seed):
    if TYPES[name][1] != "q8_1":
        return None
    size = gguf.GGML_QUANT_SIZES[getattr(gguf.GGMLQuantizationType, TYPES[name][0])][1]
    random, out = splitmix(seed), []
    for _ in range(rows * cols // 32):
        first = next(random) & 0xFF
        for _ in range((size + 7) // 8 - 1):
            next(random)
        _, power, factor = TYPES[name][2][1]
        out.append(float(np.float16((64 + (first & 63)) / 64 * 2.0**power * factor)))
    return np.array(out).reshape(rows, -1)


def norm(x, weight):
    x = x.astype(np.float64)
    return (x / np.sqrt(np.mean(x * x) + 1e-5) * weight).astype(np.float32)


def norm_weight(seed):
    random = splitmix(seed)
    return np.array([1 + ((next(random) & 255) - 128) / 512 for _ in range(HIDDEN)])


def model(name):
    seed = 1000

    def take(rows, cols):
        nonlocal seed
        seed += 1
        return matrix(name, rows, cols, seed), minima(name, rows, cols, seed)

    table, _ = take(VOCAB, HIDDEN)
    layers = []
    for _ in range(LAYERS):
        layer = {n: take(r, c) for n, r, c in MATRICES}
        layer["attn_norm"], layer["ffn_norm"] = norm_weight(seed + 1), norm_weight(seed + 2)
        layers.append(layer)
        seed += 2
    seed += 1
    return table, layers, norm_weight(seed), take(VOCAB, HIDDEN)


def logits(name, weights, token):
    table, layers, last_norm, head = weights

    def mul(pair, x):
        return product(pair[0], name, pair[1], x)

    x = table[token].astype(np.float32)
    for layer in layers:
        h = norm(x, layer["attn_norm"])
        # At position 0 attention is the value of each head's group.
        v = mul(layer["attn_v"], h).reshape(KV, HEAD)
        attended = np.repeat(v, HEADS // KV, axis=0).reshape(-1)
        x = x + mul(layer["attn_output"], attended)
        h = norm(x, layer["ffn_norm"])
        gate = mul(layer["ffn_gate"], h).astype(np.float64)
        act = (gate / (1 + np.exp(-gate))).astype(np.float32) * mul(layer["ffn_up"], h)
        x = x + mul(layer["ffn_down"], act)
    return mul(head, norm(x, last_norm))


def best(name):
    """Token and logits that no rounding decides."""
    weights, found = model(name), None
    for token in TOKENS:
        MARGINS.clear()
        values = logits(name, weights, token)
        margin = min(MARGINS)
        if found is None or margin > found[0]:
            found = (margin, token, values)
    print(name, *found[:2], np.std(found[2]))
    return found[1:]


if __name__ == "__main__":
    lines = []
    for name in TYPES:
        token, values = best(name)
        numbers = ", ".join(f"{float(v):.9g}" for v in values)
        lines.append(f' "{name}": {{"token": {token}, "logits": [{numbers}]}}')
    path = pathlib.Path(__file__).parent / "int8-llama.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
