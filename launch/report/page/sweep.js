// Sweeps: throughput against latency, and any figure over any two axes.
const figures = {
  total_throughput: { text: "total throughput", unit: "tokens/s", more: true, show },
  output_throughput: { text: "output throughput", unit: "tokens/s", more: true, show },
  request_throughput: { text: "request throughput", unit: "requests/s", more: true, show },
  request_goodput: { text: "goodput", unit: "requests/s", more: true, show },
  mean_e2e_latency_ms: { text: "mean latency of a request", show: milliseconds },
  p99_e2e_latency_ms: { text: "p99 latency of a request", show: milliseconds },
  mean_ttft_ms: { text: "mean time to first token", show: milliseconds },
  p99_ttft_ms: { text: "p99 time to first token", show: milliseconds },
  mean_tpot_ms: { text: "mean time per output token", show: milliseconds },
  p99_tpot_ms: { text: "p99 time per output token", show: milliseconds },
  p99_itl_ms: { text: "p99 inter-token latency", show: milliseconds },
  cache_hit_rate: { text: "prefix cache hit rate", more: true, show: percent },
};
const figureList = Object.keys(figures).filter(name => runs.some(r => r[name] > 0)).map(name => [name, figures[name].text]);
const better = (figure, a, b) => figures[figure].more ? a > b : a < b;
const usable = [...runs.keys()].filter(i => runs[i].completed > 0);

// --- Pareto
let paretoX = "mean_e2e_latency_ms", paretoY = "total_throughput";
function front() {
  // The report has said it for these two.
  if (paretoX === "mean_e2e_latency_ms" && paretoY === "total_throughput" && runs.some(r => r.pareto)) return usable.filter(i => runs[i].pareto);
  return usable.filter(i => !usable.some(k => {
    const [x, y] = [runs[k][paretoX] - runs[i][paretoX], runs[k][paretoY] - runs[i][paretoY]];
    return x <= 0 && y >= 0 && (x < 0 || y > 0);
  }));
}
const pointLabels = {
  id: "pointLabels",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea: area } = chart;
    const points = chart.getDatasetMeta(0).data, data = chart.data.datasets[0].data;
    const names = shortLabels(data.map(p => p.run));
    const overlap = (p, q) => p.l < q.r && q.l < p.r && p.t < q.b && q.t < p.b;
    const taken = points.map(({ x, y }) => ({ l: x - 5, r: x + 5, t: y - 5, b: y + 5 }));
    ctx.save();
    ctx.font = "12px system-ui, 'Segoe UI', Roboto, sans-serif";
    ctx.textBaseline = "middle";
    for (const n of [...points.keys()].sort((a, b) => (data[b].run === best) - (data[a].run === best))) {
      const { x, y } = points[n], text = (data[n].run === best ? "★ " : "") + names.get(data[n].run);
      const width = ctx.measureText(text).width;
      const places = [[-10 - width, -8], [10, 10], [-10 - width, 8], [10, -10], [-width - 4, -20], [4, 20]];
      const free = places.map(([dx, dy]) => ({ l: x + dx, r: x + dx + width, t: y + dy - 8, b: y + dy + 8 }))
        .find(p => p.l >= area.left && p.r <= area.right && p.t >= area.top - 8 && p.b <= area.bottom && !taken.some(q => overlap(p, q)));
      if (!free) continue;
      taken.push(free);
      ctx.globalAlpha = 0.8;
      ctx.fillStyle = style("--card");
      ctx.fillRect(free.l - 2, free.t, width + 4, 16);
      ctx.globalAlpha = 1;
      ctx.fillStyle = style(data[n].run === best ? "--mark" : "--ink");
      ctx.fillText(text, free.l, (free.t + free.b) / 2);
    }
    ctx.restore();
  },
};
// What all settings of the front have in common is said once.
function common(list) {
  const same = sweep.filter(a => new Set(list.map(i => settingOf(runs[i], a.flag))).size === 1);
  return same.length ? `Pareto front: ${same.map(a => settingText(a.flag, settingOf(runs[list[0]], a.flag))).join(" · ")}` : "Pareto front";
}
function paintPareto() {
  const onFront = new Set(front());
  const point = i => ({ x: runs[i][paretoX], y: runs[i][paretoY], run: i });
  const values = usable.map(i => runs[i][paretoX]).filter(v => v > 0);
  const wide = Math.max(...values) > 20 * Math.min(...values);
  const line = [...onFront].map(point).sort((a, b) => a.x - b.x);
  draw(byId("pareto"), {
    type: "scatter", plugins: [pointLabels],
    data: { datasets: [
      { label: common([...onFront]), data: line, showLine: true, stepped: false, borderColor: style("--mark"), backgroundColor: style("--mark"), borderWidth: 2, pointRadius: c => c.raw?.run === best ? 8 : 5, pointStyle: c => c.raw?.run === best ? "rectRot" : "circle", pointHoverRadius: 8 },
      { label: "others", data: usable.filter(i => !onFront.has(i)).map(point), backgroundColor: style("--soft") + "99", borderColor: style("--soft"), pointRadius: 3.5 },
    ] },
    options: {
      interaction: { mode: "nearest", intersect: true },
      plugins: { legend: { position: "bottom", labels: { usePointStyle: true, boxHeight: 7 } }, tooltip: { callbacks: { label: c => [labels[c.raw.run], `${figures[paretoX].text} ${milliseconds(c.raw.x)}`, `${show(c.raw.y)} ${figures[paretoY].unit}`] } } },
      scales: {
        x: chartAxis(`${figures[paretoX].text}${wide ? " (logarithmic)" : ""} – less is better`, wide
          ? { type: "logarithmic", min: Math.min(...values) / 1.4, max: Math.max(...values) * 1.2, afterBuildTicks: s => { s.ticks = logTicks(s.min, s.max).map(value => ({ value })); }, ticks: { autoSkip: false, callback: tickTime, maxRotation: 0 } }
          : { beginAtZero: true, ticks: { callback: tickTime, maxRotation: 0 } }),
        y: chartAxis(`${figures[paretoY].text}, ${figures[paretoY].unit} – more is better`, { beginAtZero: true }),
      },
    },
  });
}

