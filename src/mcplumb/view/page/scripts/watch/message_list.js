// The list of messages: a request and its answer are one row.

import { VirtualList } from "../components/virtual_list.js";
import { el, setText } from "../dom.js";
import { clock, duration, size } from "./formats.js";
import { SessionModel } from "./session_model.js";

/** @typedef {import("./session_model.js").Row} Row */
/** @typedef {HTMLElement & {cells: HTMLElement[]}} RowElement */

const COLUMNS = ["time", "way", "method", "what", "id", "outcome", "size"];
const TITLES = ["Time", "", "Method", "What", "Id", "Outcome", "Size"];
const WAYS = { client: "→", server: "←" };

/** The rows of a session that pass its filters. */
export class MessageList {
  /**
   * @param {SessionModel} model
   * @param {(row: Row) => void} onselect
   * @param {() => void} onopen
   */
  constructor(model, onselect, onopen) {
    this.model = model;
    /** The places of the rows that are shown. @type {number[]} */
    this.places = [];
    this.list = new VirtualList({
      label: "Messages",
      make: makeRow,
      render: (row, index) => this.#render(row, this.model.rows[this.places[index]]),
      onselect: (index) => onselect(this.model.rows[this.places[index]]),
      onopen,
    });
    const head = el("div", { class: "message-head message-row", "aria-hidden": "true" });
    head.append(...TITLES.map((title, at) => el("span", { class: `cell-${COLUMNS[at]}` }, title)));
    this.element = el("div", { class: "messages" }, head, this.list.element);
    this.isFollowing = true;
    this.list.element.addEventListener("scroll", () => (this.isFollowing = this.list.isAtEnd), { passive: true });
    /** @type {number | null} */
    this.selectedPlace = null;
  }

  /** Shows these rows; stays at the end if it was there and the session is live. @param {number[]} places */
  show(places) {
    const follows = this.model.isLive && this.isFollowing && this.selectedPlace === null;
    this.places = places;
    this.list.setCount(places.length);
    if (this.selectedPlace !== null) this.list.select(this.#indexOf(this.selectedPlace), { scroll: false });
    if (follows) this.list.scrollToEnd();
  }

  /** Selects the row at a place; scrolls to it. @param {number} place */
  select(place) {
    this.selectedPlace = place;
    const index = this.#indexOf(place);
    this.list.select(index);
    return index >= 0;
  }

  /** @param {number} step */
  move(step) {
    this.list.move(this.list.selected < 0 ? (step > 0 ? 0 : this.places.length - 1) : this.list.selected + step);
  }

  /** The places are in order. @param {number} place */
  #indexOf(place) {
    let low = 0;
    let high = this.places.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (this.places[middle] === place) return middle;
      if (this.places[middle] < place) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  }

  /** @param {RowElement} element @param {Row | undefined} row */
  #render(element, row) {
    if (!row) return;
    const { model } = this;
    const outcome = outcomeOf(model, row);
    const severity = model.severityOf(row);
    element.className = `vlist-row message-row is-${row.kind} from-${row.sender ?? "none"}${severity ? ` has-${severity}` : ""}`;
    const texts = [
      clock(row.t),
      row.kind === "stderr" || !row.sender ? "" : WAYS[row.sender],
      titleOf(row),
      whatOf(row),
      row.id === undefined ? "" : String(row.id),
      outcome.text,
      row.size === undefined ? "" : size(row.size + (row.answerSize ?? 0)),
    ];
    texts.forEach((text, at) => setText(element.cells[at], text));
    element.cells[5].className = `cell-outcome ${outcome.kind}`;
    // A screen reader does not know what an arrow or a coloured edge means.
    setText(element.cells[COLUMNS.length], [row.sender && `from the ${row.sender}`, severity].filter(Boolean).join(", "));
  }
}

/** @returns {RowElement} */
function makeRow() {
  const cells = [...COLUMNS.map((name) => el("span", { class: `cell-${name}`, "aria-hidden": name === "way" ? "true" : null })), el("span", { class: "sr" })];
  return Object.assign(el("div", { class: "message-row" }, ...cells), { cells });
}

/** @param {Row} row */
export function titleOf(row) {
  if (row.kind === "stderr") return "stderr";
  if (row.kind === "bad") return "not a message";
  if (row.kind === "stray") return "stray answer";
  if (row.kind === "event") return (row.method || row.kind).replaceAll("_", " ");
  return (row.method || row.kind).replace(/^notifications\//, "");
}

/** @param {Row} row */
export function whatOf(row) {
  if (row.kind !== "call") return row.text ?? row.name ?? "";
  const called = [row.name, row.args === "{}" ? "" : row.args].filter(Boolean).join(" ");
  return row.text ? `${called}: ${row.text}` : called;
}

/** @param {SessionModel} model @param {Row} row @returns {{text: string, kind: string}} */
export function outcomeOf(model, row) {
  if (row.kind === "bad" || row.kind === "stray") return { text: "✕", kind: "is-error" };
  if (row.kind !== "call") return { text: "", kind: "" };
  const took = duration(model.secondsOf(row));
  const slow = model.isSlow(row) ? "is-warn" : "";
  switch (row.state) {
    case "failed":
      return { text: row.code === undefined ? `✕ ${took}` : `${row.code} · ${took}`, kind: "is-error" };
    case "lost":
      return { text: `lost after ${took}`, kind: "is-error" };
    case "cancelled":
      return { text: `cancelled, ${took}`, kind: "is-warn" };
    case "open":
      return { text: row.method === "subscriptions/listen" ? "open" : `open, ${took}`, kind: `is-open ${slow}` };
    default:
      if (row.toolError) return { text: `failed · ${took}`, kind: "is-error" };
      return { text: row.needsInput ? `asks · ${took}` : took, kind: row.needsInput ? "is-user" : slow };
  }
}
