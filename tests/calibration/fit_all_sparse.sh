#!/usr/bin/env bash
# Fits the coefficients of sparse attention on every GPU that there are measurements for, and writes
# rank/catalogue/attention/nsa.json.
# usage: fit_all_sparse.sh FIT_SPARSE KERNELS_FOLDER
set -euo pipefail
fit=$1 kernels=$2
here=$(cd "$(dirname "$0")" && pwd)
hardware=$here/../../rank/catalogue/hardware
for pair in h200-sxm:h200_sxm h100-sxm:h100_sxm b200:b200_sxm b300:b300_sxm gb200:gb200; do
  "$fit" "$hardware/${pair%:*}.json" "$kernels/${pair#*:}" | sed "s/^/${pair%:*} /"
done | PYTHONPATH="$here" python3 -c 'import json,sys
from catalogue_json import written
USED = {"block_compute", "block_seconds", "l2_memory", "overlap", "select_seconds", "select_token_seconds"}
short = lambda v: float(f"{v:.4g}") if isinstance(v, float) else v
gpus = {}
for line in sys.stdin:
    gpu, text = line.split(" ", 1)
    row = json.loads(text)
    row["parameters"] = {k: short(v) for k, v in sorted(row["parameters"].items()) if k in USED}
    for axis in (a for c in row.get("corrections", []) for a in c["axes"]):
        axis["points"] = [short(p) for p in axis["points"]]
    gpus.setdefault(gpu, []).append({k: short(v) for k, v in row.items()})
open(sys.argv[1], "w").write(written(gpus, sort_keys=True))' "$here/../../rank/catalogue/attention/nsa.json"
