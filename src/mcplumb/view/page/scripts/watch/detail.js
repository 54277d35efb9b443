// Everything about one message: its request and answer as trees, as they were sent, checked, and to send again.

import { get, part } from "../api.js";
import { jsonTree } from "../components/json_tree.js";
import { Tabs } from "../components/tabs.js";
import { toast, toastError } from "../components/toast.js";
import { append, el, fill, keyed, setText } from "../dom.js";
import { parseJson } from "../exact_json.js";
import { findingCard } from "./findings_list.js";
import { clock, duration, size } from "./formats.js";
import { outcomeOf, titleOf, whatOf } from "./message_list.js";

/** @typedef {import("./session_model.js").SessionModel} SessionModel */
/** @typedef {import("./session_model.js").Row} Row */
/** @typedef {import("./session_model.js").Finding} Finding */
/** @typedef {{ok: boolean | null, what: string, reason: string}} Check */
/** @typedef {{number: number, record: any, size: number, checks: Check[], copies: Record<string, string>}} Described */

const COPY_TITLES = /** @type {Record<string, string>} */ ({
  mcplumb: "In the terminal, with mcplumb",
  curl: "With curl",
  shell: "In a shell, to the server's stdin",
  python: "In Python",
});
/** Characters of a raw line that are shown before a button offers the others. */
const SHOWN_RAW = 20_000;

/** The panel beside the list. */
export class Detail {
  /**
   * @param {SessionModel} model
   * @param {object} options
   * @param {string} options.session its name, for screen readers
   * @param {(number: number) => void} options.goTo shows the row of a record
   * @param {() => void} options.onclose
   */
  constructor(model, { session, goTo, onclose }) {
    this.model = model;
    this.goTo = goTo;
    this.closeButton = el("button", { type: "button", class: "quiet detail-close", "aria-label": "Close the details", title: "Close (Esc)", onclick: onclose }, "✕");
    this.title = el("h2");
    this.facts = el("p", { class: "detail-facts" });
    // The button stays in its place, whatever is shown beside it: one that is moved loses the focus.
    this.head = el("div", { class: "detail-head" }, this.title, this.facts, this.closeButton);
    this.outcome = el("span");
    this.tabs = new Tabs("Parts of the message");
    this.element = el("div", { class: "detail", "aria-label": `Message of ${session}`, role: "region" });
    /** @type {AbortController | null} */
    this.asking = null;
    /** What is shown, to be shown again when it changes. */
    this.shown = "";
    /** @type {Row | null} */
    this.row = null;
    this.clear();
  }

  clear() {
    this.asking?.abort();
    this.element.removeAttribute("aria-busy");
    this.row = null;
    this.shown = "";
    fill(this.element);
  }

  /** Shows a row, or shows it again if it has changed. @param {Row} row */
  async show(row) {
    const wanted = JSON.stringify([row.index, row.answer, row.state, row.notes, this.#findings(row).map(({ count }) => count)]);
    const isSame = this.row?.index === row.index;
    this.row = row;
    if (!isSame) this.#showHead(row);
    if (wanted === this.shown) return;
    this.shown = wanted;
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    this.element.setAttribute("aria-busy", "true");
    try {
      const numbers = [row.n, ...(row.answer !== undefined && row.answer !== row.n ? [row.answer] : [])];
      /** @type {Described[]} */
      const parts = await Promise.all(
        numbers.map((number) => get(`sessions/${part(this.model.key)}/records/${number}`, { signal })),
      );
      if (signal.aborted) return;
      this.#showHead(row);
      this.#showTabs(row, parts);
      if (!isSame) this.tabs.scrollToTop();
    } catch (error) {
      if (signal.aborted) return;
      this.shown = "";
      toastError(error);
    } finally {
      if (!signal.aborted) this.element.removeAttribute("aria-busy");
    }
  }

  /** The findings about a request or its answer. @param {Row} row */
  #findings(row) {
    return this.model.findings.filter(({ lines }) => lines.some((line) => line === row.n || line === row.answer));
  }

  /** @param {Row} row */
  #showHead(row) {
    this.outcome = el("span");
    fill(this.title, titleOf(row), row.name ? el("span", { class: "detail-name" }, row.name) : null);
    fill(
      this.facts,
      row.sender ? `from the ${row.sender} · ` : "",
      `at ${clock(row.t)} s`,
      row.id === undefined ? "" : ` · id ${JSON.stringify(row.id)}`,
      row.kind === "call" ? " · " : "",
      row.kind === "call" ? this.outcome : "",
      row.exchange === undefined ? "" : ` · exchange ${row.exchange}`,
    );
    this.showOutcome();
    if (this.element.firstChild !== this.head) fill(this.element, this.head, this.tabs.element);
  }

  /** Shows how the call has ended, or how long it takes already. */
  showOutcome() {
    if (!this.row) return;
    const { text, kind } = outcomeOf(this.model, this.row);
    setText(this.outcome, text);
    this.outcome.className = kind;
  }

