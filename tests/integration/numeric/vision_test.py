#!/usr/bin/env python3
"""Images in numeric execution, seen from outside: `tpsim generate`, `run`, `replay` and `verify` with prompts that have
images, against Transformers' logits and tokens of tests/golden/vision.

Usage: vision_test.py TPSIM MODELS [CLASS ...]      MODELS: tests/golden/vision
"""

import json
import os
import sys
import unittest

import numeric_test
from numeric_test import Numeric, config_of, forbidden, reference, share

BACKENDS = ("fa3", "flashinfer", "triton")
KEYS = ("prompt_ids", "images", "image_ids", "image_positions")


def models():
    return sorted(name for name in os.listdir(numeric_test.MODELS)
                  if os.path.isdir(os.path.join(numeric_test.MODELS, name)))


def heads(model):
    vision = config_of(model)["vision_config"]
    return vision.get("num_heads") or vision["num_attention_heads"]


def flags(model):
    """What SGLang needs to serve the model's images at all."""
    on = config_of(model)["architectures"][0].startswith(("Gemma3", "Llama4"))
    return ["--enable-multimodal"] if on else []


def shares_images(model):
    """Whether the model's class has --mm-enable-dp-encoder."""
    return config_of(model)["architectures"][0].startswith(("Qwen", "InternVL"))


def image_masks(model, backend):
    """Whether what image tokens see depends on how a prompt is served, which tiled_vision_test.py looks into."""
    return backend == "triton" and config_of(model)["architectures"][0].startswith("Gemma3")


class Images(Numeric):
    def prompts_of(self, model):
        return [{key: prompt[key] for key in KEYS if key in prompt} for prompt in reference(model)["prompts"]]

    def rows(self, model, *extra, **more):
        wanted = reference(model)["prompts"]
        return self.generate(model, self.prompts_of(model), *flags(model), *extra, logits=True,
                             new_tokens=len(wanted[0]["token_ids"]), **more)

    def check_reference(self, model, *extra, processes=None):
        rows = self.rows(model, *extra, processes=processes)
        for prompt, row in zip(reference(model)["prompts"], rows, strict=True):
            self.assertEqual(row["token_ids"], prompt["token_ids"])
            largest = max(abs(x) for x in prompt["logits"])
            for mine, theirs in zip(row["prompt_logits"], prompt["logits"], strict=True):
                self.assertLessEqual(abs(mine - theirs), 1e-4 * largest)
        return rows

    def write_trace(self, model, times=2):
        """Each prompt `times` times, one after the other."""
        prompts = self.prompts_of(model)
        with open(self.path("trace.jsonl"), "w") as file:
            for i, prompt in enumerate(prompts * times):
                file.write(json.dumps({"arrival_time": i * 1e-3, "max_new_tokens": 8, **prompt}) + "\n")
        return self.path("trace.jsonl")

    def report_of(self, model, *extra, processes=None):
        done = self.tpsim("run", "--executor", "numeric", "--model-path", os.path.join(numeric_test.MODELS, model),
                          "--trace", self.path("trace.jsonl"), "--report-dir", self.path("report"), "--quiet",
                          *flags(model), *extra, processes=processes)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(self.path("report"), "report.json")) as file:
            return json.load(file)


class Towers(Images):
    """Transformers' logits and tokens, however the encoder is cut and the text model served."""

    def test_tp_backends_and_pages(self):
        for i, model in enumerate(models()):
            for tp in (1, 2, 4):
                if heads(model) % tp:
                    continue
                for k, backend in share(enumerate(BACKENDS), i + tp, 4):
                    page = (1, 16, 64)[(i + k + tp) % 3]
                    if forbidden(model, backend, page) or image_masks(model, backend):
                        continue
                    with self.subTest(model=model, tp=tp, backend=backend, page=page):
                        self.check_reference(model, "--tp", str(tp), "--attention-backend", backend, "--page-size",
                                             str(page))

    def test_chunks_that_cut_images(self):
        for i, model in enumerate(models()):
            for cache in share(("100", "0"), i, 2):
                with self.subTest(model=model, cache=cache):
                    self.check_reference(model, "--chunked-prefill-size", "8", "--vlm-cache-size-mb", cache,
                                         "--check-invariants")
            with self.subTest(model=model, mixed=True):
                if image_masks(model, "triton"):
                    continue
                self.check_reference(model, "--chunked-prefill-size", "8", "--enable-mixed-chunk",
                                     "--attention-backend", "triton", "--tp", "2")

    def test_prefixes_with_images_are_reused(self):
        for i, model in enumerate(models()):
            for extra in share((["--max-running-requests", "1"], ["--max-running-requests", "1", "--page-size", "16"],
                                ["--max-running-requests", "1", "--disable-radix-cache"],
                                ["--max-total-tokens", "256", "--schedule-conservativeness", "0",
                                 "--check-invariants"]), i, 2):
                with self.subTest(model=model, extra=" ".join(extra)):
                    self.check_reference(model, *extra)

    def test_ranks_share_the_images(self):
        for i, model in enumerate(filter(shares_images, models())):
            for tp in share((2, 4, 8), i, 3):
                with self.subTest(model=model, tp=tp):
                    self.check_reference(model, "--tp", str(tp), "--mm-enable-dp-encoder")
            with self.subTest(model=model, mpirun=True):
                self.check_reference(model, "--tp", "8", "--mm-enable-dp-encoder", processes=4)

    def test_the_same_bits_for_any_number_of_processes(self):
        for model in models():
            for extra in ([], ["--mm-enable-dp-encoder"] if shares_images(model) else []):
                rows = [self.rows(model, "--tp", "4", *extra, processes=processes) for processes in (None, 2, 4)]
                with self.subTest(model=model, extra=extra):
                    self.assertEqual(rows[0], rows[1])
                    self.assertEqual(rows[0], rows[2])

    def test_data_parallel_attention(self):
        for words in ("--dp-size 2", "--dp-size 2 --mm-enable-dp-encoder", "--dp-size 4"):
            for processes in (None, 4):
                with self.subTest(words=words, processes=processes):
                    self.check_reference("qwen3-vl-moe", "--tp", "4", "--enable-dp-attention", *words.split(),
                                         processes=processes)

    def test_speculation_from_the_text(self):
        for model in models():
            chunks = config_of(model).get("text_config", {}).get("attention_chunk_size")  # not verified
            if image_masks(model, "triton") or chunks:
                continue
            with self.subTest(model=model):
                self.check_reference(model, "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "6",
                                     "--attention-backend", "triton")

    def test_attention_of_the_encoder_is_a_name(self):
        rows = [self.rows("qwen3-vl", *extra) for extra in ([], ["--mm-attention-backend", "sdpa"])]
        self.assertEqual(*rows)


