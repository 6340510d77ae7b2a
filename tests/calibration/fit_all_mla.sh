#!/usr/bin/env bash
# Fits every MLA coefficient that there are measurements for, and writes rank/catalogue/attention/BACKEND.json (kernels)
# and rank/catalogue/hardware/GPU.json (batched products).
# Run it after fit_all_attention.sh, which writes BACKEND.json anew.
# What was not measured on a GPU gets the efficiencies of another with median_error 0, and its source says so.
# usage: fit_all_mla.sh FIT_MLA FIT_MLA_BMM KERNELS_FOLDER
set -euo pipefail
fit=$1 bmm=$2 kernels=$3
here=$(cd "$(dirname "$0")" && pwd)
catalogue=$here/../../rank/catalogue
own=$here/measured/h200-sxm_mla.csv
ragged=$here/measured/h200-sxm_ragged_mla.csv
enter() { # GPU [FROM-GPU CLASS…]: JSON lines in; each replaces that GPU's entry of its class in BACKEND.json
  python3 -c 'import json,os,sys
sys.path.insert(0,sys.argv[1]+"/../../tests/calibration")
from catalogue_json import written
folder,gpu,*carried=sys.argv[1:]
def short(v): return float(f"{v:.4g}") if isinstance(v,float) else v
def path(row): return folder+"/attention/"+row["operator_class"].split(".")[1]+".json"
rows=[json.loads(line) for line in sys.stdin]
for name in carried[1:]:
    for r in json.load(open(path({"operator_class":name})))[carried[0]]:
        if r["operator_class"]==name:
            r["source"]="uncalibrated on "+gpu+": efficiencies of "+carried[0]+", fitted on "+r["source"]
            rows.append({**r,"median_error":0,"p90_error":0})
for r in rows:
    r["parameters"]={k:short(v) for k,v in sorted(r["parameters"].items())}
    for k in list(r): r[k]=short(r[k])
    for axis in (a for c in r.get("corrections",[]) for a in c["axes"]): axis["points"]=[short(p) for p in axis["points"]]
    attention=r["operator_class"].startswith("attention.")
    file=path(r) if attention else folder+"/hardware/"+gpu+".json"
    whole=json.load(open(file)) if os.path.exists(file) else {}
    entries=whole.setdefault(gpu if attention else "efficiencies",[])
    entries[:]=[e for e in entries if e["operator_class"]!=r["operator_class"]]+[r]
    open(file,"w").write(written(whole,sort_keys=attention))' "$catalogue" "$@"
}
one() { # GPU BACKEND KERNEL …
  local gpu=$1
  shift
  "$fit" "$catalogue/hardware/$gpu.json" "$@"
}
{
  one h200-sxm fa3 mla_decode --table "$kernels/h200_sxm" flash_attention --ragged "$ragged"
  one h200-sxm fa3 mla_extend --table "$kernels/h200_sxm" flash_attention --ragged "$ragged"
  one h200-sxm fa3 mla_prefill --module "$kernels/h200_sxm" FLASH_ATTN --ragged "$ragged"
  one h200-sxm flashinfer mla_decode --ragged "$ragged"
  one h200-sxm flashinfer mla_prefill --beside "$kernels/h200_sxm" fa3
  one h200-sxm flashmla mla_decode --ragged "$ragged"
  one h200-sxm triton mla_decode --ragged "$ragged"  # those of "$own" had 8 splits
  one h200-sxm triton mla_extend --own "$own" --ragged "$ragged"
  one h200-sxm triton mla_prefill --own "$own"
} | enter h200-sxm
{
  one h100-sxm fa3 mla_decode --table "$kernels/h100_sxm" flash_attention
  one h100-sxm fa3 mla_extend --table "$kernels/h100_sxm" flash_attention
  one h100-sxm fa3 mla_prefill --module "$kernels/h100_sxm" FLASH_ATTN
  one h100-sxm flashinfer mla_decode --beside "$kernels/h100_sxm" fa3
  one h100-sxm flashinfer mla_prefill --beside "$kernels/h100_sxm" fa3
} | enter h100-sxm h200-sxm attention.flashmla.mla_decode attention.triton.mla_decode \
      attention.triton.mla_extend attention.triton.mla_prefill
{
  one b200 trtllm_mla mla_decode --table "$kernels/b200_sxm" trtllm_mla
  one b200 trtllm_mla mla_prefill --table "$kernels/b200_sxm" trtllm_mla
  one b200 flashinfer mla_prefill --module "$kernels/b200_sxm" FLASH_ATTN
} | enter b200
{
  one b300 trtllm_mla mla_decode --table "$kernels/b300_sxm" trtllm_mla
  one b300 trtllm_mla mla_prefill --table "$kernels/b300_sxm" trtllm_mla
  one b300 flashinfer mla_prefill --module "$kernels/b300_sxm" FLASH_ATTN
} | enter b300
{
  one gb200 trtllm_mla mla_decode --table "$kernels/gb200" trtllm_mla
  one gb200 trtllm_mla mla_prefill --table "$kernels/gb200" trtllm_mla
  one gb200 flashinfer mla_prefill --module "$kernels/gb200" FLASH_ATTN
} | enter gb200
{
  one rtx-pro-6000 triton mla_decode --table "$kernels/rtx_pro_6000_server" triton
  one rtx-pro-6000 triton mla_extend --table "$kernels/rtx_pro_6000_server" triton
  one rtx-pro-6000 flashinfer mla_prefill --module "$kernels/rtx_pro_6000_server" FLASH_ATTN
} | enter rtx-pro-6000
{
  one l40s triton mla_decode --table "$kernels/l40s" triton
  one l40s triton mla_extend --table "$kernels/l40s" triton
  one l40s flashinfer mla_prefill --module "$kernels/l40s" FLASH_ATTN
} | enter l40s
while read -r gpu folder; do
  "$bmm" "$kernels/$folder" "$catalogue/hardware/$gpu.json" | enter "$gpu"
done <<< "h200-sxm h200_sxm
h100-sxm h100_sxm
b200 b200_sxm
b300 b300_sxm
gb200 gb200
rtx-pro-6000 rtx_pro_6000_server
l40s l40s
a100-sxm a100_sxm"