  /** @param {Row} row @param {Described[]} parts */
  #showTabs(row, parts) {
    const findings = this.#findings(row);
    const checks = parts.flatMap(({ checks }) => checks);
    const wrong = checks.filter(({ ok }) => ok === false).length + findings.length;
    const related = this.model.rows.filter((each) => each?.call === row.n);
    const copies = Object.entries(parts[0].copies);
    /** Shows the parts; what is unfolded in one stays so. @param {(row: Row, part: Described) => Element} make */
    const inParts = (make) => (/** @type {HTMLElement} */ panel) =>
      keyed(panel, parts, ({ number }) => `${this.model.key}/${row.index}/${number}`, (each) => make(row, each));
    this.tabs.set([
      { name: "message", title: "Message", render: inParts(messagePart) },
      { name: "raw", title: "Raw", render: inParts(rawPart) },
      {
        name: "checks",
        title: "Checks",
        count: wrong || undefined,
        render: (panel) => keyed(panel, [checks, ...findings], (each) => JSON.stringify(each === checks ? [row.index, parts.map(({ number }) => number), checks] : each), (each) => (each === checks ? checksPart(row, parts) : findingCard(/** @type {Finding} */ (each), this.goTo))),
      },
      ...(related.length
        ? [
            {
              name: "related",
              title: "Progress",
              count: related.length,
              render: (/** @type {HTMLElement} */ panel) => showRelated(panel, row, related, this.goTo),
            },
          ]
        : []),
      ...(copies.length
        ? [{ name: "copy", title: "Copy as", render: (/** @type {HTMLElement} */ panel) => keyed(panel, copies, JSON.stringify, copyPart) }]
        : []),
    ]);
  }
}

/** @param {Row} row @param {Described} described */
function partName(row, { number }) {
  if (row.kind === "call") return number === row.n ? "Request" : "Answer";
  return row.kind === "stderr" ? "stderr" : row.kind === "event" ? "Event" : "Message";
}

/** @param {Row} row @param {Described} described */
function partTitle(row, described) {
  const { number, record, size: bytes } = described;
  const after = number !== row.n ? ` after ${duration(Math.max(0, record.t - row.t))}` : "";
  const flags = ["torn", "crlf", "masked"].filter((each) => record[each]);
  if (record.cut) flags.push(`only its beginning, of ${size(record.cut)}`);
  return el(
    "h3",
    { class: "part-title" },
    partName(row, described),
    el("span", { class: "part-facts" }, `line ${number}${after} · ${size(bytes)}${flags.length ? ` · ${flags.join(", ")}` : ""}`),
  );
}

/** @param {Row} row @param {Described} described */
function messagePart(row, described) {
  const { record } = described;
  /** @type {Node} */
  let body;
  const text = record.text ?? record.stderr;
  if (record.text !== undefined) {
    try {
      body = jsonTree(parseJson(record.text), { label: partName(row, described) });
    } catch {
      body = rawText(record.text);
    }
  } else if (text !== undefined) {
    body = rawText(text);
  } else if (record.base64 !== undefined) {
    body = el("div", null, el("p", null, "Not UTF-8. In base64:"), rawText(record.base64));
  } else {
    body = jsonTree(record);
  }
  const http = record.http ? el("details", { class: "http" }, el("summary", null, "HTTP"), jsonTree(record.http)) : null;
  return el("section", { class: "part" }, partTitle(row, described), body, http);
}

/** @param {Row} row @param {Described} described */
function rawPart(row, described) {
  const { record } = described;
  const text = record.text ?? record.stderr ?? record.base64 ?? JSON.stringify(record);
  return el("section", { class: "part" }, copyButton(text), partTitle(row, described), rawText(text));
}

/** @param {string} text */
function rawText(text) {
  const shown = el("pre", { class: "raw", tabindex: "-1" }, text.slice(0, SHOWN_RAW));
  if (text.length > SHOWN_RAW) {
    const all = () => {
      fill(shown, text);
      shown.focus(); // the button that had the focus is no more
    };
    append(shown, el("button", { type: "button", onclick: all }, `Show all ${text.length.toLocaleString("en")} characters`));
  }
  return shown;
}

/** @param {Row} row @param {Described[]} parts */
function checksPart(row, parts) {
  if (!parts.some(({ checks }) => checks.length)) return el("p", { class: "hint" }, "There is nothing to check here.");
  return el(
    "div",
    null,
    ...parts.map((described) =>
      el(
        "section",
        { class: "part" },
        partTitle(row, described),
        el(
          "ul",
          { class: "check-list" },
          ...described.checks.map(({ ok, what, reason }) =>
            el(
              "li",
              { class: ok === null ? "is-unknown" : ok ? "is-ok" : "is-error" },
              el("span", { class: "check-mark", role: "img", "aria-label": ok === null ? "not checked" : ok ? "right" : "wrong" }, ok === null ? "–" : ok ? "✓" : "✕"),
              el("span", null, what, reason ? el("span", { class: "check-reason" }, reason) : null),
            ),
          ),
        ),
      ),
    ),
  );
}

/** @param {HTMLElement} panel @param {Row} row @param {Row[]} related @param {(number: number) => void} goTo */
function showRelated(panel, row, related, goTo) {
  const make = (/** @type {Row} */ each) =>
    el(
      "li",
      null,
      el("button", { type: "button", class: "quiet", onclick: () => goTo(each.n) }, `+${duration(each.t - row.t)}`),
      el("span", null, titleOf(each)),
      el("span", { class: "hint" }, whatOf(each)),
    );
  const show = (/** @type {Element} */ list) => keyed(list, related.slice(0, 1000), ({ n }) => n, make);
  keyed(panel, [row.index], String, () => el("ol", { class: "related" }), show);
}

/** @param {[string, string]} copy */
function copyPart([name, text]) {
  return el(
    "section",
    { class: "part" },
    copyButton(text),
    el("h3", { class: "part-title" }, COPY_TITLES[name] ?? name),
    el("pre", { class: "raw" }, text),
  );
}

/** @param {string} text */
function copyButton(text) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied.");
    } catch {
      toast("The browser does not allow to copy. Select the text instead.", "error");
    }
  };
  return el("button", { type: "button", class: "copy", onclick: copy }, "Copy");
}
