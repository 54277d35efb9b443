// The tools, resources, templates and prompts of a server, with a filter. Arrow keys move between them.

import { el, keyed, newId, setText } from "../dom.js";
import { LISTS } from "./model.js";

/**
 * What is shown of an item.
 * @typedef {{kind: string, key: string, title: string, about: string}} Entry
 */
/**
 * A group of them.
 * @typedef {{what: string, title: string, count: number, error: string, isFolded: boolean, entries: Entry[], more: number}} Group
 */

/** @typedef {HTMLElement & {parts: Record<"title" | "mark" | "count" | "problem" | "list" | "more", HTMLElement>}} GroupElement */

const TITLES = { tools: "Tools", resources: "Resources", templates: "Templates", prompts: "Prompts" };
const KINDS = { tools: "tool", resources: "resource", templates: "template", prompts: "prompt" };
/** Entries of one list that are shown; a filter finds the others. */
const MAX_SHOWN = 500;

/** What identifies an item of a list. @param {string} kind @param {any} item */
function keyOf(kind, item) {
  return String(kind === "resource" ? item.uri : kind === "template" ? item.uriTemplate : item.name);
}

/** @param {string} kind @param {any} item @returns {Entry} */
function entryOf(kind, item) {
  const key = keyOf(kind, item);
  const hasName = kind === "tool" || kind === "prompt";
  return {
    kind,
    key,
    title: hasName ? key : String(item.title ?? item.name ?? key),
    about: hasName ? String(item.title ?? item.annotations?.title ?? item.description ?? "") : key,
  };
}

export class ItemList {
  /** @param {(kind: string, key: string) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.filter = el("input", { type: "search", class: "item-filter", placeholder: "Filter  ( / )", "aria-label": "Filter the list", oninput: () => this.render() });
    this.none = el("p", { class: "hint", role: "status" });
    this.body = el("div", { class: "item-groups" });
    this.element = el("nav", { class: "items", "aria-label": "What the server offers" }, this.filter, this.none, this.body);
    this.element.addEventListener("keydown", (event) => this.#key(event));
    /** @type {import("./model.js").Connection | null} */
    this.connection = null;
    this.selected = "";
    /** @type {Set<string>} */
    this.folded = new Set();
  }

  /** @param {import("./model.js").Connection | null} connection @param {string} selected as `kind/key` */
  show(connection, selected) {
    this.connection = connection;
    this.selected = selected;
    this.render();
  }

  render() {
    const groups = this.#groups();
    setText(this.none, this.filter.value.trim() && groups.every(({ what }) => what === "request") ? "Nothing passes the filter." : "");
    keyed(this.body, groups, ({ what }) => `${this.connection?.id}/${what}`, (group) => this.#makeGroup(group), (element, group) => this.#updateGroup(element, group));
  }

  /** @returns {Group[]} */
  #groups() {
    const wanted = this.filter.value.trim().toLowerCase();
    /** @type {Group[]} */
    const groups = [];
    for (const what of LISTS) {
      const list = this.connection?.lists[what];
      if (!list) continue;
      const found = list.items.filter((item) => !wanted || [item.name, item.title, item.uri, item.uriTemplate, item.description].some((text) => String(text ?? "").toLowerCase().includes(wanted)));
      if (!found.length && !list.error && (wanted || what === "templates")) continue;
      groups.push({
        what,
        title: TITLES[what],
        count: found.length,
        error: list.error,
        isFolded: this.folded.has(what) && !wanted,
        entries: found.slice(0, MAX_SHOWN).map((item) => entryOf(KINDS[what], item)),
        more: Math.max(0, found.length - MAX_SHOWN),
      });
    }
    if (this.connection?.summary.state === "open") {
      const any = { kind: "request", key: "", title: "Any request", about: "Send a method of your own" };
      groups.push({ what: "request", title: "", count: 0, error: "", isFolded: false, entries: [any], more: 0 });
    }
    return groups;
  }

  /** @param {Group} group @returns {GroupElement} */
  #makeGroup({ what, title }) {
    const id = newId("group");
    const toggle = () => {
      if (this.folded.has(what)) this.folded.delete(what);
      else this.folded.add(what);
      this.render();
    };
    const mark = el("span", { "aria-hidden": "true" });
    const count = el("span", { class: "count" });
    const button = el("button", { type: "button", class: "quiet", "data-item": `group/${what}`, onclick: toggle }, mark, title, count);
    const parts = { title: button, mark, count, problem: el("p", { class: "problem" }), list: el("ul"), more: el("p", { class: "hint" }) };
    const head = title ? el("h2", { id }, button) : null;
    return Object.assign(el("section", { class: "item-group", "aria-labelledby": title ? id : null }, head, parts.problem, parts.list, parts.more), { parts });
  }

  /** @param {GroupElement} element @param {Group} group */
  #updateGroup({ parts }, { count, error, isFolded, entries, more }) {
    parts.title.setAttribute("aria-expanded", String(!isFolded));
    setText(parts.mark, isFolded ? "▸ " : "▾ ");
    setText(parts.count, String(count));
    parts.problem.hidden = !error;
    setText(parts.problem, error);
    parts.list.hidden = isFolded;
    keyed(parts.list, entries, ({ kind, key }) => `${kind}/${key}`, (entry) => this.#makeEntry(entry), (item, entry) => this.#updateEntry(item, entry));
    parts.more.hidden = !more;
    setText(parts.more, `and ${more} more: type in the filter`);
  }

  /** @param {Entry} entry */
  #makeEntry({ kind, key }) {
    const button = el("button", { type: "button", class: "item", "data-item": `${kind}/${key}`, onclick: () => this.choose(kind, key) }, el("span", { class: "item-name" }), el("span", { class: "item-about" }));
    return el("li", null, button);
  }

  /** @param {HTMLElement} element @param {Entry} entry */
  #updateEntry(element, { kind, key, title, about }) {
    const button = /** @type {Element} */ (element.firstElementChild);
    if (this.selected === `${kind}/${key}`) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    setText(button.children[0], title.slice(0, 200));
    setText(button.children[1], about.slice(0, 200));
  }

  #buttons() {
    return [...this.body.querySelectorAll("button")].filter((each) => each.offsetParent !== null);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const isInFilter = document.activeElement === this.filter;
    if (isInFilter && event.key === "Enter" && this.filter.value.trim()) this.#buttons().find((each) => each.matches(".item:not([data-item^=request])"))?.click();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    const buttons = this.#buttons();
    const at = buttons.findIndex((each) => each === document.activeElement);
    // From the filter, to the first that passes it, and not to the button that folds its group.
    const first = buttons.findIndex((each) => each.matches(".item"));
    const next = isInFilter ? buttons[step < 0 ? -1 : first] : buttons[at + step];
    event.preventDefault();
    (next ?? (at === 0 && step < 0 ? this.filter : undefined))?.focus();
  }
}
