#!/usr/bin/env bash
# Fits every attention class that there are measurements for, coefficients and corrections, and writes
# rank/catalogue/attention/BACKEND.json. The searches begin at what stands there. What was not measured on a GPU gets
# the efficiencies of the H200 with no errors, and its source says so.
# usage: fit_all_attention.sh FIT_ATTENTION KERNELS_FOLDER [GPU…]
set -euo pipefail
fit=$1 kernels=$2
shift 2
only=" $* "
here=$(cd "$(dirname "$0")" && pwd)
catalogue=$here/../../rank/catalogue
own=$here/measured/h200-sxm_attention.csv ragged=$here/measured/h200-sxm_ragged.csv
export PYTHONPATH=$here
start=$(mktemp)
trap 'rm -f "$start"' EXIT
wanted() { [[ $only == "  " || $only == *" $1 "* ]]; }
entries() { # GPU: those of all backends, as a flat list; what a cached token costs, and other heads and windows than
  # the tables have, was measured on the H200 only: the first holds anywhere, the others where kernels are the same
  python3 -c 'import glob,json,sys
folder,gpu=sys.argv[1:]
rows=[]
for path in glob.glob(folder+"/*.json"):
    gpus=json.load(open(path))
    told=["cached"]+["cached_64","block_compute_64","window_64","fresh_256"]*gpu.startswith("h100")
    h200={r["operator_class"]: r["parameters"] for r in gpus.get("h200-sxm",[])}
    for r in gpus.get(gpu,[]):
        own=h200.get(r["operator_class"],{})
        if r["operator_class"].endswith(".extend"): r["parameters"].update({k: own[k] for k in told if k in own})
        rows.append(r)
json.dump(rows,sys.stdout)' "$catalogue/attention" "$1"
}
finish() { # GPU BACKENDS-TO-CARRY…: JSON lines in; replaces these classes of this GPU
  python3 -c 'import json,os,sys
from catalogue_json import written
folder,gpu,*carried=sys.argv[1:]
rows=[json.loads(line) for line in sys.stdin]
for backend in carried:
    for r in json.load(open(folder+"/"+backend+".json"))["h200-sxm"]:
        if r["operator_class"] not in ["attention."+backend+"."+phase for phase in ("extend","decode","paged.extend")]: continue
        rows.append({**r,"median_error":0,"p90_error":0,"source":"uncalibrated on "+gpu+": efficiencies of h200-sxm, fitted on "+r["source"]})
def short(v): return float(f"{v:.4g}") if isinstance(v,float) else v
for r in rows:
    r["parameters"]={k:short(v) for k,v in sorted(r.get("parameters",{}).items())}
    for k in list(r): r[k]=short(r[k])
    for surface in r.get("corrections",[]):
        for axis in surface["axes"]: axis["points"]=[short(v) for v in axis["points"]]
for backend in sorted({r["operator_class"].split(".")[1] for r in rows}):
    path=folder+"/"+backend+".json"
    gpus=json.load(open(path)) if os.path.exists(path) else {}
    old=gpus.get(gpu,[])
    new={r["operator_class"]:r for r in rows if r["operator_class"].split(".")[1]==backend}
    # What was fitted on servers, not on kernels, stays (`tpsim validate`).
    for o in old or gpus.get("h200-sxm",[]):
        r=new.get(o["operator_class"])
        if r is not None:
            for k in ("launch_seconds","shape_seconds"):
                if k in o["parameters"]: r["parameters"][k]=o["parameters"][k]
    gpus[gpu]=[o for o in old if o["operator_class"] not in new]+list(new.values())
    gpus[gpu].sort(key=lambda r: r["operator_class"])
    open(path,"w").write(written(gpus,True))' "$catalogue/attention" "$@"
}
one() { # GPU BACKEND …
  local gpu=$1 backend=$2
  shift 2
  "$fit" "$catalogue/hardware/$gpu.json" "$backend" --start "$start" "$@"
}
table() { echo --table "$kernels/$1" "$2"; }
h200-sxm() {
  one h200-sxm fa3 $(table h200_sxm fa3) --ragged "$ragged"
  one h200-sxm flashinfer --own "$own" --ragged "$ragged"
  one h200-sxm flashinfer --ragged "$ragged" --kernel paged --phase extend
  one h200-sxm triton $(table h200_sxm triton) --own "$own" --ragged "$ragged"
  # Its rows of equal lengths had 64-bit tables of tokens; SGLang's are of 32 bit, which PyTorch widens first, once for
  # keys and once for values of every request, as in the ragged rows.
  one h200-sxm torch_native --ragged "$ragged"
}
h100-sxm() {
  one h100-sxm fa3 $(table h100_sxm fa3)
  one h100-sxm triton $(table h100_sxm triton)
}
blackwell() { # GPU FOLDER
  one "$1" trtllm_mha $(table "$2" trtllm_mha)
  one "$1" flashinfer $(table "$2" flashinfer)
  one "$1" triton $(table "$2" triton)
}
b200() { blackwell b200 b200_sxm; }
b300() { blackwell b300 b300_sxm; }
gb200() { blackwell gb200 gb200; }
without_hbm() { # GPU FOLDER
  one "$1" flashinfer $(table "$2" flashinfer)
  one "$1" triton $(table "$2" triton)
}
l40s() { without_hbm l40s l40s; }
rtx-pro-6000() { without_hbm rtx-pro-6000 rtx_pro_6000_server; }
# SGLang's A100 rows name flash_attention, the FlashAttention-2 kernel; FlashInfer's fa2 template is the same
# design, and it is what SGLang runs on Ampere by default.
a100-sxm() { one a100-sxm flashinfer $(table a100_sxm flash_attention); }
declare -A carried=([h200-sxm]="" [h100-sxm]="flashinfer torch_native" [b200]=torch_native [b300]=torch_native [gb200]=torch_native
  [l40s]=torch_native [rtx-pro-6000]=torch_native [a100-sxm]="triton torch_native")
for gpu in h200-sxm h100-sxm b200 b300 gb200 l40s rtx-pro-6000 a100-sxm; do
  wanted $gpu || continue
  entries $gpu > "$start"
  $gpu | finish $gpu ${carried[$gpu]}
done
# GPUs that nobody measured get the efficiencies of their nearest relative.
python3 - "$catalogue/attention" <<'P'
import glob, json, sys
from catalogue_json import written
RELATIVES = {"h100-pcie": "h100-sxm", "h20": "h200-sxm", "gh200": "h200-sxm", "a100-pcie": "a100-sxm",
             "a10": "a100-sxm", "l4": "l40s", "rtx-4090": "l40s"}
BACKENDS = {"fa3", "flashinfer", "triton", "torch_native", "trtllm_mha"}
for path in glob.glob(sys.argv[1] + "/*.json"):
    gpus = json.load(open(path))
    for gpu, relative in RELATIVES.items():
        for r in gpus.get(relative, []):
            if r["operator_class"].split(".")[1] not in BACKENDS: continue
            source = r["source"].split(": efficiencies of ", 1)
            origin = "efficiencies of " + (source[1] if len(source) > 1 else f"{relative}, fitted on {r['source']}")
            r = {**r, "median_error": 0, "p90_error": 0, "source": f"uncalibrated on {gpu}: {origin}"}
            gpus[gpu] = [o for o in gpus.get(gpu, []) if o["operator_class"] != r["operator_class"]] + [r]
    open(path, "w").write(written(gpus, True))
P
