"""Measures attention kernels on the ragged batches of ragged_shapes.py, as SGLang 0.5.12's backends call them.

    python3 measure_ragged.py OUT.csv TRACES --kernels fa3,triton,flashinfer [--decodes N] [--extends N]
                              [--seed S] [--thin fa3.decode=2,…] [--held-every N]

One row is one call of one layer:

    kernel,phase,heads,kv_heads,head_dim,page,kv_dtype,prefix,lengths,ms,launches,plan_us,window,part

Kernels: fa3 (sgl_kernel's flash_attn_with_kvcache; a decode with the scheduler metadata that a captured graph
gets, over a page table as wide as the model's context), triton (SGLang's triton_ops with its own number of splits)
and flashinfer: its decode wrapper as captured; an extend over the paged cache, which is what a piecewise prefill
graph runs (`flashinfer`), or over the new tokens and, apart, the cached ones (`flashinfer_ragged`: prefills that run
outside such graphs). `ms` is the median of CUDA graph replays over calls on KV slots so many that the L2 holds none
of them; the host's time is not in it, but `plan_us` is a plan's. `launches` is left empty: nothing reads it here.
"""
import argparse
import csv
import math
import os
import statistics
import time

import torch

from ragged_shapes import MOST_ELEMENTS, cases, pack, part

DEVICE = "cuda"
RUN = 64  # consecutive tokens in the pool
DEADLINE = time.time() + float(os.environ.get("MEASURE_SECONDS", "500"))
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn


