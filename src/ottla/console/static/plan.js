// A plan of moves, drawn before anything is moved: a row for each partition, a column for each broker.

import { $, h, number } from "./dom.js";
import { call } from "./forms.js";

const ROWS_MAX = 300;
const KINDS = {
  stays: ["●", "stays"],
  comes: ["+", "comes"],
  goes: ["−", "goes"],
};

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) {
    bytes /= 1024;
    at += 1;
  }
  return `${at ? bytes.toFixed(1) : bytes} ${units[at]}`;
}

function kind(move, broker) {
  const [was, will] = [move.from.includes(broker), move.to.includes(broker)];
  return was && will ? "stays" : will ? "comes" : was ? "goes" : null;
}

function cell(move, broker) {
  const found = kind(move, broker);
  if (!found) return h("td", { class: "replica" });
  const [sign, text] = KINDS[found];
  const leads = move.to[0] === broker ? ", leads" : "";
  return h("td", { class: `replica ${found}`, title: `${move.topic}-${move.partition}: broker ${broker} ${text}${leads}` }, leads ? `${sign} L` : sign);
}

function drawn(plan) {
  const heads = ["Partition", ...plan.brokers.map((broker) => `Broker ${broker}`), "To copy"];
  const rows = plan.moves.slice(0, ROWS_MAX).map((move) => h("tr", {},
    h("th", { scope: "row" }, `${move.topic}-${move.partition}`),
    ...plan.brokers.map((broker) => cell(move, broker)),
    h("td", { class: "number" }, size(move.bytes))));
  const legend = Object.entries(KINDS).flatMap(([name, [sign, text]]) => [h("span", { class: `replica ${name}` }, sign), ` ${text}  `]);
  return h("div", {},
    h("p", { class: "quiet legend" }, ...legend, "· L leads afterwards"),
    h("div", { class: "table", tabindex: "0" },
      h("table", { class: "replicas", "aria-label": "The plan" },
        h("thead", {}, h("tr", {}, ...heads.map((each) => h("th", { scope: "col" }, each)))),
        h("tbody", {}, ...rows))),
    plan.moves.length > ROWS_MAX ? h("p", { class: "quiet" }, `${number(plan.moves.length - ROWS_MAX)} more are moved, too.`) : null);
}

function show(form, plan) {
  const place = $("#plan");
  if (!plan.moves.length) return place.replaceChildren(h("p", { class: "empty" }, `Nothing has to move: ${number(plan.unchanged)} partitions are where they may be.`));
  const button = h("button", { type: "button" }, `Change ${number(plan.moves.length)} partitions`);
  const answer = h("output", { class: "answer", "aria-live": "polite" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const targets = Object.fromEntries(plan.moves.map((move) => [`${move.topic}-${move.partition}`, move.to]));
      const done = await call("POST", form.dataset.moves, { plan: targets });
      const failed = Object.entries(done.failed).map(([name, text]) => `${name}: ${text}`);
      if (!failed.length) return location.reload();
      answer.className = "answer bad";
      answer.textContent = failed.join("\n");
    } catch (error) {
      answer.className = "answer bad";
      answer.textContent = error.message;
      button.disabled = false;
    }
  });
  place.replaceChildren(
    h("p", {}, `${number(plan.moves.length)} partitions change, ${number(plan.unchanged)} stay as they are; ${size(plan.bytes)} are copied between brokers.`),
    drawn(plan), h("div", { class: "buttons" }, button), answer);
  place.scrollIntoView({ block: "nearest" });
}

export function start() {
  document.addEventListener("ottla:planned", (event) => show(event.detail.form, event.detail.data));
}
