// Title, answer and what must be known before believing it.
function title() {
  const first = runs[0];
  const sizes = [...new Set(runs.map(r => r.tp_size))];
  const where = sizes.length === 1 ? `${first.tp_size} × ${first.hardware}` : first.hardware;
  byId("title").textContent = `${first.model} on ${where}`;
  document.title = `tpsim: ${first.model} on ${where}`;
  const whole = best >= 0 ? runs[best] : first;
  const parts = [
    `${first.trace}: ${plural(whole.completed + whole.failed, "request")}, ${count(whole.total_input_tokens)} input and ${count(whole.total_output_tokens)} generated tokens`,
    first.clock === "wall" ? "numeric executor: wall-clock times of the emulated cluster, whose ranks compute on this machine, not on GPUs" : `${first.executor} executor, ${first.clock} clock`,
  ];
  const release = first.sglang_version || option("sglang_version");
  if (release) parts.push(`schedule of SGLang ${release}`);
  if (sweep.length) parts.push(`${count(runs.length)} settings: ${sweep.map(a => `${flagName(a.flag)} ${a.values.join(", ")}`).join("; ")}`);
  byId("subtitle").textContent = parts.join(" · ");
}

// A server argument that all runs share.
const option = name => { const o = report.options.find(o => o.name === name); return o?.values.length === 1 ? o.values[0] : undefined; };
const levels = () => option("goodput") || "the service levels";

function answer() {
  const box = byId("answer");
  for (const sentence of new Set(runs.flatMap(r => r.no_server || []))) box.append(element("p", `Not measured: ${sentence}`, "why warn"));
  const winner = runs[best] || (runs.length === 1 ? runs[0] : undefined);
  const lead = element("p", undefined, "lead");
  if (best >= 0 && runs.length > 1) {
    lead.append(element("strong", labels[best]), document.createTextNode(" serves this workload best"));
    box.append(lead, element("p", report.best_reason.replace(/\b\d{5,}\b/g, n => count(Number(n))), "why"));
    if (report.certainty) box.append(element("p", report.certainty, report.ties ? "why warn" : "why"));
  } else if (winner) {
    lead.append(element("strong", labels[0]), document.createTextNode(` serves ${show(winner.total_throughput)} tokens/s`));
    box.append(lead);
  } else {
    lead.textContent = report.best_reason ? `No best setting: ${report.best_reason}` : "No best setting";
    box.append(lead);
  }
  if (report.launch) box.append(element("pre", report.launch.join("\n"), "launch"));
  if (!winner) return;
  const tiles = element("div", undefined, "tiles");
  const tile = (name, value, unit, more) => tiles.append(within(element("div", undefined, "tile"), element("div", name, "name"),
    within(element("div", value + " ", "value"), element("small", unit)), element("div", more, "more")));
  // Where a measurement would lie, of a run that was priced.
  const likely = (figure, text) => { const b = winner.error_bands?.bands.find(b => b.figure === figure); return b ? `; likely ${text(b.low)} to ${text(b.high)} if measured` : ""; };
  const time = v => { const [value, unit] = milliseconds(v).split(" "); return [value, unit ?? ""]; };
  tile("Throughput", show(winner.total_throughput), "tokens/s", `${show(winner.output_throughput)} of them generated; ${show(winner.request_throughput)} requests/s`);
  tile("Time to first token", ...time(winner.mean_ttft_ms), `mean; p99 ${milliseconds(winner.p99_ttft_ms)}${likely("mean_ttft_ms", milliseconds)}`);
  tile("Time per output token", ...time(winner.mean_tpot_ms), `mean; p99 ${milliseconds(winner.p99_tpot_ms)}${likely("mean_tpot_ms", milliseconds)}`);
  tile("Whole request", ...time(winner.mean_e2e_latency_ms), `mean; p99 ${milliseconds(winner.p99_e2e_latency_ms)}${likely("mean_e2e_latency_ms", milliseconds)}`);
  if (winner.request_goodput != null) tile("Goodput", show(winner.request_goodput), "requests/s", `${percent(winner.goodput_share)} of the requests within ${levels()}`);
  if (winner.max_goodput_rate != null) tile("Highest rate", show(winner.max_goodput_rate), "requests/s", `that keeps ${winner.max_goodput_search ? percent(winner.max_goodput_search.goodput_share) + " of the requests within " : ""}${levels()}`);
  tile("Prefix cache", winner.hit_rate_unknown ? "unknown" : percent(winner.cache_hit_rate), "", `${winner.hit_rate_unknown ? "hit rate: the trace has lengths, no contents" : "of the prompt tokens found"}; KV pool ${percent(winner.peak_kv_usage)} full at most${winner.swa_pool_tokens ? `, window pool ${percent(winner.peak_swa_usage)}` : ""}`);
  box.append(tiles);
  if (report.best_by_load?.length) bestByLoad(box);
}
// Where the load varies, one setting seldom is the best for all of it.
function bestByLoad(box) {
  const goodput = runs.some(r => r.request_goodput != null);
  const table = element("table", undefined, "loads");
  table.append(within(element("tr"), ...["at", "the best setting is"].map(t => element("th", t, "text")),
    ...["tokens/s", "mean latency", "mean TTFT", "mean TPOT", ...(goodput ? ["goodput"] : [])].map(t => element("th", t))));
  for (const { load, setting } of report.best_by_load) {
    const i = runs.findIndex(r => sameSettings(r.settings, setting));
    if (i < 0) continue;
    const r = runs[i], rest = sweep.filter(a => !(a.flag in load)).map(a => settingText(a.flag, settingOf(r, a.flag))).join(" · ");
    table.append(within(element("tr"), element("td", Object.entries(load).map(([flag, value]) => settingText(flag, value)).join(" · "), "text"), element("td", rest, "text wrap"),
      ...[show(r.total_throughput), milliseconds(r.mean_e2e_latency_ms), milliseconds(r.mean_ttft_ms), milliseconds(r.mean_tpot_ms), ...(goodput ? [percent(r.goodput_share)] : [])].map(t => element("td", t))));
  }
  box.append(within(element("div", undefined, "scroll"), table));
}

