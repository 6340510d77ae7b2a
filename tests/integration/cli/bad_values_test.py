#!/usr/bin/env python3
"""Nonsense for every flag of every command: refused in one sentence, or a value that the flag really takes.

Every value for every flag with `launch/test --long` (TPSIM_LONG); else one in four, others for each flag.

Usage: bad_values_test.py TPSIM
"""

import os
import re
import subprocess
import sys
import tempfile

BAD = ["", "-1", "0", "nan", "inf", "1e309", "1e-300", "99999999999999999999", "abc", "a,b", "1,,2", "\x1b[31m\x01",
       "/proc/nowhere/x", "/proc", "true", "ü", "3:1:2", "+", "x" * 5000]

# What is sense after all, by flag. A list of them stands for `tpsim compare`, which runs each.
SMALL = {"0", "1e-300"}
TAKES = {
    "--random-seed": {"0"}, "--seed": {"0"}, "--sampling-seed": {"0"}, "--random-range-ratio": SMALL,
    "--request-rate": {"inf", "1e-300", "99999999999999999999"}, "--time-scale": SMALL,
    "--schedule-conservativeness": SMALL, "--chunked-prefill-size": {"-1"}, "--num-prompts": {"0"},
    "--num-conversations": {"0"}, "--system-prompts": {"0"}, "--duration": SMALL, "--think-time-mean": SMALL,
    "--compile-decode-seconds": SMALL, "--client-seconds": SMALL, "--tokenize-us": SMALL, "--launch-queue": {"0"},
    "--kernel-launch-us": {"1e-300"}, "--random-runs-before": {"3:1:2"},
    "--document-probability": SMALL, "--router-balance-rel-threshold": SMALL, "--page-size": {"1,,2"}, "--warmup-requests": {"0"},
    "--priority-scheduling-preemption-threshold": {"-1", "0"}, "--ep-num-redundant-experts": {"0"}, "--pp-async-batch-depth": {"0"},
    "--tbo-token-distribution-threshold": SMALL,
    "--gpu-hour-cost": {"1e-300"}, "--router-cache-threshold": SMALL, "--router-balance-abs-threshold": {"0"},
    "--router-eviction-interval-secs": {"0"}, "--router-max-idle-secs": {"0"},
    "--router-retry-jitter-factor": SMALL, "--router-max-concurrent-requests": {"-1"}, "--router-queue-size": {"0"}, "--router-rate-limit-tokens-per-second": {"0"},
    "--hicache-ratio": SMALL, "--hicache-size": {"0"}, "--hicache-storage-bandwidth": SMALL,
    "--hicache-storage-write-bandwidth": SMALL, "--hicache-storage-latency-ms": SMALL,
    "--guidance-scale": SMALL, "--true-cfg-scale": SMALL, "--batching-delay-ms": SMALL,
    "--prompt": set(BAD), "--negative-prompt": set(BAD),
}
# Lists of components may be empty.
TAKES.update({f"--{name}": {""} for name in ("component-residency", "cpu-offload-components", "layerwise-offload-components")})
TAKES.update({f"--{name}-sigma": SMALL for name in ("system-prompt", "message", "document", "answer")})
# Files and folders are made of any name.
for name in ("--report-dir", "--record-batches", "--trace-out", "--output", "--output-file", "--write"):
    TAKES[name] = set(BAD) - {"", "/proc", "/proc/nowhere/x", "x" * 5000}


def main():
    tpsim = os.path.abspath(sys.argv[1])
    failures = []
    with tempfile.TemporaryDirectory(prefix="tpsim-bad-") as folder:
        def run(words):
            return subprocess.run([tpsim, *words], cwd=folder, timeout=60, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, errors="replace")

        load = ["--dataset-name", "random", "--num-prompts", "2", "--random-input-len", "8", "--random-output-len", "2"]
        place = ["--model-path", "tinyllama-1.1b", "--hardware", "h200-sxm"]
        bases = {
            ("run",): place + load,
            ("compare",): place + load + ["--attention-backends", "fa3,triton"],
            ("plan",): place + load + ["--gpus", "1", "--attention-backends", "fa3"],
            ("backends",): [],
            ("trace", "generate"): ["--output", "trace.jsonl", "--num-conversations", "2"],
        }
        assert run(["trace", "generate", *bases["trace", "generate"]]).returncode == 0
        bases["trace", "inspect"] = ["trace.jsonl"]
        bases["trace", "convert"] = ["trace.jsonl", "converted.jsonl"]
        pipeline = ["--model-path", "wan2.1-t2v-1.3b", "--hardware", "h100-sxm"]
        asked = [(command, base, []) for command, base in bases.items()]
        asked += [((command,), pipeline + more, pipeline) for command, more in (
            ("generate", []), ("compare", ["--attention-backends", "fa,torch_sdpa"]),
            ("run", ["--num-prompts", "2"]))]
        for command, base, named in asked:
            text = run([*command, *named, "--help"]).stdout
            flags = re.findall(r"^\s+(?:-\w,\s*)?(--[a-z][a-z-]*)(?:,--[a-z-]+)* +([A-Za-z]\S*)", text, re.M)
            assert len(flags) >= 2, (command, text)
            for number, (flag, metavar) in enumerate(flags):
                if flag in ("--help", "--config"):
                    continue
                for value in BAD if os.environ.get("TPSIM_LONG") else BAD[number % 4::4]:
                    words = list(base)
                    if flag in words:
                        words[words.index(flag) + 1] = value
                    else:
                        words += [flag, value]
                    done = run([*command, *words])
                    what = f"{' '.join(command)} {flag} {value[:30]!r}: {done.returncode} {done.stderr[:200]!r}"
                    if done.returncode == 2:
                        if not re.fullmatch(r"tpsim: [^\n\x00-\x1f]+\n", done.stderr):
                            failures.append("no one sentence: " + what)
                    elif done.returncode != 0 or value not in TAKES.get(flag, ()):
                        failures.append("not refused: " + what)
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
