#!/usr/bin/env python3
"""Settings of a sweep spread over MPI processes: sweep_test.py TPSIM MODELS CASE runs one case.

MODELS is tests/golden/models. Priced settings give the same report whatever the number of processes; computed ones
the same answers, from groups of processes that each take the next setting.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from mpi_environment import MPI_ENVIRONMENT  # noqa: E402

TPSIM, MODELS, FOLDER = "", "", pathlib.Path()


def command(processes, *words):
    launcher = ["mpirun", "--quiet", "-n", str(processes)] if processes else []
    return [*launcher, TPSIM, "compare", "--no-progress", *map(str, words)]


def start(processes, *words):
    return subprocess.Popen(command(processes, *words), env={**os.environ, **MPI_ENVIRONMENT}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=FOLDER)


def run(processes, *words, timeout=200):
    with start(processes, *words) as child:
        out, err = child.communicate(timeout=timeout)
    return subprocess.CompletedProcess(child.args, child.returncode, out, err)


def trace(requests, tokens):
    path = FOLDER / "trace.jsonl"
    with open(path, "w") as file:
        for i in range(requests):
            file.write(json.dumps({"arrival_time": 0, "max_new_tokens": tokens, "prompt": [[5 + i, 20]]}) + "\n")
    return path


def computed(*extra, requests=4, tokens=6):
    return ["--executor", "numeric", "--model-path", os.path.join(MODELS, "llama"), "--trace", trace(requests, tokens),
            *extra]


def answers(processes, *words):
    """What does not depend on this machine's time, of each setting."""
    report = FOLDER / f"report-{processes}"
    done = run(processes, *words, "--report-dir", report)
    assert done.returncode == 0, (processes, done.returncode, done.stderr)
    runs = json.loads((report / "report.json").read_text())["runs"]
    return [{**{key: r[key] for key in ("settings", "completed", "failed", "total_input_tokens", "total_output_tokens",
                                        "tp_size", "backend", "kv_pool_tokens")},
             "ranks": [{key: rank[key] for key in sorted(rank) if key in ("rank", "heads", "kv_heads", "weight_bytes")}
                       for rank in r["ranks"]]} for r in runs]


def modeled():
    words = ["--model-path", "llama-3.1-8b", "--hardware", "h200-sxm", "--trace", trace(40, 30), "--tp", "1,2,4",
             "--page-size", "1,64", "--attention-backends", "fa3,triton"]
    seen = {}
    for processes in (0, 1, 2, 4, 8):
        report = FOLDER / f"report-{processes}"
        done = run(processes, *words, "--report-dir", report)
        assert done.returncode == 0, done.stderr
        seen[processes] = {name: (report / name).read_bytes() for name in sorted(os.listdir(report))}
    for processes, files in seen.items():
        assert files == seen[0], f"{processes} processes report otherwise than one"


def numeric():
    words = computed("--tp", "1,2,4", "--page-size", "1,16")
    alone = answers(0, *words)
    assert len(alone) == 6 and all(r["completed"] == 4 and r["total_output_tokens"] == 24 for r in alone), alone
    for processes in (1, 2, 3):  # groups of one process: --tp 1 is among them
        assert answers(processes, *words) == alone, processes


def groups():
    """Two ranks a setting, on groups of one and of two processes."""
    words = computed("--tp", "2", "--page-size", "1,16,32")
    alone = answers(0, *words)
    for processes in (1, 2, 4, 8):
        assert answers(processes, *words) == alone, processes


def refused():
    done = run(2, *computed("--tp", "1,2", "--jobs", "2"))
    assert done.returncode == 2 and "tpsim: --jobs 2: is for --executor modeled" in done.stderr, done.stderr
    done = run(4, *computed("--tp", "3,5"))
    assert done.returncode == 2 and "none of the 2 settings can be carried out" in done.stderr, done.stderr


def ranks_of(pid):
    """The tpsim processes below mpirun, or those of the program that tpsim gave way to."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
            if int(words[1]) == pid and os.readlink(path.parent / "exe").startswith(os.path.realpath(TPSIM)):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return sorted(found)


def runs(pid):
    """Whether a process exists and is more than a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(listed, count):
    """What `listed` gives once it has `count` entries; a machine with other work is given its time."""
    begin = time.monotonic()
    while len(found := listed()) != count:
        assert time.monotonic() - begin < 30, found
        time.sleep(0.05)
    return found


def killed():
    """Whichever process dies: all end soon, and the report has what was finished."""
    for victim in (1, 2, 3):
        report = FOLDER / f"report-killed-{victim}"
        child = start(4, *computed("--tp", "2", "--page-size", "1,16,32,64", "--report-dir", report,
                                   requests=3000, tokens=400))  # far longer than this test
        processes = eventually(lambda: ranks_of(child.pid), 4)
        time.sleep(2)  # into the first settings
        os.kill(processes[victim], signal.SIGKILL)
        begin = time.monotonic()
        _, said = child.communicate(timeout=30)
        assert child.returncode != 0, said
        assert time.monotonic() - begin < 15, f"{time.monotonic() - begin:.1f} s"
        assert "internal error" not in said, said
        while any(map(runs, processes)):
            assert time.monotonic() - begin < 15, f"killed process {victim}: of {processes} somebody lives on"
            time.sleep(0.05)


def interrupted():
    for processes in (0, 4):
        report = FOLDER / f"report-{processes}"
        child = start(processes, *computed("--tp", "2", "--page-size", "1,16,32,64", "--report-dir", report,
                                           requests=3000, tokens=400))  # far longer than 3 s
        time.sleep(3)
        child.send_signal(signal.SIGUSR1 if processes else signal.SIGINT)
        _, said = child.communicate(timeout=30)
        assert child.returncode == 3, (child.returncode, said)
        assert json.loads((report / "report.json").read_text())["planned_runs"] == 4


def main():
    global TPSIM, MODELS, FOLDER
    TPSIM, MODELS, case = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
    with tempfile.TemporaryDirectory(prefix="tpsim-sweep-") as folder:
        FOLDER = pathlib.Path(folder)
        {f.__name__: f for f in (modeled, numeric, groups, refused, killed, interrupted)}[case]()


if __name__ == "__main__":
    main()
