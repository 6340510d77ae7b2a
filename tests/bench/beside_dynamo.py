#!/usr/bin/env python3
"""CPU time of tpsim beside Dynamo's offline replay of the same trace, on the same machine in the same minutes.

usage: PYTHON beside_dynamo.py TPSIM TRACE [--workers N] [--pages P,P] [--runs N] [TPSIM_FLAG ...]

PYTHON has `ai-dynamo-runtime` (1.6.1 from PyPI in a virtual environment of its own), TRACE is one of Mooncake's. For
pages of 1 and of 16 tokens (--pages) `tpsim run --tp 8 --model-path llama-3.1-70b --hardware h200-sxm` serves the trace, its
whole process counted: trace, simulation, report.json, report.html, requests.csv and steps.csv. Dynamo's mocker
(engine sglang) then serves it with the pool, the running requests and the prefill limits that tpsim's report names;
its speedup_ratio is sought so that both simulate as many seconds, for a slower engine has longer queues. Only the
replay call counts for it, not the start of Python: once with its summary alone, once with a record for each request
as tpsim writes them. Best of RUNS each, run in turn, for the machine may be busy.

With --workers N both have N of these servers, Dynamo behind its KV router, tpsim (on one thread) behind SGLang's cache_aware
one. The simulated seconds are then those of the trace whatever the engine's speed, so that the mean latency of a request
has to be equal instead. Dynamo's log of its router's choices is off.
"""
import json
import os
import resource
import subprocess
import sys
import tempfile

RUNS = 5
WORKERS = 1
FIRST_SPEEDUP = 0.5
CLOSE_ENOUGH = 0.02  # of the simulated seconds


def serve(tpsim, trace, flags, page):
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        several = ["--dp-size", str(WORKERS), "--router-policy", "cache_aware", "--jobs", "1"] if WORKERS > 1 else []
        subprocess.run([tpsim, "run", "--tp", "8", "--model-path", "llama-3.1-70b", "--hardware", "h200-sxm", "--trace",
                        trace, "--page-size", str(page), "--report-dir", folder, "--quiet", *several, *flags], check=True,
                       stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(os.path.join(folder, "report.json")) as file:
            report = json.load(file)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, report


def replay(trace, engine, records):
    """In a process of its own: CPU seconds of the replay call, and what it simulated."""
    job = json.dumps({"trace": trace, "engine": engine, "records": records, "workers": WORKERS})
    out = subprocess.run([sys.executable, __file__, "--replay", job], check=True, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, env={**os.environ, "DYN_LOG": "error"}).stdout
    return json.loads(out.splitlines()[-1])


def replay_here(job):
    import dynamo._core as dynamo
    with tempfile.TemporaryDirectory() as folder:
        records = {"capture_per_request": True, "report_jsonl_path": os.path.join(folder, "requests.jsonl")}
        before = resource.getrusage(resource.RUSAGE_SELF)
        result = dynamo.run_mocker_trace_replay([job["trace"]], extra_engine_args={"engine": job["engine"]},
                                                trace_format="mooncake", trace_block_size=512, num_workers=job["workers"],
                                                router_mode="kv_router" if job["workers"] > 1 else "round_robin",
                                                **(records if job["records"] else {}))
        after = resource.getrusage(resource.RUSAGE_SELF)
    summary = result.summary
    print(json.dumps({"cpu": after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
                      "seconds": summary["duration_ms"] / 1e3, "latency": summary["mean_e2e_latency_ms"],
                      "requests": summary["completed_requests"],
                      "output": summary["total_output_tokens"], "hits": summary["prefix_cache_reused_ratio"]}))


def engine_like(report, page, speedup):
    limits = report["server_args"]
    return {"backend": "sglang", "num_gpu_blocks": report["kv_pool_tokens"] // page, "block_size": page,
            "max_num_seqs": int(limits["max_running_requests"]), "speedup_ratio": speedup,
            "sglang": {"schedule_policy": "fifo", "max_prefill_tokens": int(limits["max_prefill_tokens"]),
                       "chunked_prefill_size": int(limits["chunked_prefill_size"])}}


def as_slow(trace, report, page):
    """Dynamo's engine at the speed at which it needs as many simulated seconds as tpsim did, or as many for a request."""
    ours, theirs = ("mean_e2e_latency_ms", "latency") if WORKERS > 1 else ("duration", "seconds")
    speedup = FIRST_SPEEDUP
    for _ in range(6):
        engine = engine_like(report, page, speedup)
        seconds = replay(trace, engine, False)[theirs]
        if abs(seconds / report[ours] - 1) < CLOSE_ENOUGH:
            break
        speedup *= seconds / report[ours]
    return engine


def main():
    global WORKERS
    if len(sys.argv) == 3 and sys.argv[1] == "--replay":
        return replay_here(json.loads(sys.argv[2]))
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    tpsim, trace, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
    pages, rounds = "1,16", RUNS
    while flags[:1] and flags[0] in ("--workers", "--pages", "--runs"):
        if flags[0] == "--workers":
            WORKERS = int(flags[1])
        elif flags[0] == "--pages":
            pages = flags[1]
        else:
            rounds = int(flags[1])
        flags = flags[2:]
    print(f"{'page':>4} {'':24} {'CPU s':>7} {'ratio':>6} {'simulated s':>12} {'requests':>9} {'output tokens':>14} {'hits':>6} {'latency ms':>10}")
    for page in map(int, pages.split(",")):
        engine = as_slow(trace, serve(tpsim, trace, flags, page)[1], page)
        ours, theirs = [], {False: [], True: []}
        for _ in range(rounds):
            ours.append(serve(tpsim, trace, flags, page))
            for records in theirs:
                theirs[records].append(replay(trace, engine, records))
        cpu, report = min(ours, key=lambda run: run[0])
        print(f"{page:>4} {'tpsim':24} {cpu:>7.3f} {'':>6} {report['duration']:>12.0f} {report['completed']:>9} "
              f"{report['total_output_tokens']:>14} {report['cache_hit_rate']:>6.3f} {report['mean_e2e_latency_ms']:>10.0f}")
        for records, runs in theirs.items():
            best = min(runs, key=lambda run: run["cpu"])
            name = "Dynamo, request records" if records else "Dynamo, summary"
            print(f"{page:>4} {name:24} {best['cpu']:>7.3f} {best['cpu'] / cpu:>6.1f} {best['seconds']:>12.0f} "
                  f"{best['requests']:>9} {best['output']:>14} {best['hits']:>6.3f} {best['latency']:>10.0f}", flush=True)


if __name__ == "__main__":
    main()
