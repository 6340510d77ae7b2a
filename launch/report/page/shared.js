// What every page needs: its data, elements, numbers, axes, painting and controls.
const report = JSON.parse(document.getElementById("data").textContent);

const byId = id => document.getElementById(id);
function element(tag, text, name) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (name) e.className = name;
  return e;
}
const within = (parent, ...children) => { parent.append(...children); return parent; };
const styled = (e, style) => { Object.assign(e.style, style); return e; };

// Numbers
const count = v => Math.round(v).toLocaleString("en-US");
const show = v => v == null ? "–" : v >= 1000 ? count(v) : v >= 10 ? v.toFixed(1) : v.toFixed(2);
// Three digits: 0.852, 24.1, 351, 1,890.
const three = v => v >= 100 ? count(v) : v >= 10 ? v.toFixed(1) : v >= 1 ? v.toFixed(2) : v === 0 ? "0" : v.toPrecision(2);
const milliseconds = v => v == null ? "–" : v >= 1000 ? `${three(v / 1000)} s` : v >= 1 || v === 0 ? `${three(v)} ms` : `${three(v * 1000)} µs`;
const seconds = v => v == null ? "–" : v >= 1 || v === 0 ? `${three(v)} s` : milliseconds(1000 * v);
// Of a tick: 1 s, not 1.00 s.
const tickTime = v => milliseconds(v).replace(/(\.\d*[1-9])0+ /, "$1 ").replace(/\.0+ /, " ");
const tickSeconds = v => v === 0 ? "0 s" : tickTime(1000 * v);
const percent = v => v == null ? "–" : `${(100 * v).toFixed(v >= 0.9995 || v === 0 ? 0 : 1)} %`;
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

// Canvases know no CSS variables.
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Axes: { at: value -> 0..1, ticks }. Logarithmic only for dots and lines, whose length means nothing.
function niceTicks(max, wanted) {
  const raw = max / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => max / s <= wanted);
  const ticks = [];
  for (let v = 0; v <= max * 1.0001; v += step) ticks.push(v);
  return ticks;
}
function linearAxis(max, wanted = 4) {
  const top = max > 0 ? max : 1;
  return { at: v => v / top, ticks: niceTicks(top, wanted) };
}
// 1, 10, 100 …, and 2 and 5 between them where there are few.
function logTicks(low, high) {
  const ticks = [], steps = high / low > 300 ? [1] : high / low > 12 ? [1, 3] : [1, 2, 5];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p) steps.forEach(s => ticks.push(s * 10 ** p));
  return ticks.filter(t => t >= low && t <= high);
}
function dotAxis(values) {
  const positive = values.filter(v => v > 0);
  const low = Math.min(...positive), high = Math.max(...positive);
  if (!positive.length || high <= 20 * low) return linearAxis(1.06 * Math.max(0, ...values));
  const from = Math.log(low / 1.4), to = Math.log(high * 1.25);
  return { at: v => v > 0 ? (Math.log(v) - from) / (to - from) : 0, ticks: logTicks(low / 1.4, high * 1.25), logarithmic: true };
}
function axisRow(axis, format) {
  const row = element("div", undefined, "axis");
  for (const t of axis.ticks) {
    const x = axis.at(t);
    row.append(styled(element("span", format(t), x < 0.03 ? "first" : x > 0.94 ? "last" : ""), { left: `${100 * x}%` }));
  }
  return row;
}
// Hides labels that would touch the one before.
function tidyAxes() {
  for (const row of document.querySelectorAll(".axis")) {
    let free = -Infinity;
    for (const span of row.children) {
      const box = span.getBoundingClientRect();
      span.style.visibility = box.left < free ? "hidden" : "";
      if (box.left >= free) free = box.right + 6;
    }
  }
}
addEventListener("resize", tidyAxes);
function gridLines(track, axis) {
  for (const t of axis.ticks) track.append(styled(element("div", undefined, "tick"), { left: `${100 * axis.at(t)}%` }));
  return track;
}

// Everything that is drawn on a canvas is drawn anew when the colours change.
const painters = [];
const charts = [];
function paint(painter) { painters.push(painter); painter(); }
function draw(canvas, config) { const chart = new Chart(canvas, config); charts.push(chart); return chart; }
function theme() {
  Chart.defaults.color = style("--soft");
  Chart.defaults.borderColor = style("--line");
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.font.family = "system-ui, 'Segoe UI', Roboto, sans-serif";
}
theme();
function repaint() {
  while (charts.length) charts.pop().destroy();
  theme();
  painters.forEach(painter => painter());
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
const chartAxis = (text, more) => Object.assign({ title: { display: true, text }, grid: { color: style("--line") } }, more);
function chartCard(parent, title, note) {
  const canvas = element("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", title);
  const head = within(element("h3", title + " "), element("small", note));
  byId(parent).append(within(element("div", undefined, "card"), head, within(element("div", undefined, "plot"), canvas)));
  return canvas;
}

// Controls
function choice(parent, name, options, chosen, changed) {
  const select = element("select");
  options.forEach(([value, text]) => { const o = element("option", text); o.value = value; select.append(o); });
  select.value = chosen;
  select.addEventListener("change", () => changed(select.value));
  parent.append(within(element("label", name + " "), select));
  return select;
}
function switchOf(parent, options, chosen, changed) {
  const group = element("span", undefined, "group");
  for (const [value, text] of options) {
    const button = element("button", text);
    button.type = "button";
    button.setAttribute("aria-pressed", value === chosen);
    button.addEventListener("click", () => {
      [...group.children].forEach(b => b.setAttribute("aria-pressed", b === button));
      changed(value);
    });
    group.append(button);
  }
  parent.append(group);
}
function key(text, background, name) {
  return within(element("span", undefined, "key"), styled(element("i", undefined, name), { background }), document.createTextNode(text));
}

