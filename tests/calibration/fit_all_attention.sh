#!/usr/bin/env bash
# Fits every attention coefficient that there are measurements for, and writes rank/catalogue/attention/BACKEND.json.
# What was not measured on a GPU gets the efficiencies of the H200 with median_error 0, and its source says so.
# usage: fit_all_attention.sh FIT_ATTENTION KERNELS_FOLDER
set -euo pipefail
fit=$1 kernels=$2
here=$(cd "$(dirname "$0")" && pwd)
catalogue=$here/../../rank/catalogue
own=$here/measured/h200-sxm_attention.csv
h200=$(mktemp)  # what the H200's fits start from: a flat list
trap 'rm -f "$h200"' EXIT
finish() { # GPU BACKENDS-TO-CARRY…: JSON lines in; replaces this GPU's entries of each backend's file
  python3 -c 'import json,os,sys
folder,h200,gpu,*carried=sys.argv[1:]
rows=[json.loads(line) for line in sys.stdin]
if gpu == "h200-sxm": json.dump(rows,open(h200,"w"))
for backend in carried:
    for r in json.load(open(h200)):
        if r["operator_class"].startswith("attention."+backend+"."):
            rows.append({**r,"median_error":0,"source":"uncalibrated on "+gpu+": efficiencies of h200-sxm, fitted on "+r["source"]})
def short(v): return float(f"{v:.4g}") if isinstance(v,float) else v
for r in rows:
    r["parameters"]={k:short(v) for k,v in sorted(r["parameters"].items())}
    for k in list(r): r[k]=short(r[k])
for backend in sorted({r["operator_class"].split(".")[1] for r in rows}):
    path=folder+"/"+backend+".json"
    gpus=json.load(open(path)) if os.path.exists(path) else {}
    # What was fitted on servers, not on kernels, stays (`tpsim validate`).
    for r in rows:
        for old in gpus.get(gpu, gpus.get("h200-sxm", [])):
            if old["operator_class"]!=r["operator_class"]: continue
            for k in ("launch_seconds","shape_seconds"):
                if k in old["parameters"]: r["parameters"][k]=old["parameters"][k]
    gpus[gpu]=[r for r in rows if r["operator_class"].split(".")[1]==backend]
    open(path,"w").write(json.dumps(gpus,indent=2,sort_keys=True)+"\n")' "$catalogue/attention" "$h200" "$@"
}
one() { # GPU BACKEND …
  local gpu=$1 backend=$2
  shift 2
  "$fit" "$catalogue/hardware/$gpu.json" "$backend" "$@"
}
{
  one h200-sxm fa3 --table "$kernels/h200_sxm" fa3
  one h200-sxm flashinfer --own "$own"
  one h200-sxm triton --table "$kernels/h200_sxm" triton --own "$own"
  one h200-sxm torch_native --own "$own"
} | finish h200-sxm
{
  one h100-sxm fa3 --table "$kernels/h100_sxm" fa3
  one h100-sxm triton --table "$kernels/h100_sxm" triton --start "$h200"
} | finish h100-sxm flashinfer torch_native
blackwell() { # GPU FOLDER
  {
    one "$1" trtllm_mha --table "$kernels/$2" trtllm_mha
    one "$1" flashinfer --table "$kernels/$2" flashinfer
    one "$1" triton --table "$kernels/$2" triton --start "$h200"
  } | finish "$1" torch_native
}
blackwell b200 b200_sxm
blackwell gb200 gb200
without_hbm() { # GPU FOLDER
  {
    one "$1" flashinfer --table "$kernels/$2" flashinfer
    one "$1" triton --table "$kernels/$2" triton --start "$h200"
  } | finish "$1" torch_native
}
without_hbm l40s l40s
without_hbm rtx-pro-6000 rtx_pro_6000_server
# SGLang's A100 rows name flash_attention, the FlashAttention-2 kernel; FlashInfer's fa2 template is the same
# design, and it is what SGLang runs on Ampere by default.
one a100-sxm flashinfer --table "$kernels/a100_sxm" flash_attention | finish a100-sxm triton torch_native
# GPUs that nobody measured get the efficiencies of their nearest relative.
python3 - "$catalogue/attention" <<'P'
import glob, json, sys
RELATIVES = {"h100-pcie": "h100-sxm", "h20": "h200-sxm", "gh200": "h200-sxm", "b300": "b200", "a100-pcie": "a100-sxm",
             "a10": "a100-sxm", "l4": "l40s", "rtx-4090": "l40s"}
BACKENDS = {"fa3", "flashinfer", "triton", "torch_native", "trtllm_mha"}
for path in glob.glob(sys.argv[1] + "/*.json"):
    gpus = json.load(open(path))
    for gpu, relative in RELATIVES.items():
        for r in gpus.get(relative, []):
            if r["operator_class"].split(".")[1] not in BACKENDS: continue
            source = r["source"].split(": efficiencies of ", 1)
            origin = "efficiencies of " + (source[1] if len(source) > 1 else f"{relative}, fitted on {r['source']}")
            r = {**r, "median_error": 0, "source": f"uncalibrated on {gpu}: {origin}"}
            gpus[gpu] = [o for o in gpus.get(gpu, []) if o["operator_class"] != r["operator_class"]] + [r]
    open(path, "w").write(json.dumps(gpus, indent=2, sort_keys=True) + "\n")
P
