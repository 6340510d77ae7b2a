#!/usr/bin/env python3
"""Traces, datasets and arrivals.

Usage: load_test.py TPSIM [CLASS ...]
"""

import gzip
import json
import os

from command_line import GOOD_TRACE, CommandLine, main, mooncake


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
        result = self.result(report)
        self.assertEqual((result["completed"], result["failed"]), (3, 1))


class Load(CommandLine):
    """How a workload is offered, under the names of SGLang's serving benchmark."""

    def report(self, *extra, command="run"):
        done = self.tpsim(*self.deployment(*extra, "--report-dir", "out", command=command))
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.result(os.path.join(self.folder, "out")), done.stdout

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

    def test_a_prompt_is_tokenized_before_it_is_served(self):
        load = ["--dataset-name", "random", "--num-prompts", "1", "--random-input-len", "1000", "--random-range-ratio",
                "1", "--random-output-len", "2", "--front-end"]
        told = {us: self.report(*load, "text", "--tokenize-us", us)[0]["mean_ttft_ms"] for us in ("0", "1.5", "7", "100")}
        self.assertEqual(self.report(*load, "text")[0]["mean_ttft_ms"], told["1.5"])
        self.assertAlmostEqual(told["7"] - told["0"], 7, delta=0.01)
        self.assertAlmostEqual(told["100"] - told["0"], 100, delta=0.01)
        self.assert_refused(self.deployment(*load, "ids", "--tokenize-us", "7"), "--tokenize-us 7", "--front-end text")

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


if __name__ == "__main__":
    main()
