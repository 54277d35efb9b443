// A folding tree of a JSON value. Arrow keys move, open and close, as in the trees of the ARIA practices.

import { append, el, fill } from "../dom.js";
import { ExactNumber } from "../exact_json.js";

/** Characters of a string, and children of a list or object, that are shown before a button offers the others. */
const SHOWN_TEXT = 2000;
const SHOWN_CHILDREN = 100;
/** Levels that are open at first, if the value is not large. */
const OPEN_LEVELS = 5;
const OPEN_CHILDREN = 40;

/**
 * Returns a tree of a value.
 * @param {unknown} value
 * @param {{label?: string, open?: number}} [options] `open`: levels that are open at first
 */
export function jsonTree(value, { label = "JSON", open = OPEN_LEVELS } = {}) {
  const list = el("ul", { role: "tree", "aria-label": label });
  const entries = entriesOf(value);
  if (entries.length) more(list, entries, 0, Array.isArray(value), open - 1);
  else list.append(item(null, value, open));
  const first = list.querySelector("li");
  if (first) first.tabIndex = 0;
  list.addEventListener("keydown", key);
  list.addEventListener("click", click);
  return el("div", { class: "tree" }, list);
}

/** The members of an object, or the entries of a list; none of anything else. @param {unknown} value @returns {[string, unknown][]} */
function entriesOf(value) {
  return typeof value === "object" && value !== null && !(value instanceof ExactNumber) ? Object.entries(value) : [];
}

/** What fills an item when it is opened. @type {WeakMap<Element, () => void>} */
const openers = new WeakMap();

/**
 * @param {string | number | null} name
 * @param {unknown} value
 * @param {number} open
 * @returns {HTMLLIElement}
 */
function item(name, value, open) {
  const line = el("div", { class: "tree-line" });
  const made = el("li", { role: "treeitem", tabindex: "-1" }, line);
  const entries = entriesOf(value);
  const isFolding = entries.length > 0;
  line.append(el("span", { class: "tree-fold", "aria-hidden": "true" }, isFolding ? "▸" : ""));
  if (name !== null) line.append(el("span", { class: "tree-key" }, `${name}: `));
  if (!isFolding) {
    line.append(leaf(value));
    return made;
  }
  const isList = Array.isArray(value);
  line.append(el("span", { class: "tree-preview" }, preview(/** @type {object} */ (value), entries)));
  made.setAttribute("aria-expanded", "false");
  openers.set(made, () => {
    const group = el("ul", { role: "group" });
    more(group, entries, 0, isList, open - 1);
    made.append(group);
  });
  // Metadata is rarely what one looks for.
  if (open > 0 && entries.length <= OPEN_CHILDREN && name !== "_meta") fold(made, true);
  return made;
}

/**
 * @param {HTMLElement} group
 * @param {[string, unknown][]} entries
 * @param {number} from
 * @param {boolean} isList
 * @param {number} open
 */
function more(group, entries, from, isList, open) {
  const to = Math.min(entries.length, from + SHOWN_CHILDREN);
  for (let at = from; at < to; at++) group.append(item(isList ? at : entries[at][0], entries[at][1], open));
  if (to === entries.length) return;
  const next = el("li", { role: "none" });
  const show = () => {
    next.remove();
    more(group, entries, to, isList, open);
    focusItem(/** @type {HTMLElement} */ (group.children[to])); // the button that had the focus is no more
  };
  next.append(el("button", { type: "button", onclick: show }, `Show more (${entries.length - to} left)`));
  group.append(next);
}

/** @param {unknown} value */
function leaf(value) {
  if (typeof value === "string") {
    const shown = el("span", { class: "is-string" });
    if (value.length <= SHOWN_TEXT) {
      append(shown, `"${value}"`);
    } else {
      const all = () => {
        fill(shown, `"${value}"`);
        const at = shown.closest("li");
        if (at) focusItem(at);
      };
      append(
        shown,
        `"${value.slice(0, SHOWN_TEXT)}… `,
        el("button", { type: "button", onclick: all }, `Show all ${value.length.toLocaleString("en")} characters`),
      );
    }
    return shown;
  }
  if (value instanceof ExactNumber) return el("span", { class: "is-number" }, value.text);
  const kind = typeof value === "number" ? "is-number" : value === null || typeof value === "boolean" ? "is-literal" : "tree-preview";
  return el("span", { class: kind }, JSON.stringify(value));
}

/** @param {object} value @param {[string, unknown][]} entries */
function preview(value, entries) {
  if (Array.isArray(value)) return `[ ${entries.length} ]`;
  // Of a name with a prefix, the end tells more.
  const names = entries.slice(0, 4).map(([name]) => (name.length > 24 ? `…${name.slice(name.lastIndexOf("/")).slice(-24)}` : name));
  return `{ ${names.join(", ")}${entries.length > names.length ? ", …" : ""} }`;
}

/** @param {Element} at @param {boolean} isOpen */
function fold(at, isOpen) {
  const open = openers.get(at);
  if (isOpen && open) {
    openers.delete(at);
    open();
  }
  at.setAttribute("aria-expanded", String(isOpen));
  const mark = at.querySelector(":scope > .tree-line > .tree-fold");
  if (mark) mark.textContent = isOpen ? "▾" : "▸";
  const shown = at.querySelector(":scope > .tree-line > .tree-preview");
  if (shown instanceof HTMLElement) shown.hidden = isOpen;
  const group = at.querySelector(":scope > ul");
  if (group instanceof HTMLElement) group.hidden = !isOpen;
}

/** @param {MouseEvent} event */
function click(event) {
  if (!(event.target instanceof Element) || event.target.closest("button")) return;
  const line = event.target.closest(".tree-line");
  const at = line?.parentElement;
  if (!at) return;
  focusItem(at);
  // Selecting text in a line must not fold it.
  if (at.hasAttribute("aria-expanded") && !getSelection()?.toString()) {
    fold(at, at.getAttribute("aria-expanded") !== "true");
  }
}

/** @param {Element} at */
function focusItem(at) {
  const tree = at.closest('[role="tree"]');
  for (const each of tree?.querySelectorAll('li[tabindex="0"]') ?? []) /** @type {HTMLElement} */ (each).tabIndex = -1;
  /** @type {HTMLElement} */ (at).tabIndex = 0;
  /** @type {HTMLElement} */ (at).focus();
}

/** @param {KeyboardEvent} event */
function key(event) {
  const at = event.target;
  if (!(at instanceof HTMLElement) || at.getAttribute("role") !== "treeitem") return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isOpen = at.getAttribute("aria-expanded");
  const visible = [...(at.closest('[role="tree"]')?.querySelectorAll('li[role="treeitem"]') ?? [])].filter(
    (each) => each instanceof HTMLElement && each.offsetParent !== null,
  );
  const index = visible.indexOf(at);
  /** @type {Element | null | undefined} */
  let to = null;
  if (event.key === "ArrowDown") to = visible[index + 1];
  else if (event.key === "ArrowUp") to = visible[index - 1];
  else if (event.key === "Home") to = visible[0];
  else if (event.key === "End") to = visible.at(-1);
  else if (event.key === "ArrowRight" && isOpen === "false") fold(at, true);
  else if (event.key === "ArrowRight" && isOpen === "true") to = visible[index + 1];
  else if (event.key === "ArrowLeft" && isOpen === "true") fold(at, false);
  else if (event.key === "ArrowLeft") to = at.parentElement?.closest("li");
  else if ((event.key === "Enter" || event.key === " ") && isOpen) fold(at, isOpen === "false");
  else return;
  event.preventDefault();
  event.stopPropagation();
  if (to) focusItem(to);
}
