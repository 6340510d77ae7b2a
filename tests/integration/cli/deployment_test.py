#!/usr/bin/env python3
"""Models, GPUs and how they share it: what is refused, layouts of the ranks, memory.

Usage: deployment_test.py TPSIM [CLASS ...]
"""

import csv
import json
import os
import subprocess

from command_line import CommandLine, main


class Deployment(CommandLine):
    def test_impossible_deployments(self):
        trace = self.trace()
        for extra, expected in (
            (["--attention-backend", "flashinfre"], ["flashinfre", "flashinfer"]),
            (["--prefill-attention-backend", "fa33"], ["fa33", "fa3"]),
            (["--tp", "3"], ["--tp", "3", "heads"]),
            (["--tp", "16", "--nnodes", "1"], ["--nnodes 1", "8 of h200-sxm are one node", "2 nodes"]),
            (["--tp", "8", "--nnodes", "3"], ["--nnodes 3", "share out the ranks of --tp 8"]),
            (["--tp", "8", "--nnodes", "2", "--dp-size", "2"], ["--dp-size 2", "2 nodes", "--attn-dp-size"]),
            (["--tp", "64"], ["--tp", "64"]),
            (["--max-total-tokens", "64"], ["--max-total-tokens 64"]),
            (["--mem-fraction-static", "0.05"], ["--mem-fraction-static 0.05"]),
            (["--context-length", "10000000"], ["--context-length 10000000"]),
            (["--chunked-prefill-size", "100", "--page-size", "64"], ["--chunked-prefill-size 100", "64"]),
            (["--fp8-gemm-backend", "flashinfer_trtllm"], ["--fp8-gemm-backend flashinfer_trtllm", "b200"]),
            (["--fp8-gemm-backend", "cublas"], ["--fp8-gemm-backend", "flashinfer_trtllm"]),
        ):
            self.assert_refused([*self.deployment("--trace", trace), *extra], *expected)

    def test_unknown_names(self):
        trace = self.trace()
        self.assert_refused(["run", "--model-path", "llama-3.1-7b", "--hardware", "h200-sxm", "--trace", trace],
                            "llama-3.1-7b", "did you mean llama-3.1-70b", "tpsim models")
        self.assert_refused(["run", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxn", "--trace", trace], "h200-sxn",
                            "did you mean h200-sxm?")
        self.assert_refused(["run", "--model-path", "llama-3.1-8b", "--hardware", "a100-sxm", "--trace", trace,
                             "--attention-backend", "fa4"], "fa4", "a100-sxm")
        self.assert_refused(self.deployment("--trace", trace, "--attention-backends", "fa3,trtion", command="compare"),
                            "trtion", "triton")

    def test_model_folders(self):
        trace = self.trace()
        for name, content, expected in (
            ("no-config", None, "config.json"),
            ("broken", "{", "config.json"),
            ("not-llama", '{"architectures": ["BertModel"]}', "BertModel"),
            ("no-heads", '{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}', "config.json"),
        ):
            os.mkdir(os.path.join(self.folder, name))
            if content is not None:
                self.write(f"{name}/config.json", content)
            self.assert_refused(["run", "--model-path", os.path.join(self.folder, name), "--hardware", "h200-sxm",
                                 "--trace", trace], expected)


class Hosts(CommandLine):
    """A GPU and a host are a JSON file each, and nothing else."""

    CATALOGUE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../rank/catalogue")

    def toy(self, kind, name, /, **changes):
        with open(os.path.join(self.CATALOGUE, kind, "h200-sxm.json"), encoding="utf-8") as file:
            profile = json.load(file)
        for key, value in changes.items():
            if isinstance(value, dict):
                profile[key].update(value)
            else:
                profile[key] = value
        return self.write(name, json.dumps(profile))

    def served(self, hardware):
        report = os.path.join(self.folder, "out")
        done = self.tpsim("run", "--model-path", "llama-3.1-8b", "--hardware", hardware, "--dataset-name", "random",
                          "--random-input-len", "200", "--random-output-len", "8", "--num-prompts", "4",
                          "--max-concurrency", "1", "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.result(report)

    def test_a_toy_gpu_in_a_toy_host(self):
        known = self.served("h200-sxm")
        gpu = self.toy("hardware", "toy.json", name="toy", attention_stand_in="h200-sxm")
        on_known_host = self.served(gpu)
        self.assertEqual(on_known_host["hardware"], "toy")
        self.assertEqual(on_known_host["completed"], 4)
        queue = {row["operator_class"]: row for row in on_known_host["calibration"]}["launch_queue"]
        self.assertEqual(queue["status"], "uncalibrated")
        self.assertEqual(on_known_host["mean_e2e_latency_ms"], known["mean_e2e_latency_ms"])
        # A host whose HTTP server takes 100 ms longer, beside the GPU's file.
        self.toy("hosts", "toy-host.json", name="toy-host", gpu="toy",
                 front_end={"pass_seconds": 0.10275})
        on_toy_host = self.served(self.toy("hardware", "toy.json", name="toy", attention_stand_in="h200-sxm", host="toy-host.json"))
        self.assertAlmostEqual(on_toy_host["mean_ttft_ms"] - known["mean_ttft_ms"], 100, delta=1e-6)
        queue = {row["operator_class"]: row for row in on_toy_host["calibration"]}["launch_queue"]
        self.assertEqual(queue["status"], "calibrated")

    def test_what_a_host_leaves_out_is_named(self):
        self.write("toy-host.json", "{}")
        gpu = self.toy("hardware", "toy.json", host="toy-host.json")
        self.assert_refused(["run", "--model-path", "llama-3.1-8b", "--hardware", gpu, "--dataset-name", "random"],
                            "toy-host.json", "is missing")


class Layouts(CommandLine):
    """Experts and data-parallel attention: any number of processes writes the same report."""

    MODEL = ("run", "--model-path", "qwen3-30b-a3b", "--hardware", "h200-sxm", "--tp", "8", "--quiet",
             "--check-invariants")

    def report(self, *extra, processes=None):
        folder = os.path.join(self.folder, f"report-{processes}")
        done = self.tpsim(*self.MODEL, "--trace", self.trace(), "--report-dir", folder, *extra, processes=processes)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "report.json")) as file:
            return file.read()

    def test_data_parallel_attention(self):
        words = ("--dp-size", "4", "--enable-dp-attention", "--ep-size", "8", "--expert-distribution", "zipf:0.7")
        alone = self.report(*words)
        for processes in (1, 2, 4, 8):
            self.assertEqual(self.report(*words, processes=processes), alone)
        report = json.loads(alone)
        ranks = report["data_parallel_ranks"]
        self.assertEqual([r["dp_rank"] for r in ranks], [0, 1, 2, 3])
        self.assertEqual(sum(r["requests"] for r in ranks), report["completed"] + report["failed"])
        self.assertEqual({r["steps"] + r["idle_steps"] for r in ranks}, {report["steps"]})
        self.assertEqual(report["server_args"]["enable_dp_attention"], "true")
        self.assertGreater(float(report["server_args"]["expert_imbalance"]), 1)
        classes = [row["operator_class"] for row in report["calibration"]]
        self.assertTrue(any(name.startswith("moe") for name in classes), classes)

    def test_plain_deployments_say_nothing_of_it(self):
        report = json.loads(self.report())
        self.assertNotIn("data_parallel_ranks", report)
        for name in ("pp_size", "pipeline_stages", "pipeline_bubble_fraction"):
            self.assertNotIn(name, report)
        for name in ("ep_size", "dp_size", "pp_size", "expert_distribution", "moe_a2a_backend"):
            self.assertNotIn(name, report["server_args"])

    def test_pipeline_stages(self):
        words = ("--pp-size", "3", "--pp-async-batch-depth", "1", "--expert-distribution", "zipf:0.7", "--ep-size", "2")
        alone = self.report(*words)
        for processes in (1, 2, 8):
            self.assertEqual(self.report(*words, processes=processes), alone)
        report = json.loads(alone)
        self.assertEqual(report["pp_size"], 3)
        self.assertEqual([(s["pp_rank"], s["first_layer"], s["num_layers"]) for s in report["pipeline_stages"]],
                         [(0, 0, 16), (1, 16, 16), (2, 32, 16)])
        self.assertEqual(report["kv_pool_tokens"], min(s["kv_pool_tokens"] for s in report["pipeline_stages"]))
        self.assertEqual(len(report["ranks"]), 24)
        self.assertEqual([r["rank"] for r in report["ranks"]], list(range(24)))
        for stage in report["pipeline_stages"]:
            self.assertEqual({r["weight_bytes"] for r in report["ranks"][8 * stage["pp_rank"]:][:8]},
                             {stage["weight_bytes"]})
        self.assertTrue(0 < report["pipeline_bubble_fraction"] < 1)
        self.assertEqual(report["server_args"]["disable_overlap_schedule"], "true")
        self.assertEqual(report["server_args"]["disable_prefill_cuda_graph"], "true")
        self.assertIn("all_to_all", [row["operator_class"] for row in report["calibration"]])

    def test_pipeline_refusals(self):
        base = [*self.MODEL, "--trace", self.trace()]
        self.assert_refused([*base, "--pp-size", "49"], "--pp-size 49: the model has 48 layers")
        self.assert_refused([*base, "--pp-size", "2", "--dp-size", "2", "--enable-dp-attention"],
                            "--pp-size 2: data-parallel attention in pipeline stages is not simulated")
        self.assert_refused([*base, "--pp-size", "2", "--executor", "numeric"], "--pp-size 2: pipeline stages are priced")
        self.assert_refused([*base, "--pp-async-batch-depth", "2"], "--pp-async-batch-depth 2: needs --pp-size above 1")
        self.assert_refused([*base, "--pp-size", "2", "--enable-dynamic-chunking"], "--enable-dynamic-chunking: ")
        self.assert_refused(["run", "--model-path", "gemma-3-27b", "--hardware", "h200-sxm", "--pp-size", "2", "--trace",
                             self.trace()], "has no pipeline stages")
        self.assert_refused([*base, "--pp-size", "2"], "--tp 8 with --pp-size 2 runs with mpirun -n 1, 2, 4, 8 or 16",
                            processes=3)

    def test_deepep(self):
        report = json.loads(self.report("--moe-a2a-backend", "deepep", "--dp-size", "8", "--enable-dp-attention",
                                        "--moe-dense-tp-size", "1", "--enable-dp-lm-head"))
        self.assertEqual(report["server_args"]["ep_size"], "8")
        status = {row["operator_class"]: row["status"] for row in report["calibration"]}
        self.assertEqual(status["deepep.low_latency"], "uncalibrated")

    def test_deepep_mode(self):
        words = ["--moe-a2a-backend", "deepep", "--deepep-mode"]
        report = json.loads(self.report(*words, "normal"))
        self.assertEqual((report["replayed_steps"], report["server_args"]["deepep_mode"]), (0, "normal"))
        base = [*self.MODEL, "--trace", self.trace()]
        self.assert_refused([*base, *words, "low_latency"],
                            "--deepep-mode low_latency: hands on at most 128 tokens of a GPU")
        self.assert_refused([*base, "--deepep-mode", "normal"], "--deepep-mode normal: is for")
        self.report(*words, "low_latency", "--chunked-prefill-size", "1024")

    def rate(self, hardware, gpus, mode, length, prompts, *more):
        """Tokens/s of a GPU in the last of the largest passes of DeepSeek V3 by large-scale expert parallelism."""
        folder = os.path.join(self.folder, "large-ep")
        done = self.tpsim("run", "--quiet", "--report-dir", folder, "--model-path", "deepseek-v3", "--hardware", hardware,
                          "--tp-size", str(gpus), "--dp-size", str(gpus), "--enable-dp-attention", "--enable-dp-lm-head",
                          "--moe-dense-tp-size", "1", "--moe-a2a-backend", "deepep", "--disable-radix-cache",
                          "--dataset-name", "random-ids", "--random-range-ratio", "1", "--random-input-len", str(length),
                          "--num-prompts", str(prompts), "--request-rate", "inf", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "steps.csv")) as file:
            steps = [(int(row["extend_tokens"]) + int(row["decode_requests"]), float(row["step_time"]))
                     for row in csv.DictReader(file) if row["forward_mode"] == mode]
        most = max(tokens for tokens, _ in steps)
        return most / [seconds for tokens, seconds in steps if tokens == most][-1] / gpus

    PREFILLS = ["--deepep-mode", "normal", "--random-output-len", "1"]
    BALANCED = ["--enable-eplb", "--ep-num-redundant-experts", "32", "--mem-fraction-static", "0.84"]

    def test_two_batch_overlap(self):
        """LMSYS's report of DeepSeek V3 on 96 H100s (5 May 2025, lmsys.org/blog/2025-05-05-large-scale-ep): 16,384
        tokens a GPU prefill at 59,337 tokens/s a node on 32 of them with balanced experts, 256 requests of 2,000
        tokens decode at 22,282 on 72, a quarter more than without the overlap."""
        prefill = ["h100-sxm", 32, "EXTEND", 4096, 512, *self.PREFILLS, *self.BALANCED, "--attention-backend", "fa3",
                   "--chunked-prefill-size", str(32 * 16384), "--expert-distribution", "balanced"]
        decode = ["h100-sxm", 72, "DECODE", 2000, 72 * 256, *self.BALANCED, "--attention-backend", "flashmla",
                  "--random-output-len", "20", "--chunked-prefill-size", str(72 * 4096), "--max-running-requests",
                  "18432", "--cuda-graph-max-bs", "256"]
        for words, node in ((prefill, 59337), (decode, 22282)):
            overlapped = self.rate(*words, "--enable-two-batch-overlap")
            self.assertLess(abs(overlapped * 8 / node - 1), 0.2, overlapped)
            self.assertGreater(overlapped / self.rate(*words), 1.1)
        base = [*self.MODEL, "--trace", self.trace(), "--enable-two-batch-overlap"]
        self.assert_refused(base, "--enable-two-batch-overlap: is simulated where deepep")
        self.assert_refused([*base, "--moe-a2a-backend", "deepep"], "are simulated whole")
        self.assert_refused([*base, "--moe-a2a-backend", "deepep", "--tbo-token-distribution-threshold", "0.6"],
                            "--tbo-token-distribution-threshold 0.6")

    def test_gb200_nvl72(self):
        """LMSYS's reports of DeepSeek V3 on a GB200 NVL72 (16 June and 25 September 2025, lmsys.org/blog, gb200-part-1
        and -2), fp8 and 16-bit attention, prompts of 2,000: tokens/s a GPU. Neither says how many requests or tokens a
        GPU had; 768 is what the second one decodes with longer prompts."""
        prefill = self.rate("gb200", 4, "EXTEND", 2000, 256, *self.PREFILLS, "--mem-fraction-static", "0.96",
                            "--max-total-tokens", "200000", "--chunked-prefill-size", "65536")
        decode = self.rate("gb200", 48, "DECODE", 2000, 48 * 768, *self.BALANCED, "--random-output-len", "20",
                           "--chunked-prefill-size", str(48 * 16384), "--max-running-requests", str(48 * 768),
                           "--cuda-graph-max-bs", "768")
        for predicted, measured in ((prefill, 18471), (decode, 7583), (decode, 9087)):
            self.assertLess(abs(predicted / measured - 1), 0.2, predicted)



class Memory(CommandLine):
    MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../golden/models/qwen2")
    LOAD = ["--dataset-name", "random", "--num-prompts", "20", "--random-input-len", "64", "--random-output-len", "16"]

    def peak(self, *words):
        """Megabytes that a run of 20 small requests takes."""
        child = subprocess.Popen([self.program, "run", *words, *self.LOAD, "--quiet"], cwd=self.folder)
        _, status, usage = os.wait4(child.pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        return usage.ru_maxrss / 1024

    def test_memory_follows_use_and_not_the_pool(self):
        tiny = ["--model-path", self.MODEL, "--hardware", "h200-sxm"]
        small = self.peak(*tiny, "--max-total-tokens", "100000")
        for extra in (["--tp", "2"], ["--tp", "1"], ["--page-size", "64"]):
            self.assertLess(self.peak(*tiny, *extra), small + 20)


if __name__ == "__main__":
    main()
