// Tables.
const kRows = 40;
function figuresTable() {
  const some = name => runs.some(r => r[name] > 0);
  // [group, head, value, text]
  const columns = [
    ...(sweep.length ? sweep.map(a => ["setting", a.flag.replaceAll("_", " "), r => settingOf(r, a.flag), String, "text"]) : [["setting", "backend", r => r.backend, String, "text"]]),
    ["per second", "requests", r => r.request_throughput, show],
    ["per second", "input tok", r => r.input_throughput, show],
    ["per second", "output tok", r => r.output_throughput, show],
    ...(some("request_goodput") ? [["goodput", "per s", r => r.request_goodput, show]] : []),
    ...(runs.some(r => r.goodput_share != null) ? [["goodput", "share", r => r.goodput_share, percent]] : []),
    ...(some("max_goodput_rate") ? [["goodput", "to rate", r => r.max_goodput_rate, show]] : []),
    ["TTFT, ms", "mean", r => r.mean_ttft_ms, show], ["TTFT, ms", "p99", r => r.p99_ttft_ms, show],
    ["TPOT, ms", "mean", r => r.mean_tpot_ms, show], ["TPOT, ms", "p99", r => r.p99_tpot_ms, show],
    ["ITL, ms", "p99", r => r.p99_itl_ms, show],
    ["latency, s", "mean", r => r.mean_e2e_latency_ms / 1000, show], ["latency, s", "p99", r => r.p99_e2e_latency_ms / 1000, show],
    ["KV cache, %", "hits", r => r.hit_rate_unknown ? null : 100 * r.cache_hit_rate, show], ["KV cache, %", "peak", r => 100 * r.peak_kv_usage, show],
    ...(some("host_pool_tokens") ? [["cached tokens from", "device", r => r.cached_device_tokens || 0, count], ["cached tokens from", "host", r => r.cached_host_tokens || 0, count],
      ["cached tokens from", "storage", r => r.cached_storage_tokens || 0, count]] : []),
    ["GPU, %", "busy", r => 100 * r.gpu_busy_fraction, show],
    ...(some("replayed_fraction") ? [["GPU, %", "graphs", r => 100 * r.replayed_fraction, show]] : []),
    ["number of", "steps", r => r.steps, count],
    ...(some("retractions") ? [["number of", "retracted", r => r.retractions, count]] : []),
    ...(some("failed") ? [["number of", "refused", r => r.failed, count]] : []),
  ];
  let sorted = -1, ascending = true, all = runs.length <= kRows, frontOnly = false;
  function paintTable() {
    const table = byId("figures");
    table.replaceChildren();
    table.className = columns.length > 18 ? "dense" : "";
    const groups = element("tr");
    for (let k = 0; k < columns.length;) {
      let n = 1;
      while (k + n < columns.length && columns[k + n][0] === columns[k][0]) ++n;
      groups.append(Object.assign(element("th", columns[k][0], columns[k][4] === "text" ? "text" : "group"), { colSpan: n }));
      k += n;
    }
    const head = element("tr");
    columns.forEach(([, name, , , kind], k) => {
      const th = element("th", name + (k === sorted ? (ascending ? " ▲" : " ▼") : ""), `sortable ${kind || ""}`);
      th.title = "sort";
      th.addEventListener("click", () => { ascending = k === sorted ? !ascending : true; sorted = k; paintTable(); });
      head.append(th);
    });
    table.append(groups, head);
    let order = [...runs.keys()].filter(i => !frontOnly || runs[i].pareto || i === best);
    if (sorted >= 0) {
      const value = i => columns[sorted][2](runs[i]);
      const compare = (a, b) => typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
      order.sort((a, b) => (ascending ? 1 : -1) * compare(value(a), value(b)));
    }
    for (const i of all ? order : order.slice(0, kRows)) {
      const tr = element("tr", undefined, i === best && runs.length > 1 ? "best" : "");
      columns.forEach(([, , value, text, kind]) => tr.append(element("td", value(runs[i]) == null ? "–" : text(value(runs[i])), kind)));
      table.append(tr);
    }
    const note = byId("figures-note");
    note.replaceChildren(document.createTextNode("Click a head to sort. "));
    const toggle = (text, on, change) => {
      const b = element("button", text);
      b.type = "button";
      b.setAttribute("aria-pressed", on);
      b.addEventListener("click", () => { change(); paintTable(); });
      note.append(b, " ");
    };
    if (runs.length > kRows) toggle(`all ${count(runs.length)} settings`, all, () => { all = !all; });
    if (runs.some(r => r.pareto)) toggle("Pareto front only", frontOnly, () => { frontOnly = !frontOnly; });
  }
  paintTable();
}

