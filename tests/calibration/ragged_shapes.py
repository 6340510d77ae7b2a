"""Ragged attention batches drawn at random over realistic serving, the same list on every machine.

A case is a dictionary: heads, kv_heads, head_dim, context (of the model: a captured graph's page table is that
wide), window (0: none), kv_dtype ("bfloat16" or "fp8"), decode, prefixes (extend only) and lengths (new tokens of
each sequence; of a decode the KV tokens). `part(case)` says which half may be fitted.
"""
import csv
import json
import math
import random
import zlib

# Query and KV heads of one rank at tp 1, 2, 4 ..., head dimension, context length, weight in the draw.
MODELS = [
    ("llama-3.1-8b", [(32, 8), (16, 4), (8, 2), (4, 1)], 128, 131072, 4),
    ("llama-3.1-70b", [(64, 8), (32, 4), (16, 2), (8, 1)], 128, 131072, 4),
    ("qwen3-8b", [(32, 8), (16, 4), (8, 2), (4, 1)], 128, 40960, 2),
    ("qwen3-30b-a3b", [(32, 4), (16, 2), (8, 1), (4, 1)], 128, 40960, 3),
    ("gpt-oss", [(64, 8), (32, 4), (16, 2), (8, 1)], 64, 131072, 2),
    ("qwen3-next", [(16, 2), (8, 1), (4, 1)], 256, 131072, 1),
    ("gemma-2-9b", [(16, 8), (8, 4)], 256, 8192, 1),
    ("llama-2-13b", [(40, 40), (20, 20), (10, 10)], 128, 4096, 1),
]
WINDOWS = {64: (128,), 128: (1024, 4096), 256: (1024, 4096)}
MOST_ELEMENTS = 900_000_000  # of keys: tokens x KV heads x head dimension (a pool of one layer)


def traces(folder):
    """(input, output) tokens of the Mooncake and the Azure conversation trace."""
    mooncake = []
    for line in open(f"{folder}/mooncake.jsonl"):
        request = json.loads(line)
        mooncake.append((request["input_length"], request["output_length"]))
    with open(f"{folder}/azure_2023_conv.csv") as file:
        azure = [(int(r["ContextTokens"]), int(r["GeneratedTokens"])) for r in csv.DictReader(file)]
    return mooncake, azure


def log_uniform(r, low, high):
    return math.exp(r.uniform(math.log(low), math.log(high)))


def log_normal(r, mean, sigma):
    return math.exp(r.gauss(math.log(mean) - sigma * sigma / 2, sigma))


def draw_layer(r, fp8_share=0.2, window_share=0.08):
    _, ranks, head_dim, context, _ = r.choices(MODELS, [m[-1] for m in MODELS])[0]
    heads, kv_heads = r.choice(ranks)
    window = r.choice(WINDOWS[head_dim]) if r.random() < window_share else 0
    kv_dtype = "fp8" if not window and r.random() < fp8_share else "bfloat16"
    return dict(heads=heads, kv_heads=kv_heads, head_dim=head_dim, context=context, window=window, kv_dtype=kv_dtype)


def kv_lengths(r, count, mooncake, azure):
    """KV tokens of `count` decoding requests, by one of six patterns."""
    pattern = r.choice(("log_normal", "log_normal", "mooncake", "azure", "bimodal", "closed_loop"))
    if pattern == "log_normal":
        mean, sigma = log_uniform(r, 200, 16000), r.choice((0.3, 0.7, 1.0, 1.3))
        return [log_normal(r, mean, sigma) for _ in range(count)]
    if pattern in ("mooncake", "azure"):
        rows = mooncake if pattern == "mooncake" else azure
        return [i + r.random() * o for i, o in (r.choice(rows) for _ in range(count))]
    if pattern == "bimodal":
        short, long, share = log_uniform(r, 100, 2000), log_uniform(r, 8000, 100000), r.choice((0.02, 0.05, 0.15))
        return [long * r.uniform(0.8, 1.2) if i == 0 or r.random() < share else short * r.uniform(0.5, 1.5)
                for i in range(count)]
    given, answer = log_uniform(r, 128, 16000), log_uniform(r, 32, 1024)
    return [given + r.random() * answer for _ in range(count)]


