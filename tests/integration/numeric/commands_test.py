#!/usr/bin/env python3
"""Numeric execution's commands seen from outside: reports of `tpsim run`, recorded streams and their replay, prompts and
weights that cannot be read.

Usage: commands_test.py TPSIM MODELS [CLASS ...]      MODELS: tests/golden/models
"""

import json
import os
import random
import shutil
import struct
import sys
import unittest

import numeric_test
from numeric_test import Numeric, models, reference


class Commands(Numeric):
    def write_trace(self):
        with open(self.path("trace.jsonl"), "w") as file:
            for i in range(12):
                file.write(json.dumps({"arrival_time": i * 0.01, "max_new_tokens": 8 + i,
                                       "prompt": [[1000, 32], [5000 + 100 * (i % 4), 8 + i]]}) + "\n")
        return self.path("trace.jsonl")

    def test_run_reports_wall_time(self):
        model = os.path.join(numeric_test.MODELS, models()[0])
        for processes, tp in ((None, 1), (2, 2)):
            done = self.tpsim("run", "--executor", "numeric", "--tp", str(tp), "--model-path", model, "--trace",
                              self.write_trace(), "--report-dir", self.path("report"), processes=processes)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("wall clock of the emulated cluster", done.stdout)
            with open(self.path("report/report.html")) as file:
                self.assertIn("wall-clock times of the emulated cluster", file.read())
            with open(self.path("report/report.json")) as file:
                report = json.load(file)
            self.assertEqual(report["executor"], "numeric")
            self.assertEqual(report["clock"], "wall")
            self.assertEqual(report["completed"], 12)
            self.assertEqual(len(report["ranks"]), tp)
            self.assertGreater(report["ranks"][0]["gemm_seconds"], 0)
            self.assertGreater(report["cache_hit_rate"], 0)

    def test_a_modeled_stream_replays_numerically(self):
        """Every page that the modeled schedule reads was written: pages are tagged (--check-invariants)."""
        model = os.path.join(numeric_test.MODELS, "llama")  # which torch_native can carry out, too
        for extra in (["--max-total-tokens", "4096"],
                      ["--max-total-tokens", "4096", "--page-size", "16", "--chunked-prefill-size", "32",
                       "--enable-mixed-chunk"],
                      ["--max-total-tokens", "512", "--schedule-conservativeness", "0"]):
            with self.subTest(extra=" ".join(extra)):
                done = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace",
                                  self.write_trace(), "--record-batches", self.path("stream.pb"), "--quiet",
                                  *extra)
                self.assertEqual(done.returncode, 0, done.stderr)
                for words in (["--executor", "numeric", "--model-path", model, "--check-invariants"],
                              ["--executor", "numeric", "--model-path", model, "--tp", "2", "--attention-backend",
                               "torch_native"],
                              ["--model-path", "llama-3.1-70b", "--tp", "8", "--hardware", "h100-sxm"]):
                    done = self.tpsim("replay", self.path("stream.pb"), *words)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("decode tokens", done.stdout)

    def test_prompt_ids(self):
        model = os.path.join(numeric_test.MODELS, models()[0])
        done = self.tpsim("generate", "--model-path", model, "--prompt-ids", "1,2,3", "--max-new-tokens", "5",
                          "--ignore-eos", processes=2)
        self.assertEqual(done.returncode, 2)  # --tp 1 under mpirun -n 2
        done = self.tpsim("generate", "--model-path", model, "--prompt-ids", "1,2,3", "--max-new-tokens", "5",
                          "--ignore-eos", "--tp", "2", processes=2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\A(\d+,){4}\d+\n\Z")

    def test_dummy_weights_are_one_model_for_every_tp(self):
        self.write_config()
        said = set()
        for tp in (1, 2, 4, 8):
            done = self.tpsim("generate", "--model-path", self.folder, "--load-format", "dummy", "--tp", str(tp),
                              "--prompt-ids", "5,6,7", "--max-new-tokens", "12", "--ignore-eos")
            self.assertEqual(done.returncode, 0, done.stderr)
            said.add(done.stdout)
        self.assertEqual(len(said), 1)


class Refusals(Numeric):
    def copy(self, model):
        shutil.copytree(os.path.join(numeric_test.MODELS, model), self.path("model"))
        return self.path("model")

    def test_arguments(self):
        model = os.path.join(numeric_test.MODELS, models()[0])
        base = ["generate", "--model-path", model]
        self.assert_refused(base, "--prompt-ids")
        self.assert_refused([*base, "--prompt-ids", "1,x"], "--prompt-ids x")
        self.assert_refused([*base, "--prompt-ids", "1,,2"], "--prompt-ids")
        self.assert_refused([*base, "--prompt-ids", "999999"], "beyond the vocabulary")
        self.assert_refused([*base, "--prompt-ids", "1", "--return-logits"], "--output")
        self.assert_refused([*base, "--prompt-ids", "1", "--max-new-tokens", "1000000"], "do not fit")
        self.assert_refused([*base, "--prompt-ids", "1", "--executor", "modeled"], "--executor modeled")
        self.assert_refused([*base, "--prompts", self.path("none.jsonl")], "none.jsonl")
        self.assert_refused([*base, "--prompt-ids", "1", "--output", self.path("none/x")], "--output")
        self.assert_refused(["generate", "--model-path", "llama-3.1-8b", "--prompt-ids", "1"], "--load-format dummy")
        for line in ('{"prompt_ids": []}', '{"prompt_ids": [1.5]}', '{"prompt_ids": "a"}', "[1]", "{", '{"ids": [1]}',
                     '{"prompt_ids": [-1]}'):
            with open(self.path("bad.jsonl"), "w") as file:
                file.write('{"prompt_ids": [1]}\n' + line + "\n")
            self.assert_refused([*base, "--prompts", self.path("bad.jsonl")], "bad.jsonl:2")

    def test_weights(self):
        folder = self.copy(models()[0])
        file = os.path.join(folder, "model.safetensors")
        with open(file, "rb") as opened:
            good = opened.read()
        words = ["generate", "--model-path", folder, "--prompt-ids", "1"]
        length = struct.unpack("<Q", good[:8])[0]
        header = json.loads(good[8:8 + length])

        def write(head, data=good[8 + length:]):
            text = json.dumps(head).encode()
            with open(file, "wb") as opened:
                opened.write(struct.pack("<Q", len(text)) + text + data)

        for bad in (b"", good[:7], good[:100], good[:-1], struct.pack("<Q", 1 << 62) + good[8:],
                    good[:8] + b"x" * 100 + good[108:]):
            with open(file, "wb") as opened:
                opened.write(bad)
            self.assert_refused(words, "model.safetensors")
        name = next(n for n in header if n.endswith("q_proj.weight") or n.endswith("embed_tokens.weight"))
        missing = {k: v for k, v in header.items()}
        missing["other." + name] = missing.pop(name)
        write(missing)
        self.assert_refused(words, name)
        shaped = json.loads(json.dumps(header))
        shaped[name]["shape"] = shaped[name]["shape"][::-1] + [1]
        write(shaped)
        self.assert_refused(words, name)
        os.remove(file)
        self.assert_refused(words, folder)
        self.assert_refused(["verify", "--model-path", folder], "has no *.safetensors")

    def test_configs(self):
        folder = self.copy(models()[0])
        path = os.path.join(folder, "config.json")
        with open(path) as file:
            good = json.load(file)
        words = ["generate", "--model-path", folder, "--prompt-ids", "1"]
        for key, value, expected in (("architectures", ["NoSuchForCausalLM"], "NoSuchForCausalLM"),
                                     ("hidden_size", 1 << 40, "hidden_size"), ("hidden_size", -1, "hidden_size"),
                                     ("num_hidden_layers", 0, "num_hidden_layers"), ("vocab_size", "x", "vocab_size")):
            with open(path, "w") as file:
                json.dump({**good, key: value}, file)
            self.assert_refused(words, expected)

    def test_eos_of_either_file_ends_a_sequence(self):
        folder = self.copy("llama")
        wanted = reference("llama")["prompts"][1]
        stop = wanted["token_ids"][20]
        first = wanted["token_ids"].index(stop)
        words = ["generate", "--model-path", folder, "--prompt-ids", ",".join(map(str, wanted["prompt_ids"])),
                 "--max-new-tokens", "64"]
        for file in ("config.json", "generation_config.json"):
            path = os.path.join(folder, file)
            config = {}
            if os.path.exists(path):
                with open(path) as opened:
                    config = json.load(opened)
            for value in (stop, [130, stop]):
                with self.subTest(file=file, value=value):
                    with open(path, "w") as opened:
                        json.dump({**config, "eos_token_id": value}, opened)
                    done = self.tpsim(*words)
                    self.assertEqual(done.stdout.strip(), ",".join(map(str, wanted["token_ids"][:first + 1])))
                    done = self.tpsim(*words, "--ignore-eos")
                    self.assertEqual(len(done.stdout.split(",")), 64)
            with open(path, "w") as opened:
                json.dump({**config, "eos_token_id": 130}, opened)
        with open(os.path.join(folder, "generation_config.json"), "w") as opened:
            opened.write('{"eos_token_id": "x"}')
        self.assert_refused(words, "generation_config.json", "eos_token_id")

    def test_more_memory_than_there_is(self):
        self.assert_refused(["generate", "--model-path", "llama-3.1-70b", "--load-format", "dummy", "--tp", "8",
                             "--prompt-ids", "1"], "GiB")

    def test_streams(self):
        for content in (b"", b"\x00", b"hello world", b"\xff" * 40):
            with open(self.path("stream.pb"), "wb") as file:
                file.write(content)
            self.assert_refused(["replay", self.path("stream.pb"), "--model-path", "llama-3.1-8b", "--hardware",
                                 "h200-sxm"], "stream.pb")
        with open(self.path("trace.jsonl"), "w") as file:
            for i in range(6):
                file.write(json.dumps({"arrival_time": i * 0.01, "max_new_tokens": 4 + i,
                                       "prompt": [[1000, 32], [5000 + 100 * (i % 2), 8 + i]]}) + "\n")
        done = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace",
                          self.path("trace.jsonl"), "--record-batches", self.path("good.pb"), "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("good.pb"), "rb") as file:
            good = file.read()
        chooser = random.Random(1)
        for i in range(80):  # damaged streams are refused or carried out, never a crash
            bad = bytearray(good)
            at = chooser.randrange(len(bad))
            if i % 4 == 0:
                del bad[at:at + chooser.randrange(1, 20)]
            elif i % 4 == 1:
                bad[at:at] = bytes(chooser.randrange(256) for _ in range(3))
            else:
                bad[at] = chooser.randrange(256)
            with open(self.path("stream.pb"), "wb") as file:
                file.write(bad)
            words = (["--executor", "numeric", "--model-path", os.path.join(numeric_test.MODELS, "llama"), "--check-invariants"]
                     if i % 2 else ["--model-path", "llama-3.1-8b", "--hardware", "h200-sxm"])
            done = self.tpsim("replay", self.path("stream.pb"), *words)
            self.assertIn(done.returncode, (0, 2), done.stderr)
            if done.returncode == 2:
                self.assertRegex(done.stderr, r"\Atpsim: [^\n]+\n\Z")
        self.assert_refused(["replay", self.path("good.pb"), "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm",
                             "--max-total-tokens", "100"], "--max-total-tokens 100")
        for extra in (["--max-running-requests", "3"], ["--chunked-prefill-size", "64"], ["--enable-mixed-chunk"],
                      ["--schedule-policy", "lpm"], ["--disable-radix-cache"], ["--cuda-graph-max-bs", "8"],
                      ["--max-prefill-tokens", "77"], ["--mem-fraction-static", "0.5"]):
            self.assert_refused(["replay", self.path("good.pb"), "--model-path", "llama-3.1-8b", "--hardware",
                                 "h200-sxm", *extra], extra[0] + ": the schedule of")
        self.assert_refused(["replay", self.path("none.pb"), "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm"],
                            "none.pb")


if __name__ == "__main__":
    numeric_test.TPSIM = os.path.abspath(sys.argv.pop(1))
    numeric_test.MODELS = os.path.abspath(sys.argv.pop(1))
    unittest.main()