// The replicas of each run side by side, as they shared its requests.
function replicaTable() {
  const several = shown.filter(i => (runs[i].replicas || []).length);
  const table = byId("replicas");
  if (!several.length) { table.closest("section").hidden = true; return; }
  const elastic = several.some(i => runs[i].elasticity);
  table.append(within(element("tr"), ...["run", "replica"].map(h => element("th", h, "text")),
    ...["requests", "input tok", "output tok", "hits, %", "KV peak, %", "busy, %", "retracted", ...(elastic ? ["up, s", "deaths"] : [])].map(h => element("th", h))));
  for (const i of several) for (const r of runs[i].replicas)
    table.append(within(element("tr"), element("td", labels[i], "text"), element("td", [r.replica, r.role, r.model && `${r.model},`, r.group && `${r.group}: ${r.gpus} × ${r.hardware}`].filter(x => x !== undefined).join(" "), "text"),
      ...[count(r.requests), count(r.input_tokens), count(r.output_tokens), show(100 * r.cached_tokens / Math.max(1, r.input_tokens)),
        show(100 * r.peak_kv_usage), show(100 * r.busy_seconds / runs[i].duration), count(r.retractions), ...(elastic ? [show(r.up_seconds || 0), count(r.deaths || 0)] : [])].map(v => element("td", v))));
}

function calibrationTable() {
  const table = byId("calibration");
  const note = byId("calibration-note");
  if (!report.calibration.length) { table.closest("section").hidden = true; return; }
  note.append("How far the cost of each operator class is from the measured kernels it was fitted to. Read the share of what was not measured with care; \"kernels\" were measured alone, in no server of this model family.");
  table.append(within(element("tr"), element("th", "operator class", "text"), element("th", "status", "text"), element("th", "median error"), element("th", "1 in 10 above"), element("th", "fitted on", "text")));
  const known = c => c.status !== "uncalibrated";
  for (const c of [...report.calibration].sort((a, b) => known(a) - known(b))) {
    table.append(within(element("tr"), element("td", c.operator_class, "text"), element("td", c.status, known(c) ? "text" : "text warn"),
      element("td", known(c) ? percent(c.median_error) : "–"), element("td", known(c) && c.p90_error ? percent(c.p90_error) : "–"), element("td", c.source || "–", "text wrap")));
  }
}

// How wide each run's error bands are, and which measured loads say so.
function errorTable() {
  const table = byId("errors"), named = { mean_ttft_ms: "TTFT", mean_tpot_ms: "TPOT", mean_e2e_latency_ms: "latency", duration: "duration" };
  const banded = [...runs.keys()].filter(i => runs[i].error_bands);
  if (!banded.length) { table.closest("section").hidden = true; return; }
  byId("errors-note").textContent = `Where a measurement would lie: ${percent(runs[banded[0]].error_bands.coverage)} of the measured loads do, in bands made of other servers' loads. As wide as predictions of the measured loads most like the run were off.`;
  table.append(within(element("tr"), ...["setting", "figure"].map(t => element("th", t, "text")), ...["predicted", "from", "to"].map(t => element("th", t)), element("th", "resting on", "text")));
  for (const i of banded.slice(0, kRows)) for (const b of runs[i].error_bands.bands) {
    const text = v => b.figure === "duration" ? milliseconds(1000 * v) : milliseconds(v);
    table.append(within(element("tr"), element("td", b === runs[i].error_bands.bands[0] ? labels[i] : "", "text"), element("td", named[b.figure] || b.figure, "text"),
      ...[b.predicted, b.low, b.high].map(v => element("td", text(v))),
      element("td", `${plural(b.loads, "load")} of ${plural(b.servers, "server")} ${b.like}${b.widened ? `; wider, for ${b.widened}` : ""}`, "text wrap")));
  }
}

function optionTables() {
  const differing = report.options.filter(o => o.values.length > 1), same = report.options.filter(o => o.values.length === 1);
  const short = v => v == null || v === "" ? "–" : String(v).length > 40 ? String(v).slice(0, 37) + "…" : String(v);
  if (differing.length && shown.length === runs.length) {
    const table = within(element("table"), within(element("tr"), element("th", "differs", "text"), ...labels.map(l => element("th", l))));
    for (const o of differing) table.append(within(element("tr"), element("td", flagName(o.name), "text"), ...o.values.map(v => Object.assign(element("td", short(v)), { title: v ?? "" }))));
    byId("options-differ").append(table);
  } else byId("options-differ").hidden = true;
  for (const o of same) byId("options-same").append(within(element("div"), element("span", flagName(o.name)), Object.assign(element("b", short(o.values[0])), { title: o.values[0] ?? "" })));
}

if (runs.length) {
  title();
  answer();
  notices();
  sweepSection();
  comparison();
  timeSection();
  figuresTable();
  legends();
  distributions();
  timelines();
  stepView();
  replicaTable();
  errorTable();
  calibrationTable();
  optionTables();
  tidyAxes();
} else {
  document.querySelector("main").replaceChildren(element("p", report.best_reason || "No run was finished."));
}
