#!/usr/bin/env python3
"""tpsim's data-parallel attention against SGLang's own code: as many Schedulers as there are data-parallel ranks, in
threads that meet where SGLang's processes do, in the all-gather of prepare_mlp_sync_batch. See README.md.

Compared, step by step and rank by rank: forward mode (IDLE included), (prefix length, extend length) of every extend
request, decoding requests, whether a graph may be replayed and for how many requests; then every request's retractions
and output.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import traceback

import clock
import compare_schedules
import tpsim_run
import workloads

MODES = {1: "EXTEND", 2: "DECODE", 3: "MIXED", 4: "IDLE"}
GRAPHS = (1, 2, 4, 8)


class Lockstep:
    """Threads that exchange a value each and go on together."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size)
        self.slots = [None] * size

    def exchange(self, rank, value):
        self.slots[rank] = value
        self.barrier.wait(timeout=60)
        result = list(self.slots)
        self.barrier.wait(timeout=60)
        return result


class SharedClock:
    """A pass ends when that of all ranks together does."""

    def __init__(self, inner, lockstep, rank):
        self.inner, self.lockstep, self.rank = inner, lockstep, rank
        self.scheduler_step_seconds = inner.scheduler_step_seconds

    def end_of_step(self, number, now, extend_tokens, decode_requests):
        parts = self.lockstep.exchange(self.rank, (extend_tokens, decode_requests))
        return self.inner.end_of_step(number, now, sum(p[0] for p in parts), sum(p[1] for p in parts))


def make_scheduler(config, workload, inner_clock, args, lockstep, rank, size):
    import sglang_scheduler
    import stand_ins
    import torch
    from sglang.srt.managers import scheduler_dp_attn_mixin as dp_attn

    class Rank(sglang_scheduler.SimScheduler):
        def __init__(self):
            super().__init__(config, workload, SharedClock(inner_clock, lockstep, rank), args)
            self.require_mlp_sync = True
            self.arrived = 0
            if config["delayer"]:
                self.prefill_delayer = make_delayer(self, args, config["delayer"], size)
                self.prefill_delayer._gather_info = lambda **info: torch.tensor(
                    lockstep.exchange(rank, [int(value) for value in info.values()]))

        def _receive(self, index):  # round robin
            if index % size == rank:
                super()._receive(index)
            else:
                self.in_flight.discard(index)

        def _add_request_to_queue(self, req, is_retracted=False):
            req.logprob_start_len = -1  # nobody asks for log-probabilities: handle_generate_request
            super()._add_request_to_queue(req, is_retracted=is_retracted)

        def stream_output_generation(self, *outputs, **kwargs):
            pass

        def _has_left(self, index):
            return index % size != rank or super()._has_left(index)

        def _pass_idle_time(self):
            waiting = any(lockstep.exchange(rank, bool(self.waiting_queue)))
            if not waiting and self._may_send():
                self.now = max(self.now, self._next_time())
                return
            if self.idle_passes < (3 + config["delayer"].get("max-delay-passes", 0) if waiting else 3):
                return
            if self._may_send():
                self.now = max(self.now, self._next_time())
            elif waiting:
                raise sglang_scheduler.Stuck("requests wait for ever")
            else:
                raise sglang_scheduler.Finished

        def maybe_prepare_mlp_sync_batch(self, batch, need_sync=None):
            group = stand_ins.Nothing(cpu_group=(lockstep, rank))
            return dp_attn.prepare_mlp_sync_batch_raw(
                batch, dp_size=size, attn_tp_size=1, attn_cp_size=1, tp_group=group,
                get_idle_batch=lambda: dp_attn.SchedulerDPAttnMixin.get_idle_batch(self), disable_cuda_graph=False,
                require_mlp_tp_gather=True, disable_overlap_schedule=False, offload_tags=set(),
            )

        def run_batch(self, batch, *run_args, **kwargs):
            result = super().run_batch(batch, *run_args, **kwargs)
            self.steps[-1]["bucket"] = bucket_of(batch.can_run_dp_cuda_graph, max(batch.global_num_tokens))
            return result

    def all_gather(self, device, group):
        meet, which = group
        rows = meet.exchange(which, self._get_local_tensor(device="cpu"))
        info = torch.stack(rows)
        self.tp0_info = info
        self.global_num_tokens = info[:, 0].tolist()
        self.global_num_tokens_for_logprob = info[:, 1].tolist()
        self.can_cuda_graph = bool(info[:, 2].min().item())
        self.is_extend_in_batch = bool(info[:, 3].max().item())

    dp_attn.MLPSyncBatchInfo.all_gather = all_gather  # its group is the threads
    return Rank()


