// CPU, memory and GPU of local pods over time.
import { at, bytes, h, number, svg } from "/dom.js";

const hundredths = (amount) => number(Math.round(amount * 100) / 100);
const SERIES = [
  ["CPU cores", (sample) => sample.cpu, hundredths],
  ["Memory", (sample) => sample.memory_bytes, bytes],
  ["GPUs used", (sample) => sample.gpu, hundredths],
  ["GPU memory", (sample) => sample.gpu_memory_bytes, bytes],
];
const HOUR = 3600e3;
const CURRENT = 30e3;
const [WIDTH, HEIGHT] = [300, 80];

/** Return the samples of the pods that `event` names, those before and the new ones, of the last hour. */
export function addUsage(usage, { pods }) {
  const all = Object.entries(pods).map(([name, samples]) => [name, [...(usage[name] || []), ...samples]]);
  const last = Math.max(...all.map(([, samples]) => at(samples.at(-1)?.at) || 0));
  return Object.fromEntries(all.map(([name, samples]) => [name, samples.filter((sample) => last - at(sample.at) <= HOUR)]).filter(([, samples]) => samples.length));
}

/** Return a chart for each figure that any pod has; `usage` has the samples of each pod, the oldest first. `others` counts pods without samples here, `running` names those that run now, if it is known. */
export function drawUsage(usage, others, running) {
  const pods = Object.entries(usage);
  const times = pods.flatMap(([, samples]) => samples.map((sample) => at(sample.at)));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const current = pods.filter(([name]) => !running || running.includes(name)).map(([, samples]) => samples.at(-1)).filter((sample) => last - at(sample.at) <= CURRENT);
  const drawn = others ? ` in the ${pods.length} pods below` : "";
  const charts = SERIES.map(([title, value, format]) => {
    const most = Math.max(...pods.flatMap(([, samples]) => samples.map(value)));
    if (!most) return null;
    const point = (sample) => `${((WIDTH * (at(sample.at) - first)) / Math.max(last - first, 1)).toFixed(1)},${(HEIGHT - (HEIGHT - 4) * (value(sample) / most)).toFixed(1)}`;
    const now = current.length > 0 && format(current.reduce((sum, sample) => sum + value(sample), 0));
    return h("figure", {},
      h("figcaption", {}, `${title}: `, now && [h("b", {}, now), h("span", { class: "dim" }, ` now${drawn}; `)], h("span", { class: "dim" }, `one pod used at most ${format(most)}`)),
      svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title} over time${now ? `, now ${now}` : ""}` },
        pods.map(([name, samples], index) => svg("polyline", { class: `line line${index}`, points: samples.map(point).join(" ") }, svg("title", {}, name)))));
  });
  return [
    h("div", { class: "charts" }, charts),
    h("ul", { class: "legend" }, pods.map(([name], index) => h("li", { class: `key${index}` }, "■ ", h("span", {}, name))), others > 0 && h("li", {}, `and ${others} more, not drawn`)),
  ];
}
