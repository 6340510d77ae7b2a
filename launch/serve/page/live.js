// The page of a live server: asks for its figures once a second, and shows them.
const kMostSamples = 600;  // LiveStatistics::kMostSamples
let latest = null;         // the last answer
let samples = [];          // oldest first
let shownSamples = 120;

// --- Curves: [title, unit, lines]; a line is [name, colour, value of a sample, more].
const rate = name => s => s.seconds > 0 ? s[name] / s.seconds : null;
const pool = s => s.kv_used + s.kv_cached + s.kv_free;
const ofPool = name => s => pool(s) > 0 ? 100 * s[name] / pool(s) : null;
const curves = [
  ["Requests", "running and waiting", [["running", "--c0", s => s.running], ["waiting", "--c1", s => s.waiting]]],
  ["KV cache", "% of the pool", [["held by requests", "--c0", ofPool("kv_used"), { fill: "origin", stack: "kv" }], ["cached", "--c2", ofPool("kv_cached"), { fill: "-1", stack: "kv" }]], { max: 100, stacked: true }],
  ["Prefix cache hit rate", "% of prompt tokens", [["hit rate", "--c2", s => s.prompt > 0 ? 100 * s.cached / s.prompt : null]], { max: 100 }],
  ["Tokens", "tokens/s", [["prefill", "--m0", rate("prefill")], ["decode", "--m1", rate("decode")]]],
  ["Time to first token", "ms, mean", [["TTFT", "--c0", s => s.ttft_ms > 0 ? s.ttft_ms : null]]],
  ["Inter-token latency", "ms, mean", [["ITL", "--c0", s => s.inter_token_ms > 0 ? s.inter_token_ms : null]]],
  ["Answers", "requests/s", [["finished", "--c2", rate("finished")], ["aborted", "--c1", rate("aborted")], ["rejected", "--c3", rate("rejected")]]],
  ["Passes", "% of the time", [["GPUs busy", "--c0", s => s.seconds > 0 ? Math.min(100, 100 * s.gpu / s.seconds / latest.description.replicas) : null]], { max: 100 }],
];
const drawnCurves = [];
function points(value) {
  return samples.slice(-shownSamples).map(s => ({ x: s.time, y: value(s) }));
}
function curve([title, unit, lines, more = {}]) {
  const canvas = chartCard("curves", title, unit);
  const entry = { lines, chart: null };
  drawnCurves.push(entry);
  paint(() => {
    const datasets = lines.map(([label, colour, value, options]) => Object.assign({ label, data: points(value), borderColor: style(colour), backgroundColor: style(colour) + "33", borderWidth: 1.75, pointRadius: 0, spanGaps: true }, options));
    entry.chart = draw(canvas, {
      type: "line", data: { datasets },
      options: {
        parsing: false, normalized: true,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        plugins: { legend: { display: lines.length > 1, position: "bottom", labels: { boxWidth: 12, boxHeight: 12 } }, tooltip: { callbacks: { title: c => `at ${seconds(c[0].raw.x)}`, label: c => `${c.dataset.label}: ${show(c.raw.y)}` } } },
        scales: { x: chartAxis("", { type: "linear", title: { display: false }, ticks: { maxRotation: 0, maxTicksLimit: 7, includeBounds: false, callback: tickSeconds } }),
          y: chartAxis("", { beginAtZero: true, suggestedMax: more.max ? undefined : 1, max: more.max, stacked: more.stacked, title: { display: false }, ticks: { maxTicksLimit: 6 } }) },
      },
    });
  });
}
function drawCurves() {
  const shown = samples.slice(-shownSamples), first = shown[0]?.time, last = shown.at(-1)?.time;
  for (const { lines, chart } of drawnCurves) {
    lines.forEach(([, , value], k) => { chart.data.datasets[k].data = points(value); });
    Object.assign(chart.options.scales.x, { min: first, max: last > first ? last : undefined });
    chart.update("none");
  }
}