def make_delayer(scheduler, args, flags, size):
    """What Scheduler.init_schedule_policy makes, on the clock of the simulation."""
    import stand_ins
    from sglang.srt.managers import prefill_delayer

    prefill_delayer.time = stand_ins.Nothing(perf_counter=lambda: scheduler.now)
    for name, value in (("enable_dp_attention", True), ("prefill_delayer_queue_min_ratio", flags.get("queue-min-ratio")),
                        ("prefill_delayer_max_delay_ms", flags.get("max-delay-ms"))):
        object.__setattr__(args, name, value)
    return prefill_delayer.PrefillDelayer(
        dp_size=size, attn_tp_size=1, cpu_group=None, server_args=args, max_delay_passes=flags["max-delay-passes"],
        token_usage_low_watermark=flags.get("token-usage-low-watermark"))


def delayer_flags(rng):
    flags = {"max-delay-passes": rng.choice((1, 2, 5, 30))}
    for name, values in (("token-usage-low-watermark", (0.1, 0.4)), ("queue-min-ratio", (0.3, 0.6, 1.0)),
                         ("max-delay-ms", (5, 50))):
        if rng.random() < 0.4:
            flags[name] = rng.choice(values)
    return flags


def bucket_of(can_run, requests):
    """CudaGraphRunner.can_run and its padding."""
    return next((size for size in GRAPHS if size >= requests), 0) if can_run else 0


