#!/usr/bin/env python3
"""The error of each measured server with its loads left out of the fit of the profile's host constants.

Predictions respond to a constant as they do to 10 % more of it, which `tpsim validate` tells; with these responses the
constants are fitted again (least absolute errors of the logarithms of TPOT, TTFT and duration, each server counting as
much as any other; pulled weakly to where they are, or what no row feels would wander), once to all servers and once
without each, and the loads of that server predicted by what the others say. Responses are taken to be proportional: right
for constants that move by some ten percent, as they do.

Usage: leave_one_out.py TPSIM [MEASUREMENTS]   (default ../shared/data/serving/requests.csv.gz beside the repository)
Needs numpy. The measurements' servers must not name their GPU: --hardware says it.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GPU = "h200-sxm"
CONSTANTS = ("kernel_launch_seconds", "piecewise_layer_seconds", "graph_replay_seconds", "graph_kernel_gap_seconds",
             "scheduler_step_seconds")
FIGURES = ("tpot_ms", "ttft_ms", "duration_s")
STEP = 1.1
PULL = 0.005  # of a constant's factor e, as so much error of one server's figure


def profile():
    with open(os.path.join(ROOT, "rank/catalogue/hardware", GPU + ".json")) as stream:
        whole = json.load(stream)
    folder = os.path.join(ROOT, "rank/catalogue/attention")
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name)) as stream:
            whole["efficiencies"] += json.load(stream).get(GPU, [])
    return whole


def validate(tpsim, measurements, hardware, folder):
    path = os.path.join(folder, "profile.json")
    with open(path, "w") as stream:
        json.dump(hardware, stream)
    subprocess.run([tpsim, "validate", "--measurements", measurements, "--hardware", path, "--report-dir", folder,
                    "--quiet"], check=True)
    with open(os.path.join(folder, "validation.json")) as stream:
        rows = json.load(stream)["rows"]
    keys = [(row["server"], figure) for row in rows for figure in FIGURES if figure in row]
    ratios = [row[figure]["predicted"] / row[figure]["measured"] for row in rows for figure in FIGURES if figure in row]
    return keys, numpy.log(ratios)


def fit(responses, errors, weights):
    """The logarithms of the constants' factors that make errors + responses @ factors least."""
    factors = numpy.zeros(responses.shape[1])
    for _ in range(60):  # least absolute errors, by least squares weighted again and again
        left = errors + responses @ factors
        scale = numpy.sqrt(weights / numpy.maximum(numpy.abs(left), 0.003))
        pull = PULL * numpy.eye(len(factors)) / numpy.sqrt(0.003)
        factors = numpy.linalg.lstsq(numpy.vstack([responses * scale[:, None], pull]),
                                     numpy.concatenate([-errors * scale, numpy.zeros(len(factors))]), rcond=None)[0]
    return factors


def main(tpsim, measurements):
    with tempfile.TemporaryDirectory() as folder:
        keys, errors = validate(tpsim, measurements, profile(), folder)
        responses = []
        for constant in CONSTANTS:
            more = profile()
            more[constant] *= STEP
            responses.append((validate(tpsim, measurements, more, folder)[1] - errors) / numpy.log(STEP))
    responses = numpy.array(responses).T
    servers = list(dict.fromkeys(server for server, _ in keys))
    of = {server: numpy.array([key[0] == server for key in keys]) for server in servers}
    weights = numpy.zeros(len(keys))
    for server in servers:
        weights[of[server]] = 1 / of[server].sum()
    fitted = fit(responses, errors, weights)

    def mean_error(which, factors):
        return 100 * numpy.abs(numpy.exp(errors[which] + responses[which] @ factors) - 1).mean()

    print("constants, fitted to all servers over the catalogue's: " +
          ", ".join(f"{name} {numpy.exp(f):.2f}" for name, f in zip(CONSTANTS, fitted)))
    head = "mean error, %: as in the catalogue / fitted to all / fitted to the other servers"
    print(f"{head:<82}{'TPOT':>20}{'TTFT':>20}{'duration':>20}   factors without it")
    totals = {figure: [[], [], []] for figure in FIGURES}
    for server in servers:
        others = fit(responses[~of[server]], errors[~of[server]], weights[~of[server]])
        cells = []
        for figure in FIGURES:
            which = of[server] & numpy.array([key[1] == figure for key in keys])
            three = [mean_error(which, factors) for factors in (numpy.zeros(len(CONSTANTS)), fitted, others)]
            for total, error in zip(totals[figure], three):
                total += [error] * which.sum()
            cells.append(" / ".join(f"{error:.1f}" for error in three))
        print(f"{server:<82}" + "".join(f"{cell:>20}" for cell in cells) + "   " +
              " ".join(f"{numpy.exp(f):.2f}" for f in others))
    print(f"{'all loads':<82}" + "".join(
        f"{' / '.join(f'{numpy.mean(total):.1f}' for total in totals[figure]):>20}" for figure in FIGURES))


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else
         os.path.join(os.path.dirname(ROOT), "shared/data/serving/requests.csv.gz"))
