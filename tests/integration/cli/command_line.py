"""The tpsim program seen from outside: exit status, the one sentence of a refusal, and the files left behind. What the
tests of this folder share.
"""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from mpi_environment import MPI_ENVIRONMENT  # noqa: E402


def mooncake(timestamp=0, input_length=1000, output_length=20, hash_ids=(1, 2), **more):
    row = {"timestamp": timestamp, "input_length": input_length, "output_length": output_length,
           "hash_ids": list(hash_ids)}
    row.update(more)
    return json.dumps(row) + "\n"


GOOD_TRACE = mooncake(0) + mooncake(100, hash_ids=(1, 3)) + mooncake(200, hash_ids=(1, 3))

# Long enough to be caught in the middle: a few minutes of simulating if nobody interrupts.
LONG_LOAD = ["--dataset-name", "random", "--num-prompts", "400000", "--random-input-len", "64",
             "--random-output-len", "2048", "--random-range-ratio", "0.1"]


class CommandLine(unittest.TestCase):
    """A scratch folder, and ways to run tpsim in it."""

    program = None  # set by main()

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

    @staticmethod
    def result(report):
        with open(os.path.join(report, "report.json")) as file:
            return json.load(file)

    def trace(self, content=GOOD_TRACE, name="trace.jsonl"):
        return self.write(name, content)

    def start(self, *words, processes=None):
        """tpsim with `words`, in the scratch folder; without mpirun unless `processes` are named."""
        command = [self.program, *words]
        if processes is not None:
            command = ["mpirun", "--quiet", "-n", str(processes)] + command
        return subprocess.Popen(command, cwd=self.folder, env={**os.environ, **MPI_ENVIRONMENT},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, name, child):
        """Until the running child has made a file or folder: how long it takes to start is the machine's."""
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.folder, name)) and time.monotonic() < deadline:
            self.assertIsNone(child.poll(), f"ended before it made {name}")
            time.sleep(0.002)

    def tpsim(self, *words, processes=None, timeout=60):
        with self.start(*words, processes=processes) as child:
            try:
                out, err = child.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                child.kill()
                raise
        return subprocess.CompletedProcess(child.args, child.returncode, out, err)

    def deployment(self, *extra, command="run"):
        words = [command, "--model-path", "llama-3.1-8b", "--hardware", "h200-sxm"]
        if command == "compare" and "--attention-backends" not in extra:
            words += ["--attention-backends", "fa3,triton"]
        return words + list(extra)

    def run_trace(self, content, *extra, name="trace.jsonl"):
        return self.tpsim(*self.deployment("--trace", self.trace(content, name), *extra))

    def served(self, *words):
        """Runs; returns its report, the rows of its requests, and what it printed."""
        folder = os.path.join(self.folder, "out")
        done = self.tpsim("run", "--report-dir", folder, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(folder, "report.json")) as file:
            report = json.load(file)
        with open(os.path.join(folder, "requests.csv")) as file:
            return report, list(csv.DictReader(file)), done.stdout

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


def main():
    """Runs the tests of the file that was started: FILE TPSIM [CLASS ...]."""
    CommandLine.program = os.path.abspath(sys.argv.pop(1))
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup's ignoring would reach what is tested
    unittest.main()
