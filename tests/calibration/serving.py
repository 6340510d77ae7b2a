#!/usr/bin/env python3
"""Compares predicted with measured serving: every load of shared/data/serving whose server is named.

Usage: serving.py TPSIM SERVING_FOLDER [SERVER ...]

Prints, for each load, the token-weighted mean time per output token (the sum over requests of last token - first
token, divided by the tokens behind the first ones) and the duration, predicted, measured and as a ratio.
"""

import collections
import csv
import gzip
import json
import os
import subprocess
import sys
import tempfile


def measured(folder):
    loads = collections.OrderedDict()
    with gzip.open(os.path.join(folder, "requests.csv.gz"), "rt") as file:
        for row in csv.DictReader(file):
            loads.setdefault((row["server"], row["load"]), []).append(row)
    return loads


def figures(rows):
    """(TPOT in ms, duration in s) of rows with first_token_s, last_token_s, output_tokens."""
    seconds = sum(float(r["last_token_s"]) - float(r["first_token_s"]) for r in rows)
    tokens = sum(int(r["output_tokens"]) - 1 for r in rows)
    return seconds / tokens * 1e3, max(float(r["last_token_s"]) for r in rows)


def run(tpsim, server, load, folder):
    kind, *numbers = load.split(":")
    model = server["model_path"]
    config = os.path.join(folder, "models", model)
    flags = [tpsim, "run", "--model-path", config if os.path.isdir(config) else model, "--hardware", os.environ.get("HARDWARE", "h200-sxm"),
             "--tp", str(server["tp_size"]), "--attention-backend", server["attention_backend"],
             "--mem-fraction-static", str(server["mem_fraction_static"])]
    if server.get("quantization"):
        flags += ["--quantization", server["quantization"]]
    if kind != "closed":
        return None
    tokens_in, tokens_out, concurrency, prompts = numbers
    flags += ["--dataset-name", "random", "--random-input-len", tokens_in, "--random-output-len", tokens_out,
              "--random-range-ratio", "1", "--num-prompts", prompts, "--max-concurrency", concurrency]
    with tempfile.TemporaryDirectory() as report:
        done = subprocess.run(flags + ["--report-dir", report], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(flags)}\n{done.stderr}")
        with open(os.path.join(report, "requests.csv")) as file:
            rows = list(csv.DictReader(file))
        with open(os.path.join(report, "report.json")) as file:
            whole = json.load(file)
    return rows, whole


def main():
    tpsim, folder, *wanted = sys.argv[1:]
    with open(os.path.join(folder, "servers.jsonl")) as file:
        servers = {s["server"]: s for s in map(json.loads, file)}
    print(f"{'server':26} {'load':24} {'TPOT ms':>8} {'measured':>9} {'ratio':>6} {'seconds':>8} {'measured':>9} {'ratio':>6}")
    for (name, load), rows in measured(folder).items():
        if name not in servers or (wanted and name not in wanted):
            continue
        result = run(tpsim, servers[name], load, folder)
        if result is None:
            continue
        tpot, duration = figures(rows)
        ours = result[0]
        seconds = sum(float(r["finish_time"]) - float(r["first_token_time"]) for r in ours)
        mine = seconds / sum(int(r["output_tokens"]) - 1 for r in ours) * 1e3
        print(f"{name:26} {load:24} {mine:8.3f} {tpot:9.3f} {mine / tpot:6.3f} {result[1]['duration']:8.2f} "
              f"{duration:9.2f} {result[1]['duration'] / duration:6.3f}", flush=True)


if __name__ == "__main__":
    main()
