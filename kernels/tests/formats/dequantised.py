"""Writes dequantised.txt: what the `gguf` package (0.19.0, with numpy and blake3) decodes from blocks made
from a seed. One line per type: name, ggml id, BLAKE3 of all elements as little-endian f32 (NaNs as
0x7fc00000), then the bits of the first eight elements of the last block.

    python3 dequantised.py > dequantised.txt
"""

import blake3
import gguf
import numpy as np

BLOCKS = 64
# f16: zeros, denormals, largest, infinities, NaN.
EDGES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
# Offsets of f16 fields in a block.
HALVES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "MXFP4": [],
}


def splitmix64(state, count):
    mask = (1 << 64) - 1
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        yield (z ^ z >> 31).to_bytes(8, "little")


np.seterr(all="ignore")
for name, fields in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    _, size = gguf.GGML_QUANT_SIZES[kind]
    data = bytearray(b"".join(splitmix64(int(kind), BLOCKS * size // 8)))
    for block, edge in enumerate(EDGES):
        for field in fields:
            at = block * size + field
            data[at : at + 2] = edge.to_bytes(2, "little")
    file = np.frombuffer(bytes(data), np.uint8).reshape(BLOCKS, size)
    values = gguf.dequantize(file, kind).astype(np.float32)
    bits = values.view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FC00000
    digest = blake3.blake3(bits.astype("<u4").tobytes()).hexdigest()
    print(name.lower(), int(kind), digest, *(f"{b:08x}" for b in bits[-1][:8]))
