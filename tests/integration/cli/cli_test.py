#!/usr/bin/env python3
"""The tpsim program seen from outside: exit status, the one sentence of a refusal, and the files left behind.

Usage: cli_test.py TPSIM [CLASS ...]
"""

import gzip
import json
import os
import pty
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

TPSIM = None

MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def mooncake(timestamp=0, input_length=1000, output_length=20, hash_ids=(1, 2), **more):
    row = {"timestamp": timestamp, "input_length": input_length, "output_length": output_length,
           "hash_ids": list(hash_ids)}
    row.update(more)
    return json.dumps(row) + "\n"


GOOD_TRACE = mooncake(0) + mooncake(100, hash_ids=(1, 3)) + mooncake(200, hash_ids=(1, 3))


class CommandLine(unittest.TestCase):
    """A scratch folder, and ways to run tpsim in it."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tpsim-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    @staticmethod
    def read(path):
        with open(path, "rb") as file:
            return file.read()

    def trace(self, content=GOOD_TRACE, name="trace.jsonl"):
        return self.write(name, content)

    def tpsim(self, *words, processes=None, timeout=60):
        command = [TPSIM, *words]
        if processes is not None:
            command = ["mpirun", "--quiet", "-n", str(processes)] + command
        return subprocess.run(command, cwd=self.folder, env={**os.environ, **MPI_ENVIRONMENT}, timeout=timeout,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def deployment(self, *extra, command="run"):
        words = [command, "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm"]
        if command == "compare" and "--attention-backends" not in extra:
            words += ["--attention-backends", "fa3,triton"]
        return words + list(extra)

    def run_trace(self, content, *extra, name="trace.jsonl"):
        return self.tpsim(*self.deployment("--trace", self.trace(content, name), *extra))

    def assert_refused(self, words, *expected, processes=None):
        """Exit 2, exactly one line on stderr that begins with "tpsim: " and has each of `expected`, nothing on
        stdout, no report."""
        report = os.path.join(self.folder, "report")
        with self.subTest(words=" ".join(words)):
            if words and words[0] in ("run", "compare") and "--report-dir" not in words:
                words = [*words, "--report-dir", report]
            done = self.tpsim(*words, processes=processes)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(done.stdout, "")
            said = done.stderr
            if processes is not None:  # mpirun's libevent sometimes complains when its processes have gone
                said = re.sub(r"(?m)^\[warn\] .*\n", "", said)
            self.assertRegex(said, r"\Atpsim: [^\n]+\n\Z")
            for text in expected:
                self.assertIn(text, said)
            self.assertFalse(os.path.exists(report) and os.listdir(report), "a report was left behind")


class Load(CommandLine):
    """How a workload is offered, under the names of SGLang's serving benchmark."""

    def report(self, *extra, command="run"):
        done = self.tpsim(*self.deployment(*extra, "--report-dir", "out", command=command))
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(self.read(os.path.join(self.folder, "out", "report.json"))), done.stdout

    def conversation(self):
        turns = [{"arrival_time": i, "prompt": [[0, 900 * (i + 1)]], "max_new_tokens": 400, "session_id": "a"}
                 for i in range(4)]
        return self.trace("".join(json.dumps(turn) + "\n" for turn in turns))

    def test_turns_wait_for_their_answers(self):
        trace = self.conversation()
        closed, _ = self.report("--trace", trace)
        self.assertEqual((closed["session_mode"], closed["turns"], closed["early_turns"]), ("closed", 3, 0))
        rows = self.read(os.path.join(self.folder, "out", "requests.csv")).decode().splitlines()[1:]
        times = [[float(value) for value in row.split(",")[8:]] for row in rows]
        for before, turn in zip(times, times[1:]):
            self.assertGreaterEqual(turn[0], before[3])
        timed, said = self.report("--trace", trace, "--session-mode", "timestamps")
        self.assertEqual((timed["session_mode"], timed["early_turns"]), ("timestamps", 3))
        self.assertIn("3 of 3 sent before the answer they reply to", said)
        self.assert_refused(self.deployment("--trace", self.trace(), "--session-mode", "closed"),
                            "--session-mode closed", "names no conversations")

    def test_output_file_is_appended_to(self):
        shared = ["--dataset-name", "generated-shared-prefix", "--gsp-num-groups", "2", "--gsp-prompts-per-group",
                  "3", "--gsp-system-prompt-len", "100", "--gsp-question-len", "20", "--gsp-output-len", "4"]
        self.write("results.jsonl", '{"by": "another program"}')
        for words in (self.deployment(*shared, "--warmup-requests", "2"),
                      self.deployment(*shared, "--request-rate", "8", "--seed", "7", command="compare")):
            done = self.tpsim(*words, "--output-file", "results.jsonl")
            self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in self.read(os.path.join(self.folder, "results.jsonl")).splitlines()]
        self.assertEqual(len(lines), 4)
        self.assertEqual([line["request_rate"] for line in lines[1:]], ["inf", 8, 8])
        for line in lines[1:]:
            self.assertEqual(line["dataset_name"], "generated-shared-prefix")
            self.assertEqual((line["completed"], line["total_input_tokens"], line["total_output_tokens"]),
                             (6, 720, 24))
            for key in ("duration", "p95_ttft_ms", "p90_tpot_ms", "std_itl_ms", "p95_e2e_latency_ms"):
                self.assertGreater(line[key], 0, key)
        self.assertEqual([line["server_info"]["attention_backend"] for line in lines[2:]], ["fa3", "triton"])
        done = self.tpsim(*self.deployment(*shared, "--output-file", "/dev/full", "--report-dir", "kept", "--quiet"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("--output-file /dev/full: cannot be written", done.stderr)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "kept", "report.json")))
        self.assert_refused(self.deployment(*shared, "--output-file", self.folder), "--output-file", "directory")
        self.assert_refused(self.deployment(*shared, "--output-file", "none/results.jsonl"), "--output-file")

    def test_datasets_of_the_benchmark(self):
        lengths = json.dumps([{"prompt_len": 10 * i + 1, "output_len": 5} for i in range(30)])
        path = self.write("lengths.json", lengths)
        report, _ = self.report("--dataset-path", path, "--num-prompts", "7")
        self.assertEqual(report["completed"], 7)
        self.assertEqual(report["server_args"]["dataset_name"], "sharegpt")
        report, _ = self.report("--dataset-name", "mooncake", "--dataset-path", self.trace(),
                                "--use-trace-timestamps", "--mooncake-slowdown-factor", "2")
        self.assertEqual((report["completed"], report["server_args"]["time_scale"]), (3, "2"))


