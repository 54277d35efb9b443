// Tabs: arrow keys move between them, and a panel is filled when it is shown.

import { el, keyed, newId, setText } from "../dom.js";

/**
 * @typedef {object} Tab
 * @property {string} name
 * @property {string} title
 * @property {number} [count] shown beside the title
 * @property {(panel: HTMLElement) => void} render fills the panel, when it is first shown and after each `set`
 */

/** @typedef {{tab: Tab, button: HTMLElement, count: HTMLElement, panel: HTMLElement, isRendered: boolean}} Entry */

/** A list of tabs, and the panel of the one that is selected. */
export class Tabs {
  /**
   * @param {string} label for screen readers
   * @param {(name: string) => void} [onselect]
   */
  constructor(label, onselect = () => {}) {
    this.list = el("div", { role: "tablist", "aria-label": label, class: "tablist", onkeydown: this.#key.bind(this) });
    this.panels = el("div", { class: "tabpanels" });
    this.element = el("div", { class: "tabs" }, this.list, this.panels);
    this.onselect = onselect;
    /** @type {Map<string, Entry>} */
    this.entries = new Map();
    this.selected = "";
  }

  /**
   * Sets which tabs there are. One that was there stays, with its panel; the one that was selected stays so.
   * @param {Tab[]} tabs
   */
  set(tabs) {
    const before = this.entries;
    this.entries = new Map(tabs.map((tab) => [tab.name, { ...(before.get(tab.name) ?? this.#make(tab.name)), tab, isRendered: false }]));
    for (const { tab, button, count } of this.entries.values()) {
      setText(/** @type {Element} */ (button.firstElementChild), tab.title);
      setText(count, String(tab.count ?? ""));
      count.hidden = tab.count === undefined;
    }
    const entries = [...this.entries.values()];
    keyed(this.list, entries, ({ tab }) => tab.name, ({ button }) => button);
    keyed(this.panels, entries, ({ tab }) => tab.name, ({ panel }) => panel);
    const first = this.entries.has(this.selected) ? this.selected : tabs[0]?.name;
    if (first) this.select(first);
  }

  /** @param {string} name */
  #make(name) {
    const id = newId("tab");
    const count = el("span", { class: "count" });
    const button = el(
      "button",
      { type: "button", role: "tab", id, "aria-controls": `${id}-panel`, "data-tab": name, onclick: () => this.select(name, true) },
      el("span"),
      count,
    );
    const panel = el("div", { role: "tabpanel", id: `${id}-panel`, "aria-labelledby": id, class: "tabpanel", tabindex: "0", hidden: true });
    return { button, count, panel };
  }

  /** @param {string} name @param {boolean} [byUser] */
  select(name, byUser = false) {
    this.selected = name;
    for (const [each, entry] of this.entries) {
      const isSelected = each === name;
      entry.button.setAttribute("aria-selected", String(isSelected));
      entry.button.tabIndex = isSelected ? 0 : -1;
      entry.panel.hidden = !isSelected;
      if (isSelected && !entry.isRendered) {
        entry.isRendered = true;
        entry.tab.render(entry.panel);
      }
    }
    if (byUser) this.onselect(name);
  }

  scrollToTop() {
    for (const { panel } of this.entries.values()) panel.scrollTop = 0;
  }

  /** @param {Event} event */
  #key(event) {
    const { key } = /** @type {KeyboardEvent} */ (event);
    const names = [...this.entries.keys()];
    const at = names.indexOf(this.selected);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names[(to + names.length) % names.length];
    this.select(name, true);
    this.entries.get(name)?.button.focus();
  }
}
