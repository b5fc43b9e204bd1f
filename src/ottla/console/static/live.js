// Search that answers while one types: the same page is asked for, and its results are put in place.

import { $ } from "./dom.js";

// Pages are escaped by the console; this is the only place where text becomes markup.
const policy = globalThis.trustedTypes?.createPolicy("ottla", { createHTML: (text) => text }) ?? { createHTML: (text) => text };
const PAUSE_MS = 150;
let latest = 0;

async function renew(form) {
  const mine = ++latest;
  const fields = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const address = `${location.pathname}?${fields}`;
  const answer = await fetch(address);
  const text = await answer.text();
  if (mine !== latest) return;
  const found = new DOMParser().parseFromString(policy.createHTML(text), "text/html").getElementById("results");
  if (found) {
    $("#results").replaceWith(document.adoptNode(found));
    history.replaceState(null, "", address);
  }
}

function filter(input) {
  const wanted = input.value.toLowerCase();
  for (const each of document.getElementById(input.dataset.filters).children) {
    each.hidden = !each.dataset.text.toLowerCase().includes(wanted);
  }
}

export function start() {
  let waiting;
  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-filters]")) filter(event.target);
    const form = event.target.closest("form[data-live]");
    if (!form) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => renew(form), PAUSE_MS);
  });
}
