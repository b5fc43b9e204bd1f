// Forms with data-action send their fields to the API as JSON, with the token of the page.

import { $, meta, notice } from "./dom.js";

export async function call(method, address, body) {
  const answer = await fetch(address, {
    method,
    headers: { "content-type": "application/json", "x-csrf-token": meta("csrf-token") },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const data = await answer.json().catch(() => ({ error: `the console answered ${answer.status}` }));
  if (!answer.ok) throw new Error(data.code ? `${data.error} (${data.code})` : data.error);
  return data;
}

function value(field) {
  const text = field.value;
  switch (field.dataset.kind) {
    case "bool":
      return field.checked;
    case "int":
    case "number": {
      const read = Number(text.trim());
      if (Number.isNaN(read)) throw new Error(`${field.name}: ${text} is not a number`);
      return read;
    }
    case "list":
      return text.split(",").map((part) => part.trim()).filter(Boolean).map((part) => (/^\d+$/.test(part) ? Number(part) : part));
    case "map":
      return Object.fromEntries(text.split("\n").filter((line) => line.trim()).map((line) => {
        const at = line.indexOf("=");
        if (at < 1) throw new Error(`${field.name}: ${line} is not name=value`);
        return [line.slice(0, at).trim(), line.slice(at + 1)];
      }));
    default:
      return text;
  }
}

// The body, and the address with fields that belong into it.
function collect(form, submitter) {
  const body = {};
  let address = form.dataset.action;
  const isTakingBack = submitter?.name === "delete";
  if (isTakingBack) body.delete = [submitter.value];
  for (const field of form.elements) {
    if (!field.name || field.type === "submit") continue;
    const isEmpty = field.type !== "checkbox" && field.value === "" && !("keeps" in field.dataset);
    if (address.includes(`{${field.name}}`)) {
      address = address.replace(`{${field.name}}`, encodeURIComponent(field.value));
    } else if (field.name.startsWith("set.")) {
      if (!isTakingBack) body.set = { ...body.set, [field.name.slice(4)]: value(field) };
    } else if (!isEmpty) {
      body[field.name] = value(field);
    }
  }
  return [address, body];
}

function told(data) {
  if (Array.isArray(data.partitions)) {
    const rows = data.partitions.map((each) => `${each.topic}-${each.partition}: ${each.from ?? "none"} → ${each.to}`);
    return [data.preview ? "This would change:" : "Done:", ...rows].join("\n");
  }
  if ("offset" in data) return `Written to partition ${data.partition}, offset ${data.offset}`;
  return Object.entries(data).map(([name, each]) => `${name}: ${typeof each === "object" ? JSON.stringify(each) : each}`).join("\n");
}

async function submit(event) {
  const form = event.target.closest("form[data-action]");
  if (!form) return;
  event.preventDefault();
  if (form.dataset.asks && !window.confirm(form.dataset.asks)) return;
  const answer = $("output.answer", form);
  const buttons = form.querySelectorAll("button");
  buttons.forEach((each) => (each.disabled = true));
  try {
    const [address, body] = collect(form, event.submitter);
    const data = await call(form.dataset.method, address, body);
    answer.className = "answer good";
    answer.textContent = told(data);
    if (form.dataset.then === "go" && data.go) {
      location.assign(["/c", meta("cluster"), ...data.go].map((part, at) => (at ? encodeURIComponent(part) : part)).join("/"));
    } else if (form.dataset.then === "to" && data.to) {
      location.assign(data.to);
    } else if (form.dataset.then === "reload") {
      location.reload();
    } else {
      document.dispatchEvent(new CustomEvent("ottla:changed", { detail: data }));
    }
  } catch (error) {
    answer.className = "answer bad";
    answer.textContent = error.message;
    answer.scrollIntoView({ block: "nearest" });
    if (form.classList.contains("inline")) notice(error.message);
  } finally {
    buttons.forEach((each) => (each.disabled = false));
  }
}

function click(event) {
  const opener = event.target.closest("[data-opens]");
  if (opener) {
    const opened = document.getElementById(opener.dataset.opens);
    opened.showModal();
    $("input:not([type=hidden]), select, textarea", opened)?.focus();
  }
  if (event.target.closest("[data-closes]")) event.target.closest("dialog").close();
  if (event.target.closest("[data-reload]")) location.reload();
  if (event.target instanceof HTMLDialogElement) event.target.close();
}

export function start() {
  document.addEventListener("submit", submit);
  document.addEventListener("click", click);
}