// --- Figures
const tileBox = styled(element("div", undefined, "tiles"), { gridTemplateColumns: "repeat(auto-fit, minmax(140px, 1fr))" });
const tiles = new Map();
function tile(name, value, unit, more) {
  let parts = tiles.get(name);
  if (!parts) {
    const [number, text, small] = [document.createTextNode(""), element("small"), element("div", undefined, "more")];
    tileBox.append(within(element("div", undefined, "tile"), element("div", name, "name"), within(element("div", undefined, "value"), number, text), small));
    tiles.set(name, parts = { number, text, small });
  }
  parts.number.data = `${value} `;
  parts.text.textContent = unit;
  parts.small.textContent = more;
}
const timeOf = (figures, q) => figures.count ? milliseconds(figures[q]) : "–";
function answer(d) {
  const all = d.kv_used + d.kv_cached + d.kv_free;
  tile("Running", count(d.running), "requests", `of at most ${count(d.description.max_running_requests)}`);
  tile("Waiting", count(d.waiting), "requests", `${plural(d.open_connections, "open connection")}, ${plural(d.open_streams, "stream")}`);
  tile("KV cache held", all ? (100 * d.kv_used / all).toFixed(1) : "–", "%", `${count(d.kv_used)} of ${count(all)} tokens, ${count(d.kv_cached)} more cached`);
  tile("Hit rate", (100 * d.cache_hit_rate).toFixed(1), "%", "of the last seconds' prompt tokens");
  tile("Generation", count(d.gen_throughput), "tokens/s", `GPUs busy ${percent(Math.min(1, d.utilization))}`);
  tile("TTFT, median", timeOf(d.ttft, "p50_ms"), "", `p99 ${timeOf(d.ttft, "p99_ms")}`);
  tile("ITL, median", timeOf(d.inter_token, "p50_ms"), "", `p99 ${timeOf(d.inter_token, "p99_ms")}`);
  tile("Finished", count(d.finished), "requests", `${count(d.aborted)} aborted, ${count(d.rejected)} rejected`);
}
function rows(id, entries) {
  byId(id).replaceChildren(...entries.map(([name, value]) => within(element("div"), element("span", name), element("b", value))));
}
function latencies(d) {
  const body = byId("latencies");
  const names = [["Time to first token", d.ttft], ["Inter-token latency", d.inter_token], ["Latency of a request", d.e2e], ["Time in the queue", d.queue_time]];
  body.replaceChildren(within(element("tr"), ...["", "values", "mean", "median", "p90", "p99"].map((t, k) => element("th", t, k ? "" : "text"))),
    ...names.map(([name, f]) => within(element("tr"), element("td", name, "text"), element("td", count(f.count)), ...["mean_ms", "p50_ms", "p90_ms", "p99_ms"].map(q => element("td", timeOf(f, q))))));
}
function totals(d) {
  rows("totals", [["accepted requests", count(d.accepted)], ["finished", count(d.finished)], ["aborted by clients", count(d.aborted)],
    ["rejected: too long", count(d.rejected)], ["invalid requests", count(d.invalid)], ["prompt tokens", count(d.prompt_tokens)],
    ["of them cached", d.prompt_tokens ? percent(d.cached_tokens / d.prompt_tokens) : "–"], ["generated tokens", count(d.generation_tokens)],
    ["retractions", count(d.retractions)], ["evicted tokens", count(d.evicted_tokens)], ["passes", count(d.steps)],
    ["replayed as graphs", d.steps ? percent(d.graph_steps / d.steps) : "–"], ["time of passes", seconds(d.gpu_seconds)],
    ...(d.accept_length > 0 ? [["accepted length", show(d.accept_length)]] : []),
    ...(d.swa_pool ? [["window pool held", percent(d.swa_used / d.swa_pool)]] : []), ...(d.state_pool ? [["states held", percent(d.states_used / d.state_pool)]] : []),
    ["open connections", count(d.open_connections)], ["merged pieces for slow readers", count(d.merged_deltas)],
    ["simulated time", seconds(d.now)], ["time since the start, wall", seconds(d.wall_uptime)]]);
}
// --- Replicas, of which the page can show one alone.
let replica = -1;  // -1: all together
function replicas(d) {
  const names = ["", "requests", "finished", "running", "waiting", "KV held", "hit rate", "tokens/s", "busy"];
  if (!d.replicas.length) return;
  if (byId("fleet").hidden) {
    byId("fleet").hidden = false;
    byId("router").textContent = d.description.router_policy ? `behind a router, ${d.description.router_policy}` : "of one server";
    switchOf(byId("which"), [[-1, "all"], ...d.replicas.map((_, i) => [i, `${i}`])], -1, n => { replica = n; samples = []; look(); });
  }
  byId("replicas").replaceChildren(within(element("tr"), ...names.map((t, k) => element("th", t, k ? "" : "text"))),
    ...d.replicas.map((r, i) => within(element("tr"), element("td", `${i}: ${r.model && r.model !== d.description.model ? `${r.model}, ` : ""}${r.hardware}`, "text"), ...[count(r.accepted), count(r.finished), count(r.running), count(r.waiting),
      r.kv_pool ? percent(r.kv_used / r.kv_pool) : "–", r.prompt_tokens ? percent(r.cached_tokens / r.prompt_tokens) : "–", count(r.gen_throughput), percent(Math.min(1, r.utilization))].map(t => element("td", t)))));
}
let configured = "";
function configuration(d) {
  const c = d.description, text = JSON.stringify(c);
  if (text === configured) return;
  configured = text;
  document.title = `${c.model}: tpsim serve`;
  byId("title").textContent = c.model;
  byId("subtitle").textContent = [c.hardware, c.attention_backend, `tp ${c.tp_size}`, ...(c.pp_size > 1 ? [`pp ${c.pp_size}`] : []), ...(c.dp_size > 1 ? [`dp ${c.dp_size}`] : []),
    `${c.executor} passes`, c.speedup === 1 ? "at the speed of the wall clock" : `${show(c.speedup)} times as fast as the wall clock`].join(" · ");
  rows("configuration", [["model path", c.model_path], ["tokenizer", c.real_tokenizer ? c.tokenizer : `${c.tokenizer} (not the model's own)`], ["page size", count(c.page_size)],
    ["KV pool", `${count(c.max_total_num_tokens)} tokens`], ["context length", `${count(c.context_length)} tokens`], ["running requests at most", count(c.max_running_requests)],
    ["speculative decoding", c.speculative ? "on" : "off"], ["speed", `${show(c.speedup)} simulated seconds a second`]]);
}

