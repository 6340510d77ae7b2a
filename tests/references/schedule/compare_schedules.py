#!/usr/bin/env python3
"""tpsim's schedule against SGLang's own code, step by step, on random workloads. See README.md."""

import argparse
import collections
import importlib.metadata
import json
import multiprocessing
import os
import sys
import time
import traceback

import clock
import tpsim_run
import workloads

FIELDS = ("mode", "extend_requests", "extend_tokens", "cached_tokens", "decode_requests", "waiting", "running",
          "kv_free", "kv_cached", "extends", "swa_free", "swa_cached", "states_free", "states_cached")
AXES = ("page_size", "schedule_policy", "chunked_prefill_size", "enable_mixed_chunk", "disable_overlap_schedule",
        "disable_radix_cache", "eviction_policy", "max_running_requests", "max_prefill_tokens", "max_concurrency",
        "enable_priority_scheduling", "priorities", "eos", "extra_keys", "arrivals", "pool", "kind",
        "sliding_window", "swa_full_tokens_ratio")


def first_difference(mine, theirs):
    """None, or (step, field, tpsim's value, SGLang's value)."""
    for number, (a, b) in enumerate(zip(mine["steps"], theirs["steps"])):
        for field in FIELDS:
            if a.get(field) != b.get(field):
                return number, field, a[field], b[field]
    counts = len(mine["steps"]), len(theirs["steps"])
    if theirs["stuck"] and "truncated" in theirs["stuck"]:
        return None  # what SGLang computes from there on is not what it was asked
    if theirs["stuck"] and counts[0] >= counts[1] and mine["rejected"]:
        return None  # tpsim refuses the request for which SGLang waits for ever, and goes on
    if counts[0] != counts[1] or theirs["stuck"]:
        return min(counts), "number of steps", counts[0], theirs["stuck"] or counts[1]
    if mine["rejected"] != theirs["rejected"]:
        return counts[0], "rejected", mine["rejected"], theirs["rejected"]
    for field in ("retractions", "output_tokens"):
        if mine[field] != theirs[field]:
            at = [i for i in mine[field] if mine[field][i] != theirs[field].get(i)][:5]
            return counts[0], field, {i: mine[field][i] for i in at}, {i: theirs[field].get(i) for i in at}
    if mine["evicted"] != theirs["evicted"]:
        return counts[0], "evicted tokens", mine["evicted"], theirs["evicted"]
    return None


def compare(job):
    seed, options = job
    started = time.time()
    config, requests = workloads.make(seed, options["kind"], options["release"], options["windows"])
    config.update(options["set"])
    if options["speculative"]:
        workloads.speculate(config, requests, options["speculative"], options["release"])
    config["eos"] = any(not r["ignore_eos"] for r in requests)
    config["extra_keys"] = any(r["extra_key"] for r in requests)
    result = {"seed": seed, "config": config, "requests": len(requests)}
    mine = tpsim_run.run(options["tpsim"], config, requests, options["release"])
    if "error" in mine:
        return {**result, "error": "tpsim: " + mine["error"]}
    config["step_limit"] = 4 * len(mine["steps"]) + 1000
    try:
        import sglang_scheduler

        theirs = sglang_scheduler.run(config, requests, clock.StepTimes([s["end"] for s in mine["steps"]]))
    except Exception as error:  # noqa: BLE001: the others are compared all the same
        return {**result, "error": f"SGLang: {type(error).__name__}: {error}\n" + traceback.format_exc(limit=-6)}
    difference = first_difference(mine, theirs)
    result.update(difference=difference, stuck=theirs["stuck"], steps=len(mine["steps"]), sglang_steps=len(theirs["steps"]),
                  retractions=sum(mine["retractions"].values()), evicted=mine["evicted"], seconds=time.time() - started)
    if difference and options["context"]:
        at = difference[0]
        result["context"] = [[{k: s[k] for k in (*FIELDS, "requests") if k in s}
                              for s in side["steps"][max(0, at - options["context"]) : at + 2]]
                             for side in (mine, theirs)]
    return result


