"""Predicted against measured serving: the loads of shared/data/serving through `tpsim run`.

    python3 serving.py TPSIM SERVING_FOLDER [SERVER-PREFIX]

One line a load: mean time per output token, weighted by tokens, and duration, with the ratio of predicted to measured.
The measured servers had dummy weights, so --load-format dummy is given. Of one with speculative decoding, the tokens kept
of a step are given as the distribution that it reports.
"""
import collections
import csv
import datetime
import gzip
import json
import os
import subprocess
import sys
import tempfile


def measured(rows):
    spans = sum(float(r["last_token_s"]) - float(r["first_token_s"]) for r in rows)
    tokens = sum(int(r["output_tokens"]) - 1 for r in rows)
    duration = max(float(r["last_token_s"]) for r in rows) - min(float(r["sent_s"]) for r in rows)
    ttft = sum(float(r["first_token_s"]) - float(r["sent_s"]) for r in rows) / len(rows)
    return spans / tokens, duration, ttft


def load_flags(load, rows, folder):
    """The load's flags; a slice of a trace is written out as it was sent."""
    words = load.split(":")
    if words[0] == "closed":
        size, answer, flying, prompts = words[1:5]
        return ["--dataset-name", "random", "--random-input-len", size, "--random-output-len", answer,
                "--random-range-ratio", "1", "--max-concurrency", flying, "--num-prompts", prompts]
    path = os.path.join(folder, "trace.csv")
    with open(path, "w") as out:
        out.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for r in sorted(rows, key=lambda r: float(r["sent_s"])):
            at = datetime.datetime(2023, 11, 16) + datetime.timedelta(seconds=float(r["sent_s"]))
            out.write(f"{at:%Y-%m-%d %H:%M:%S.%f}0,{r['input_tokens']},{r['output_tokens']}\n")
    return ["--trace", path, "--trace-format", "azure"]


def accept_lengths(serving, name, load, folder):
    """The load's distribution of the tokens that a request keeps of a step, as a file. A batch reports its mean: what is
    between two whole numbers is a mixture of both."""
    weights = collections.Counter()
    with gzip.open(os.path.join(serving, "batches.csv.gz"), "rt") as stream:
        for r in csv.DictReader(stream):
            if (r["server"], r["load"], r["mode"]) != (name, load, "decode"):
                continue
            mean, requests = float(r["accept_len"]), int(r["running"])
            low = int(mean)
            weights[low] += requests * (1 - (mean - low))
            weights[low + 1] += requests * (mean - low)
    path = os.path.join(folder, "accept_lengths.csv")
    with open(path, "w") as out:
        out.writelines(f"{length},{weight}\n" for length, weight in sorted(weights.items()) if weight > 0)
    return path


def main():
    tpsim, serving = sys.argv[1:3]
    prefix = sys.argv[3] if len(sys.argv) > 3 else ""
    servers = {s["server"]: s for s in map(json.loads, open(os.path.join(serving, "servers.jsonl")))}
    loads = collections.defaultdict(list)
    with gzip.open(os.path.join(serving, "requests.csv.gz"), "rt") as stream:
        for r in csv.DictReader(stream):
            if r["server"].startswith(prefix):
                loads[r["server"], r["load"]].append(r)
    for (name, load), rows in loads.items():
        server = servers[name]
        folder = os.path.join(serving, "models", server["model_path"])
        with tempfile.TemporaryDirectory() as report:
            command = [tpsim, "run", "--model-path", folder if os.path.isdir(folder) else server["model_path"],
                       "--hardware", "h200-sxm", "--tp", str(server["tp_size"]), "--sglang-version", server["version"],
                       "--attention-backend", server["attention_backend"], "--page-size", str(server["page_size"]),
                       "--load-format", "dummy", "--steps", "none", "--report-dir", report]
            if server.get("quantization"):
                command += ["--quantization", server["quantization"]]
            if server.get("speculative_algorithm"):
                command += ["--speculative-algorithm", server["speculative_algorithm"], "--speculative-num-draft-tokens",
                            str(server["speculative_num_draft_tokens"]), "--speculative-accept-lengths",
                            accept_lengths(serving, name, load, report)]
            done = subprocess.run(command + load_flags(load, rows, report), capture_output=True, text=True)
            if done.returncode:
                print(f"{name} {load}: {done.stderr.strip()[:200]}")
                continue
            text = open(os.path.join(report, "report.json")).read()
            run = json.loads(text)["runs"][0] if "\"runs\"" in text else json.loads(text)
            with open(os.path.join(report, "requests.csv")) as stream:
                requests = list(csv.DictReader(stream))
        tokens = sum(int(r["output_tokens"]) - 1 for r in requests)
        tpot = sum(float(r["finish_time"]) - float(r["first_token_time"]) for r in requests) / tokens
        want_tpot, want_duration, want_ttft = measured(rows)
        print(f"{name} {load}: TPOT {1e3 * tpot:.2f} of {1e3 * want_tpot:.2f} ms (x{tpot / want_tpot:.3f}), duration "
              f"{run['duration']:.2f} of {want_duration:.2f} s (x{run['duration'] / want_duration:.3f}), mean TTFT "
              f"{run['mean_ttft_ms']:.1f} of {1e3 * want_ttft:.1f} ms")


if __name__ == "__main__":
    main()
