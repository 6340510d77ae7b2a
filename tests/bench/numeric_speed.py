#!/usr/bin/env python3
"""Speed of numeric execution: tokens per second of a 1.1-billion-parameter llama (tinyllama-1.1b, dummy bf16
weights) for prefill and decode at --tp 1, 2 and 8 under as many MPI processes, where the time goes, and what part
of the machine's own peak that is.

usage: numeric_speed.py TPSIM LINEAR_BENCH      (build-bench/tests/bench/tpsim_linear_bench)

The peaks are measured before and after each run, and the larger counts: fused multiply-adds in registers, and sums
over memory, on all cores. A rank that waits for another one does so in a collective: with more ranks than cores that
is most of their time.
Prefill's fraction is of the first (2 flops per weight of the layers and token, attention left out), and so is that of
decode in batches; a single decode's is of the second (the weights' bytes once per step, the KV cache left out).
"""
import json
import os
import subprocess
import sys
import tempfile

HIDDEN, INTERMEDIATE, LAYERS, KV, VOCAB = 2048, 5632, 22, 256, 32000
LAYER_WEIGHTS = LAYERS * (HIDDEN * (2 * HIDDEN + 2 * KV) + 3 * HIDDEN * INTERMEDIATE)
HEAD_WEIGHTS = HIDDEN * VOCAB
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}
# Name, requests, prompt tokens, output tokens.
LOADS = (("prefill, 4 x 512", 4, 512, 1), ("decode, batch 1", 1, 16, 65), ("decode, batch 16", 16, 16, 65))


def peak(bench, name, counter):
    out = subprocess.run([bench, f"--benchmark_filter={name}/0", "--benchmark_format=json", "--benchmark_min_time=0.5"],
                         check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return json.loads(out)["benchmarks"][0][counter]


def peaks(bench):
    return peak(bench, "peak_flops", "flops"), peak(bench, "read_memory", "bytes")


def run(tpsim, folder, tp, requests, prompt, output):
    trace = os.path.join(folder, "trace.jsonl")
    with open(trace, "w") as file:
        for i in range(requests):
            file.write(json.dumps({"arrival_time": 0, "prompt": [[100000 * i, prompt]], "max_new_tokens": output}) + "\n")
    report = os.path.join(folder, "report")
    command = [tpsim, "run", "--executor", "numeric", "--model-path", "tinyllama-1.1b", "--load-format", "dummy", "--tp",
               str(tp), "--trace", trace, "--report-dir", report, "--disable-radix-cache", "--quiet", "--no-progress"]
    if tp > 1:
        command = ["mpirun", "--quiet", "-n", str(tp)] + command
    subprocess.run(command, check=True, env={**os.environ, **MPI_ENVIRONMENT})
    with open(os.path.join(report, "report.json")) as file:
        return json.load(file)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tpsim, bench = sys.argv[1:]
    print(f"{os.cpu_count()} cores")
    print(f"{'':18} {'tp':>3} {'tokens/s':>9} {'of peak':>8} {'peak':>14}   {'GEMM':>5} {'attention':>9} {'collectives':>11} "
          f"{'other':>5}")
    with tempfile.TemporaryDirectory() as folder:
        for name, requests, prompt, output in LOADS:
            for tp in (1, 2, 8):
                before = peaks(bench)
                report = run(tpsim, folder, tp, requests, prompt, output)
                flops, bandwidth = map(max, before, peaks(bench))
                seconds = report["duration"]
                if output == 1:
                    rate = report["total_input_tokens"] / seconds
                    done = 2 * LAYER_WEIGHTS * report["total_input_tokens"] + 2 * HEAD_WEIGHTS * requests
                    fraction = done / seconds / flops
                else:
                    rate = report["total_output_tokens"] / seconds
                    done = 2 * (LAYER_WEIGHTS + HEAD_WEIGHTS) * (report["steps"] if requests == 1 else
                                                                 report["total_output_tokens"])
                    fraction = done / seconds / (bandwidth if requests == 1 else flops)
                rank = report["ranks"][0]
                shares = [rank[f"{part}_seconds"] for part in ("gemm", "attention", "collective", "other")]
                shares = [share / sum(shares) for share in shares]
                of = f"{bandwidth / 1e9:.0f} GB/s" if output > 1 and requests == 1 else f"{flops / 1e9:.0f} GFLOP/s"
                print(f"{name:18} {tp:>3} {rate:>9.1f} {fraction:>8.0%} {of:>14}   {shares[0]:>5.0%} {shares[1]:>9.0%} "
                      f"{shares[2]:>11.0%} {shares[3]:>5.0%}", flush=True)


if __name__ == "__main__":
    main()
