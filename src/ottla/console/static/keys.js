// Keys: g and a letter for a section, / for the search, j and k along rows, ? for the list.

import { $ } from "./dom.js";

let before = "";

function rows() {
  return [...document.querySelectorAll("main tbody tr, #records .record")];
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("chosen"));
  all[at]?.classList.remove("chosen");
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  next.classList.add("chosen");
  ($("summary, a", next) ?? next).focus?.();
  next.scrollIntoView({ block: "nearest" });
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog[open]")) return;
  const last = before;
  before = event.key;
  if (last === "g") {
    const link = $(`.sections a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      before = "";
      link.click();
      return;
    }
  }
  if (event.key === "/") {
    event.preventDefault();
    ($("[data-search]") ?? $("[data-filters]") ?? $("main input[type=text]"))?.focus();
  } else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "?") $("#keys").showModal();
}

export function start() {
  document.addEventListener("keydown", press);
}
