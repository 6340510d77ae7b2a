"""Predicted against measured serving: the loads of shared/data/serving through `tpsim run`.

    python3 serving.py TPSIM SERVING_FOLDER [SERVER-PREFIX]

One line a load: mean time per output token, weighted by tokens, and duration, with the ratio of predicted to measured.
The measured servers had dummy weights; only their server of even routing (measured/h200-sxm_serving.csv) is said to
have others. Of one with speculative decoding, the tokens kept of a step are given as it reports them: n-grams by how far the
answers were, for an n-gram cache fills while they grow, so that requests that began together end together.

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


def means_by_position(batches, answer):
    """Mean tokens kept of a step by how many an answer had before it. `batches`: in order, ("extend", new sequences) or
    ("decode", running requests, their mean). Requests of a closed loop go on about together; the ones that have most
    are taken to be those that ended. Steps that the end of an answer may have cut short are left out."""
    batches = list(batches)
    longest = max((mean[0] for mode, _, *mean in batches if mode == "decode"), default=1)
    positions, sums = [], collections.defaultdict(lambda: [0.0, 0])
    for mode, count, *mean in batches:
        if mode == "extend":
            positions += [1.0] * count
            continue
        positions = sorted(positions)[:count]
        for at in positions:
            if at + longest < answer:
                total = sums[int(at) if at < 24 else int(at) // 16 * 16]
                total[0] += mean[0]
                total[1] += 1
        positions = [at + mean[0] for at in positions]
    found = {}
    for at in sorted(sums):
        value = sums[at][0] / sums[at][1]
        if not found or abs(value - found[last]) > 0.2:
            found[at], last = value, at
    return found


def write_accept_lengths(means, folder):
    """Means by position as a file: what is between two whole numbers is a mixture of both."""
    path = os.path.join(folder, "accept_lengths.csv")
    with open(path, "w") as out:
        out.write("position,accept_len,count\n")
        for at, mean in sorted(means.items()):
            low = int(mean)
            share = round(mean - low, 4)
            out.writelines(f"{at},{length},{weight}\n" for length, weight in ((low, 1 - share), (low + 1, share))
                           if weight > 0)
    return path


def in_step(mean, answer):
    """A server that was told to keep `mean` tokens of a step draws once for all requests of it, so they end together:
    here all keep as many from each position."""
    lengths, at, due = {}, 1, 1 + mean
    while at < answer:
        lengths[at] = max(1, round(due) - at)
        at, due = at + lengths[at], due + mean
    return lengths


def accept_lengths(serving, name, load, folder):
    """What the batches of a load report."""
    batches = []
    with gzip.open(os.path.join(serving, "batches.csv.gz"), "rt") as stream:
        for r in csv.DictReader(stream):
            if (r["server"], r["load"]) != (name, load):
                continue
            batches.append(("extend", int(r["new_seqs"])) if r["mode"] == "extend" else
                           ("decode", int(r["running"]), float(r["accept_len"])))
    return write_accept_lengths(means_by_position(batches, int(load.split(":")[2])), folder)


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
                if ":" in row["accept_len"]:
                    means = {int(at): float(mean) for at, mean in
                             (pair.split(":") for pair in row["accept_len"].split())}
                else:
                    means = in_step(float(row["accept_len"]), int(load.split(":")[2]))
                given += ["--speculative-accept-lengths", write_accept_lengths(means, folder)]
            return given + draft_flags(flags, folder)

        got = predicted(tpsim, serving, server, flags, own_load)
        print(line("own " + name, load, got, seconds(row), f"; repeat {row['repeat']}" if len(rows) > 1 else ""))


if __name__ == "__main__":
    main()
