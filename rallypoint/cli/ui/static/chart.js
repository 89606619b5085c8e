// CPU, memory and GPU of local pods over time.
import { at, bytes, h, number, svg } from "/dom.js";

const SERIES = [
  ["CPU cores", (sample) => sample.cpu, number],
  ["Memory", (sample) => sample.memory_bytes, bytes],
  ["GPUs used", (sample) => sample.gpu, number],
  ["GPU memory", (sample) => sample.gpu_memory_bytes, bytes],
];
const MAX_PODS = 8;
const [WIDTH, HEIGHT] = [300, 80];

/** Return a chart for each figure that any pod has; `usage` has the samples of each pod, the oldest first. */
export function drawUsage(usage) {
  const pods = Object.entries(usage).sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, MAX_PODS);
  const times = pods.flatMap(([, samples]) => samples.map((sample) => at(sample.at)));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const charts = SERIES.map(([title, value, format]) => {
    const most = Math.max(...pods.flatMap(([, samples]) => samples.map(value)));
    if (!most) return null;
    const point = (sample) => `${((WIDTH * (at(sample.at) - first)) / Math.max(last - first, 1)).toFixed(1)},${(HEIGHT - (HEIGHT - 4) * (value(sample) / most)).toFixed(1)}`;
    const now = pods.reduce((sum, [, samples]) => sum + value(samples.at(-1)), 0);
    return h("figure", {},
      h("figcaption", {}, `${title}: `, h("b", {}, format(now)), h("span", { class: "dim" }, ` now, most of a pod ${format(most)}`)),
      svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title} over time, now ${format(now)}` },
        pods.map(([name, samples], index) => svg("polyline", { class: `line line${index}`, points: samples.map(point).join(" ") }, svg("title", {}, name)))));
  });
  const more = Object.keys(usage).length - pods.length;
  return [
    h("div", { class: "charts" }, charts),
    h("ul", { class: "legend" }, pods.map(([name], index) => h("li", { class: `key${index}` }, "■ ", h("span", {}, name))), more > 0 && h("li", {}, `and ${more} more`)),
  ];
}
