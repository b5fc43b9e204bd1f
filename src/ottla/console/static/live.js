// Search that answers while one types, and results that change by themselves: the same page is asked for, and
// its results are put in place.

import { $ } from "./dom.js";

// Pages are escaped by the console; this is the only place where text becomes markup.
const policy = globalThis.trustedTypes?.createPolicy("ottla", { createHTML: (text) => text }) ?? { createHTML: (text) => text };
const PAUSE_MS = 150;
let latest = 0;

async function put(address) {
  const mine = ++latest;
  const answer = await fetch(address).catch(() => null);
  const text = await answer?.text();
  if (!text || mine !== latest) return false;
  const found = new DOMParser().parseFromString(policy.createHTML(text), "text/html").getElementById("results");
  if (found) $("#results").replaceWith(document.adoptNode(found));
  return found !== null;
}

async function renew(form) {
  const fields = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const address = `${location.pathname}?${fields}`;
  if (await put(address)) history.replaceState(null, "", address);
}

// Not under the hands of somebody who reads or writes in it.
function isInUse(results) {
  return document.visibilityState !== "visible" || results.contains(document.activeElement) || $("details[open], .chosen", results) || $("dialog[open]");
}

function refresh() {
  const results = $("#results[data-refreshes]");
  if (!results) return;
  setTimeout(async () => {
    if (!isInUse($("#results"))) await put(location.href);
    refresh();
  }, Number(results.dataset.refreshes));
}

function filter(input) {
  const wanted = input.value.toLowerCase();
  for (const each of document.getElementById(input.dataset.filters).children) {
    each.hidden = !each.dataset.text.toLowerCase().includes(wanted);
  }
}

export function start() {
  refresh();
  let waiting;
  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-filters]")) filter(event.target);
    const form = event.target.closest("form[data-live]");
    if (!form) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => renew(form), PAUSE_MS);
  });
}
