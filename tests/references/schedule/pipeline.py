#!/usr/bin/env python3
"""tpsim's pipeline stages against SGLang's own code: the Scheduler of the first stage in its event_loop_pp, and a ring
that brings what it would get back from the last stage. See README.md.

Compared, step by step: what compare_schedules.py compares.
"""

import argparse
import collections
import random
import sys

import clock
import compare_schedules
import tpsim_run
import workloads


def make(seed, kind, release):
    """A workload of workloads.py, its deployment in stages."""
    config, requests = workloads.make(seed, kind, release)
    rng = random.Random(f"pipeline {kind} {seed}")
    size, depth = rng.choice((2, 2, 3, 4)), rng.choice((0, 0, 1, 2))
    own = rng.choice((None, None, 1, 3, 8))  # --pp-max-micro-batch-size
    config.update(
        pp_size=size, pp_async_batch_depth=depth, disable_overlap_schedule=True, pp_max_micro_batch_size=own,
        micro_batch=own or max(config["max_running_requests"] // size, 1),
    )
    return config, requests


def scheduler_class():
    import sglang_scheduler
    import stand_ins

    class FirstStage(sglang_scheduler.SimScheduler):
        """What it sends comes back as what it receives: for the schedule, the stages in between are a delay."""

        def __init__(self, config, workload, inner_clock, args):
            super().__init__(config, workload, inner_clock, args)
            self.pp_size = config["pp_size"]
            self.pp_group = stand_ins.Nothing(is_first_rank=True, is_last_rank=True)
            self.enable_overlap = False
            self.rounds, self.worked = 0, True
            self.launched, self.ring = collections.deque(), collections.deque()
            self.received = 0.0  # when the tokens come that are processed next

        def arrive(self):
            if self.rounds % self.pp_loop_size == 0:  # a new round
                if self.worked:
                    self.idle_passes = 0
                else:
                    self._pass_idle_time()
                self.worked = False
            self.rounds += 1
            self.launched_end = self.pending_end = None
            self.in_flight = {i for i in self.in_flight if not self._has_left(i)}
            while self._may_send() and self._next_time() <= self.now:
                index = self.next_arrival
                self.next_arrival += 1
                self.in_flight.add(index)
                self._receive(index)
                if self._has_left(index):
                    self.in_flight.discard(index)

        def on_idle(self):
            if not self.worked:
                super().on_idle()

        def run_batch(self, batch, pp_proxy_tensors=None):
            self.worked = True
            self.clock.not_before = self.received
            result = super().run_batch(batch, pp_proxy_tensors)
            self.launched.append(self.launched_end)
            self.now += self.clock.scheduler_step_seconds
            return result

        def _pp_send_dict_to_next_stage(self, tensors, *args, **kwargs):
            self.ring.append((dict(tensors), self.launched.popleft()))
            return []

        def _pp_recv_dict_from_prev_stage(self):
            tensors, self.received = self.ring.popleft()
            return tensors if sglang_scheduler.RELEASE < "0.5.23" else (tensors, None)

        def _pp_process_batch_result(self, batch, result):
            self.worked = True
            self.now = max(self.now, self.received)
            self.received = 0.0
            super()._pp_process_batch_result(batch, result)

    return FirstStage


def run_sglang(config, requests, inner_clock):
    import sglang_scheduler

    return sglang_scheduler.run(
        config, requests, inner_clock, scheduler_class(), lambda scheduler: scheduler.event_loop_pp(),
        pp_size=config["pp_size"], pp_async_batch_depth=config["pp_async_batch_depth"],
    )


def compare(binary, seed, kind, release):
    config, requests = make(seed, kind, release)
    flags = ["--pp-size", str(config["pp_size"]), "--pp-async-batch-depth", str(config["pp_async_batch_depth"])]
    if config["pp_max_micro_batch_size"]:
        flags += ["--pp-max-micro-batch-size", str(config["pp_max_micro_batch_size"])]
    mine = tpsim_run.run(binary, config, requests, release, flags)
    if "error" in mine:
        return "tpsim: " + mine["error"]
    config["step_limit"] = 4 * len(mine["steps"]) + 1000
    theirs = run_sglang(config, requests, clock.StepTimes([s["end"] for s in mine["steps"]]))
    difference = compare_schedules.first_difference(mine, theirs)
    if difference:
        step, field, a, b = difference
        return f"DIFFERS at step {step} of {len(mine['steps'])}/{len(theirs['steps'])}: {field} tpsim {a} sglang {b}"
    stuck = f" until SGLang waits for ever: {theirs['stuck']}" if theirs["stuck"] else ""
    return (f"equal: {config['pp_size']} stages + {config['pp_async_batch_depth']}, {len(mine['steps'])} steps, "
            f"{sum(mine['retractions'].values())} retractions{stuck}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tpsim", help="path of the tpsim binary")
    parser.add_argument("workloads", type=int, help="how many")
    parser.add_argument("--kind", default="usual", choices=tuple(workloads.KINDS))
    parser.add_argument("--first-seed", type=int, default=1)
    compare_schedules.add_release_arguments(parser)
    args = parser.parse_args()
    compare_schedules.use_release(args)
    equal = 0
    for seed in range(args.first_seed, args.first_seed + args.workloads):
        outcome = compare(args.tpsim, seed, args.kind, args.release)
        equal += outcome.startswith("equal")
        print(f"seed {seed}: {outcome}", flush=True)
    print(f"{equal} of {args.workloads} workloads equal on every step")
    sys.exit(0 if equal == args.workloads else 1)


if __name__ == "__main__":
    main()
