#!/usr/bin/env python3
"""A backend of one file outside the tree goes through compare, verify, backends and refusals.

usage: extra_backend_test.py TPSIM MODEL_FOLDER PLAIN_TPSIM
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

TPSIM = MODEL = PLAIN = ""
LOAD = ["--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--dataset-name", "random", "--random-input-len",
        "300", "--random-output-len", "20", "--num-prompts", "20", "--max-concurrency", "4"]


def tpsim(*words, program=None):
    return subprocess.run([program or TPSIM, *words], capture_output=True, text=True, timeout=100)


class ExtraBackend(unittest.TestCase):
    def test_compare_runs_it_and_says_that_nothing_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            done = tpsim("compare", *LOAD, "--attention-backends", "fa3,even_parts,even_parts+fa3", "--report-dir", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(folder, "report.json"), encoding="utf-8") as file:
                runs = json.load(file)["runs"]
        self.assertEqual([run["backend"] for run in runs], ["fa3", "even_parts", "even_parts+fa3"])
        self.assertEqual({run["completed"] for run in runs}, {20})
        rows = {row["operator_class"]: row["status"] for row in runs[1]["calibration"]}
        self.assertEqual(rows["attention.even_parts.decode"], "uncalibrated")
        self.assertNotEqual(runs[0]["mean_tpot_ms"], runs[1]["mean_tpot_ms"])

    def test_nothing_else_changes(self):
        reports = []
        for program in (TPSIM, PLAIN):
            with tempfile.TemporaryDirectory() as folder:
                done = tpsim("run", *LOAD, "--report-dir", folder, program=program)
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(os.path.join(folder, "report.json"), encoding="utf-8") as file:
                    reports.append(json.load(file))
        self.assertEqual(reports[0], reports[1])

    def test_verify_computes_its_plans(self):
        done = tpsim("verify", "--model-path", MODEL, "--attention-backends", "even_parts", "--tp", "2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("even_parts", done.stdout)

    def test_what_its_row_denies_is_refused(self):
        done = tpsim("run", *LOAD, "--attention-backend", "even_parts", "--kv-cache-dtype", "fp8_e4m3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("even_parts", done.stderr)

    def test_backends_lists_it_where_it_runs(self):
        done = tpsim("backends", "--hardware", "h200-sxm", "--model-path", "llama-3.1-8b")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("even_parts", done.stdout)


if __name__ == "__main__":
    TPSIM, MODEL, PLAIN = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
