// As checks.js, of the page of `tpsim validate`.
(() => {
  const failures = [];
  const check = (good, sentence) => { if (!good) failures.push(sentence); };
  const all = selector => [...document.querySelectorAll(selector)];
  const visible = e => e.getClientRects().length > 0;
  const expected = window.expected;  // of the page: { width, dark, canvases, rows }

  function drawn(canvas) {
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const data = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 3; i < data.length; i += 4) if (data[i] !== 0) return true;
    return false;
  }
  function look() {
    check(innerWidth === expected.width, `the page is ${innerWidth} pixels wide`);
    check(matchMedia("(prefers-color-scheme: dark)").matches === expected.dark, "the colours are not the wanted ones");
    check(document.documentElement.scrollWidth <= innerWidth, `the page scrolls sideways: ${document.documentElement.scrollWidth} pixels`);
    const canvases = all("canvas").filter(visible);
    check(canvases.length === expected.canvases, `${canvases.length} canvases`);
    for (const canvas of canvases) check(drawn(canvas), `nothing is drawn: ${canvas.getAttribute("aria-label")}`);
    check(all("#rows tr").length === expected.rows + 1, `${all("#rows tr").length} lines of rows`);
    check(/does not divide/.test(document.querySelector("#refused").textContent), "what could not be asked is not said");
    check(/906,527/.test(document.querySelector("#pools").textContent), "the pool is not shown");
    check(!/NaN|undefined|Infinity/.test(document.querySelector("main").textContent), "a figure is none");
  }
  function use() {
    // Points of one row: its name, and both values.
    const chart = Chart.getChart(all("#scatters canvas")[0]);
    const points = () => Chart.getChart(all("#scatters canvas")[0]).data.datasets.flatMap(d => d.data).filter(p => p.name);
    check(points().length === expected.rows, `${points().length} points`);
    check(chart.options.scales.x.type === "logarithmic", "the axis is not logarithmic");
    const groups = () => Chart.getChart(all("#scatters canvas")[0]).data.datasets.filter(d => d.label).length;
    check(groups() === 1, `${groups()} models`);
    const select = document.querySelector("#scatter-tools select");
    select.value = "backend";
    select.dispatchEvent(new Event("change"));
    check(groups() === 2, `${groups()} backends`);
    check(Chart.getChart(all("#timelines canvas")[0]).data.datasets.length === 2, "the timelines are not over each other");
    repaint();
    for (const canvas of all("canvas").filter(visible)) check(drawn(canvas), `drawn anew, nothing is there: ${canvas.getAttribute("aria-label")}`);
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
