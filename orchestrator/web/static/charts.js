// Zoomable price history: uPlot replaces the chart drawn by the server, and a selected period is requested again.
"use strict";
(() => {
  // light-dark() must be resolved by an element
  const color = name => {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const local = () => { try { return localStorage.getItem("zone") === "local"; } catch { return false; } };
  const dollars = value => {
    const [whole, part = ""] = String(+value.toPrecision(3)).split(".");
    return "$" + whole + (part || value && value < 10 ? "." + part.padEnd(2, "0") : "");
  };
  const money = value => value == null ? "-" : "$" + (value >= 10 ? value.toFixed(2) : value.toPrecision(3));

  // "27 Oct" or "06:00", in the zone that the reader chose
  function shown(at, { min, max }) {
    const zone = local() ? undefined : "UTC", moment = new Date(at * 1e3);
    const midnight = moment.toLocaleTimeString("en-GB", { timeZone: zone }) === "00:00:00";
    if (max - min > 3 * 86400 || midnight) return moment.toLocaleDateString("en-GB", { timeZone: zone, day: "numeric", month: "short" });
    return moment.toLocaleTimeString("en-GB", { timeZone: zone, hour: "2-digit", minute: "2-digit" });
  }

  async function draw(home) {
    const whole = home.dataset.series, opened = location.href;
    const read = async url => { const answer = await fetch(url); if (!answer.ok) throw new Error(url); return answer.json(); };
    let found = await read(whole);
    if (!found.times.length) return;
    const box = document.createElement("div");
    box.className = "uplot-box";
    const figure = home.querySelector("figure");
    const plot = figure.querySelector(".plot");
    const key = figure.querySelector(".key");
    plot.hidden = true;
    if (key) key.hidden = true;
    figure.append(box);
    const line = color("--line"), muted = color("--muted");
    const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui" };
    const stepped = uPlot.paths.stepped({ align: 1 });
    let busy = false;
    const options = {
      width: box.clientWidth || 600, height: 260,
      tzDate: at => local() ? new Date(at * 1e3) : uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, (high || 1) * 1.06] } },
      axes: [{ ...axis, values: (chart, ticks) => ticks.map(tick => shown(tick, chart.scales.x)) }, { ...axis, size: 60, values: (_, ticks) => ticks.map(dollars) }],
      series: [{ label: "time" }, ...found.names.map((name, place) => ({
        label: name, stroke: color(`--c${place % 6 + 1}`), width: 1.75, paths: stepped, points: { show: false },
        value: (_, value) => money(value),
      }))],
      cursor: { drag: { x: true, y: false } },
      hooks: { setSelect: [async chart => {
        if (!chart.select.width || busy) return;
        busy = true;
        const iso = at => new Date(at * 1000).toISOString().slice(0, 19) + "Z";
        const from = chart.posToVal(chart.select.left, "x"), to = chart.posToVal(chart.select.left + chart.select.width, "x");
        const url = new URL(whole, location.href), here = new URL(location.href);
        for (const each of [url, here]) {
          each.searchParams.set("since", iso(from));
          each.searchParams.set("until", iso(to));
        }
        try {
          const finer = await read(url);
          if (finer.times.length > 1) {
            chart.setData([finer.times, ...finer.values]);
            history.replaceState(null, "", here);
          }
        } finally {
          busy = false;
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }
      }] },
    };
    const chart = new uPlot(options, [found.times, ...found.values], box);
    chart.over.addEventListener("dblclick", () => {
      chart.setData([found.times, ...found.values]);
      history.replaceState(null, "", opened);
    });
    document.addEventListener("zone", () => chart.redraw(true, true));
    new ResizeObserver(() => chart.setSize({ width: box.clientWidth, height: 260 })).observe(box);
    const hint = document.createElement("p");
    hint.className = "sub";
    hint.textContent = "Drag to zoom; double-click shows everything again.";
    figure.append(hint);
  }
  for (const home of document.querySelectorAll(".chart-home[data-series]")) {
    draw(home).catch(() => { for (const node of home.querySelectorAll("[hidden]")) node.hidden = false; });
  }
})();
