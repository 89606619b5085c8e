// The page: which view the address names, and what all views share.
import { get, hasToken, Refused, takeToken } from "/api.js";
import { h, notice, tick } from "/dom.js";
import { showJobs } from "/jobs.js";
import { showJob } from "/job.js";

const main = document.getElementById("main");
const keys = document.getElementById("keys");
const OPEN = "Open the URL with the token that the command printed.";
let current = new AbortController();
let about = Promise.resolve({ history: false });

function setConnection(live) {
  const element = document.getElementById("connection");
  element.textContent = live ? "live" : "reconnecting";
  element.className = live ? "" : "bad";
}

async function route() {
  current.abort();
  current = new AbortController();
  const { signal } = current;
  const parts = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  const root = h("div", {});
  main.replaceChildren(root);
  scrollTo(0, 0);
  const context = { root, signal, about, setConnection };
  try {
    if (parts[0] === "jobs" && parts.length === 4) await showJob(context, { path: parts.slice(1) });
    else if (parts[0] === "history" && parts.length === 2) await showJob(context, { uid: parts[1] });
    else await showJobs(context);
  } catch (error) {
    if (signal.aborted) return;
    root.replaceChildren(error instanceof Refused && error.status === 401
      ? notice(hasToken() ? `The token that this browser has is wrong or old. ${OPEN}` : OPEN)
      : notice(error.message));
    setConnection(false);
  }
}

async function start() {
  if (!(await takeToken())) {
    current.abort();
    main.replaceChildren(notice(`The token in the URL is wrong. ${OPEN}`));
    setConnection(false);
    return;
  }
  about = get("/api/cluster").catch(() => ({ history: false, server: "" }));
  about.then(({ server, namespace }) => {
    document.getElementById("server").textContent = namespace ? `${server}, namespace ${namespace}` : server;
  });
  route();
}

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) start();
  else if (location.hash.startsWith("#/") || !location.hash) route();
});
addEventListener("keydown", (event) => {
  if (keys.open) return;
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName);
  if (event.key === "?" && !isTyping) keys.showModal();
  else if (event.key === "Escape" && isTyping) document.activeElement.blur();
  else if (event.key === "Escape" && location.hash !== "#/") location.hash = "#/";
  else if (event.key === "/" && !isTyping) {
    const filter = document.getElementById("filter");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  }
});
document.getElementById("show-keys").addEventListener("click", () => keys.showModal());
document.getElementById("hide-keys").addEventListener("click", () => keys.close());
setInterval(() => tick(document), 1000);
start();
