"""Measures MLA attention kernels on ragged batches, as SGLang 0.5.12's backends call them.

    python3 measure_ragged_mla.py OUT.csv TRACES [--kernels fa3,flashmla,triton,flashinfer] [--decodes N] [--extends N]
                                  [--seed S] [--held-every N]

Like measure_ragged.py; one row is one call of one layer:

    kernel,phase,heads,kv_heads,head_dim,v_head_dim,page,kv_dtype,prefix,lengths,ms,part

head_dim 576: absorbed (a decode; an extend of fa3 and triton, as piecewise prefill graphs run it); head_dim 192:
expanded (fa3's flash_attn_varlen_func over cached and new tokens). triton decodes with as many splits as SGLang
0.5.12 allows MLA (256 on 132 multiprocessors; measure_mla.py's rows are of 8). flashmla: also fp8 queries and latents.
"""
import argparse
import csv
import math
import os
import random
import time

import torch

from measure_ragged import DEVICE, indptr, planned, timed, totals, workspace
from ragged_shapes import draw_extend, kv_lengths, log_uniform, pack, part, traces

LATENT, ROPE = 512, 64
WIDTH = LATENT + ROPE
CONTEXT = 163840
MOST = 1_500_000  # tokens of a layer's pool
DEADLINE = time.time() + float(os.environ.get("MEASURE_SECONDS", "200"))
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn


