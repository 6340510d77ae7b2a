#!/usr/bin/env python3
"""Images: datasets and traces that carry them, the models that encode them, and what is refused.

Usage: images_test.py TPSIM [CLASS ...]
"""

import json
import os

from command_line import GOOD_TRACE, CommandLine, main

LOAD = ("--dataset-name", "image", "--num-prompts", "20", "--random-input-len", "50", "--random-output-len", "8",
        "--image-resolution", "720p", "--request-rate", "5")


def request(time, images, **more):
    return json.dumps({"arrival_time": time, "prompt_len": 30, "max_new_tokens": 4, "images": images, **more}) + "\n"


class Images(CommandLine):
    def served(self, *words, model="qwen2.5-vl-7b", hardware="h200-sxm"):
        report = os.path.join(self.folder, "report")
        done = self.tpsim("run", "--model-path", model, "--hardware", hardware, *words, "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.result(report)

    def test_every_model_encodes(self):
        for model, tokens in (("qwen2.5-vl-7b", 26 * 46), ("qwen3-vl-8b", 22 * 40), ("qwen3-vl-30b-a3b", 22 * 40),
                              ("internvl3.5-8b", 9 * 256), ("gemma-3-27b", 256), ("llama-4-scout", 13 * 144 + 13)):
            extra = ["--enable-multimodal"] if model in ("gemma-3-27b", "llama-4-scout") else []
            extra += ["--tp", "4"] if model == "llama-4-scout" else []
            result = self.served(*LOAD, *extra, model=model)
            self.assertEqual(result["images"]["images"], 20)
            self.assertEqual(result["images"]["image_tokens"], 20 * tokens, model)
            self.assertEqual(result["images"]["encoded"], 20)
            rank = result["ranks"][0]
            self.assertGreater(rank["encoder_seconds"], 0)
            self.assertAlmostEqual(rank["prefill"]["encoder"], rank["encoder_seconds"])
            self.assertGreater(rank["weight_bytes"], rank["vision_weight_bytes"])
            self.assertGreater(rank["vision_weight_bytes"], 0)
            status = {row["operator_class"]: row["status"] for row in result["calibration"]
                      if row["operator_class"].startswith("vision.")}
            measured = "uncalibrated" if model == "llama-4-scout" else "calibrated"
            self.assertEqual(status, {"vision.attention.fa3": measured, "vision.encoder": measured,
                                      "vision.host": measured})

    def test_text_models_have_no_such_keys(self):
        result = self.served("--dataset-name", "random", "--num-prompts", "5", model="llama-3.1-8b")
        text = json.dumps(result)
        for key in ("encoder", "vision", "images", "vlm_cache", "mm_"):
            self.assertNotIn('"' + key, text)

    def test_equal_images_are_found_again(self):
        lines = "".join(request(i, [[1280, 720]], image_ids=[i % 2]) for i in range(10))
        path = self.write("trace.jsonl", lines)
        cached = self.served("--trace", path)
        self.assertEqual(cached["images"]["encoded"], 2)
        self.assertGreater(cached["cache_hit_rate"], 0.7)
        # Without prefixes every prompt needs its embedding, which the cache still has, or has not.
        alone = self.served("--trace", path, "--disable-radix-cache")
        self.assertEqual((alone["images"]["encoded"], alone["images"]["cache_hits"]), (2, 8))
        without = self.served("--trace", path, "--disable-radix-cache", "--vlm-cache-size-mb", "0")
        self.assertEqual((without["images"]["encoded"], without["images"]["cache_hits"]), (10, 0))
        self.assertGreater(without["mean_ttft_ms"], alone["mean_ttft_ms"])

    def test_the_encoder_is_shared(self):
        load = [*LOAD, "--image-count", "8", "--tp", "4"]
        cut = self.served(*load)["ranks"][0]
        whole = self.served(*load, "--mm-enable-dp-encoder")["ranks"][0]
        self.assertGreater(whole["vision_weight_bytes"], 3 * cut["vision_weight_bytes"])
        self.assertNotEqual(whole["encoder_seconds"], cut["encoder_seconds"])

    def test_azure_counts_images(self):
        rows = "".join(f"2024-10-15 00:00:0{i}.0,{i},3000,5\n" for i in range(4))
        path = self.write("trace.csv", "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n" + rows)
        result = self.served("--trace", path, "--image-resolution", "360p")
        self.assertEqual(result["total_input_tokens"], 4 * 3000)
        self.assertEqual(result["images"]["images"], 6)

    def test_stages(self):
        """Images are encoded by the first stage, whose weights all have."""
        trace = self.write("image.jsonl", request(0, [[1280, 720]]) + request(10, [[1280, 720]]))
        results = []
        for stages in ("1", "2"):
            report = self.folder + "/pp" + stages
            done = self.tpsim("run", "--model-path", "qwen3-vl-8b", "--hardware", "h200-sxm", "--trace", trace,
                              "--pp-size", stages, "--report-dir", report)
            self.assertEqual(done.returncode, 0, done.stderr)
            results.append(self.result(report))
        one, two = results
        self.assertEqual(one["total_input_tokens"], two["total_input_tokens"])
        first, second = two["ranks"]
        self.assertGreater(first["encoder_seconds"], 0)
        self.assertAlmostEqual(first["encoder_seconds"], one["ranks"][0]["encoder_seconds"])
        self.assertNotIn("encoder_seconds", second)
        self.assertEqual(first["vision_weight_bytes"], second["vision_weight_bytes"])

    def test_refused(self):
        image = self.write("image.jsonl", request(0, [[640, 360]]))
        text = self.trace(GOOD_TRACE)
        azure = self.write("trace.csv", "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.0,1,9,5\n")
        qwen = ["run", "--model-path", "qwen2.5-vl-7b", "--hardware", "h200-sxm"]
        for words, expected in (
                (self.deployment("--trace", image), "vision encoder"),
                (["run", "--model-path", "gemma-3-27b", "--hardware", "h200-sxm", "--trace", image],
                 "--enable-multimodal"),
                ([*qwen, "--trace", image, "--mm-attention-backend", "flashinfer"], "--mm-attention-backend"),
                ([*qwen, "--trace", image, "--mm-attention-backend", "fa4"], "--mm-attention-backend fa4"),
                ([*qwen, "--trace", image, "--mm-attention-backend", "amx_attn"], "--mm-attention-backend amx_attn"),
                ([*qwen, "--trace", image, "--executor", "numeric"], "--load-format dummy"),
                (["run", "--model-path", "internvl3.5-8b", "--hardware", "h200-sxm", "--trace", image, "--pp-size", "2"],
                 "has no pipeline stages"),
                (["run", "--model-path", "qwen3-vl-8b", "--hardware", "h200-sxm", "--trace", image, "--pp-size", "18"],
                 "image features go into its first 3"),
                ([*qwen, "--trace", azure], "--image-resolution"),
                ([*qwen, "--trace", text, "--image-resolution", "720p"], "--image-resolution"),
                ([*qwen, "--trace", text, "--image-count", "2"], "--image-count"),
                ([*qwen, "--dataset-name", "image", "--image-resolution", "big"], "--image-resolution"),
                (self.deployment("--trace", text, "--mm-enable-dp-encoder"), "--mm-enable-dp-encoder"),
                (["run", "--model-path", "llama-4-scout", "--tp", "4", "--hardware", "h200-sxm", "--enable-multimodal",
                  "--mm-enable-dp-encoder", "--trace", image], "--mm-enable-dp-encoder"),
        ):
            self.assert_refused(words, expected)


if __name__ == "__main__":
    main()
