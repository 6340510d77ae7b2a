"""Tensors of tiny diffusion pipelines by a rule: element i of the tensor NAME is a number in [-1, 1) that its name and i
decide (rank/numeric/diffusion/seeded_tensor.h has the same rule), times what keeps activations of the size of 1. So no
weights are kept in the repository. Needs nothing but Python.
"""

import json
import math
import struct

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def unit_start(name):
    """FNV-1a of it."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 & MASK
    return state


def unit(name, count, seed=0):
    """`count` numbers in [-1, 1), multiples of 2^-23."""
    state = (unit_start(name) + seed) & MASK
    out = []
    for _ in range(count):
        state = state + GOLDEN & MASK
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        z ^= z >> 31
        out.append((z >> 40) / (1 << 23) - 1)
    return out


def weight(name, shape):
    """Values of a weight, flat."""
    values = unit(name, math.prod(shape))
    if name.endswith((".gamma", ".running_var")) or len(shape) == 1 and "norm" in name and not name.endswith("bias"):
        return [1 + 0.25 * x for x in values]
    if len(shape) == 1 or "table" in name:
        return [0.5 * x for x in values]
    gain = 2.0 / math.sqrt(math.prod(shape[1:]))
    return [gain * x for x in values]


def safetensors(shapes):
    """The bytes of a file with the weights of these names and shapes, fp32."""
    header, at, parts = {}, 0, []
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
        values = weight(name, shape)
        parts.append(struct.pack(f"<{len(values)}f", *values))
    text = json.dumps(header).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *parts])
