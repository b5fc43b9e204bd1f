// The list of records: a page of them, as they come, or all that a search finds.

import { $, h, moment, number } from "./dom.js";

const ROWS_MAX = 500;

const OUTCOMES = {
  committed: "committed",
  aborted: "aborted",
  open: "open",
  ended: "ended, how is told further on than was looked",
  unknown: "not ended as far as was looked",
};

let stream = null;

function shown(part) {
  return part.text === null ? h("span", { class: "null" }, "null") : h("code", {}, part.text.slice(0, 300));
}

// What is committed is what one expects; the rest is told of.
function outcome(batch) {
  if (!batch.transaction || batch.transaction === "committed") return null;
  return h("span", { class: batch.transaction === "aborted" ? "tag bad" : "tag busy", title: `Its transaction: ${OUTCOMES[batch.transaction]}` }, batch.transaction);
}

function whole(title, part, bytes) {
  if (part.text === null) return h("div", {}, h("h2", {}, title), h("span", { class: "null" }, "null"));
  const text = /^\s*[[{]/.test(part.text) && part.as !== "string" ? indented(part.text) : part.text;
  const cut = part.cut ? `, the first ${number(text.length)} characters` : "";
  return h("div", {}, h("h2", {}, `${title} · ${part.as} · ${number(bytes)} bytes${cut}`), h("pre", { tabindex: "0" }, text));
}

// Laid out without being read: numbers stay as they were written, however large.
function indented(text) {
  let depth = 0;
  const line = () => "\n" + "  ".repeat(depth);
  return text.replace(/"(?:[^"\\]|\\.)*"|[{}[\],:]|\s+/g, (token, at) => {
    if (token === "{" || token === "[") {
      if (/^[{[]\s*[}\]]/.test(text.slice(at, at + 64))) return token;
      depth += 1;
      return token + line();
    }
    if (token === "}" || token === "]") {
      if (/[{[]\s*$/.test(text.slice(Math.max(at - 64, 0), at))) return token;
      depth = Math.max(depth - 1, 0);
      return line() + token;
    }
    if (token === ",") return token + line();
    if (token === ":") return ": ";
    return token.startsWith('"') ? token : "";
  });
}

function opened(record) {
  const parts = [whole("Key", record.key, record.keyBytes), whole("Value", record.value, record.valueBytes)];
  if (record.headers.length) {
    const rows = record.headers.map((each) => h("tr", {}, h("td", {}, h("code", {}, each.name)), h("td", {}, each.text ?? h("span", { class: "null" }, "null"))));
    const title = record.headersCut ? `The first ${number(record.headers.length)} of ${number(record.headersCut)} headers` : "Headers";
    parts.push(h("div", {}, h("h2", {}, title), h("table", {}, h("tbody", {}, ...rows))));
  }
  const batch = record.batch;
  const facts = [`batch of ${number(batch.records)} from offset ${batch.baseOffset}`, `${number(batch.bytes)} bytes`, `compression ${batch.compression}`, `leader epoch ${batch.leaderEpoch}`];
  if (batch.producerId !== undefined) facts.push(`producer ${batch.producerId} epoch ${batch.producerEpoch}`);
  if (batch.transaction) facts.push(`transaction ${OUTCOMES[batch.transaction]}`);
  parts.push(h("small", {}, facts.join(" · ")));
  return h("div", { class: "whole" }, ...parts);
}

function row(record, isNew = false) {
  const made = h("details", { class: isNew ? "record new" : "record" },
    h("summary", {},
      h("span", { class: "place" }, `${record.partition} · ${record.offset}`),
      h("time", {}, moment(record.timestamp)),
      h("span", {}, shown(record.key)),
      h("span", {}, outcome(record.batch), shown(record.value))));
  // Most records are never opened: what they hold is laid out when one is.
  made.addEventListener("toggle", () => {
    if (made.open && made.children.length === 1) made.append(opened(record));
  });
  return made;
}

function head() {
  return h("div", { class: "records-head" }, ...["Place", "Time (UTC)", "Key", "Value"].map((each) => h("span", {}, each)));
}

function tell(text, isBad = false) {
  const place = $("#progress");
  place.textContent = text;
  place.className = isBad ? "bad" : "";
}

function stop() {
  stream?.close();
  stream = null;
  $("[data-stop]").hidden = true;
}

function more(list, page, query) {
  const link = (text, cursor) => {
    const asked = new URLSearchParams(query);
    asked.set("start", "cursor");
    asked.set("cursor", cursor);
    return h("a", { href: `?${asked}` }, text);
  };
  $("#more").replaceChildren(...[
    page.older ? link("Older records", page.older) : null,
    page.next ? link("Next records", page.next) : null,
  ].filter(Boolean));
}

async function load(list) {
  tell("reading …");
  const answer = await fetch(`${list.dataset.source}?${list.dataset.find}`);
  const page = await answer.json();
  if (stream) return;
  if (!answer.ok) return tell(page.error, true);
  list.replaceChildren(...(page.records.length ? [head(), ...page.records.map((each) => row(each))] : []));
  const unfinished = (page.older || page.next) && page.lookedAt > page.records.length ? "; there is more to look at" : "";
  tell(page.records.length ? `${number(page.records.length)} records, of ${number(page.lookedAt)} looked at${unfinished}` : `nothing found in ${number(page.lookedAt)} records${unfinished}`);
  more(list, page, list.dataset.find);
}

function open(list, kind) {
  stop();
  const asked = new URLSearchParams([...new FormData($("form.find"))].filter(([, value]) => value !== ""));
  if (kind === "search" && asked.get("start") === "newest") asked.set("start", "oldest");
  list.replaceChildren(head());
  $("#more").replaceChildren();
  stream = new EventSource(`${list.dataset.source}/${kind}?${asked}`);
  $("[data-stop]").hidden = false;
  tell(kind === "tail" ? "waiting for records …" : "searching …");
  const isTail = kind === "tail";
  let waiting = [];
  let count = 0;
  // At most as many rows as anybody looks at, put in once per frame however fast they come.
  const flush = () => {
    const rows = waiting.splice(0);
    if (isTail) {
      list.firstChild.after(...rows.reverse());
      while (list.children.length > ROWS_MAX + 1) list.lastChild.remove();
    } else list.append(...rows);
  };
  stream.addEventListener("record", (event) => {
    count += 1;
    waiting.push(row(JSON.parse(event.data), isTail));
    if (waiting.length > ROWS_MAX) waiting.shift();
    if (waiting.length === 1) requestAnimationFrame(flush);
  });
  stream.addEventListener("progress", (event) => {
    const at = JSON.parse(event.data);
    if (isTail) tell(`live: ${number(at.looked)} looked at${at.skipped ? `, ${number(at.skipped)} too many to show` : ""}`);
    else tell(`${number(at.found)} found, ${Math.round((100 * (at.total - at.left)) / Math.max(at.total, 1))} % of ${number(at.total)}`);
  });
  stream.addEventListener("done", (event) => {
    const at = JSON.parse(event.data);
    stop();
    tell(`${number(at.found)} found in ${number(at.looked)} records${at.full ? "; stopped there, narrow the search for others" : ""}`);
  });
  stream.addEventListener("problem", (event) => {
    stop();
    tell(JSON.parse(event.data).error, true);
  });
  stream.onerror = () => {
    if (stream?.readyState === EventSource.CLOSED) {
      stop();
      tell("the console refused; are the filters right?", true);
    } else if (stream && !isTail) {
      // The browser would ask again, and be told everything a second time; a live view just goes on.
      stop();
      tell(`${number(count)} found, then the connection to the console was lost: search again`, true);
    }
  };
}

function exporting(list, link) {
  const asked = new URLSearchParams([...new FormData($("form.find"))].filter(([name, value]) => value !== "" && name !== "limit"));
  if (asked.get("start") === "newest") asked.set("start", "oldest");
  asked.set("format", link.dataset.export);
  link.href = `${list.dataset.source}/export?${asked}`;
}

export function start() {
  const list = $("#records");
  if (!list) return;
  load(list);
  document.addEventListener("click", (event) => {
    const starter = event.target.closest("[data-stream]");
    if (starter) open(list, starter.dataset.stream);
    if (event.target.closest("[data-stop]")) {
      stop();
      tell(`${$("#progress").textContent}; stopped`);
    }
    const link = event.target.closest("[data-export]");
    if (link) exporting(list, link);
  });
  document.addEventListener("ottla:changed", () => {
    if (!stream) load(list);
  });
  document.querySelectorAll("form.find select[name=start]").forEach((each) => each.addEventListener("change", () => {
    if (each.value === "offset" || each.value === "time") $(`form.find [name=${each.value}]`).focus();
  }));
}