function notices() {
  // The same thing said of many settings is said once.
  const notice = (head, sentences) => {
    if (!sentences.length) return;
    const box = within(element("div", undefined, "notice"), element("b", head + " "));
    if (sentences.length <= 5) {
      sentences.forEach((s, k) => box.append(...(k ? [element("br")] : []), document.createTextNode(s)));
    } else {
      const more = within(element("details"), element("summary", `${count(sentences.length)} of ${count(runs.length)} settings, the first: ${sentences[0]}`));
      sentences.forEach(s => more.append(element("div", s)));
      box.append(more);
    }
    byId("notices").append(box);
  };
  const of = (i, text) => runs.length > 1 ? `${labels[i]}: ${text}` : text;
  const each = text => runs.flatMap((r, i) => { const t = text(r); return t ? [of(i, t)] : []; });
  notice("Stopped early.", each(r => r.stopped_early ? `${plural(r.completed, "request")} were finished` : ""));
  if (report.planned_runs > runs.length) notice("Not finished.", [`${count(runs.length)} of ${plural(report.planned_runs, "setting")} were run`]);
  notice("Overload.", each(r => r.overload?.message));
  notice("Turns sent early.", each(r => r.early_turns > 0 ? `${count(r.early_turns)} of ${plural(r.turns, "turn")} were sent before the answer they reply to had ended, at the trace's times` : ""));
  notice("Highest rate not found.", each(r => r.max_goodput_search && r.max_goodput_rate == null ? r.max_goodput_search.message : ""));
  notice("Settings that cannot be carried out.", (report.refused || []).map(({ settings, reason }) => `${Object.entries(settings).map(([flag, value]) => settingText(flag, value)).join(" · ")}: ${reason}`));
  notice("Left out.", report.left_out || []);
  notice("Beyond what was measured.", runs.flatMap((r, i) => (r.extrapolations || []).map(e => of(i, e.message))));
  notice("Many samples.", each(r => r.percentile_error ? `percentiles and distributions are within ${+(r.percentile_error * 100).toPrecision(2)} %; means are exact` : ""));
  notice("Refused.", each(r => r.failed > 0 ? `${plural(r.failed, "request")} longer than the context or the KV pool` : ""));
  const unknown = [...new Set(report.calibration.filter(c => c.status === "uncalibrated").map(c => c.operator_class))];
  if (unknown.length && runs[0].clock !== "wall") {
    byId("calibration-note").append(within(element("span"), element("span", `No measurement stands behind ${unknown.join(", ")}. `, "warn")));
  }
}
