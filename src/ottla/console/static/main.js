import * as charts from "./charts.js";
import * as forms from "./forms.js";
import * as keys from "./keys.js";
import * as live from "./live.js";
import * as plan from "./plan.js";
import * as records from "./records.js";
import * as theme from "./theme.js";

for (const part of [theme, forms, live, keys, records, charts, plan]) part.start();

// Where one is stays in sight, in a window too narrow for all there is.
for (const place of document.querySelectorAll(".sections [aria-current], .tabs [aria-current]")) place.scrollIntoView({ block: "nearest", inline: "nearest" });

document.documentElement.dataset.ready = "";

// Boxes that narrow a list down do so at once.
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
});
