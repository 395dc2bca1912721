// Small helpers of the pages. Everything but these works without scripts.
"use strict";
const root = document.documentElement;
const kept = name => { try { return localStorage.getItem(name); } catch { return null; } };
const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private window */ } };

// Times: written in UTC by the server, shown in the reader's zone on request.
function showTimes(where) {
  const local = kept("zone") === "local";
  for (const node of where.querySelectorAll("time[datetime]")) {
    const at = new Date(node.dateTime);
    const of = local ? new Date(at.getTime() - at.getTimezoneOffset() * 60000) : at;
    const text = of.toISOString().replace("T", " ");
    node.textContent = text.slice(0, { day: 10, second: 19 }[node.dataset.form] || 16);
  }
  const button = document.getElementById("zone");
  if (button) { button.hidden = false; button.textContent = local ? "Local time" : "UTC"; }
}
document.addEventListener("click", event => {
  if (event.target.id === "zone") {
    keep("zone", kept("zone") === "local" ? "utc" : "local");
    showTimes(document);
  }
});
showTimes(document);