class Help(CommandLine):
    def test_help_and_version(self):
        for words, expected in (
            (["--help"], ["run", "compare", "backends", "trace"]),
            (["run", "--help"], ["--tp-size,--tp", "default 16384", "Deployment", "Attention", "Load"]),
            (["compare", "--help"], ["--attention-backends"]),
            (["backends", "--help"], ["--hardware", "--model-path"]),
            (["trace", "--help"], ["generate", "inspect", "convert"]),
            (["--version"], ["tpsim 0."]),
        ):
            with self.subTest(words=words):
                done = self.tpsim(*words)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                for text in expected:
                    self.assertIn(text, done.stdout)

    def test_backends_lists_the_matrix(self):
        done = self.tpsim("backends", "--hardware", "h200-sxm", "--model-path", "llama-3.1-70b")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for text in ("fa3", "flashinfer", "triton", "torch_native", "h200-sxm"):
            self.assertIn(text, done.stdout)


class Flags(CommandLine):
    def test_commands(self):
        self.assert_refused([], "command", "run, compare")
        self.assert_refused(["rnu"], "rnu", "did you mean run?")
        self.assert_refused(["simulate"], "simulate", "run, compare")

    def test_bad_values(self):
        base = self.deployment("--trace", self.trace())
        for flag, value, expected in (
            ("--page-size", "48", "must be 1, 16, 32, 64 or 128"),
            ("--page-size", "-1", "must be 1, 16, 32, 64 or 128"),
            ("--tp", "0", "from 1 to"),
            ("--tp", "abc", "from 1 to"),
            ("--mem-fraction-static", "1.5", "more than 0 and less than 1"),
            ("--max-total-tokens", "0", "--max-total-tokens 0"),
            ("--max-total-tokens", "1e9", "--max-total-tokens 1e9"),
            ("--max-total-tokens", "99999999999999999999999999", "--max-total-tokens"),
            ("--max-running-requests", "-4", "--max-running-requests -4"),
            ("--chunked-prefill-size", "0", "-1 for no chunks"),
            ("--schedule-policy", "lmp", "did you mean lpm?"),
            ("--radix-eviction-policy", "lur", "did you mean lru?"),
            ("--rank-slowdown", "3", "--rank-slowdown"),
            ("--rank-slowdown", "3:1.2", "--rank-slowdown 3:1.2"),
            ("--executor", "exact", "must be modeled or numeric"),
            ("--kv-cache-dtype", "fp5", "--kv-cache-dtype fp5"),
            ("--speculative-algorithm", "EAGLE", "not simulated yet"),
            ("--quantization", "bitsandbytes", "no price"),
            ("--page-sise", "16", "did you mean --page-size?"),
            ("--log-level", "loud", "must be debug"),
        ):
            self.assert_refused([*base, flag, value], expected)

    def test_flags_given_twice(self):
        base = self.deployment("--trace", self.trace())
        self.assert_refused([*base, "--tp", "2", "--tp", "4"], "--tp: is given twice")
        self.assert_refused([*base, "--tp", "2", "--tp-size=4"], "--tp-size: is given twice (as --tp before)")
        self.assert_refused(self.deployment("--trace", "a", "--trace", "b", command="compare"), "--trace: is given twice")
        self.assert_refused(["backends", "--hardware", "h200-sxm", "--hardware", "b200"], "--hardware: is given twice")
        self.assert_refused(["trace", "generate", "--output", "a", "--output", "b"], "--output: is given twice")
        self.assert_refused(["trace", "inspect", "--sort", "--sort", "a"], "--sort: is given twice")
        for command in ("generate", "verify", "replay"):
            self.assert_refused([command, "--tp", "2", "--tp", "2"], "--tp: is given twice")

    def test_missing_values(self):
        self.assert_refused([*self.deployment("--trace", self.trace()), "--page-size"], "--page-size")
        self.assert_refused(["run"], "--model-path")
        self.assert_refused(["run", "--model-path", "llama-3.1-8b"], "--hardware")
        self.assert_refused(self.deployment(), "--trace")
        self.assert_refused(["compare", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace", "x"],
                            "--attention-backends")


class Config(CommandLine):
    def test_flags_win_over_the_file(self):
        config = self.write("run.yaml", "model-path: llama-3.1-8b\nhardware: h200-sxm\ntp: 2\npage-size: 64\n"
                            f"trace: {self.trace()}\nreport-dir: {self.folder}/report\n")
        done = self.tpsim("run", "--config", config, "--page-size", "16")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(f"{self.folder}/report/report.json") as file:
            report = json.load(file)
        self.assertEqual((report["tp_size"], report["page_size"]), (2, 16))

    def test_bad_files(self):
        for content, expected in (
            ("tp: 8\npage-sise: 16\n", ":2: page-sise"),
            ("page-size: 48\n", ":1: --page-size 48"),
            ("tp: [\n", "not valid YAML"),
            ("", "empty"),
            ("tp: 1\ntp: 2\n", ":2: tp is given twice"),
        ):
            self.assert_refused(["run", "--config", self.write("run.yaml", content)], "run.yaml", expected)
        self.assert_refused(["run", "--config", "missing.yaml"], "missing.yaml", "No such file")


class Deployment(CommandLine):
    def test_impossible_deployments(self):
        trace = self.trace()
        for extra, expected in (
            (["--attention-backend", "flashinfre"], ["flashinfre", "flashinfer"]),
            (["--prefill-attention-backend", "fa33"], ["fa33", "fa3"]),
            (["--tp", "3"], ["--tp", "3", "heads"]),
            (["--tp", "64"], ["--tp", "64"]),
            (["--max-total-tokens", "64"], ["--max-total-tokens 64"]),
            (["--mem-fraction-static", "0.05"], ["--mem-fraction-static 0.05"]),
            (["--context-length", "10000000"], ["--context-length 10000000"]),
            (["--chunked-prefill-size", "100", "--page-size", "64"], ["--chunked-prefill-size 100", "64"]),
        ):
            self.assert_refused([*self.deployment("--trace", trace), *extra], *expected)

    def test_unknown_names(self):
        trace = self.trace()
        self.assert_refused(["run", "--model-path", "llama-3.1-7b", "--hardware", "h200-sxm", "--trace", trace],
                            "llama-3.1-7b", "llama-3.1-8b")
        self.assert_refused(["run", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxn", "--trace", trace], "h200-sxn",
                            "did you mean h200-sxm?")
        self.assert_refused(["run", "--model-path", "llama-3.1-8b", "--hardware", "a100-sxm", "--trace", trace,
                             "--attention-backend", "fa3"], "fa3", "a100-sxm")
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


class Names(CommandLine):
    def test_vendors_and_publishers_names(self):
        trace = self.trace()
        for model, hardware in (("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA H200"), ("Qwen/Qwen3-8B", "H200-SXM"),
                                ("meta-llama/Meta-Llama-3.1-8B", "Hopper H200"), ("llama-3.1-8b", "h200"),
                                ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "b200")):
            done = self.tpsim("run", "--model-path", model, "--hardware", hardware, "--trace", trace)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_suggestions_work(self):
        """Whatever is suggested is accepted, and nothing is suggested for what is far from everything."""
        trace = self.trace()
        for extra, flag in ((["--attention-backend", "flashinferr"], "--attention-backend"),
                            (["--attention-backend", "flashmlaa"], "--attention-backend"),
                            (["--hardware", "h200-sxn"], "--hardware"), (["--model-path", "llama-3.1-7b"], "--model-path"),
                            (["--model-path", "qwen3-9b"], "--model-path"), (["--attention-backend", "zzzz"], None),
                            (["--hardware", "zzzz"], None), (["--model-path", "zzzz"], None)):
            base = {"--model-path": "llama-3.1-8b", "--hardware": "h200-sxm", "--tp": "8", "--trace": trace}
            base[extra[0]] = extra[1]
            if extra[1] == "flashmlaa":  # for models with MLA
                base["--model-path"] = "deepseek-v2-lite"
            said = self.tpsim("run", *(word for pair in base.items() for word in pair)).stderr
            guess = re.search(r"did you mean (\S+)\?", said)
            if flag is None or guess is None:
                self.assertTrue(flag is None and guess is None, said)
                continue
            base[flag] = guess.group(1)
            done = self.tpsim("run", *(word for pair in base.items() for word in pair))
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_control_characters_are_escaped(self):
        self.assert_refused(["run", "--model-path", "a\x1b[31m\nb", "--hardware", "h200-sxm", "--trace", "t"],
                            "a\\x1b[31m\\x0ab")


class LaunchLines(CommandLine):
    LINE = ["--host", "0.0.0.0", "--port", "30000", "--trust-remote-code", "--enable-metrics", "--log-requests",
            "--served-model-name", "compare", "--dp-size", "1", "--nnodes", "1", "--chat-template", "x"]

    def test_what_means_nothing_is_named_in_one_line(self):
        for command in ("run", "compare"):
            done = self.tpsim(*self.deployment("--trace", self.trace(), *self.LINE, command=command))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, "tpsim: warning: --host, --port, --trust-remote-code, --enable-metrics, "
                             "--log-requests, --served-model-name, --chat-template: mean nothing to a simulation\n")

    def test_the_answer_is_the_same(self):
        plain = self.run_trace(GOOD_TRACE).stdout
        self.assertEqual(self.run_trace(GOOD_TRACE, *self.LINE).stdout, plain)

    def test_what_changes_the_answer_is_refused(self):
        base = self.deployment("--trace", self.trace())
        self.assert_refused([*base, "--dp-size", "2"], "--dp-size 2: replicas that share nothing")
        self.assert_refused([*base, "--dcp-size", "2"], "--dcp-size: of parallelism")
        self.assert_refused([*base, "--enable-lora", "--host", "h"], "--enable-lora: LoRA")
        self.assert_refused(["backends", "--port", "1"], "--port: is about SGLang's server process")


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


