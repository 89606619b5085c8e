// The logs of a job: merged or of one replica, followed live.
import { follow } from "/api.js";
import { h } from "/dom.js";

const MAX_LINES = 5000;
const MAX_MERGED_PODS = 64;
const COLORS = 8;
const FOLLOWING = "following";
const ENDED = "ended";

/** Return the element, `update` for a changed or a deleted job, and `select`, which shows the logs of a pod. */
export function logs(signal) {
  let path = "";
  let stream = new AbortController();
  let started = "";
  let jobName = "";
  const pods = h("select", { "aria-label": "Replica", change: () => { fillContainers(); start(); } });
  const containers = h("select", { "aria-label": "Container", change: () => { fillRuns(); start(); } });
  const runs = h("select", { "aria-label": "Start", change: () => start() });
  const followBox = h("input", { type: "checkbox", change: () => followBox.checked && scroll() });
  followBox.checked = true;
  const state = h("span", { role: "status", class: "dim" });
  const output = h("div", { class: "log", role: "log", "aria-live": "off", "aria-label": "Log lines", tabindex: "0", scroll: () => {
    followBox.checked = output.scrollTop + output.clientHeight >= output.scrollHeight - 30;
  } });
  const element = h("div", {}, h("div", { class: "bar" }, pods, containers, runs, h("label", { class: "check" }, followBox, "Follow"), state), output);
  let known = "";
  let choices = [];
  let phase = "";

  function update(job, isPast) {
    jobName = job.name;
    path = [job.kind, job.namespace, job.name].map(encodeURIComponent).join("/");
    const current = isPast ? [] : job.pods || [];
    const past = [...(job.deletedPods || []), ...((isPast && job.pods) || [])];
    const isMerged = current.length + past.length !== 1 && (job.replicas?.desired ?? 0) <= MAX_MERGED_PODS;
    const merged = isMerged ? [{ label: "All replicas", name: "", uid: "", job: isPast ? job.uid : "", containers: [] }] : [];
    choices = [
      ...merged,
      ...current.map((pod) => ({ label: pod.name, name: pod.name, uid: "", pod: pod.uid, containers: pod.containers, runs: pod.runs, ended: pod.ended })),
      ...past.map((pod) => ({ label: `${pod.name} (deleted${which(pod, past)})`, name: pod.name, uid: pod.uid, pod: pod.uid, containers: pod.containers, runs: pod.runs })),
    ];
    element.parentElement.parentElement.hidden = !choices.length;
    const text = JSON.stringify(choices);
    if (text === known) return;
    known = text;
    const chosen = pods.value;
    pods.replaceChildren(...choices.map((choice) => h("option", { value: `${choice.uid}/${choice.name}` }, choice.label)));
    if (choices.some((choice) => `${choice.uid}/${choice.name}` === chosen)) pods.value = chosen;
    else if (isPast) pods.selectedIndex = firstChoice(job, choices);
    fillContainers();
    if (choices.length && started !== key()) start();
    else setState(phase);
  }

  function fillContainers() {
    const chosen = containers.value;
    const found = choices[pods.selectedIndex]?.containers || [];
    containers.replaceChildren(...found.map((name) => h("option", {}, name)));
    if (found.includes(chosen)) containers.value = chosen;
    containers.hidden = found.length < 2;
    fillRuns();
  }

  /** Offer the earlier runs of a container that has restarted. The newest run comes first. */
  function fillRuns() {
    const { runs: counts = {}, name } = choices[pods.selectedIndex] || {};
    const count = (name && counts[containers.value]) || 1;
    const chosen = runs.value;
    const numbers = Array.from({ length: count - 1 }, (_, index) => count - 2 - index);
    runs.replaceChildren(h("option", { value: "" }, "last start"), ...numbers.map((number) => h("option", { value: String(number) }, `start ${number + 1} of ${count}`)));
    if (numbers.includes(Number(chosen)) && chosen) runs.value = chosen;
    runs.hidden = count < 2;
  }

  function key() {
    return `${pods.value} ${containers.value} ${runs.value}`;
  }

  function select(pod) {
    pods.selectedIndex = choices.findIndex((choice) => choice.pod === pod.uid);
    fillContainers();
    start();
    element.scrollIntoView({ block: "nearest" });
    output.focus({ preventScroll: true });
  }

  async function start() {
    stream.abort();
    stream = new AbortController();
    const abort = stream;
    signal.addEventListener("abort", () => abort.abort(), { once: true });
    started = key();
    const { uid, name, pod, job = "" } = choices[pods.selectedIndex];
    const run = runs.value;
    const query = new URLSearchParams({ pod: name, container: containers.value, uid: run ? pod : uid, job, run });
    output.replaceChildren();
    setState("");
    try {
      await follow(`/api/jobs/${path}/logs?${query}`, (kind, data) => (kind === "lines" ? add(data, !name) : setState(data.message)), abort.signal, (live) => {
        if (live) output.replaceChildren();
        followBox.checked = true;
        setState(live ? FOLLOWING : "reconnecting");
      });
      if (!abort.signal.aborted) setState(ENDED);
    } catch (error) {
      if (!abort.signal.aborted) setState(error.message);
    }
  }

  /** Show what the stream does, and in an empty pane whether a line can still come. */
  function setState(text) {
    phase = text;
    state.textContent = text;
    const isOver = text === ENDED || choices[pods.selectedIndex]?.ended?.includes(containers.value);
    output.dataset.empty = text !== FOLLOWING && text !== ENDED ? "" : isOver ? "no output" : "no output yet";
  }

  function add(lines, isMerged) {
    const made = lines.slice(-MAX_LINES).map(([pod, text]) => h("div", {},
      isMerged && pod && h("span", { class: `pod color${hash(pod) % COLORS}` }, shorten(pod)), text || " "));
    const spare = output.childElementCount + made.length - MAX_LINES;
    for (let i = 0; i < spare; i++) output.firstChild?.remove();
    output.append(...made);
    if (followBox.checked) scroll();
  }

  function shorten(pod) {
    return pod.startsWith(`${jobName}-`) ? pod.slice(jobName.length + 1) : pod;
  }

  function scroll() {
    output.scrollTop = output.scrollHeight;
  }

  return { element, update, select };
}

/** Return which choice shows why a deleted job failed: the pod that failed, or all if it started several times, since the last start may be another one. */
function firstChoice(job, choices) {
  const name = failedPod(job);
  const found = choices.filter((choice) => name && choice.name === name);
  const isOnlyStart = found.length === 1 && !Object.keys(found[0].runs || {}).length;
  return isOnlyStart || choices[0]?.name ? Math.max(choices.indexOf(found.at(-1)), 0) : 0;
}

/** Return the name of the first pod in the causes of a job that failed. */
function failedPod(job) {
  const names = (job.why?.causes || []).filter((cause) => cause.blocks).flatMap((cause) => cause.about);
  return names.find((name) => [...(job.pods || []), ...(job.deletedPods || [])].some((pod) => pod.name === name));
}

/** Return which of several deleted pods of one name this is. */
function which(pod, past) {
  const same = past.filter((other) => other.name === pod.name);
  return same.length > 1 ? `, ${same.indexOf(pod) + 1} of ${same.length}` : "";
}

function hash(text) {
  let found = 0;
  for (const character of text) found = (found * 31 + character.charCodeAt(0)) >>> 0;
  return found;
}
