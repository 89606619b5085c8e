// One job: why it waits, its timeline, replicas, logs, usage, conditions and events.
import { follow, get } from "/api.js";
import { addUsage, drawUsage } from "/chart.js";
import { ago, at, badge, duration, h, notice, replicaBar, resources } from "/dom.js";
import { logs } from "/logs.js";
import { drawPicture, drawTimeline } from "/timeline.js";

const MAX_SHOWN = 200;
const IS_LOCAL = /^(127\.|localhost$|\[::1\]$)/.test(location.hostname);

export async function showJob({ root, signal, setConnection }, { path, uid }) {
  const name = path ? path[2] : "";
  document.title = name || "Deleted job";
  const title = h("h1", {}, h("span", {}, name || "…"));
  const facts = h("dl", { class: "facts" });
  const gone = h("div", {});
  const sections = {};
  const shown = {};
  root.append(h("nav", { "aria-label": "Path" }, h("a", { href: "#/" }, "← All jobs"), " ", h("kbd", {}, "Esc")), title, gone, facts);
  for (const [key, heading] of [["why", "Why"], ["timeline", "Timeline"], ["replicas", "Replicas"], ["logs", "Logs"], ["usage", "Usage"], ["conditions", "Conditions"], ["events", "Events"]]) {
    const content = h("div", {});
    sections[key] = { content, element: h("section", { id: `section-${key}`, "aria-labelledby": `heading-${key}` }, h("h2", { id: `heading-${key}` }, heading), content) };
    root.append(sections[key].element);
  }
  const logView = logs(signal);
  sections.logs.content.append(logView.element);
  sections.usage.element.hidden = true;

  let current = null;
  let hasGone = false;
  let usage = {};
  let others = 0;
  const growing = setInterval(() => {
    const picture = sections.timeline.content.querySelector(".picture");
    if (picture && !current.why.timeline.spans.at(-1).end) picture.replaceChildren(...drawPicture(current));
  }, 1000);
  signal.addEventListener("abort", () => clearInterval(growing), { once: true });

  /** Draw a section again only if its data have changed: focus and selection stay where they are, and open details stay open. */
  function section(key, data, draw) {
    const text = JSON.stringify(data);
    if (shown[key] === text) return;
    shown[key] = text;
    const { content } = sections[key];
    const open = [...content.querySelectorAll("details[open]")].map((details) => details.dataset.key);
    content.replaceChildren(...[draw(data)].flat().filter(Boolean));
    for (const details of content.querySelectorAll("details")) details.open = open.includes(details.dataset.key);
  }

  function draw(job) {
    current = job;
    document.title = `${job.name}: ${job.state}`;
    const heading = [job.kind, job.namespace, job.name, job.state];
    if (shown.title !== heading.join()) {
      shown.title = heading.join();
      title.replaceChildren(h("span", {}, job.name), " ", badge(job.state));
    }
    facts.replaceChildren(...Object.entries({
      Kind: job.kind,
      Namespace: job.namespace,
      Queue: job.queue,
      [job.state]: h("span", {}, "for ", ago(job.since)),
      Created: h("span", {}, ago(job.created), " ago"),
      Duration: job.ended && duration(at(job.ended) - at(job.created)),
      Replicas: replicaBar(job.replicas),
      Requests: resources(job.requests),
    }).filter(([, value]) => value).map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))));
    if (job.why) {
      section("why", [job.why.causes, job.why.summary, job.why.blocked, job.why.state, job.why.notRead, hasGone], () => drawWhy(job.why, hasGone));
      const { spans, restarts } = job.why.timeline;
      section("timeline", [spans, restarts, job.why.phases, job.created], () => drawTimeline(job));
    } else {
      section("why", job.message, (message) => h("p", {}, message));
      sections.timeline.element.hidden = true;
    }
    section("replicas", [job.pods, job.deletedPods], () => drawReplicas(job, logView.select));
    drawLastLines(sections.replicas.content, job.why?.lastLines || []);
    section("conditions", job.conditions || [], drawConditions);
    section("events", job.events || [], drawEvents);
    logView.update(job, Boolean(uid));
  }

  if (uid) {
    const job = await get(`/api/history/${encodeURIComponent(uid)}`, signal);
    gone.append(notice("This job has been deleted. This is how it ended."));
    setConnection(true);
    draw(job);
    return;
  }
  await follow(`/api/jobs/${path.map(encodeURIComponent).join("/")}`, (kind, data) => {
    if (kind === "job") {
      gone.replaceChildren();
      draw(data);
    }
    if (kind === "failed") gone.replaceChildren(notice(data.message));
    if (kind === "usage") {
      sections.usage.element.hidden = false;
      usage = addUsage(usage, data);
      others = data.others;
      sections.usage.content.replaceChildren(...drawUsage(usage, others, data.running));
    }
    if (kind === "gone") {
      gone.replaceChildren(notice("This job has been deleted."));
      hasGone = true;
      if (current) draw(current);
      if (!sections.usage.element.hidden) sections.usage.content.replaceChildren(...drawUsage(usage, others, []));
    }
  }, signal, (live) => {
    if (live) usage = {}; // A new connection begins with all samples.
    setConnection(live);
  });
}

