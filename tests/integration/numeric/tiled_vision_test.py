#!/usr/bin/env python3
"""Images of Gemma 3, Llama 4 and InternVL in numeric execution: logits and tokens of `tpsim generate` against
Transformers', with every share of the encoder, backend, page size, prefix reuse and chunks that cut images.

Usage: tiled_vision_test.py TPSIM MODELS      MODELS: tests/golden/vision
"""

import json
import os
import sys
import unittest

import numeric_test
from numeric_test import reference, share
from vision_test import Images

FAMILIES = ("gemma3-vision", "internvl", "internvl-hf", "llama4-vision")
# What SGLang serves as text without it.
FLAGS = {"gemma3-vision": ["--enable-multimodal"], "llama4-vision": ["--enable-multimodal"]}
# Windows, and chunks, that a backend lacks.
LACKING = {"gemma3-vision": ("torch_native",), "llama4-vision": ("torch_native", "flashinfer")}
FIELDS = ("prompt_ids", "images", "image_ids", "image_positions")


class TiledVision(Images):
    def serve(self, model, prompts, *extra, processes=None):
        with open(self.path("prompts.jsonl"), "w") as file:
            for prompt in prompts:
                file.write(json.dumps({key: prompt[key] for key in FIELDS if key in prompt}) + "\n")
        done = self.tpsim("generate", "--model-path", os.path.join(numeric_test.MODELS, model), "--prompts",
                          self.path("prompts.jsonl"), "--output", self.path("out.jsonl"), "--max-new-tokens", "48",
                          "--ignore-eos", "--no-progress", "--return-logits", *FLAGS.get(model, []), *extra,
                          processes=processes)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("out.jsonl")) as file:
            return [json.loads(line) for line in file]

    def check(self, model, *extra, variant=None, processes=None):
        """`variant`: of the reference, where a prompt has it."""
        prompts = reference(model)["prompts"]
        rows = self.serve(model, prompts, *extra, processes=processes)
        self.assertEqual(len(rows), len(prompts))
        for prompt, row in zip(prompts, rows):
            wanted = prompt.get(variant, prompt)
            self.assertEqual(row["token_ids"], wanted["token_ids"])
            largest = max(abs(x) for x in wanted["logits"])
            for mine, theirs in zip(row["prompt_logits"], wanted["logits"], strict=True):
                self.assertLessEqual(abs(mine - theirs), 1e-4 * largest)
        return rows

    def test_shares_of_the_encoder(self):
        for i, model in enumerate(FAMILIES):
            for tp in share((1, 2, 4), i, 3):
                with self.subTest(model=model, tp=tp):
                    self.check(model, "--tp", str(tp))
        for model in ("internvl", "internvl-hf"):
            with self.subTest(model=model):
                self.check(model, "--tp", "2", "--mm-enable-dp-encoder")

    def test_processes(self):
        for model in FAMILIES:
            with self.subTest(model=model):
                self.check(model, "--tp", "4", processes=2)
        self.check("internvl", "--tp", "2", "--mm-enable-dp-encoder", processes=2)

    def test_backends_and_pages(self):
        for i, model in enumerate(FAMILIES):
            for k, backend in share(enumerate(("fa3", "flashinfer", "triton", "torch_native")), i, 2):
                if backend in LACKING.get(model, ()):
                    continue
                # Alone, without a prefix to reuse: image tokens see each other with triton, in whole prompts.
                variant = "both_ways" if backend == "triton" else None
                page = (1, 16)[(i + k) % 2]
                with self.subTest(model=model, backend=backend, page=page):
                    self.check(model, "--attention-backend", backend, "--page-size", str(page),
                               "--disable-radix-cache", variant=variant)

    def test_prefixes_with_images_are_reused(self):
        for i, model in enumerate(FAMILIES):
            for backend in share(("fa3", "triton"), i, 2):
                with self.subTest(model=model, backend=backend):
                    one_by_one = ("--attention-backend", backend, "--max-running-requests", "1")
                    self.check(model, *one_by_one, variant="both_ways" if backend == "triton" else None)
                    # Prompts 2, 3 and 4 begin with the same text and image of more than 16 tokens.
                    self.write_trace(model, times=1)
                    report = self.report_of(model, *one_by_one)
                    self.assertGreater(report["cache_hit_rate"] * report["total_input_tokens"], 2 * 16)

    def test_chunks_cut_images(self):
        for i, model in enumerate(FAMILIES):
            for backend in share(("fa3", "triton"), i + 1, 2):
                with self.subTest(model=model, backend=backend):
                    self.check(model, "--attention-backend", backend, "--max-running-requests", "1",
                               "--disable-radix-cache", "--chunked-prefill-size", "16", "--page-size", "16",
                               variant="both_ways_chunks_of_16" if backend == "triton" else None)


if __name__ == "__main__":
    numeric_test.TPSIM = os.path.abspath(sys.argv.pop(1))
    numeric_test.MODELS = os.path.abspath(sys.argv.pop(1))
    unittest.main()
