#!/usr/bin/env python3
"""What tpsim says of its flags: help, bad values, config files, names, SGLang's launch lines.

Usage: flags_test.py TPSIM [CLASS ...]
"""

import re
import subprocess

from command_line import GOOD_TRACE, CommandLine, main


class Help(CommandLine):
    def test_help_and_version(self):
        for words, expected in (
            (["--help"], ["run", "compare", "backends", "models", "trace"]),
            (["run", "--help"], ["--tp-size,--tp", "default 16384", "Deployment", "Attention", "Load"]),
            (["compare", "--help"], ["--attention-backends"]),
            (["backends", "--help"], ["--hardware", "--model-path"]),
            (["models", "--help"], ["FAMILY", "--hardware", "--json"]),
            (["trace", "--help"], ["generate", "inspect", "convert"]),
            (["--version"], ["tpsim 0."]),
        ):
            with self.subTest(words=words):
                done = self.tpsim(*words)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                for text in expected:
                    self.assertIn(text, done.stdout)

    def test_shells_complete_what_help_shows(self):
        script = self.tpsim("completion", "bash")
        self.assertEqual((script.returncode, script.stderr), (0, ""))
        asked = script.stdout + 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tpsim; echo "${COMPREPLY[*]}"'
        for words, expected in ((("pla",), "plan"), (("trace", "gen"), "generate"), (("plan", "--gpu"), "--gpu-hour-cost --gpus"),
                                (("trace", "generate", "--turns"), "--turns-mean"), (("run", "--tp", "2", "--kv-c"), "--kv-cache-dtype"),
                                (("run", "--trace", ""), "")):  # a value: the shell names files
            done = subprocess.run(["bash", "-c", asked, "bash", self.program, *words], capture_output=True, text=True, timeout=30)
            self.assertEqual((done.stdout, done.stderr), (expected + "\n", ""), words)
        self.assertIn("compdef _tpsim tpsim", self.tpsim("completion", "zsh").stdout)
        self.assertIn("complete -c tpsim", self.tpsim("completion", "fish").stdout)
        self.assert_refused(["completion", "csh"], "csh", "bash, zsh or fish")

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

    def test_beginnings(self):
        """What argparse completes for SGLang: a beginning of one flag alone, as its documentation has --mem-fraction."""
        base = self.deployment("--trace", self.trace())
        self.assert_refused([*base, "--mem-fraction", "1.5"], "--mem-fraction-static 1.5")
        self.assert_refused([*base, "--mem-fraction=1.5"], "--mem-fraction-static 1.5")
        self.assert_refused([*base, "--mem-fraction", "0.8", "--mem-fraction-static", "0.8"], "given twice")
        self.assert_refused([*base, "--cuda-graph-max", "8"], "--cuda-graph-max", "unknown flag")
        self.assert_refused([*base, "--enable-torch", "true"], "--enable-torch", "unknown flag")

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
            ("--speculative-algorithm", "EAGEL", "did you mean EAGLE?"),
            ("--quantization", "bitsandbytes", "no price"),
            ("--page-sise", "16", "did you mean --page-size?"),
            ("--max-model-len", "8192", "did you mean --context-length?"),
            ("--gpu", "h200-sxm", "did you mean --hardware?"),
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
        report = self.result(f"{self.folder}/report")
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
            guess = re.search(r"did you mean ([^?]+)\?", said)
            if flag is None or guess is None:
                self.assertTrue(flag is None and guess is None, said)
                continue
            for name in guess.group(1).split(", "):
                base[flag] = name
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
        self.assert_refused([*base, "--node-rank", "1"], "--node-rank")
        self.assert_refused([*base, "--dcp-size", "2"], "--dcp-size: of parallelism")
        self.assert_refused([*base, "--enable-lora", "--host", "h"], "--enable-lora: LoRA")
        self.assert_refused(["backends", "--port", "1"], "--port: is about SGLang's server process")


if __name__ == "__main__":
    main()
