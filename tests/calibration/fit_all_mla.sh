#!/usr/bin/env bash
# Fits every MLA coefficient that there are measurements for, and writes rank/catalogue/attention/GPU.json (kernels)
# and rank/catalogue/hardware/GPU.json (batched products).
# What was not measured on a GPU gets the efficiencies of another with median_error 0, and its source says so.
# usage: fit_all_mla.sh FIT_MLA FIT_MLA_BMM KERNELS_FOLDER
set -euo pipefail
fit=$1 bmm=$2 kernels=$3
here=$(cd "$(dirname "$0")" && pwd)
catalogue=$here/../../rank/catalogue
own=$here/measured/h200-sxm_mla.csv
enter() { # FILE KEY [FROM-GPU CLASS…]: JSON lines in; entries of the file that they replace are replaced
  python3 -c 'import json,sys,os
path,key,*carried=sys.argv[1:]
def short(v): return float(f"{v:.4g}") if isinstance(v,float) else v
rows=[json.loads(line) for line in sys.stdin]
if carried:
    gpu,*classes=carried
    for r in json.load(open(os.path.join(os.path.dirname(path),gpu+".json"))):
        if r["operator_class"] in classes:
            r["source"]="uncalibrated here: efficiencies of "+gpu+", fitted on "+r["source"]; r["median_error"]=0; rows.append(r)
for r in rows:
    r["parameters"]={k:short(v) for k,v in sorted(r["parameters"].items())}
    for k in list(r): r[k]=short(r[k])
whole=json.load(open(path))
entries=whole[key] if key else whole
new={r["operator_class"] for r in rows}
entries[:]=[r for r in entries if r["operator_class"] not in new]+rows
json.dump(whole,open(path,"w"),indent=2,sort_keys=not key)
open(path,"a").write("\n")' "$@"
}
one() { # GPU BACKEND KERNEL …
  local gpu=$1
  shift
  "$fit" "$catalogue/hardware/$gpu.json" "$@"
}
{
  one h200-sxm fa3 mla_decode --table "$kernels/h200_sxm" flash_attention
  one h200-sxm fa3 mla_extend --table "$kernels/h200_sxm" flash_attention
  one h200-sxm fa3 mla_prefill --module "$kernels/h200_sxm" FLASH_ATTN
  one h200-sxm flashmla mla_decode --own "$own"
  one h200-sxm triton mla_decode --own "$own"
  one h200-sxm triton mla_extend --own "$own"
  one h200-sxm triton mla_prefill --own "$own"
} | enter "$catalogue/attention/h200-sxm.json" ""
{
  one h100-sxm fa3 mla_decode --table "$kernels/h100_sxm" flash_attention
  one h100-sxm fa3 mla_extend --table "$kernels/h100_sxm" flash_attention
  one h100-sxm fa3 mla_prefill --module "$kernels/h100_sxm" FLASH_ATTN
} | enter "$catalogue/attention/h100-sxm.json" "" h200-sxm attention.flashmla.mla_decode attention.triton.mla_decode \
      attention.triton.mla_extend attention.triton.mla_prefill
{
  one b200 trtllm_mla mla_decode --table "$kernels/b200_sxm" trtllm_mla
  one b200 trtllm_mla mla_prefill --table "$kernels/b200_sxm" trtllm_mla
  one b200 flashinfer mla_prefill --module "$kernels/b200_sxm" FLASH_ATTN
} | enter "$catalogue/attention/b200.json" ""
{
  one l40s triton mla_decode --table "$kernels/l40s" triton
  one l40s triton mla_extend --table "$kernels/l40s" triton
  one l40s flashinfer mla_prefill --module "$kernels/l40s" FLASH_ATTN
} | enter "$catalogue/attention/l40s.json" ""
while read -r gpu folder; do
  "$bmm" "$kernels/$folder" "$catalogue/hardware/$gpu.json" | enter "$catalogue/hardware/$gpu.json" efficiencies
done <<< "h200-sxm h200_sxm
h100-sxm h100_sxm
b200 b200_sxm
l40s l40s
a100-sxm a100_sxm"
