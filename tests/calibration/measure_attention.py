"""Measures attention kernels that no public table covers, on the GPU of the machine it runs on.

    python3 measure_attention.py OUT.csv [--flashinfer] [--triton-ops FOLDER]

Kernels: torch_native (PyTorch's SDPA with a gather, request by request, as SGLang's backend of that name),
triton (SGLang's triton_ops, where FOLDER holds them) and flashinfer (where it can be imported). Ragged batches
and extends behind a cached prefix are measured too. One row is one call of one layer:

    kernel,phase,heads,kv_heads,head_dim,page,kv_dtype,prefix,lengths,ms,launches,plan_us

`lengths` are new tokens (extend) or KV lengths (decode), runs of equal values written as VALUExCOUNT. Device
time is the median of CUDA graph replays; calls rotate over KV slots so that the cache is cold, as it is in a
forward pass of many layers.
"""
import argparse
import csv
import math
import os
import random
import statistics
import subprocess
import sys
import time
import types

import torch

D = 128
DEVICE = "cuda"
POOL = 3 << 20  # tokens x KV heads
START = time.time()
DEADLINE = START + float(os.environ.get("MEASURE_SECONDS", "520"))


def pack(values):
    out = []
    for v in values:
        if out and out[-1][0] == v:
            out[-1][1] += 1
        else:
            out.append([v, 1])
    return ";".join(f"{v}x{n}" if n > 1 else f"{v}" for v, n in out)


def ragged(seed, count, mean, sigma=1.0, most=60000):
    r = random.Random(seed)
    mu = math.log(mean) - sigma * sigma / 2
    return [max(16, min(most, int(math.exp(r.gauss(mu, sigma))))) for _ in range(count)]


def decode_cases():
    for heads, kv in [(8, 1), (32, 8), (4, 1), (8, 8), (16, 2)]:
        for batch in (1, 8, 32, 64, 128, 256):
            for length in (512, 2048, 8192, 32768):
                if batch * length * kv <= POOL:
                    yield heads, kv, [length] * batch
        if (heads, kv) in [(8, 1), (32, 8), (4, 1)]:
            for i, (batch, mean) in enumerate([(16, 1000), (16, 8000), (64, 1000), (64, 4000), (64, 12000),
                                               (200, 1000), (200, 4000), (200, 9000)]):
                lengths = ragged(100 + i, batch, mean)
                if sum(lengths) * kv <= POOL:
                    yield heads, kv, lengths
            yield heads, kv, [500] * 63 + [60000]
            yield heads, kv, [300] * 30 + [20000] * 2


def extend_cases():
    for heads, kv in [(8, 1), (32, 8), (4, 1)]:
        for batch, length in [(1, 128), (1, 512), (1, 2048), (1, 8192), (1, 16384), (4, 1024), (4, 4096),
                              (16, 512), (64, 128)]:
            yield heads, kv, [0] * batch, [length] * batch
        for batch, prefix, length in [(1, 2048, 2048), (1, 16384, 512), (1, 32768, 2048), (1, 60000, 256),
                                      (4, 8192, 1024), (16, 4096, 256), (64, 2000, 64), (1, 8192, 8192)]:
            yield heads, kv, [prefix] * batch, [length] * batch
        for i, (count, mean, prefix) in enumerate([(4, 2000, 4000), (8, 1000, 2000), (12, 600, 8000),
                                                   (16, 500, 1000), (32, 250, 3000)]):
            yield heads, kv, ragged(300 + i, count, prefix), ragged(200 + i, count, mean)
            yield heads, kv, [0] * count, ragged(200 + i, count, mean)
        yield heads, kv, [0] + [3000] * 100, [2048] + [1] * 100
        yield heads, kv, [4096] + ragged(400, 60, 3000), [2048] + [1] * 60


