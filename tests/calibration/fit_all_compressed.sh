#!/usr/bin/env bash
# Fits DeepSeek V4's attention and hyper-connections, or MiniMax M3's attention, on every GPU that there are
# measurements for, and writes rank/catalogue/attention/dsv4.json or msa.json. A GB300 has a B300's chip, and its figures. On RTX PRO 6000s SGLang 0.5.14 ran
# all of it in plain PyTorch, for which 0.5.23 has kernels: those rows say nothing.
# usage: fit_all_compressed.sh FIT_COMPRESSED KERNELS_FOLDER dsv4|msa
set -euo pipefail
fit=$1 kernels=$2 model=$3
here=$(cd "$(dirname "$0")" && pwd)
hardware=$here/../../rank/catalogue/hardware
for pair in h200-sxm:h200_sxm h100-sxm:h100_sxm b200:b200_sxm b300:b300_sxm gb200:gb200 gb300:b300_sxm; do
  "$fit" "$model" "$hardware/${pair%:*}.json" "$kernels/${pair#*:}" | sed "s/^/${pair%:*} /"
done | PYTHONPATH="$here" python3 -c 'import json,sys
from catalogue_json import written
def short(v):
    if isinstance(v, float): return float(f"{v:.4g}")
    if isinstance(v, dict): return {k: short(x) for k, x in sorted(v.items())}
    return [short(x) for x in v] if isinstance(v, list) else v
gpus = {}
for line in sys.stdin:
    gpu, text = line.split(" ", 1)
    gpus.setdefault(gpu, []).append(short(json.loads(text)))
open(sys.argv[1], "w").write(written(gpus, sort_keys=True))' "$here/../../rank/catalogue/attention/$model.json"