class Memory(CommandLine):
    MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../golden/models/qwen2")
    LOAD = ["--dataset-name", "random", "--num-prompts", "20", "--random-input-len", "64", "--random-output-len", "16"]

    def peak(self, *words):
        """Megabytes that a run of 20 small requests takes."""
        child = subprocess.Popen([TPSIM, "run", *words, *self.LOAD, "--quiet"], cwd=self.folder)
        _, status, usage = os.wait4(child.pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        return usage.ru_maxrss / 1024

    def test_memory_follows_use_and_not_the_pool(self):
        tiny = ["--model-path", self.MODEL, "--hardware", "h200-sxm"]
        small = self.peak(*tiny, "--max-total-tokens", "100000")
        for extra in (["--tp", "2"], ["--tp", "1"], ["--page-size", "64"]):
            self.assertLess(self.peak(*tiny, *extra), small + 20)


class Traces(CommandLine):
    def refused(self, content, *expected, name="trace.jsonl", extra=()):
        path = self.trace(content, name)
        self.assert_refused([*self.deployment("--trace", path), *extra], name, *expected)

    def test_bad_mooncake_lines(self):
        good = mooncake(0)
        for line, expected in (
            (mooncake(5, input_length=-1), "input_length"),
            (mooncake(5, input_length="many"), "input_length"),
            (mooncake(5, input_length=10**18), "input_length"),
            (mooncake(5, input_length=0, hash_ids=()), "input_length"),
            (mooncake(5, output_length=-3), "output_length"),
            (mooncake(-5), "timestamp"),
            ('{"timestamp": 5, "input_length": 10, "hash_ids": [1]}\n', "output_length"),
            ('{"timestamp": 5, "input_length": 10, "output_length": 5', ":2"),
            ("not json\n", ":2"),
            ("[1, 2]\n", ":2"),
        ):
            self.refused(good + line, ":2", expected)

    def test_bad_azure_lines(self):
        head = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        for line, expected in (
            ("2023-11-16 18:15:47.0,-1,44\n", "ContextTokens"),
            ("2023-11-16 18:15:47.0,ten,44\n", "ContextTokens"),
            ("2023-11-16 18:15:47.0,10\n", ":3"),
            ("yesterday,10,10\n", "TIMESTAMP"),
            ("2023-11-16 18:15:47.0,99999999999999999999,1\n", "ContextTokens"),
        ):
            self.refused(head + line, ":3", expected, name="trace.csv")

    def test_bad_files(self):
        self.assert_refused(self.deployment("--trace", "missing.jsonl"), "missing.jsonl", "no such file")
        self.assert_refused(self.deployment("--trace", self.folder), self.folder)
        self.refused("", "empty")
        self.refused(b"\x00\xff\x80 nothing known", name="trace.bin")
        self.refused(gzip.compress(GOOD_TRACE.encode() * 50)[:-20], name="trace.jsonl.gz")
        self.refused(GOOD_TRACE, extra=("--trace-format", "azure"))

    def test_unsorted_arrivals(self):
        self.refused(mooncake(500) + mooncake(100), ":2", "0.4 seconds before", "--sort")

    def test_prompts_beyond_the_context_are_counted_as_failed(self):
        report = os.path.join(self.folder, "report")
        done = self.run_trace(GOOD_TRACE + mooncake(300, input_length=200000, hash_ids=range(391)), "--report-dir",
                              report)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(report, "report.json")) as file:
            result = json.load(file)
        self.assertEqual((result["completed"], result["failed"]), (3, 1))


