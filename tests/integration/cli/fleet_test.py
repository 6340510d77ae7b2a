#!/usr/bin/env python3
"""Several replicas behind a router.

Usage: fleet_test.py TPSIM [CLASS ...]
"""

import csv
import json
import os

from command_line import CommandLine, main


class Fleet(CommandLine):
    LOAD = ("--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--dataset-name", "random", "--num-prompts", "120",
            "--random-input-len", "400", "--random-output-len", "30", "--request-rate", "60")

    def served(self, *words):
        folder = os.path.join(self.folder, "out")
        done = self.tpsim("run", *self.LOAD, "--report-dir", folder, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "report.json")) as file:
            report = json.load(file)
        with open(os.path.join(folder, "requests.csv")) as file:
            return report, list(csv.DictReader(file)), done.stdout

    def test_rows_of_replicas_add_up(self):
        for policy in ("random", "round_robin", "power_of_two", "cache_aware"):
            report, requests, text = self.served("--dp-size", "3", "--router-policy", policy)
            rows = report["replicas"]
            self.assertEqual([row["replica"] for row in rows], [0, 1, 2])
            for row in rows:
                mine = [r for r in requests if int(r["replica"]) == row["replica"]]
                self.assertEqual(row["requests"], len(mine))
                self.assertEqual(row["output_tokens"], sum(int(r["output_tokens"]) for r in mine))
            self.assertEqual(sum(row["requests"] for row in rows), 120)
            self.assertEqual(len(report["ranks"]), 3)
            self.assertEqual(report["server_args"]["router_policy"], policy)
            self.assertIn("Requests by replica:", text)

    def test_one_replica_is_none(self):
        report, requests, text = self.served()
        same, _, again = self.served("--dp-size", "1")
        self.assertEqual(text, again)
        self.assertEqual(report, same)
        self.assertNotIn("replicas", report)
        self.assertNotIn("replica", requests[0])

    def test_the_controller_of_one_server(self):
        report, _, _ = self.served("--dp-size", "2", "--load-balance-method", "total_requests")
        self.assertEqual(report["server_args"]["router_policy"], "total_requests")
        self.assertLess(abs(report["replicas"][0]["requests"] - report["replicas"][1]["requests"]), 20)

    def test_compared_by_numbers_of_replicas(self):
        folder = os.path.join(self.folder, "out")
        done = self.tpsim("compare", *self.LOAD, "--attention-backends", "fa3", "--tp", "2,1", "--dp-size", "1,2",
                          "--report-dir", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "report.json")) as file:
            runs = json.load(file)["runs"]
        self.assertEqual([(r["settings"]["tp_size"], r["settings"]["dp_size"]) for r in runs],
                         [("2", "1"), ("2", "2"), ("1", "1"), ("1", "2")])

    def test_refusals(self):
        for words, sentence in (
                (("--router-policy", "cache_aware"), "--router-policy: needs replicas"),
                (("--router-cache-threshold", "0.2"), "--router-cache-threshold: needs replicas"),
                (("--dp-size", "2", "--router-policy", "manual"), "--router-policy manual: is not simulated"),
                (("--dp-size", "2", "--router-policy", "nearest"), "--router-policy"),
                (("--dp-size", "2", "--pp-size", "2"), "--dp-size 2: --pp-size of several replicas"),
                (("--dp-size", "2", "--trace-out", "t.json"), "--dp-size 2: --trace-out of several replicas"),
                (("--dp-size", "2", "--record-batches", "b.pb"), "--dp-size 2: --record-batches of several replicas"),
                (("--dp-size", "2", "--checkpoint", "c", "--report-dir", "d"), "--dp-size 2: a checkpoint"),
                (("--dp-size", "2", "--router-cache-threshold", "1.5"), "--router-cache-threshold 1.5")):
            self.assert_refused(["run", *self.LOAD, *words], sentence)
        self.assert_refused(["serve", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--dp-size", "2"],
                            "--dp-size 2: `tpsim serve` serves one replica")


if __name__ == "__main__":
    main()
