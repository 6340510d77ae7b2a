"""Kernels of one layer of a real server's steps, from traces of SGLang's profiler (/start_profile).

    python3 trace_layers.py NAME=TRACE.json.gz ... > h200-sxm_layers.csv

A layer reaches from one attention kernel to the next. Layers of the same kernels and about the same time are alike;
of every twenty and more the one of median length is written, a row a kernel in order:

    step,layers,span_us,kernel,us,gap_us

`us` is the kernel's time, `gap_us` the time from its end to the next one's begin (negative where they overlap).
"""
import csv
import gzip
import json
import math
import re
import sys

ATTENTION = re.compile("FlashAttnFwdSm90|BatchPrefillWith|BatchDecodeWith|_fwd_grouped_kernel_stage1|flash_fwd_splitkv_mla|fused_recurrent_|kda_packed_decode")
NOISE = re.compile(r"void |at::native::|\(anonymous namespace\)::|cutlass::device_kernel<|flash::enable_sm90_or_later<|flash::")


def kernels(path):
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return sorted((e for e in events if e.get("ph") == "X" and e.get("cat") == "kernel"), key=lambda e: e["ts"])


def layers(events):
    """Lists of (first, behind the last) of layers that are alike."""
    starts = [i for i, e in enumerate(events) if ATTENTION.search(e["name"])]
    alike = {}
    for a, b in zip(starts, starts[1:]):
        busy = sum(e["dur"] for e in events[a:b])
        if b - a < 60:  # no end of a step in between
            alike.setdefault((events[a]["name"], b - a, round(2 * math.log2(busy))), []).append((a, b))
    return [group for group in alike.values() if len(group) >= 20]


def main():
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow("step,layers,span_us,kernel,us,gap_us".split(","))
    for argument in sys.argv[1:]:
        step, path = argument.split("=", 1)
        events = kernels(path)
        for group in layers(events):
            spans = sorted((events[b]["ts"] - events[a]["ts"], a, b) for a, b in group)
            span, a, b = spans[len(spans) // 2]
            for this, after in zip(events[a:b], events[a + 1:b + 1]):
                name = re.split(r"[<(]|_object_at_", NOISE.sub("", this["name"]))[0].strip(":, ")
                out.writerow([step, len(group), f"{span:.2f}", name, f"{this['dur']:.2f}",
                              f"{after['ts'] - this['ts'] - this['dur']:.2f}"])


if __name__ == "__main__":
    main()
