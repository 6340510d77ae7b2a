// The page of `tpsim validate`.
const figures = [["tpot_ms", "Time per output token", milliseconds], ["ttft_ms", "Time to first token", milliseconds],
  ["e2e_ms", "Latency of a request", milliseconds], ["duration_s", "Duration of the load", seconds],
  // Of diffusion pipelines: measured passes, and published figures.
  ["ms", "A pass", milliseconds], ["attention_ms", "Attention of a pass", milliseconds], ["seconds", "Published times", seconds],
  ["speedup", "Published speed-ups", v => `${v.toFixed(2)} x`], ["peak_memory_gib", "Published peaks of a GPU's memory", v => `${v.toFixed(1)} GiB`]];
const grouped = figures.filter(([name]) => report.groups.some(g => g[name]));
const nameOf = row => row.id ?? `${row.server} ${row.load}`;
const ratioOf = figure => figure.predicted / figure.measured;
const error = v => `${(100 * v).toFixed(1)} %`;
const signed = v => `${v >= 1 ? "+" : "−"}${Math.abs(100 * (v - 1)).toFixed(1)} %`;

// A table of [head, cell of an item, class]; `open` hides it where there is nothing.
function table(id, items, columns) {
  const body = byId(id);
  if (byId(`${id}-section`)) byId(`${id}-section`).hidden = !items.length;
  if (!items.length) return;
  body.append(within(element("tr"), ...columns.map(([head, , name]) => element("th", head, name))));
  for (const item of items) body.append(within(element("tr"), ...columns.map(([, cell, name]) => element("td", cell(item), name))));
}

function answer() {
  const all = report.groups.find(g => g.by === "all");
  byId("subtitle").textContent = [plural(report.rows.length, "measured row"), `${count(report.not_asked.length)} could not be asked`, ...(report.stopped_early ? ["stopped early: some rows are missing"] : [])].join(" · ");
  const box = byId("answer"), tiles = element("div", undefined, "tiles");
  const tile = (name, value, unit, more) => tiles.append(within(element("div", undefined, "tile"), element("div", name, "name"), within(element("div", `${value} `, "value"), element("small", unit)), element("div", more, "more")));
  for (const [name, text] of figures) {
    const e = all?.[name];
    if (e) tile(text, (100 * e.mean).toFixed(1), "% off, mean", `median ${error(e.median)}, one in ten above ${error(e.p90)}; ${plural(e.count, "row")}`);
  }
  for (const s of report.steps.filter(s => s.server === "all"))
    tile(`Single ${s.mode} steps`, (100 * s.error.median).toFixed(1), "% off, median", `one in ten above ${error(s.error.p90)}; ${plural(s.steps, "step")}, ${count(s.without_counterpart)} without counterpart`);
  if (report.pairs.count) tile("Which of two is faster", `${count(report.pairs.right)} of ${count(report.pairs.count)}`, "right", "pairs more than 3 % apart");
  if (report.pools.length) tile("KV pool", (100 * Math.max(...report.pools.map(p => Math.abs(p.error)))).toFixed(2), "% off at most", plural(report.pools.length, "server"));
  box.append(tiles);
  box.hidden = !tiles.children.length;
}

// --- Scatter plots
const groupings = [["model", "model"], ["hardware", "GPU"], ["backend", "backend"], ["tp", "--tp"], ["load_kind", "load"], ["server", "server"]]
  .filter(([by]) => report.rows.some(r => r[by] != null && r[by] !== ""));
