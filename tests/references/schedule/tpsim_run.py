"""tpsim on the same workload: what its steps.csv, requests.csv, report.json and recorded batches say."""

import csv
import json
import os
import subprocess
import tempfile

import workloads

_SWITCHES = ("enable_mixed_chunk", "disable_radix_cache", "disable_overlap_schedule", "enable_priority_scheduling",
             "schedule_low_priority_values_first", "disable_priority_preemption")
_VALUES = ("page_size", "max_total_tokens", "max_running_requests", "max_prefill_tokens", "chunked_prefill_size",
           "schedule_policy", "schedule_conservativeness")


def speculates(config):
    return "speculative_algorithm" in config


def trace_lines(requests):
    for r in requests:
        line = {"arrival_time": r["arrival"] / workloads.TICKS, "prompt": r["prompt"], "output": r["output"],
                "max_new_tokens": r["max_new_tokens"]}
        if r["priority"] is not None:
            line["priority"] = r["priority"]
        if r["extra_key"] is not None:
            line["extra_key"] = r["extra_key"]
        if not r["ignore_eos"]:
            line["ignore_eos"] = False
        if "accept_lens" in r:
            line["accept_lens"] = r["accept_lens"]
        yield json.dumps(line) + "\n"


def _flags(config, release):
    flags = ["--sglang-version", release]
    for name in _VALUES:
        flags += ["--" + name.replace("_", "-"), str(config[name])]
    flags += ["--radix-eviction-policy", config["eviction_policy"]]
    flags += ["--" + name.replace("_", "-") for name in _SWITCHES if config[name]]
    if config["enable_priority_scheduling"]:
        flags += ["--priority-scheduling-preemption-threshold",
                  str(config["priority_scheduling_preemption_threshold"])]
    if config["retraction_policy"] != "length":
        flags += ["--retraction-policy", config["retraction_policy"]]
    if speculates(config):
        flags += ["--speculative-algorithm", config["speculative_algorithm"], "--speculative-accept-rates", "trace"]
        names = ["speculative_num_draft_tokens"]
        if config["speculative_algorithm"] == "NGRAM":
            flags += ["--speculative-ngram-max-bfs-breadth", "1"]
        else:
            names += ["speculative_num_steps", "speculative_eagle_topk"]
        for name in names:
            flags += ["--" + name.replace("_", "-"), str(config[name])]
    if config["sliding_window"]:
        flags += ["--swa-full-tokens-ratio", str(config["swa_full_tokens_ratio"])]
    if workloads.has_states(config):
        for name in ("mamba_radix_cache_strategy", "mamba_track_interval", "max_mamba_cache_size"):
            flags += ["--" + name.replace("_", "-"), str(config[name])]
    if config["max_concurrency"]:
        flags += ["--max-concurrency", str(config["max_concurrency"])]
    return flags


# Any model whose window layers SGLang gives a pool of their own, with a long context.
_WINDOW_MODEL = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 32,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"], "num_local_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 32000, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 150000.0,
    "eos_token_id": workloads.EOS, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}


# And any with gated delta-net layers.
_HYBRID_MODEL = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 4,
    "full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "num_experts": 0, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "vocab_size": 32000, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "eos_token_id": workloads.EOS, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "hidden_act": "silu",
}


