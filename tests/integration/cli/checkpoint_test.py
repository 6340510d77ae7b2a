#!/usr/bin/env python3
"""--checkpoint and --resume: a run that is killed, as often as may be, reports what an uninterrupted one does.

Usage: checkpoint_test.py TPSIM [CLASS ...]
"""

import os
import random
import signal
import time

from command_line import CommandLine, main, mooncake

FILES = ("report.json", "requests.csv", "steps.csv", "report.html")


class KilledRuns(CommandLine):
    """Runs a load to its end, and again with kills in between."""

    def trace_of(self, requests):
        rng = random.Random(5)
        lines, at = [], 0
        for i in range(requests):
            at += rng.randrange(60)
            blocks = [rng.randrange(40)] + [1000 + rng.randrange(i + 1) for _ in range(rng.randrange(6))]
            lines.append(mooncake(at, input_length=512 * len(blocks) - rng.randrange(100),
                                  output_length=1 + rng.randrange(200), hash_ids=blocks))
        return self.trace("".join(lines))

    def command(self, words):
        return list(words) if words[0] == "run" else self.deployment(*words)

    def whole(self, *words):
        begun = time.monotonic()
        done = self.tpsim(*self.command(words), "--report-dir", "whole", timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.seconds = time.monotonic() - begun

    def assert_same_reports(self, files=FILES):
        for name in files:
            self.assertEqual(self.read(os.path.join(self.folder, "whole", name)),
                             self.read(os.path.join(self.folder, "killed", name)), name)

    def killed_and_resumed(self, *words, kills=6, every="0"):
        """Kills the run at random moments and goes on each time; returns how often it was killed."""
        rng = random.Random(7)
        words = [*words, "--report-dir", "killed"]
        checkpoint = os.path.join(self.folder, "state")
        killed = 0
        while True:
            go_on = ["--resume" if os.path.exists(checkpoint) else "--checkpoint", "state"]
            child = self.start(*self.command(words), *go_on, "--checkpoint-every", every)
            if killed < kills:
                deadline = time.monotonic() + 60
                before = os.stat(checkpoint).st_ino if os.path.exists(checkpoint) else None
                while child.poll() is None and time.monotonic() < deadline:
                    if os.path.exists(checkpoint) and os.stat(checkpoint).st_ino != before:
                        break
                    time.sleep(0.002)
                if killed > 0:  # the first kill comes at once, so that there is one
                    time.sleep(rng.random() * 0.3 * self.seconds)
                if child.poll() is None:
                    child.send_signal(signal.SIGKILL)
            _, err = child.communicate(timeout=200)
            if child.returncode == 0:
                break
            self.assertEqual(child.returncode, -signal.SIGKILL, err)
            killed += 1
        self.assertFalse(os.path.exists(checkpoint), "a finished run leaves no checkpoint")
        self.assertEqual([n for n in os.listdir(self.folder) if n.startswith("state")], [])
        return killed


class CheckpointedDeployments(KilledRuns):
    def test_other_deployments(self):
        load = ("--dataset-name", "random", "--num-prompts", "600", "--random-input-len", "600",
                "--random-output-len", "120")
        rate, places = ("--request-rate", "30"), ("--max-concurrency", "16")
        for model, words in (
                ("gpt-oss-20b", (*load, *rate)),
                ("qwen3-next-80b-a3b", (*load, *rate, "--tp", "4")),
                ("llama-3.1-70b", (*load, *rate, "--tp", "2", "--pp-size", "4")),
                ("deepseek-v3", (*load, *rate, "--tp", "8", "--dp-size", "8", "--enable-dp-attention")),
                ("llama-3.1-8b", (*load, *places, "--speculative-algorithm", "NGRAM",
                                  "--speculative-num-draft-tokens", "8", "--speculative-accept-rates", "0.7")),
                ("qwen3-30b-a3b", (*load, *places, "--page-size", "16", "--served-before", "warmup",
                                   "--launch-queue", "264", "--scheduler-recv-interval", "3")),
                ("qwen3-vl-8b", ("--dataset-name", "image", "--num-prompts", "3000", "--request-rate", "20",
                                 "--random-image-count", "--random-output-len", "60")),
                ("llama-3.1-8b", ("--dataset-name", "generated-shared-prefix", "--gsp-num-groups", "8",
                                  "--gsp-prompts-per-group", "40", "--gsp-output-len", "100", "--gsp-num-turns", "3",
                                  "--max-total-tokens", "60000", "--max-concurrency", "24"))):
            with self.subTest(model=model, words=words):
                given = ["run", "--hardware", "h200-sxm", "--model-path", model, *words]
                self.whole(*given)
                self.assertGreater(self.killed_and_resumed(*given, kills=3), 0)
                self.assert_same_reports()

    def test_attention_backends(self):
        load = ("--dataset-name", "random", "--num-prompts", "400", "--random-input-len", "300",
                "--random-output-len", "150", "--max-concurrency", "12")
        for model, words in (("llama-3.1-8b", ("--attention-backend", "flashinfer")),
                             ("llama-3.1-8b", ("--attention-backend", "torch_native")),
                             ("llama-3.1-8b", ("--prefill-attention-backend", "triton", "--decode-attention-backend",
                                               "torch_native")),
                             ("deepseek-v2-lite", ("--attention-backend", "flashmla")),
                             ("deepseek-v3.2", ("--tp", "8"))):
            with self.subTest(model=model, words=words):
                given = ["run", "--hardware", "h200-sxm", "--model-path", model, *load, *words]
                self.whole(*given)
                self.assertGreater(self.killed_and_resumed(*given, kills=3), 0)
                self.assert_same_reports()


class Checkpoints(KilledRuns):
    def test_killed_runs_report_the_same(self):
        trace = ("--trace", self.trace_of(1500))
        for words in ((), ("--disable-overlap-schedule", "--enable-mixed-chunk", "--chunked-prefill-size", "512"),
                      ("--disable-radix-cache", "--page-size", "16"),
                      ("--max-total-tokens", "20000", "--goodput", "ttft:500"),
                      ("--warmup-requests", "2", "--front-end", "text", "--time-scale", "0.5")):
            with self.subTest(words=words):
                self.whole(*trace, *words)
                self.assertGreater(self.killed_and_resumed(*trace, *words), 0)
                self.assert_same_reports()

    def test_compressed_and_long(self):
        words = ("--dataset-name", "random", "--num-prompts", "200000", "--random-input-len", "64",
                 "--random-output-len", "16", "--request-rate", "400", "--steps", "every:100", "--compress")
        self.whole(*words)
        self.assertGreater(self.killed_and_resumed(*words, every="0.02"), 1)
        self.assert_same_reports(("report.json", "requests.csv.gz", "steps.csv.gz", "report.html"))

    def interrupted(self, *words):
        """Leaves the checkpoint of a killed run."""
        child = self.start(*self.deployment(*words, "--report-dir", "killed", "--checkpoint", "state",
                                            "--checkpoint-every", "0"))
        self.wait_for("state", child)
        child.kill()
        child.communicate()
        self.assertTrue(os.path.exists(os.path.join(self.folder, "state")))

    def test_a_signal_leaves_a_last_checkpoint(self):
        words = ("--dataset-name", "random", "--num-prompts", "300000", "--random-input-len", "64",
                 "--random-output-len", "16", "--request-rate", "400", "--steps", "none")
        self.whole(*words)
        for name in (signal.SIGINT, signal.SIGTERM):
            # The same command begins and goes on.
            go_on = self.deployment(*words, "--report-dir", "killed", "--checkpoint", "state", "--resume", "state",
                                    "--checkpoint-every", "100000")
            child = self.start(*go_on)
            time.sleep(0.3)
            child.send_signal(name)
            _, err = child.communicate(timeout=60)
            if child.returncode == 0:
                self.skipTest("the run ended before it was interrupted")
            self.assertEqual(child.returncode, 3, err)
            self.assertIn("--resume state goes on", err)
            self.assertTrue(self.result(os.path.join(self.folder, "killed"))["stopped_early"])
            done = self.tpsim(*go_on, timeout=200)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assert_same_reports(("report.json", "requests.csv", "report.html"))
            self.assertEqual([n for n in os.listdir(self.folder) if n.startswith("state")], [])

    def test_refusals(self):
        trace = self.trace_of(3000)
        words = ["--trace", trace]
        self.interrupted(*words)
        go_on = self.deployment(*words, "--resume", "state")
        self.assert_refused(self.deployment(*words, "--checkpoint", "state"), "--checkpoint state: is there already",
                            "--resume")
        self.assert_refused([*go_on, "--page-size", "16"], "--resume state", "without --page-size",
                            "with --page-size 16")
        self.assert_refused([*go_on, "--max-concurrency", "3"], "--resume state", "--max-concurrency")
        self.assert_refused([*go_on, "--enable-mixed-chunk"], "--resume state", "--enable-mixed-chunk")
        self.assert_refused(self.deployment(*words, "--resume", "nothing"), "--resume nothing: no such file")
        self.assert_refused(self.deployment(*words, "--checkpoint", "no/where"), "--checkpoint no/where")
        self.assert_refused(self.deployment(*words, "--checkpoint", "."), "--checkpoint .: is a folder")
        self.assert_refused(self.deployment(*words, "--resume", trace), "is not a checkpoint")
        self.assert_refused(self.deployment(*words, "--checkpoint-every", "3"), "--checkpoint-every", "--checkpoint")
        self.assert_refused([*go_on, "--checkpoint", "other"], "--checkpoint other", "--resume state")
        self.assert_refused([*go_on, "--record-batches", "b.pb"], "--record-batches")
        self.assert_refused([*go_on, "--trace-out", "t.gz"], "--trace-out")
        self.assert_refused([*go_on, "--executor", "numeric"], "--resume state", "--executor modeled")
        self.assert_refused(self.deployment(*words, "--checkpoint", "new", command="compare"), "--checkpoint new",
                            "tpsim run")
        self.assert_refused([*self.deployment(*words, "--checkpoint", "new"), "--tp", "2"], "--checkpoint new",
                            "mpirun", processes=2)
        good = self.read(os.path.join(self.folder, "state"))
        at = good.index(b"\n") + 1
        for bad in (good[:-1], good[:at], good[:10], b"", good[:100] + bytes([good[100] ^ 1]) + good[101:],
                    good[:at] + bytes([good[at] ^ 2]) + good[at + 1:], good + b"x"):
            self.write("state", bad)
            self.assert_refused(go_on, "--resume state")
            self.assertEqual(self.read(os.path.join(self.folder, "state")), bad)
        self.write("state", good)
        rows = self.read(os.path.join(self.folder, "state.requests"))
        for bad in (b"x" + rows[1:], b""):
            self.write("state.requests", bad)
            self.assert_refused(go_on, "state.requests is damaged")
        os.remove(os.path.join(self.folder, "state.requests"))
        self.assert_refused(go_on, "state.requests is missing")
        self.write("state.requests", rows)
        with open(trace, "a") as file:
            file.write(mooncake(10**9))
        self.assert_refused(go_on, "--resume state: is of other requests", "3000 requests", "3001 requests")

    def test_one_run_at_a_time(self):
        words = ("--dataset-name", "random", "--num-prompts", "1000000", "--random-input-len", "64",
                 "--random-output-len", "16", "--request-rate", "400")
        first = self.start(*self.deployment(*words, "--checkpoint", "state", "--checkpoint-every", "0.1"))
        try:
            self.wait_for("state", first)
            self.assert_refused(self.deployment(*words, "--resume", "state"), "--resume state: another run writes it")
        finally:
            first.kill()
            first.communicate()


if __name__ == "__main__":
    main()