def describe(r):
    c = r["config"]
    words = [f"seed {r['seed']}:", f"page {c['page_size']}", c["schedule_policy"], f"chunk {c['chunked_prefill_size']}"]
    for name, text in (("enable_mixed_chunk", "mixed"), ("disable_overlap_schedule", "no-overlap"),
                       ("disable_radix_cache", "no-radix"), ("eos", "eos"), ("extra_keys", "extra-keys")):
        if c[name]:
            words.append(text)
    words += [c["eviction_policy"], f"pool {c['max_total_tokens']} {c['pool']}", f"run {c['max_running_requests']}",
              f"prefill {c['max_prefill_tokens']}", f"cons {c['schedule_conservativeness']}", c["arrivals"]]
    if c["max_concurrency"]:
        words.append(f"concurrency {c['max_concurrency']}")
    if tpsim_run.speculates(c):
        words.append(f"{c['speculative_algorithm']} {c['speculative_num_steps']}x{c['speculative_eagle_topk']} "
                     f"{c['speculative_num_draft_tokens']} drafts")
    if c["sliding_window"]:
        words.append(f"window {c['sliding_window']} ratio {c['swa_full_tokens_ratio']}")
    if workloads.has_states(c):
        words.append(f"{c['mamba_radix_cache_strategy']} {c['max_mamba_cache_size']} states, every "
                     f"{c['mamba_track_interval']} tokens")
    if c["priorities"]:
        words.append("priorities " + ",".join(str(p) for p in c["priorities"]))
    if c["enable_priority_scheduling"]:
        words.append("scheduled" + (" low first" if c["schedule_low_priority_values_first"] else "")
                     + (" no preemption" if c["disable_priority_preemption"] else
                        f" threshold {c['priority_scheduling_preemption_threshold']}"))
    return " ".join(words)


def report(r):
    if "error" in r:
        print(describe(r), "ERROR", r["error"], flush=True)
    elif r["difference"] is None:
        end = f" until SGLang waits for ever: {r['stuck']}" if r["stuck"] else ""
        print(describe(r), f"equal: {r['steps']} steps, {r['retractions']} retractions, {r['evicted']} evicted{end}",
              flush=True)
    else:
        step, field, a, b = r["difference"]
        text = f"DIFFERS at step {step} of {r['steps']}/{r['sglang_steps']}: {field} tpsim {a} sglang {b}"
        print(describe(r), text[:600], flush=True)
        for name, steps in zip(("tpsim ", "sglang"), r.get("context", [])):
            for step in steps:
                print("   ", name, step, flush=True)


def summary(results):
    for axis in AXES:
        table = collections.defaultdict(lambda: [0, 0])
        for r in results:
            row = table[str(r["config"][axis])]
            row[0] += is_equal(r)
            row[1] += 1
        print(f"{axis}: " + ", ".join(f"{value} {equal}/{all_}" for value, (equal, all_) in sorted(table.items())))
    done = [r for r in results if "error" not in r]
    print("first difference in:", dict(collections.Counter(r["difference"][1] for r in done if r["difference"])),
          "errors:", len(results) - len(done))
    print("requests:", sum(r["requests"] for r in done), "steps:", sum(r["steps"] for r in done),
          "retractions:", sum(r["retractions"] for r in done),
          "evicted tokens:", sum(r["evicted"] or 0 for r in done), "SGLang waits for ever:",
          sum(bool(r["stuck"]) for r in done))


def is_equal(r):
    return "error" not in r and r["difference"] is None


def add_release_arguments(parser):
    parser.add_argument("--release", default="0.5.23", choices=("0.5.23", "0.5.14", "0.5.12"),
                        help="of SGLang, that is installed or in --site")
    parser.add_argument("--site", help="folder that holds that SGLang: pip install --no-deps --target FOLDER")


def use_release(args):
    """Makes `import sglang` find that release, here and in processes that are started from here."""
    if args.site:
        os.environ["PYTHONPATH"] = args.site
        sys.path.insert(0, args.site)
    found = importlib.metadata.version("sglang")
    if found != args.release:
        sys.exit(f"SGLang {found} is installed, not {args.release}: see --site")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tpsim", help="path of the tpsim binary")
    parser.add_argument("workloads", type=int, help="how many")
    add_release_arguments(parser)
    parser.add_argument("--kind", default="usual", choices=tuple(workloads.KINDS))
    parser.add_argument("--speculative", choices=workloads.SPECULATIONS, help="with speculative decoding")
    parser.add_argument("--windows", action="store_true", help="with window layers that have a pool of their own")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="fix one axis")
    parser.add_argument("--context", type=int, default=0, help="steps to show before the first difference")
    parser.add_argument("--json", help="write all results to this file")
    args = parser.parse_args()
    use_release(args)
    options = {"tpsim": args.tpsim, "windows": args.windows, "speculative": args.speculative, "release": args.release,
               "kind": args.kind, "context": args.context,
               "set": {k: json.loads(v) for k, v in (item.split("=", 1) for item in args.set)}}
    jobs = [(seed, options) for seed in range(args.first_seed, args.first_seed + args.workloads)]
    results = []
    if args.jobs > 1:
        with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
            for result in pool.imap_unordered(compare, jobs):
                results.append(result)
                report(result)
    else:
        for job in jobs:
            results.append(compare(job))
            report(results[-1])
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file)
    summary(results)
    equal = sum(is_equal(r) for r in results)
    print(f"{equal} of {len(results)} workloads equal on every step")
    sys.exit(0 if equal == len(results) else 1)


if __name__ == "__main__":
    main()
