// Every step of any ten seconds, each as a bar.
const modes = [["prefill", "--m0"], ["decode", "--m1"], ["mixed", "--m2"]];
const stepRuns = shown.filter(i => runs[i].steps_profile);

// Columns of StepProfile::encoded(), times in seconds.
function decodeSteps({ data, per_block: perBlock }) {
  const bytes = Uint8Array.from(atob(data), c => c.charCodeAt(0));
  const columns = { start: [], prefill: [], decode: [], mixed: [], extend: [], tokens: [], steps: [], perBlock };
  let position = 0, now = 0;
  const next = () => {
    let value = 0, scale = 1, byte;
    do { byte = bytes[position++]; value += (byte & 127) * scale; scale *= 128; } while (byte & 128);
    return value;
  };
  while (position < bytes.length) {
    now += next();
    columns.start.push(now / 1e6);
    for (const mode of ["prefill", "decode", "mixed"]) {
      const micros = next();
      columns[mode].push(micros / 1e6);
      now += micros;
    }
    columns.extend.push(next());
    columns.tokens.push(next());
    columns.steps.push(next() || perBlock);
  }
  columns.end = now / 1e6;
  return columns;
}
// The first block that ends after `time`.
function firstAt(c, time) {
  let low = 0, high = c.start.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    c.start[middle] <= time ? low = middle + 1 : high = middle;
  }
  return Math.max(0, low - 1);
}
function surface(canvas, height) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  ctx.font = "12px system-ui, 'Segoe UI', Roboto, sans-serif";
  ctx.textBaseline = "middle";
  return { ctx, width };
}

