#!/usr/bin/env bash
# Runs fuzz targets with libFuzzer under AddressSanitizer and UndefinedBehaviorSanitizer, and says how many inputs each
# has run and what was found. Exit status 1 where something was, or where a target ran fewer inputs than asked.
#
#   tests/fuzz/campaign.sh                        what clients send to `tpsim serve`: 6 targets, 10 million inputs
#   tests/fuzz/campaign.sh --inputs 500000 trace_auto prompts    of these targets 500,000 each
#   tests/fuzz/campaign.sh --keep                 besides, adds to tests/fuzz/corpus what reached code that nothing
#                                                 there reaches
#
# Builds into build-fuzz with clang; inputs begin with those of tests/fuzz/corpus. The same seed each time (--seed N for
# another): the same inputs, as long as the code is the same. What is found lies in build-fuzz/campaign/TARGET/.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

inputs=1700000
seed=1
keep=false
targets=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --inputs) inputs="${2:?--inputs wants a number}"; shift ;;
    --seed) seed="${2:?--seed wants a number}"; shift ;;
    --keep) keep=true ;;
    -*)
      echo "tests/fuzz/campaign.sh: $1: unknown, see the head of this file" >&2
      exit 2
      ;;
    *) targets+=("$1") ;;
  esac
  shift
done
[[ ${#targets[@]} -gt 0 ]] || targets=(serve_http serve_generate serve_completion serve_chat serve_abort serve_text serve_image
    serve_form)
for target in "${targets[@]}"; do
  if [[ ! -d "tests/fuzz/corpus/$target" ]]; then
    echo "tests/fuzz/campaign.sh: $target: must be one of $(cd tests/fuzz/corpus && echo *)" >&2
    exit 2
  fi
done

source launch/packages.sh
source launch/build.sh
# shellcheck disable=SC2086  # lists of words
install_packages $TPSIM_PACKAGES clang || exit 1
drop_foreign_build build-fuzz
[[ -f build-fuzz/build.ninja ]] || quietly "configuring fuzz" cmake --preset fuzz || exit 1
quietly "building fuzz" ninja -C build-fuzz "${targets[@]/#/tpsim_fuzz_}" || exit 1

total=0
found=0
for target in "${targets[@]}"; do
  folder="build-fuzz/campaign/$target"
  rm -rf "$folder"
  mkdir -p "$folder/corpus"
  words=()
  [[ "$target" == serve_* ]] && words=(-dict=tests/fuzz/serve.dict)
  "build-fuzz/tests/fuzz/tpsim_fuzz_$target" "$folder/corpus" "tests/fuzz/corpus/$target" "${words[@]}" \
    -runs="$inputs" -seed="$seed" -max_len=4096 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$folder/" >"$folder/log" 2>&1
  status=$?
  statistic() { sed -n "s/^stat::$1: *//p" "$folder/log"; }
  ran="$(statistic number_of_executed_units)"
  total=$((total + ${ran:-0}))
  edges="$(sed -n 's/^#.* cov: \([0-9]*\) .*/\1/p' "$folder/log" | tail -1)"
  echo "$target: ${ran:-0} inputs, $(statistic average_exec_per_sec) a second, ${edges:-?} edges, $(statistic peak_rss_mb) MB"
  if [[ $status -ne 0 || "${ran:-0}" -lt "$inputs" ]]; then
    found=$((found + 1))
    grep -m 3 -E 'ERROR|SUMMARY|runtime error|terminate called|what\(\)' "$folder/log"
    echo "$target: status $status, see $folder/log and beside it"
  fi
  if $keep; then
    python3 tests/fuzz/keep_examples.py "build-fuzz/tests/fuzz/tpsim_fuzz_$target" "tests/fuzz/corpus/$target" "$folder/corpus"
  fi
done
echo "$total inputs, $found of ${#targets[@]} targets with findings"
[[ $found -eq 0 ]]
