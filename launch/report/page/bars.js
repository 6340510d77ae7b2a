// Figures of the settings side by side: bars from zero, dots where a logarithmic axis is needed.
function metricCard(title, note) {
  const box = within(element("div", undefined, "card"), within(element("h3", title + " "), element("small", note)));
  byId("metrics").append(box);
  const strip = element("div", undefined, shown.some(i => labels[i].length > 22) ? "strip tall" : "strip");
  box.append(strip);
  return strip;
}
function bars(title, unit, value, note) {
  const amounts = shown.map(i => value(runs[i]));
  if (!amounts.some(v => v > 0)) return;
  const strip = metricCard(title, `${unit}; more is better`);
  const axis = linearAxis(Math.max(...amounts.filter(v => v > 0)));
  shown.forEach((i, k) => {
    const track = gridLines(element("div", undefined, "track"), axis);
    track.append(styled(element("div", undefined, "bar"), { width: `${100 * axis.at(amounts[k] || 0)}%`, background: colour(i) }));
    const amount = element("div", show(amounts[k]), "amount");
    if (note) amount.append(element("small", ` ${note(runs[i])}`));
    strip.append(nameCell(i), track, amount);
  });
  strip.append(element("div", undefined, "filler"), axisRow(axis, t => show(t).replace(/\.0+$/, "")), element("div"));
}
// Mean and p99: two dots on a line.
function dots(title, mean, p99) {
  const all = shown.flatMap(i => [runs[i][mean], runs[i][p99]]).filter(v => v > 0);
  if (!all.length) return;
  const axis = dotAxis(all);
  const strip = metricCard(title, `● mean, ○ p99${axis.logarithmic ? ", logarithmic" : ""}; less is better`);
  for (const i of shown) {
    const a = runs[i][mean], b = runs[i][p99], c = colour(i);
    const track = gridLines(element("div", undefined, "track"), axis);
    const left = Math.min(axis.at(a), axis.at(b)), right = Math.max(axis.at(a), axis.at(b));
    if (a > 0 && b > 0) track.append(styled(element("div", undefined, "span"), { left: `${100 * left}%`, width: `${100 * (right - left)}%`, background: c }));
    if (b > 0) track.append(styled(element("div", undefined, "dot hollow"), { left: `${100 * axis.at(b)}%`, borderColor: c }));
    if (a > 0) track.append(styled(element("div", undefined, "dot"), { left: `${100 * axis.at(a)}%`, borderColor: c, background: c }));
    const amount = element("div", a > 0 ? milliseconds(a) : "–", "amount");
    if (b > 0) amount.append(element("small", ` / ${milliseconds(b)}`));
    strip.append(nameCell(i), track, amount);
  }
  strip.append(element("div", undefined, "filler"), axisRow(axis, tickTime), element("div"));
}
function comparison() {
  if (runs.length > 1) compareFigures();  // of one run the answer has them
  goodputSearch();
  byId("metrics").parentElement.hidden = !byId("metrics").children.length;
}
function compareFigures() {
  if (shown.length < runs.length) byId("comparison-note").textContent = `the best and some of the Pareto front: ${shown.length} of ${count(runs.length)} settings`;
  bars("Total throughput", "tokens/s", r => r.total_throughput);
  bars("Output throughput", "tokens/s", r => r.output_throughput);
  bars("Goodput", "requests/s (share of all requests)", r => r.request_goodput, r => `(${percent(r.goodput_share)})`);
  bars("Highest rate within the service levels", "requests/s", r => r.max_goodput_rate);
  dots("Time to first token", "mean_ttft_ms", "p99_ttft_ms");
  dots("Time per output token", "mean_tpot_ms", "p99_tpot_ms");
  dots("Inter-token latency", "mean_itl_ms", "p99_itl_ms");
  dots("Whole request", "mean_e2e_latency_ms", "p99_e2e_latency_ms");
}

// One stacked bar for prefill and one for decode of each setting, all on one scale.
const parts = [["attention", "attention"], ["GEMM", "gemm"], ["collective", "collective"], ["other", "other"], ["launch", "launch"], ["waiting for the slowest rank", "wait"]];
if (runs.some(r => r.images)) parts.push(["encoding images", "encoder"]);
const phases = [["prefill", "prefill_steps"], ["mixed", "mixed_steps"], ["decode", "decode_steps"]];
const total = amounts => parts.reduce((sum, [, name]) => sum + (amounts?.[name] || 0), 0);
// Mean over the ranks.
function meanOfRanks(run, phase) {
  const all = run.ranks.reduce((n, k) => n + k.ranks.length, 0);
  return Object.fromEntries(parts.map(([, name]) => [name, run.ranks.reduce((sum, k) => sum + k.ranks.length * (k[phase]?.[name] || 0), 0) / all]));
}
function stack(amounts, width, format) {
  const sum = total(amounts);
  const fill = styled(element("div", undefined, "fill"), { width: `${100 * width}%` });
  fill.dataset.total = sum;
  const words = [];
  parts.forEach(([name, part], k) => {
    const v = amounts[part] || 0;
    if (!(v > 0)) return;
    words.push(`${name} ${format(v)} (${percent(v / sum)})`);
    const seg = styled(element("div", undefined, part === "wait" ? "seg stripes" : "seg"), { width: `${100 * v / sum}%`, background: `var(--p${k})`, color: `var(--t${k})` });
    if (width * v / sum > 0.06 && part !== "wait") seg.append(element("span", format(v)));
    seg.title = words.at(-1);
    fill.append(seg);
  });
  const box = within(element("div", undefined, "stack"), fill);
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", words.join(", "));
  return box;
}