let grouping = "model";
function scatter(name, text, format, canvas) {
  const rows = report.rows.filter(r => r[name]);
  const values = rows.flatMap(r => [r[name].measured, r[name].predicted]).filter(v => v > 0);
  const low = Math.min(...values) / 1.3, high = Math.max(...values) * 1.3;
  const line = (factor, width) => ({ type: "line", data: [{ x: low, y: low * factor }, { x: high, y: high * factor }], borderColor: style("--soft"), borderWidth: width, pointRadius: 0, pointHitRadius: 0, order: 1 });
  const names = [...new Set(report.rows.map(r => String(r[grouping] ?? "")))].sort();
  const points = names.map((group, k) => ({ label: group || "–", order: 0, backgroundColor: style(`--c${k % 8}`), borderColor: style(`--c${k % 8}`), pointRadius: 4, pointHoverRadius: 7, pointStyle: ["circle", "rectRot", "triangle", "rect"][Math.floor(k / 8) % 4],
    data: rows.filter(r => String(r[grouping] ?? "") === group).map(r => ({ x: r[name].measured, y: r[name].predicted, name: nameOf(r) })) })).filter(d => d.data.length);
  const axis = title => chartAxis(title, { type: "logarithmic", min: low, max: high, afterBuildTicks: s => { s.ticks = logTicks(s.min, s.max).map(value => ({ value })); }, ticks: { autoSkip: false, maxRotation: 0, callback: name.endsWith("ms") ? tickTime : ["duration_s", "seconds"].includes(name) ? tickSeconds : v => format(v) } });
  draw(canvas, { type: "scatter", data: { datasets: [...points, line(1, 1.5), line(1.1, 0.6), line(1 / 1.1, 0.6)] },
    options: { interaction: { mode: "nearest", intersect: true },
      plugins: { legend: { position: "bottom", labels: { filter: item => item.text !== undefined, usePointStyle: true, boxHeight: 7 } },
        tooltip: { filter: c => c.raw.name !== undefined, callbacks: { label: c => [c.raw.name, `predicted ${format(c.raw.y)}, measured ${format(c.raw.x)}`, signed(c.raw.y / c.raw.x)] } } },
      scales: { x: axis("measured"), y: axis("predicted") } } });
}
function scatters() {
  const drawn = figures.filter(([name]) => report.rows.some(r => r[name]));
  byId("scatter-section").hidden = !drawn.length;
  if (!drawn.length) return;
  if (groupings.length) choice(byId("scatter-tools"), "colours by", groupings, grouping, v => { grouping = v; repaint(); });
  for (const [name, text, format] of drawn) {
    const canvas = chartCard("scatters", text, "predicted over measured, logarithmic");
    canvas.parentElement.classList.add("tall");
    paint(() => scatter(name, text, format, canvas));
  }
}

// --- Tables
function tables() {
  table("groups", report.groups, [["by", g => g.by, "text"], ["group", g => g.name, "text wrap"],
    ...grouped.flatMap(([name]) => [[`${name.replace(/_m?s$/, "").toUpperCase()} mean`, g => g[name] ? error(g[name].mean) : ""], ["median", g => g[name] ? error(g[name].median) : ""], ["p90", g => g[name] ? error(g[name].p90) : ""]])]);
  leftOut();
  const worst = row => Math.max(...figures.map(([name]) => row[name] ? Math.abs(ratioOf(row[name]) - 1) : 0));
  table("rows", [...report.rows].sort((a, b) => worst(b) - worst(a)), [["row", nameOf, "text"], ["GPU", r => r.hardware, "text"], ["--tp", r => r.tp], ["backend", r => r.backend, "text"],
    ...figures.filter(([name]) => report.rows.some(r => r[name])).flatMap(([name, , format]) => [[name.replace(/_m?s$/, "").toUpperCase(), r => r[name] ? format(r[name].predicted) : ""], ["measured", r => r[name] ? format(r[name].measured) : ""], ["off", r => r[name] ? signed(ratioOf(r[name])) : ""]])]);
  table("steps", report.steps, [["server", s => s.server, "text"], ["steps", s => s.mode, "text"], ["compared", s => count(s.steps)], ["without counterpart", s => count(s.without_counterpart)],
    ["median", s => error(s.error.median)], ["p90", s => error(s.error.p90)], ["predicted / measured", s => s.error.median_ratio.toFixed(3)]]);
  table("pools", report.pools, [["server", p => p.server, "text"], ["predicted, tokens", p => count(p.predicted)], ["measured", p => count(p.measured)], ["off", p => `${(100 * p.error).toFixed(2)} %`]]);
  byId("pairs-section").hidden = !report.pairs.count;
  byId("pairs-note").textContent = `Right in ${count(report.pairs.right)} of ${count(report.pairs.count)} pairs of measured settings of the same model, GPU, --tp and load that are more than 3 % apart.`;
  if (report.pairs.wrong.length) table("pairs", report.pairs.wrong, [["model", p => p.model, "text"], ["load", p => p.load, "text"], ["faster", p => p.faster, "text wrap"], ["slower", p => p.slower, "text wrap"], ["measured", p => p.measured.toFixed(3)], ["predicted", p => p.predicted.toFixed(3)]]);
  table("kernels", report.kernels ?? [], [["GPU", k => k.system, "text"], ["table", k => k.table, "text"], ["backend", k => k.backend, "text"], ["format", k => k.format, "text"], ["rows", k => count(k.error.count)], ["not asked", k => count(k.not_asked)],
    ["median", k => error(k.error.median)], ["p90", k => error(k.error.p90)], ["predicted / measured", k => k.error.median_ratio.toFixed(3)]]);
  table("refused", report.not_asked, [["row", nameOf, "text"], ["why", r => r.reason, "text wrap"]]);
}

