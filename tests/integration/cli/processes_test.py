#!/usr/bin/env python3
"""Several processes, and signals.

Usage: processes_test.py TPSIM [CLASS ...]
"""

import json
import os
import re
import signal
import subprocess
import time

from command_line import LONG_LOAD, CommandLine, main


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


class SharedReplicas(CommandLine):
    """Replicas on one process or several."""
    LOAD = ("--dataset-name", "random", "--num-prompts", "150", "--random-input-len", "400", "--random-output-len", "30",
            "--request-rate", "120", "--warmup-requests", "3")

    def answer(self, words, processes):
        report = os.path.join(self.folder, "report")
        done = self.tpsim("run", *words, "--no-progress", "--report-dir", report, processes=processes)
        self.assertEqual(done.returncode, 0, done.stderr)
        files = {name: self.read(os.path.join(report, name)) for name in sorted(os.listdir(report))}
        self.assertIn("requests.csv", files)
        return done.stdout, files, done.stderr

    def test_any_number_of_processes(self):
        fleet = self.write("fleet.json", json.dumps({"router": "--policy power_of_two", "workers": [
            {"count": 2, "hardware": "h200-sxm", "args": "--model-path llama-3.1-8b"},
            {"name": "small", "count": 1, "hardware": "l40s", "args": "--model-path llama-3.1-8b"}]}))
        replicas = self.deployment("--dp-size", "3", "--router-policy")[1:]
        for words in ([*replicas, "round_robin"], [*replicas, "cache_aware", "--router-balance-abs-threshold", "1"],
                      ["--fleet", fleet]):
            shown, files, _ = self.answer([*words, *self.LOAD], None)
            for processes in (1, 2, 4):
                with self.subTest(words=words, processes=processes):
                    again, same, said = self.answer([*words, *self.LOAD], processes)
                    self.assertEqual(again, shown)
                    self.assertEqual(same, files)
                    self.assertNotIn("under mpirun", said)

    def test_what_one_process_serves(self):
        for words in (["--dp-size", "2", "--max-concurrency", "8"],
                      ["--dp-size", "2", "--router-policy", "random", "--replica-failure", "1@0.5"]):
            with self.subTest(words=words):
                words = [*self.deployment(*words)[1:], *self.LOAD]
                shown, files, _ = self.answer(words, None)
                again, same, said = self.answer(words, 2)
                self.assertEqual((again, same), (shown, files))
                self.assertIn(f"{words[-len(self.LOAD) - 2]}", said)
                self.assertIn("under mpirun one process serves all replicas", said)

    def test_refusals_are_printed_once(self):
        words = self.deployment("--dp-size", "2", *self.LOAD)
        self.assert_refused([*words, "--report-dir", "/proc/nowhere"], "--report-dir", processes=3)
        self.assert_refused([*words, "--random-range-ratio", "1", "--max-total-tokens", "30"], "--max-total-tokens 30", processes=3)
        self.assert_refused(self.deployment("--dp-size", "2", "--trace", "-"), "--trace -", processes=2)

    def start_long(self):
        report = os.path.join(self.folder, "report")
        child = self.start(*self.deployment("--dp-size", "4", "--report-dir", report, *LONG_LOAD, "--request-rate", "50"),
                           processes=3)
        self.wait_for(report, child)
        time.sleep(2)
        self.assertIsNone(child.poll(), "the run ended before it could be interrupted")
        return child, report

    def test_interrupted(self):
        child, report = self.start_long()
        child.send_signal(signal.SIGUSR1)
        _, errors = child.communicate(timeout=40)
        self.assertEqual(child.returncode, 3, errors)
        self.assertEqual(errors.count("interrupted"), 1, errors)
        result = self.result(report)
        self.assertTrue(result["stopped_early"])
        self.assertGreater(result["completed"], 0)
        self.assertGreater(min(row["requests"] for row in result["replicas"]), 0)

    def test_killed(self):
        for victim in (0, 2):
            child, report = self.start_long()
            pids = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True).stdout.split()
            self.assertEqual(len(pids), 3)
            os.kill(int(pids[victim]), signal.SIGKILL)
            begin = time.monotonic()
            _, errors = child.communicate(timeout=40)
            self.assertNotEqual(child.returncode, 0)
            self.assertNotIn("internal error", errors)
            self.assertLess(time.monotonic() - begin, 15)
            if victim > 0:
                self.assertIn("has died", errors)


