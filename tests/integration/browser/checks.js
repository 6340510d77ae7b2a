// Looks at the page from inside: what is wrong goes, one sentence each, into the title of the document that
// holds it. Runs in a frame of the wanted width (windows have a least width) and tells the document around it.
(() => {
  const failures = [];
  const check = (good, sentence) => { if (!good) failures.push(sentence); };
  const all = selector => [...document.querySelectorAll(selector)];
  const visible = e => e.getClientRects().length > 0;
  const expected = window.expected;  // of the page: { width, dark, figuresFit, sweep, steps }

  function drawn(canvas) {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 3; i < data.length; i += 4) if (data[i] !== 0) return true;
    return false;
  }
  function colourOf(text) {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  }
  function luminance([r, g, b]) {
    const linear = [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  }
  function background(e) {
    for (; e; e = e.parentElement) {
      const c = colourOf(getComputedStyle(e).backgroundColor);
      if (c.a > 0) return c.rgb;
    }
    return [255, 255, 255];
  }
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };

  function look() {
    check(innerWidth === expected.width, `the page is ${innerWidth} pixels wide`);
    check(matchMedia("(prefers-color-scheme: dark)").matches === expected.dark, "the colours are not the wanted ones");
    check(document.documentElement.scrollWidth <= innerWidth, `the page scrolls sideways: ${document.documentElement.scrollWidth} pixels`);
    const canvases = all("canvas").filter(visible);
    check(canvases.length >= expected.canvases, `${canvases.length} canvases`);
    for (const canvas of canvases) check(drawn(canvas), `nothing is drawn: ${canvas.getAttribute("aria-label")}`);

    // Stacked bars: pixels of a second are the same in all.
    const fills = all("#time-bars .fill").map(f => ({ pixels: f.getBoundingClientRect().width, seconds: Number(f.dataset.total) }));
    check(fills.length >= expected.fills, `${fills.length} stacked bars`);
    const longest = fills.reduce((a, b) => b.seconds > a.seconds ? b : a, { seconds: 0 });
    for (const f of fills) check(Math.abs(f.pixels - longest.pixels * f.seconds / longest.seconds) <= 1.5, `a bar of ${f.seconds} s is ${f.pixels} pixels long, one of ${longest.seconds} s ${longest.pixels}`);
    for (const fill of all("#time-bars .fill")) {
      const sum = [...fill.children].reduce((s, e) => s + e.getBoundingClientRect().width, 0);
      check(Math.abs(sum - fill.getBoundingClientRect().width) <= 1.5, "the parts of a bar do not fill it");
    }
    // Bars begin at zero.
    for (const strip of all(".strip")) {
      const bars = [...strip.querySelectorAll(".bar")].map(b => ({ pixels: b.getBoundingClientRect().width, value: parseFloat(b.closest(".track").nextElementSibling.textContent.replaceAll(",", "")) }));
      const top = bars.reduce((a, b) => b.value > a.value ? b : a, { value: 0 });
      for (const b of bars) check(Math.abs(b.pixels - top.pixels * b.value / top.value) <= 2, `a bar of ${b.value} is ${b.pixels} pixels long, one of ${top.value} ${top.pixels}`);
    }
    for (const table of all(expected.width >= 1400 ? "#figures, #heat" : "#none"))
      check(table.scrollWidth <= table.parentElement.clientWidth, `#${table.id} does not fit: ${table.scrollWidth} of ${table.parentElement.clientWidth} pixels`);

    // Text can be read.
    for (const e of all("main *")) {
      if (!visible(e) || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
      const style = getComputedStyle(e);
      if (style.visibility === "hidden" || e.tagName === "OPTION") continue;
      const large = parseFloat(style.fontSize) >= 19;
      const ratio = contrast(colourOf(style.color).rgb, background(e));
      check(ratio >= (large ? 3 : 4.5), `contrast ${ratio.toFixed(2)} of "${e.textContent.slice(0, 40)}"`);
    }
    for (const e of all(".bar, .seg, .dot:not(.hollow), .chip i, .key i:not(.stripes)")) {
      if (!visible(e) || e.classList.contains("stripes")) continue;
      const around = background(e.classList.contains("seg") ? e.closest(".card") : e.parentElement);
      const ratio = contrast(colourOf(getComputedStyle(e).backgroundColor).rgb, around);
      check(ratio >= (e.matches(".seg, .key i") ? 2 : 3), `contrast ${ratio.toFixed(2)} of a bar or dot`);
    }
    for (const chart of all("#timelines canvas").map(c => Chart.getChart(c)))
      check(chart.scales.x.max <= expected.cut, `a time axis ends at ${chart.scales.x.max}`);
  }

  function use() {
    // Another window shows other steps; all of them are there.
    if (expected.steps) {
      const canvas = all("#steps canvas")[1], before = canvas.toDataURL(), start = document.querySelector("#steps-tools input");
      const c = decodeSteps(runs[0].steps_profile);
      check(c.start.length === expected.steps, `${c.start.length} steps are in the page`);
      start.value = 20;
      start.dispatchEvent(new Event("change"));
      check(canvas.toDataURL() !== before && drawn(canvas), "the window of steps does not move");
      const box = canvas.getBoundingClientRect();
      canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 20, clientY: box.top + 80 }));
      check(/step/.test(document.querySelector("#steps .tip").textContent), "pointing at a step says nothing");
    }
    if (expected.sweep) {
      const cells = () => all("#heat td").map(td => td.firstChild.textContent);
      const numbers = cells();
      check(numbers.length === expected.sweep.cells, `${numbers.length} cells`);
      check(numbers.includes(expected.sweep.best), `no cell has ${expected.sweep.best}: ${numbers}`);
      const select = document.querySelector("#heat-tools select");
      select.value = "mean_ttft_ms";
      select.dispatchEvent(new Event("change"));
      check(cells()[0] !== numbers[0] && /m?s$/.test(cells()[0]), "the heat map shows one figure alone");
      check(Chart.getChart("pareto").data.datasets[0].data.length >= 2, "there is no Pareto front");
      const against = all("#pareto-tools select")[1];
      against.value = "mean_ttft_ms";
      against.dispatchEvent(new Event("change"));
      check(/first token/.test(Chart.getChart("pareto").options.scales.x.title.text), "the Pareto plot shows one latency alone");
      document.querySelector("#figures tr:nth-child(2) th:last-child").click();
      check(/▲/.test(document.querySelector("#figures").textContent), "the figures cannot be sorted");
      check(all("#figures tr").length <= 42 || runs.length <= 40, "all rows are shown at once");
    }
    // A name in the legend hides its lines in every chart.
    const chip = document.querySelector(".legend .chip");
    if (chip) {
      chip.click();
      check(all("#timelines canvas").map(c => Chart.getChart(c)).every(c => !c.isDatasetVisible(0)), "the legend hides nothing");
      document.querySelector(".legend .chip").click();
    }
    repaint();  // as when the colours change
    for (const canvas of all("canvas").filter(visible)) check(drawn(canvas), `drawn anew, nothing is there: ${canvas.getAttribute("aria-label")}`);
    for (const button of all("#timelines-note button")) {
      button.click();
      check(all("#timelines canvas").every(c => Chart.getChart(c).scales.x.max > expected.cut), "what runs on cannot be shown");
    }
    for (const button of all("#time-tools button")) button.click();
    check(all("#time-bars .fill").every(f => Math.abs(f.getBoundingClientRect().width - f.parentElement.getBoundingClientRect().width) <= 1.5), "shares do not fill the width");
  }

  setTimeout(() => {
    try {
      look();
      use();
    } catch (error) {
      failures.push(String(error.stack || error));
    }
    parent.postMessage(`checked ${failures.length ? failures.slice(0, 12).join("; ") : "well"}`, "*");
  }, 300);
})();
