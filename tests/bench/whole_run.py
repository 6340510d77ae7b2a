#!/usr/bin/env python3
"""Wall time, CPU time and peak memory of whole tpsim runs.

usage: whole_run.py TPSIM TRACE [TPSIM_FLAG ...]

Runs `tpsim run --tp 8` on TRACE in one process and under mpirun with 2, 4 and 8, three times each, prints the
best of each, and checks that report.json is byte for byte the same in all of them. Peak memory is the largest
of any one process (VmHWM, sampled), so mpirun's own is not mixed in.
"""
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time


def peak_of_children(pid, name, peak, stop):
    while not stop.is_set():
        todo = [pid]
        while todo:
            current = todo.pop()
            try:
                with open(f"/proc/{current}/task/{current}/children") as f:
                    todo += [int(c) for c in f.read().split()]
                with open(f"/proc/{current}/status") as f:
                    status = dict(line.split(":", 1) for line in f if ":" in line)
                if status["Name"].strip() == name:
                    peak[0] = max(peak[0], int(status["VmHWM"].split()[0]))
            except (OSError, KeyError):
                continue
        time.sleep(0.01)


def run(command, name):
    peak, stop = [0], threading.Event()
    start = time.monotonic()
    before = os.times()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    watcher = threading.Thread(target=peak_of_children, args=(process.pid, name, peak, stop))
    watcher.start()
    code = process.wait()
    after = os.times()
    wall = time.monotonic() - start
    stop.set()
    watcher.join()
    if code != 0:
        sys.exit(f"{' '.join(command)} exited with {code}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, peak[0] / 1024


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    tpsim, trace, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
    digests = set()
    print(f"{'processes':>9} {'wall s':>8} {'CPU s':>8} {'peak MB/process':>16}")
    for processes in (1, 2, 4, 8):
        best = None
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                command = [tpsim, "run", "--tp", "8", "--trace", trace, "--report-dir", folder, "--quiet", *flags]
                if processes > 1:
                    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(processes), *command]
                result = run(command, os.path.basename(tpsim))
                with open(os.path.join(folder, "report.json"), "rb") as f:
                    digests.add(hashlib.sha256(f.read()).hexdigest())
            best = result if best is None else tuple(map(min, zip(best, result)))
        print(f"{processes:>9} {best[0]:>8.2f} {best[1]:>8.2f} {best[2]:>16.0f}", flush=True)
    print("report.json:", "identical in all runs" if len(digests) == 1 else f"{len(digests)} DIFFERENT versions")
    sys.exit(len(digests) != 1)


if __name__ == "__main__":
    main()
