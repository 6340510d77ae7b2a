#!/usr/bin/env python3
"""A family of models of one file outside the tree is served; the program without that file refuses its config.

usage: extra_family_test.py PROGRAM_WITH_IT TPSIM SOURCE_FOLDER
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

WITH_IT = WITHOUT = SOURCE = ""


class ExtraFamily(unittest.TestCase):
    def serve(self, program, architecture, *more):
        with open(os.path.join(SOURCE, "rank/catalogue/models/llama-3.1-8b.json"), encoding="utf-8") as file:
            config = json.load(file)
        config["architectures"] = [architecture]
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "model"))
            with open(os.path.join(folder, "model", "config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file)
            done = subprocess.run(
                [program, "run", "--model-path", os.path.join(folder, "model"), "--hardware", "h200-sxm",
                 "--dataset-name", "random", "--random-input-len", "300", "--random-output-len", "20",
                 "--num-prompts", "20", "--max-concurrency", "4", "--report-dir", os.path.join(folder, "out"), *more],
                capture_output=True, text=True, timeout=100)
            if done.returncode != 0:
                return done, None
            with open(os.path.join(folder, "out", "report.json"), encoding="utf-8") as file:
                return done, json.load(file)

    def test_it_is_served_as_what_it_reads_like(self):
        done, toy = self.serve(WITH_IT, "ToyLlamaForCausalLM")
        self.assertEqual(done.returncode, 0, done.stderr)
        _, llama = self.serve(WITH_IT, "LlamaForCausalLM")
        self.assertEqual(toy["completed"], 20)
        self.assertEqual(toy["mean_tpot_ms"], llama["mean_tpot_ms"])

    def test_its_facts_are_its_own(self):
        flags = ("--tp", "2", "--dp-size", "2", "--enable-dp-attention")
        self.assertEqual(self.serve(WITH_IT, "ToyLlamaForCausalLM", *flags)[0].returncode, 0)
        refused, _ = self.serve(WITH_IT, "LlamaForCausalLM", *flags)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("cuts attention by --tp alone", refused.stderr)

    def test_without_its_file_it_is_refused(self):
        refused, _ = self.serve(WITHOUT, "ToyLlamaForCausalLM")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("ToyLlamaForCausalLM is not supported", refused.stderr)


if __name__ == "__main__":
    WITH_IT, WITHOUT, SOURCE = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
