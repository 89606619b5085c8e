// Elements and texts. Text becomes text nodes only; nothing on this page parses HTML.

/** Return a new element. Attributes that are functions are event listeners; null, undefined and false leave an attribute out. */
export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function svg(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child || child === 0));
  return element;
}

/** Return a duration such as 8s, 3m12s, 5h20m or 2d4h. */
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return `${days}d${hours}h`;
  if (hours) return `${hours}h${minutes}m`;
  return minutes ? `${minutes}m${seconds % 60}s` : `${seconds}s`;
}

/** Return the milliseconds of an RFC 3339 time; NaN without one. */
export function at(time) {
  return time ? Date.parse(time) : NaN;
}

const EXACTLY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** Return a <time> that shows how long ago something was, and exactly when on hover. `tick` updates it. */
export function ago(time) {
  if (!time) return h("span", {}, "–");
  return h("time", { datetime: time, title: EXACTLY.format(at(time)) }, duration(Date.now() - at(time)));
}

export function tick(root) {
  for (const element of root.querySelectorAll("time")) {
    const text = duration(Date.now() - at(element.dateTime));
    if (element.textContent !== text) element.textContent = text;
  }
}

const UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

/** Return an amount of bytes such as 1.5 Gi. */
export function bytes(amount) {
  let unit = 0;
  while (amount >= 1024 && unit < UNITS.length - 1) [amount, unit] = [amount / 1024, unit + 1];
  return `${amount >= 10 || unit === 0 ? Math.round(amount) : amount.toFixed(1)} ${UNITS[unit]}B`;
}

export function number(amount) {
  return String(Number(amount.toPrecision(3)));
}

/** Return requests such as "8 nvidia.com/gpu, 16 cpu, 64 GiB": extended resources first. */
export function resources(requests) {
  const order = (name) => (name.includes("/") ? 0 : name === "cpu" ? 1 : 2);
  return Object.entries(requests || {})
    .filter(([, amount]) => amount)
    .sort(([a], [b]) => order(a) - order(b) || (a < b ? -1 : 1))
    .map(([name, amount]) =>
      name === "memory" ? bytes(amount) : name === "ephemeral-storage" ? `${bytes(amount)} disk` : `${number(amount)} ${name}`)
    .join(", ");
}

const REASONS = { Succeeded: "good", Completed: "good", Running: "active", Failed: "bad", Error: "bad", Restarting: "warn", Terminating: "warn" };

/** Return a state as a colored word; the word tells as much as the color. */
export function badge(state) {
  const tone = REASONS[state] || (/exit code|Err|BackOff|Evicted|OOM|Refused/.test(state) ? "bad" : "idle");
  return h("span", { class: `badge ${tone}` }, state);
}

/** Return a bar of how many replicas succeeded, run and failed, of those that the job has, and the same in words. */
export function replicaBar({ desired, active, succeeded, failed }) {
  const total = Math.max(desired, active + succeeded + failed, 1);
  const text = `${active} running, ${succeeded} succeeded, ${failed} failed of ${desired}`;
  const parts = [[succeeded, "succeeded"], [failed, "failed"], [active, "running"]].filter(([count]) => count);
  const [[first, word], ...others] = parts.length ? parts : [[0, "running"]];
  const words = [`${first} of ${desired} ${word}`, ...others.map((part) => part.join(" "))].join(", ");
  const bar = h("span", { class: "replica-bar", role: "img", "aria-label": text, title: text });
  let end = 0;
  const stops = [["good", succeeded], ["active", active], ["bad", failed], ["line", total - active - succeeded - failed]].map(([tone, count]) => {
    const begin = end;
    end += (100 * count) / total;
    return `var(--${tone}) ${begin}% ${end}%`;
  });
  bar.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
  return h("span", { class: "replicas" }, bar, " ", h("span", {}, words));
}

/** Show a message in place of the content. */
export function notice(text, ...more) {
  return h("p", { class: "notice", role: "alert" }, text, ...more);
}
