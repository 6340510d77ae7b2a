#!/usr/bin/env python3
"""Runs whose load is longer than memory: peak memory does not grow with the number of requests.

With TPSIM_LONG (`launch/test --long`) 10 million requests, too.

Usage: endless_test.py TPSIM [CLASS ...]
"""

import gzip
import os
import random
import subprocess
import unittest

from command_line import CommandLine, main

# Requests that are answered as fast as they come.
LIGHT = ["--random-input-len", "64", "--random-output-len", "4", "--request-rate", "400", "--steps", "none"]


class Endless(CommandLine):
    def measured(self, *words, stdin=None):
        """Exit status 0; the peak resident megabytes and the CPU seconds, which no neighbour lengthens by much."""
        with open(os.path.join(self.folder, "err"), "w+") as err:
            child = subprocess.Popen([self.program, *self.deployment(*words), "--quiet"], cwd=self.folder,
                                     stdin=stdin or subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            err.seek(0)
            self.assertEqual(child.returncode, 0, err.read())
        return usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime

    def random_run(self, requests):
        return self.measured("--dataset-name", "random", "--num-prompts", str(requests), *LIGHT, "--report-dir",
                             "report", "--compress")

    def test_generated_requests(self):
        short, _ = self.random_run(20_000)
        long, _ = self.random_run(200_000)
        result = self.result(os.path.join(self.folder, "report"))
        self.assertEqual(result["completed"], 200_000)
        self.assertNotIn("percentile_error", result)
        # 16 bytes for each of four latencies are kept of each request, up to 2^20 of them.
        self.assertLess(long, short + 30)
        self.assertLess(long, 120)

    def lines(self, requests):
        """A trace of conversations of up to three turns, of single requests, of prompts by length and by ids."""
        rng = random.Random(3)
        arrival = 0.0
        for i in range(requests):
            arrival += rng.expovariate(400)
            session = i // 3 - i // 3 % 50 + i % 50
            named = f',"session_id":"conversation {session}"' if session % 4 else ""
            prompt = f'"prompt_len":{rng.randrange(1, 100)}' if i % 2 else f'"prompt":[[{i % 1000 * 100},80]]'
            yield f'{{"arrival_time":{arrival:.6f},{prompt},"max_new_tokens":{rng.randrange(1, 6)}{named}}}\n'

    def test_traces(self):
        with open(os.path.join(self.folder, "long.jsonl"), "w") as file:
            file.writelines(self.lines(200_000))
        with open(os.path.join(self.folder, "long.jsonl"), "rb") as file, \
                gzip.open(os.path.join(self.folder, "long.jsonl.gz"), "wb", compresslevel=1) as packed:
            packed.write(file.read())
        with open(os.path.join(self.folder, "short.jsonl"), "w") as file:
            file.writelines(self.lines(20_000))
        flags = ["--steps", "none", "--report-dir"]
        short, _ = self.measured("--trace", "short.jsonl", *flags, "short")
        long, _ = self.measured("--trace", "long.jsonl", *flags, "plain")
        # The first reading knows 27 to 54 bytes of each conversation, and the latencies are kept.
        self.assertLess(long, short + 60)
        packed, _ = self.measured("--trace", "long.jsonl.gz", *flags, "packed")
        self.assertLess(packed, short + 60)
        cat = subprocess.Popen(["cat", "long.jsonl"], cwd=self.folder, stdout=subprocess.PIPE)
        self.measured("--trace", "/dev/stdin", *flags, "piped", stdin=cat.stdout)
        cat.stdout.close()
        cat.wait()
        plain = self.read(os.path.join(self.folder, "plain", "requests.csv"))
        self.assertEqual(plain.count(b"\n"), 200_001)
        for other in ("packed", "piped"):
            self.assertEqual(self.read(os.path.join(self.folder, other, "requests.csv")), plain, other)
        self.assertGreater(self.result(os.path.join(self.folder, "plain"))["turns"], 10_000)

    @unittest.skipUnless(os.environ.get("TPSIM_LONG"), "ten million requests: with launch/test --long")
    def test_ten_million_requests(self):
        _, a_million = self.random_run(1_000_000)
        memory, seconds = self.random_run(10_000_000)
        print(f"10,000,000 requests: {memory:.0f} MB, {seconds:.0f} CPU seconds")
        result = self.result(os.path.join(self.folder, "report"))
        self.assertEqual(result["completed"], 10_000_000)
        self.assertLess(memory, 300)
        self.assertLess(seconds, 15 * a_million)
        self.assertLess(result["percentile_error"], 0.0005)
        self.assertLess(os.path.getsize(os.path.join(self.folder, "report", "report.html")), 4 << 20)


if __name__ == "__main__":
    main()
