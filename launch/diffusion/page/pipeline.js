// The page of a pipeline's report: one request (generation), settings against each other (comparison), or a load (load).
const gib = v => `${three(v / 2 ** 30)} GiB`;
const palette = ["--p0", "--p1", "--p2", "--p3", "--p4", "--p6", "--p5"];
const words = ["Stage", "Component", "Operator", "Setting", "Size", "Shared by", "Why", "Role", "Backend", "Reason", "Class", "Where"];
function table(title, heads, rows) {
  if (!rows.length) return;
  const t = element("table");
  const line = (tag, cells) => {
    const row = element("tr");
    cells.forEach((cell, i) => row.append(styled(element(tag, cell), { textAlign: words.includes(heads[i]) ? "left" : "right" })));
    t.append(row);
  };
  line("th", heads);
  rows.forEach(row => line("td", row));
  within(byId("tables"), element("h2", title), within(element("div", undefined, "scroll framed"), t));
}
function bars(title, note, labels, sets, unit) {
  const canvas = chartCard("charts", title, note);
  canvas.parentElement.style.height = `${Math.max(250, 70 + 20 * labels.length)}px`;
  paint(() => draw(canvas, {
    type: "bar",
    data: { labels, datasets: sets.map((s, i) => ({ ...s, backgroundColor: style(palette[i % palette.length]) })) },
    options: { indexAxis: "y", plugins: { legend: { display: sets.length > 1, position: "bottom" } },
      scales: { x: chartAxis(unit, { stacked: true, beginAtZero: true }), y: { stacked: true, grid: { display: false }, ticks: { autoSkip: labels.length > 100 } } } },
  }));
}
function list(title, sentences) {
  if (!sentences || !sentences.length) return;
  const items = element("ul");
  sentences.forEach(s => items.append(element("li", s)));
  within(byId("tables"), element("h2", title), items);
}

byId("title").textContent = `${report.model} on ${report.hardware}`;
const lead = text => byId("answer").append(element("p", text, "lead"));
const why = text => byId("answer").append(element("p", text, "why"));
const likely = l => { const b = l?.bands.find(b => b.figure === "seconds"); return b ? `; likely ${seconds(b.low)} to ${seconds(b.high)} if measured` : ""; };
const because = l => { const b = l?.bands.find(b => b.figure === "seconds"); if (b) why(`Likely: ${percent(l.coverage)} of measured runs lie so near; as wide as predictions of ${plural(b.loads, "measured run")} ${b.like} were off`); };

if (report.kind === "generation") {
  const r = report.request;
  byId("subtitle").textContent = `${r.width} × ${r.height}, ${plural(r.num_frames, "frame")}, ${plural(r.num_inference_steps, "step")}${r.guided ? ", guided" : ""}; ${plural(report.parallelism.num_gpus, "GPU")}: ${report.parallelism.text}`;
  lead(`${seconds(report.seconds)} for a request, ${seconds(report.step_seconds)} for a step${likely(report.likely)}`);
  why(report.fits ? `${gib(report.peak_bytes)} of ${gib(report.memory_bytes)} of a GPU's memory` : `Does not fit: ${report.too_large}`);
  because(report.likely);
  byId("charts-title").textContent = "Where the time and the memory go";
  const names = [...new Set(report.stages.flatMap(s => s.operators.map(o => o.name)))];
  const stages = report.stages.map(s => [s.name, ...s.component.split(" ")]);  // a line each
  bars("Seconds by stage and operator", "", stages, names.map(name => ({ label: name,
    data: report.stages.map(s => s.operators.filter(o => o.name === name).reduce((a, o) => a + o.seconds, 0)) })), "seconds");
  bars("Peak memory by stage", "of one GPU", stages, [{ label: "GiB", data: report.stages.map(s => s.peak_bytes / 2 ** 30) }], "GiB");
  table("Stages", ["Stage", "Component", "Time", "GPU", "Host", "Over links", "From the host", "Peak memory", "Passes"],
    report.stages.map(s => [s.name, s.component, seconds(s.seconds), seconds(s.device_seconds), seconds(s.host_seconds), gib(s.sent_bytes), gib(s.host_link_bytes), gib(s.peak_bytes), count(s.passes)]));
  table("Operators", ["Component", "Operator", "Time", "TFLOP", "GB", "Kernels"],
    report.stages.flatMap(s => s.operators.map(o => [s.component, o.name, seconds(o.seconds), three(o.flops / 1e12), three(o.bytes / 1e9), count(o.kernels)])));
} else if (report.kind === "comparison") {
  byId("subtitle").textContent = report.axes.map(a => `${a.flag} ${a.values.join(", ")}`).join("; ");
  for (const b of report.best) {
    lead(`★ ${b.label}: ${seconds(b.seconds)}${b.workload ? ` at ${b.workload}` : ""}${likely(b.likely)}`);
    because(b.likely);
    if (b.ties.length) why(`Predictions cannot tell it from ${b.ties.join("; ")} (within ${percent(b.tie_error)})`);
  }
  const short = run => (run.best ? "★ " : "") + run.label.replaceAll("--", "").replaceAll(",", " ·");
  byId("charts-title").textContent = "Every setting";
  for (const workload of [...new Set(report.runs.map(r => r.workload))]) {
    const runs = report.runs.filter(r => r.workload === workload);
    bars(`Seconds for an output${workload ? ` at ${workload}` : ""}`, "less is better", runs.map(short), [{ label: "seconds", data: runs.map(r => r.seconds) }], "seconds");
    bars(`GPU seconds for an output${workload ? ` at ${workload}` : ""}`, "what it costs", runs.map(short), [{ label: "GPU seconds", data: runs.map(r => r.gpu_seconds_per_output) }], "GPU seconds");
  }
  table("Settings", ["Setting", "Size", "GPUs", "Time", "Step", "Speed-up", "GPU seconds an output", "Peak memory", "Shared by"],
    report.runs.map(r => [(r.best ? "★ " : r.tie ? "= " : "") + r.label, r.workload, count(r.num_gpus), seconds(r.seconds), seconds(r.step_seconds), `${three(r.speedup)} ×`, three(r.gpu_seconds_per_output), gib(r.peak_bytes), r.parallelism]));
  table("Replaced", ["Setting", "Why"], report.replaced.map(r => [r.label, r.reason]));
  table("Refused", ["Setting", "Why"], report.refused.map(r => [r.label, r.reason]));
} else {
  byId("subtitle").textContent = `${plural(report.requests, "request")}; ${plural(report.parallelism.num_gpus, "GPU")}: ${report.parallelism.text}`;
  lead(`${seconds(report.latency.mean)} mean latency, ${three(report.outputs_per_second * 3600)} outputs an hour`);
  why(`half within ${seconds(report.latency.p50)}, 99 % within ${seconds(report.latency.p99)}; busy ${percent(report.busy_fraction)} of the time`);
  byId("charts-title").textContent = "Requests in the order of arrival";
  bars("Latency", "waiting and running", report.rows.map(r => `${r.id}`), [{ label: "waiting", data: report.rows.map(r => r.start - r.arrival) }, { label: "running", data: report.rows.map(r => r.end - r.start) }], "seconds");
}
table("Attention", ["Component", "Role", "Backend", "Reason"], (report.attention || []).map(a => [a.component, a.role, a.backend, a.reason]));
table("Weights", ["Component", "Class", "Parameters", "Size", "Where"], (report.components || []).map(c => [c.name, c.class, count(c.parameters), gib(c.bytes), c.residency]));
list("Notes", report.notes);
list("Not calibrated", report.uncalibrated);
