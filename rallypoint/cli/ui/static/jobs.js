// The list of jobs.
import { follow, get } from "/api.js";
import { ago, at, badge, duration, h, notice, replicaBar, resources } from "/dom.js";

const STATES = ["Waiting", "Suspended", "Running", "Restarting", "Failed", "Succeeded"];
const MAX_ROWS = 2000;
// The style sheet takes the display of a table from these elements, and some browsers their meaning with it.
const ROW = { role: "row" };
const CELL = { role: "cell" };
const COLUMNS = [
  ["State", (row) => STATES.indexOf(row.state)],
  ["Job", (row) => `${row.namespace}/${row.name}`],
  ["Kind", (row) => row.kind],
  ["Age", (row) => -at(row.created)],
  ["Duration", (row) => (at(row.ended) || Date.now()) - at(row.created)],
  ["Replicas", (row) => row.replicas.desired],
  ["Requests", (row) => Object.entries(row.requests || {}).find(([name]) => name.includes("/"))?.[1] || 0],
  ["Message", (row) => row.message],
];
// Kept while the page is open, so that the way back from a job leads to the same list.
const view = { text: "", states: new Set(), past: false, column: 3, descending: false, focus: "" };
const STEPS = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 };
let press = null; // What a key does in the list, once its rows are there.
let early = []; // Keys that were pressed before.

document.addEventListener("keydown", (event) => {
  const { activeElement: focused } = document;
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || /^#\/(jobs|history)\//.test(location.hash)) return;
  const isInRow = focused.closest("tbody tr");
  if (!isInRow && focused !== document.body && focused.id !== "main") return;
  if (!STEPS[event.key] && (isInRow || event.key !== "Enter")) return;
  event.preventDefault();
  if (press) press(event.key);
  else early.push(event.key);
});

