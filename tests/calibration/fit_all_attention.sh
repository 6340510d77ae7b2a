#!/usr/bin/env bash
# Fits every attention coefficient that shared/data has measurements for, and writes
# rank/catalogue/attention/GPU.json.  usage: fit_all_attention.sh FIT_ATTENTION KERNELS_FOLDER
set -euo pipefail
fit=$1 kernels=$2
catalogue=$(cd "$(dirname "$0")/../../rank/catalogue" && pwd)
one() { # GPU TABLE_FOLDER BACKEND SOURCE
  "$fit" "$kernels" "$2" "$catalogue/hardware/$1.json" "$3" "$4"
}
gpu() { # GPU: reads "TABLE_FOLDER BACKEND SOURCE" lines
  while read -r folder backend source; do one "$1" "$folder" "$backend" "$source"; done |
    python3 -c 'import json,sys
rows=[json.loads(line) for line in sys.stdin]
def short(v): return float(f"{v:.4g}") if isinstance(v,float) else v
for r in rows:
    r["parameters"]={k:short(v) for k,v in sorted(r["parameters"].items())}
    for k in list(r): r[k]=short(r[k])
path=sys.argv[1]
fitted={r["operator_class"] for r in rows}
rows+=[r for r in json.load(open(path)) if r["operator_class"] not in fitted]  # measured by ourselves
json.dump(rows,open(path,"w"),indent=2,sort_keys=True); open(path,"a").write("\n")' "$catalogue/attention/$1.json"
}
gpu h200-sxm <<< "h200_sxm fa3 fa3
h200_sxm triton triton"
gpu h100-sxm <<< "h100_sxm fa3 fa3
h100_sxm triton triton"
gpu b200 <<< "b200_sxm flashinfer flashinfer
b200_sxm triton triton"
gpu l40s <<< "l40s flashinfer flashinfer
l40s triton triton"
# SGLang's A100 rows name flash_attention, the FlashAttention-2 kernel; FlashInfer's fa2 template is the same
# design, and it is what SGLang runs on Ampere by default.
gpu a100-sxm <<< "a100_sxm flashinfer flash_attention"
