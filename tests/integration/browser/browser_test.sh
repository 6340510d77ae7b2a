#!/usr/bin/env bash
# Opens the report page in headless Chromium: every chart is drawn, the console is quiet, and the page asks
# for nothing but itself.  usage: browser_test.sh MAKE_PAGE      exit 77: skipped
set -euo pipefail
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ -z $chromium ]]; then
  echo "skipped: no chromium here"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" "$work/report.html"
flags=(--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
  --disable-component-update --disable-sync --virtual-time-budget=8000 --enable-logging=stderr --v=0)
for size in 1280,1000 390,844; do
  rm -rf "$work/profile"
  timeout 120 "$chromium" "${flags[@]}" --user-data-dir="$work/profile" --window-size="$size" --dump-dom \
    "file://$work/report.html" > "$work/dom" 2> "$work/log" || { cat "$work/log"; exit 1; }
  body=$(grep -o '<body[^>]*>' "$work/dom" | head -n 1)
  charts=$(sed -n 's/.*data-charts="\([0-9]*\)".*/\1/p' <<< "$body")
  drawn=$(sed -n 's/.*data-charts-drawn="\([0-9]*\)".*/\1/p' <<< "$body")
  echo "$size: $charts charts, $drawn drawn"
  [[ -n $charts && $charts -ge 15 && $charts == "$drawn" ]] || { echo "not every chart is drawn: $body"; exit 1; }
  if grep -E ':CONSOLE|Uncaught' "$work/log"; then echo "the console is not quiet"; exit 1; fi
  grep -q '<h1 id="title">llama-3.1-70b on 2 × h200-sxm</h1>' "$work/dom" || { echo "no title"; exit 1; }
done
if grep -oE '(src|href)="[a-z]+:[^"]*"' "$work/report.html" | grep -v '"data:'; then
  echo "the page refers to something outside itself"
  exit 1
fi