// --- The same by constants that the other groups' loads say
function leftOut() {
  const of = report.leave_one_out;
  if (!of) return;
  byId("leftout-note").textContent = `Mean errors of the loads of each ${of.by}: as above, by the host's constants refitted to all loads, and by those fitted to the loads of the others on the same GPU.`;
  const title = name => name.replace(/_m?s$/, "").toUpperCase();
  const groups = [...report.groups.filter(g => g.by === of.by), ...report.groups.filter(g => g.by === "all")].filter(g => figures.some(([name]) => g[name]?.left_out));
  table("leftout", groups, [[of.by, g => g.name, "text wrap"], ...grouped.flatMap(([name]) => [[title(name), g => g[name]?.left_out ? error(g[name].mean) : ""],
    ["refitted", g => g[name]?.left_out ? error(g[name].refitted.mean) : ""], ["left out", g => g[name]?.left_out ? error(g[name].left_out.mean) : ""]])]);
  const names = [...new Set(of.fits.flatMap(f => f.constants.map(c => c.name)))];
  const micro = c => c === undefined ? "" : c.kept ? `(${(1e6 * c.fitted).toPrecision(4)})` : (1e6 * c.fitted).toPrecision(4);
  table("constants", of.fits, [["GPU", f => f.hardware, "text"], ["left out", f => f.left_out || "none", "text wrap"], ["rows", f => count(f.rows)],
    ...names.map(name => [name.replace(/_seconds$/, ""), f => micro(f.constants.find(c => c.name === name))])]);
  byId("leftout-section").hidden = false;
}

// --- Timelines
function timelines() {
  const rows = report.rows.filter(r => r.measured_timeline?.time.length);
  byId("timeline-section").hidden = !rows.length;
  if (!rows.length) return;
  const longest = rows.reduce((a, b) => b.measured_timeline.time.length > a.measured_timeline.time.length ? b : a);
  let shown = longest;
  choice(byId("timeline-tools"), "load", rows.map((r, k) => [String(k), nameOf(r)]), String(rows.indexOf(longest)), v => { shown = rows[v]; repaint(); });
  for (const [column, title, note, axis] of [
    ["step_ms", "Time of a step", "of the whole batch, logarithmic; less is better", () => chartAxis("", { type: "logarithmic", title: { display: false }, afterBuildTicks: s => { s.ticks = logTicks(s.min, s.max).map(value => ({ value })); }, ticks: { autoSkip: false, callback: tickTime } })],
    ["running", "Running requests", "in each decode batch", () => chartAxis("", { beginAtZero: true, title: { display: false } })]]) {
    const canvas = chartCard("timelines", title, note);
    const points = side => shown[side].time.map((x, k) => ({ x, y: shown[side][column][k] }));
    const line = (side, label, c, width) => ({ label, data: points(side), borderColor: style(c), backgroundColor: style(c), borderWidth: width, pointRadius: 0, pointHitRadius: 4 });
    paint(() => draw(canvas, { type: "line", data: { datasets: [line("predicted_timeline", "predicted", "--c1", 1.5), line("measured_timeline", "measured", "--c0", 2)] },
      options: { parsing: false, interaction: { mode: "nearest", axis: "x", intersect: false }, plugins: { legend: { position: "bottom", labels: { boxHeight: 7 } } },
        scales: { x: chartAxis("", { type: "linear", title: { display: false }, ticks: { callback: tickSeconds, maxRotation: 0 } }), y: axis() } } }));
  }
}

answer();
scatters();
tables();
timelines();
