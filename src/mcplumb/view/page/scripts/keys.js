// Keyboard shortcuts: one table of what each key does, which the help shows.

import { setting } from "./settings.js";

/**
 * @typedef {object} Shortcut
 * @property {string[]} keys each as `KeyboardEvent.key`, with `Ctrl+` before it if needed (Cmd on a Mac)
 * @property {string} what shown in the help
 * @property {string} group the heading in the help: a section, or "Everywhere"
 * @property {() => void} run
 * @property {() => boolean} [when] whether it applies now
 */

/** @type {Shortcut[]} */
const table = [];

/** Keys that components handle themselves, for the help. @type {{keys: string[], what: string, group: string}[]} */
const notes = [];

/** @param {...Shortcut} shortcuts */
export function addShortcuts(...shortcuts) {
  table.push(...shortcuts);
}

/** @param {...{keys: string[], what: string, group: string}} described */
export function describeKeys(...described) {
  notes.push(...described);
}

/** Returns all keys by the group that the help shows them in. */
export function shortcutsByGroup() {
  /** @type {Map<string, {keys: string[], what: string}[]>} */
  const groups = new Map();
  for (const each of [...table, ...notes]) {
    groups.set(each.group, [...(groups.get(each.group) ?? []), each]);
  }
  return groups;
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      target instanceof HTMLTextAreaElement ||
      target instanceof HTMLSelectElement ||
      (target instanceof HTMLInputElement && !["checkbox", "radio", "button"].includes(target.type)))
  );
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  const hasControl = event.ctrlKey || event.metaKey;
  const name = (hasControl ? "Ctrl+" : "") + event.key;
  if (!hasControl && isTyping(event.target)) return;
  if (!hasControl && event.key.length === 1 && !setting("letters", true)) return;
  for (const shortcut of table) {
    if (shortcut.keys.includes(name) && (shortcut.when?.() ?? true)) {
      event.preventDefault();
      shortcut.run();
      return;
    }
  }
});
