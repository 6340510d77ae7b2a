#!/usr/bin/env python3
"""Deployments spread over MPI processes: mpi_test.py DRIVER CASE runs one case.

DRIVER is tpsim_rank_driver (rank_driver.cc). A case fails by an exception, and none may take longer than its
limit: a hang is what most of them look for.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

DRIVER = ""
FOLDER = pathlib.Path()
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
for name in [n for n in ENVIRONMENT if n.startswith(("OMPI_COMM", "PMIX_", "PMI_"))]:
    del ENVIRONMENT[name]


def command(processes, *words):
    """The driver, plainly (processes = 0) or under mpirun."""
    launcher = ["mpirun", "--oversubscribe", "-n", str(processes)] if processes else []
    return [*launcher, DRIVER, *map(str, words)]


def run(processes, *words, timeout=40):
    return subprocess.run(
        command(processes, *words), env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout
    )


def result(processes, *words):
    """Step times and reports of a run that must succeed, as bytes."""
    out = FOLDER / f"out-{processes}"
    done = run(processes, "--out", out, *words)
    assert done.returncode == 0, (done.returncode, done.stderr)
    data = out.read_bytes()
    assert len(data) > 1000, len(data)
    return data


def same_bytes(*words, processes=(1, 2, 4, 8)):
    plain = result(0, *words)
    for count in processes:
        assert result(count, *words) == plain, f"{count} processes answer otherwise than one"


def refused(processes, *words, status=2):
    """What a run that must fail says, and how long it took."""
    start = time.monotonic()
    done = run(processes, *words)
    assert done.returncode == status, (done.returncode, done.stderr)
    assert time.monotonic() - start < 10
    sentences = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1, done.stderr
    return sentences[0]


def runs(pid):
    """Whether a process exists and is more than a zombie that nobody has waited for yet."""
    try:
        stat = pathlib.Path("/proc", pid, "stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Endless:
    """A run that only a signal ends."""

    def __init__(self, processes, *words):
        self.pid_folder = FOLDER / "pids"
        self.pid_folder.mkdir()
        self.process = subprocess.Popen(
            command(processes, "--forever", "--pid-dir", self.pid_folder, *words),
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        limit = time.monotonic() + 20
        while not all(self.read_pid(i) for i in range(max(processes, 1))):
            assert time.monotonic() < limit, "the processes did not start"
            time.sleep(0.05)
        time.sleep(1)  # well into the run
        assert self.process.poll() is None, self.process.communicate()

    def read_pid(self, process):
        path = self.pid_folder / str(process)
        return path.exists() and path.read_text().endswith("\n") and int(path.read_text())

    def signal(self, process, number):
        os.kill(self.read_pid(process), number)

    def end(self, within):
        """Waits; returns status, stdout and stderr. Nothing may be left behind."""
        try:
            out, err = self.process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise
        time.sleep(0.2)
        left = [path.name for path in self.pid_folder.iterdir() if runs(path.read_text().strip())]
        self.kill_all()
        assert not left, f"processes {left} are still there"
        return self.process.returncode, out, err

    def kill_all(self):
        for path in self.pid_folder.iterdir():
            try:
                os.kill(int(path.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.process.poll() is None:
            self.process.kill()


# ---- results


def same_bytes_streamed():
    same_bytes("--steps", 3000, "--rank-slowdown", "3:1.2", "--rank-slowdown", "6:1.01")
    same_bytes("--steps", 1500, "--page-size", 16, "--tp", 4, processes=(2, 4))


def same_bytes_synchronous():
    plain = result(0, "--steps", 1500, "--rank-slowdown", "5:1.5")
    for count in (2, 4, 8):
        assert result(count, "--synchronous", "--steps", 1500, "--rank-slowdown", "5:1.5") == plain, count


def unlike_shards():
    """A model per rank, each dearer than the one before: only a synchronous run can tell the slowest."""
    same_bytes("--each", "--synchronous", "--steps", 800, "--rank-slowdown", "2:1.3", processes=(2, 8))


def several_runs():
    same_bytes("--runs", 5, "--steps", 700, processes=(2, 8))


def two_deployments():
    """Each in a process group of its own; both get the stream."""
    plain = result(0, "--tp", 4)
    assert result(8, "--tp", 4, "--deployments", 2) == plain
    assert (FOLDER / "out-8.1").read_bytes() == plain
    assert "for each of 2" in refused(6, "--tp", 4, "--deployments", 2)


def small_messages():
    same_bytes("--batches-per-message", 3, "--window", 1, "--steps", 1000, processes=(4,))


def streams_60000_steps():
    """60,000 steps of 2 us each to 8 processes. The limit is wide: other programs may use the cores."""
    words = ("--steps", 60000, "--extend-percent", 30, "--work", 250)
    done = run(8, *words)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert float(re.search(r"in ([\d.]+) s", done.stdout).group(1)) < 15


def needs_no_mpirun():
    """One process touches no MPI: no 0.3 s to start it, no helper process."""
    start = time.monotonic()
    result(0, "--steps", 100)
    assert time.monotonic() - start < 0.25 + 1.0  # a busy machine


# ---- refusals


def wrong_process_count():
    sentence = refused(3, "--tp", 8)
    assert "started 3 processes" in sentence and "--tp 8" in sentence, sentence
    assert "mpirun -n 1, 2, 4 or 8" in sentence, sentence
    assert "mpirun -n 1 or 2" in refused(4, "--tp", 2)


def disagreeing_price():
    """The last bit of one process's prices is off."""
    sentence = refused(4, "--odd-price", 2, "--steps", 3000)
    assert "ranks 4-5 (process 2) prices batch 0 at" in sentence, sentence


