// Distributions and timelines.
const series = (i, data) => ({ run: i, label: labels[i], data, borderColor: style(`--c${colourIndex(i)}`), backgroundColor: style(`--c${colourIndex(i)}`), borderWidth: i === best ? 2.5 : 1.75, pointRadius: data.length < 3 ? 3 : 0, hidden: hidden.has(i) });

// Quantile of the normal distribution (Acklam's rational approximation, relative error below 1.2e-9).
function probit(p) {
  const a = [-39.69683028665376, 220.9460984245205, -275.9285104469687, 138.357751867269, -30.66479806614716, 2.506628277459239];
  const b = [-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572, 1];
  const c = [-0.007784894002430293, -0.3223964580411365, -2.400758277161838, -2.549732539343734, 4.374664141464968, 2.938163982698783];
  const d = [0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1];
  const poly = (coefficients, x) => coefficients.reduce((sum, k) => sum * x + k, 0);
  if (p > 0.97575) return -probit(1 - p);
  if (p < 0.02425) { const q = Math.sqrt(-2 * Math.log(p)); return poly(c, q) / poly(d, q); }
  const q = p - 0.5, r = q * q;
  return poly(a, r) * q / poly(b, r);
}
const quantiles = [[0.01, "p1"], [0.1, "p10"], [0.5, "p50"], [0.9, "p90"], [0.99, "p99"], [0.999, "p99.9"]];

// Values over quantiles: equal distributions are equal lines, and a tail has as much room as the middle.
function distribution(title, name) {
  const drawn = shown.filter(i => runs[i][name]?.upper_ms?.length);
  if (!drawn.length) return;
  const canvas = chartCard("distributions", title, "less is better");
  paint(() => {
    const datasets = drawn.map(i => {
      let below = 0;
      const h = runs[i][name];
      return series(i, h.upper_ms.map((y, k) => ({ x: probit(Math.min(0.9999, Math.max(0.0001, below += h.fraction[k]))), y })));
    });
    draw(canvas, {
      type: "line", data: { datasets },
      options: {
        interaction: { mode: "nearest", axis: "x", intersect: false },
        plugins: { legend: { display: false }, tooltip: { callbacks: { title: () => "", label: c => `${c.dataset.label}: ${milliseconds(c.raw.y)}` } } },
        scales: {
          x: chartAxis("", { type: "linear", min: probit(0.005), max: probit(0.9993), title: { display: false },
            afterBuildTicks: s => { s.ticks = quantiles.map(([q]) => ({ value: probit(q) })); },
            ticks: { autoSkip: false, maxRotation: 0, callback: (v, k) => quantiles[k][1] } }),
          y: chartAxis("", { type: "logarithmic", title: { display: false }, afterBuildTicks: s => { s.ticks = logTicks(s.min, s.max).map(value => ({ value })); }, ticks: { autoSkip: false, callback: tickTime } }),
        },
      },
    });
  });
}
function distributions() {
  distribution("Time to first token", "ttft_histogram");
  distribution("Time per output token", "tpot_histogram");
  distribution("Inter-token latency", "itl_histogram");
  byId("distributions-section").hidden = !byId("distributions").children.length;
}

// The probes of the search for the highest rate.
function goodputSearch() {
  const searched = shown.filter(i => runs[i].max_goodput_search?.probes?.some(p => p.offered_rate != null));
  if (!searched.length) return;
  const canvas = chartCard("metrics", "Good requests over the request rate", `dashed: ${percent(runs[searched[0]].max_goodput_search.goodput_share)}, which is wanted`);
  paint(() => {
    const datasets = searched.map(i => Object.assign(series(i, runs[i].max_goodput_search.probes.filter(p => p.offered_rate != null)
      .map(p => ({ x: p.offered_rate, y: 100 * p.goodput_share })).sort((a, b) => a.x - b.x)), { pointRadius: 3 }));
    const rates = datasets.flatMap(d => d.data.map(p => p.x)), wanted = 100 * runs[searched[0]].max_goodput_search.goodput_share;
    datasets.push({ label: "wanted", data: [Math.min(...rates), Math.max(...rates)].map(x => ({ x, y: wanted })), borderColor: style("--soft"), borderDash: [4, 4], borderWidth: 1, pointRadius: 0 });
    draw(canvas, { type: "line", data: { datasets }, options: {
      interaction: { mode: "nearest", intersect: false },
      plugins: { legend: { display: false }, tooltip: { callbacks: { title: c => `${show(c[0].raw.x)} requests/s`, label: c => `${c.dataset.label}: ${show(c.raw.y)} %` } } },
      scales: { x: chartAxis("requests/s", { type: "linear" }), y: chartAxis("%", { beginAtZero: true, max: 100 }) } } });
  });
}

// The axis of time ends with the trace; what runs on is marked, not drawn.
const withTimeline = shown.filter(i => runs[i].timeline?.time?.length);
const ends = i => { const t = runs[i].timeline.time; return Math.max(runs[i].duration, t.at(-1)); };
const traceEnd = (() => {
  if (!withTimeline.length) return 0;
  const fastest = Math.min(...withTimeline.map(ends));
  const last = Math.min(...withTimeline.map(i => runs[i].last_arrival_time || 0));
  return last >= 0.25 * fastest ? last : fastest;  // all sent at once: the trace says nothing of the time
})();
const runEnd = Math.max(0, ...withTimeline.map(ends));
// A backend that keeps up needs a moment more for the last requests.
const drained = Math.max(1.02 * traceEnd, Math.min(1.1 * traceEnd, ...withTimeline.map(ends)));
const cut = runEnd <= 1.02 * drained ? runEnd : drained;
let wholeRun = false;

