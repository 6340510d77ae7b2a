#!/usr/bin/env python3
"""Faults at random moments: signals, killed processes, full disks, closed pipes.

Usage: faults_test.py TPSIM MODELS [--signals N] [--kills N] [--bound SECONDS] [--seed N]

MODELS is tests/golden/models. After each fault: the exit status is one that the contract of the command line
has, the command ended within the bound, no temporary file is left, each file of the report is as it was before
or complete, and the JSON can be read. The last line counts faults and violations; the exit status is 1 where
there was one.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from mpi_environment import MPI_ENVIRONMENT  # noqa: E402
# mpirun gives its processes a second before it passes a signal on, and one more before it kills them.
MPIRUN_SECONDS = 2.5

DEPLOYMENT = ["--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--tp", "2"]
ENDLESS = ["--dataset-name", "random", "--num-prompts", "400000", "--random-input-len", "64", "--random-output-len",
           "2048", "--random-range-ratio", "0.1"]
COMPUTED = ["--model-path", "tinyllama-1.1b", "--load-format", "dummy", "--max-total-tokens", "4096"]
OLD_REPORT = json.dumps({"old": True})


class Command:
    """What a fault strikes. `words` may name the scratch folder as {folder}; `outputs` are the files there that
    the command replaces."""

    def __init__(self, name, words, outputs, processes=0, longest_wait=3.0):
        self.name = name
        self.words = words
        self.outputs = outputs
        self.processes = processes
        self.longest_wait = longest_wait


REPORT = ["report/report.json", "report/report.html", "report/requests.csv", "report/steps.csv"]
COMMANDS = [
    Command("run", ["run", *DEPLOYMENT, *ENDLESS, "--report-dir", "{folder}/report"], REPORT),
    Command("run gz", ["run", *DEPLOYMENT, *ENDLESS, "--compress", "--steps", "every:7", "--report-dir", "{folder}/report"],
            [*REPORT[:2], "report/requests.csv.gz", "report/steps.csv.gz"]),
    Command("compare", ["compare", *DEPLOYMENT, *ENDLESS, "--attention-backends", "fa3,triton", "--report-dir",
                        "{folder}/report"], REPORT),
    Command("run, 2 processes", ["run", *DEPLOYMENT, *ENDLESS, "--report-dir", "{folder}/report"], REPORT, processes=2),
    Command("compare, 2 processes", ["compare", *DEPLOYMENT, *ENDLESS, "--attention-backends", "fa3,triton",
                                     "--report-dir", "{folder}/report"], REPORT, processes=2),
    Command("numeric run", ["run", *COMPUTED, "--executor", "numeric", "--dataset-name", "random", "--num-prompts", "500",
                            "--random-input-len", "600", "--random-output-len", "64", "--report-dir", "{folder}/report"],
            REPORT, longest_wait=12),
    Command("numeric run, 2 processes",
            ["run", *COMPUTED, "--executor", "numeric", "--tp", "2", "--dataset-name", "random", "--num-prompts", "500",
             "--random-input-len", "600", "--random-output-len", "64", "--report-dir", "{folder}/report"],
            REPORT, processes=2, longest_wait=12),
    Command("generate", ["generate", *COMPUTED, "--prompt-ids", ",".join(str(i) for i in range(1, 900)),
                         "--max-new-tokens", "1100", "--output", "{folder}/tokens.jsonl"], ["tokens.jsonl"],
            longest_wait=12),
    Command("verify", ["verify", "--model-path", "{models}/llama", "--tp", "2", "--max-new-tokens", "200"], []),
    Command("verify big", ["verify", *COMPUTED], [], longest_wait=12),
    Command("trace generate", ["trace", "generate", "--num-conversations", "600000", "--output", "{folder}/trace.jsonl.gz"],
            ["trace.jsonl.gz"], longest_wait=4),
]


class Scratch:
    """A folder with an old report in it."""

    def __init__(self, command):
        self.path = tempfile.mkdtemp(prefix="tpsim-faults-")
        self.command = command
        os.mkdir(os.path.join(self.path, "report"))
        for name in command.outputs:
            with open(os.path.join(self.path, name), "w") as file:
                file.write(OLD_REPORT)

    def start(self, **kwargs):
        words = [word.format(folder=self.path, models=MODELS) for word in self.command.words]
        launcher = ["mpirun", "--quiet", "-n", str(self.command.processes)] if self.command.processes else []
        return subprocess.Popen([*launcher, TPSIM, *words], env={**os.environ, **MPI_ENVIRONMENT}, cwd=self.path,
                                stdin=subprocess.DEVNULL, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs})

    def violations(self):
        """What is wrong with the files."""
        found = []
        for folder, _, names in os.walk(self.path):
            found += [f"{name} is left behind" for name in names if ".tmp" in name or "partial" in name]
        replaced = set()
        for name in self.command.outputs:
            path = os.path.join(self.path, name)
            if not os.path.exists(path):
                found.append(f"{name} is gone")
                continue
            with open(path, "rb") as file:
                content = file.read()
            if content == OLD_REPORT.encode():
                continue
            replaced.add(name)
            found += self.half_written(name, content)
        if replaced and len(replaced) < len(self.command.outputs):
            found.append(f"only {', '.join(sorted(replaced))} replaced")
        return found

    @staticmethod
    def half_written(name, content):
        try:
            if name.endswith(".gz"):
                content = gzip.decompress(content)
            text = content.decode()
            if name.endswith(".json"):
                json.loads(text)
            elif ".jsonl" in name:
                for line in text.splitlines():
                    json.loads(line)
            elif ".csv" in name:
                lines = text.splitlines()
                if not text.endswith("\n") or any(line.count(",") != lines[0].count(",") for line in lines):
                    return [f"{name} is half-written"]
            elif "</html>" not in text:
                return [f"{name} is half-written"]
        except (ValueError, EOFError, OSError) as error:
            return [f"{name} cannot be read: {error}"]
        return []

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)


def children(pid):
    """Processes below `pid`."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            direct = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return direct + [below for child in direct for below in children(child)]