// --- Heat map
let heatFigure = "total_throughput", heatX, heatY;
const fitting = (i, pairs) => pairs.every(([axis, value]) => !axis || settingOf(runs[i], axis.flag) === value);
function paintHeat() {
  const x = sweep.find(a => a.flag === heatX), y = sweep.find(a => a.flag === heatY && a !== x);
  const others = sweep.filter(a => a !== x && a !== y);
  const chosen = [];  // one row for each value of y: the best setting of each cell
  for (const v of y ? y.values : [""]) {
    chosen.push(x.values.map(u => usable.filter(i => fitting(i, [[x, u], [y, v]]) && runs[i][heatFigure] != null)
      .reduce((a, b) => a === undefined || better(heatFigure, runs[b][heatFigure], runs[a][heatFigure]) ? b : a, undefined)));
  }
  const cells = chosen.flat().filter(i => i !== undefined);
  const amount = i => runs[i][heatFigure];
  // Latencies differ by factors, not by differences.
  const position = v => figures[heatFigure].more ? v : -Math.log(Math.max(v, 1e-9));
  const all = cells.map(i => position(amount(i))), low = Math.min(...all), high = Math.max(...all);
  const bestCell = cells.reduce((a, b) => a === undefined || better(heatFigure, amount(b), amount(a)) ? b : a, undefined);
  const mix = t => style("--heat-low").split(" ").map((from, k) => Math.round(+from + t * (style("--heat-high").split(" ")[k] - from)));
  const table = byId("heat");
  table.replaceChildren();
  const header = (text, name) => { const th = element("th", text, name); th.scope = "col"; return th; };
  const over = within(element("tr"), element("th"));
  over.append(Object.assign(header(flagName(x.flag)), { colSpan: x.values.length, style: "text-align:center" }));
  table.append(over, within(element("tr"), element("th", y ? flagName(y.flag) : ""), ...x.values.map(u => Object.assign(header(u), { style: "text-align:center" }))));
  chosen.forEach((row, k) => {
    const tr = within(element("tr"), element("th", y ? y.values[k] : ""));
    for (const i of row) {
      if (i === undefined) { tr.append(element("td", "–")); continue; }
      const t = high > low ? (position(amount(i)) - low) / (high - low) : 1;
      const [r, g, b] = mix(t);
      // Black or white, whatever stands out more.
      const linear = [r, g, b].map(v => (v / 255) ** 2.2), bright = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
      const td = styled(element("td", figures[heatFigure].show(amount(i)), i === bestCell ? "best" : ""), { background: `rgb(${r} ${g} ${b})`, color: bright > 0.18 ? "#06121f" : "#fff" });
      td.title = labels[i];
      if (others.length) td.append(element("small", others.map(a => settingText(a.flag, settingOf(runs[i], a.flag))).join(" · ")));
      tr.append(td);
    }
    table.append(tr);
  });
  // Where the settings of the cells do not fit, they are in their tips alone.
  table.className = "";
  if (table.parentElement.scrollWidth > table.parentElement.clientWidth) table.className = "compact";
  const f = figures[heatFigure];
  byId("heat-note").textContent = `${f.text[0].toUpperCase()}${f.text.slice(1)}${f.unit ? `, ${f.unit}` : ""}; ${f.more ? "more" : "less"} is better, the best is framed.` +
    (others.length ? ` Each cell is the best over ${others.map(a => flagName(a.flag)).join(", ")}, ${table.className ? "which its tip names (point at it)" : "which it names"}.` : "");
}

function sweepSection() {
  if (!sweep.length || usable.length < 2) return;
  byId("sweep").hidden = false;
  const tools = byId("pareto-tools");
  choice(tools, "throughput", figureList.filter(([name]) => ["total_throughput", "output_throughput", "request_throughput", "request_goodput"].includes(name)), paretoY, v => { paretoY = v; repaint(); });
  choice(tools, "against", figureList.filter(([name]) => name.endsWith("_ms")), paretoX, v => { paretoX = v; repaint(); });
  paint(paintPareto);

  const axes = sweep.map(a => [a.flag, flagName(a.flag)]);
  // The two axes that matter most: those along which the best throughput changes most.
  const spread = a => {
    const tops = a.values.map(v => Math.max(0, ...usable.filter(i => settingOf(runs[i], a.flag) === v).map(i => runs[i].total_throughput)));
    return Math.max(...tops) / Math.max(1e-9, Math.min(...tops));
  };
  const [a, b = a] = [...sweep].sort((a, b) => spread(b) - spread(a));
  [heatX, heatY] = a.values.length > b.values.length ? [a.flag, b.flag] : [b.flag, a.flag];
  const heatTools = byId("heat-tools");
  choice(heatTools, "figure", figureList, heatFigure, v => { heatFigure = v; paintHeat(); });
  if (axes.length > 1) {
    const across = choice(heatTools, "across", axes, heatX, v => { if (v === heatY) { heatY = heatX; down.value = heatY; } heatX = v; paintHeat(); });
    const down = choice(heatTools, "down", axes, heatY, v => { if (v === heatX) { heatX = heatY; across.value = heatX; } heatY = v; paintHeat(); });
  }
  paint(paintHeat);
}
