// Asks the server of this page, and hears what it says. All addresses are relative: the page's own begins with the
// secret.

import { parseJson } from "./exact_json.js";

/** An answer of the API that is an error; its message is a sentence. */
export class ApiError extends Error {
  /** @param {number} status @param {string} sentence */
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/**
 * Asks the API, and returns what the JSON of the answer says. Raises ApiError, with status 0 if nobody answers, 410 if
 * what it asks for is there no more, and 422 if it did not work, for a reason that is not the page's.
 * @param {string} method
 * @param {string} path below `api/`
 * @param {unknown} [body] sent as JSON
 * @param {{signal?: AbortSignal, keepalive?: boolean}} [options] `keepalive`: it is sent also if the page is left
 * @returns {Promise<any>}
 */
export async function ask(method, path, body, options = {}) {
  let response;
  try {
    response = await fetch(`api/${path}`, {
      method,
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: body === undefined ? {} : { "content-type": "application/json" },
      ...options,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "mcplumb view does not answer. Is it still running in its terminal?");
  }
  const isJson = response.headers.get("content-type")?.startsWith("application/json");
  if (!isJson) throw new ApiError(response.status, await response.text());
  const answer = parseJson(await response.text());
  if (!response.ok) throw new ApiError(response.status, answer.error ?? `HTTP status ${response.status}`);
  if (typeof answer?.gone === "string") throw new ApiError(410, answer.gone);
  if (typeof answer?.failed === "string") throw new ApiError(422, answer.failed);
  return answer;
}

/** @param {string} path @param {{signal?: AbortSignal}} [options] */
export const get = (path, options) => ask("GET", path, undefined, options);

/** @param {string} path @param {unknown} [body] */
export const post = (path, body = {}) => ask("POST", path, body);

/**
 * Quotes one part of a path.
 * @param {string | number} part
 */
export const part = (part) => encodeURIComponent(String(part));

/** Tells which answers to one question are news: of two that overtake each other, the later question has the newer answer. */
export class Order {
  #asked = 0;
  #taken = 0;

  /** Is called before asking; what it returns says, when there is an answer, whether it is newer than all before. */
  ask() {
    const mine = ++this.#asked;
    return () => {
      if (mine < this.#taken) return false;
      this.#taken = mine;
      return true;
    };
  }

  /** Whether something was asked. */
  get hasAsked() {
    return this.#asked > 0;
  }
}

/**
 * The events of the server, in one stream. It is closed while nobody looks at the page, because browsers allow only
 * six to one address; whoever listens to `hello` asks for everything again.
 */
export class Events {
  constructor() {
    /** @type {Map<string, Set<(data: any) => void>>} */
    this.listeners = new Map();
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {(state: "live" | "lost" | "away") => void} */
    this.onstate = () => {};
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
  }

  /** Connects, unless it is connected or the page is hidden. */
  open() {
    if (this.source || document.hidden) return;
    const source = new EventSource("api/events");
    this.source = source;
    source.onopen = () => this.onstate("live");
    source.onerror = () => {
      this.onstate("lost");
      // After an answer that is no stream, browsers do not try again.
      if (source.readyState === EventSource.CLOSED && this.source === source) {
        this.source = null;
        setTimeout(() => this.open(), 2000);
      }
    };
    for (const topic of this.listeners.keys()) this.#attach(source, topic);
  }

  close() {
    this.source?.close();
    this.source = null;
    this.onstate("away");
  }

  /**
   * Calls a function with the data of each event of a topic. `hello` comes with each new connection, and `lost` if
   * events were dropped.
   * @param {string} topic
   * @param {(data: any) => void} listener
   * @returns {() => void} ends it
   */
  on(topic, listener) {
    let known = this.listeners.get(topic);
    if (!known) {
      known = new Set();
      this.listeners.set(topic, known);
      if (this.source) this.#attach(this.source, topic);
    }
    known.add(listener);
    return () => known.delete(listener);
  }

  /** @param {EventSource} source @param {string} topic */
  #attach(source, topic) {
    source.addEventListener(topic, (event) => {
      const data = JSON.parse(/** @type {MessageEvent<string>} */ (event).data);
      for (const listener of this.listeners.get(topic) ?? []) listener(data);
    });
  }
}
