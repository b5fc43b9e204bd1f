// A cookie, so that the next page comes in the right colours at once.

import { $ } from "./dom.js";

export function start() {
  $("[data-theme-button]")?.addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = getComputedStyle(root).colorScheme === "dark";
    root.dataset.theme = isDark ? "light" : "dark";
    document.cookie = `ottla_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  });
}