class Interrupts(CommandLine):
    def start_long(self, report, processes=None):
        child = self.start(*self.deployment("--tp", "2", "--report-dir", report, *LONG_LOAD), processes=processes)
        self.wait_for(report, child)
        return child

    def check_interrupt(self, number, processes=None):
        report = os.path.join(self.folder, f"report-{number}-{processes}")
        child = self.start_long(report, processes)
        time.sleep(1.5)
        self.assertIsNone(child.poll(), "the run ended before it could be interrupted")
        child.send_signal(number)
        _, errors = child.communicate(timeout=40)
        self.assertEqual(child.returncode, 3, errors)
        result = self.result(report)
        self.assertTrue(result["stopped_early"])
        self.assertGreater(result["completed"], 0)
        self.assertTrue(re.search("interrupted", errors), errors)

    def test_sigint_writes_what_was_finished(self):
        self.check_interrupt(signal.SIGINT)

    def test_an_interrupted_comparison_names_no_winner(self):
        report = os.path.join(self.folder, "report")
        child = self.start(*self.deployment("--report-dir", report, *LONG_LOAD, command="compare"))
        time.sleep(2)
        child.send_signal(signal.SIGINT)
        shown, errors = child.communicate(timeout=40)
        self.assertEqual(child.returncode, 3, errors)
        self.assertIn("No best backend: stopped early, before any of 2 had served every request", shown)
        result = self.result(report)
        self.assertEqual((result["best"], result["best_setting"]), ("", {}))
        self.assertIn("stopped early", result["best_reason"])

    def test_sigterm_writes_what_was_finished(self):
        self.check_interrupt(signal.SIGTERM)

    def test_sighup_writes_what_was_finished(self):
        self.check_interrupt(signal.SIGHUP)

    def test_sigusr1_to_mpirun_keeps_the_status(self):
        self.check_interrupt(signal.SIGUSR1, processes=2)

    def test_sigint_under_mpirun(self):
        report = os.path.join(self.folder, "report-mpi")
        child = self.start_long(report, processes=2)
        time.sleep(2)
        self.assertIsNone(child.poll(), "the run ended before it could be interrupted")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=40)
        self.assertNotEqual(child.returncode, 0)
        self.assertTrue(self.result(report)["stopped_early"])


class ComputingInterrupts(CommandLine):
    def test_computing_ends_in_two_seconds(self):
        computed = ["--model-path", "tinyllama-1.1b", "--load-format", "dummy", "--max-total-tokens", "4096"]
        prompt = ",".join(str(i) for i in range(1, 900))
        for words, wait in ((["verify", *computed], 1),
                            (["generate", *computed, "--prompt-ids", prompt, "--max-new-tokens", "1100"], 9)):
            with self.subTest(words=words[:1], wait=wait):
                child = subprocess.Popen([self.program, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                time.sleep(wait)
                self.assertIsNone(child.poll(), "ended before it could be interrupted")
                begin = time.monotonic()
                child.send_signal(signal.SIGTERM)
                _, errors = child.communicate(timeout=40)
                self.assertEqual(child.returncode, 3, errors)
                self.assertIn(b"interrupted", errors)
                self.assertLess(time.monotonic() - begin, 2 * 2, "twice the time: other programs may use the cores")


class LauncherInterrupts(CommandLine):
    def test_the_launcher_keeps_the_status(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(self.program)))
        script = os.path.join(root, "launch", "run")
        if not os.path.exists(script):
            self.skipTest("the build folder is elsewhere")
        report = os.path.join(self.folder, "report")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number):
                child = subprocess.Popen([script, "-n", "2", *self.deployment("--tp", "2", "--report-dir", report, *LONG_LOAD)],
                                         cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                time.sleep(2)
                self.assertIsNone(child.poll(), "the run ended before it could be interrupted")
                child.send_signal(number)
                _, errors = child.communicate(timeout=40)
                self.assertEqual(child.returncode, 3, errors)
                self.assertTrue(self.result(report)["stopped_early"])
        with open("/dev/full", "w") as full:
            done = subprocess.run([script, "-n", "2", "backends"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "tpsim: standard output cannot be written\n"))


if __name__ == "__main__":
    main()
