#!/usr/bin/env python3
"""Writes rank/catalogue/ranges: the largest calls of each operator class that were measured on each GPU, from the
tables of kernels and our own measurements beside this script.

Usage: measured_ranges.py [KERNELS]   (default ../shared/data/kernels beside the repository)
"""

import csv
import glob
import gzip
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Names of operator classes: rank/cost/matrix_kernel.cc; of backends: launch/lab/validation/predict_load.cc.
GEMM = {"bfloat16": "gemm", "fp8": "gemm.fp8", "fp8_block": "gemm.fp8_block", "nvfp4": "gemm.nvfp4"}
MOE = {"bfloat16": ["moe", "moe.default_config", "moe.default_config_few", "moe.flashinfer_trtllm"],
       "fp8_block": ["moe.fp8_block"], "int4_wo": ["moe.int4_wo"], "w4a16_mxfp4": ["moe.w4a16_mxfp4"],
       "w4a8_mxfp4_mxfp8": ["moe.w4a8_mxfp4_mxfp8"], "nvfp4": ["moe.nvfp4"]}
NCCL = {"all_reduce": "all_reduce.nccl", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
        "alltoall": "all_to_all"}


class Ranges:
    def __init__(self):
        self.classes = {}

    def see(self, name, **shapes):
        largest = self.classes.setdefault(name, {})
        for shape, value in shapes.items():
            largest[shape] = max(largest.get(shape, 0), value)

    def attention(self, name, decode, lengths, prefixes):
        """`lengths`: new tokens of each request; of a decode, tokens in the cache."""
        whole = [n + p for n, p in zip(lengths, prefixes)]
        if decode:
            self.see(name, requests=len(lengths), tokens=max(whole), kv_tokens=sum(whole))
        else:
            self.see(name, requests=len(lengths), tokens=max(whole), rows=sum(lengths))


def rows(folder, table):
    path = os.path.join(folder, table + "_perf.csv.gz")
    if os.path.exists(path):
        with gzip.open(path, "rt") as stream:
            yield from csv.DictReader(stream)


def lengths_of(text):
    """"7;3x2" is 7, 3, 3."""
    return [int(part.split("x")[0]) for part in text.split(";") if part
            for _ in range(int(part.split("x")[1]) if "x" in part else 1)]


def read_tables(folder, gpu, ranges):
    for row in rows(folder, "gemm"):
        if row["gemm_dtype"] in GEMM:
            ranges.see(GEMM[row["gemm_dtype"]], rows=int(row["m"]))
    for row in rows(folder, "moe"):
        for name in MOE.get(row["moe_dtype"], ()):
            ranges.see(name, rows=int(row["num_tokens"]))
    for row in rows(folder, "mla_bmm"):
        ranges.see("mla_bmm_fp8" if row["bmm_dtype"] == "fp8" else "mla_bmm", rows=int(row["num_tokens"]))
    for row in rows(folder, "nccl"):
        if row["op_name"] in NCCL and row["nccl_dtype"] == "half":
            ranges.see(NCCL[row["op_name"]], bytes=2 * int(row["message_size"]))
    for phase, decode in (("context", False), ("generation", True)):
        for table, mla in ((phase + "_attention", False), (phase + "_mla", True), ("wideep_" + phase + "_mla", True)):
            for row in rows(folder, table):
                backend = row["kernel_source"]
                if backend == "flash_attention":
                    backend = "fa3" if mla else "flashinfer"
                expanded = backend in ("trtllm_mla", "flashinfer") and table == "context_mla"
                kinds = ([".decode"] if decode else [".extend"]) if not mla else (
                    [".mla_decode"] if decode else [".mla_prefill"] if expanded else [".mla_extend", ".mla_prefill"])
                batch, new, step = int(row["batch_size"]), int(row["isl"]), int(row["step"])
                for kind in kinds:
                    ranges.attention("attention." + backend + kind, decode, [new] * batch, [step] * batch)


def read_own(path, ranges, mla):
    with open(path) as stream:
        for row in csv.DictReader(stream):
            decode = row["phase"] == "decode"
            lengths, prefixes = lengths_of(row["lengths"]), lengths_of(row["prefix"])
            prefixes = (prefixes or [0]) * len(lengths) if len(prefixes) < len(lengths) else prefixes
            if decode:
                prefixes = [0] * len(lengths)
            kind = "decode" if decode else "extend" if not mla or row["head_dim"] == "576" else "prefill"
            ranges.attention(f"attention.{row['kernel']}.{'mla_' if mla else ''}{kind}", decode, lengths, prefixes)


def main(kernels):
    out = os.path.join(ROOT, "rank", "catalogue", "ranges")
    os.makedirs(out, exist_ok=True)
    for folder in sorted(glob.glob(os.path.join(kernels, "*"))):
        gpu = os.path.basename(folder).replace("_", "-")
        gpu = {"b200-sxm": "b200", "b300-sxm": "b300", "rtx-pro-6000-server": "rtx-pro-6000"}.get(gpu, gpu)
        ranges = Ranges()
        read_tables(folder, gpu, ranges)
        for suffix, mla in (("attention", False), ("mla", True)):
            path = os.path.join(HERE, "measured", f"{gpu}_{suffix}.csv")
            if os.path.exists(path):
                read_own(path, ranges, mla)
        with open(os.path.join(out, gpu + ".json"), "w") as stream:
            stream.write("{\n" + ",\n".join(f'  "{name}": {json.dumps(shapes)}'
                                            for name, shapes in sorted(ranges.classes.items())) + "\n}\n")


main(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(ROOT), "shared", "data", "kernels"))
