// Charts over time, drawn as SVG from what the API measured, and renewed while they are looked at.

import { $ } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
const RENEW_MS = 10_000;
const HEIGHT = 168;
const BELOW = 22;
const ABOVE = 10;
const LEFT = 66;
const RIGHT = 10;

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function amount(value, unit) {
  if (value === null || value === undefined) return "–";
  const isBytes = unit.startsWith("B");
  const base = isBytes ? 1024 : 1000;
  const units = isBytes ? ["", "Ki", "Mi", "Gi", "Ti"] : ["", "k", "M", "G", "T"];
  let at = 0;
  let rest = value;
  while (rest >= base && at < units.length - 1) {
    rest /= base;
    at += 1;
  }
  const text = rest >= 100 || Number.isInteger(rest) ? String(Math.round(rest)) : rest.toFixed(1);
  return `${text}${unit || units[at] ? "\u2009" : ""}${units[at]}${unit}`;
}

const clock = (ms) => new Date(ms).toISOString().slice(11, 16);
const clockWithSeconds = (ms) => new Date(ms).toISOString().slice(11, 19);

// Steps that people count in: 1, 2, 5, 10 … or their like of 1,024.
function topAndStep(max, unit) {
  const base = unit.startsWith("B") ? 1024 : 1000;
  let scale = 1;
  while (max / scale >= base) scale *= base;
  const rough = Math.max(max, 1e-9) / scale / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power * scale;
  return [Math.ceil(max / step - 1e-9) * step, step];
}

// One path for each run of values: where nothing was measured there is a hole.
function runs(times, values, x, y) {
  const found = [];
  let run = null;
  values.forEach((value, at) => {
    if (value === null) {
      run = null;
      return;
    }
    if (!run) found.push((run = []));
    run.push([x(times[at]), y(value)]);
  });
  return found;
}

const path = (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function draw(chart, data) {
  const plot = $(".plot", chart);
  const names = chart.dataset.names.split(",");
  const series = chart.dataset.series.split(",").map((each) => data[each]);
  const unit = chart.dataset.unit;
  const measured = series.flat().filter((value) => value !== null);
  if (measured.length < 2 || data.times.length < 2) return;
  const width = Math.max(plot.clientWidth, 240);
  const [first, last] = [data.times[0], data.times.at(-1)];
  const [top, step] = topAndStep(Math.max(...measured, 1), unit);
  const x = (ms) => LEFT + ((ms - first) / Math.max(last - first, 1)) * (width - LEFT - RIGHT);
  const y = (value) => ABOVE + (1 - value / top) * (HEIGHT - ABOVE - BELOW);
  const newest = series.map((values) => values.at(-1));
  const said = names.map((name, at) => `${name} ${amount(newest[at], unit)}`).join(", ");
  const drawn = svg("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img",
    "aria-label": `${$("figcaption", chart).textContent}, from ${clock(first)} to ${clock(last)} UTC: now ${said}, at most ${amount(Math.max(...measured), unit)}`,
  });
  for (let value = 0; value <= top + step / 2; value += step) {
    drawn.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
    drawn.append(svg("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, amount(value, unit)));
  }
  for (const at of [0, 1 / 3, 2 / 3, 1]) {
    const ms = first + at * (last - first);
    const anchor = at === 0 ? "start" : at === 1 ? "end" : "middle";
    drawn.append(svg("text", { class: "tick", x: x(ms), y: HEIGHT - 5, "text-anchor": anchor }, last - first < 300_000 ? clockWithSeconds(ms) : clock(ms)));
  }
  series.forEach((values, at) => {
    for (const points of runs(data.times, values, x, y)) {
      if (series.length === 1 && points.length > 1) {
        const area = `${path(points)}L${points.at(-1)[0].toFixed(1)} ${y(0)}L${points[0][0].toFixed(1)} ${y(0)}Z`;
        drawn.append(svg("path", { class: `area area-${at}`, d: area }));
      }
      if (points.length > 1) drawn.append(svg("path", { class: `line line-${at}`, d: path(points) }));
      else drawn.append(svg("circle", { class: `dot dot-${at}`, cx: points[0][0], cy: points[0][1], r: 2.5 }));
    }
  });
  plot.replaceChildren(drawn);
  const shown = chart.querySelectorAll(".key .newest");
  const tell = (values) => values.forEach((value, at) => (shown[at].textContent = amount(value, unit)));
  tell(newest);
  pointed(chart, drawn, data.times, series, x, tell, newest);
}

// What it was at the moment one points at, in the same place as what it is now.
function pointed(chart, drawn, times, series, x, tell, newest) {
  const line = svg("line", { class: "cursor", y1: ABOVE, y2: HEIGHT - BELOW, x1: -10, x2: -10 });
  const when = svg("text", { class: "tick when", y: ABOVE + 2, x: -100 });
  drawn.append(line, when);
  drawn.addEventListener("pointermove", (event) => {
    const at = event.clientX - drawn.getBoundingClientRect().left;
    let near = 0;
    times.forEach((ms, index) => {
      if (Math.abs(x(ms) - at) < Math.abs(x(times[near]) - at)) near = index;
    });
    const place = x(times[near]);
    line.setAttribute("x1", place);
    line.setAttribute("x2", place);
    const isRight = place > drawn.clientWidth - 80;
    when.setAttribute("x", place + (isRight ? -6 : 6));
    when.setAttribute("text-anchor", isRight ? "end" : "start");
    when.textContent = clockWithSeconds(times[near]);
    tell(series.map((values) => values[near]));
  });
  drawn.addEventListener("pointerleave", () => {
    line.setAttribute("x1", -10);
    line.setAttribute("x2", -10);
    when.setAttribute("x", -100);
    tell(newest);
  });
}

async function renew(charts, drawn) {
  for (const source of new Set(charts.map((each) => each.dataset.source))) {
    const answer = await fetch(source).catch(() => null);
    if (!answer?.ok) continue;
    drawn.set(source, await answer.json());
    charts.filter((each) => each.dataset.source === source).forEach((each) => draw(each, drawn.get(source)));
  }
}

export function start() {
  const charts = [...document.querySelectorAll(".chart[data-source]")];
  if (!charts.length) return;
  const drawn = new Map();
  const again = async () => {
    if (document.visibilityState === "visible" && !charts.some((each) => each.matches(":hover"))) await renew(charts, drawn);
    setTimeout(again, RENEW_MS);
  };
  again();
  new ResizeObserver(() => charts.forEach((each) => {
    if (drawn.has(each.dataset.source)) draw(each, drawn.get(each.dataset.source));
  })).observe(charts[0]);
}
