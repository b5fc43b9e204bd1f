// Elements are made here and nowhere from text: what a record says is never read as markup.

export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function $(selector, within = document) {
  return within.querySelector(selector);
}

export function meta(name) {
  return $(`meta[name="${name}"]`)?.content ?? "";
}

export function number(count) {
  return Number(count).toLocaleString("en").replaceAll(",", "\u2009");
}

export function moment(ms) {
  // Clients write what they like; a date ends in the year 275760.
  if (ms > 8.64e15) return `${ms} ms`;
  return ms < 0 ? "–" : new Date(ms).toISOString().replace("T", " ").replace("Z", "");
}

export function notice(text) {
  const shown = h("div", { class: "notice" }, text);
  $("#notices").append(shown);
  setTimeout(() => shown.remove(), 5000);
}
