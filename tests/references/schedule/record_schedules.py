#!/usr/bin/env python3
"""Records the schedules of SGLang's own scheduler on random workloads, for tests/unit/scheduler. See README.md.

The file is gzip-compressed text, one workload after the other, words between spaces (the reader is
tests/unit/scheduler/recorded_schedule.cc):

  workload KIND SEED
  KEY VALUE                  the deployment, a line for each of KEYS, with --windows of WINDOW_KEYS, with --pipeline
                             of PIPELINE_KEYS, too
  requests N                 then a line for each:
    ARRIVAL MAX_NEW_TOKENS IGNORE_EOS PRIORITY EXTRA_KEY [PROMPT] [OUTPUT] KEPT @CANCEL
                             arrival in ticks after the one before; PRIORITY and EXTRA_KEY "-" where there is none;
                             PROMPT and OUTPUT runs FIRST:LENGTH of ids, first in units of workloads.RUN, or 0 for EOS;
                             KEPT, only with --speculative, how many tokens each of its steps keeps, comma between;
                             CANCEL, where its client wants no more of it: so many ticks after its arrival
  states SLOTS TRACKING CHUNK INTERVAL
                             only with --states, before the requests: scheduler/config.h's StateConfig
  speculation ALGORITHM STEPS TOPK DRAFTS
                             only with --speculative, before the requests
  steps N                    then a line for each:
    MODE DECODE WAITING RUNNING FREE CACHED [HIT PREFIX+EXTEND …]
                             five differences from the step before, of decode requests, waiting, running, free and
                             evictable tokens; with --windows two more, of free and evictable tokens of their pool,
                             with --states of free and evictable states;
                             then, where there is an extend part, its cached tokens and requests
  evicted TOKENS
  outcomes                   then a line for each request: completed|refused|cancelled OUTPUT_TOKENS RETRACTIONS

A pass takes what clock.TickTimes says; with --pipeline, clock.PipelineTicks.
"""

import argparse
import gzip

import clock
import compare_schedules
import pipeline
import workloads

# How many workloads of each kind; their seeds are 1, 2, …
MIX = {"small": 200, "usual": 60, "pressure": 20}
KEYS = ("page_size", "max_total_tokens", "max_running_requests", "max_prefill_tokens", "chunked_prefill_size",
        "schedule_policy", "schedule_conservativeness", "eviction_policy", "max_concurrency", "enable_mixed_chunk",
        "disable_radix_cache", "disable_overlap_schedule", "enable_priority_scheduling",
        "schedule_low_priority_values_first", "priority_scheduling_preemption_threshold",
        "disable_priority_preemption", "retraction_policy")
PIPELINE_MIX = {"small": 160, "usual": 30, "pressure": 20}
PIPELINE_KEYS = ("pp_size", "pp_async_batch_depth", "micro_batch")
WINDOW_MIX = {"small": 100, "usual": 30, "pressure": 12}
WINDOW_KEYS = ("sliding_window", "swa_max_total_num_tokens")
_WINDOW_GAUGES = ("swa_free", "swa_cached")
STATES_MIX = {"states": 120}
# Of each sort of speculation (workloads.SPECULATIONS); in pools that requests are retracted from, too.
SPECULATIVE_MIX = {"small": 14, "usual": 4, "starved": 8}
# With --cancel, of each sort of deployment that the release has: (its name, kinds).
CANCEL_MIX = (("plain", {"small": 60, "usual": 15, "pressure": 15}), ("windows", {"small": 30, "pressure": 6}),
              ("states", {"states": 20}), ("pipeline", {"small": 30, "pressure": 8}),
              *((sort, {"small": 5, "starved": 6}) for sort in workloads.SPECULATIONS))
CANCEL_SORTS = {"0.5.12": {"plain", "pipeline", *workloads.SPECULATIONS}, "0.5.14": {"plain"}}
_STATE_GAUGES = ("states_free", "states_cached")
_GAUGES = ("decode_requests", "waiting", "running", "kv_free", "kv_cached")


def _word(value):
    if value is None:
        return "-"
    return str(int(value)) if isinstance(value, bool) else str(value)


def _runs(runs):
    for first, length in runs:
        if first != workloads.EOS and first % workloads.RUN:
            raise ValueError(f"a run that begins at {first}")
    return "[" + " ".join(f"{first // workloads.RUN}:{length}" for first, length in runs) + "]"


