#!/usr/bin/env python3
"""How good the setting is that predictions choose, of settings that were measured with the same model, GPU and load.

Usage: regret.py [--aiconfigurator PYTHON] [--list] VALIDATION_JSON ...     of `tpsim validate --measurements … --report-dir D`

A group is of rows with one model, GPU, release of SGLang and closed load that differ in GPUs, in how these share the
model, in backend or in flags (weights of other formats and speculation are other questions). Ranked by requests/s of a GPU,
as settings that differ in GPUs are by `tpsim plan`; in a closed loop these are the concurrency over the mean latency, TTFT
+ TPOT x (answer - 1). Regret: how much less the chosen one was measured to serve than the best one was.

"TPOT within N ms": of rows that may differ in concurrency, too, the most requests/s of a GPU among those that hold the
level; one that was measured not to hold it serves nothing. Asked where some of the measured hold it and some do not.

PYTHON, which has `aiconfigurator` (pip install), is asked the same through ask_aiconfigurator.py; the table has both beside
each other for groups of which it answers every setting, and does not answer the same to all. The rest is counted by reason.
--list names what was chosen wrongly.
"""

import argparse
import collections
import json
import os
import re
import subprocess

TIE = 0.02  # of the higher one; validate's own kTie for measured pairs
LEVELS = (10, 15, 20, 30, 50)  # ms
SYSTEMS = {"h100-sxm": "h100_sxm", "h200-sxm": "h200_sxm", "b200": "b200_sxm", "b300": "b300_sxm"}
TOLD = ("--quantization", "--dp-size", "--enable-dp-attention")  # flags in a row's settings that AIConfigurator has, too


def of_command(row, flag, default=1):
    found = re.search(rf"--{flag} (\S+)", row["command"])
    return type(default)(found[1]) if found else default


def gpus(row):
    replicas = 1 if "--enable-dp-attention" in row["command"] else of_command(row, "dp-size")
    return of_command(row, "tp-size", row["tp"]) * of_command(row, "pp-size") * replicas


def rate(row, which, each):
    _, _, answer, concurrency = row["load"].split(":")[:4]
    latency = row["ttft_ms"][which] + row["tpot_ms"][which] * (int(answer) - 1)
    return int(concurrency) / latency / (gpus(row) if each else 1)


def weights(row):
    return [word for word in row["settings"].replace("--quantization ", "").split() if word in ("fp4", "fp8")]


def question(row):
    """What rows of one group have in common; None: of a row that is left out."""
    if not row["load"].startswith("closed:") or "--speculative" in row["settings"] or "mtp" in row["settings"].split():
        return None
    load = row["load"].rsplit(":", 1)[0]
    return row["model"], row["hardware"], load, of_command(row, "sglang-version", ""), *weights(row)


def name_of(row):
    return row.get("id") or row["server"]