const kPoints = 64;  // more are a thicket
// Means over equal intervals of the axis; `weigh` is the weight of a point, null where it says nothing.
function thinned(timeline, value, weigh, end) {
  const width = end / kPoints, points = [];
  let bin = -1, sum = 0, weight = 0;
  const flush = () => { if (bin >= 0) points.push({ x: (bin + 0.5) * width, y: weight > 0 ? sum / weight : null }); };
  timeline.time.forEach((t, k) => {
    if (Math.floor(t / width) !== bin) { flush(); bin = Math.floor(t / width); sum = weight = 0; }
    const w = weigh ? weigh(timeline, k) : 1;
    if (w > 0) { sum += w * value(timeline, k); weight += w; }
  });
  flush();
  return points;
}
const runsOn = {
  id: "runsOn",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea: area, scales: { x, y } } = chart;
    ctx.save();
    if (traceEnd > 0 && traceEnd < x.max * 0.999) {
      ctx.strokeStyle = style("--soft");
      ctx.setLineDash([4, 4]);
      ctx.beginPath();
      ctx.moveTo(x.getPixelForValue(traceEnd), area.top);
      ctx.lineTo(x.getPixelForValue(traceEnd), area.bottom);
      ctx.stroke();
    }
    chart.data.datasets.forEach((d, k) => {
      if (!chart.isDatasetVisible(k) || ends(d.run) <= x.max * 1.005) return;
      const point = d.data.filter(p => p.x <= x.max && p.y !== null).at(-1);
      if (!point) return;
      const at = y.getPixelForValue(point.y);
      ctx.fillStyle = d.borderColor;
      ctx.beginPath();
      ctx.moveTo(area.right + 1, at - 6);
      ctx.lineTo(area.right + 11, at);
      ctx.lineTo(area.right + 1, at + 6);
      ctx.fill();
    });
    ctx.restore();
  },
};
function timeline(title, unit, value, weigh, max) {
  const canvas = chartCard("timelines", title, unit);
  const painter = () => {
    const end = wholeRun ? runEnd : cut;
    const datasets = withTimeline.map(i => Object.assign(series(i, thinned(runs[i].timeline, value, weigh, end).filter(p => p.x <= end * 1.02)), { spanGaps: true }));
    draw(canvas, {
      type: "line", data: { datasets }, plugins: [runsOn],
      options: {
        interaction: { mode: "nearest", axis: "x", intersect: false },
        layout: { padding: { right: 13 } },
        plugins: { legend: { display: false }, tooltip: { callbacks: { title: c => `at ${seconds(c[0].raw.x)}`, label: c => `${c.dataset.label}: ${show(c.raw.y)} ${unit}` } } },
        scales: { x: chartAxis("", { type: "linear", min: 0, max: end, title: { display: false }, afterBuildTicks: s => { s.ticks = niceTicks(end, 6).map(value => ({ value })); }, ticks: { maxRotation: 0, callback: tickSeconds } }),
          y: chartAxis("", { beginAtZero: true, title: { display: false }, max, ticks: { maxTicksLimit: 6 } }) },
      },
    });
  };
  paint(painter);
}
function timelines() {
  const section = byId("timelines-section");
  section.hidden = !withTimeline.length;
  if (section.hidden) return;
  const on = withTimeline.filter(i => ends(i) > cut * 1.005);
  if (on.length) {
    const note = byId("timelines-note");
    const text = element("span");
    // Where answers are waited for, each setting has its own last arrival.
    const lasts = withTimeline.map(i => runs[i].last_arrival_time || 0), first = lasts.indexOf(Math.min(...lasts));
    const whose = Math.max(...lasts) > 1.001 * lasts[first] ? ` of ${labels[withTimeline[first]]}` : "";
    const ended = traceEnd === lasts[first] ? `the last request${whose} arrives at ${seconds(traceEnd)}` : `the fastest ends at ${seconds(traceEnd)}`;
    const say = () => {
      text.textContent = (wholeRun ? `Dashed: ${ended}. ` : `Cut where ${ended} (dashed). ▸ runs on: `) +
        (wholeRun ? "" : on.map(i => `${withTimeline.length > 1 ? labels[i] + " " : ""}until ${seconds(ends(i))}`).join(", ") + ". ");
    };
    const all = element("button", "show all of it");
    all.type = "button";
    all.setAttribute("aria-pressed", false);
    all.addEventListener("click", () => {
      wholeRun = !wholeRun;
      all.setAttribute("aria-pressed", wholeRun);
      say();
      repaint();
    });
    say();
    note.append(text, all);
  }
  timeline("Waiting requests", "requests", (t, k) => t.queue[k]);
  timeline("Running requests", "requests", (t, k) => t.running[k]);
  timeline("KV cache held by running requests", "% of the pool", (t, k) => 100 * t.kv_usage[k]);
  // Weighted with the prompt tokens: those not found were prefilled.
  timeline("Prefix cache hit rate", "% of prompt tokens", (t, k) => 100 * t.cache_hit_rate[k],
    (t, k) => t.prefill_tokens_per_second[k] / Math.max(0.001, 1 - t.cache_hit_rate[k]), 100);
  timeline("Prefill", "tokens/s", (t, k) => t.prefill_tokens_per_second[k]);
  timeline("Decode", "tokens/s", (t, k) => t.decode_tokens_per_second[k]);
}