# Models that draft for llama-3.1-8b.
_HEAD = {
    "architectures": ["LlamaForCausalLMEagle"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 1, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
_DRAFTS = {"EAGLE": _HEAD, "EAGLE3": {**_HEAD, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000}}


def _draft_flags(config, folder):
    algorithm = config.get("speculative_algorithm", "NGRAM")
    if algorithm == "NGRAM":
        return []
    path = "llama-3.2-3b"
    if algorithm in _DRAFTS:
        path = os.path.join(folder, "draft")
        os.mkdir(path)
        with open(os.path.join(path, "config.json"), "w") as file:
            json.dump(_DRAFTS[algorithm], file)
    return ["--speculative-draft-model-path", path]


def _model(config, folder):
    if not config["sliding_window"] and not workloads.has_states(config):
        return "llama-3.1-8b"
    path = os.path.join(folder, "model")
    os.mkdir(path)
    with open(os.path.join(path, "config.json"), "w") as file:
        # gpt-oss counts the token itself.
        json.dump({**_WINDOW_MODEL, "sliding_window": config["sliding_window"] + 1}
                  if config["sliding_window"] else _HYBRID_MODEL, file)
    return path


def run(binary, config, requests, release, more=()):
    with tempfile.TemporaryDirectory() as folder:
        trace, report, stream = (os.path.join(folder, name) for name in ("trace.jsonl", "report", "stream.pb"))
        with open(trace, "w") as out:
            out.writelines(trace_lines(requests))
        command = [binary, "run", "--model-path", _model(config, folder), "--hardware", "h200-sxm",
                   # Trees in pages are for flashinfer alone.
                   "--attention-backend", "flashinfer" if config.get("speculative_eagle_topk", 1) > 1 else "fa3",
                   "--context-length", "131072", "--trace", trace, "--trace-format", "tpsim", "--report-dir", report,
                   "--record-batches", stream, "--quiet", "--check-invariants", *_flags(config, release),
                   *_draft_flags(config, folder), *more]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return {"error": f"exit {done.returncode}: {done.stderr.strip()[-400:]}"}
        rows, finished = _rows(os.path.join(report, "steps.csv")), _rows(os.path.join(report, "requests.csv"))
        with open(os.path.join(report, "report.json")) as file:
            summary = json.load(file)
        with open(stream, "rb") as file:
            extends = _extends(file.read())
    steps = []
    for row, extend in zip(rows, extends, strict=True):
        steps.append({
            "mode": "DECODE" if row["forward_mode"] == "TARGET_VERIFY" else row["forward_mode"],
            "kv_free": int(row["kv_free_tokens"]),
            "kv_cached": int(row["kv_cached_tokens"]),
            "extends": extend,
            "end": float(row["start_time"]) + float(row["step_time"]),
        })
        if config["sliding_window"]:
            steps[-1].update(swa_free=int(row["swa_free_tokens"]), swa_cached=int(row["swa_cached_tokens"]))
        if workloads.has_states(config):
            steps[-1].update(states_free=int(row["states_free"]), states_cached=int(row["states_cached"]))
        for name in ("extend_requests", "extend_tokens", "cached_tokens", "decode_requests", "waiting", "running"):
            steps[-1][name] = int(row[name])
    if "runs" in summary:
        summary = summary["runs"][0]
    return {
        "steps": steps,
        "rejected": sorted(int(r["id"]) for r in finished if r["state"] != "completed"),
        "retractions": {int(r["id"]): int(r["retractions"]) for r in finished},
        "output_tokens": {int(r["id"]): int(r["output_tokens"]) for r in finished},
        "evicted": summary.get("evicted_tokens"),
        "duration": steps[-1]["end"] if steps else 0,
    }


def _rows(path):
    with open(path) as file:
        return list(csv.DictReader(file))


# ---- the recorded stream (proto/forward.proto): messages behind their lengths ----

_PREFIX_LENS, _EXTEND_LENS, _END_OF_RUN = 5, 6, 15


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _fields(data):
    """{field number: [values]}; of length-delimited fields, their bytes."""
    fields, at = {}, 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            at += 8 if kind == 1 else 4
            continue
        fields.setdefault(number, []).append(value)
    return fields


def _numbers(items):
    for item in items:
        if isinstance(item, int):
            yield item
            continue
        at = 0
        while at < len(item):
            value, at = _varint(item, at)
            yield value


def _extends(data):
    """[(prefix length, extend length) of every extend request] of every batch."""
    at, batches, header = 0, [], True
    while at < len(data):
        length, at = _varint(data, at)
        message, at = data[at : at + length], at + length
        if header:  # the stream's own first message
            header = False
            continue
        fields = _fields(message)
        if not fields.get(_END_OF_RUN):
            batches.append(list(zip(_numbers(fields.get(_PREFIX_LENS, [])), _numbers(fields.get(_EXTEND_LENS, [])),
                                    strict=True)))
    return batches
