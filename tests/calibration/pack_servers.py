"""Packs what a measuring client left of real servers (NAME.jsonl, NAME.log, NAME.info.json) into three small files.

    python3 pack_servers.py OUT NAME.jsonl ...

Writes OUT/requests.csv.gz (a row a request), OUT/batches.csv.gz (a row a batch of the server, cut where its cache
was flushed) and OUT/servers.jsonl, as `tpsim validate --measurements` reads them. Failed requests
are left out, and loads of the kind "profile", which ran under SGLang's profiler.
"""
import csv
import gzip
import io
import json
import os
import re
import shlex
import sys

REQUESTS = ("server,model,tp,prefill_attention_backend,decode_attention_backend,kv_cache_dtype,load,request,sent_s,"
            "first_token_s,last_token_s,input_tokens,output_tokens,cached_tokens,itl_p50_ms,itl_p99_ms,other_flags")
BATCHES = ("server,load,step,mode,new_seqs,new_tokens,cached_tokens,running,queued,token_usage,cuda_graph,"
           "gen_tokens_per_s,kv_tokens,accept_len")
PREFILL = re.compile(r"Prefill batch.*#new-seq: (\d+), #new-token: (\d+), #cached-token: (\d+), (?:full )?token usage: ([\d.]+), "
                     r"(?:[a-z ]*usage: [\d.]+, )*#running-req: (\d+), #queue-req: (\d+).*cuda graph: (\w+)")
DECODE = re.compile(r"Decode batch, #running-req: (\d+), #(?:full )?token: (\d+), (?:full )?token usage: ([\d.]+),(?: accept len: ([\d.]+),)?"
                    r".*?cuda graph: (\w+), gen throughput \(token/s\): ([\d.]+), #queue-req: (\d+)")
KEPT = ("tp_size dp_size ep_size page_size kv_cache_dtype quantization attention_backend chunked_prefill_size "
        "max_prefill_tokens mem_fraction_static cuda_graph_max_bs schedule_policy schedule_conservativeness "
        "enable_mixed_chunk disable_overlap_schedule disable_radix_cache disable_cuda_graph "
        "disable_piecewise_cuda_graph enable_dp_attention piecewise_cuda_graph_max_tokens sampling_backend "
        "speculative_algorithm speculative_num_draft_tokens max_total_num_tokens max_req_input_len version").split()
# Flags that the columns of a request do not say already; a switch is given where it is true.
FLAGS = {"page_size": 1, "dp_size": 1, "ep_size": 1, "quantization": None, "speculative_algorithm": None,
         "enable_mixed_chunk": False, "disable_overlap_schedule": False, "disable_radix_cache": False,
         "disable_cuda_graph": False, "disable_piecewise_cuda_graph": False, "enable_dp_attention": False,
         "chunked_prefill_size": 8192, "max_total_tokens": None, "linear_attn_prefill_backend": None}
DRAFTS = {"NGRAM": ["num_draft_tokens"]}
OTHER_DRAFTS = ["num_steps", "eagle_topk", "num_draft_tokens", "draft_model_path"]


def batches(path):
    """The batches of each load: lists of rows behind `mode`; element 0 is before the first load."""
    found, step = [[]], 0
    for line in open(path, errors="replace"):
        if "Cache flushed successfully" in line:
            found.append([])
            step = 0
        elif m := PREFILL.search(line):
            new, tokens, cached, usage, running, queued, graph = m.groups()
            found[-1].append([step, "extend", new, tokens, cached, running, queued, usage, graph, "", "", ""])
            step += 1
        elif m := DECODE.search(line):
            running, tokens, usage, accepted, graph, rate, queued = m.groups()
            found[-1].append([step, "decode", "", "", "", running, queued, usage, graph, rate, tokens, accepted or ""])
            step += 1
    return found


def of_loads(tokens, parts):
    """The part of each load, by the tokens of its prompts: a server is flushed at other times, too."""
    after, found = 1, []
    for wanted in tokens:
        prefilled = [sum(int(row[3]) + int(row[4]) for row in part if row[1] == "extend") for part in parts]
        at = next((i for i in range(after, len(parts)) if abs(prefilled[i] - wanted) <= 0.01 * wanted), None)
        found.append([] if at is None else parts[at])
        after = after if at is None else at + 1
    return found


def flags(info):
    given = []
    for name, default in FLAGS.items():
        value, word = info.get(name), "--" + name.replace("_", "-")
        # DP attention divides the chunk between its ranks, and turns piecewise graphs off, by itself.
        if value is None or value == default or (info.get("enable_dp_attention") and name in ("chunked_prefill_size",
                                                                             "disable_piecewise_cuda_graph")):
            continue
        given.append(word if value is True else f"{word} {shlex.quote(str(value))}")
    if algorithm := info.get("speculative_algorithm"):
        for name in DRAFTS.get(algorithm, OTHER_DRAFTS):
            value = info[f"speculative_{name}"]
            value = os.path.basename(value) if name == "draft_model_path" else value
            given.append(f"--speculative-{name.replace('_', '-')} {shlex.quote(str(value))}")
    return " ".join(given)


def write(path, header, rows):
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(header.split(","))
    out.writerows(rows)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.getvalue().encode())


def main():
    folder, requests, logged, servers = sys.argv[1], [], [], []
    for path in sys.argv[2:]:
        base = path[: -len(".jsonl")]
        info = json.load(open(base + ".info.json"))
        own = (info.get("internal_states") or [{}])[0]
        if info.get("enable_dp_attention"):  # of 0.5.23, which keeps replicas alone in dp_size
            info["dp_size"] = info.get("attn_dp_size") or info["dp_size"]
        name, model = os.path.basename(base), os.path.basename(info["model_path"])
        backend = own.get("attention_backend") or info["attention_backend"]
        loads = {}
        for line in open(path):
            r = json.loads(line)
            loads[r["load"]] = loads.get(r["load"], 0) + r.get("isl", 0)
            if r["load"].startswith("profile") or "error" in r or r.get("first") is None:
                continue
            itl = [f"{r[k] * 1e3:.3f}" if k in r else "" for k in ("itl_p50", "itl_p99")]
            requests.append([name, model, info["tp_size"], backend, backend, info["kv_cache_dtype"], r["load"], r["i"],
                             r["sent"], r["first"], r["last"], r["isl"], r["osl"], r["cached"], *itl, flags(info)])
        for load, rows in zip(loads, of_loads(loads.values(), batches(base + ".log"))):
            if not load.startswith("profile"):
                logged += [[name, load, *row] for row in rows]
        servers.append(dict({"server": name, "model_path": model, "memory_usage_gb": own.get("memory_usage")},
                            **{key: info.get(key) for key in KEPT}))
        if servers[-1]["cuda_graph_max_bs"] is None:  # the name until 0.5.14
            servers[-1]["cuda_graph_max_bs"] = info.get("cuda_graph_max_bs_decode")
    os.makedirs(folder, exist_ok=True)
    write(f"{folder}/requests.csv.gz", REQUESTS, requests)
    write(f"{folder}/batches.csv.gz", BATCHES, logged)
    with open(f"{folder}/servers.jsonl", "w") as file:
        file.writelines(json.dumps(s) + "\n" for s in servers)


if __name__ == "__main__":
    main()