const timeUnits = {
  seconds: { amount: v => v, format: seconds, axis: "seconds, all settings on one scale" },
  pass: { amount: (v, steps) => steps > 0 ? 1000 * v / steps : 0, format: milliseconds, axis: "milliseconds of one pass, all settings on one scale" },
  share: { amount: v => v, format: seconds, axis: "share of each bar" },
};
function timeBars(unit) {
  const { amount, format, axis: text } = timeUnits[unit];
  const rows = [];
  for (const i of shown) {
    if (!runs[i].ranks?.length) continue;
    for (const [phase, steps] of phases) {
      const n = runs[i][steps];
      const mean = meanOfRanks(runs[i], phase);
      for (const name in mean) mean[name] = amount(mean[name], n);
      if (total(mean) > 0) rows.push({ i, phase, n, mean });
    }
  }
  const longest = Math.max(0, ...rows.map(r => total(r.mean)));
  byId("time").hidden = !(longest > 0);
  const axis = unit === "share" ? linearAxis(1, 5) : linearAxis(longest, 8);
  const grid = element("div", undefined, "times");
  let last = -1;
  for (const { i, phase, n, mean } of rows) {
    if (i !== last && last >= 0) grid.append(element("div", undefined, "gap"));
    grid.append(i === last ? element("div", undefined, "filler") : nameCell(i));
    last = i;
    const sum = total(mean);
    const long = element("span", unit === "pass" ? " a pass" : ` in ${count(n)} ${n === 1 ? "pass" : "passes"}`, "long");
    grid.append(element("div", phase, "phase"), stack(mean, unit === "share" ? 1 : axis.at(sum), format),
      within(element("div", undefined, "total"), element("b", format(sum)), long));
  }
  grid.append(element("div", undefined, "filler"), element("div"), axisRow(axis, unit === "share" ? t => `${Math.round(100 * t)} %` : t => unit === "pass" ? tickTime(t) : tickSeconds(t)), element("div"));
  byId("time-bars").replaceChildren(grid);
  tidyAxes();
  byId("time-note").textContent = `Mean over the ranks, ${text}. Idle time is not in it.`;
}
const rankNames = list => {
  const spans = [];
  for (const r of list) spans.length && spans.at(-1)[1] === r - 1 ? spans.at(-1)[1] = r : spans.push([r, r]);
  return (list.length === 1 ? "rank " : "ranks ") + spans.map(([a, b]) => a === b ? a : `${a}–${b}`).join(", ");
};
function differingRanks() {
  const differing = shown.filter(i => runs[i].ranks?.length > 1);
  if (!differing.length) return;
  const grid = element("div", undefined, "times");
  const sums = k => Object.fromEntries(parts.map(([, name]) => [name, phases.reduce((s, [phase]) => s + (k[phase]?.[name] || 0), 0)]));
  const longest = Math.max(...differing.flatMap(i => runs[i].ranks.map(k => total(sums(k)))));
  for (const i of differing) {
    runs[i].ranks.forEach((k, n) => {
      grid.append(element("div", n ? "" : labels[i], n ? "filler" : "who"), element("div", rankNames(k.ranks) + (k.slowdown !== 1 ? `, × ${k.slowdown}` : ""), "phase"),
        stack(sums(k), total(sums(k)) / longest, seconds), within(element("div", undefined, "total"), element("b", seconds(total(sums(k))))));
    });
    grid.append(element("div", undefined, "gap"));
  }
  byId("time-ranks").append(element("h2", "The ranks apart"), within(element("div", undefined, "card"), grid));
}
// What the host did, by name: none of it is in the bars above.
function hostTable() {
  const of = shown.filter(i => runs[i].host_seconds);
  byId("time-host").hidden = !of.length;
  const columns = [["forming batches", "forming"], ["planning attention", "planning"], ["issuing kernels", "issuing"], ["between passes", "between_passes"], ["compiling", "compiling"],
    ["waiting for the launch queue", "launch_queue"], ["results later by", "launch_queue_delay"]].filter(([, name]) => name.startsWith("launch_queue") || of.some(i => runs[i].host_seconds[name] > 0));
  const table = byId("host");
  table.append(within(element("tr"), element("th", "setting", "text"), ...columns.map(([head]) => element("th", head))));
  for (const i of of) {
    const steps = phases.reduce((sum, [, name]) => sum + (runs[i][name] || 0), 0);
    table.append(within(element("tr"), element("td", labels[i], "text"), ...columns.map(([, name]) => {
      const v = runs[i].host_seconds[name] || 0;
      return within(element("td", v > 0 ? `${seconds(v)} ` : "–"), element("small", v > 0 && steps ? milliseconds(1e3 * v / steps) : ""));
    })));
  }
}
function timeSection() {
  hostTable();
  const tools = byId("time-tools");
  parts.forEach(([name, part], k) => tools.append(key(name, `var(--p${k})`, part === "wait" ? "stripes" : "")));
  switchOf(tools, [["seconds", "seconds"], ["pass", "a pass"], ["share", "shares"]], "seconds", timeBars);
  timeBars("seconds");
  differingRanks();
}