def ask_aiconfigurator(python, rows):
    """Its figures beside the predicted ones, or row["reason"]."""
    asked, lines = [], []
    for row in rows:
        flags = [word for word in re.findall(r"--[a-z-]+", row["settings"]) if word not in TOLD]
        if flags:
            row["reason"] = f"it has no {flags[0]}"
            continue
        _, prompt, answer, concurrency = row["load"].split(":")[:4]
        asked.append(row)
        lines.append(json.dumps({
            "model": row["model"], "system": SYSTEMS.get(row["hardware"], row["hardware"]), "isl": int(prompt),
            "osl": int(answer), "concurrency": int(concurrency), "tp_size": of_command(row, "tp-size", row["tp"]),
            "pp_size": of_command(row, "pp-size"), "ep_size": of_command(row, "ep-size"),
            "attention_dp_size": of_command(row, "dp-size"), "weights": "".join(weights(row)),
            "kv": "fp8" if "fp8" in of_command(row, "kv-cache-dtype", "") else "", "attention_backend": row["backend"]}))
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ask_aiconfigurator.py")
    done = subprocess.run([python, script], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, check=True, text=True)
    for row, line in zip(asked, done.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        row.update(answer if "reason" in answer else {})
        for figure in ("ttft_ms", "tpot_ms"):
            row[figure]["aiconfigurator"] = answer.get(figure)


def scores(rows, which, each, level):
    """Of each row: the higher, the better; a row beyond the level is none that would be taken for its rate."""
    held = [level is None or row["tpot_ms"][which] <= level for row in rows]
    return [rate(row, which, each) if holds else -row["tpot_ms"][which] for row, holds in zip(rows, held)]


def report(name, who, which, groups, each):
    """A line of the table for `groups`, of (key, level or None, rows)."""
    first = three = tied = few = 0
    regrets, lines = [], []
    for key, level, rows in groups:
        measured = scores(rows, "measured", each, level)
        predicted = scores(rows, which, each, level)
        order = sorted(range(len(rows)), key=lambda i: -predicted[i])
        best, chosen = measured.index(max(measured)), order[0]
        regrets.append(1 - max(measured[chosen], 0) / measured[best])
        first += chosen == best
        few += len(rows) <= 3
        three += best in order[:3]
        tied += regrets[-1] <= TIE or predicted[best] >= (1 - TIE) * predicted[chosen] > 0
        if regrets[-1] > TIE:
            within = f", TPOT within {level} ms" if level else ""
            lines.append(f"  {who}: regret {regrets[-1]:.1%}: {' '.join(key)}{within}: {name_of(rows[chosen])} instead of "
                         f"{name_of(rows[best])}")
    if regrets:
        print(f"{name:24}{who:16}{len(regrets):6}{sum(len(rows) for _, _, rows in groups):10}{first:7}{tied:9}{three:9}"
              f"{few:7}{sum(regrets) / len(regrets):9.2%}{max(regrets):9.1%}")
    return lines


def levelled(groups):
    """Of groups whose rows may differ in concurrency: each with the levels that tell its rows apart."""
    for key, _, rows in groups:
        for level in LEVELS:
            if 0 < sum(row["tpot_ms"]["measured"] <= level for row in rows) < len(rows):
                yield key, level, rows


def grouped(rows, key_of):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[key_of(row)].append(row)
    return [(key, None, rows) for key, rows in groups.items() if len(rows) > 1]


def distinct(paths):
    known = set()
    for path in paths:
        with open(path) as file:
            rows = json.load(file)["rows"]
        for row in rows:
            key = question(row)
            if not key:
                continue
            # The same measurement stands in the collection under several names, and servers of ours were started twice.
            server = re.sub(r"-(again|second|p\d?)$", "", row.get("server") or "")
            setting = (key, gpus(row), row["backend"], row["settings"], server)
            seen = (key, row["ttft_ms"]["measured"], row["tpot_ms"]["measured"])
            if seen in known or setting in known:
                continue
            known.update((seen, setting))
            yield row


def tables(rows):
    def any_load(row):
        model, gpu, load, *others = question(row)
        return model, gpu, load.rsplit(":", 1)[0], *others

    return (("any number of GPUs", grouped(rows, question), True),
            ("as many GPUs", grouped(rows, lambda row: (*question(row), f"{gpus(row)} GPUs")), False),
            ("TPOT within N ms", list(levelled(grouped(rows, any_load))), True))


def why_not(rows):
    """Why AIConfigurator has no choice among `rows`, or nothing."""
    reasons = [row["reason"] for row in rows if "reason" in row]
    if reasons:
        return reasons[0]
    answers = {(row["ttft_ms"]["aiconfigurator"], row["tpot_ms"]["aiconfigurator"]) for row in rows}
    return "" if len(answers) > 1 else "it answers the same to all"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--aiconfigurator", metavar="PYTHON")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("validations", nargs="+")
    args = parser.parse_args()
    rows = list(distinct(args.validations))
    if args.aiconfigurator:
        ask_aiconfigurator(args.aiconfigurator, rows)
    print(f"{'question':24}{'answered by':16}groups  settings   best  or tied  first 3   of ≤3   regret  at most")
    wrong, reasons = [], collections.Counter()
    for name, groups, each in tables(rows):
        wrong += report(name, "tpsim", "predicted", groups, each)
        if args.aiconfigurator:
            both = [group for group in groups if not why_not(group[2])]
            report("  of these", "tpsim", "predicted", both, each)
            wrong += report("", "AIConfigurator", "aiconfigurator", both, each)
            reasons += collections.Counter((name, why) for why in map(why_not, (group[2] for group in groups)) if why)
    for (name, why), count in reasons.most_common():
        print(f"AIConfigurator has no choice in {count} of {name}: {why}")
    if args.list:
        print(*wrong, sep="\n")


if __name__ == "__main__":
    main()