// --- Notices
function notices(list) {
  const box = byId("notices");
  if (box.textContent === list.map(([title, text]) => `${title} ${text}`).join("")) return;
  box.replaceChildren(...list.map(([title, text]) => within(element("div", undefined, "notice"), element("b", title), document.createTextNode(" " + text))));
}
const kLag = 0.1;  // seconds of the wall, which clients would notice
function notesOf(d) {
  const list = [];
  if (d.draining) list.push(["The server is being shut down.", "It answers what it has and accepts nothing new."]);
  if (d.wall_lag > kLag) list.push(["The simulation is behind the wall clock.", `${seconds(d.wall_lag)}: this machine cannot keep up, latencies that clients see are longer than the model's.`]);
  return list;
}

// --- Asking
// A server with --api-key wants it; after # it stays in the browser.
const secret = new URLSearchParams(location.hash.slice(1)).get("key");
async function ask() {
  const after = samples.at(-1)?.time ?? -1;
  const answered = await fetch(`live/data?after=${after}${replica < 0 ? "" : `&replica=${replica}`}`, { cache: "no-store", headers: secret ? { Authorization: `Bearer ${secret}` } : {} });
  if (answered.status === 401 || answered.status === 403) throw new Error("It wants its key: open this page with #key=… after the address.");
  if (!answered.ok) throw new Error(`It answered ${answered.status}.`);
  return answered.json();
}
function take(d) {
  if (latest && d.now < latest.now) samples = [];  // another server
  latest = d;
  for (const values of d.samples) samples.push(Object.fromEntries(values.map((v, k) => [d.columns[k], v])));
  samples = samples.slice(-kMostSamples);
  configuration(d);
  answer(d);
  latencies(d);
  totals(d);
  replicas(d);
  drawCurves();
  notices(notesOf(d));
}
const kEvery = 1000, kRetry = 3000;  // milliseconds
let timer = 0;
async function look() {
  clearTimeout(timer);
  if (document.hidden) return;  // nobody looks: the server has nothing to do
  let next = kEvery;
  try {
    const asked = replica, d = await ask();
    if (asked === replica) take(d);
  } catch (error) {
    next = kRetry;
    notices([["The server cannot be asked.", error.message]]);
  }
  clearTimeout(timer);
  timer = setTimeout(look, next);
}

byId("answer").append(tileBox);
switchOf(byId("tools"), [[30, "last 30 s"], [120, "2 min"], [kMostSamples, "10 min"]], shownSamples, n => { shownSamples = n; drawCurves(); });
byId("tools").append(element("span", "of the wall clock"));
curves.forEach(curve);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCurves);  // after they were painted anew
document.addEventListener("visibilitychange", look);
look();
