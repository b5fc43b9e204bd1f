// Forms with data-action send their fields to the API as JSON, with the token of the page.

import { $, h, meta, notice } from "./dom.js";

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
    case "names":
      return text.split(",").map((part) => part.trim()).filter(Boolean);
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
  const body = form.dataset.values ? JSON.parse(form.dataset.values) : {};
  let address = submitter?.dataset.action ?? form.dataset.action;
  const isTakingBack = submitter?.name === "delete";
  if (isTakingBack) body.delete = [submitter.value];
  for (const field of form.elements) {
    if (!field.name || field.type === "submit") continue;
    const isEmpty = field.type !== "checkbox" && field.value === "" && !("keeps" in field.dataset);
    if (address.includes(`{${field.name}}`)) {
      address = address.replace(`{${field.name}}`, encodeURIComponent(field.value));
    } else if ("place" in field.dataset) {
      // It belongs into the address of another button.
    } else if (field.name.startsWith("set.")) {
      if (!isTakingBack && !(isEmpty && "optional" in field.dataset)) body.set = { ...body.set, [field.name.slice(4)]: value(field) };
    } else if (field.dataset.kind === "each") {
      body[field.name] = [...(body[field.name] ?? []), ...(field.checked ? [Number(field.value)] : [])];
    } else if (!isEmpty) {
      body[field.name] = value(field);
    }
  }
  return [address, body];
}

// What a check found, beside the fields it is about, and the first of them in sight.
function checked(form, errors) {
  form.querySelectorAll(".wrong").forEach((each) => each.remove());
  const others = [];
  for (const [name, texts] of Object.entries(errors)) {
    const field = form.elements[`set.${name}`];
    const place = field?.closest?.("label");
    if (!place) others.push(...texts);
    else {
      place.append(h("small", { class: "wrong bad" }, texts.join(" ")));
      const hidden = place.closest("details:not([open])");
      if (hidden) hidden.open = true;
    }
  }
  $(".wrong", form)?.scrollIntoView({ block: "center" });
  return others;
}

function told(data) {
  if (data.errors) return data.count ? `${data.count} ${data.count === 1 ? "thing is" : "things are"} wrong.` : "Nothing is wrong with these settings.";
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
  const answer = $("output.answer", form);
  const buttons = form.querySelectorAll("button");
  buttons.forEach((each) => (each.disabled = true));
  form.setAttribute("aria-busy", "true");
  try {
    const [address, body] = collect(form, event.submitter);
    const data = await call(event.submitter?.dataset.method ?? form.dataset.method, address, body);
    const then = event.submitter?.dataset.then ?? form.dataset.then;
    answer.className = "answer good";
    answer.textContent = told(data);
    if (then === "check") {
      const others = checked(form, data.errors);
      if (data.count) answer.className = "answer bad";
      if (others.length) answer.textContent += `\n${others.join("\n")}`;
    } else if (then === "plan") {
      answer.textContent = "";
      document.dispatchEvent(new CustomEvent("ottla:planned", { detail: { form, data } }));
    } else if (then === "go" && data.go) {
      location.assign(["/c", meta("cluster"), ...data.go].map((part, at) => (at ? encodeURIComponent(part) : part)).join("/"));
    } else if (then === "to" && data.to) {
      location.assign(data.to);
    } else if (then === "reload") {
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
    form.removeAttribute("aria-busy");
  }
}

// One dialog asks for all rows of a table: what it is about stands at the button.
function mean(opener, form) {
  Object.assign(form.dataset, { method: opener.dataset.method, action: opener.dataset.action, values: opener.dataset.values });
  const typed = form.elements.confirm;
  typed.value = "";
  $("span", typed.closest("label")).textContent = `Type ${opener.dataset.typed} to confirm`;
  $("output.answer", form).textContent = "";
}

function click(event) {
  const opener = event.target.closest("[data-opens]");
  if (opener) {
    const opened = document.getElementById(opener.dataset.opens);
    if ("typed" in opener.dataset) mean(opener, $("form", opened));
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
