"""Measures MLA kernels that no public table covers, on the GPU of the machine it runs on.

    python3 measure_mla.py OUT.csv --triton-ops FOLDER --flashmla SO

Kernels: FlashMLA as SGLang ships it (SO: flashmla_ops.abi3.so of its kernel wheel; bf16 latents, and fp8 latents
with fp8 queries) and SGLang's Triton kernels (FOLDER: its triton_ops): decode and absorbed extend over the latent
cache, and un-absorbed prefill. Ragged batches are measured too. One row is one call of one layer:

    kernel,phase,heads,kv_heads,head_dim,v_head_dim,page,kv_dtype,prefix,lengths,ms

Timed like measure_attention.py: medians of CUDA graph replays over rotating KV slots (cold cache).
"""
import argparse
import csv
import math
import os
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure_attention import DEVICE, indptr, kv_splits, load_triton, pack, ragged, timed

LATENT, ROPE = 512, 64
WIDTH = LATENT + ROPE
POOL = 3 << 20  # tokens
DEADLINE = time.time() + float(os.environ.get("MEASURE_SECONDS", "240"))


def decode_cases():
    for heads in (16, 128, 8, 32, 64):
        for batch in (1, 4, 16, 32, 64, 128, 256):
            for length in (128, 512, 1024, 2048, 8192, 32768):
                if batch * length <= POOL // 2 and (heads in (16, 128) or length in (512, 2048, 8192)):
                    yield heads, [length] * batch
        if heads in (16, 128):
            for i, (batch, mean) in enumerate([(16, 1000), (16, 8000), (64, 1000), (64, 4000), (64, 12000), (200, 1000),
                                               (200, 4000)]):
                yield heads, ragged(100 + i, batch, mean)
            yield heads, [500] * 63 + [60000]


def sets_for(tokens, width):
    return max(1, min(6, math.ceil(150e6 / (tokens * WIDTH * width))))