def slots(total, kv_heads, page, seed):
    """Slots of `total` tokens: runs of 64 tokens (or one page) in random order over the pool."""
    capacity = POOL * 2 // kv_heads
    run = max(64, page)
    need = (total + run - 1) // run
    r = torch.Generator().manual_seed(seed)
    order = torch.randperm(capacity // run, generator=r)[:need]
    return (order[:, None] * run + torch.arange(run)[None]).flatten()[:total]


_pools = {}


def pool(kv_heads, dtype):
    key = (kv_heads, dtype)
    if key not in _pools:
        _pools.clear()
        torch.cuda.empty_cache()
        shape = (POOL * 2 // kv_heads, kv_heads, D)
        _pools[key] = tuple(torch.randn(shape, device=DEVICE, dtype=torch.bfloat16).to(dtype) for _ in "kv")
    return _pools[key]


def sets_for(total, kv_heads, width):
    return max(1, min(6, math.ceil(150e6 / max(1, total * kv_heads * D * 2 * width))))


def timed(calls):
    """Median device milliseconds of one call, by graph replay over all `calls`."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.synchronize()
    begin = time.time()
    calls[0]()
    torch.cuda.synchronize()
    once = time.time() - begin
    repeat = max(1, min(8, int(0.02 / max(once, 1e-5) / len(calls))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeat):
            for call in calls:
                call()
    times = []
    for i in range(8):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        graph.replay()
        b.record()
        b.synchronize()
        if i >= 2:
            times.append(a.elapsed_time(b) / repeat / len(calls))
    return statistics.median(times)


def launches(call):
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            call()
            torch.cuda.synchronize()
        return sum(1 for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA)
    except Exception:
        return 0


def indptr(lengths):
    return torch.tensor([0] + list(torch.tensor(lengths).cumsum(0)), dtype=torch.int32, device=DEVICE)


# ---- torch_native -------------------------------------------------------------------------------------------
def torch_call(heads, kv_heads, prefixes, lengths, index, decode):
    k, v = pool(kv_heads, torch.bfloat16)
    q = torch.randn(len(lengths) if decode else sum(lengths), heads, D, device=DEVICE, dtype=torch.bfloat16)
    out = torch.empty_like(q)
    width = max(lengths if decode else [p + n for p, n in zip(prefixes, lengths)])
    table = torch.zeros(len(lengths), width, dtype=torch.int64, device=DEVICE)
    at = 0
    for i, n in enumerate(lengths):
        total = n if decode else prefixes[i] + n
        table[i, :total] = index[at:at + total]
        at += total
    rows = torch.arange(len(lengths), device=DEVICE)

    def call():
        query = q.movedim(0, 1)
        start = 0
        for i, n in enumerate(lengths):
            total = n if decode else prefixes[i] + n
            new = 1 if decode else n
            tokens = torch.index_select(table, 0, rows[i:i + 1]).squeeze(0)[:total]
            mine = query[:, start:start + new, :]
            if not decode:
                full = torch.empty((heads, total, D), dtype=q.dtype, device=DEVICE)
                full[:, prefixes[i]:, :] = mine
                mine = full
            key, value = k[tokens].movedim(0, 1), v[tokens].movedim(0, 1)
            o = torch.nn.functional.scaled_dot_product_attention(
                mine.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), enable_gqa=heads != kv_heads,
                is_causal=not decode).squeeze(0).movedim(1, 0)
            out[start:start + new] = o if decode else o[prefixes[i]:]
            start += new
    return call


def measure_torch(write):
    for decode in (True, False):
        for case in (decode_cases() if decode else extend_cases()):
            heads, kv, prefixes, lengths = (case[0], case[1], [], case[2]) if decode else case
            if len(lengths) > 64 or sum(lengths) + sum(prefixes) > 300000:
                continue
            total = sum(lengths) + sum(prefixes)
            calls = [torch_call(heads, kv, prefixes, lengths, slots(total, kv, 1, s).to(DEVICE), decode)
                     for s in range(min(3, sets_for(total, kv, 2)))]
            write("torch_native", decode, heads, kv, 1, "bfloat16", prefixes, lengths, timed(calls),
                  launches(calls[0]), 0)


# ---- SGLang's Triton kernels --------------------------------------------------------------------------------
def load_triton(folder):
    for name in ("sglang", "sglang.srt", "sglang.srt.layers", "sglang.srt.layers.attention"):
        sys.modules[name] = types.ModuleType(name)
    utils = types.ModuleType("sglang.srt.utils")
    utils.is_hip, utils.is_cuda = (lambda: False), (lambda: True)
    sys.modules["sglang.srt.utils"] = utils
    package = types.ModuleType("sglang.srt.layers.attention.triton_ops")
    package.__path__ = [folder]
    sys.modules[package.__name__] = package
    import importlib
    return (importlib.import_module(package.__name__ + ".decode_attention"),
            importlib.import_module(package.__name__ + ".extend_attention"))


def kv_splits(lengths, heads, kv_heads, most=8):
    cores = torch.cuda.get_device_properties(0).multi_processor_count
    longest, shortest = max(lengths), min(lengths)
    if longest * 8 < shortest * 10:
        shortest = longest
    first = -(-longest // min(-(-longest // shortest), most))
    extended = int(cores * max(math.log2(longest / 64), 1.0))
    group = heads // kv_heads
    grid = len(lengths) * (heads if group == 1 else -(-heads // min(16, group)))
    second = -(-longest // min(-(-extended // grid), most))
    return [max(-(-n // first), -(-n // second)) for n in lengths]


def measure_triton(write, folder):
    dec, ext = load_triton(folder)
    for heads, kv, lengths in decode_cases():
        k, v = pool(kv, torch.bfloat16)
        n = len(lengths)
        q = torch.randn(n, heads, D, device=DEVICE, dtype=torch.bfloat16)
        o = torch.empty_like(q)
        ptr = indptr(lengths)
        logits = torch.empty(n, heads, 8, D, device=DEVICE, dtype=torch.float32)
        lse = torch.empty(n, heads, 8, device=DEVICE, dtype=torch.float32)
        splits = torch.tensor(kv_splits(lengths, heads, kv), dtype=torch.int32, device=DEVICE)
        calls = []
        for s in range(sets_for(sum(lengths), kv, 2)):
            index = slots(sum(lengths), kv, 1, s).to(DEVICE)
            calls.append(lambda index=index: dec.decode_attention_fwd(q, k, v, o, ptr, index, logits, lse, splits,
                                                                      8, D ** -0.5))
        write("triton", True, heads, kv, 1, "bfloat16", [], lengths, timed(calls), launches(calls[0]), 0)
    for heads, kv, prefixes, lengths in extend_cases():
        kb, vb = pool(kv, torch.bfloat16)
        total = sum(lengths)
        q = torch.randn(total, heads, D, device=DEVICE, dtype=torch.bfloat16)
        k = torch.randn(total, kv, D, device=DEVICE, dtype=torch.bfloat16)
        v, o = torch.randn_like(k), torch.empty_like(q)
        qo, kvp = indptr(lengths), indptr(prefixes)
        index = slots(max(1, sum(prefixes)), kv, 1, 0).to(DEVICE)
        calls = [lambda: ext.extend_attention_fwd(q, k, v, o, kb, vb, qo, kvp, index, None, True, None,
                                                  max(lengths), D ** -0.5)]
        write("triton", False, heads, kv, 1, "bfloat16", prefixes, lengths, timed(calls), launches(calls[0]), 0)


# ---- FlashInfer ---------------------------------------------------------------------------------------------
_workspace = []


def workspace(i):
    while len(_workspace) <= i:
        _workspace.append(torch.zeros(384 << 20, dtype=torch.uint8, device=DEVICE))
    return _workspace[i]


def plan_seconds(plan):
    plan()
    torch.cuda.synchronize()
    begin = time.time()
    for _ in range(3):
        plan()
    torch.cuda.synchronize()
    return (time.time() - begin) / 3


def fi_decode(fi, heads, kv, lengths, page, dtype, s):
    k, v = pool(kv, dtype)
    k, v = (x.view(-1, page, kv, D) for x in (k, v))
    n = len(lengths)
    pages = [-(-x // page) for x in lengths]
    ptr = indptr(pages)
    index = (slots(sum(pages) * page, kv, page, s)[::page] // page).to(torch.int32).to(DEVICE)
    last = torch.tensor([(x - 1) % page + 1 for x in lengths], dtype=torch.int32, device=DEVICE)
    q = torch.randn(n, heads, D, device=DEVICE, dtype=torch.bfloat16)
    w = fi.BatchDecodeWithPagedKVCacheWrapper(
        workspace(s), "NHD", use_cuda_graph=True, use_tensor_cores=heads // kv >= 4 or dtype != torch.bfloat16,
        paged_kv_indptr_buffer=ptr.clone(), paged_kv_indices_buffer=index.clone(),
        paged_kv_last_page_len_buffer=last.clone())
    def plan():
        w.plan(ptr, index, last, heads, kv, D, page, q_data_type=torch.bfloat16, kv_data_type=dtype)
    us = plan_seconds(plan) * 1e6
    return (lambda: w.run(q, (k, v))), us


def fi_extend(fi, heads, kv, prefixes, lengths):
    kb, vb = pool(kv, torch.bfloat16)
    kb, vb = kb.view(-1, 1, kv, D), vb.view(-1, 1, kv, D)
    total = sum(lengths)
    q = torch.randn(total, heads, D, device=DEVICE, dtype=torch.bfloat16)
    k = torch.randn(total, kv, D, device=DEVICE, dtype=torch.bfloat16)
    v = torch.randn_like(k)
    qo, ptr = indptr(lengths), indptr(prefixes)
    fresh = fi.BatchPrefillWithRaggedKVCacheWrapper(workspace(0), "NHD")
    cached = any(prefixes)
    paged = fi.BatchPrefillWithPagedKVCacheWrapper(workspace(1), "NHD", backend="fa2")
    index = slots(max(1, sum(prefixes)), kv, 1, 0).to(torch.int32).to(DEVICE)
    ones = torch.ones(len(lengths), dtype=torch.int32, device=DEVICE)

    def plan():
        fresh.plan(qo, qo, heads, kv, D, causal=True, q_data_type=torch.bfloat16)
        if cached:
            paged.plan(qo, ptr, index, ones, heads, kv, D, 1, causal=False, q_data_type=torch.bfloat16)
    us = plan_seconds(plan) * 1e6

    def call():
        if not cached:
            return fresh.run(q, k, v)
        o1, s1 = fresh.run_return_lse(q, k, v)
        o2, s2 = paged.run_return_lse(q, (kb, vb))
        return fi.merge_state(o1, s1, o2, s2)
    return call, us


def measure_flashinfer(write):
    import flashinfer as fi
    for page in (1, 16):
        for heads, kv, lengths in decode_cases():
            if page == 16 and (heads, kv) != (8, 1):
                continue
            made = [fi_decode(fi, heads, kv, lengths, page, torch.bfloat16, s)
                    for s in range(min(3, sets_for(sum(lengths), kv, 2)))]
            calls = [m[0] for m in made]
            write("flashinfer", True, heads, kv, page, "bfloat16", [], lengths, timed(calls), launches(calls[0]),
                  made[0][1])
    for heads, kv, prefixes, lengths in extend_cases():
        call, us = fi_extend(fi, heads, kv, prefixes, lengths)
        write("flashinfer", False, heads, kv, 1, "bfloat16", prefixes, lengths, timed([call]), launches(call), us)
    for heads, kv, lengths in decode_cases():
        if (heads, kv) != (8, 1):
            continue
        made = [fi_decode(fi, heads, kv, lengths, 1, torch.float8_e4m3fn, s)
                for s in range(min(3, sets_for(sum(lengths), kv, 1)))]
        calls = [m[0] for m in made]
        write("flashinfer", True, heads, kv, 1, "fp8", [], lengths, timed(calls), launches(calls[0]), made[0][1])


def compile_flashinfer(part):
    """Builds one of FlashInfer's kernels, so that several build at once."""
    import flashinfer as fi
    if part == "decode":
        fi_decode(fi, 8, 8, [64], 1, torch.bfloat16, 0)[0]()
    elif part == "tensor":
        fi_decode(fi, 8, 1, [64], 1, torch.bfloat16, 0)[0]()
    elif part == "fp8":
        fi_decode(fi, 8, 1, [64], 1, torch.float8_e4m3fn, 0)[0]()
    else:
        fi_extend(fi, 8, 1, [64 if part == "prefix" else 0], [64])[0]()
    torch.cuda.synchronize()


def main():
    global POOL
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--flashinfer", action="store_true")
    parser.add_argument("--triton-ops")
    parser.add_argument("--compile")
    args = parser.parse_args()
    if args.compile:
        POOL = 1 << 16
        compile_flashinfer(args.compile)
        return
    builds = []
    if args.flashinfer:
        for part in ("decode", "tensor", "extend", "fp8"):
            log = open(f"{args.out}.{part}.log", "w")
            builds.append((part, subprocess.Popen([sys.executable, __file__, args.out, "--compile", part],
                                                  stdout=log, stderr=log)))
    with open(args.out, "w", newline="") as f:
        rows = csv.writer(f)
        rows.writerow("kernel,phase,heads,kv_heads,head_dim,page,kv_dtype,prefix,lengths,ms,launches,plan_us".split(","))
        count = [0]

        def write(kernel, decode, heads, kv, page, dtype, prefixes, lengths, ms, launch, plan_us):
            rows.writerow([kernel, "decode" if decode else "extend", heads, kv, D, page, dtype, pack(prefixes),
                           pack(lengths), f"{ms:.5g}", launch, f"{plan_us:.4g}"])
            f.flush()
            count[0] += 1
            if time.time() > DEADLINE:
                raise TimeoutError

        def attempt(name, run):
            begin, before = time.time(), count[0]
            try:
                run()
            except TimeoutError:
                print(name, "stopped at the deadline")
            except Exception as e:
                import traceback
                traceback.print_exc()
                print(name, "failed:", str(e)[:500])
            print(f"{name}: {count[0] - before} rows in {time.time() - begin:.0f} s", flush=True)

        if args.triton_ops:
            attempt("triton", lambda: measure_triton(write, args.triton_ops))
        attempt("torch_native", lambda: measure_torch(write))
        if args.flashinfer:
            for part, build in builds:
                left = max(1, DEADLINE - 90 - time.time())
                try:
                    print("build", part, build.wait(timeout=left), f"at {time.time() - START:.0f} s", flush=True)
                except subprocess.TimeoutExpired:
                    print("build", part, "not finished", flush=True)
            _pools.clear()
            attempt("flashinfer", lambda: measure_flashinfer(write))


if __name__ == "__main__":
    main()
