// What the page knows of the connections. The server says which part has changed, and that part is asked for again.

import { ApiError, Order, ask, get, part, post } from "../api.js";
import { toastError } from "../components/toast.js";

/** @typedef {"connections" | "details" | "lists" | "call" | "questions" | "log" | "saved"} Topic */

/** Lines of the log that are kept here. */
const MAX_LINES = 2000;

export const LISTS = /** @type {const} */ (["tools", "resources", "templates", "prompts"]);
/** Which lists a change of the server is about. @type {Record<string, readonly string[]>} */
const CHANGED = { tools: ["tools"], prompts: ["prompts"], resources: ["resources", "templates"], all: LISTS };

/** One connection, and what was asked of it. */
export class Connection {
  /** @param {Model} model @param {any} summary */
  constructor(model, summary) {
    this.model = model;
    this.id = /** @type {number} */ (summary.id);
    this.summary = summary;
    /** @type {any} */
    this.details = null;
    /** @type {Record<string, {items: any[], error: string} | undefined>} */
    this.lists = {};
    /** @type {any[]} */
    this.questions = [];
    /** @type {any[]} */
    this.lines = [];
    this.lastLine = 0;
    /** The newest first. @type {Map<number, any>} */
    this.calls = new Map();
    this.orders = { details: new Order(), questions: new Order(), log: new Order(), lists: new Map(LISTS.map((what) => [/** @type {string} */ (what), new Order()])) };
  }

  /** @param {string} path */
  path(path = "") {
    return `workbench/connections/${this.id}${path}`;
  }

  async loadDetails() {
    const isNews = this.orders.details.ask();
    const areQuestionsNews = this.orders.questions.ask();
    const details = await get(this.path());
    if (areQuestionsNews()) this.questions = details.questions;
    if (isNews()) {
      this.details = details;
      this.summary = { ...this.summary, ...details };
      const known = this.calls;
      const last = details.calls[0]?.id ?? 0;
      // Events may have told of later ones meanwhile.
      const calls = [...[...known.values()].filter(({ id }) => id > last), ...details.calls];
      this.calls = new Map(calls.map((call) => [call.id, newer(known.get(call.id), call)]));
      this.model.tell("details", this);
    }
    this.model.tell("questions", this);
  }

  /** @param {string} what */
  async loadList(what) {
    const isNews = /** @type {Order} */ (this.orders.lists.get(what)).ask();
    let list;
    try {
      list = { items: (await get(this.path(`/lists/${what}`))).items, error: "" };
    } catch (error) {
      list = { items: [], error: error instanceof Error ? error.message : String(error) };
    }
    if (!isNews()) return;
    this.lists[what] = list;
    this.model.tell("lists", this, what);
  }

  async loadLists() {
    const { capabilities } = this.details ?? {};
    if (!capabilities) return;
    const has = { tools: capabilities.tools, resources: capabilities.resources, templates: capabilities.resources, prompts: capabilities.prompts };
    await Promise.all(LISTS.filter((what) => has[what]).map((what) => this.loadList(what)));
  }

  async loadQuestions() {
    const isNews = this.orders.questions.ask();
    const { questions } = await get(this.path("/questions"));
    if (!isNews()) return;
    this.questions = questions;
    this.model.tell("questions", this);
  }

  async loadLog() {
    const isNews = this.orders.log.ask();
    const { lines, last } = await get(this.path(`/log?after=${this.lastLine}`));
    if (!isNews()) return;
    const fresh = lines.filter((/** @type {any} */ line) => line.number > this.lastLine);
    this.lastLine = last;
    this.lines = [...this.lines, ...fresh].slice(-MAX_LINES);
    this.model.tell("log", this);
  }

  /** @param {string} method @param {Record<string, unknown>} params */
  async call(method, params) {
    const call = await post(this.path("/calls"), { method, params });
    // An event may have told more of it already.
    if (!this.calls.has(call.id)) this.putCall(call);
    return call;
  }

  /** @param {any} call */
  putCall(call) {
    const known = this.calls.get(call.id);
    if (newer(known, call) !== call) return;
    if (known) this.calls.set(call.id, call);
    else this.calls = new Map([/** @type {[number, any]} */ ([call.id, call]), ...this.calls]);
    this.model.tell("call", this, call);
  }

  /** @param {number} id */
  outcome(id) {
    return get(this.path(`/calls/${id}`));
  }
}

/** The one of two summaries of a call that was made later; answers and events may overtake each other. @param {any} known @param {any} call */
function newer(known, call) {
  return known && known.state !== "running" && call.state === "running" ? known : call;
}