class Reports(CommandLine):
    def test_a_run_writes_every_file(self):
        report = os.path.join(self.folder, "deep", "report")
        done = self.run_trace(GOOD_TRACE, "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(report)), ["report.html", "report.json", "requests.csv", "steps.csv"])
        with open(os.path.join(report, "report.json")) as file:
            result = json.load(file)
        self.assertEqual(result["completed"], 3)
        self.assertEqual(result["total_output_tokens"], 60)
        self.assertEqual(result["prefill_attention_backend"], "fa3")
        self.assertIn("server_args", result)
        self.assertEqual(done.stderr, "")

    def test_runs_are_identical_byte_for_byte(self):
        seen = []
        for processes in (None, 1, 2, 4):
            report = os.path.join(self.folder, f"report-{processes}")
            done = self.tpsim(*self.deployment("--trace", self.trace(), "--tp", "4", "--report-dir", report),
                              processes=processes)
            self.assertEqual(done.returncode, 0, done.stderr)
            seen.append({name: self.read(os.path.join(report, name)) for name in sorted(os.listdir(report))})
        for other in seen[1:]:
            self.assertEqual(other, seen[0])

    def test_compare_marks_the_best(self):
        report = os.path.join(self.folder, "report")
        done = self.tpsim(*self.deployment("--trace", self.trace(), "--report-dir", report, command="compare"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("report.html", done.stdout)
        with open(os.path.join(report, "report.json")) as file:
            result = json.load(file)
        self.assertEqual([run["backend"] for run in result["runs"]], ["fa3", "triton"])
        self.assertIn(result["best"], ("fa3", "triton"))

    def test_random_load(self):
        report = os.path.join(self.folder, "report")
        done = self.tpsim(*self.deployment("--dataset-name", "random", "--num-prompts", "20", "--random-input-len", "64",
                                           "--random-output-len", "8", "--max-concurrency", "4", "--report-dir", report))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(report, "report.json")) as file:
            self.assertEqual(json.load(file)["completed"], 20)

    def closed_loop(self, *extra):
        """TPOT in milliseconds of six prompts of 1,024 tokens and 128 answers, one after another."""
        report = os.path.join(self.folder, "report")
        done = self.tpsim(*self.deployment("--dataset-name", "random", "--num-prompts", "6", "--random-input-len", "1024",
                                           "--random-output-len", "128", "--random-range-ratio", "1",
                                           "--max-concurrency", "1", "--report-dir", report, *extra))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(report, "report.json")) as file:
            return json.load(file)["mean_tpot_ms"]

    def test_missing_graphs_cost_what_a_server_needs(self):
        # Measured on an H200 with SGLang 0.5.12: fa3 4.84 ms a token, torch_native, which has no graphs, 22.1 ms.
        graphs = self.closed_loop("--attention-backend", "fa3")
        self.assertAlmostEqual(graphs / 4.84, 1, delta=0.25)
        self.assertAlmostEqual(self.closed_loop("--attention-backend", "torch_native") / 22.1, 1, delta=0.1)
        for flags in (["--disable-cuda-graph"], ["--disable-decode-cuda-graph"]):
            for backend in ("fa3", "triton", "flashinfer"):
                eager = self.closed_loop("--attention-backend", backend, *flags)
                self.assertGreater(eager, 2.5 * graphs)
                self.assertLess(eager, 20)

    def test_service_levels(self):
        load = ["--dataset-name", "random", "--random-input-len", "2048", "--random-output-len", "128", "--num-prompts",
                "200", "--report-dir", "out"]
        levels = ["--goodput", "ttft:200", "tpot:20"]
        done = self.tpsim(*self.deployment(*load, "--request-rate", "10", *levels, "--max-goodput-rate"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = json.loads(self.read(os.path.join(self.folder, "out", "report.json")))
        rows = self.read(os.path.join(self.folder, "out", "requests.csv")).decode().splitlines()
        good = sum(row.endswith(",1") for row in rows[1:])
        self.assertAlmostEqual(report["goodput_share"], good / 200)
        self.assertAlmostEqual(report["request_goodput"], good / report["duration"])
        self.assertIsNone(report["overload"])
        rate, search = report["max_goodput_rate"], report["max_goodput_search"]
        self.assertEqual((search["outcome"], search["varied"], search["goodput_share"]),
                         ("found", "request_rate", 0.99))
        self.assertIn(search["message"], done.stdout)
        self.assertIn("Request goodput (req/s):", done.stdout)
        self.assertIsNone(search["probes"][0]["offered_rate"])  # all at once
        lowest_bad = min(p["offered_rate"] for p in search["probes"][1:] if p["goodput_share"] < 0.99)
        self.assertLess(rate, lowest_bad)
        self.assertLess(lowest_bad / rate, 1.0101)
        # The probes are runs that can be repeated.
        for probe in [p for p in search["probes"][1:] if rate / 1.2 < p["offered_rate"] < rate * 1.2]:
            done = self.tpsim(*self.deployment(*load, "--request-rate", repr(probe["request_rate"]), *levels))
            repeated = json.loads(self.read(os.path.join(self.folder, "out", "report.json")))
            self.assertEqual(repeated["goodput_share"], probe["goodput_share"], done.stderr)
            self.assertIsNone(repeated["max_goodput_rate"])

        trace = self.trace("".join(mooncake(t * 500, input_length=2048, hash_ids=(t, t, t, t)) for t in range(40)))
        done = self.tpsim(*self.deployment("--trace", trace, "--goodput", "ttft:100", "--max-goodput-rate",
                                           "--report-dir", "out", command="compare"))
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(self.read(os.path.join(self.folder, "out", "report.json")))
        for run in report["runs"]:
            self.assertEqual(run["max_goodput_search"]["varied"], "time_scale")
            self.assertGreater(run["max_goodput_rate"], 2)
        self.assertIn("max req/s", done.stdout)

        for level, outcome in (("ttft:1", "unreachable"), ("ttft:1e9", "unlimited")):
            done = self.tpsim(*self.deployment(*load, "--goodput", level, "--max-goodput-rate"))
            report = json.loads(self.read(os.path.join(self.folder, "out", "report.json")))
            self.assertEqual(report["max_goodput_search"]["outcome"], outcome)
            self.assertIsNone(report["max_goodput_rate"])
            self.assertIn(report["max_goodput_search"]["message"], done.stdout)

    def test_overload(self):
        load = ["--dataset-name", "random", "--num-prompts", "2000", "--report-dir", "out"]
        for rate, said in (("2", False), ("200", True), ("inf", False)):
            done = self.tpsim(*self.deployment(*load, "--request-rate", rate))
            overload = json.loads(self.read(os.path.join(self.folder, "out", "report.json")))["overload"]
            self.assertEqual(overload is not None, said, rate)
            self.assertEqual("the queue grows without end" in done.stdout, said, rate)
            if said:
                self.assertEqual(overload["offered_rate"], 200)
                self.assertLess(overload["served_rate"], 200)

    def test_unwritable_folders(self):
        base = self.deployment("--trace", self.trace())
        occupied = self.write("occupied", "a file")
        self.assert_refused([*base, "--report-dir", occupied], "--report-dir", "occupied")
        self.assert_refused([*base, "--report-dir", os.path.join(occupied, "below")], "--report-dir", "occupied")
        self.assert_refused([*base, "--report-dir", "/proc/nowhere"], "--report-dir", "/proc/nowhere")

    def test_files_that_cannot_be_written_are_found_out_first(self):
        report = os.path.join(self.folder, "report")
        os.makedirs(os.path.join(report, "report.json"))
        done = self.run_trace(GOOD_TRACE, "--report-dir", report)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"\Atpsim: --report-dir .*report.json.* is a folder[^\n]*\n\Z")
        self.assertEqual(os.listdir(report), ["report.json"])

    def test_reports_are_written_through_links(self):
        report = os.path.join(self.folder, "report")
        os.mkdir(report)
        kept = self.write("kept.json", "old")
        os.chmod(kept, 0o640)
        os.symlink(kept, os.path.join(report, "report.json"))
        self.assertEqual(self.run_trace(GOOD_TRACE, "--report-dir", report).returncode, 0)
        self.assertTrue(os.path.islink(os.path.join(report, "report.json")))
        self.assertEqual(json.loads(self.read(kept))["completed"], 3)
        self.assertEqual(os.stat(kept).st_mode & 0o7777, 0o640)

    def test_steps_and_compression(self):
        whole, report = os.path.join(self.folder, "whole"), os.path.join(self.folder, "some")
        self.run_trace(GOOD_TRACE, "--report-dir", whole)
        rows = self.read(os.path.join(whole, "steps.csv")).splitlines()
        done = self.run_trace(GOOD_TRACE, "--report-dir", report, "--steps", "every:5", "--compress")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(report)),
                         ["report.html", "report.json", "requests.csv.gz", "steps.csv.gz"])
        some = gzip.decompress(self.read(os.path.join(report, "steps.csv.gz"))).splitlines()
        self.assertEqual(some, [rows[0], *rows[1::5]])
        self.assertEqual(self.run_trace(GOOD_TRACE, "--report-dir", report, "--steps", "none").returncode, 0)
        self.assertEqual(sorted(os.listdir(report)), ["report.html", "report.json", "requests.csv"])
        figures = [json.loads(self.read(os.path.join(folder, "report.json"))) for folder in (whole, report)]
        for figure in figures:
            del figure["server_args"]
        self.assertEqual(figures[0], figures[1])
        for value in ("every:0", "every:", "some", "5"):
            self.assert_refused([*self.deployment("--trace", self.trace()), "--steps", value], f"--steps {value[:5]}")
        done = self.tpsim(*self.deployment("--trace", self.trace(), "--steps", "none"))
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--report-dir", done.stderr)

    def test_quiet_says_nothing(self):
        done = self.run_trace(GOOD_TRACE, "--quiet")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Output(CommandLine):
    """Standard output and files that are no regular ones."""

    def test_a_full_or_closed_standard_output_is_an_error(self):
        for words in (["--help"], ["--version"], ["backends"], ["trace", "--help"],
                      self.deployment("--trace", self.trace())):
            with self.subTest(words=words), open("/dev/full", "w") as full:
                command = [TPSIM, *words]
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"\Atpsim: standard output cannot be written: [^\n]+\n\Z")
                done = subprocess.run(command, stdout=None, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.close(1))
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"\Atpsim: standard output cannot be written: [^\n]+\n\Z")
                reader, writer = os.pipe()
                os.close(reader)
                done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
                os.close(writer)
                self.assertEqual((done.returncode, done.stderr), (2, ""))

    def test_traces_go_through_devices_and_pipes(self):
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        words = ["trace", "generate", "--num-conversations", "3", "--output"]
        with subprocess.Popen([TPSIM, *words, fifo], stdout=subprocess.DEVNULL) as child, open(fifo, "rb") as reader:
            piped = reader.read()
        self.assertEqual(child.returncode, 0)
        self.assertTrue(stat.S_ISFIFO(os.stat(fifo).st_mode))
        # A link that leads to standard output, as /dev/stdout is one.
        link = os.path.join(self.folder, "link")
        os.symlink("/proc/self/fd/1", link)
        done = self.tpsim(*words, link)
        self.assertEqual((done.returncode, done.stdout.encode()), (0, piped), "the trace and nothing else")
        self.assertTrue(os.path.islink(link))
        if os.geteuid() == 0:
            null = os.path.join(self.folder, "null")
            os.mknod(null, stat.S_IFCHR | 0o600, os.makedev(1, 3))
            self.assertEqual(self.tpsim(*words, null).returncode, 0)
            self.assertTrue(stat.S_ISCHR(os.stat(null).st_mode))

    def on_terminal(self, command, **environment):
        """What `command` shows on a terminal."""
        terminal, side = pty.openpty()
        child = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=side, stderr=side,
                                 env={**os.environ, **MPI_ENVIRONMENT, "TERM": "xterm", **environment})
        os.close(side)
        shown = b""
        while True:
            try:
                block = os.read(terminal, 65536)
            except OSError:  # Linux's way to say that nobody holds the other side
                break
            if not block:
                break
            shown += block
        os.close(terminal)
        self.assertEqual(child.wait(), 0)
        return shown

    def test_colours_are_for_terminals(self):
        compare = [TPSIM, *self.deployment("--trace", self.trace(), "--tp", "2", command="compare")]
        for command in (compare, ["mpirun", "--quiet", "-n", "2", *compare]):
            with self.subTest(command=command[0]):
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env={**os.environ, **MPI_ENVIRONMENT, "TERM": "xterm"})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn(b"\x1b", done.stdout + done.stderr)
                self.assertIn(b"\x1b[1;32m", self.on_terminal(command))
                self.assertNotIn(b"\x1b[1;32m", self.on_terminal(command, NO_COLOR="1"))
                self.assertNotIn(b"\x1b", self.on_terminal(command, TERM="dumb"))


