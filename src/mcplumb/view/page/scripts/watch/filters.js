// The bar above the list: what is shown, by text, method, id, direction, errors, findings and kind.

import { get, part } from "../api.js";
import { toastError } from "../components/toast.js";
import { el, keyed, setText } from "../dom.js";
import { count } from "./formats.js";
import { SessionModel } from "./session_model.js";

/** @typedef {import("./session_model.js").Row} Row */

/** The filter of one session. */
export class Filters {
  /**
   * @param {SessionModel} model
   * @param {() => void} onchange
   */
  constructor(model, onchange) {
    this.model = model;
    this.onchange = onchange;
    /** The records with the text, which the server looks for. @type {Set<number> | null} */
    this.found = null;
    this.text = "";
    /** @type {AbortController | null} */
    this.asking = null;
    this.timer = 0;

    this.search = el("input", {
      type: "search",
      class: "filter-text",
      placeholder: "Search  ( / )",
      "aria-label": "Filter by text in messages",
      title: "Filter by text (/)",
      spellcheck: "false",
      oninput: () => this.#searchSoon(),
    });
    this.method = el("select", { "aria-label": "Filter by method", onchange });
    this.id = el("input", {
      class: "filter-id",
      placeholder: "Id",
      "aria-label": "Filter by id",
      spellcheck: "false",
      oninput: onchange,
    });
    this.direction = el(
      "select",
      { "aria-label": "Filter by direction", onchange },
      el("option", { value: "" }, "Both ways"),
      el("option", { value: "client" }, "From the client"),
      el("option", { value: "server" }, "From the server"),
    );
    this.errors = this.#toggle("Errors", "Only errors (e)");
    this.findings = this.#toggle("With findings", "Only messages with findings (f)");
    this.slow = this.#toggle("Slow", "Only slow and hanging calls (s)");
    this.quiet = this.#toggle("Calls only", "Hide notifications, stderr and events (c)");
    this.clearButton = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.clear() }, "Clear");
    this.shown = el("span", { class: "filter-count", role: "status" });
    this.element = el(
      "div",
      { class: "filters", role: "search" },
      this.search,
      this.method,
      this.direction,
      this.id,
      this.errors,
      this.findings,
      this.slow,
      this.quiet,
      this.clearButton,
      this.shown,
    );
    this.showMethods();
  }

  /** @param {string} label @param {string} title */
  #toggle(label, title) {
    const button = el("button", { type: "button", "aria-pressed": "false", title, onclick: () => this.press(button) }, label);
    return button;
  }

  /** Turns a toggle on or off. @param {HTMLButtonElement} button */
  press(button) {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    this.onchange();
  }

  clear() {
    this.search.value = this.method.value = this.direction.value = this.id.value = "";
    for (const each of [this.errors, this.findings, this.slow, this.quiet]) each.setAttribute("aria-pressed", "false");
    this.#stopSearch();
    this.text = "";
    this.found = null;
    this.onchange();
  }

  /** An answer that is under way must not filter what was not typed. */
  #stopSearch() {
    clearTimeout(this.timer);
    this.asking?.abort();
  }

  /** Whether nothing is filtered. */
  get isEmpty() {
    return (
      !this.text && !this.method.value && !this.direction.value && !this.id.value.trim() &&
      ![this.errors, this.findings, this.slow, this.quiet].some(isPressed)
    );
  }

  /** Offers the methods that the session has. */
  showMethods() {
    const methods = [...this.model.methods].sort(([a], [b]) => a.localeCompare(b));
    keyed(
      this.method,
      /** @type {[string, number][]} */ ([["", 0], ...methods]),
      ([name]) => name,
      ([name]) => el("option", { value: name }),
      (option, [name, number]) => setText(option, name ? `${name} (${count(number)})` : "All methods"),
    );
  }

  /** Returns the places of the rows that pass. @returns {number[]} */
  apply() {
    const { rows } = this.model;
    this.clearButton.hidden = this.isEmpty;
    const places = [];
    if (this.isEmpty) {
      for (let at = 0; at < rows.length; at++) places.push(at);
    } else {
      const passes = this.#predicate();
      for (let at = 0; at < rows.length; at++) if (rows[at] && passes(rows[at])) places.push(at);
    }
    // What comes in by itself is not read out.
    this.shown.setAttribute("aria-live", this.isEmpty ? "off" : "polite");
    this.shown.textContent =
      places.length === rows.length ? count(rows.length) : `${count(places.length)} of ${count(rows.length)}`;
    return places;
  }

  /** @returns {(row: Row) => boolean} */
  #predicate() {
    const method = this.method.value;
    const direction = this.direction.value;
    const id = this.id.value.trim();
    const { found, model } = this;
    const [errors, findings, slow, quiet] = [this.errors, this.findings, this.slow, this.quiet].map(isPressed);
    return (row) =>
      (!method || row.method === method) &&
      (!direction || row.sender === direction) &&
      (!id || (row.id !== undefined && String(row.id) === id)) &&
      (!errors || SessionModel.isError(row)) &&
      (!findings || model.severityOf(row) !== undefined) &&
      (!slow || model.isSlow(row)) &&
      (!quiet || row.kind === "call") &&
      (!found || found.has(row.n) || (row.answer !== undefined && found.has(row.answer)));
  }

  #searchSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.searchNow(), 150);
  }

  /** Asks the server which records have the text. */
  async searchNow() {
    this.#stopSearch();
    this.text = this.search.value;
    if (!this.text) {
      this.found = null;
      this.onchange();
      return;
    }
    this.asking = new AbortController();
    try {
      const path = `sessions/${part(this.model.key)}/search?text=${encodeURIComponent(this.text)}`;
      const { numbers } = await get(path, { signal: this.asking.signal });
      this.found = new Set(numbers);
      this.onchange();
    } catch (error) {
      toastError(error);
    }
  }

  /** Looks for the text again, in what is new. */
  refresh() {
    if (this.text) this.#searchSoon();
  }
}

/** @param {Element} button */
const isPressed = (button) => button.getAttribute("aria-pressed") === "true";
