// The list of sessions: live ones first, then the recordings, the newest first.

import { Order, get } from "../api.js";
import { toastError } from "../components/toast.js";
import { el, keyed, setText, withoutFolder } from "../dom.js";
import { localTime, size } from "./formats.js";

/**
 * A session in the list, as the API gives it.
 * @typedef {object} Listed
 * @property {string} key
 * @property {string} file
 * @property {number} size
 * @property {boolean} live
 * @property {{id: string, started: string, by: string, transport: string, name?: string,
 *   target?: {command?: string[], url?: string}, host?: {pid: number, program?: string}}} header
 */

/**
 * An entry of the list.
 * @typedef {HTMLLIElement & {parts: {open: HTMLElement, beside: HTMLElement, live: HTMLElement, facts: HTMLElement}}} Item
 */

/** The sidebar. */
export class SessionsList {
  /**
   * @param {(key: string, beside: boolean) => void} onopen `beside`: to compare
   */
  constructor(onopen) {
    this.onopen = onopen;
    /** @type {Listed[]} */
    this.sessions = [];
    /** The session that the command line names. @type {string | null} */
    this.first = null;
    this.folder = "";
    this.isLoaded = false;
    this.order = new Order();
    /** @type {string[]} */
    this.open = [];
    /** The entries that are shown, by the keys of their sessions. @type {Map<string, Item>} */
    this.items = new Map();
    this.body = el("div", { class: "sessions-body" });
    this.element = el("aside", { class: "sessions-list", "aria-label": "Sessions" }, this.body);
    this.element.addEventListener("keydown", (event) => this.#key(event));
  }

  async load() {
    const isNews = this.order.ask();
    try {
      const { sessions, first, folder } = await get("sessions");
      if (!isNews()) return;
      this.sessions = sessions;
      this.first = first;
      this.folder = folder;
      this.isLoaded = true;
      this.show();
    } catch (error) {
      toastError(error);
    }
  }

  /** @param {string} key */
  find(key) {
    return this.sessions.find((each) => each.key === key);
  }

  /** Shows what has changed. A session that has ended is shown elsewhere, and its entry stays the same. */
  show() {
    const { activeElement } = document;
    const hadFocus = this.body.contains(activeElement);
    this.items = new Map(this.sessions.map((each) => [each.key, this.items.get(each.key) ?? this.#make(each)]));
    const groups = [
      { title: "Live", sessions: this.sessions.filter(({ live }) => live) },
      { title: "Recorded", sessions: this.sessions.filter(({ live }) => !live) },
    ];
    keyed(
      this.body,
      groups.filter(({ sessions }) => sessions.length),
      ({ title }) => title,
      ({ title }) => el("section", { "aria-label": title }, el("h2", null, title), el("ul")),
      (section, { sessions }) => {
        const list = /** @type {Element} */ (section.lastElementChild);
        keyed(list, sessions, ({ key }) => key, ({ key }) => /** @type {Item} */ (this.items.get(key)), (item, each) => this.#update(item, each));
      },
    );
    // One that was moved has lost the focus.
    if (hadFocus && document.activeElement !== activeElement) /** @type {HTMLElement} */ (activeElement).focus({ preventScroll: true });
    if (!this.sessions.length) this.body.append(el("p", { class: "hint" }, "No sessions yet."));
  }

  /** @param {Listed} session @returns {Item} */
  #make({ key, header, file }) {
    const target = header.target?.command?.join(" ") ?? header.target?.url ?? "";
    const live = el("span", { class: "badge is-live" }, "live");
    const facts = el("span", { class: "session-facts" });
    const open = el(
      "button",
      {
        type: "button",
        class: "session-open",
        "data-session": key,
        title: file,
        onclick: (/** @type {MouseEvent} */ event) => this.onopen(key, event.ctrlKey || event.metaKey),
      },
      el("span", { class: "session-name" }, el("span", { class: "session-title" }, withoutFolder(header.name || target) || header.id), live),
      facts,
      target && header.name && header.name !== target ? el("span", { class: "session-target" }, target) : null,
    );
    const beside = el(
      "button",
      { type: "button", class: "quiet session-beside", "aria-label": `Compare with ${header.name || file}`, title: "Show beside the other one", onclick: () => this.onopen(key, true) },
      el("span", { class: "icon-beside" }),
    );
    return Object.assign(el("li", null, open, beside), { parts: { open, beside, live, facts } });
  }

  /** @param {Item} item @param {Listed} session */
  #update(item, { key, header, live, size: bytes }) {
    const { parts } = item;
    const isOpen = this.open.includes(key);
    item.classList.toggle("is-open", isOpen);
    if (isOpen) parts.open.setAttribute("aria-current", "true");
    else parts.open.removeAttribute("aria-current");
    parts.live.hidden = !live;
    parts.beside.hidden = isOpen || !this.open.length;
    setText(parts.facts, `${localTime(header.started)} · ${header.host?.program || header.by} · ${size(bytes)}`);
  }

  #buttons() {
    return /** @type {HTMLElement[]} */ ([...this.body.querySelectorAll(".session-open")]);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const buttons = this.#buttons();
    const at = buttons.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const key = buttons[at]?.dataset.session;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && key) {
      event.preventDefault();
      this.onopen(key, true);
      return;
    }
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined || !buttons.length) return;
    event.preventDefault();
    buttons[Math.min(buttons.length - 1, Math.max(0, to))].focus();
  }
}
