#!/usr/bin/env bash
# Fits the operator classes of every GPU and writes them into rank/catalogue/hardware/GPU.json.
# usage: fit_all_operators.sh FIT_OPERATORS KERNELS_FOLDER [PREFIX [GPU]]     PREFIX: of the classes to fit
set -euo pipefail
fit=$1 kernels=$2 prefix=${3:-} only=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
catalogue=$(cd "$here/../../rank/catalogue" && pwd)
while read -r gpu folder; do
  [[ -z $only || $gpu == "$only" ]] || continue
  "$fit" "$kernels" "$folder" "$catalogue/hardware/$gpu.json" $prefix > "/tmp/tpsim-fit-$gpu.json"
  python3 - "$catalogue/hardware/$gpu.json" "/tmp/tpsim-fit-$gpu.json" "$here" <<'PY'
import json,sys
sys.path.insert(0,sys.argv[3])
from catalogue_json import written
profile=json.load(open(sys.argv[1]))
def short(v): return float(f"{v:.4g}") if isinstance(v,float) else v
rows=[json.loads(line) for line in open(sys.argv[2])]
for r in rows:
    r["parameters"]={k:short(v) for k,v in sorted(r.get("parameters",{}).items()) if v}
    for k in list(r): r[k]=short(r[k])
fitted={r["operator_class"]: r for r in rows}
profile["efficiencies"]=[fitted.pop(r["operator_class"],r) for r in profile["efficiencies"]]+list(fitted.values())
open(sys.argv[1],"w").write(written(profile,sort_keys=False))
PY
done <<< "h200-sxm h200_sxm
h100-sxm h100_sxm
b200 b200_sxm
b300 b300_sxm
l40s l40s
a100-sxm a100_sxm
gb200 gb200
rtx-pro-6000 rtx_pro_6000_server"
# GPUs of the same chip that nobody measured.
while read -r gpu from; do
  python3 - "$catalogue/hardware/$gpu.json" "$catalogue/hardware/$from.json" "$from" "$here" <<'PY'
import json,sys
sys.path.insert(0,sys.argv[4])
from catalogue_json import written
profile=json.load(open(sys.argv[1]))
fitted={e["operator_class"]: e for e in json.load(open(sys.argv[2]))["efficiencies"]}
def carried(entry):
    other=fitted.get(entry["operator_class"])
    if other is None or other["source"].startswith("not measured on"): return entry
    if not entry.get("source","").startswith("not measured on"): return entry
    kept={k:v for k,v in other.items() if k not in ("median_error","p90_error")}
    told=other["source"].split("; the errors")[0]
    kept["source"]=f"not measured on {profile['name']}: carried over from {sys.argv[3]}, where it was fitted on {told}"
    return kept
here={e["operator_class"] for e in profile["efficiencies"]}
new=[{"operator_class":c,"source":"not measured on"} for c in fitted if c not in here]
profile["efficiencies"]=[carried(e) for e in profile["efficiencies"]+new]
open(sys.argv[1],"w").write(written(profile,sort_keys=False))
PY
done <<< "gb300 b300
gh200 h200-sxm"
