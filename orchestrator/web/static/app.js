// Small helpers of the pages. Everything else works without scripts.
"use strict";
const root = document.documentElement;
const kept = name => { try { return localStorage.getItem(name); } catch { return null; } };
const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private window */ } };

// Times: written in UTC by the server, shown in the reader's zone on request.
function showTimes(where) {
  const local = kept("zone") === "local";
  for (const node of where.querySelectorAll("time[data-form]")) {
    const at = new Date(node.dateTime);
    const of = local ? new Date(at.getTime() - at.getTimezoneOffset() * 60000) : at;
    const text = of.toISOString().replace("T", " ");
    node.textContent = text.slice(0, { day: 10, second: 19 }[node.dataset.form] || 16);
  }
  for (const chart of where.querySelectorAll(".plot .x")) {
    let before = "";
    for (const node of chart.querySelectorAll("time")) {
      node.dataset.utc ??= node.textContent;
      const at = new Date(node.dateTime), day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
      const clock = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
      const dated = node.dataset.axis === "date" || before && day !== before;
      const shown = clock === "00:00" ? day : dated ? `${day} ${clock}` : clock;
      node.textContent = local ? shown : node.dataset.utc;
      before = day;
    }
  }
  const button = document.getElementById("zone"), name = document.getElementById("zone-name");
  if (button) { button.hidden = false; button.textContent = local ? "Local time" : "UTC"; }
  if (name) name.textContent = local ? `local time (${Intl.DateTimeFormat().resolvedOptions().timeZone})` : "UTC";
}
document.addEventListener("click", event => {
  if (event.target.id === "zone") {
    keep("zone", kept("zone") === "local" ? "utc" : "local");
    showTimes(document);
    document.dispatchEvent(new Event("zone"));
  }
});
showTimes(document);

// Live updates: when the server reports a change, the content is replaced by the current state. A page in use (a form,
// an opened part, a zoomed chart) is not replaced, but says that there is newer data.
const live = document.body.dataset.live, state = document.getElementById("live-state");
if (live && state && window.EventSource) {
  const loaded = Date.now();
  let connected = true, news = false, updated = loaded;
  const inUse = () => document.querySelector("#content :focus:not([tabindex='-1']), #content details[open], .chart-home");
  const say = () => {
    const minutes = Math.floor((Date.now() - updated) / 60000);
    state.textContent = !connected ? `; the dashboard does not answer: this page is ${minutes} min old`
      : news ? "; newer data is available: reload the page" : ", live";
  };
  const source = new EventSource(live);
  source.addEventListener("hello", () => { connected = true; say(); });
  source.addEventListener("changed", async () => {
    news = true;
    if (!inUse() && window.htmx) {
      await htmx.ajax("GET", location.pathname + location.search, { target: "#content", select: "#content", swap: "outerHTML" });
      news = false;
      updated = Date.now();
      showTimes(document);
    }
    say();
  });
  source.onerror = () => { connected = false; say(); };
  setInterval(say, 30000);
}
