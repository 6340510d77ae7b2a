#!/usr/bin/env bash
# Packs SGLang 0.5.23 with its own PyTorch for a GPU machine that has Python 3.12, CUDA 13 and no network, and
# unpacks it there. How h200-sxm_servers/eighth to eleventh were measured; 0.9 GB packed.
#
#   pack_sglang.sh pack WORK PARTS [ARCH]   here: a virtual environment in WORK (10 GB), pieces of 61 MB in PARTS,
#                                           kernels of sm_ARCH (default 90) alone
#   pack_sglang.sh unpack PARTS             there, into ~/b and ~/x; then `source ~/sglang.env`
#
# Left out: CUDA's libraries of the machine's own PyTorch (linked instead, but for NCCL) and what serving text does
# not import. A first start compiles for two to three minutes; servers that start beside each other share that time, and
# SGLANG_JIT_DEEPGEMM_PRECOMPILE=0 spares fp8 in blocks most of it.
# serve_and_measure.py of ../shared/measure starts and asks them, pack_servers.py packs what they did.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

pack() {
  local work="$1" parts="$2" arch="${3:-90}" site name
  mkdir -p "$work" "$parts"
  parts="$(cd "$parts" && pwd)"
  cd "$work"
  [ -d venv ] || "${PYTHON312:-python3.12}" -m venv venv
  venv/bin/pip install -q uv
  venv/bin/uv pip install -q --python venv/bin/python --prerelease=allow sglang==0.5.23
  site=venv/lib/python3.12/site-packages
  rm -rf b x && mkdir -p b/nvidia x/IPython
  for path in "$site"/*; do
    name="$(basename "$path")"
    case " nvidia pyarrow llvmlite numba pandas scipy scipy.libs modelscope jedi anthropic cryptography lxml Cython timm
      torchaudio Cryptodome pip uv deep_ep nvshmem nccl IPython matplotlib " in *" $name "*) ;; *) cp -r "$path" b/ ;; esac
  done
  cp -r "$site/nvidia/nccl" b/nvidia/
  printf 'HTML = display = None\n' > x/IPython/display.py && : > x/IPython/__init__.py
  rm -rf b/sgl_kernel/sm100 b/triton/backends/amd/lib b/triton/backends/nvidia/bin/ptxas-blackwell b/torch/test
  find b -name __pycache__ -prune -exec rm -rf {} +
  find b \( -name '*.pyi' -o -name '*.a' \) -delete
  find b -name '*.so*' -size +3M -exec python3 "$here/prune_fatbins.py" "$arch" {} +
  mv b/nvidia_cutlass_dsl* b/tilelang x/
  mv b/sgl_kernel/flash_ops.abi3.so flash_ops.so  # 1 GB of kernels that resemble each other
  rm -f "$parts"/[bfx][0-9][0-9]
  tar -C b -cf - . | zstd -12 --long=27 -T0 -q | split -b 61000000 -d - "$parts/b"
  tar -C x -cf - . | zstd -12 --long=27 -T0 -q | split -b 61000000 -d - "$parts/x"
  zstd -12 --long=31 -q -c flash_ops.so | split -b 61000000 -d - "$parts/f"
  cp "$(command -v zstd)" "$parts/zstd"
}

unpack() {
  cd "$1" && chmod +x zstd && mkdir -p "$HOME/b" "$HOME/x"
  cat x?? | ./zstd -d --long=27 -q -c | tar -C "$HOME/x" -xf - &
  cat f?? | ./zstd -d --long=31 -q -c > "$HOME/flash_ops.so" &
  cat b?? | ./zstd -d --long=27 -q -c | tar -C "$HOME/b" -xf -
  wait
  mv "$HOME/flash_ops.so" "$HOME/b/sgl_kernel/flash_ops.abi3.so"
  local own
  own="$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))')"
  for path in "$own"/nvidia/*; do
    [ -e "$HOME/b/nvidia/$(basename "$path")" ] || ln -s "$path" "$HOME/b/nvidia/"
  done
  cat > "$HOME/sglang.env" <<'ENV'
export PYTHONPATH=$HOME/b:$HOME/x:$HOME/x/nvidia_cutlass_dsl/dsl_packages PATH=$PATH:/usr/local/cuda/bin
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false NO_PROXY="*" no_proxy="*"
export FLASHINFER_DISABLE_VERSION_CHECK=1 SGLANG_DISABLE_TP_MEMORY_INBALANCE_CHECK=1
ENV
}

case "${1:-}" in
  pack) pack "${@:2}" ;;
  unpack) unpack "${@:2}" ;;
  *) sed -n 's/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed -n '2,12p' >&2; exit 2 ;;
esac
