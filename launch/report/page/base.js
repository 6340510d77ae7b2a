// The runs of the report and what every part of its page needs.
const runs = report.runs;
const sweep = (report.sweep?.axes || []).filter(a => a.values.length > 1);

// Settings: what tells one run from the others.
const flagName = flag => "--" + flag.replaceAll("_", "-");
const settingText = (flag, value) => flag.endsWith("attention_backend") || flag.endsWith("attention_backends") || flag === "schedule_policy" ? value : `${flag.replaceAll("_", " ")} ${value}`;
const settingOf = (run, flag) => run.settings?.[flag] ?? (flag.startsWith("attention_backend") ? run.backend : undefined);
const sameSettings = (a, b) => a && b && Object.keys(a).length === Object.keys(b).length && Object.keys(a).every(k => a[k] === b[k]);
const labels = runs.map(run => sweep.length === 0 ? run.backend : sweep.map(a => settingText(a.flag, settingOf(run, a.flag) ?? "–")).join(" · "));

const best = report.best_index;
// Where hundreds of settings would not fit, the best and some of the Pareto front stand for them.
const shown = report.shown;
// A label without what a list of settings has in common.
function shortLabels(list) {
  const differing = sweep.filter(a => new Set(list.map(i => settingOf(runs[i], a.flag))).size > 1);
  return new Map(list.map(i => [i, differing.length ? differing.map(a => settingText(a.flag, settingOf(runs[i], a.flag))).join(" · ") : labels[i]]));
}
const colourIndex = i => Math.max(0, shown.indexOf(i)) % 8;
const colour = i => `var(--c${colourIndex(i)})`;
// A setting's name in a row; the best one stands out.
function nameCell(i) {
  const marked = i === best && runs.length > 1;
  const cell = element("div", (marked ? "★ " : "") + labels[i], marked ? "who best" : "who");
  cell.title = labels[i];
  return cell;
}

// One legend for all charts: a click hides a setting in each.
const hidden = new Set();
function legends() {
  for (const bar of document.querySelectorAll(".legend")) {
    bar.replaceChildren();
    if (shown.length < 2) continue;
    for (const i of shown) {
      const chip = within(element("button", undefined, "chip"), styled(element("i"), { background: colour(i) }), document.createTextNode(labels[i]));
      chip.type = "button";
      chip.setAttribute("aria-pressed", !hidden.has(i));
      chip.title = "show or hide in all charts";
      chip.addEventListener("click", () => {
        hidden.has(i) ? hidden.delete(i) : hidden.add(i);
        for (const chart of charts) {
          chart.data.datasets.forEach((d, k) => { if (d.run !== undefined) chart.setDatasetVisibility(k, !hidden.has(d.run)); });
          chart.update();
        }
        legends();
      });
      bar.append(chip);
    }
  }
}