def draw_decode(r, mooncake, azure):
    case = dict(draw_layer(r), decode=True, prefixes=[])
    count = min(256, int(log_uniform(r, 1, 290)))
    lengths = [max(8, min(case["context"] - 1, int(n))) for n in kv_lengths(r, count, mooncake, azure)]
    r.shuffle(lengths)
    most = MOST_ELEMENTS // (case["kv_heads"] * case["head_dim"])
    while sum(-(-n // 64) * 64 for n in lengths) > most:
        lengths.pop()
    case["lengths"] = lengths
    return case


def draw_extend(r, mooncake, azure):
    case = dict(draw_layer(r), decode=False)
    chunk = r.choice((512, 1024, 2048, 2048, 4096, 8192, 8192, 8192, 16384))
    pattern = r.choice(("fresh", "fresh", "cached", "cached", "chunk", "mooncake", "azure", "mixed", "verify"))
    pairs = []  # (prefix, new)
    if pattern == "fresh":
        mean, sigma = log_uniform(r, 50, 6000), r.choice((0.0, 0.5, 1.0))
        pairs = [(0, log_normal(r, mean, sigma)) for _ in range(256)]
    elif pattern == "cached":
        before, mean = log_uniform(r, 300, 30000), log_uniform(r, 20, 3000)
        pairs = [(log_normal(r, before, 0.8), log_normal(r, mean, 0.8)) for _ in range(128)]
    elif pattern == "chunk":
        pairs = [(chunk * r.randrange(1, 9), chunk)] if r.random() < 0.6 else \
            [(chunk * r.randrange(1, 6), chunk * r.uniform(0.1, 0.9))] + [(0, log_normal(r, 500, 0.8)) for _ in range(64)]
    elif pattern in ("mooncake", "azure"):
        for _ in range(64):
            tokens, _ = r.choice(mooncake if pattern == "mooncake" else azure)
            prefix = int(tokens * r.random()) // 512 * 512 if pattern == "mooncake" or r.random() < 0.3 else 0
            pairs.append((prefix, tokens - prefix))
    elif pattern == "mixed":  # --enable-mixed-chunk: a chunk and the running requests
        running = [(max(8, n), 1) for n in kv_lengths(r, int(log_uniform(r, 1, 128)), mooncake, azure)]
        pairs = [(r.choice((0, chunk)), chunk - len(running))] + running
    else:  # speculative verification: some tokens of every running request
        tokens = r.choice((2, 4, 8, 16))
        pairs = [(max(8, n), tokens) for n in kv_lengths(r, int(log_uniform(r, 1, 64)), mooncake, azure)]
    most = MOST_ELEMENTS // (case["kv_heads"] * case["head_dim"])
    case["prefixes"], case["lengths"], left = [], [], chunk
    for prefix, new in pairs:
        new = max(1, min(int(new), left, case["context"] - 1))
        prefix = max(0, min(int(prefix), case["context"] - 1 - new))
        most -= -(-(prefix + new) // 64) * 64
        if most < 0 or left <= 0:
            break
        case["prefixes"].append(prefix)
        case["lengths"].append(new)
        left -= new
    return case


def cases(folder, decodes, extends, seed=20261122):
    """`decodes` decode and `extends` extend cases in random order, from the traces in `folder`."""
    r = random.Random(seed)
    mooncake, azure = traces(folder)
    drawn = [draw_decode(r, mooncake, azure) for _ in range(decodes)]
    drawn += [draw_extend(r, mooncake, azure) for _ in range(extends)]
    drawn = [c for c in drawn if c["lengths"]]
    r.shuffle(drawn)
    return drawn


def pack(values):
    out = []
    for v in values:
        if out and out[-1][0] == v:
            out[-1][1] += 1
        else:
            out.append([v, 1])
    return ";".join(f"{v}x{n}" if n > 1 else f"{v}" for v, n in out)


def part(case):
    """fit: may be fitted. held: errors are shown on these only. The same batch is in one half for all kernels."""
    return ("fit", "held")[zlib.crc32(f"{pack(case['prefixes'])}|{pack(case['lengths'])}".encode()) % 2]
