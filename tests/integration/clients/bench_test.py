#!/usr/bin/env python3
"""`sglang.bench_serving` and `vllm bench serve` against `tpsim serve`: what they report is what `tpsim run` says of what
they asked for, by their own clocks, within 3 % or 1 ms. What of that time is a client's own, opening a connection and
writing JSON in Python, is part of the front end that `tpsim run` simulates; the server leaves it to them. It simulates
the client that the front end was fitted to: a benchmark that needs much longer, by a bare server that is asked the
same, is told to it (--client-seconds).

Usage: bench_test.py TPSIM CLIENTS [TEST …]
"""

import json
import os
import statistics
import sys
import types

import client_tests
from client_tests import ClientTest

sys.path.insert(0, os.path.join(client_tests.HERE, "..", "..", "calibration"))
from measure_clients import BareProcess  # noqa: E402

QUIET = 0.4e-3  # seconds that a token in a hundred leaves late where the server has the machine for itself
FIGURES = ["mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "median_tpot_ms"]


class Bench(ClientTest):
    def said(self, requests, *flags, **more):
        """By the virtual clock, of what was sent; not of the calls before, which warm up or ask whether the server is
        there."""
        with open(self.path("sent.jsonl")) as file:
            rows = file.readlines()[-requests:]
        with open(self.path("trace.jsonl"), "w") as file:
            file.writelines(rows)
        return self.run_of(self.path("trace.jsonl"), *flags, **more)

    def own_seconds(self, bench):
        """What the benchmark itself takes of a first token's time."""
        bare = BareProcess()
        reported = bench(types.SimpleNamespace(port=bare.port))
        served = bare.end()[-len(reported["ttfts"]):]
        own = statistics.mean(reported["ttfts"]) - statistics.mean(wrote - arrived for arrived, wrote in served)
        print(f"{self.id().rsplit('.', 1)[1]}: the benchmark itself takes {own * 1e3:.2f} ms", flush=True)
        return own

    def compare(self, flags, bench, run_flags, **more):
        """bench(server) and the run of what it sent. Three tries where the machine is busy with something else, by the
        server's own account of how late its clock was."""
        for _ in range(3):
            server = self.serve(*flags, **more)
            reported = bench(server)
            late = server.info()["tpsim"]["token_lateness"]["p99"]
            server.stop()
            said = self.said(80, *run_flags, **more)
            self.assertEqual(reported["completed"], said["completed"])
            self.assertEqual([error for error in reported["errors"] if error], [])
            self.assertEqual(reported["total_output_tokens"], said["total_output_tokens"])
            wrong = self.far_off(reported, said, FIGURES)
            if not wrong or late < QUIET:
                break
            print(f"one token in a hundred left {late * 1e3:.2f} ms late", flush=True)
        if wrong and late >= QUIET:
            self.skipTest(f"this machine is too busy to tell: one token in a hundred left {late * 1e3:.2f} ms late")
        self.assertEqual(wrong, [])
        return reported, said


class SglangBenchServing(Bench):
    def bench(self, server, backend, *words, **environment):
        output = self.path("out.jsonl")
        if os.path.exists(output):
            os.remove(output)
        self.client("sglang_bench.py", "--backend", backend, "--host", "127.0.0.1", "--port", str(server.port),
                    "--model", "m", "--tokenizer", self.model_folder(), "--dataset-name", "random-ids", "--num-prompts",
                    "80", "--seed", "11", "--random-input-len", "1024", "--random-output-len", "96",
                    "--random-range-ratio", "0.3", "--request-rate", "8", "--flush-cache", "--disable-tqdm",
                    "--output-details", "--output-file", output, *words, TPSIM_SENDS=self.path("sent.jsonl"),
                    **environment)
        with open(output) as file:
            return json.loads(file.read())

    def test_ids(self):
        self.compare(["--front-end", "ids"], lambda server: self.bench(server, "sglang", "--tokenize-prompt"),
                     ["--front-end", "ids"])

    def test_texts_with_a_real_tokenizer(self):
        model = self.model_folder()

        def bench(server):
            self.needs_tokenizer(server)
            return self.bench(server, "sglang", TPSIM_TOKENIZER=model)

        self.compare([], bench, ["--front-end", "text"], deployment=["--model-path", model, "--hardware", "h200-sxm"])

    def test_openai_completions(self):
        self.compare([], lambda server: self.bench(server, "sglang-oai"), ["--front-end", "text"])

    def test_sixteen_at_a_time(self):
        words = ["--tokenize-prompt", "--request-rate", "inf", "--max-concurrency", "16"]

        def bench(server):
            return self.bench(server, "sglang", *words)
        # Sixteen that go out together do so one by one.
        own = str(self.own_seconds(bench))
        self.compare(["--front-end", "ids"], bench, ["--front-end", "ids", "--client-seconds", own])


class VllmBenchServe(Bench):
    def bench(self, server, backend, *words):
        self.client("vllm_bench.py", "--backend", backend, "--base-url", f"http://127.0.0.1:{server.port}", "--model",
                    "m", "--tokenizer", self.model_folder(), "--dataset-name", "random", "--num-prompts", "80", "--seed",
                    "11", "--random-input-len", "700", "--random-output-len", "64", "--random-range-ratio", "0.5",
                    "--request-rate", "8", "--ignore-eos", "--num-warmups", "0", "--disable-tqdm", "--save-result",
                    "--save-detailed", "--result-filename", self.path("out.json"), *words,
                    TPSIM_SENDS=self.path("sent.jsonl"))
        with open(self.path("out.json")) as file:
            return json.load(file)

    def test_completions_and_goodput(self):
        """--goodput of vLLM's benchmark counts what tpsim's counts."""
        goodput = ["--goodput", "ttft:60", "tpot:30"]

        def bench(server):
            return self.bench(server, "openai", *goodput)
        own = str(self.own_seconds(bench))
        reported, said = self.compare(["--served-model-name", "m"], bench,
                                      ["--front-end", "text", "--client-seconds", own, *goodput])
        self.assertAlmostEqual(reported["request_goodput"], said["request_goodput"], delta=0.03 * said["request_goodput"])


if __name__ == "__main__":
    client_tests.main()
