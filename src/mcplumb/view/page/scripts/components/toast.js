// Short messages in a corner, which screen readers read out.

import { byId, el } from "../dom.js";

/**
 * Shows a sentence for some seconds; an error stays longer.
 * @param {string} text
 * @param {"info" | "error"} [kind]
 */
export function toast(text, kind = "info") {
  const box = el("div", { class: kind === "error" ? "toast is-error" : "toast" }, text);
  const shown = byId("toasts");
  while (shown.children.length >= 4) shown.firstElementChild?.remove();
  shown.append(box);
  setTimeout(() => box.remove(), kind === "error" ? 12000 : 6000);
}

/**
 * Shows an exception as a toast.
 * @param {unknown} error
 */
export function toastError(error) {
  if (error instanceof DOMException && error.name === "AbortError") return;
  toast(error instanceof Error ? error.message : String(error), "error");
}