function stepView() {
  if (!stepRuns.length) return;
  byId("steps-section").hidden = false;
  const columns = new Map(stepRuns.map(i => [i, decodeSteps(runs[i].steps_profile)]));
  const end = Math.max(...[...columns.values()].map(c => c.end));
  const lead = columns.get(best) || columns.get(stepRuns[0]);
  let length = Math.min(10, end), from = 0;
  // Begin where prefill and decode share the time most evenly.
  const spent = new Map();
  lead.start.forEach((t, k) => {
    const bin = Math.floor(t / 10), [prefill, decode] = spent.get(bin) || [0, 0];
    spent.set(bin, [prefill + lead.prefill[k] + lead.mixed[k], decode + lead.decode[k]]);
  });
  from = 10 * [...spent].reduce((a, b) => Math.min(...b[1]) > Math.min(...a[1]) ? b : a)[0];

  const root = byId("steps");
  const overview = element("canvas"), tip = element("div", undefined, "tip"), detail = element("canvas");
  overview.setAttribute("role", "img");
  overview.setAttribute("aria-label", "The whole run of every setting; click or drag to choose a window");
  detail.setAttribute("role", "img");
  detail.setAttribute("aria-label", "The steps of the window");
  root.append(overview, tip, detail);

  const clamp = () => { from = Math.max(0, Math.min(from, Math.max(0, end - length))); };
  const tools = byId("steps-tools");
  const back = element("button", "◀"), forth = element("button", "▶");
  back.title = "earlier";
  forth.title = "later";
  const start = element("input");
  Object.assign(start, { type: "number", min: 0, step: "any" });
  start.style.width = "6.5em";
  tools.append(within(element("label", "from second "), start));
  choice(tools, "for", [1, 3, 10, 30, 60].map(s => [String(s), `${s} s`]), "10", v => { const middle = from + length / 2; length = Number(v); from = middle - length / 2; update(); });
  tools.append(within(element("span", undefined, "group"), back, forth));
  const happens = ([name]) => [...columns.values()].some(c => c[name].some(v => v > 0));
  modes.filter(happens).forEach(([name, variable]) => tools.append(key(name, `var(${variable})`)));
  back.addEventListener("click", () => { from -= length; update(); });
  forth.addEventListener("click", () => { from += length; update(); });
  start.addEventListener("change", () => { from = Number(start.value) || 0; update(); });

  const left = () => root.clientWidth < 600 ? 0 : 130;
  const label = (ctx, text, x, y, width) => {
    ctx.fillStyle = style("--ink");
    while (text.length > 3 && ctx.measureText(text).width > width) text = text.slice(0, -2) + "…";
    ctx.fillText(text, x, y);
  };
  function paintOverview() {
    const rowHeight = left() ? 18 : 32, { ctx, width } = surface(overview, rowHeight * stepRuns.length + 18);
    const x0 = left(), scale = (width - x0) / end;
    stepRuns.forEach((i, row) => {
      const c = columns.get(i), top = row * rowHeight + (left() ? 2 : 15), busy = modes.map(() => new Float64Array(Math.ceil(width - x0) + 1));
      c.start.forEach((t, k) => modes.forEach(([name], m) => { busy[m][Math.floor(t * scale)] += c[name][k] * scale; }));
      label(ctx, labels[i], 0, left() ? top + 7 : top - 7, left() ? x0 - 8 : width);
      ctx.fillStyle = style("--line");
      ctx.fillRect(x0, top, width - x0, 14);
      modes.forEach(([, variable], m) => {
        ctx.fillStyle = style(variable);
        let carry = 0;  // a step may be longer than a pixel
        busy[m].forEach((share, x) => {
          carry += share;
          const now = Math.min(1, carry);
          carry -= now;
          const before = modes.slice(0, m).reduce((sum, _, k) => sum + Math.min(1, busy[k][x]), 0);
          if (now > 0) ctx.fillRect(x0 + x, top + 14 * Math.max(0, 1 - before - now), 1, 14 * Math.min(now, 1 - Math.min(1, before)));
        });
      });
    });
    ctx.fillStyle = style("--soft");
    const bottom = rowHeight * stepRuns.length;
    for (const t of niceTicks(end, width < 600 ? 4 : 8)) {
      const text = tickSeconds(t), size = ctx.measureText(text).width;
      ctx.fillText(text, Math.min(width - size, Math.max(x0, x0 + t * scale - size / 2)), bottom + 10);
    }
    ctx.strokeStyle = style("--ink");
    ctx.lineWidth = 2;
    ctx.strokeRect(Math.min(width - 4, x0 + from * scale) + 1, 1, Math.max(4, length * scale) - 1, bottom - 2);
  }
  let bars = [];  // of the window: what the pointer is over
  function paintDetail() {
    const prefillHeight = 66, decodeHeight = 44, head = 20, rowHeight = head + prefillHeight + decodeHeight + 10;
    const { ctx, width } = surface(detail, rowHeight * stepRuns.length + 20);
    const scale = width / length;
    bars = [];
    const visible = stepRuns.map(i => {
      const c = columns.get(i), list = [];
      for (let k = firstAt(c, from); k < c.start.length && c.start[k] < from + length; ++k) list.push(k);
      return list;
    });
    // Tokens of one step (the mean, where a bar holds several). Prompt tokens on one scale for all settings.
    const most = (row, name) => { const c = columns.get(stepRuns[row]); return Math.max(1, ...visible[row].map(k => c[name][k] / c.steps[k])); };
    const mostExtend = Math.max(...stepRuns.map((_, row) => most(row, "extend")));
    stepRuns.forEach((i, row) => {
      const c = columns.get(i), top = row * rowHeight + head, base = top + prefillHeight, floor = base + decodeHeight + 2;
      const mostDecode = most(row, "tokens"), mean = c.perBlock > 1 ? "mean " : "";
      const steps = plural(visible[row].reduce((n, k) => n + c.steps[k], 0), "step");
      const text = width < 600 ? steps : `${steps} · ↑ ${mean}prompt tokens, to ${count(mostExtend)} · ↓ ${mean}decoded tokens, to ${count(mostDecode)}`;
      ctx.fillStyle = style("--soft");
      ctx.fillText(text, width - ctx.measureText(text).width, row * rowHeight + 10);
      label(ctx, labels[i], 0, row * rowHeight + 10, width - ctx.measureText(text).width - 10);
      ctx.strokeStyle = style("--line");
      ctx.lineWidth = 1;
      for (const t of ticksOf()) { ctx.beginPath(); ctx.moveTo((t - from) * scale, top); ctx.lineTo((t - from) * scale, floor); ctx.stroke(); }
      for (const k of visible[row]) {
        let t = c.start[k];
        const extend = prefillHeight * c.extend[k] / c.steps[k] / mostExtend, tokens = decodeHeight * c.tokens[k] / c.steps[k] / mostDecode;
        const x = (t - from) * scale, w = (c.prefill[k] + c.decode[k] + c.mixed[k]) * scale;
        modes.forEach(([name, variable]) => {
          if (!(c[name][k] > 0)) return;
          const x1 = (t - from) * scale, w1 = c[name][k] * scale, gap = w1 > 4 ? 1 : w1 > 2 ? 0.5 : 0;
          t += c[name][k];
          ctx.fillStyle = style(variable);
          if (name !== "decode") ctx.fillRect(x1, base - Math.max(1.5, extend), w1 - gap, Math.max(1.5, extend));
          if (name !== "prefill") ctx.fillRect(x1, base + 2, w1 - gap, Math.max(1.5, tokens));
        });
        bars.push({ x, w, top, floor, i, k });
      }
      ctx.fillStyle = style("--ink");
      ctx.fillRect(0, base, width, 1);
    });
    ctx.fillStyle = style("--soft");
    for (const t of ticksOf()) {
      const text = `${Number(t.toFixed(3)).toLocaleString("en-US")} s`, size = ctx.measureText(text).width;
      ctx.fillText(text, Math.min(width - size, Math.max(0, (t - from) * scale - size / 2)), rowHeight * stepRuns.length + 8);
    }
  }
  const ticksOf = () => {
    const step = niceTicks(length, root.clientWidth < 600 ? 4 : 10)[1], ticks = [];
    for (let t = Math.ceil(from / step) * step; t <= from + length + 1e-9; t += step) ticks.push(t);
    return ticks;
  };
  const hint = "Point at a bar for its tokens; click or drag in the strips above to move the window.";
  function update() {
    clamp();
    start.value = Number(from.toFixed(3));
    tip.textContent = hint;
    paintOverview();
    paintDetail();
  }
  const move = event => {
    const box = overview.getBoundingClientRect(), x0 = left();
    from = (event.clientX - box.left - x0) / (box.width - x0) * end - length / 2;
    update();
  };
  overview.addEventListener("pointerdown", event => { overview.setPointerCapture(event.pointerId); move(event); });
  overview.addEventListener("pointermove", event => { if (event.buttons) move(event); });
  detail.addEventListener("pointermove", event => {
    const box = detail.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const hit = bars.filter(b => y >= b.top && y <= b.floor && x >= b.x - 1 && x <= b.x + b.w + 1).at(-1);
    if (!hit) { tip.textContent = hint; return; }
    const c = columns.get(hit.i), k = hit.k, n = c.steps[k];
    const kinds = modes.filter(([name]) => c[name][k] > 0).map(([name]) => `${name} ${seconds(c[name][k])}`).join(", ");
    const first = k * c.perBlock;
    tip.textContent = `${labels[hit.i]}, ${n === 1 ? `step ${count(first)}` : `steps ${count(first)} to ${count(first + n - 1)}`} at ${c.start[k].toFixed(3)} s: ${kinds}; ` +
      [c.extend[k] ? `${count(c.extend[k])} prompt tokens` : "", c.tokens[k] ? `${count(c.tokens[k])} decoded` : ""].filter(Boolean).join(", ");
  });
  const joined = stepRuns.filter(i => columns.get(i).perBlock > 1);
  byId("steps-note").textContent = "Strips: how busy the GPUs are over the whole run, by kind of pass. Below them each step is a bar, as wide as it takes: upwards its new prompt tokens, downwards the tokens that it decodes (each setting on its own scale). " +
    (joined.length ? `These runs have more steps than a page holds, so a bar stands for several in a row: ${joined.map(i => `${labels[i]} ${count(columns.get(i).perBlock)} of ${count(runs[i].steps_profile.count)}`).join(", ")}. steps.csv has each, unless --steps leaves some out.` : "steps.csv has all their figures, unless --steps leaves some out.");
  paint(update);
  addEventListener("resize", update);
}