def run_sglang(config, requests, inner_clock, size):
    import json

    import sglang_scheduler

    workload = [dict(r, prompt=workloads.spell(r["prompt"]), output=workloads.spell(r["output"])) for r in requests]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(sglang_scheduler._MODEL, file)
        args = sglang_scheduler._server_args(config, folder)
        sglang_scheduler.release.publish(args, config)
        lockstep = Lockstep(size)
        ranks = [make_scheduler(config, workload, inner_clock, args, lockstep, r, size) for r in range(size)]
    ends = [None] * size

    def loop(rank):
        scheduler = ranks[rank]
        try:
            scheduler.event_loop_normal() if config["disable_overlap_schedule"] else scheduler.event_loop_overlap()
        except sglang_scheduler.Finished:
            ends[rank] = "finished"
        except threading.BrokenBarrierError:
            ends[rank] = "another rank ended"
        except Exception as error:  # noqa: BLE001
            ends[rank] = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}"
            lockstep.barrier.abort()

    threads = [threading.Thread(target=loop, args=(r,)) for r in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ranks, ends


def tpsim_batches(data):
    """Of every step, what each data-parallel rank does (proto/forward.proto: dp_batches)."""
    at, steps, header, decoding = 0, [], True, {}
    while at < len(data):
        length, at = tpsim_run._varint(data, at)
        message, at = data[at : at + length], at + length
        if header:
            header = False
            continue
        fields = tpsim_run._fields(message)
        if fields.get(15):  # end of run
            continue
        step = []
        for rank, part in enumerate(fields.get(32, [])):
            of = tpsim_run._fields(part)
            mode = MODES[of[3][0]]
            rows = decoding.setdefault(rank, set())
            rows -= set(tpsim_run._numbers(of.get(7, [])))
            rows |= set(tpsim_run._numbers(of.get(8, [])))
            step.append({
                "mode": mode,
                "extends": list(zip(tpsim_run._numbers(of.get(5, [])), tpsim_run._numbers(of.get(6, [])), strict=True)),
                "decode_requests": len(rows) if mode in ("DECODE", "MIXED") else 0,
                "bucket": of.get(14, [0])[0],
            })
        steps.append(step)
    return steps


def run_tpsim(binary, config, requests, release, size):
    flags = tpsim_run._flags(config, release)
    delayer = [f"--prefill-delayer-{name}={value}" for name, value in config["delayer"].items()]
    delayer += ["--enable-prefill-delayer"] if delayer else []
    with tempfile.TemporaryDirectory() as folder:
        trace, report, stream = (os.path.join(folder, n) for n in ("trace.jsonl", "report", "stream.pb"))
        with open(trace, "w") as out:
            out.writelines(tpsim_run.trace_lines(requests))
        done = subprocess.run(
            [binary, "run", "--model-path", "qwen3-8b", "--hardware", "h200-sxm", "--attention-backend", "fa3", "--tp",
             str(size), "--dp-size", str(size), "--enable-dp-attention", "--context-length", "40960", "--trace", trace,
             "--trace-format", "tpsim", "--report-dir", report, "--record-batches", stream, "--quiet",
             "--check-invariants", "--cuda-graph-bs", *map(str, GRAPHS), *flags, *delayer], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"tpsim: exit {done.returncode}: {done.stderr.strip()[-400:]}")
        rows = tpsim_run._rows(os.path.join(report, "steps.csv"))
        finished = tpsim_run._rows(os.path.join(report, "requests.csv"))
        with open(stream, "rb") as file:
            steps = tpsim_batches(file.read())
    ends = [float(r["start_time"]) + float(r["step_time"]) for r in rows]
    return steps, ends, {int(r["id"]): r for r in finished}


def compare(binary, seed, release, delays):
    config, requests = workloads.make(seed, "usual", release)
    config["delayer"] = delayer_flags(random.Random(seed)) if delays else {}
    if delays:
        config["disable_overlap_schedule"] = False
    size = random.Random(seed).choice((2, 3, 4))
    size = 2 if size == 3 else size  # of Qwen3's 32 heads
    config.update(max_concurrency=0, enable_priority_scheduling=False, schedule_low_priority_values_first=False,
                  disable_priority_preemption=False, priority_scheduling_preemption_threshold=10)
    if config["eviction_policy"] == "priority":
        config["eviction_policy"] = "lru"
    for r in requests:
        r["priority"] = None
    config["max_running_requests"] *= size
    if config["chunked_prefill_size"] > 0:
        config["chunked_prefill_size"] *= size
    steps, ends, finished = run_tpsim(binary, config, requests, release, size)
    if any(r["state"] != "completed" for r in finished.values()):
        return "skipped: some request does not fit"
    # What each rank's server_args say after _handle_data_parallelism and _resolve_max_num_reqs.
    config["max_running_requests"] //= size
    if config["chunked_prefill_size"] > 0:
        config["chunked_prefill_size"] //= size
    config["schedule_conservativeness"] *= 0.3
    config["step_limit"] = 4 * len(steps) + 1000
    ranks, why = run_sglang(config, requests, clock.StepTimes(ends), size)
    if any(w != "finished" for w in why):
        return "SGLang: " + "; ".join(w for w in why if w != "another rank ended")
    for number, step in enumerate(steps):
        for rank, mine in enumerate(step):
            if number >= len(ranks[rank].steps):
                return f"step {number}: SGLang has {len(ranks[rank].steps)} steps, tpsim {len(steps)}"
            theirs = ranks[rank].steps[number]
            for field in ("mode", "extends", "decode_requests", "bucket"):
                if mine[field] != theirs[field]:
                    return f"step {number}, rank {rank}: {field} tpsim {mine[field]} sglang {theirs[field]}"
    if len(ranks[0].steps) != len(steps):
        return f"SGLang has {len(ranks[0].steps)} steps, tpsim {len(steps)}"
    for index, row in finished.items():
        scheduler = ranks[index % size]
        if int(row["retractions"]) != scheduler.retractions[index]:
            return f"request {index}: retractions {row['retractions']} and {scheduler.retractions[index]}"
        if int(row["output_tokens"]) != len(scheduler.all_reqs[index].output_ids):
            return f"request {index}: output"
    idle = sum(part["mode"] == "IDLE" for step in steps for part in step)
    return f"equal: {size} ranks, {len(steps)} steps, {idle} idle batches"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tpsim", help="path of the tpsim binary")
    parser.add_argument("workloads", type=int, help="how many")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--prefill-delayer", action="store_true", help="with --enable-prefill-delayer and its flags")
    compare_schedules.add_release_arguments(parser)
    args = parser.parse_args()
    if args.release != "0.5.12":
        sys.exit("the threads stand in for the processes of 0.5.12: give --release 0.5.12 --site FOLDER")
    compare_schedules.use_release(args)
    equal = skipped = 0
    for seed in range(args.first_seed, args.first_seed + args.workloads):
        outcome = compare(args.tpsim, seed, args.release, args.prefill_delayer)
        equal += outcome.startswith("equal")
        skipped += outcome.startswith("skipped")
        print(f"seed {seed}: {outcome}", flush=True)
    print(f"{equal} of {args.workloads - skipped} workloads equal on every step of every rank, {skipped} skipped")
    sys.exit(0 if equal + skipped == args.workloads else 1)


if __name__ == "__main__":
    main()