def disagreeing_configuration():
    sentence = refused(8, "--odd-hash", 5)
    assert "rank 5 (process 5): the resolved configuration is not process 0's" in sentence, sentence


def failing_setup():
    assert "rank 7 (process 7): model.json: no such file" in refused(8, "--bad-setup", 7)


def bad_batch():
    for words in ((), ("--synchronous",)):
        for processes in (0, 4):
            sentence = refused(processes, "--bad-stream", 40, *words)
            assert "batch 40 is refused" in sentence and "99" in sentence, sentence


# ---- lost ranks and signals


def killed_rank():
    job = Endless(8)
    job.signal(3, signal.SIGKILL)
    status, out, err = job.end(within=10)
    assert status not in (0, 2), status
    assert "rank 3" in err, err
    assert "report written" in out, (out, err)


def stopped_rank(*words):
    job = Endless(8, "--timeout", 2, *words)
    job.signal(6, signal.SIGSTOP)
    status, out, err = job.end(within=10)
    assert status == 3, (status, err)
    assert "error: rank 6 (process 6) has not answered for 2 s" in err, err
    assert "report written" in out, out


def stopped_rank_synchronous():
    stopped_rank("--synchronous")


def killed_mpirun():
    """Nobody outlives mpirun (checked by end())."""
    job = Endless(4)
    job.process.kill()
    time.sleep(3)
    job.end(within=5)


def sigint_to_process_0():
    for processes in (0, 4):
        job = Endless(processes)
        job.signal(0, signal.SIGINT)
        status, out, _ = job.end(within=5)
        assert status == 3, status
        assert "report written" in out, out
        for path in job.pid_folder.iterdir():
            path.unlink()
        job.pid_folder.rmdir()


def sigusr1_to_mpirun():
    """The way to stop an mpirun without a deadline and with the exit status of tpsim."""
    job = Endless(8)
    job.process.send_signal(signal.SIGUSR1)
    status, out, _ = job.end(within=8)
    assert status == 3, status
    assert "report written" in out, out


def sigint_to_mpirun():
    """Ctrl-C: mpirun gives its processes 1 s and exits with a status of its own."""
    job = Endless(8)
    job.process.send_signal(signal.SIGINT)
    status, out, _ = job.end(within=8)
    assert status != 0, status
    assert "report written" in out, out


def main():
    global DRIVER, FOLDER
    DRIVER, case = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        FOLDER = pathlib.Path(folder)
        start = time.monotonic()
        globals()[case]()
        print(f"{case}: {time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