export async function showJobs({ root, signal, about, setConnection }) {
  document.title = "Jobs";
  const rows = new Map();
  const elements = new Map();
  let past = [];
  let unread = [];
  let failure = "";
  let cluster = {};
  const count = h("p", { role: "status", class: "count" });
  const warning = h("div", {});
  const body = h("tbody", { role: "rowgroup" });
  const states = h("div", { class: "states", role: "group", "aria-label": "States" });
  const head = h("tr", ROW);
  const filter = h("input", {
    id: "filter", type: "search", placeholder: "Filter by name, namespace, kind or queue", "aria-label": "Filter", "aria-keyshortcuts": "/", value: view.text,
    input: (event) => { view.text = event.target.value; draw(); },
  });
  const pastBox = h("label", { class: "check" },
    h("input", { type: "checkbox", change: async (event) => { view.past = event.target.checked; await readPast(); draw(); } }), "Deleted jobs");
  pastBox.firstChild.checked = view.past;
  pastBox.hidden = true;
  about.then((found) => {
    cluster = found;
    pastBox.hidden = !found.history;
    drawNotices();
  });
  root.append(
    h("h1", { class: "hidden" }, "Jobs"), h("div", { class: "bar" }, filter, states, pastBox),
    warning, count,
    h("div", { class: "scroll" }, h("table", { class: "jobs", role: "table", click: expand }, h("thead", { role: "rowgroup" }, head), body)));
  if (view.past) await readPast();

  async function readPast() {
    past = view.past ? (await get("/api/history", signal)).map((row) => ({ ...row, isPast: true })) : [];
  }

  /** Without a row in focus, the keys begin at the row of the last visit, or at the first one. */
  function act(key) {
    const focused = document.activeElement.closest("tbody tr");
    const last = elements.get(view.focus)?.element;
    const begin = last?.isConnected ? last : body.firstElementChild;
    if (key === "Enter") (focused || begin)?.querySelector("a").click();
    else (focused ? focused[STEPS[key] > 0 ? "nextElementSibling" : "previousElementSibling"] : begin)?.querySelector("a").focus();
  }

  /** Show the whole text of a message that is cut off, or cut it off again. The style sheet shows that of the row with the focus. */
  function expand(event) {
    event.target.closest(".message .text")?.classList.toggle("whole");
  }

  filter.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    body.querySelector("a")?.focus();
  });

  function drawHead() {
    head.replaceChildren(...COLUMNS.map(([title], index) => {
      const sorted = index === view.column;
      return h("th", { scope: "col", role: "columnheader", "aria-sort": sorted && (view.descending ? "descending" : "ascending") },
        h("button", { click: () => {
          view.descending = sorted && !view.descending;
          view.column = index;
          drawHead();
          head.children[index].firstChild.focus();
          draw();
        } }, title));
    }));
  }

  function drawStates(all) {
    const count = (state) => all.filter((row) => isIn(row, state)).length;
    const isFocused = document.activeElement?.dataset?.state;
    states.replaceChildren(...STATES.map((state) => h("button", {
      class: "chip", "aria-pressed": String(view.states.has(state)), "data-state": state,
      click: () => { view.states.has(state) ? view.states.delete(state) : view.states.add(state); draw(); },
    }, `${state} ${count(state)}`)));
    if (isFocused) states.querySelector(`[data-state=${isFocused}]`)?.focus();
  }

  function element(row) {
    const known = elements.get(row.uid);
    if (known?.row === row) return known.element;
    const made = h("tr", { ...ROW, "data-id": row.id, class: row.isPast && "past" },
      h("td", CELL, badge(row.state), row.waits && [" ", h("span", { class: "dim" }, "pods wait")]),
      h("td", { ...CELL, class: "name" }, h("a", { href: link(row), focus: () => { view.focus = row.uid; } },
        h("span", { class: "namespace" }, `${row.namespace}/`), row.name)),
      h("td", { ...CELL, class: "kind" }, row.kind),
      h("td", { ...CELL, class: "age" }, ago(row.created)),
      h("td", { ...CELL, class: "duration" }, row.ended ? duration(at(row.ended) - at(row.created)) : ago(row.created)),
      h("td", CELL, replicaBar(row.replicas)),
      h("td", { ...CELL, class: "requests" }, resources(row.requests)),
      h("td", { ...CELL, class: "message" }, row.message && h("div", { class: "text", title: row.message }, row.message)));
    elements.set(row.uid, { row, element: made });
    return made;
  }

  function draw() {
    const there = new Set([...rows.values()].map((row) => row.uid));
    const all = [...rows.values(), ...past.filter((row) => !there.has(row.uid))];
    if (elements.size > all.length) {
      const known = new Set(all.map((row) => row.uid));
      for (const uid of elements.keys()) if (!known.has(uid)) elements.delete(uid);
    }
    const words = view.text.toLowerCase().split(/\s+/).filter(Boolean);
    const value = COLUMNS[view.column][1];
    const shown = all
      .filter((row) => !view.states.size || [...view.states].some((state) => isIn(row, state)))
      .filter((row) => words.every((word) => `${row.kind} ${row.namespace}/${row.name} ${row.queue}`.toLowerCase().includes(word)))
      .map((row) => [value(row), row])
      .sort(([a, first], [b, second]) => (a < b ? -1 : a > b ? 1 : first.id < second.id ? -1 : 1) * (view.descending ? -1 : 1))
      .map(([, row]) => row);
    drawStates(all);
    const focused = document.activeElement?.closest("tbody tr") && view.focus;
    body.replaceChildren(...shown.slice(0, MAX_ROWS).map(element));
    if (focused) elements.get(focused)?.element.querySelector("a").focus({ preventScroll: true });
    const hidden = shown.length - MAX_ROWS;
    count.textContent = !all.length
      ? `No jobs.${unread.length ? "" : " A job appears here as soon as it is created."}`
      : `${shown.length} of ${all.length} jobs${hidden > 0 ? `; ${hidden} are not drawn, use the filter` : ""}`;
    drawNotices();
  }

  function drawNotices() {
    const where = cluster.namespace ? "" : " in all namespaces";
    const hint = cluster.namespace ? "" : " If you work in one namespace, start the page with rallypoint ui -n NAMESPACE.";
    const texts = [
      failure,
      cluster.kinds && !cluster.kinds.length && "The cluster serves no kind of training job. Install them, then start the page again.",
      unread.length && `You have no permission to list ${unread.join(", ")}${where}, or the cluster does not serve them.${hint}`,
    ].filter(Boolean);
    if (texts.join("") !== warning.textContent) warning.replaceChildren(...texts.map((text) => notice(text)));
  }

  drawHead();
  signal.addEventListener("abort", () => { [press, early] = [null, []]; }, { once: true });
  await follow("/api/jobs", (name, change) => {
    failure = name === "failed" ? change.message : "";
    if (failure) {
      early = [];
      drawNotices();
      return;
    }
    if (change.all) rows.clear();
    for (const row of change.all || change.changed) rows.set(row.id, row);
    for (const id of change.gone || []) rows.delete(id);
    unread = change.unread;
    draw();
    if (press) return;
    press = act;
    elements.get(view.focus)?.element.querySelector("a").focus();
    for (const key of early.splice(0)) act(key);
  }, signal, setConnection);
}

/** Return whether the row belongs to a state. One that runs while pods of it wait belongs to two. */
function isIn(row, state) {
  return row.state === state || (state === "Waiting" && row.waits);
}

function link(row) {
  return row.isPast ? `#/history/${row.uid}` : `#/jobs/${row.id.split("/").map(encodeURIComponent).join("/")}`;
}