class Sweeps(CommandLine):
    """`compare` with lists."""

    def sweep(self, *extra, processes=None, report=None, trace=GOOD_TRACE):
        report = report or os.path.join(self.folder, "report")
        done = self.tpsim("compare", "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace",
                          self.trace(trace), "--report-dir", report, *extra, processes=processes)
        return done, report

    def result(self, report):
        with open(os.path.join(report, "report.json")) as file:
            return json.load(file)

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
            better = [other for other in result["runs"]
                      if other["total_throughput"] >= run["total_throughput"]
                      and other["mean_e2e_latency_ms"] <= run["mean_e2e_latency_ms"]
                      and (other["total_throughput"], other["mean_e2e_latency_ms"])
                      != (run["total_throughput"], run["mean_e2e_latency_ms"])]
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
        self.assert_refused([*base, "--tp", "1,2", "--executor", "numeric"], "--executor numeric")
        self.assert_refused([*base, "--attention-backends", "fa3", "--jobs", "2"], "--jobs 2")
        self.assert_refused([*self.deployment("--trace", self.trace()), "--page-size", "1,64"],
                            "--page-size 1,64: takes one value here; `tpsim compare`")

    def test_an_interrupted_sweep_writes_what_is_finished(self):
        for processes in (None, 2):
            report = os.path.join(self.folder, f"report-{processes}")
            command = [TPSIM, *self.deployment("--report-dir", report, "--max-concurrency", "1,2,3,4,5,6", "--jobs", "1",
                                               *Interrupts.LONG, command="compare")]
            if processes is not None:
                command = ["mpirun", "--quiet", "-n", str(processes)] + command
            child = subprocess.Popen(command, cwd=self.folder, env={**os.environ, **MPI_ENVIRONMENT},
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(3)
            child.send_signal(signal.SIGINT if processes is None else signal.SIGUSR1)
            shown, errors = child.communicate(timeout=40)
            self.assertEqual(child.returncode, 3, errors)
            self.assertIn("No best setting: stopped early, before any of 12 had served every request", shown)
            result = self.result(report)
            self.assertEqual((result["runs"], result["best"], result["planned_runs"]), ([], "", 12))


class Processes(CommandLine):
    def test_wrong_process_counts(self):
        base = self.deployment("--trace", self.trace(), "--tp", "4")
        self.assert_refused(base, "mpirun -n", "3", processes=3)
        self.assert_refused(base, "mpirun -n", "8", processes=8)

    def test_refusals_are_printed_once(self):
        self.assert_refused([*self.deployment("--trace", self.trace(), "--tp", "2"), "--page-size", "48"],
                            "--page-size 48", processes=2)
        self.assert_refused(self.deployment("--trace", "missing.jsonl", "--tp", "2"), "missing.jsonl", processes=2)
        self.assert_refused(self.deployment("--trace", self.trace(), "--tp", "2", "--attention-backend", "fa33"),
                            "fa33", processes=2)
        self.assert_refused([*self.deployment("--trace", self.trace(), "--tp", "2"), "--report-dir", "/proc/nowhere"],
                            "--report-dir", processes=2)


class Interrupts(CommandLine):
    # Long enough to be caught in the middle: a few minutes of simulating if nobody interrupts.
    LONG = ["--dataset-name", "random", "--num-prompts", "400000", "--random-input-len", "64", "--random-output-len", "2048",
            "--random-range-ratio", "0.1"]

    def start(self, report, processes=None):
        command = [TPSIM, *self.deployment("--tp", "2", "--report-dir", report, *self.LONG)]
        if processes is not None:
            command = ["mpirun", "--quiet", "-n", str(processes)] + command
        return subprocess.Popen(command, cwd=self.folder, env={**os.environ, **MPI_ENVIRONMENT},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def check_interrupt(self, number, processes=None):
        report = os.path.join(self.folder, f"report-{number}-{processes}")
        child = self.start(report, processes)
        time.sleep(3)
        self.assertIsNone(child.poll(), "the run ended before it could be interrupted")
        child.send_signal(number)
        _, errors = child.communicate(timeout=40)
        self.assertEqual(child.returncode, 3, errors)
        with open(os.path.join(report, "report.json")) as file:
            result = json.load(file)
        self.assertTrue(result["stopped_early"])
        self.assertGreater(result["completed"], 0)
        self.assertTrue(re.search("interrupted", errors), errors)

    def test_sigint_writes_what_was_finished(self):
        self.check_interrupt(signal.SIGINT)

    def test_an_interrupted_comparison_names_no_winner(self):
        report = os.path.join(self.folder, "report")
        child = subprocess.Popen([TPSIM, *self.deployment("--report-dir", report, *self.LONG, command="compare")],
                                 cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        time.sleep(2)
        child.send_signal(signal.SIGINT)
        shown, errors = child.communicate(timeout=40)
        self.assertEqual(child.returncode, 3, errors)
        self.assertIn("No best backend: stopped early, before any of 2 had served every request", shown)
        with open(os.path.join(report, "report.json")) as file:
            result = json.load(file)
        self.assertEqual((result["best"], result["best_setting"]), ("", {}))
        self.assertIn("stopped early", result["best_reason"])

    def test_sigterm_writes_what_was_finished(self):
        self.check_interrupt(signal.SIGTERM)

    def test_sighup_writes_what_was_finished(self):
        self.check_interrupt(signal.SIGHUP)

    def test_sigusr1_to_mpirun_keeps_the_status(self):
        self.check_interrupt(signal.SIGUSR1, processes=2)

    def test_computing_ends_in_two_seconds(self):
        computed = ["--model-path", "tinyllama-1.1b", "--load-format", "dummy", "--max-total-tokens", "4096"]
        prompt = ",".join(str(i) for i in range(1, 900))
        for words, wait in ((["verify", *computed], 1),
                            (["generate", *computed, "--prompt-ids", prompt, "--max-new-tokens", "1100"], 9)):
            with self.subTest(words=words[:1], wait=wait):
                child = subprocess.Popen([TPSIM, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                time.sleep(wait)
                self.assertIsNone(child.poll(), "ended before it could be interrupted")
                begin = time.monotonic()
                child.send_signal(signal.SIGTERM)
                _, errors = child.communicate(timeout=40)
                self.assertEqual(child.returncode, 3, errors)
                self.assertIn(b"interrupted", errors)
                self.assertLess(time.monotonic() - begin, 2 * 2, "twice the time: other programs may use the cores")

    def test_the_launcher_keeps_the_status(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(TPSIM)))
        script = os.path.join(root, "launch", "run")
        if not os.path.exists(script):
            self.skipTest("the build folder is elsewhere")
        report = os.path.join(self.folder, "report")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                child = subprocess.Popen([script, "-n", "2", *self.deployment("--tp", "2", "--report-dir", report, *self.LONG)],
                                         cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                time.sleep(4)
                self.assertIsNone(child.poll(), "the run ended before it could be interrupted")
                child.send_signal(number)
                _, errors = child.communicate(timeout=40)
                self.assertEqual(child.returncode, 3, errors)
                with open(os.path.join(report, "report.json")) as file:
                    self.assertTrue(json.load(file)["stopped_early"])
        with open("/dev/full", "w") as full:
            done = subprocess.run([script, "-n", "2", "backends"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "tpsim: standard output cannot be written\n"))

    def test_sigint_under_mpirun(self):
        report = os.path.join(self.folder, "report-mpi")
        child = self.start(report, processes=2)
        time.sleep(4)
        self.assertIsNone(child.poll(), "the run ended before it could be interrupted")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=40)
        self.assertNotEqual(child.returncode, 0)
        with open(os.path.join(report, "report.json")) as file:
            self.assertTrue(json.load(file)["stopped_early"])


if __name__ == "__main__":
    TPSIM = os.path.abspath(sys.argv.pop(1))
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's ignoring would reach what is tested
    unittest.main()
