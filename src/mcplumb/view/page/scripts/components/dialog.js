// A modal dialog: the browser's own, which keeps the focus and closes with Escape.

import { el, newId } from "../dom.js";

/**
 * Shows a dialog until it is closed, and returns the value of the action that closed it; "" if it was dismissed.
 * @param {object} options
 * @param {string} options.title
 * @param {Node} options.body
 * @param {{label: string, value: string, kind?: string, check?: () => boolean}[]} [options.actions] buttons; `check`
 *   may return false to keep the dialog open
 * @param {(close: (value: string) => void) => void} [options.opened] gets a function that closes it
 * @returns {Promise<string>}
 */
export function dialog({ title, body, actions = [], opened }) {
  return new Promise((resolve) => {
    const id = newId("dialog");
    const close = (/** @type {string} */ value) => box.close(value);
    const box = el(
      "dialog",
      { class: "dialog", "aria-labelledby": id },
      el(
        "div",
        { class: "dialog-head" },
        el("h2", { id }, title),
        el("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => close("") }, "✕"),
      ),
      el("div", { class: "dialog-body" }, body),
      el(
        "div",
        { class: "dialog-actions" },
        ...actions.map(({ label, value, kind, check }) =>
          el("button", { type: "button", class: kind, onclick: () => (check?.() ?? true) && close(value) }, label),
        ),
      ),
    );
    // The keys that call also send what was typed here. Before that, they may have been meant for the page below.
    let isTyped = false;
    box.addEventListener("input", () => (isTyped = true));
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !isTyped) return;
      event.preventDefault();
      const primary = box.querySelector(".dialog-actions .primary");
      if (primary instanceof HTMLElement) primary.click();
    });
    box.addEventListener("close", () => {
      box.remove();
      resolve(box.returnValue);
    });
    document.body.append(box);
    box.showModal();
    opened?.(close);
  });
}
