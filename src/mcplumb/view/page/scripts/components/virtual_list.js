// A list that makes elements only for the rows in sight, so that a hundred thousand cost no more than fifty.

import { el, newId } from "../dom.js";

/** Rows beyond the edges that are made as well, so that a fast scroll shows no gap. */
const MARGIN = 8;
/** Browsers cannot make elements that are much higher than this, in pixels. */
const MAX_HEIGHT = 15_000_000;

/**
 * A list box with rows of one height, given by --row in CSS.
 * @template {HTMLElement} [R=HTMLElement]
 */
export class VirtualList {
  /**
   * @param {object} options
   * @param {string} options.label for screen readers
   * @param {() => R} options.make returns an empty row
   * @param {(row: R, index: number) => void} options.render shows an item in a row
   * @param {(index: number) => void} [options.onselect] the user has moved to a row
   * @param {(index: number) => void} [options.onopen] Enter, or a double click
   */
  constructor({ label, make, render, onselect = () => {}, onopen = () => {} }) {
    this.make = make;
    this.render = render;
    this.onselect = onselect;
    this.onopen = onopen;
    this.count = 0;
    this.selected = -1;
    this.rowHeight = 0;
    this.space = el("div", { class: "vlist-space", role: "presentation" });
    this.element = el("div", { class: "vlist", role: "listbox", tabindex: "0", "aria-label": label }, this.space);
    this.prefix = newId("row");
    /** The rows that are shown, by index. @type {Map<number, R>} */
    this.shown = new Map();
    /** @type {R[]} */
    this.spare = [];
    this.pending = 0;
    this.element.addEventListener("scroll", () => this.#schedule(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("click", (event) => this.#click(event));
    this.element.addEventListener("dblclick", () => this.selected >= 0 && this.onopen(this.selected));
    new ResizeObserver(() => this.#measure()).observe(this.element);
  }

  /** The rows from the first to the last one in sight. */
  get range() {
    const height = this.rowHeight || 1;
    const top = this.#offset();
    return { first: Math.floor(top / height), last: Math.ceil((top + this.element.clientHeight) / height) - 1 };
  }

  /** Whether the end of the list is in sight. */
  get isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    return scrollTop + clientHeight >= scrollHeight - 4;
  }

  /**
   * Sets how many rows there are, and shows those in sight anew.
   * @param {number} count
   */
  setCount(count) {
    this.count = count;
    if (this.selected >= count) this.selected = -1;
    if (!this.rowHeight) this.#measure();
    this.#resize();
    this.refresh();
  }

  /** Shows all rows in sight anew. */
  refresh() {
    for (const [index, row] of this.shown) {
      if (index < this.count) this.#show(row, index);
    }
    this.#update();
  }

  /** @param {number} index -1 for none @param {{scroll?: boolean}} [options] */
  select(index, { scroll = true } = {}) {
    const before = this.selected;
    this.selected = index;
    if (scroll && index >= 0) this.scrollTo(index);
    for (const at of [before, index]) {
      const row = this.shown.get(at);
      if (row) this.#mark(row, at);
    }
    if (index >= 0) this.element.setAttribute("aria-activedescendant", `${this.prefix}-${index}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  /** Scrolls so that a row is in sight. @param {number} index */
  scrollTo(index) {
    const { first, last } = this.range;
    const fit = Math.max(1, Math.floor(this.element.clientHeight / (this.rowHeight || 1)));
    if (index <= first) this.#scrollTop(index);
    else if (index >= last) this.#scrollTop(index - fit + 1);
    this.#update();
  }

  scrollToEnd() {
    this.element.scrollTop = this.element.scrollHeight;
    this.#update();
  }

  // A list that is too high for a browser is squeezed: a pixel of its bar then stands for more than one of its rows.

  get #fullHeight() {
    return this.count * this.rowHeight;
  }

  get #factor() {
    const view = this.element.clientHeight;
    const full = this.#fullHeight;
    return full <= MAX_HEIGHT ? 1 : (full - view) / (MAX_HEIGHT - view);
  }

  #offset() {
    return this.element.scrollTop * this.#factor;
  }

  /** @param {number} index */
  #scrollTop(index) {
    this.element.scrollTop = (Math.max(0, index) * this.rowHeight) / this.#factor;
  }

  #measure() {
    if (!this.element.clientHeight) return;
    const probe = this.make();
    probe.classList.add("vlist-row");
    probe.style.visibility = "hidden";
    this.space.append(probe);
    this.rowHeight = probe.getBoundingClientRect().height || 28;
    probe.remove();
    this.#resize();
    this.refresh();
  }

  #resize() {
    this.space.style.height = `${Math.min(MAX_HEIGHT, this.#fullHeight)}px`;
  }

  #schedule() {
    this.pending ||= requestAnimationFrame(() => {
      this.pending = 0;
      this.#update();
    });
  }

  #update() {
    if (!this.rowHeight) return;
    const { first, last } = this.range;
    const from = Math.max(0, first - MARGIN);
    const to = Math.min(this.count - 1, last + MARGIN);
    for (const [index, row] of this.shown) {
      if (index < from || index > to) {
        this.shown.delete(index);
        this.spare.push(row);
      }
    }
    const shift = this.element.scrollTop - this.#offset();
    for (let index = from; index <= to; index++) {
      let row = this.shown.get(index);
      if (!row) {
        row = this.spare.pop();
        if (!row) {
          row = this.make();
          row.classList.add("vlist-row");
          row.setAttribute("role", "option");
          this.space.append(row);
        }
        row.hidden = false;
        this.shown.set(index, row);
        this.#show(row, index);
      }
      row.style.transform = `translateY(${Math.round(index * this.rowHeight + shift)}px)`;
    }
    for (const row of this.spare) row.hidden = true;
  }

  /** @param {R} row @param {number} index */
  #show(row, index) {
    row.id = `${this.prefix}-${index}`;
    row.dataset.index = String(index);
    row.setAttribute("aria-posinset", String(index + 1));
    row.setAttribute("aria-setsize", String(this.count));
    this.#mark(row, index);
    this.render(row, index);
  }

  /** @param {R} row @param {number} index */
  #mark(row, index) {
    row.setAttribute("aria-selected", String(index === this.selected));
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const row = event.target instanceof Element ? event.target.closest(".vlist-row") : null;
    if (!(row instanceof HTMLElement)) return;
    this.select(Number(row.dataset.index), { scroll: false });
    this.onselect(this.selected);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / (this.rowHeight || 1)) - 1);
    const end = this.count - 1;
    /** @type {Record<string, number>} */
    const moves = {
      ArrowDown: this.selected + 1,
      ArrowUp: this.selected < 0 ? end : this.selected - 1,
      PageDown: this.selected + page,
      PageUp: this.selected - page,
      Home: 0,
      End: end,
    };
    if (event.key === "Enter" && this.selected >= 0) {
      event.preventDefault();
      this.onopen(this.selected);
    } else if (event.key in moves && this.count) {
      event.preventDefault();
      this.move(moves[event.key]);
    }
  }

  /** Selects a row on behalf of the user; beyond the ends, the last one on that side. @param {number} index */
  move(index) {
    if (!this.count) return;
    this.select(Math.min(this.count - 1, Math.max(0, index)));
    this.onselect(this.selected);
  }
}