class Serving(Images):
    """Traces with images, the embedding cache, recorded streams, verify."""

    def test_what_is_encoded_and_kept(self):
        for model in models():
            self.write_trace(model)
            images = [tuple(key) for prompt in self.prompts_of(model)
                      for key in zip(prompt.get("image_ids", ()), *zip(*prompt.get("images", [])))]
            for processes in (None, 2):
                report = self.report_of(model, "--max-running-requests", "1", "--tp", "2", "--disable-radix-cache",
                                        processes=processes)
                with self.subTest(model=model, processes=processes):
                    self.assertEqual(report["images"]["images"], 2 * len(images))
                    self.assertEqual(report["images"]["encoded"], len(set(images)))
                    self.assertEqual(report["images"]["encoded"] + report["images"]["cache_hits"], 2 * len(images))
                    self.assertGreater(report["ranks"][0]["encoder_seconds"], 0)
                    self.assertEqual(report["server_args"]["mm_enable_dp_encoder"], "false")
                    self.assertNotIn("calibration", {key for key, value in report.items() if value})
            report = self.report_of(model, "--max-running-requests", "1", "--vlm-cache-size-mb", "0")
            self.assertNotIn("cache_hits", {k: v for k, v in report["images"].items() if v})
            self.assertLess(report["images"]["encoded"], 2 * len(images))  # prefixes were reused
            self.assertGreater(report["cache_hit_rate"], 0)

    def test_a_recorded_stream_computes(self):
        model = models()[0]
        folder = os.path.join(numeric_test.MODELS, model)
        done = self.tpsim("run", "--model-path", folder, "--hardware", "h200-sxm", "--trace", self.write_trace(model),
                          "--max-total-tokens", "4096", "--record-batches", self.path("stream.pb"), "--quiet",
                          *flags(model))
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.tpsim("replay", self.path("stream.pb"), "--executor", "numeric", "--model-path", folder,
                          "--check-invariants", *flags(model))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_verify(self):
        for model in models():
            self.write_prompts(self.prompts_of(model))
            done = self.tpsim("verify", "--model-path", os.path.join(numeric_test.MODELS, model), "--tp", "2",
                              "--prompts", self.path("prompts.jsonl"), "--attention-backends", "fa3,triton",
                              "--no-progress", *flags(model))
            with self.subTest(model=model):
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("All agree", done.stdout)

    def test_one_prompt_on_the_command_line(self):
        prompt = reference("qwen3-vl")["prompts"][1]
        [image] = zip(prompt["image_ids"], prompt["images"], prompt["image_positions"])
        number, (width, height), position = image
        done = self.tpsim("generate", "--model-path", os.path.join(numeric_test.MODELS, "qwen3-vl"), "--prompt-ids",
                          ",".join(map(str, prompt["prompt_ids"])), "--image", f"{number}:{width}x{height}@{position}",
                          "--max-new-tokens", "48", "--ignore-eos", "--no-progress")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([int(x) for x in done.stdout.split(",")], prompt["token_ids"])

    def test_refused(self):
        base = ["generate", "--model-path", os.path.join(numeric_test.MODELS, "qwen3-vl")]
        for image, words in (("7", "is not a list of images"), ("7:40", "is not a list of images"), ("7:0x24", "--image"),
                             ("7:40x24@3,8:40x24@2", "positions must ascend"), ("7:40x24@9", "image 1 stands after 9 tokens"),
                             ("7:4000x4", "200"), ("x:40x24", "--image")):
            self.assert_refused([*base, "--prompt-ids", "3,4", "--image", image], words)
        self.assert_refused([*base, "--prompts", self.write_prompts([[1]]), "--image", "7:40x24"], "--image: belongs to")
        self.assert_refused([*base, "--prompts", self.write_prompts([{"prompt_ids": [1], "image_ids": [3]}])],
                            "image_ids is given and images is not")
        self.assert_refused([*base, "--prompt-ids", "3,4", "--image", "7:40x24", "--tp", "8"],
                            "--tp 8: does not divide the 4 heads", "--mm-enable-dp-encoder")
        self.assert_refused([*base, "--prompt-ids", "3,4", "--image", "7:40x24", "--speculative-algorithm", "STANDALONE",
                             "--speculative-draft-model-path", base[2]], "--speculative-algorithm STANDALONE")


if __name__ == "__main__":
    numeric_test.TPSIM = os.path.abspath(sys.argv.pop(1))
    numeric_test.MODELS = os.path.abspath(sys.argv.pop(1))
    unittest.main()