class Pool:
    """Keys and values of one layer, seen in every shape; runs of 64 slots in random order."""

    def __init__(self):
        elements = MOST_ELEMENTS * 5 // 4 // 163840 * 163840  # divisible by 64 tokens of every layer
        self.flat = {BF16: [torch.randn(elements, device=DEVICE, dtype=BF16) for _ in "kv"]}
        self.flat[FP8] = [x.to(FP8) for x in self.flat[BF16]]
        self.orders = {}

    def views(self, case, page):
        dtype = FP8 if case["kv_dtype"] == "fp8" else BF16
        width = page * case["kv_heads"] * case["head_dim"]
        return [x[: x.numel() // width * width].view(-1, page, case["kv_heads"], case["head_dim"])
                for x in self.flat[dtype]]

    def slots(self, case, totals, which):
        """Slot of every token of requests of `totals` tokens, one after the other, for the which-th set."""
        runs = MOST_ELEMENTS // (case["kv_heads"] * case["head_dim"]) // RUN
        if runs not in self.orders:
            self.orders[runs] = torch.randperm(runs, generator=torch.Generator().manual_seed(1)).to(DEVICE)
        counts = [-(-n // RUN) for n in totals]
        need = sum(counts)
        first = which * need % max(1, runs - need + 1)
        tokens = (self.orders[runs][first:first + need, None] * RUN + torch.arange(RUN, device=DEVICE)[None]).flatten()
        where = case.setdefault("_where", {})
        if "at" not in where:  # positions of the tokens among those of whole runs
            lengths = torch.tensor(totals)
            starts = torch.cumsum(torch.tensor(counts), 0) * RUN - torch.tensor(counts) * RUN
            ends = torch.cumsum(lengths, 0)
            inner = torch.arange(int(ends[-1])) - torch.repeat_interleave(ends - lengths, lengths)
            where["row"] = torch.repeat_interleave(torch.arange(len(totals)), lengths).to(DEVICE)
            where["column"] = inner.to(DEVICE)
            where["at"] = (torch.repeat_interleave(starts, lengths) + inner.to(starts.dtype)).to(DEVICE)
        return tokens[where["at"]]

    def table(self, case, totals, which, page, width):
        """Page table of `width` tokens a request."""
        slots, where = self.slots(case, totals, which), case["_where"]
        table = torch.zeros(len(totals), -(-width // page), dtype=torch.int32, device=DEVICE)
        first = where["column"] % page == 0
        table[where["row"][first], where["column"][first] // page] = (slots[first] // page).to(torch.int32)
        return table


def totals(case):
    return case["lengths"] if case["decode"] else [p + n for p, n in zip(case["prefixes"], case["lengths"])]


def rows_of(case):
    return len(case["lengths"]) if case["decode"] else sum(case["lengths"])


def sets_for(case):
    """Calls on different KV until 120 MB have passed, more than twice the L2."""
    read = totals(case) if not case["window"] else [min(n, case["window"] + 64) for n in totals(case)]
    width = 1 if case["kv_dtype"] == "fp8" else 2
    return max(1, min(192, math.ceil(120e6 / (sum(read) * case["kv_heads"] * case["head_dim"] * 2 * width))))


def indptr(lengths, dtype=torch.int32):
    return torch.tensor([0] + torch.tensor(lengths).cumsum(0).tolist(), dtype=dtype, device=DEVICE)


def query(case, dtype=BF16):
    return torch.randn(rows_of(case), case["heads"], case["head_dim"], device=DEVICE, dtype=BF16).to(dtype)


_kept = []


def graph_memory():
    """Memory that all graphs take theirs from, one after the other."""
    if not _kept:
        _kept.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(_kept[0]):
            _kept.append(torch.zeros(1, device=DEVICE))
    return _kept[0].pool()


def timed(calls):
    """Median device milliseconds of one call, by replays of a graph of all `calls`."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        calls[0]()
        torch.cuda.synchronize()
        begin = time.time()
        calls[-1]()
        torch.cuda.synchronize()
    if time.time() - begin < 1e-3:  # one short call alone would carry the replay's own microseconds
        calls = calls * math.ceil(8 / len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=graph_memory()):
        for call in calls:
            call()
    times, begin = [], time.time()
    for i in range(9):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        if i >= 2:
            times.append(a.elapsed_time(b) / len(calls))
        if i >= 4 and time.time() - begin > 0.1:
            break
    return statistics.median(times)


def expected(case, q, k, v, slots):
    """Attention of the last new token of the first request, in float32, for a check of the call."""
    at, n = totals(case)[0], case["window"]
    used = slots[:at] if not n else slots[max(0, at - n - 1):at]
    k, v = (x.view(-1, case["kv_heads"], case["head_dim"])[used].float() for x in (k, v))
    row = q[0 if case["decode"] else case["lengths"][0] - 1].float().view(case["kv_heads"], -1, case["head_dim"])
    weights = torch.softmax(torch.einsum("hgd,nhd->hgn", row, k) * case["head_dim"] ** -0.5, -1)
    return torch.einsum("hgn,nhd->hgd", weights, v).flatten(0, 1)


# Each maker returns the calls, their plan's microseconds, and what the first call gives its first request's last
# token beside what it should, or None where it reads keys from elsewhere than the pool.
def fa3(case, pool, page):
    from sgl_kernel.flash_attn import flash_attn_with_kvcache, get_scheduler_metadata
    k, v = pool.views(case, page)
    fp8 = case["kv_dtype"] == "fp8"
    q, every = query(case, FP8 if fp8 else BF16), totals(case)
    lens = torch.tensor(every, dtype=torch.int32, device=DEVICE)
    window = (case["window"] - 1, 0) if case["window"] else (-1, -1)
    same = dict(q=q, k_cache=k, v_cache=v, cache_seqlens=lens, softmax_scale=case["head_dim"] ** -0.5, causal=True,
                window_size=window, softcap=0.0, num_splits=0)
    if case["decode"]:
        n = len(every)
        starts = torch.arange(n + 1, dtype=torch.int32, device=DEVICE)
        metadata = None if case["window"] else get_scheduler_metadata(
            batch_size=n, max_seqlen_q=1, max_seqlen_k=max(every), num_heads=case["heads"],
            num_heads_k=case["kv_heads"], headdim=case["head_dim"], cache_seqlens=lens, qkv_dtype=k.dtype,
            cu_seqlens_q=starts, page_size=page, causal=True, has_softcap=False, num_splits=0)
        same.update(cu_seqlens_q=starts, max_seqlen_q=1, scheduler_metadata=metadata)
        width = case["context"]
    else:
        same.update(cu_seqlens_q=indptr(case["lengths"]), cu_seqlens_k_new=indptr(every),
                    max_seqlen_q=max(case["lengths"]))
        width = max(every)
    tables = [pool.table(case, every, s, page, width) for s in range(sets_for(case))]
    calls = [lambda t=t: flash_attn_with_kvcache(page_table=t, **same) for t in tables]
    row = 0 if case["decode"] else case["lengths"][0] - 1
    dict_window = dict(case, window=max(0, case["window"] - 1))
    return calls, 0, lambda: (calls[0]()[row], expected(dict_window, q, k, v, pool.slots(case, every, 0)))


def triton(case, pool, page):
    from sglang.srt.layers.attention.triton_backend import get_num_kv_splits_triton
    from sglang.srt.layers.attention.triton_ops.decode_attention import decode_attention_fwd
    from sglang.srt.layers.attention.triton_ops.extend_attention import extend_attention_fwd
    kb, vb = (x.view(-1, case["kv_heads"], case["head_dim"]) for x in pool.views(case, 1))
    q = query(case)
    o, scale, heads, kv = torch.empty_like(q), case["head_dim"] ** -0.5, case["heads"], case["kv_heads"]
    window = case["window"]
    if case["decode"]:
        every = [min(n, window) for n in totals(case)] if window else totals(case)
        n = len(every)
        lens = torch.tensor(every, dtype=torch.int64, device=DEVICE)
        splits = torch.empty(n, dtype=torch.int32, device=DEVICE)
        get_num_kv_splits_triton[(1,)](splits, lens, n, 1, heads, kv, 8, 132, MAX_NUM_SEQ=256)
        logits = torch.empty(n, heads, 8, case["head_dim"], device=DEVICE, dtype=torch.float32)
        lse = torch.empty(n, heads, 8, device=DEVICE, dtype=torch.float32)
        ptr = indptr(every)
        tables = [pool.slots(case, every, s) for s in range(sets_for(case))]
        calls = [lambda t=t: decode_attention_fwd(q, kb, vb, o, ptr, t, logits, lse, splits, 8, scale, 1.0, 1.0,
                                                  use_pdl=True) for t in tables]
        whole = dict(case, window=0, lengths=every)
        return calls, 0, lambda: (calls[0]() or o[0], expected(whole, q, kb, vb, tables[0]))
    kept = [min(n, window) for n in case["prefixes"]] if window else case["prefixes"]
    k = torch.randn(sum(case["lengths"]), kv, case["head_dim"], device=DEVICE, dtype=BF16)
    v = torch.randn_like(k)
    qo, ptr = indptr(case["lengths"], torch.int64), indptr(kept)
    # The first `kept` slots of each request stand for its cached tokens.
    tables = [pool.slots(case, kept, s) for s in range(sets_for(case))] if sum(kept) else [
        torch.zeros(1, dtype=torch.int64, device=DEVICE)]
    offsets = torch.tensor([p - m for p, m in zip(case["prefixes"], kept)], dtype=torch.int32, device=DEVICE)
    more = dict(sliding_window_size=window - 1, window_kv_offsets=offsets) if window else {}
    calls = [lambda t=t: extend_attention_fwd(q, k, v, o, kb, vb, qo, ptr, t, None, True, None, max(case["lengths"]),
                                              1.0, 1.0, scale, **more) for t in tables]
    return calls, 0, None


_workspace = {}


def workspace(which=0):
    if which not in _workspace:
        _workspace[which] = torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE)
    return _workspace[which]


def planned(plan):
    plan()
    torch.cuda.synchronize()
    begin = time.time()
    for _ in range(3):
        plan()
    torch.cuda.synchronize()
    return (time.time() - begin) / 3 * 1e6


def on_indices(wrapper, indices, run):
    wrapper._paged_kv_indices_buf = indices
    return run()


def flashinfer(case, pool, page):
    import flashinfer as fi
    heads, kv, d = case["heads"], case["kv_heads"], case["head_dim"]
    cache = pool.views(case, 1)
    q, every = query(case), totals(case)
    n, dtype = len(every), cache[0].dtype
    ptr, ones = indptr(every), torch.ones(n, dtype=torch.int32, device=DEVICE)
    tables = [pool.slots(case, every, s).to(torch.int32) for s in range(sets_for(case))]
    if case["decode"]:
        w = fi.BatchDecodeWithPagedKVCacheWrapper(
            workspace(), "NHD", backend="fa2", use_cuda_graph=True, use_tensor_cores=dtype == FP8 or heads // kv >= 4,
            paged_kv_indptr_buffer=ptr.clone(), paged_kv_indices_buffer=tables[0].clone(),
            paged_kv_last_page_len_buffer=ones.clone())
        us = planned(lambda: w.plan(ptr, tables[0], ones, heads, kv, d, 1, data_type=dtype, q_data_type=BF16,
                                    non_blocking=True))
        run = lambda: w.run(q, tuple(cache))
    else:
        w = fi.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", backend="fa2")
        qo = indptr(case["lengths"])
        us = planned(lambda: w.plan(qo, ptr, tables[0], ones, heads, kv, d, 1, causal=True, q_data_type=BF16,
                                    kv_data_type=dtype, non_blocking=True))
        run = lambda: w.run(q, tuple(cache))
    calls = [lambda t=t: on_indices(w, t, run) for t in tables]
    row = 0 if case["decode"] else case["lengths"][0] - 1
    return calls, us, lambda: (calls[0]()[row], expected(case, q, *cache, tables[0]))


def flashinfer_ragged(case, pool, page):
    import flashinfer as fi
    heads, kv, d = case["heads"], case["kv_heads"], case["head_dim"]
    cache = pool.views(case, 1)
    q = query(case)
    k = torch.randn(rows_of(case), kv, d, device=DEVICE, dtype=BF16)
    v = torch.randn_like(k)
    qo, ptr, cached = indptr(case["lengths"]), indptr(case["prefixes"]), sum(case["prefixes"]) > 0
    fresh = fi.BatchPrefillWithRaggedKVCacheWrapper(workspace(), "NHD", backend="auto")
    paged = fi.BatchPrefillWithPagedKVCacheWrapper(workspace(1), "NHD", backend="fa2")
    tables = [pool.slots(case, case["prefixes"], s).to(torch.int32)
              for s in range(sets_for(case))] if cached else [None]
    ones = torch.ones(len(case["lengths"]), dtype=torch.int32, device=DEVICE)

    def plan():
        fresh.plan(qo, qo, heads, kv, d, causal=True, q_data_type=BF16)
        if cached:
            paged.plan(qo, ptr, tables[0], ones, heads, kv, d, 1, causal=False, q_data_type=BF16,
                       kv_data_type=cache[0].dtype, non_blocking=True)
    us = planned(plan)

    def call(t):
        if not cached:
            return fresh.run(q, k, v)
        o1, s1 = fresh.run_return_lse(q, k, v)
        o2, s2 = on_indices(paged, t, lambda: paged.run_return_lse(q, tuple(cache)))
        return fi.merge_state(o1, s1, o2, s2)
    return [lambda t=t: call(t) for t in tables], us, None


def torch_native(case, pool, page):
    from torch.nn.functional import scaled_dot_product_attention
    k, v = (x.view(-1, case["kv_heads"], case["head_dim"]) for x in pool.views(case, 1))
    q, every = query(case), totals(case)
    out, gqa, n = torch.empty_like(q), case["heads"] != case["kv_heads"], len(every)
    rows = torch.arange(n, device=DEVICE)

    def call(table):
        queries, start = q.movedim(0, 1), 0
        for i, total in enumerate(every):
            new = 1 if case["decode"] else case["lengths"][i]
            mine = queries[:, start:start + new, :]
            if not case["decode"]:  # rows of cached tokens are computed, too
                full = torch.empty(case["heads"], total, case["head_dim"], dtype=q.dtype, device=DEVICE)
                full[:, total - new:, :] = mine
                mine = full
            tokens = torch.index_select(table, 0, rows[i:i + 1]).squeeze(0)[:total]
            o = scaled_dot_product_attention(mine.unsqueeze(0), k[tokens].movedim(0, 1).unsqueeze(0),
                                             v[tokens].movedim(0, 1).unsqueeze(0), enable_gqa=gqa,
                                             scale=case["head_dim"] ** -0.5, is_causal=not case["decode"])
            out[start:start + new] = o.squeeze(0).movedim(1, 0)[-new:]
            start += new
    tables = [pool.table(case, every, s, 1, max(every)) for s in range(min(sets_for(case), max(3, 96 // n)))]
    calls = [lambda t=t: call(t) for t in tables]
    row = 0 if case["decode"] else case["lengths"][0] - 1
    return calls, 0, lambda: (calls[0]() or out[row], expected(case, q, k, v, pool.slots(case, every, 0)))


MAKERS = dict(fa3=fa3, triton=triton, flashinfer=flashinfer, flashinfer_ragged=flashinfer_ragged,
              torch_native=torch_native)


def fewer(kernel, case):
    """The case, of as many requests as the kernel can be timed with."""
    if kernel != "torch_native":
        return case
    return dict(case, lengths=case["lengths"][:12], prefixes=case["prefixes"][:12])


def can(kernel, case):
    """flashinfer's kernels are compiled for these shapes only, to save the minutes."""
    if kernel == "torch_native":
        return case["kv_dtype"] == "bfloat16" and not case["window"] and sum(totals(case)) < 200000
    if not kernel.startswith("flashinfer"):
        return True
    return case["head_dim"] == 128 and not case["window"] and (kernel == "flashinfer" or not case["decode"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("traces")
    parser.add_argument("--kernels", default="fa3,triton,flashinfer,flashinfer_ragged")
    parser.add_argument("--decodes", type=int, default=500)
    parser.add_argument("--extends", type=int, default=450)
    parser.add_argument("--skip", type=int, default=0, help="cases at the front that another run has measured")
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--thin", default="", help="KERNEL.PHASE=N,…: each N-th such case alone")
    parser.add_argument("--held-every", type=int, default=1, help="of cases that no fit sees, each N-th alone")
    args = parser.parse_args()
    kernels, pool, checks, failures, rows = args.kernels.split(","), Pool(), {}, {}, 0
    thin = {name: int(n) for name, n in (word.split("=") for word in args.thin.split(",") if word)}
    spent = {}
    with open(args.out, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow("kernel,phase,heads,kv_heads,head_dim,page,kv_dtype,prefix,lengths,ms,launches,plan_us,window,part"
                     .split(","))
        for number, whole in enumerate(cases(args.traces, args.decodes, args.extends, args.seed)[args.skip:]):
            for kernel in kernels:
                case = fewer(kernel, whole)
                phase = "decode" if case["decode"] else "extend"
                if time.time() > DEADLINE or not can(kernel, case) or number % thin.get(f"{kernel}.{phase}", 1):
                    continue
                if part(case) == "held" and number % args.held_every:
                    continue
                page = 64 if kernel == "fa3" and number % 5 == 0 else 1
                case.pop("_where", None)
                begin = time.time()
                try:
                    calls, us, check = MAKERS[kernel](case, pool, page)
                    kind = (kernel, phase, case["kv_dtype"], case["head_dim"], case["window"] > 0, page)
                    if check and checks.get(kind, (0, 0))[1] < 2 and sum(totals(case)) < 100000:
                        got, want = (x.float().flatten() for x in check())
                        error = float((got - want).norm() / want.norm())
                        worst, count = checks.get(kind, (0, 0))
                        checks[kind] = (max(worst, error), count + 1)
                    ms = timed(calls)
                except Exception as e:
                    key = (kernel, phase, case["kv_dtype"], case["head_dim"], str(e)[:160])
                    failures[key] = failures.get(key, 0) + 1
                    if "CUDA error" in str(e):
                        raise
                    continue
                out.writerow([kernel, phase, case["heads"], case["kv_heads"], case["head_dim"], page, case["kv_dtype"],
                              pack(case["prefixes"]), pack(case["lengths"]), f"{ms:.5g}", "", f"{us:.4g}",
                              case["window"], part(case)])
                f.flush()
                rows += 1
                seconds, count = spent.get((kernel, phase), (0, 0))
                spent[kernel, phase] = seconds + time.time() - begin, count + 1
                if torch.cuda.memory_reserved() > 60 << 30:
                    torch.cuda.empty_cache()
    for kind, (error, count) in sorted(checks.items(), key=str):
        print("check", *kind, f"{error:.2g} of {count}")
    for kind, count in failures.items():
        print("failed", count, *kind)
    for kind, (seconds, count) in spent.items():
        print(*kind, f"{count} rows, {seconds / count:.2f} s each")
    print(f"{args.kernels}: {rows} rows, {DEADLINE - time.time():.0f} s left", flush=True)


if __name__ == "__main__":
    main()
