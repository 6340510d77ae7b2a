"""Speculative decoding as SGLang's documentation starts it, and what a first try of it may get wrong."""

import itertools
import os

from command_line import CommandLine, main

CHAIN = ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"]
LOAD = ["--hardware", "h200-sxm", "--dataset-name", "random", "--random-input-len", "256", "--random-output-len", "32",
        "--speculative-accept-rates", "0.8,0.7,0.6", "--check-invariants"]


class Documented(CommandLine):
    """The lines of docs/basic_usage (deepseek_v3, deepseek_v32, glm45, qwen3) without what names no part of a step."""

    def serve(self, *words, prompts=24):
        report = self.folder + "/r"
        done = self.tpsim("run", *words, *LOAD, "--num-prompts", str(prompts), "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.result(report), done

    def check(self, result, prompts=24):
        self.assertEqual(result["completed"], prompts)
        self.assertGreater(result["accept_length"], 1.5)
        self.assertLessEqual(result["accept_length"], 4)
        speculation = result["speculation"]
        self.assertAlmostEqual(sum(speculation["accept_length_fraction"]), 1)
        self.assertAlmostEqual(sum(speculation[part] for part in ("draft_share", "verify_share", "draft_extend_share")),
                               1)
        self.assertGreater(speculation["verify_share"], 0.3)
        self.assertGreater(speculation["tpot_speedup"], 0)
        self.assertEqual(result["mixed_steps"], 0)

    def test_layers_for_the_next_token(self):
        for words in (
                ["--model-path", "deepseek-ai/DeepSeek-V3-0324", "--speculative-algorithm", "EAGLE",
                 "--trust-remote-code", "--tp", "8"],
                ["--model-path", "openai/gpt-oss-120b", "--tp", "4", "--speculative-algorithm", "EAGLE3",
                 "--speculative-draft-model-path", "lmsys/EAGLE3-gpt-oss-120b-bf16"],
                ["--model-path", "deepseek-ai/DeepSeek-V3", "--speculative-algo", "EAGLE", "--tp", "8",
                 "--speculative-draft-model-path", "lmsys/DeepSeek-V3-NextN"],
                ["--model-path", "deepseek-ai/DeepSeek-V3.2-Exp", "--tp", "8", "--speculative-algorithm", "EAGLE"],
                ["--model-path", "zai-org/GLM-4.6-FP8", "--tp-size", "8", "--tool-call-parser", "glm45",
                 "--reasoning-parser", "glm45", "--speculative-algorithm", "EAGLE", "--mem-fraction-static", "0.9",
                 "--served-model-name", "glm-4.6-fp8", "--enable-custom-logit-processor"],
                ["--model-path", "Qwen/Qwen3-Next-80B-A3B-Instruct", "--tp", "4", "--speculative-algo", "NEXTN"],
                ["--model-path", "Qwen/Qwen3-Next-80B-A3B-Instruct", "--tp", "4", "--speculative-algo", "NEXTN",
                 "--mamba-scheduler-strategy", "extra_buffer", "--page-size", "64"]):
            with self.subTest(words=words):
                self.check(self.serve(*words, *CHAIN)[0])

    def test_data_parallel_attention(self):
        for more in (["--model-path", "deepseek-ai/DeepSeek-V3"], ["--model-path", "deepseek-ai/DeepSeek-V3.2"],
                     ["--model-path", "deepseek-ai/DeepSeek-V3", "--moe-a2a-backend", "deepep"],
                     ["--model-path", "zai-org/GLM-4.5-Air", "--ep", "8"]):
            with self.subTest(words=more):
                result, _ = self.serve(*more, "--tp", "8", "--dp", "8", "--enable-dp-attention",
                                       "--speculative-algorithm", "EAGLE", *CHAIN, prompts=64)
                self.check(result, prompts=64)
                self.assertEqual(result["server_args"]["max_running_requests"], "6")
                self.assertEqual(sum(rank["requests"] for rank in result["data_parallel_ranks"]), 64)
                self.assertEqual(sum(rank["decode_tokens"] for rank in result["data_parallel_ranks"]) +
                                 result["completed"] >= result["total_output_tokens"], True)

    def test_every_process_comes_to_the_same(self):
        words = ["run", "--model-path", "deepseek-v3", "--tp", "8", "--dp", "4", "--enable-dp-attention",
                 "--speculative-algorithm", "NEXTN", *LOAD, "--num-prompts", "24"]
        alone = self.tpsim(*words, "--report-dir", self.folder + "/a")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        many = self.tpsim(*words, "--report-dir", self.folder + "/b", processes=4)
        self.assertEqual(many.returncode, 0, many.stderr)
        self.assertEqual(self.result(self.folder + "/a"), self.result(self.folder + "/b"))

    def test_states_take_memory(self):
        words = ["--model-path", "qwen3-next-80b-a3b", "--tp", "4"]
        with_drafts, _ = self.serve(*words, "--speculative-algorithm", "NEXTN")
        done = self.tpsim("run", *words, "--hardware", "h200-sxm", "--dataset-name", "random", "--num-prompts", "4",
                          "--max-running-requests", "48", "--report-dir", self.folder + "/plain")
        self.assertEqual(done.returncode, 0, done.stderr)
        plain = self.result(self.folder + "/plain")
        self.assertLess(with_drafts["state_pool_slots"], plain["state_pool_slots"])


class AssumedAcceptance(CommandLine):
    """Launch lines as they are pasted: nobody says how many drafts are right."""

    def run_of(self, *words):
        done = self.tpsim("run", "--hardware", "h200-sxm", "--tp", "8", "--dataset-name", "random", "--num-prompts", "20",
                          "--request-rate", "2", *words, "--report-dir", "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr, self.result(os.path.join(self.folder, "out"))

    def test_what_was_published_is_taken_and_said(self):
        for words, published, least, most in (
                (["--model-path", "deepseek-v3", "--speculative-algorithm", "NEXTN"], "DeepSeek-R1", 2.6, 3.1),
                (["--model-path", "zai-org/GLM-5-FP8", "--speculative-algorithm", "EAGLE"], "GLM-5", 3.2, 3.8),
                (["--model-path", "llama-3.1-8b", "--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path",
                  "eagle3-llama-3.1-8b"], "Llama 3.1 8B", 2.5, 4.5),
                (["--model-path", "glm-4.5-air", "--speculative-algorithm", "EAGLE"], "of other models", 2.6, 3.6)):
            said, result = self.run_of(*words)
            self.assertIn("nobody said how many drafts are right", said)
            self.assertIn(published, said)
            self.assertTrue(least < result["accept_length"] < most, result["accept_length"])

    def test_who_says_is_heard(self):
        said, result = self.run_of("--model-path", "deepseek-v3", "--speculative-algorithm", "EAGLE",
                                   "--speculative-accept-rates", "0.5")
        self.assertNotIn("nobody said", said)
        self.assertLess(result["accept_length"], 2.2)


class FirstTries(CommandLine):
    def refused(self, *words, command="run"):
        done = self.tpsim(command, "--hardware", "h200-sxm", "--dataset-name", "random", "--num-prompts", "4", *words)
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stderr

    def test_what_is_missing_or_cannot_be(self):
        eagle = ["--speculative-algorithm", "EAGLE"]
        rates = ["--speculative-accept-rates", "0.8"]
        for words, sentence in (
                (["--model-path", "llama-3.1-8b", *eagle, *rates], "--speculative-draft-model-path: is required"),
                (["--model-path", "llama-3.1-8b", "--speculative-algorithm", "EAGLE3", *rates],
                 "--speculative-draft-model-path: is required"),
                (["--model-path", "llama-3.1-8b", "--speculative-algorithm", "NGRAM"],
                 "--speculative-accept-rates: is required"),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, "--speculative-accept-rates", "1.2"],
                 "--speculative-accept-rates 1.2"),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, *rates, "--speculative-num-steps", "0"],
                 "--speculative-num-steps 0"),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, *rates, "--pp-size", "2"],
                 "leave --speculative-algorithm out"),
                (["--model-path", "deepseek-v3.2", "--tp", "8", *eagle, *rates, "--speculative-num-steps", "3",
                  "--speculative-eagle-topk", "4", "--speculative-num-draft-tokens", "8"],
                 "nsa verifies chains of drafts only; use --speculative-eagle-topk 1"),
                (["--model-path", "kimi-k2", "--tp", "16", *eagle, *rates], "brings no layer that drafts"),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, *rates, "--speculative-draft-model-path",
                  "qwen3-8b"], "--speculative-draft-model-path qwen3-8b: is a Qwen3ForCausalLM"),
                (["--model-path", "deepseek-v3", "--tp", "8", "--dp", "8", "--enable-dp-attention",
                  "--speculative-algorithm", "NGRAM", *rates], "SGLang refuses it with data-parallel attention"),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, *rates, "--speculative-moe-a2a-backend",
                  "deepep"], "--speculative-moe-a2a-backend deepep"),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, *rates,
                  "--speculative-draft-model-quantization", "no_such"],
                 '--speculative-draft-model-quantization "no_such"'),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, *rates, "--speculative-adaptive"],
                 "`tpsim compare` takes a list"),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, *rates, "--speculative-token-map", "map.pt"],
                 "--speculative-token-map: maps of tokens are not read"),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, *rates,
                  "--speculative-accept-threshold-single", "0.9"], "--speculative-accept-rates"),
                (["--model-path", "deepseek-v3", "--tp", "8", *eagle, *rates, "--enable-multi-layer-eagle"],
                 "several layers for the next token"),
                (["--model-path", "qwen3-8b", "--speculative-algorithm", "DFLASH"], "DFLASH: is not simulated")):
            with self.subTest(words=words):
                self.assertIn(sentence, self.refused(*words))

    def test_defaults_of_sglang_may_be_said(self):
        done = self.tpsim("run", "--model-path", "deepseek-v3", "--tp", "8", *LOAD, "--num-prompts", "4",
                          "--speculative-algorithm", "EAGLE", "--speculative-accept-threshold-single", "1.0",
                          "--speculative-accept-threshold-acc", "1.0", "--speculative-draft-load-format", "auto",
                          "--speculative-moe-runner-backend", "auto", "--speculative-ngram-capacity", "10000000")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_trees_are_swept(self):
        """Lists make a product; what cannot be is a line of its own."""
        report = self.folder + "/sweep"
        done = self.tpsim("compare", "--model-path", "deepseek-v3", "--tp", "8", "--dp", "8", "--enable-dp-attention",
                          "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1,3,5",
                          "--speculative-eagle-topk", "1,4", "--speculative-num-draft-tokens", "4,8", *LOAD,
                          "--num-prompts", "16", "--page-size", "1", "--report-dir", report, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = self.result(report)["runs"]
        seen = {(r["server_args"]["speculative_num_steps"], r["server_args"]["speculative_eagle_topk"],
                 r["server_args"]["speculative_num_draft_tokens"]) for r in runs if "server_args" in r}
        for steps, (topk, drafts) in itertools.product(("3", "5"), (("4", "8"), ("4", "4"))):
            self.assertIn((steps, topk, drafts), seen)
        self.assertIn(("5", "1", "6"), seen)
        # Chains are what their steps make them, each once.
        chains = [r["server_args"]["speculative_num_steps"] for r in runs
                  if "server_args" in r and r["server_args"]["speculative_eagle_topk"] == "1"]
        self.assertEqual(sorted(chains), ["1", "3", "5"])

    def test_draft_models_of_their_own(self):
        report = self.folder + "/r"
        base = ["run", "--model-path", "deepseek-v3", "--tp", "8", *LOAD, "--num-prompts", "8",
                "--speculative-algorithm", "NEXTN", "--report-dir", report]
        def share(*words):
            done = self.tpsim(*base, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            result = self.result(report)
            return result["speculation"]["draft_share"], result["kv_pool_tokens"]
        plain, pool = share()
        wide, smaller = share("--speculative-draft-model-quantization", "unquant")
        self.assertGreater(wide, plain)
        self.assertLess(smaller, pool)


if __name__ == "__main__":
    main()
