#!/usr/bin/env bash
# Opens report pages in headless Chromium, wide and narrow, light and dark: checks.js looks at them and uses
# them, the console is quiet, and a page asks for nothing but itself.
# usage: browser_test.sh MAKE_PAGE      exit 77: skipped
set -euo pipefail
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ -z $chromium ]]; then
  echo "skipped: no chromium here"
  exit 77
fi
here="$(dirname "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
  --disable-component-update --disable-sync --virtual-time-budget=8000 --enable-logging=stderr --v=0)

# look PAGE WIDTH DARK EXPECTED
look() {
  local page=$1 width=$2 dark=$3 expected=$4 scheme=1 checks="$here/checks.js"
  [[ $page == validation ]] && checks="$here/checks_validation.js"
  [[ $dark == true ]] && scheme=0
  { sed '$d' "$work/$page.html" | sed '$d'
    echo "<script>window.expected = { width: $width, dark: $dark, $expected };</script><script>"
    cat "$checks"
    echo "</script></body></html>"
  } > "$work/checked.html"
  cat > "$work/frame.html" <<FRAME
<!DOCTYPE html><html><head><meta name="color-scheme" content="light dark"><style>body { margin: 0 }</style></head><body>
<iframe src="checked.html" style="border:0; width:${width}px; height:3000px"></iframe>
<script>addEventListener("message", m => { document.title = m.data; });</script></body></html>
FRAME
  rm -rf "$work/profile"
  timeout 120 "$chromium" "${flags[@]}" --user-data-dir="$work/profile" --window-size=1500,1000 \
    --blink-settings=preferredColorScheme=$scheme --dump-dom "file://$work/frame.html" \
    > "$work/dom" 2> "$work/log" || { cat "$work/log"; exit 1; }
  if grep -E ':CONSOLE|Uncaught' "$work/log"; then echo "$page: the console is not quiet"; exit 1; fi
  local said
  said=$(sed -n 's/.*<title>\(.*\)<\/title>.*/\1/p' "$work/dom")
  echo "$page, $width pixels, dark $dark: ${said:-nothing was checked}"
  [[ $said == "checked well" ]] || exit 1
}

comparison='canvases: 11, fills: 6, cut: 100, steps: 600'
sweep='canvases: 1, fills: 8, cut: 0, sweep: { cells: 8, best: "26,000" }'
single='canvases: 11, fills: 2, cut: 100, steps: 600'
validation='canvases: 6, rows: 11'
for page in comparison sweep single validation; do
  "$1" $page "$work/$page.html"
  if grep -oE '(src|href)="[a-z]+:[^"]*"' "$work/$page.html" | grep -v '"data:'; then
    echo "the page refers to something outside itself"
    exit 1
  fi
  look $page 1400 false "${!page}"
  look $page 400 true "${!page}"
done
look comparison 1400 true "$comparison"
look comparison 400 false "$comparison"
