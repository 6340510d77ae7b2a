"""Predicted against measured serving: the loads of shared/data/serving through `tpsim run`.

    python3 serving.py TPSIM SERVING_FOLDER [SERVER-PREFIX]

One line a load: mean time per output token, weighted by tokens, and duration, with the ratio of predicted to measured.
The measured servers had dummy weights; only their server of even routing (measured/h200-sxm_serving.csv) is said to
have others. Of one with speculative decoding, the tokens kept of a step are given as the distribution that it reports.

After them the loads of measured/h200-sxm_serving.csv, our own on one H200, made like those of SERVING_FOLDER. Some
were repeated on the same server: a new server is slower the first times (deepseek-v2-lite with flashmla, 16 in flight:
4.84, 4.62, 3.93 and 3.89 s; prefills take up to 0.3 s longer, one here and one there), and where a load of
SERVING_FOLDER was repeated its line has the last of the repeats, too.
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


OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "measured", "h200-sxm_serving.csv")


def predicted(tpsim, serving, server, flags, load):
    """(TPOT, duration, TTFT) in seconds of a load that tpsim serves; a string where it refuses."""
    folder = os.path.join(serving, "models", server["model_path"])
    with tempfile.TemporaryDirectory() as report:
        command = [tpsim, "run", "--model-path", folder if os.path.isdir(folder) else server["model_path"],
                   "--hardware", "h200-sxm", "--tp", str(server["tp_size"]), "--sglang-version", server["version"],
                   "--attention-backend", server["attention_backend"], "--page-size", str(server["page_size"]),
                   "--steps", "none", "--report-dir", report]
        if server.get("quantization"):
            command += ["--quantization", server["quantization"]]
        done = subprocess.run(command + flags + load(report), capture_output=True, text=True)
        if done.returncode:
            return done.stderr.strip()[:200]
        text = open(os.path.join(report, "report.json")).read()
        run = json.loads(text)["runs"][0] if "\"runs\"" in text else json.loads(text)
        with open(os.path.join(report, "requests.csv")) as stream:
            requests = list(csv.DictReader(stream))
    tokens = sum(int(r["output_tokens"]) - 1 for r in requests)
    tpot = sum(float(r["finish_time"]) - float(r["first_token_time"]) for r in requests) / tokens
    return tpot, run["duration"], run["mean_ttft_ms"] / 1e3


def line(name, load, got, want, note=""):
    if isinstance(got, str):
        return f"{name} {load}: {got}"
    (tpot, duration, ttft), (want_tpot, want_duration, want_ttft) = got, want
    return (f"{name} {load}: TPOT {1e3 * tpot:.2f} of {1e3 * want_tpot:.2f} ms (x{tpot / want_tpot:.3f}), duration "
            f"{duration:.2f} of {want_duration:.2f} s (x{duration / want_duration:.3f}), mean TTFT "
            f"{1e3 * ttft:.1f} of {1e3 * want_ttft:.1f} ms (x{ttft / want_ttft:.3f}){note}")


LLAMA = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "vocab_size": 128256, "head_dim": 128,
         "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
# The models that drafted for llama-3.1-8b: a head of one layer of its shape, and Llama 3.2 1B.
DRAFTS = {"EAGLE": LLAMA | {"architectures": ["LlamaForCausalLMEagle"], "model_type": "llama", "hidden_size": 4096,
                            "intermediate_size": 14336, "num_hidden_layers": 1},
          "STANDALONE": LLAMA | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
                                 "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
                                 "tie_word_embeddings": True}}


def draft_flags(flags, folder):
    """Where the flags name an algorithm that has a model draft: that model."""
    for algorithm, config in DRAFTS.items():
        if algorithm in flags:
            draft = os.path.join(folder, "draft")
            os.makedirs(draft)
            with open(os.path.join(draft, "config.json"), "w") as out:
                json.dump(config, out)
            return ["--speculative-draft-model-path", draft]
    return []


def own_rows():
    """The loads of measured/h200-sxm_serving.csv: (server, load) to its rows, one a repeat."""
    rows = collections.defaultdict(list)
    with open(OWN) as stream:
        for r in csv.DictReader(stream):
            rows[r["server"], r["load"]].append(r)
    return rows


def seconds(row):
    return float(row["tpot_ms"]) / 1e3, float(row["duration_s"]), float(row["ttft_ms"]) / 1e3


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
    own = own_rows()
    repeated = {(rows[0]["model"], rows[0]["backend"], rows[0]["flags"], load): rows[-1]
                for (_, load), rows in own.items() if len(rows) > 1 and rows[0]["load_format"] == "dummy"}
    for (name, load), rows in loads.items():
        server = servers[name]
        flags = []
        if server.get("speculative_algorithm"):
            flags = ["--speculative-algorithm", server["speculative_algorithm"], "--speculative-num-draft-tokens",
                     str(server["speculative_num_draft_tokens"])]

        def offered(folder):
            given = load_flags(load, rows, folder)
            if server.get("speculative_algorithm"):
                given += ["--speculative-accept-lengths", accept_lengths(serving, name, load, folder)]
            return given

        got = predicted(tpsim, serving, server, flags, offered)
        quantization = server.get("quantization")
        again = repeated.get((server["model_path"], server["attention_backend"],
                              f"--quantization {quantization}" if quantization else "", load))
        note = ""
        if again and server["tp_size"] == 1 and not flags and not isinstance(got, str):
            tpot, duration, _ = seconds(again)
            note = (f"; repeat {again['repeat']} on one server: {1e3 * tpot:.2f} ms (x{got[0] / tpot:.3f}), "
                    f"{duration:.2f} s (x{got[1] / duration:.3f})")
        print(line(name, load, got, measured(rows), note))
    for (name, load), rows in own.items():
        row = rows[-1]
        if not name.startswith(prefix):
            continue
        server = {"model_path": row["model"], "tp_size": 1, "version": "0.5.12", "page_size": 1 if
                  row["backend"] != "flashmla" else 64, "attention_backend": row["backend"]}
        flags = row["flags"].split() + ["--load-format", row["load_format"]]

        def own_load(folder):
            given = load_flags(load, rows, folder)
            if row["accept_len"]:
                path = os.path.join(folder, "accept_lengths.csv")
                low = int(float(row["accept_len"]))
                with open(path, "w") as out:
                    share = float(row["accept_len"]) - low
                    out.write(f"{low},{1 - share}\n" + (f"{low + 1},{share}\n" if share > 0 else ""))
                given += ["--speculative-accept-lengths", path]
            return given + draft_flags(flags, folder)

        got = predicted(tpsim, serving, server, flags, own_load)
        print(line("own " + name, load, got, seconds(row), f"; repeat {row['repeat']}" if len(rows) > 1 else ""))


if __name__ == "__main__":
    main()
