#!/usr/bin/env python3
"""--trace-out: the trace of a run, against the report of the same run.

Usage: trace_out_test.py TPSIM [CLASS ...]
"""

import csv
import json
import os
import signal
import stat
import time

from command_line import LONG_LOAD, CommandLine, main
from perfetto_file import PerfettoFile

LOAD = ["--dataset-name", "random", "--num-prompts", "60", "--random-input-len", "600", "--random-output-len", "80",
        "--request-rate", "20"]


class TraceOut(CommandLine):
    def traced(self, *extra, name="t.pftrace", model="llama-3.1-8b", load=LOAD):
        """A run with a report; the trace, the rows of its requests.csv and of its steps.csv."""
        path, report = os.path.join(self.folder, name), os.path.join(self.folder, "report")
        done = self.tpsim("run", "--model-path", model, "--hardware", "h200-sxm", *load, *extra, "--trace-out", path,
                          "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        tables = []
        for table in ("requests.csv", "steps.csv"):
            with open(os.path.join(report, table)) as file:
                tables.append(list(csv.DictReader(file)))
        return PerfettoFile(path), *tables

    def check_requests(self, trace, requests, process=""):
        slices = {int(s.name.split()[1]): s for s in trace.outer(process + "requests")}
        self.assertEqual(sorted(slices), sorted(int(r["id"]) for r in requests))
        for request in requests:
            whole = slices[int(request["id"])]
            self.assertAlmostEqual(whole.begin / 1e9, float(request["arrival_time"]), delta=1e-6)
            self.assertAlmostEqual(whole.end / 1e9, float(request["finish_time"]), delta=1e-6)
            self.assertEqual(whole.arguments["state"], request["state"])
            self.assertEqual(whole.arguments["output_tokens"], int(request["output_tokens"]))
            # A router may keep the first token back until the last.
            decodes = float(request["finish_time"]) > float(request["first_token_time"])
            phases = ["waiting", "prefill"] + ["decode"] * decodes
            self.assertEqual([c.name for c in whole.children], phases)
            waiting, prefill = whole.children[:2]
            self.assertAlmostEqual(prefill.begin / 1e9, float(request["first_scheduled_time"]), delta=1e-6)
            self.assertAlmostEqual(prefill.end / 1e9, float(request["first_token_time"]), delta=1e-6)
            self.assertEqual((waiting.begin, whole.children[-1].end), (whole.begin, whole.end))
            retracted = [c for phase in whole.children for c in phase.children]
            self.assertEqual(len(retracted), int(request["retractions"]))

    def check_steps(self, trace, steps, ranks, process=""):
        passes = trace.outer(process + ranks)
        self.assertEqual(len(passes), len(steps))
        for step, drawn in zip(steps, passes):
            self.assertEqual(drawn.name, step["forward_mode"])
            self.assertAlmostEqual(drawn.begin / 1e9, float(step["start_time"]), delta=1e-6)
            self.assertAlmostEqual((drawn.end - drawn.begin) / 1e9, float(step["step_time"]), delta=2e-6)
            # What a pass takes is all of it, part behind part.
            self.assertEqual(drawn.children[0].begin, drawn.begin)
            self.assertAlmostEqual(drawn.children[-1].end, drawn.end, delta=2)
            for one, next_one in zip(drawn.children, drawn.children[1:]):
                self.assertEqual(one.end, next_one.begin)
        for one, next_one in zip(passes, passes[1:]):
            self.assertLessEqual(one.end, next_one.begin)
        rounds = trace.outer(process + "scheduler")
        self.assertEqual([s.arguments["sequence_number"] for s in rounds], [int(s["sequence_number"]) for s in steps])
        for one, next_one in zip(rounds, rounds[1:]):
            self.assertLessEqual(one.end, next_one.begin)
        for name, column in (("running requests", "running"), ("waiting requests", "waiting"),
                             ("KV tokens held", "kv_allocated_tokens"), ("KV tokens cached", "kv_cached_tokens"),
                             ("KV tokens free", "kv_free_tokens")):
            values = [int(s[column]) for s in steps]
            changes = [v for i, v in enumerate(values) if i == 0 or v != values[i - 1]]
            self.assertEqual([int(v) for _, v in trace.counters[process + name]], changes, name)

    def test_it_is_the_run_of_the_report(self):
        trace, requests, steps = self.traced("--tp", "2")
        self.assertEqual(trace.process, "llama-3.1-8b on h200-sxm, fa3")
        self.assertEqual(len(requests), 60)
        self.check_requests(trace, requests)
        self.check_steps(trace, steps, "ranks 0 to 1")

    def test_retractions(self):
        # Where an answer may end early, admission counts on it.
        rows = "".join(json.dumps({"arrival_time": 0.05 * i, "prompt_len": 300, "max_new_tokens": 400,
                                   "ignore_eos": False}) + "\n" for i in range(40))
        trace, requests, steps = self.traced("--max-total-tokens", "6000", "--schedule-conservativeness", "0",
                                             load=["--trace", self.trace(rows)])
        self.assertGreater(sum(int(r["retractions"]) for r in requests), 0)
        self.check_requests(trace, requests)
        self.check_steps(trace, steps, "rank 0")
        for slice in trace.slices["requests"]:
            if slice.name == "retracted":
                self.assertGreater(slice.end, slice.begin)

    def test_a_slow_rank_is_waited_for(self):
        trace, _, steps = self.traced("--tp", "4", "--rank-slowdown", "2:1.5")
        self.check_steps(trace, steps, "rank 2")
        self.check_steps(trace, steps, "ranks 0 to 1, 3")
        self.assertNotIn("wait", {s.name for s in trace.slices["rank 2"]})
        self.assertIn("wait", {s.name for s in trace.slices["ranks 0 to 1, 3"]})

    def test_pipeline_stages(self):
        trace, requests, steps = self.traced("--pp-size", "2", "--tp", "2")
        self.check_requests(trace, requests)
        first, second = trace.outer("ranks 0 to 1 (stage 0)"), trace.outer("ranks 2 to 3 (stage 1)")
        self.assertEqual((len(first), len(second)), (len(steps), len(steps)))
        for one, then in zip(first, second):
            self.assertLessEqual(one.end, then.begin)

    def test_data_parallel_ranks(self):
        trace, requests, steps = self.traced("--tp", "2", "--dp-size", "2", "--enable-dp-attention",
                                             model="deepseek-v2-lite")
        self.check_requests(trace, requests)
        self.assertEqual(len(trace.outer("rank 0")), len(steps))
        self.assertEqual(len(trace.outer("rank 1")), len(steps))

    def check_replicas(self, trace, requests, steps, names):
        """The tracks of each replica are its rows, and the router's choices are where requests went."""
        for number, name in names.items():
            process = f"{name} on h200-sxm, fa3: "
            self.check_requests(trace, [r for r in requests if int(r["replica"]) == number], process)
            self.check_steps(trace, [s for s in steps if int(s["replica"]) == number], "rank 0", process)
            # Choices that were made before the file ends, among requests that had come by then.
            chosen = trace.outer(f"router: to replica {number}")
            self.assertEqual(sorted(int(s.name.split()[1]) for s in chosen),
                             sorted(int(r["id"]) for r in requests if int(r["replica"]) == number))
            for choice in chosen:
                self.assertGreaterEqual(choice.arguments["requests_in_flight"], choice.arguments["least_in_flight"])

    def test_replicas_and_their_router(self):
        trace, requests, steps = self.traced("--dp-size", "3", "--router-policy", "round_robin")
        names = {i: f"replica {i}: llama-3.1-8b" for i in range(3)}
        self.assertEqual(trace.processes, [f"{name} on h200-sxm, fa3" for name in names.values()] + ["router"])
        self.check_replicas(trace, requests, steps, names)
        times = {int(s.name.split()[1]): s.begin for i in range(3) for s in trace.outer(f"router: to replica {i}")}
        for request in requests:
            self.assertAlmostEqual(times[int(request["id"])] / 1e9, float(request["arrival_time"]), delta=1e-6)

    def test_a_fleet(self):
        fleet = self.write("fleet.yaml", b"router: --policy round_robin\nworkers:\n"
                           b"  - {count: 2, hardware: h200-sxm, args: --model-path llama-3.1-8b}\n")
        path, report = os.path.join(self.folder, "t.pftrace"), os.path.join(self.folder, "report")
        done = self.tpsim("run", "--fleet", fleet, *LOAD, "--trace-out", path, "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        tables = []
        for table in ("requests.csv", "steps.csv"):
            with open(os.path.join(report, table)) as file:
                tables.append(list(csv.DictReader(file)))
        trace = PerfettoFile(path)
        self.check_replicas(trace, *tables, {int(name.split()[1]): name.split(" on ")[0]
                                             for name in trace.processes if name != "router"})

    def test_prefill_and_decode(self):
        trace, requests, _ = self.traced("--pd-disaggregation", "--prefill", "1", "--decode", "2")
        prefill = "replica 0 (prefill): llama-3.1-8b on h200-sxm, fa3: requests"
        there = {int(s.name.split()[1]): s for s in trace.outer(prefill)}
        sent = {}
        for decoder in (1, 2):
            for chunk in trace.outer(f"KV transfers: replica 0 to replica {decoder}"):
                sent.setdefault((int(chunk.name.split()[1]), decoder), []).append(chunk)
        self.assertEqual(sorted(sent), sorted((int(r["id"]), int(r["decode_replica"])) for r in requests))
        for request in requests:
            chunks = sent[int(request["id"]), int(request["decode_replica"])]
            self.assertEqual(sum(c.arguments["tokens"] for c in chunks), int(request["input_tokens"]))
            on_prefill = there[int(request["id"])]
            self.assertEqual([c.name for c in on_prefill.children], ["waiting", "prefill", "transfer"])
            self.assertAlmostEqual(on_prefill.begin / 1e9, float(request["arrival_time"]), delta=1e-6)
            self.assertEqual(on_prefill.end, max(c.end for c in chunks))
            decode = f"replica {request['decode_replica']} (decode): llama-3.1-8b on h200-sxm, fa3: requests"
            (there_too,) = [s for s in trace.outer(decode) if s.name == f"request {request['id']}"]
            self.assertEqual(there_too.arguments["prefill_replica"], 0)
            self.assertLessEqual(on_prefill.end, there_too.end)

    def test_the_same_bytes_for_any_number_of_processes(self):
        seen = []
        for processes in (None, 1, 2):
            path = os.path.join(self.folder, f"{processes}.pftrace")
            done = self.tpsim(*self.deployment(*LOAD, "--tp", "2", "--trace-out", path), processes=processes)
            self.assertEqual(done.returncode, 0, done.stderr)
            seen.append(self.read(path))
        self.assertEqual(seen[1], seen[0])
        self.assertEqual(seen[2], seen[0])

    def test_gzip_and_a_window(self):
        trace, requests, steps = self.traced("--trace-window", "1:2", name="t.pftrace.gz")
        begins = [s.begin / 1e9 for s in trace.outer("rank 0")]
        self.assertEqual(len(begins), sum(1 <= float(s["start_time"]) < 2 for s in steps))
        there = [r for r in requests if float(r["arrival_time"]) < 2 and float(r["finish_time"]) >= 1]
        self.check_requests(trace, there)

    def test_a_replay(self):
        batches = os.path.join(self.folder, "b.pb")
        trace, _, steps = self.traced("--tp", "2", "--record-batches", batches)
        path = os.path.join(self.folder, "replay.pftrace")
        done = self.tpsim("replay", batches, "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--tp", "2",
                          "--attention-backend", "triton", "--trace-out", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        replayed = PerfettoFile(path)
        passes = replayed.outer("ranks 0 to 1")
        self.assertEqual([s.name for s in passes], [s["forward_mode"] for s in steps])
        self.assertEqual([s.arguments["sequence_number"] for s in passes],
                         [s.arguments["sequence_number"] for s in trace.outer("scheduler")])
        busy = [sum(s.end - s.begin for s in of.outer("ranks 0 to 1")) for of in (trace, replayed)]
        self.assertNotEqual(*busy)
        self.assertEqual((replayed.counters, set(replayed.slices)), ({}, {"ranks 0 to 1"}))

    def test_the_report_is_the_same_without_it(self):
        self.traced("--tp", "2")
        report = os.path.join(self.folder, "report")
        with_trace = {name: self.read(os.path.join(report, name)) for name in os.listdir(report)}
        done = self.tpsim(*self.deployment(*LOAD, "--tp", "2", "--report-dir", report))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({name: self.read(os.path.join(report, name)) for name in os.listdir(report)}, with_trace)

    def test_what_cannot_be_written_is_refused_before_the_run(self):
        base = self.deployment(*LOAD)
        os.mkdir(os.path.join(self.folder, "folder"))
        os.symlink(os.path.join(self.folder, "nowhere", "file"), os.path.join(self.folder, "dangling"))
        for path in ("folder", "missing/t.pftrace", "dangling", "/proc/nowhere"):
            self.assert_refused([*base, "--trace-out", path], "--trace-out")
        self.assert_refused([*base, "--trace-out", "/dev/stdout"], "--trace-out /dev/stdout")
        self.assert_refused([*base, "--trace-window", "1:2"], "--trace-window")
        for window in ("1", ":", "2:1", "a:b", "1:x", "-1:2", "1:1"):
            self.assert_refused([*base, "--trace-out", "t", f"--trace-window={window}"], "--trace-window")
        self.assert_refused([*self.deployment(*LOAD, command="compare"), "--trace-out", "t"], "--trace-out")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "t")))

    def being_written(self, child):
        """Bytes of what a process has open in the scratch folder, with a name or without."""
        descriptors = f"/proc/{child.pid}/fd"
        return sum(os.stat(f"{descriptors}/{number}").st_size for number in os.listdir(descriptors)
                   if os.readlink(f"{descriptors}/{number}").startswith(self.folder))

    def test_an_old_trace_stays_until_the_new_one_is_whole(self):
        path = self.write("t.pftrace", b"old")
        os.chmod(path, 0o600)
        child = self.start(*self.deployment("--trace-out", path, *LONG_LOAD))
        # A little of it: to read all that a second writes takes half a minute.
        while child.poll() is None and self.being_written(child) < 1 << 16:
            time.sleep(0.02)
        self.assertIsNone(child.poll(), "the run ended too early")
        self.assertEqual(self.read(path), b"old")
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=40)
        self.assertEqual(child.returncode, 3, errors)
        self.assertGreater(len(PerfettoFile(path).outer("rank 0")), 0)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(os.listdir(self.folder), ["t.pftrace"])


if __name__ == "__main__":
    main()
