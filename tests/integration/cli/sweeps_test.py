#!/usr/bin/env python3
"""`compare` with lists of settings.

Usage: sweeps_test.py TPSIM [CLASS ...]
"""

import json
import os
import signal
import time

from command_line import GOOD_TRACE, LONG_LOAD, CommandLine, main


class Sweeps(CommandLine):
    """`compare` with lists."""

    def sweep(self, *extra, processes=None, report=None, trace=GOOD_TRACE):
        report = report or os.path.join(self.folder, "report")
        done = self.tpsim("compare", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace",
                          self.trace(trace), "--report-dir", report, *extra, processes=processes)
        return done, report

    def test_the_product_is_run(self):
        done, report = self.sweep("--tp", "1,2", "--page-size", "1,64", "--request-rate", "2,8",
                                  "--attention-backends", "fa3,triton")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "16 settings: 2 of --attention-backends x 2 of --tp-size x 2 of --page-size x "
                         "2 of --request-rate\n")
        self.assertIn("\nBest: ", done.stdout)
        self.assertIn("Best at --request-rate 8: ", done.stdout)
        result = self.result(report)
        self.assertEqual(result["sweep"]["axes"][2], {"flag": "page_size", "values": ["1", "64"]})
        self.assertEqual(len({json.dumps(run["settings"]) for run in result["runs"]}), 16)
        for run in result["runs"]:
            self.assertEqual(run["completed"], 3)
            self.assertEqual(run["settings"]["tp_size"], str(run["tp_size"]))
            self.assertEqual(run["settings"]["page_size"], str(run["page_size"]))
            self.assertEqual(run["settings"]["attention_backends"], run["backend"])
            rate = run["total_throughput"] / run["tp_size"]  # of a GPU
            better = [other for other in result["runs"]
                      if other["total_throughput"] / other["tp_size"] >= rate
                      and other["mean_e2e_latency_ms"] <= run["mean_e2e_latency_ms"]
                      and (other["total_throughput"] / other["tp_size"], other["mean_e2e_latency_ms"])
                      != (rate, run["mean_e2e_latency_ms"])]
            self.assertEqual(run["pareto"], not better)
        self.assertIn(result["best_setting"], [run["settings"] for run in result["runs"] if run["pareto"]])
        self.assertEqual(sorted(os.listdir(report)), ["report.html", "report.json", "sweep.csv"])
        rows = self.read(os.path.join(report, "sweep.csv")).decode().splitlines()
        self.assertEqual(len(rows), 17)

    def test_a_setting_is_what_run_says_of_it(self):
        _, report = self.sweep("--tp", "1,2", "--max-running-requests", "1,2")
        alone = os.path.join(self.folder, "alone")
        self.run_trace(GOOD_TRACE, "--tp", "2", "--max-running-requests", "1", "--report-dir", alone)
        run = self.result(report)["runs"][2]
        single = self.result(alone)
        self.assertEqual(run["settings"], {"tp_size": "2", "max_running_requests": "1"})
        for changed in ("settings", "pareto"):
            run.pop(changed)
            single.pop(changed)
        self.assertEqual(run, single)

    def test_every_flag_that_changes_the_answer_takes_a_list(self):
        words = ["compare", "--model-path", "deepseek-v2-lite", "--hardware", "h200-sxm", "--trace", self.trace(),
                 "--tp", "2", "--report-dir", os.path.join(self.folder, "lists")]
        done = self.tpsim(*words, "--ep-size", "1,2", "--moe-a2a-backend", "none,deepep",
                          "--enable-mixed-chunk=true,false")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = self.result(os.path.join(self.folder, "lists"))
        self.assertEqual(len(result["runs"]), 8)
        self.assertEqual({run["settings"]["enable_mixed_chunk"] for run in result["runs"]}, {"true", "false"})
        self.assert_refused([*self.deployment("--trace", self.trace()), "--enable-mixed-chunk=true,false"],
                            "--enable-mixed-chunk true,false: takes one value here")

    def test_the_winner_is_launched_by_a_command(self):
        done, report = self.sweep("--tp", "1,2", "--dp-size", "1,2", "--router-policy", "round_robin", "--page-size",
                                  "16")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = self.result(report)
        command, = result["launch"]
        self.assertTrue(done.stdout.count(f"\nLaunch:\n  {command}\n"), done.stdout)
        again = os.path.join(self.folder, "again")
        self.assertEqual(self.tpsim("run", *command.split(), "--hardware", "h200-sxm", "--trace", self.trace(),
                                    "--report-dir", again).returncode, 0)
        best, = [run for run in result["runs"] if run["settings"] == result["best_setting"]]
        for figure in ("total_throughput", "mean_e2e_latency_ms", "duration"):
            self.assertEqual(self.result(again)[figure], best[figure])
        done = self.tpsim(*self.deployment("--trace", self.trace(), command="compare"))
        self.assertIn("\nLaunch:\n  python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct "
                      "--attention-backend ", done.stdout)

    def test_threads_and_processes_change_nothing(self):
        seen = []
        for jobs, processes in (("1", None), ("3", None), ("1", 1), ("1", 3), ("2", 2)):
            done, report = self.sweep("--tp", "1,2,4", "--page-size", "1,64", "--jobs", jobs, processes=processes,
                                      report=os.path.join(self.folder, f"report-{jobs}-{processes}"))
            self.assertEqual(done.returncode, 0, done.stderr)
            seen.append({name: self.read(os.path.join(report, name)) for name in sorted(os.listdir(report))})
        for other in seen[1:]:
            self.assertEqual(other, seen[0])

    def test_lists_of_a_config_file(self):
        config = self.write("sweep.yaml", "model-path: llama-3.1-8b\nhardware: h200-sxm\ntp: [1, 2]\npage-size: 1,64\n"
                            f"trace: {self.trace()}\n")
        done = self.tpsim("compare", "--config", config, "--page-size", "16,32,64")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "6 settings: 2 of --tp-size x 3 of --page-size\n")
        self.assertIn("* best   + on the Pareto front", done.stdout)

    def test_what_is_impossible_is_a_row(self):
        done, report = self.sweep("--tp", "2,3", "--page-size", "1,16")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 of them cannot be carried out", done.stderr)
        self.assertIn("Not possible (2 of 4 settings):", done.stdout)
        result = self.result(report)
        self.assertEqual([run["settings"]["tp_size"] for run in result["runs"]], ["2", "2"])
        self.assertEqual([refused["settings"] for refused in result["refused"]],
                         [{"tp_size": "3", "page_size": "1"}, {"tp_size": "3", "page_size": "16"}])
        self.assertIn("heads", result["refused"][0]["reason"])
        done, _ = self.sweep("--tp", "2,3", "--page-size", "1,16", processes=2,
                             report=os.path.join(self.folder, "report-mpi"))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_refusals(self):
        base = ["compare", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace", self.trace()]
        self.assert_refused([*base, "--tp", "3,5"], "--tp", "none of the 2 settings can be carried out")
        self.assert_refused([*base, "--tp", "3,5"], "none of the 2 settings", processes=2)
        self.assert_refused([*base, "--tp", "1,2", "--attention-backends", "fa3,trtion"], "trtion", "triton")
        self.assert_refused([*base[:4], "b200,h200-sxn", *base[5:]], "h200-sxn", "h200-sxm")
        self.assert_refused([*base, "--tp", "1,2", "--max-concurrency", ",".join(str(i) for i in range(1, 300))],
                            "make 598 settings, at most 512")
        self.assert_refused([*base, "--attention-backends", "fa3", "--jobs", "2"], "--jobs 2")
        self.assert_refused([*self.deployment("--trace", self.trace()), "--page-size", "1,64"],
                            "--page-size 1,64: takes one value here; `tpsim compare`")

    def test_an_interrupted_sweep_writes_what_is_finished(self):
        for processes in (None, 2):
            report = os.path.join(self.folder, f"report-{processes}")
            child = self.start(*self.deployment("--report-dir", report, "--max-concurrency", "1,2,3,4,5,6", "--jobs", "1",
                                                *LONG_LOAD, command="compare"), processes=processes)
            time.sleep(3)
            child.send_signal(signal.SIGINT if processes is None else signal.SIGUSR1)
            shown, errors = child.communicate(timeout=40)
            self.assertEqual(child.returncode, 3, errors)
            self.assertIn("No best setting: stopped early, before any of 12 had served every request", shown)
            result = self.result(report)
            self.assertEqual((result["runs"], result["best"], result["planned_runs"]), ([], "", 12))


if __name__ == "__main__":
    main()