export class Model {
  /** @param {import("../api.js").Events} events */
  constructor(events) {
    /** @type {Map<number, Connection>} */
    this.connections = new Map();
    /** @type {string | null} */
    this.start = null;
    this.isLoaded = false;
    /** @type {any[]} */
    this.saved = [];
    /** @type {Map<Topic, Set<(connection: Connection, more?: any) => void>>} */
    this.listeners = new Map();
    /** @type {number} */
    this.current = 0;
    this.pending = new Map();
    this.orders = { connections: new Order(), saved: new Order() };
    events.on("hello", () => this.reload());
    events.on("lost", () => this.reload());
    events.on("workbench", (event) => this.#hear(event));
  }

  /** @param {Topic} topic @param {(connection: Connection, more?: any) => void} listener */
  on(topic, listener) {
    this.listeners.set(topic, (this.listeners.get(topic) ?? new Set()).add(listener));
  }

  /** @param {Topic} topic @param {any} connection @param {any} [more] */
  tell(topic, connection, more) {
    for (const listener of this.listeners.get(topic) ?? []) listener(connection, more);
  }

  async reload() {
    await this.loadConnections();
    const current = this.connections.get(this.current);
    if (current) await this.refresh(current);
    await this.loadSaved();
  }

  /** Asks for everything of a connection. @param {Connection} connection */
  async refresh(connection) {
    try {
      const wasOpen = connection.details?.state === "open";
      await connection.loadDetails();
      if (connection.details.state === "open" && (!wasOpen || !Object.keys(connection.lists).length)) await connection.loadLists();
      await connection.loadLog();
    } catch (error) {
      if (error instanceof ApiError && error.status === 410) return; // closed meanwhile, which another event says
      toastError(error);
    }
  }

  async loadConnections() {
    const isNews = this.orders.connections.ask();
    try {
      const { connections, start } = await get("workbench");
      if (!isNews()) return;
      const known = this.connections;
      this.start = start;
      this.connections = new Map(
        connections.map((/** @type {any} */ each) => {
          const found = known.get(each.id) ?? new Connection(this, each);
          found.summary = { ...found.summary, ...each };
          return [each.id, found];
        }),
      );
      this.isLoaded = true;
      this.tell("connections", null);
      // A server may have asked before this page was opened.
      for (const each of this.connections.values()) {
        if (each.summary.waiting && !each.questions.length) this.#soon(`questions/${each.id}`, () => each.loadQuestions());
      }
    } catch (error) {
      toastError(error);
    }
  }

  async loadSaved() {
    const isNews = this.orders.saved.ask();
    try {
      const { calls } = await get("workbench/saved");
      if (!isNews()) return;
      this.saved = calls;
    } catch (error) {
      toastError(error);
    }
    this.tell("saved", null);
  }

  /** @param {any} choice @returns {Promise<Connection>} */
  async connect(choice) {
    const summary = await post("workbench/connections", choice);
    await this.loadConnections();
    return this.connections.get(summary.id) ?? new Connection(this, summary);
  }

  /** @param {Connection} connection */
  async reconnect(connection) {
    const summary = await post(connection.path("/reconnect"));
    await this.loadConnections();
    return summary.id;
  }

  /** @param {Connection} connection */
  async disconnect(connection) {
    await ask("DELETE", connection.path());
    await this.loadConnections();
  }

  /** @param {string} id */
  async deleteSaved(id) {
    await ask("DELETE", `workbench/saved/${part(id)}`);
    await this.loadSaved();
  }

  /** @param {any} event */
  #hear(event) {
    const connection = this.connections.get(event.connection);
    const isCurrent = event.connection === this.current;
    switch (event.part) {
      case "connections":
        return this.#soon("connections", () => this.loadConnections());
      case "saved":
        return this.#soon("saved", () => this.loadSaved());
      case "state":
        this.#soon("connections", () => this.loadConnections());
        if (connection && isCurrent) this.#soon(`state/${event.connection}`, () => this.refresh(connection));
        return;
      case "call":
        return connection?.putCall(event.call);
      case "questions":
        if (connection) this.#soon(`questions/${event.connection}`, () => connection.loadQuestions());
        return;
      case "log":
        if (connection && isCurrent) this.#soon(`log/${event.connection}`, () => connection.loadLog());
        return;
      case "lists":
        // Also one that is being asked for the first time: its answer may be older than the change.
        for (const what of CHANGED[event.what] ?? []) if (connection?.orders.lists.get(what)?.hasAsked) connection.loadList(what);
        return;
      case "resource":
        return this.tell("details", connection, { resource: event.uri });
    }
  }

  /** Asks once for many events; what comes while it asks makes it ask again. @param {string} what @param {() => Promise<void>} run */
  #soon(what, run) {
    if (this.pending.has(what)) {
      this.pending.set(what, true);
      return;
    }
    this.pending.set(what, false);
    run()
      .catch(() => {}) // the connection may be gone by now: another event says so
      .finally(() => {
        const again = this.pending.get(what);
        this.pending.delete(what);
        if (again) this.#soon(what, run);
      });
  }
}
