// The timeline of a job as a picture: its spans to scale, its restarts as marks, and the same as a list.
import { at, duration, h, svg } from "/dom.js";

const WORDS = {
  queued: "in the queue", suspended: "suspended", restarting: "restarting", creating: "creating pods", scheduling: "waiting for nodes",
  pulling: "pulling images", initializing: "init containers", starting: "starting containers", "awaiting launcher": "waiting for the launcher",
  rendezvous: "waiting for each other", running: "running", active: "active (its pods are gone)",
};
const WIDTH = 1000;
const HEIGHT = 34;

/** Return the picture and what follows it. `drawPicture` draws the picture anew, since the last span grows with time. */
export function drawTimeline(job) {
  const { spans, restarts } = job.why.timeline;
  if (!spans.length) return h("p", {}, "The job ended within a second.");
  const begin = at(spans[0].start);
  return [
    h("div", { class: "picture" }, drawPicture(job)),
    restarts.length > 0 && h("details", { "data-key": "restarts" }, h("summary", {}, `${restarts.length} restart${restarts.length > 1 ? "s" : ""}`),
      h("ul", {}, restarts.slice(-100).map((restart) => h("li", {}, `+${duration(at(restart.at) - begin)} `, h("b", {}, restart.pod), ` ${restart.text}`)))),
    h("details", { "data-key": "phases" }, h("summary", {}, "Phases"),
      h("table", {}, h("thead", {}, h("tr", {}, ["At", "Phase", "Pods"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, job.why.phases.map((phase) => h("tr", {},
          h("td", {}, phase.at ? `+${duration(at(phase.at) - at(job.created))}` : "–"), h("td", {}, phase.name),
          h("td", {}, phase.total ? `${phase.done} of ${phase.total}` : "")))))),
  ];
}

export function drawPicture(job) {
  const { spans, restarts } = job.why.timeline;
  const begin = at(spans[0].start);
  const end = at(spans.at(-1).end) || Math.max(Date.now(), at(job.now));
  const x = (time) => (WIDTH * (time - begin)) / Math.max(end - begin, 1);
  const length = (span) => (at(span.end) || end) - at(span.start);
  const totals = new Map();
  for (const span of spans) totals.set(span.name, (totals.get(span.name) || 0) + length(span));
  const summary = [...totals].map(([name, milliseconds]) => `${WORDS[name] || name} ${duration(milliseconds)}`).join(", ");
  return [
    svg("svg", { class: "timeline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Timeline: ${summary}` },
      spans.map((span) => svg("rect", { class: `span ${span.name.split(" ")[0]}`, x: x(at(span.start)), y: 4, width: Math.max(x(at(span.start) + length(span)) - x(at(span.start)), 1.5), height: HEIGHT - 8 },
        svg("title", {}, `${WORDS[span.name] || span.name}: ${duration(length(span))}, from +${duration(at(span.start) - begin)}`))),
      restarts.map((restart) => svg("rect", { class: "restart", x: Math.min(x(at(restart.at)), WIDTH - 2), y: 0, width: 2, height: HEIGHT },
        svg("title", {}, `${restart.pod} ${restart.text}`)))),
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}, new Date(begin).toLocaleString()), h("span", {}, `+${duration(end - begin)}`)),
    h("ul", { class: "legend" }, [...totals].map(([name, milliseconds]) =>
      h("li", {}, svg("svg", { viewBox: "0 0 10 10", width: 10, height: 10, "aria-hidden": "true" }, svg("rect", { class: `span ${name.split(" ")[0]}`, width: 10, height: 10 })),
        ` ${WORDS[name] || name} `, h("b", {}, duration(milliseconds))))),
  ];
}
