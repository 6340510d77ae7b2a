#!/usr/bin/env python3
"""Copies into a folder of examples those of a fuzzer's inputs that reach code which nothing there reaches: few of them, each
with some new edges, the most first.

Usage: keep_examples.py FUZZER EXAMPLES FOUND...; FUZZER is a libFuzzer program, FOUND are folders of its inputs.
"""

import os
import shutil
import subprocess
import sys
import tempfile

LEAST = 3  # new edges that an example must reach


def reached(fuzzer, folders):
    """{path: edges that it reaches}, by the control file of libFuzzer's merge."""
    with tempfile.TemporaryDirectory() as scratch:
        control = os.path.join(scratch, "control")
        merged = os.path.join(scratch, "merged")
        os.mkdir(merged)
        subprocess.run([fuzzer, "-set_cover_merge=1", "-use_counters=0", f"-merge_control_file={control}", merged, *folders],
                       check=True, capture_output=True)
        with open(control) as file:
            lines = file.read().splitlines()
    paths = lines[2:2 + int(lines[0])]
    edges = {}
    for line in lines[2 + len(paths):]:
        word, number, *found = line.split()
        if word == "FT":
            edges[paths[int(number)]] = frozenset(found)
    return edges


def main():
    fuzzer, examples, *found = sys.argv[1:]
    edges = reached(fuzzer, [examples, *found])
    known = set()
    for path in [path for path in edges if os.path.dirname(path) == examples.rstrip("/")]:
        known |= edges.pop(path)
    kept = 0
    while edges:
        best = max(edges, key=lambda path: (len(edges[path] - known), path))
        if len(edges[best] - known) < LEAST:
            break
        known |= edges.pop(best)
        shutil.copy(best, os.path.join(examples, "found-" + os.path.basename(best)[:12]))
        kept += 1
    print(f"{examples}: {kept} examples more")


if __name__ == "__main__":
    main()
