#!/usr/bin/env python3
"""The files of a report, and standard output.

Usage: reports_test.py TPSIM [CLASS ...]
"""

import gzip
import json
import os
import pty
import stat
import subprocess

from command_line import GOOD_TRACE, MPI_ENVIRONMENT, CommandLine, main, mooncake


class Reports(CommandLine):
    def test_a_run_writes_every_file(self):
        report = os.path.join(self.folder, "deep", "report")
        done = self.run_trace(GOOD_TRACE, "--report-dir", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(report)), ["report.html", "report.json", "requests.csv", "steps.csv"])
        result = self.result(report)
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
        result = self.result(report)
        self.assertEqual([run["backend"] for run in result["runs"]], ["fa3", "triton"])
        self.assertIn(result["best"], ("fa3", "triton"))

    def test_random_load(self):
        report = os.path.join(self.folder, "report")
        done = self.tpsim(*self.deployment("--dataset-name", "random", "--num-prompts", "20", "--random-input-len", "64",
                                           "--random-output-len", "8", "--max-concurrency", "4", "--report-dir", report))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.result(report)["completed"], 20)

    def closed_loop(self, *extra):
        """TPOT in milliseconds of six prompts of 1,024 tokens and 128 answers, one after another."""
        report = os.path.join(self.folder, "report")
        done = self.tpsim(*self.deployment("--dataset-name", "random", "--num-prompts", "6", "--random-input-len", "1024",
                                           "--random-output-len", "128", "--random-range-ratio", "1",
                                           "--max-concurrency", "1", "--report-dir", report, *extra))
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.result(report)["mean_tpot_ms"]

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
        report = self.result(os.path.join(self.folder, "out"))
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
            repeated = self.result(os.path.join(self.folder, "out"))
            self.assertEqual(repeated["goodput_share"], probe["goodput_share"], done.stderr)
            self.assertIsNone(repeated["max_goodput_rate"])

        trace = self.trace("".join(mooncake(t * 500, input_length=2048, hash_ids=(t, t, t, t)) for t in range(40)))
        done = self.tpsim(*self.deployment("--trace", trace, "--goodput", "ttft:100", "--max-goodput-rate",
                                           "--report-dir", "out", command="compare"))
        self.assertEqual(done.returncode, 0, done.stderr)
        report = self.result(os.path.join(self.folder, "out"))
        for run in report["runs"]:
            self.assertEqual(run["max_goodput_search"]["varied"], "time_scale")
            self.assertGreater(run["max_goodput_rate"], 2)
        self.assertIn("max req/s", done.stdout)

        for level, outcome in (("ttft:1", "unreachable"), ("ttft:1e9", "unlimited")):
            done = self.tpsim(*self.deployment(*load, "--goodput", level, "--max-goodput-rate"))
            report = self.result(os.path.join(self.folder, "out"))
            self.assertEqual(report["max_goodput_search"]["outcome"], outcome)
            self.assertIsNone(report["max_goodput_rate"])
            self.assertIn(report["max_goodput_search"]["message"], done.stdout)

    def test_overload(self):
        load = ["--dataset-name", "random", "--num-prompts", "2000", "--report-dir", "out"]
        for rate, said in (("2", False), ("200", True), ("inf", False)):
            done = self.tpsim(*self.deployment(*load, "--request-rate", rate))
            overload = self.result(os.path.join(self.folder, "out"))["overload"]
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
                command = [self.program, *words]
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
        with subprocess.Popen([self.program, *words, fifo], stdout=subprocess.DEVNULL) as child, open(fifo, "rb") as reader:
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
        compare = [self.program, *self.deployment("--trace", self.trace(), "--tp", "2", command="compare")]
        for command in (compare, ["mpirun", "--quiet", "-n", "2", *compare]):
            with self.subTest(command=command[0]):
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env={**os.environ, **MPI_ENVIRONMENT, "TERM": "xterm"})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn(b"\x1b", done.stdout + done.stderr)
                self.assertIn(b"\x1b[1;32m", self.on_terminal(command))
                self.assertNotIn(b"\x1b[1;32m", self.on_terminal(command, NO_COLOR="1"))
                self.assertNotIn(b"\x1b", self.on_terminal(command, TERM="dumb"))


if __name__ == "__main__":
    main()
