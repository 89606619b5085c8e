// Requests to the server of this page. The token is in the storage of this origin; the fragment that brought it is removed.

const KEY = "rallypoint-token";

/** Take the token that the URL brings, if any. Return whether the server accepts it: a wrong one does not replace the one in storage. */
export async function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (!given) return true;
  history.replaceState(null, "", "/#/");
  const headers = { Authorization: `Bearer ${given[1]}` };
  const response = await fetch("/api/cluster", { headers, cache: "no-store" }).catch(() => null);
  if (response?.status === 401) return false;
  localStorage.setItem(KEY, given[1]);
  return true;
}

export function hasToken() {
  return Boolean(localStorage.getItem(KEY));
}

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, signal) {
  const headers = { Authorization: `Bearer ${localStorage.getItem(KEY) || ""}` };
  const response = await fetch(path, { headers, signal, cache: "no-store" });
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Refused(response.status, answer.message || response.statusText);
}

export async function get(path, signal) {
  return (await request(path, signal)).json();
}

/**
 * Follow server-sent events until the signal aborts: call `on(name, data)` for each. Reconnect after errors, at most 10 s later, and while
 * the tab is hidden close the connection, because a browser has only six of them for all tabs. `failed` says why the server has no data;
 * it also stands for an answer of 500 or more, and makes no connection live. Return after the event `end`; throw if refused. An EventSource could not send the token.
 */
export async function follow(path, on, signal, onState = () => {}) {
  let pause = 500;
  while (!signal.aborted) {
    await visible(signal);
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    const hide = () => document.hidden && attempt.abort();
    signal.addEventListener("abort", abort);
    document.addEventListener("visibilitychange", hide);
    try {
      const response = await request(path, attempt.signal);
      let isLive = false;
      for await (const [name, data] of events(response.body)) {
        if (name === "failed") {
          on(name, data);
          continue;
        }
        if (!isLive) onState(true);
        isLive = true;
        if (name === "end") return;
        if (name === "ping") continue;
        pause = 500;
        on(name, data);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.status < 500) throw error;
      if (error instanceof Refused) on("failed", { message: error.message });
    } finally {
      signal.removeEventListener("abort", abort);
      document.removeEventListener("visibilitychange", hide);
    }
    if (document.hidden) continue;
    onState(false);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, 10000);
  }
}

function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const check = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", check);
      resolve();
    };
    document.addEventListener("visibilitychange", check);
    signal.addEventListener("abort", check);
  });
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      yield [field("event"), JSON.parse(field("data"))];
    }
  }
}
