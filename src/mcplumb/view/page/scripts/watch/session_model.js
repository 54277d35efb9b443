// A session, as far as the page has loaded it: its rows, its findings, and what changes.

import { Order, get, part } from "../api.js";
import { toastError } from "../components/toast.js";

/**
 * A row of the list, as the API gives it. Members that are left out have their defaults.
 * @typedef {object} Row
 * @property {number} index
 * @property {number} n the number of the record
 * @property {"call" | "notification" | "stray" | "bad" | "stderr" | "event"} kind
 * @property {number} t
 * @property {"client" | "server"} [sender]
 * @property {string} [method]
 * @property {number | string} [id]
 * @property {string} [name]
 * @property {string} [args] the beginning of the arguments
 * @property {"open" | "answered" | "failed" | "cancelled" | "lost"} [state]
 * @property {number} [answer] the record of the answer
 * @property {number} [end]
 * @property {number} [code]
 * @property {string} [text]
 * @property {boolean} [toolError]
 * @property {boolean} [needsInput]
 * @property {number} [call] the record of the request that it belongs to
 * @property {number} [cancellation]
 * @property {number} [size]
 * @property {number} [answerSize]
 * @property {number} [notes]
 * @property {number} [exchange]
 */

/**
 * @typedef {object} Finding
 * @property {string} rule
 * @property {string} requirement
 * @property {"error" | "warning" | "note"} severity
 * @property {string} title
 * @property {string} message
 * @property {number[]} lines
 * @property {number} t
 * @property {number} count
 * @property {string} why
 * @property {string} advice
 */

/** @typedef {{name: string, version: string}} Identity */

/** Seconds after which an answer is slow, as for the findings. */
export const SLOW = 10;

/** One session. It asks for what is new when the server says that there is something. */
export class SessionModel {
  /**
   * @param {string} key
   * @param {import("../api.js").Events} events
   */
  constructor(key, events) {
    this.key = key;
    /** @type {Row[]} */
    this.rows = [];
    /** The place of the row that shows a record, by the number of the record. @type {Map<number, number>} */
    this.places = new Map();
    /** @type {Finding[]} */
    this.findings = [];
    /** The worst finding about each record. @type {Map<number, Finding["severity"]>} */
    this.findingAt = new Map();
    /** Rows by method, with how many there are. @type {Map<string, number>} */
    this.methods = new Map();
    this.findingCount = 0;
    this.isLive = false;
    this.isLoaded = false;
    this.failure = "";
    this.now = 0;
    this.nowAt = performance.now();
    /** @type {{client: Identity, server: Identity, revisions: string[], messages: number, lost: number, skipped: number, cut: number | null} | null} */
    this.info = null;
    this.next = 0;
    /** @type {Promise<void> | null} */
    this.loading = null;
    this.isStale = false;
    this.isClosed = false;
    this.findingsOrder = new Order();
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    this.endings = [
      events.on("rows", (data) => data.session === key && this.load()),
      events.on("hello", () => this.load()),
      events.on("lost", () => this.load()),
    ];
  }

  close() {
    this.isClosed = true;
    for (const end of this.endings) end();
    this.listeners.clear();
  }

  /** Calls a function whenever something has changed. @param {() => void} listener */
  onchange(listener) {
    this.listeners.add(listener);
  }

  /** Seconds since the start of the session: now if it is live. */
  get currentTime() {
    return this.isLive ? this.now + (performance.now() - this.nowAt) / 1000 : this.now;
  }

  /** Loads everything that is new. */
  load() {
    this.isStale = true;
    this.loading ??= this.#loadAll().finally(() => (this.loading = null));
    return this.loading;
  }

  async #loadAll() {
    try {
      while (this.isStale && !this.isClosed) {
        this.isStale = false;
        let more = true;
        while (more && !this.isClosed) {
          const page = await get(`sessions/${part(this.key)}/rows?from=${this.next}`);
          this.#take(page);
          more = page.more;
        }
        this.isLoaded = true;
        this.failure = "";
        this.#changed();
      }
    } catch (error) {
      this.failure = error instanceof Error ? error.message : String(error);
      this.#changed();
    }
  }

  /** @param {any} page */
  #take(page) {
    for (const row of /** @type {Row[]} */ (page.rows)) {
      const before = this.rows[row.index];
      if (!before) {
        const name = row.method ?? "";
        if (name && row.kind !== "event") this.methods.set(name, (this.methods.get(name) ?? 0) + 1);
      }
      this.rows[row.index] = row;
      this.places.set(row.n, row.index);
      if (row.answer !== undefined) this.places.set(row.answer, row.index);
      if (row.cancellation !== undefined && !this.places.has(row.cancellation)) this.places.set(row.cancellation, row.index);
    }
    this.next = page.next;
    this.isLive = page.live;
    this.now = page.now;
    this.nowAt = performance.now();
    this.info = page.info;
    if (page.findings !== this.findingCount) {
      this.findingCount = page.findings;
      this.#loadFindings();
    }
    this.#changed();
  }

  async #loadFindings() {
    const isNews = this.findingsOrder.ask();
    try {
      const findings = await get(`sessions/${part(this.key)}/findings`);
      if (!isNews()) return;
      this.findings = findings;
      this.findingAt.clear();
      const order = ["note", "warning", "error"];
      for (const { lines, severity } of this.findings) {
        for (const line of lines) {
          const known = this.findingAt.get(line);
          if (!known || order.indexOf(known) < order.indexOf(severity)) this.findingAt.set(line, severity);
        }
      }
      this.#changed();
    } catch (error) {
      toastError(error);
    }
  }

  #changed() {
    for (const listener of this.listeners) listener();
  }

  /** The worst finding about a row. @param {Row} row */
  severityOf(row) {
    return this.findingAt.get(row.n) ?? (row.answer === undefined ? undefined : this.findingAt.get(row.answer));
  }

  /** Seconds that a call took, or has taken so far. @param {Row} row */
  secondsOf(row) {
    return Math.max(0, (row.end ?? this.currentTime) - row.t);
  }

  /** @param {Row} row */
  isSlow(row) {
    return row.kind === "call" && row.method !== "subscriptions/listen" && this.secondsOf(row) > SLOW;
  }

  /** @param {Row} row */
  static isError(row) {
    return row.kind === "bad" || row.kind === "stray" || row.state === "failed" || row.state === "lost" || !!row.toolError;
  }
}