function names(about) {
  if (!about.length) return "the job";
  return about.length > 3 ? `${about.slice(0, 3).join(", ")} and ${about.length - 3} more` : about.join(", ");
}

/** Draw the causes. The next steps for a job that exists are none for one that has gone since. */
function drawWhy(why, hasGone) {
  const list = (causes) => h("ol", { class: "causes" }, causes.slice(0, MAX_SHOWN).map((cause) =>
    h("li", {},
      h("p", {}, h("b", {}, names(cause.about)), ": ", cause.text, cause.since && h("span", { class: "dim" }, " (", ago(cause.since), ")")),
      cause.quote && h("p", { class: "quote" }, "last log line: ", h("code", {}, cause.quote)),
      cause.nextStep && !hasGone && h("p", { class: "next" }, h("b", {}, "Next: "), cause.nextStep))));
  const blocking = why.causes.filter((cause) => cause.blocks);
  const notes = why.causes.filter((cause) => !cause.blocks);
  const healthy = { Running: "The job is running, and its objects show no problem; see its logs for progress.", Succeeded: "The job succeeded." }[why.state]
    || "No cause found in the cluster's objects.";
  return [
    blocking.length ? list(blocking) : h("p", {}, why.summary || healthy),
    notes.length && h("h3", {}, "Notes"), notes.length && list(notes),
    why.notRead.length && notice(`You have no permission to read ${why.notRead.join(", ")}; this omits them.`),
  ];
}

function drawReplicas(job, select) {
  const pods = job.pods || [];
  if (!pods.length && !(job.deletedPods || []).length) return h("p", {}, "The job has no pods.");
  const button = (pod) => h("button", { click: () => select(pod), "aria-label": `Show the logs of ${pod.name}` }, "Logs");
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Replicas" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Pod", "State", "Age", "Restarts", "Node", "Ports", "Last line", "Logs"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {},
      pods.slice(0, MAX_SHOWN).map((pod) => h("tr", {},
        h("td", {}, pod.name), h("td", {}, badge(pod.state), pod.state === "Running" && !pod.ready && " not ready"), h("td", {}, ago(pod.created)),
        h("td", {}, String(pod.restarts)), h("td", {}, pod.node), h("td", {}, pod.ports.map((port) => drawPort(job, pod, port))), h("td", { "data-pod": pod.name }), h("td", {}, button(pod)))),
      (job.deletedPods || []).slice(-MAX_SHOWN).map((pod) => h("tr", { class: "past" },
        h("td", {}, pod.name), h("td", {}, pod.started === false ? "never started" : "deleted"), h("td", {}, ago(pod.created)), h("td", {}), h("td", {}), h("td", {}), h("td", {}), h("td", {}, button(pod)))))),
    pods.length > MAX_SHOWN && h("p", {}, `and ${pods.length - MAX_SHOWN} more`));
}

/** Write into the table of replicas when each last logged something: only there, because this changes all the time. */
function drawLastLines(content, lines) {
  const newest = new Map();
  for (const { pod, at: time, exists } of lines) if (exists && time && !(newest.get(pod) > time)) newest.set(pod, time);
  for (const cell of content.querySelectorAll("[data-pod]")) {
    const time = newest.get(cell.dataset.pod);
    if (time) cell.replaceChildren(ago(time), " ago");
  }
}

function drawPort(job, pod, port) {
  const text = [port.name, port.port].filter(Boolean).join(" ");
  if (port.url && IS_LOCAL) return h("a", { class: "port", href: port.url, target: "_blank", rel: "noreferrer noopener" }, text);
  const command = `rallypoint port-forward ${pod.name} ${port.port} -n ${job.namespace}`;
  return h("button", { class: "port", title: `Copy: ${command}`, click: async (event) => {
    const element = event.currentTarget;
    const isCopied = await copy(command);
    if (isCopied) element.textContent = "copied: run it, then open localhost";
    else element.replaceWith(h("code", {}, command));
  } }, text);
}

/** Copy the text; return whether the browser allows it: only on loopback and over TLS. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function drawConditions(conditions) {
  if (!conditions.length) return h("p", {}, "The job has no conditions.");
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Conditions" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Type", "Status", "Since", "Reason", "Message"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, conditions.map((condition) => h("tr", {},
      h("td", {}, condition.type), h("td", {}, condition.status), h("td", {}, ago(condition.lastTransitionTime)),
      h("td", {}, condition.reason || ""), h("td", { class: "long" }, condition.message || ""))))));
}

function drawEvents(events) {
  if (!events.length) return h("p", {}, "No events. Most clusters keep them for an hour.");
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Events" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Age", "Type", "Reason", "About", "Message"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, events.slice(0, MAX_SHOWN).map((event) => h("tr", {},
      h("td", {}, ago(event.at)), h("td", { class: event.type === "Warning" && "bad" }, event.type),
      h("td", {}, event.reason, event.count > 1 && ` (x${event.count})`), h("td", {}, event.about), h("td", { class: "long" }, event.message))))));
}