def draw(folder, decodes, extends, seed=20261123):
    r = random.Random(seed)
    mooncake, azure = traces(folder)
    drawn = []
    for _ in range(decodes):
        count = min(256, int(log_uniform(r, 1, 290)))
        lengths = [max(8, min(CONTEXT - 1, int(n))) for n in kv_lengths(r, count, mooncake, azure)]
        while sum(-(-n // 64) * 64 for n in lengths) > MOST:
            lengths.pop()
        drawn.append(dict(decode=True, prefixes=[], lengths=lengths))
    for _ in range(extends):
        case = draw_extend(r, mooncake, azure)
        drawn.append(dict(decode=False, prefixes=case["prefixes"], lengths=case["lengths"]))
    drawn = [dict(c, heads=r.choice((16, 16, 8, 32, 64, 128))) for c in drawn if c["lengths"]]
    r.shuffle(drawn)
    return drawn


class Pool:
    def __init__(self):
        self.bf16 = torch.randn(MOST * 5 // 4 // 64 * 64, 1, WIDTH, device=DEVICE, dtype=BF16)
        self.fp8 = self.bf16.to(FP8)
        self.order = torch.randperm(MOST // 64, generator=torch.Generator().manual_seed(1)).to(DEVICE)

    def pages(self, lengths, which):
        """Pages of 64 slots of each request, one after the other."""
        need = sum(-(-n // 64) for n in lengths)
        first = which * need % max(1, len(self.order) - need + 1)
        return self.order[first:first + need]

    def slots(self, lengths, which):
        tokens = (self.pages(lengths, which)[:, None] * 64 + torch.arange(64, device=DEVICE)[None]).flatten()
        keep = torch.cat([torch.arange(-(-n // 64) * 64) < n for n in lengths])
        return tokens[keep.to(DEVICE)]

    def table(self, lengths, which, page, width):
        flat = self.pages(lengths, which) if page == 64 else self.slots(lengths, which)
        counts = torch.tensor([-(-n // page) for n in lengths])
        row = torch.repeat_interleave(torch.arange(len(lengths)), counts)
        column = torch.arange(int(counts.sum())) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        table = torch.zeros(len(lengths), -(-width // page), dtype=torch.int32, device=DEVICE)
        table[row.to(DEVICE), column.to(DEVICE)] = flat.to(torch.int32)
        return table


def sets_for(every, width=2):
    return max(1, min(96, math.ceil(120e6 / (sum(every) * WIDTH * width))))


def fa3(case, pool):
    from sgl_kernel.flash_attn import flash_attn_with_kvcache
    every, heads = totals(case), case["heads"]
    rows = len(every) if case["decode"] else sum(case["lengths"])
    q_rope = torch.randn(rows, heads, ROPE, device=DEVICE, dtype=BF16)
    q_nope = torch.randn(rows, heads, LATENT, device=DEVICE, dtype=BF16)
    k = pool.bf16[:, :, LATENT:].view(-1, 1, 1, ROPE)
    c = pool.bf16[:, :, :LATENT].view(-1, 1, 1, LATENT)
    new = [1] * len(every) if case["decode"] else case["lengths"]
    same = dict(q=q_rope, k_cache=k, v_cache=c, qv=q_nope, cu_seqlens_q=indptr(new), cu_seqlens_k_new=indptr(every),
                cache_seqlens=torch.tensor(every, dtype=torch.int32, device=DEVICE), max_seqlen_q=max(new),
                softmax_scale=192 ** -0.5, causal=True, softcap=0.0, num_splits=0)
    width = CONTEXT if case["decode"] else max(every)
    tables = [pool.table(every, s, 1, width) for s in range(sets_for(every))]
    return [lambda t=t: flash_attn_with_kvcache(page_table=t, **same) for t in tables]


def fa3_expanded(case, pool):
    from sgl_kernel.flash_attn import flash_attn_varlen_func
    every, heads = totals(case), case["heads"]
    q = torch.randn(sum(case["lengths"]), heads, 192, device=DEVICE, dtype=BF16)
    k = torch.randn(sum(every), heads, 192, device=DEVICE, dtype=BF16)
    v = torch.randn(sum(every), heads, 128, device=DEVICE, dtype=BF16)
    cu_q, cu_k = indptr(case["lengths"]), indptr(every)
    return [lambda: flash_attn_varlen_func(q, k, v, cu_q, cu_k, max(case["lengths"]), max(every),
                                           softmax_scale=192 ** -0.5, causal=True)]


def flashmla(case, pool, fp8=False):
    from sgl_kernel.flash_mla import flash_mla_with_kvcache, get_mla_metadata
    every, heads = totals(case), case["heads"]
    q = torch.randn(len(every), 1, heads, WIDTH, device=DEVICE, dtype=BF16).to(FP8 if fp8 else BF16)
    lens = torch.tensor(every, dtype=torch.int32, device=DEVICE)
    plan, splits = get_mla_metadata(lens, heads, 1, is_fp8_kvcache=fp8)
    one = torch.ones(1, device=DEVICE, dtype=torch.float32) if fp8 else None
    cache = (pool.fp8 if fp8 else pool.bf16).view(-1, 64, 1, WIDTH)
    tables = [pool.table(every, s, 64, CONTEXT) for s in range(sets_for(every, 1 if fp8 else 2))]
    return [lambda t=t: flash_mla_with_kvcache(q, cache, t, lens, LATENT, plan, splits, 192 ** -0.5, True, one, one)
            for t in tables]


def triton(case, pool):
    from sglang.srt.layers.attention.triton_backend import get_num_kv_splits_triton
    from sglang.srt.layers.attention.triton_ops.decode_attention import decode_attention_fwd
    from sglang.srt.layers.attention.triton_ops.extend_attention import extend_attention_fwd
    heads = case["heads"]
    if case["decode"]:
        every = totals(case)
        n, most = len(every), 256
        splits = torch.empty(n, dtype=torch.int32, device=DEVICE)
        get_num_kv_splits_triton[(1,)](splits, torch.tensor(every, device=DEVICE), n, 1, heads, 1, most, 132,
                                       MAX_NUM_SEQ=256)
        q = torch.randn(n, heads, WIDTH, device=DEVICE, dtype=BF16)
        o = torch.empty(n, heads, LATENT, device=DEVICE, dtype=BF16)
        logits = torch.empty(n, heads, most, LATENT, device=DEVICE, dtype=torch.float32)
        lse = torch.empty(n, heads, most, device=DEVICE, dtype=torch.float32)
        ptr = indptr(every)
        tables = [pool.slots(every, s) for s in range(sets_for(every))]
        return [lambda t=t: decode_attention_fwd(q, pool.bf16, pool.bf16[..., :LATENT], o, ptr, t, logits, lse, splits,
                                                 most, 192 ** -0.5, 1.0, 1.0, has_mla=True, use_pdl=True)
                for t in tables]
    rows, cached = sum(case["lengths"]), sum(case["prefixes"]) > 0
    q = torch.randn(rows, heads, WIDTH, device=DEVICE, dtype=BF16)
    k = torch.randn(rows, 1, WIDTH, device=DEVICE, dtype=BF16)
    o = torch.empty(rows, heads, LATENT, device=DEVICE, dtype=BF16)
    qo, ptr = indptr(case["lengths"], torch.int64), indptr(case["prefixes"])
    tables = [pool.slots(case["prefixes"], s) for s in range(sets_for(case["prefixes"]))] if cached else [
        torch.zeros(1, dtype=torch.int64, device=DEVICE)]
    return [lambda t=t: extend_attention_fwd(q, k, k[..., :LATENT], o, pool.bf16, pool.bf16[..., :LATENT], qo, ptr, t,
                                             None, True, None, max(case["lengths"]), 1.0, 1.0, 192 ** -0.5)
            for t in tables]


def flashinfer(case, pool):
    from flashinfer.mla import BatchMLAPagedAttentionWrapper
    every, heads = totals(case), case["heads"]
    n = len(every)
    qo, ptr = torch.arange(n + 1, dtype=torch.int32, device=DEVICE), indptr(every)
    lens = torch.tensor(every, dtype=torch.int32, device=DEVICE)
    tables = [pool.slots(every, s).to(torch.int32) for s in range(sets_for(every))]
    w = BatchMLAPagedAttentionWrapper(workspace(), use_cuda_graph=True, qo_indptr=qo.clone(), kv_indptr=ptr.clone(),
                                      kv_indices=tables[0].clone(), kv_len_arr=lens.clone(), backend="auto")
    planned(lambda: w.plan(qo, ptr, tables[0], lens, heads, LATENT, ROPE, 1, False, 192 ** -0.5, BF16, BF16))
    q_nope = torch.randn(n, heads, LATENT, device=DEVICE, dtype=BF16)
    q_rope = torch.randn(n, heads, ROPE, device=DEVICE, dtype=BF16)
    c, k = pool.bf16[:, :, :LATENT], pool.bf16[:, :, LATENT:]

    def call(t):
        w._kv_indices_buf = t
        return w.run(q_nope, q_rope, c, k)
    return [lambda t=t: call(t) for t in tables]


def kinds(kernels, case):
    """(kernel, head dimension, value dimension, page, dtype, maker) of what is measured on a case."""
    absorbed, small = (WIDTH, LATENT), sum(case["lengths"]) * case["heads"] <= 2048 * 128
    if "fa3" in kernels and (case["decode"] or small):
        yield "fa3", *absorbed, 1, "bfloat16", fa3
    if "fa3" in kernels and not case["decode"] and sum(totals(case)) * case["heads"] < 4 << 20:
        yield "fa3", 192, 128, 1, "bfloat16", fa3_expanded
    splits_fit = len(case["lengths"]) * case["heads"] * 256 * LATENT < 1 << 31  # its offsets are 32-bit
    if "triton" in kernels and (splits_fit if case["decode"] else small):
        yield "triton", *absorbed, 1, "bfloat16", triton
    if "flashmla" in kernels and case["decode"]:
        yield "flashmla", *absorbed, 64, "bfloat16", flashmla
        if len(case["lengths"]) % 2:
            yield "flashmla", *absorbed, 64, "fp8", lambda c, p: flashmla(c, p, True)
    if "flashinfer" in kernels and case["decode"]:
        yield "flashinfer", *absorbed, 1, "bfloat16", flashinfer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("traces")
    parser.add_argument("--kernels", default="fa3,flashmla,triton,flashinfer")
    parser.add_argument("--decodes", type=int, default=400)
    parser.add_argument("--extends", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--held-every", type=int, default=1, help="of cases that no fit sees, each N-th alone")
    args = parser.parse_args()
    kernels, pool, failures, rows = args.kernels.split(","), Pool(), {}, 0
    with open(args.out, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow("kernel,phase,heads,kv_heads,head_dim,v_head_dim,page,kv_dtype,prefix,lengths,ms,part".split(","))
        for number, case in enumerate(draw(args.traces, args.decodes, args.extends, args.seed)):
            if part(case) == "held" and number % args.held_every:
                continue
            for kernel, width, v_width, page, dtype, make in kinds(kernels, case):
                if time.time() > DEADLINE:
                    continue
                try:
                    ms = timed(make(case, pool))
                except Exception as e:
                    key = (kernel, case["decode"], width, dtype, str(e)[:160])
                    failures[key] = failures.get(key, 0) + 1
                    if "CUDA error" in str(e):
                        raise
                    continue
                out.writerow([kernel, "decode" if case["decode"] else "extend", case["heads"],
                              1 if width == WIDTH else case["heads"], width, v_width, page, dtype,
                              pack(case["prefixes"]), pack(case["lengths"]), f"{ms:.5g}", part(case)])
                f.flush()
                rows += 1
            if torch.cuda.memory_reserved() > 60 << 30:
                torch.cuda.empty_cache()
    for kind, count in failures.items():
        print("failed", count, *kind)
    print(f"MLA {args.kernels}: {rows} rows, {DEADLINE - time.time():.0f} s left", flush=True)


if __name__ == "__main__":
    main()