def page_runs(counts, page, seed):
    """Page numbers for requests of `counts` pages each, in random order over the pool."""
    order = torch.randperm(POOL // page, generator=torch.Generator().manual_seed(seed))
    return order[: sum(counts)].split(counts)


def measure_flashmla(write):
    pool = torch.randn(POOL, 1, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    ops = torch.ops.sgl_kernel
    for dtype in ("bfloat16", "fp8"):
        fp8 = dtype == "fp8"
        cache = (pool.to(torch.float8_e4m3fn) if fp8 else pool).view(-1, 64, 1, WIDTH)
        one = torch.ones(1, device=DEVICE, dtype=torch.float32)
        for heads, lengths in decode_cases():
            if fp8 and heads not in (16, 128):
                continue
            lens = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
            q = torch.randn(len(lengths), 1, heads, WIDTH, device=DEVICE, dtype=torch.bfloat16)
            if fp8:
                q = q.to(torch.float8_e4m3fn)
                plan, splits = ops.get_mla_decoding_metadata_dense_fp8.default(lens, heads, 1)
            else:
                plan, splits = ops.get_mla_decoding_metadata.default(lens, heads, 1, None, False, None)
            calls = []
            for s in range(sets_for(sum(lengths), 1 if fp8 else 2)):
                counts = [-(-n // 64) for n in lengths]
                table = torch.zeros(len(lengths), max(counts), dtype=torch.int32)
                for row, run in zip(table, page_runs(counts, 64, s)):
                    row[: len(run)] = run.to(torch.int32)
                table = table.to(DEVICE)
                if fp8:
                    calls.append(lambda table=table: ops.fwd_kvcache_mla_fp8.default(
                        q, cache, LATENT, lens, table, WIDTH ** -0.5, True, plan, splits, one, one))
                else:
                    calls.append(lambda table=table: ops.fwd_kvcache_mla.default(
                        q, cache, LATENT, lens, table, WIDTH ** -0.5, True, plan, splits, False, None))
            write("flashmla", "decode", heads, 1, WIDTH, LATENT, 64, dtype, [], lengths, timed(calls))


def measure_triton_decode(write, dec):
    pool = torch.randn(POOL, 1, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    for heads, lengths in decode_cases():
        n = len(lengths)
        q = torch.randn(n, heads, WIDTH, device=DEVICE, dtype=torch.bfloat16)
        o = torch.empty(n, heads, LATENT, device=DEVICE, dtype=torch.bfloat16)
        logits = torch.empty(n, heads, 8, LATENT, device=DEVICE, dtype=torch.float32)
        lse = torch.empty(n, heads, 8, device=DEVICE, dtype=torch.float32)
        splits = torch.tensor(kv_splits(lengths, heads, 1), dtype=torch.int32, device=DEVICE)
        ptr = indptr(lengths)
        calls = []
        for s in range(sets_for(sum(lengths), 2)):
            index = torch.cat([(run[:, None] * 64 + torch.arange(64)).flatten()[:c] for c, run in
                               zip(lengths, page_runs([-(-c // 64) for c in lengths], 64, s))]).to(DEVICE)
            calls.append(lambda index=index: dec.decode_attention_fwd(
                q, pool, pool[..., :LATENT], o, ptr, index, logits, lse, splits, 8, WIDTH ** -0.5, 1.0, 1.0))
        write("triton", "decode", heads, 1, WIDTH, LATENT, 1, "bfloat16", [], lengths, timed(calls))


def measure_triton_extend(write, ext):
    pool = torch.randn(POOL // 4, 1, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    equal = [(1, 128), (1, 512), (1, 2048), (1, 4096), (4, 512), (4, 1024), (16, 256), (64, 64)]
    cases = [([0] * b, [n] * b) for b, n in equal]
    cached = cases[:6] + [([2048], [512]), ([8192], [256]), ([1000] * 8, [64] * 8), ([0, 3000, 500], [300, 64, 700])]
    fresh = cases + [([0], [8192]), ([0] * 4, [4096] * 4), ([0] * 12, ragged(202, 12, 600))]
    for absorbed in (True, False):
        for heads in (16, 128):
            for prefixes, lengths in cached if absorbed else fresh:
                total = sum(lengths)
                width, v_dim, kv = (WIDTH, LATENT, 1) if absorbed else (192, 128, heads)
                q = torch.randn(total, heads, width, device=DEVICE, dtype=torch.bfloat16)
                k = torch.randn(total, kv, width, device=DEVICE, dtype=torch.bfloat16)
                v = k[..., :v_dim] if absorbed else torch.randn(total, kv, v_dim, device=DEVICE, dtype=torch.bfloat16)
                o = torch.empty(total, heads, v_dim, device=DEVICE, dtype=torch.bfloat16)
                buffers = (pool, pool[..., :LATENT]) if absorbed else (k[:1], v[:1])
                index = torch.randperm(POOL // 4)[: max(1, sum(prefixes))].to(DEVICE)
                qo, kvp = indptr(lengths), indptr(prefixes)
                call = lambda: ext.extend_attention_fwd(q, k, v, o, *buffers, qo, kvp, index, None, True, None,
                                                        max(lengths), 1.0, 1.0, width ** -0.5)
                write("triton", "extend", heads, kv, width, v_dim, 1, "bfloat16", prefixes, lengths, timed([call]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--triton-ops")
    parser.add_argument("--flashmla")
    args = parser.parse_args()
    with open(args.out, "w", newline="") as f:
        rows = csv.writer(f)
        rows.writerow("kernel,phase,heads,kv_heads,head_dim,v_head_dim,page,kv_dtype,prefix,lengths,ms".split(","))

        def write(kernel, phase, heads, kv, width, v_dim, page, dtype, prefixes, lengths, ms):
            rows.writerow([kernel, phase, heads, kv, width, v_dim, page, dtype, pack(prefixes), pack(lengths), f"{ms:.5g}"])
            f.flush()
            if time.time() > DEADLINE:
                raise TimeoutError

        def attempt(name, run):
            begin = time.time()
            try:
                run()
            except Exception as e:
                import traceback
                traceback.print_exc()
                print(name, "stopped:", str(e)[:500])
            torch.cuda.empty_cache()
            print(f"{name}: {time.time() - begin:.0f} s", flush=True)

        if args.flashmla:
            torch.ops.load_library(args.flashmla)
            attempt("flashmla", lambda: measure_flashmla(write))
        if args.triton_ops:
            dec, ext = load_triton(args.triton_ops)
            attempt("triton extend", lambda: measure_triton_extend(write, ext))
            attempt("triton decode", lambda: measure_triton_decode(write, dec))


if __name__ == "__main__":
    main()