def finish(process, seconds):
    """(exit status or None for a hang, what it said)."""
    try:
        _, errors = process.communicate(timeout=seconds)
        return process.returncode, errors.decode(errors="replace") if errors else ""
    except subprocess.TimeoutExpired:
        for pid in [*children(process.pid), process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.communicate()
        return None, ""


class Faults:
    def __init__(self, bound, seed):
        self.bound = bound
        self.random = random.Random(seed)
        self.count = 0
        self.bad = []
        self.slowest = 0.0

    def check(self, what, scratch, problems):
        self.count += 1
        problems = [*problems, *scratch.violations()]
        if problems:
            self.bad.append(what)
        print(f"{'ok  ' if not problems else 'BAD '} {what}{': ' + '; '.join(problems) if problems else ''}", flush=True)
        scratch.remove()

    def strike(self, command, number, target=None):
        """Sends signal `number` to the command, or to the process that `target` picks, at a random moment."""
        scratch = Scratch(command)
        process = scratch.start()
        wait = self.random.uniform(0.05, command.longest_wait)
        time.sleep(wait)
        if process.poll() is not None:
            status, said = finish(process, 1)
            problems = [] if status == 0 else [f"ended with {status} before anything happened: {said.strip()}"]
            self.check(f"{command.name}: was done after {wait:.2f} s", scratch, problems)
            return
        pid = process.pid if target is None else target(process.pid)
        start = time.monotonic()
        os.kill(pid, number)
        # A launcher may take its own time, besides.
        allowed = self.bound + (MPIRUN_SECONDS if command.processes else 0)
        status, said = finish(process, allowed)
        took = time.monotonic() - start
        what = f"{command.name}: {signal.Signals(number).name} after {wait:.2f} s, status {status}, {took:.2f} s"
        problems = []
        if status is None:
            problems.append(f"still runs after {allowed:g} s")
        elif number == signal.SIGKILL:
            if status == 0:
                problems.append("status 0")
        elif status != 3 and not (command.processes and status != 0):  # mpirun has a status of its own
            problems.append(f"status {status}: {said.strip()[-300:]}")
        if "internal error" in said or "Traceback" in said:
            problems.append(said.strip()[-300:])
        if number != signal.SIGKILL and not command.processes:
            self.slowest = max(self.slowest, took)
        self.check(what, scratch, problems)

    def signals(self, count):
        kinds = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        for i in range(count):
            command = COMMANDS[i % len(COMMANDS)]
            self.strike(command, self.random.choice(kinds))

    def kills(self, count):
        for i in range(count):
            command = COMMANDS[(i * 7 + 3) % len(COMMANDS)]
            if not command.processes:
                self.strike(command, signal.SIGKILL)
                continue

            def one_rank(pid):
                ranks = children(pid)
                return self.random.choice(ranks) if ranks else pid

            self.strike(command, signal.SIGKILL, one_rank)

    def refused(self, name, words, status, *expected, outputs=(), prepare=None, **kwargs):
        """A command that cannot write what it should. `expected`: parts of its sentence."""
        command = Command(name, words, list(outputs))
        scratch = Scratch(command)
        if prepare:
            prepare(scratch.path)
        got, said = finish(scratch.start(**kwargs), 60)
        problems = []
        if got != status:
            problems.append(f"status {got}, not {status}: {said.strip()[-300:]}")
        problems += [f"does not say {text!r}: {said.strip()[-300:]}" for text in expected if text not in said]
        if "internal error" in said:
            problems.append(said.strip()[-300:])
        self.check(name, scratch, problems)

    def full_disk(self):
        short = [*DEPLOYMENT, "--dataset-name", "random", "--num-prompts", "2000", "--random-input-len", "32",
                 "--random-output-len", "32"]
        # requests.csv has 130 kB, report.html 200 kB.
        run = ["run", *short, "--report-dir", "{folder}/report"]

        def limited(kilobytes):
            import resource
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10, kilobytes << 10))

        self.refused("a file size limit on steps.csv", run, 2, "--report-dir", "File too large", outputs=REPORT,
                     preexec_fn=limited(64))
        self.refused("a file size limit on report.html", run, 2, "--report-dir", "File too large", outputs=REPORT,
                     preexec_fn=limited(170))
        self.refused("report.json is a folder", run, 2, "report.json", "folder", outputs=REPORT[1:],
                     prepare=lambda folder: os.mkdir(os.path.join(folder, "report", "report.json")))
        self.refused("report.json leads to a full device", run, 2, "report.json", "No space left", outputs=REPORT[1:],
                     prepare=lambda folder: os.symlink("/dev/full", os.path.join(folder, "report", "report.json")))
        self.refused("a trace on a full disk", ["trace", "generate", "--num-conversations", "3000", "--output",
                                                "{folder}/trace.jsonl"], 2, "File too large", outputs=["trace.jsonl"],
                     preexec_fn=limited(64))
        self.small_disk(run)

    def small_disk(self, run):
        """A file system that is really full; only root can make one."""
        scratch = Scratch(Command("a full disk", run, []))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", f"{scratch.path}/report"],
                                 stderr=subprocess.DEVNULL).returncode == 0
        if not mounted:
            scratch.remove()
            return
        try:
            with open(f"{scratch.path}/report/report.json", "w") as file:
                file.write(OLD_REPORT)
            status, said = finish(scratch.start(), 60)
            problems = [] if status == 2 and "No space left" in said else [f"status {status}: {said.strip()[-300:]}"]
            with open(f"{scratch.path}/report/report.json") as file:
                if file.read() != OLD_REPORT:
                    problems.append("report.json has changed")
            if os.listdir(f"{scratch.path}/report") != ["report.json"]:
                problems.append(f"left behind: {os.listdir(f'{scratch.path}/report')}")
        finally:
            subprocess.run(["umount", f"{scratch.path}/report"], check=True)
        self.check("a full disk", scratch, problems)

    def closed_pipes(self):
        short = [*DEPLOYMENT, "--dataset-name", "random", "--num-prompts", "20"]
        for words in (["--help"], ["--version"], ["backends"], ["run", "--help"], ["run", *short],
                      ["compare", *short, "--attention-backends", "fa3,triton"],
                      ["generate", "--model-path", "{models}/llama", "--prompt-ids", "1,2", "--max-new-tokens", "2"],
                      ["verify", "--model-path", "{models}/llama", "--attention-backends", "fa3", "--max-new-tokens", "2"],
                      ["trace", "generate", "--num-conversations", "3", "--output", "{folder}/trace"]):
            name = " ".join(words[:2])
            with open("/dev/full", "w") as full:
                self.refused(f"{name} > /dev/full", words, 2, "standard output cannot be written", stdout=full)
            self.refused(f"{name} >&-", words, 2, "standard output cannot be written", stdout=None,
                         preexec_fn=lambda: os.close(1))
            reader, writer = os.pipe()
            os.close(reader)
            self.refused(f"{name} | true", words, 2, stdout=writer)
            os.close(writer)


def main():
    global TPSIM, MODELS
    parser = argparse.ArgumentParser()
    parser.add_argument("tpsim")
    parser.add_argument("models")
    parser.add_argument("--signals", type=int, default=6)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--bound", type=float, default=2.0, help="seconds from a signal to the end of the command")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    TPSIM, MODELS = os.path.abspath(args.tpsim), os.path.abspath(args.models)
    # What nohup or a shell's `&` ignores is ignored by what is started here, too.
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    faults = Faults(args.bound, args.seed)
    faults.closed_pipes()
    faults.full_disk()
    faults.signals(args.signals)
    faults.kills(args.kills)
    print(f"{faults.count} faults, {len(faults.bad)} violations; slowest end of one process after a signal: "
          f"{faults.slowest:.2f} s")
    return 1 if faults.bad else 0


if __name__ == "__main__":
    sys.exit(main())
