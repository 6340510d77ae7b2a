#!/usr/bin/env bash
# Fits the operator classes of every GPU and writes them into rank/catalogue/hardware/GPU.json.
# usage: fit_all_operators.sh FIT_OPERATORS KERNELS_FOLDER [PREFIX]     PREFIX: of the classes to fit
set -euo pipefail
fit=$1 kernels=$2 prefix=${3:-}
catalogue=$(cd "$(dirname "$0")/../../rank/catalogue" && pwd)
while read -r gpu folder; do
  [[ -f $catalogue/hardware/$gpu.json ]] || continue
  "$fit" "$kernels" "$folder" "$catalogue/hardware/$gpu.json" $prefix > "/tmp/tpsim-fit-$gpu.json"
  python3 - "$catalogue/hardware/$gpu.json" "/tmp/tpsim-fit-$gpu.json" <<'PY'
import json,sys
profile=json.load(open(sys.argv[1]))
def short(v): return float(f"{v:.4g}") if isinstance(v,float) else v
rows=[json.loads(line) for line in open(sys.argv[2])]
for r in rows:
    r["parameters"]={k:short(v) for k,v in sorted(r["parameters"].items()) if v}
    for k in list(r): r[k]=short(r[k])
fitted={r["operator_class"]: r for r in rows}
profile["efficiencies"]=[fitted.pop(r["operator_class"],r) for r in profile["efficiencies"]]+list(fitted.values())
json.dump(profile,open(sys.argv[1],"w"),indent=2)
open(sys.argv[1],"a").write("\n")
PY
done <<< "h200-sxm h200_sxm
h100-sxm h100_sxm
b200 b200_sxm
l40s l40s
a100-sxm a100_sxm
gb200 gb200
rtx-pro-6000 rtx_pro_6000_server"
