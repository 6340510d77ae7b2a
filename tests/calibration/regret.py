#!/usr/bin/env python3
"""How good the setting is that predictions choose, of settings that were measured with the same model, GPU and load.

Usage: regret.py VALIDATION_JSON ...     of `tpsim validate --measurements … --report-dir D`

A group is of rows with one model, GPU, release of SGLang and closed load that differ in GPUs, in how these share the
model, in backend or in flags (weights of other formats and speculation are other questions). Ranked by requests/s of a GPU,
as settings that differ in GPUs are by `tpsim plan`; in a closed loop these are the concurrency over the mean latency, TTFT
+ TPOT x (answer - 1). Regret: how much less the chosen one was measured to serve than the best one was.
"""

import collections
import json
import re
import sys

TIE = 0.02  # of the higher one; validate's own kTie for measured pairs


def gpus(row):
    sizes = dict(re.findall(r"--(tp-size|pp-size) (\d+)", row["command"]))
    return int(sizes.get("tp-size", row["tp"])) * int(sizes.get("pp-size", 1))


def rate(row, which, each):
    answer = int(row["load"].split(":")[2])
    latency = row["ttft_ms"][which] + row["tpot_ms"][which] * (answer - 1)
    return 1 / latency / (gpus(row) if each else 1)


def question(row):
    """What rows of one group have in common; None: of a row that is left out."""
    formats = row["settings"].replace("--quantization ", "").split()
    if not row["load"].startswith("closed:") or "--speculative" in row["settings"] or "mtp" in formats:
        return None
    weights = [word for word in formats if word in ("fp4", "fp8")]
    release = re.search(r"--sglang-version (\S+)", row["command"])
    return row["model"], row["hardware"], row["load"].rsplit(":", 1)[0], release[1] if release else "", *weights


def name_of(row):
    return row.get("id") or row["server"]


def report(name, groups, each):
    first = three = tied = few = 0
    regrets = []
    for key, rows in groups.items():
        measured = [rate(row, "measured", each) for row in rows]
        predicted = [rate(row, "predicted", each) for row in rows]
        order = sorted(range(len(rows)), key=lambda i: -predicted[i])
        best, chosen = measured.index(max(measured)), order[0]
        regrets.append(1 - measured[chosen] / measured[best])
        first += chosen == best
        few += len(rows) <= 3
        three += best in order[:3]
        tied += regrets[-1] <= TIE or predicted[best] >= (1 - TIE) * predicted[chosen]
        if regrets[-1] > TIE:
            print(f"  regret {regrets[-1]:.1%}: {' '.join(key)}: {name_of(rows[chosen])} instead of {name_of(rows[best])}")
    if regrets:
        print(f"{name}: {len(regrets)} groups of {sum(map(len, groups.values()))} settings: the best is chosen in {first}, is "
              f"chosen or tied in {tied}, is among the first three in {three} ({few} have no more than three); regret {sum(regrets) / len(regrets):.2%} in the "
              f"mean, {max(regrets):.1%} at most")


def main():
    groups, same = collections.defaultdict(list), collections.defaultdict(list)
    known = set()
    for path in sys.argv[1:]:
        with open(path) as file:
            rows = json.load(file)["rows"]
        for row in rows:
            key = question(row)
            # The same measurement stands in the collection under several names.
            setting = (key, gpus(row), row["backend"], row["settings"], row.get("server"))
            seen = (key, row["ttft_ms"]["measured"], row["tpot_ms"]["measured"])
            if not key or seen in known or setting in known:
                continue
            known.update((seen, setting))
            groups[key].append(row)
            same[(*key, f"{gpus(row)} GPUs")].append(row)
    report("any number of GPUs", {key: rows for key, rows in groups.items() if len(rows) > 1}, each=True)
    report("as many GPUs", {key: rows for key, rows in same.items() if len(rows) > 1}, each=False)


if __name__ == "__main__":
    main()
