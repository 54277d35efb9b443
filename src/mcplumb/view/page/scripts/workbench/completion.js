// Suggestions while one types, as in the combobox of the ARIA practices: arrow keys move, Enter takes, Escape closes.

import { el, fill, newId } from "../dom.js";

/** Milliseconds without a key before the server is asked. */
const PAUSE = 120;
const MOST = 100;

/**
 * Returns an element with the input and its suggestions.
 * @param {HTMLInputElement} input
 * @param {(value: string) => Promise<string[]>} complete
 * @param {() => void} changed
 */
export function completing(input, complete, changed) {
  const id = newId("suggestions");
  const list = el("ul", { role: "listbox", id, class: "suggestions", "aria-label": "Suggestions", hidden: true });
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-controls": id, "aria-expanded": "false" })) {
    input.setAttribute(name, value);
  }
  /** @type {string[]} */
  let values = [];
  let at = -1;
  let timer = 0;
  let asked = 0;

  const close = () => {
    clearTimeout(timer);
    asked++;
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const take = (/** @type {string} */ value) => {
    input.value = value;
    close();
    changed();
    input.focus();
  };
  const mark = () => {
    [...list.children].forEach((each, index) => each.setAttribute("aria-selected", String(index === at)));
    const current = list.children[at];
    if (current) {
      input.setAttribute("aria-activedescendant", current.id);
      current.scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };
  const ask = async () => {
    const mine = ++asked;
    /** @type {string[]} */
    let found;
    try {
      found = await complete(input.value);
    } catch {
      found = []; // suggestions are a convenience: without them, one types on
    }
    if (mine !== asked || document.activeElement !== input) return;
    values = found.filter((each) => typeof each === "string").slice(0, MOST);
    at = -1;
    fill(
      list,
      ...values.map((value) =>
        el("li", { role: "option", id: newId("option"), "aria-selected": "false", onpointerdown: (/** @type {Event} */ event) => (event.preventDefault(), take(value)) }, value),
      ),
    );
    list.hidden = !values.length || (values.length === 1 && values[0] === input.value);
    input.setAttribute("aria-expanded", String(!list.hidden));
  };
  const schedule = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  };
  input.addEventListener("input", schedule);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "ArrowDown" && list.hidden) {
      event.preventDefault();
      ask();
    } else if (list.hidden) {
      return;
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + values.length + (at < 0 && event.key === "ArrowUp" ? 1 : 0)) % values.length;
      mark();
    } else if (event.key === "Enter" && at >= 0) {
      event.preventDefault();
      take(values[at]);
    } else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  });
  return el("div", { class: "completing" }, input, list);
}