def lines(config, requests, schedule):
    yield f"workload {config['kind']} {config['seed']}"
    for key in KEYS:
        yield f"{key} {_word(config[key])}"
    for key in PIPELINE_KEYS if "pp_size" in config else ():
        yield f"{key} {_word(config[key])}"
    names = _GAUGES
    if config["sliding_window"]:
        names += _WINDOW_GAUGES
        for key in WINDOW_KEYS:
            yield f"{key} {config[key]}"
    if workloads.has_states(config):
        names += _STATE_GAUGES
        tracking = workloads.state_slots_per_request(config) - 3
        chunk = max(workloads.STATE_CHUNK, config["page_size"])
        yield f"states {config['max_mamba_cache_size']} {tracking} {chunk} {config['mamba_track_interval']}"
    if "speculative_algorithm" in config:
        yield " ".join(["speculation", config["speculative_algorithm"], *(str(config["speculative_" + name]) for name in (
            "num_steps", "eagle_topk", "num_draft_tokens"))])
    yield f"requests {len(requests)}"
    before = 0
    for r in requests:
        words = (r["arrival"] - before, r["max_new_tokens"], r["ignore_eos"], r["priority"], r["extra_key"])
        kept = [",".join(map(str, r["accept_lens"]))] if "accept_lens" in r else []
        cancel = [f"@{r['cancel'] - r['arrival']}"] if "cancel" in r else []
        yield " ".join([*map(_word, words), _runs(r["prompt"]), _runs(r["output"]), *kept, *cancel])
        before = r["arrival"]
    yield f"steps {len(schedule['steps'])}"
    gauges = [0] * len(names)
    for step in schedule["steps"]:
        now = [step[name] for name in names]
        words = [step["mode"][0], *(str(b - a) for a, b in zip(gauges, now))]
        if step["extends"]:
            words += [str(step["cached_tokens"]), *(f"{prefix}+{extend}" for prefix, extend in step["extends"])]
        gauges = now
        yield " ".join(words)
    yield f"evicted {schedule['evicted']}"
    yield "outcomes"
    refused, cancelled = set(schedule["rejected"]), set(schedule["cancelled"])
    for i in range(len(requests)):
        state = "cancelled" if i in cancelled else "refused" if i in refused else "completed"
        yield f"{state} {schedule['output_tokens'].get(i, 0)} {schedule['retractions'].get(i, 0)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="file to write, .txt.gz")
    parser.add_argument("--pipeline", action="store_true", help="of pipeline stages (pipeline.py)")
    parser.add_argument("--windows", action="store_true", help="with window layers that have a pool of their own")
    parser.add_argument("--states", action="store_true", help="of a model with gated delta-net layers")
    parser.add_argument("--speculative", action="store_true", help="with speculative decoding, of all sorts")
    parser.add_argument("--cancel", action="store_true", help="of all sorts, with clients that leave")
    compare_schedules.add_release_arguments(parser)
    args = parser.parse_args()
    compare_schedules.use_release(args)
    import sglang_scheduler

    text, left_out, steps, retractions = [], [], 0, 0
    mix = (PIPELINE_MIX if args.pipeline else WINDOW_MIX if args.windows else STATES_MIX if args.states else
           SPECULATIVE_MIX if args.speculative else MIX)
    sorts = workloads.SPECULATIONS if args.speculative else (None,)
    mixes = [(sort, mix) for sort in sorts]
    if args.cancel:
        known = CANCEL_SORTS.get(args.release, {name for name, _ in CANCEL_MIX})
        mixes = [(name, mix) for name, mix in CANCEL_MIX if name in known]
    workloads_ = [(kind, seed, sort) for sort, mix in mixes for kind, count in mix.items() for seed in range(1, count + 1)]
    for kind, seed, sort in workloads_:
        staged = args.pipeline or sort == "pipeline"
        if staged:
            config, requests = pipeline.make(seed, kind, args.release)
        else:
            config, requests = workloads.make(seed, kind, args.release, args.windows or sort == "windows")
        if sort in workloads.SPECULATIONS:
            workloads.speculate(config, requests, sort, args.release)
        if args.cancel:
            workloads.cancel(config, requests)
        config["step_limit"] = 100_000
        if staged:
            schedule = pipeline.run_sglang(config, requests, clock.PipelineTicks(config["pp_size"]))
        else:
            schedule = sglang_scheduler.run(config, requests, clock.TickTimes())
        config["swa_max_total_num_tokens"] = schedule["swa_tokens"]
        if schedule["stuck"]:  # a server that spins for ever has no end to compare with
            left_out.append(f"{kind} {seed}: {schedule['stuck']}")
            continue
        text += lines(config, requests, schedule)
        steps += len(schedule["steps"])
        retractions += sum(schedule["retractions"].values())
    with open(args.output, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write("".join(line + "\n" for line in text).encode())
    print(f"{args.output}: {len(workloads_) - len(left_out)} workloads, {steps} steps, {retractions} retractions; "
          f"left out: {left_out or 'none'}")


if __name__ == "__main__":
    main()
