// The panels beside the work: the log, the calls so far, the saved ones, and the server itself.

import { Order, post } from "../api.js";
import { jsonTree } from "../components/json_tree.js";
import { Tabs } from "../components/tabs.js";
import { toast, toastError } from "../components/toast.js";
import { el, fill, keyed, newId, setText, shortened } from "../dom.js";
import { duration } from "./call_view.js";

/** @typedef {import("./model.js").Connection} Connection */
/** @typedef {import("./model.js").Model} Model */

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
/** Lines of the log that are shown. */
const SHOWN_LINES = 500;

export class Panels {
  /**
   * @param {Model} model
   * @param {(call: {method: string, params: any}, result?: any) => void} open shows a call in the work area
   */
  constructor(model, open) {
    this.model = model;
    this.openCall = open;
    this.tabs = new Tabs("Log, history, saved calls, server");
    this.element = el("aside", { class: "panels", "aria-label": "Log, history and server" }, this.tabs.element);
    this.lines = el("ol");
    this.log = el("div", { class: "log", role: "log", "aria-label": "Log", tabindex: "0" }, this.lines);
    this.level = el("select", { "aria-label": "Level of the log", onchange: () => this.#setLevel() }, el("option", { value: "" }, "server's own"), ...LEVELS.map((level) => el("option", { value: level }, level)));
    this.levelNote = el("span", { class: "hint" });
    this.calls = el("ul", { class: "call-list" });
    this.saved = el("ul", { class: "call-list" });
    this.about = el("div", { class: "server-info" });
    this.roots = el("div", { class: "server-info" });
    this.tabs.set([
      { name: "log", title: "Log", render: (panel) => panel.append(el("div", { class: "log-head" }, el("label", null, "Level ", this.level), this.levelNote), this.log) },
      { name: "history", title: "History", render: (panel) => panel.append(this.calls) },
      { name: "saved", title: "Saved", render: (panel) => panel.append(this.saved) },
      { name: "server", title: "Server", render: (panel) => panel.append(this.about, this.roots) },
    ]);
    /** @type {Connection | null} */
    this.connection = null;
    this.lastShown = 0;
    this.openOrder = new Order();
    /** What the panel of the server shows. */
    this.aboutShown = "";
    model.on("log", (connection) => connection === this.connection && this.#showLog());
    model.on("call", (connection) => connection === this.connection && this.#showCalls());
    model.on("details", (connection) => connection === this.connection && this.#showDetails());
    model.on("saved", () => this.#showSaved());
  }

  /** @param {Connection | null} connection */
  show(connection) {
    if (connection !== this.connection) {
      this.connection = connection;
      this.lastShown = 0;
      this.lines.replaceChildren();
    }
    this.#showLog();
    this.#showCalls();
    this.#showDetails();
    this.#showSaved();
  }

  #showLog() {
    const lines = this.connection?.lines ?? [];
    const isAtEnd = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 8;
    for (const line of lines.slice(-SHOWN_LINES)) {
      if (line.number <= this.lastShown) continue;
      this.lastShown = line.number;
      const isBad = ["error", "critical", "alert", "emergency"].includes(line.level);
      this.lines.append(
        el(
          "li",
          { class: `log-line is-${line.kind} ${isBad ? "is-error" : line.level === "warning" ? "is-warn" : ""}` },
          el("time", null, new Date(line.time * 1000).toLocaleTimeString("en-GB")),
          el("span", { class: "log-kind" }, line.kind === "log" ? (line.level ?? "info") : line.kind),
          line.logger ? el("span", { class: "log-logger" }, line.logger) : null,
          line.data === undefined ? el("span", { class: "log-text" }, line.text ?? "") : jsonTree(line.data, { label: "Data of the message", open: 1 }),
        ),
      );
    }
    while (this.lines.childElementCount > SHOWN_LINES) this.lines.firstElementChild?.remove();
    if (isAtEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  #showCalls() {
    const calls = [...(this.connection?.calls.values() ?? [])];
    keyed(this.calls, calls, ({ id }) => `${this.connection?.id}/${id}`, (call) => this.#makeCall(call), updateCall);
    if (!calls.length) fill(this.calls, el("li", { class: "hint" }, "Nothing was called yet."));
  }

  /** @param {any} call */
  #makeCall({ id, method, title, began }) {
    const state = el("span");
    const took = el("span");
    const facts = el("span", { class: "hint" }, `${method} · ${new Date(began * 1000).toLocaleTimeString("en-GB")}`, took);
    const open = el("button", { type: "button", class: "call-entry", onclick: () => this.#openCall(id) }, el("span", { class: "call-name" }, shortened(title || method, 200)), state, facts);
    return Object.assign(el("li", null, open), { parts: { state, took } });
  }

  /** @param {number} id */
  async #openCall(id) {
    const { connection } = this;
    if (!connection) return;
    const isNews = this.openOrder.ask();
    try {
      const details = await connection.outcome(id);
      if (isNews() && this.connection === connection) this.openCall(details, details);
    } catch (error) {
      toastError(error);
    }
  }

  #showSaved() {
    const own = this.connection?.summary.title;
    const saved = [...this.model.saved].sort((one, two) => Number(two.server === own) - Number(one.server === own));
    keyed(
      this.saved,
      saved,
      ({ id }) => id,
      (call) =>
        el(
          "li",
          null,
          el(
            "button",
            { type: "button", class: "call-entry", onclick: () => this.openCall(call) },
            el("span", { class: "call-name" }, shortened(call.title, 200)),
            el("span", { class: "hint" }, shortened(`${call.params.name ?? call.params.uri ?? call.params.uriTemplate ?? call.method} · ${call.server}`, 300)),
          ),
          el("button", { type: "button", class: "quiet", "aria-label": `Delete ${call.title}`, onclick: () => this.model.deleteSaved(call.id).catch(toastError) }, "✕"),
        ),
      (item, call) => item.classList.toggle("is-foreign", call.server !== own),
    );
    if (!saved.length) fill(this.saved, el("li", { class: "hint" }, "No call is saved. Save one with the button beside its Call button."));
  }

  #showDetails() {
    const { details } = this.connection ?? {};
    this.level.disabled = details?.state !== "open" || (!details.capabilities?.logging && details.era !== "modern");
    setText(this.levelNote, details?.state === "open" && this.level.disabled ? "The server declares no logging." : "");
    if (document.activeElement !== this.level) this.level.value = details?.logLevel ?? "";
    const open = details?.state === "open" && this.connection ? [this.connection] : [];
    keyed(this.roots, open, ({ id }) => id, (connection) => rootsView(connection), updateRoots);
    if (!details) {
      this.aboutShown = "";
      fill(this.about);
      return;
    }
    const place = Array.isArray(details.place) ? details.place.join(" ") : details.place;
    const rows = /** @type {[string, string | undefined][]} */ ([
      ["Name", details.server?.name],
      ["Version", details.server?.version],
      ["Revision", details.revision && `${details.revision} (${details.era})`],
      [details.kind === "command" ? "Command" : "Address", place],
      ["Process", details.process && `pid ${details.process.pid ?? "none"}, restarts: ${details.process.restarts}`],
      ["Website", details.server?.websiteUrl],
    ]);
    const { instructions, capabilities, subscriptions } = details;
    const wanted = JSON.stringify([this.connection?.id, rows, instructions, capabilities, subscriptions]);
    if (wanted === this.aboutShown) return; // what is unfolded stays so
    this.aboutShown = wanted;
    fill(
      this.about,
      el("dl", null, ...rows.filter(([, value]) => value).flatMap(([name, value]) => [el("dt", null, name), el("dd", null, shortened(value, 2000))])),
      instructions ? el("section", null, el("h4", null, "Instructions"), el("pre", { class: "text" }, shortened(instructions, 20_000))) : null,
      capabilities && el("section", null, el("h4", null, "Capabilities"), jsonTree(capabilities, { label: "Capabilities", open: 1 })),
      subscriptions?.length ? el("section", null, el("h4", null, "Subscriptions"), el("ul", null, ...subscriptions.map((/** @type {string} */ uri) => el("li", null, el("code", null, shortened(uri, 300)))))) : null,
    );
  }

  async #setLevel() {
    if (!this.level.value) return;
    try {
      await post(/** @type {Connection} */ (this.connection).path("/log-level"), { level: this.level.value });
    } catch (error) {
      toastError(error);
    }
  }
}

/** @param {HTMLElement & {parts: {state: HTMLElement, took: HTMLElement}}} item @param {any} call */
function updateCall({ parts }, { state, isError, seconds }) {
  const word = state === "done" && isError ? "failed" : state;
  const kind = word === "done" ? "is-ok" : word === "failed" ? "is-error" : word === "cancelled" ? "is-warn" : "is-live";
  parts.state.className = `badge ${kind}`;
  setText(parts.state, word);
  setText(parts.took, state === "running" ? "" : ` · ${duration(seconds)}`);
}

/** @typedef {HTMLElement & {parts: {text: HTMLTextAreaElement}, sent: string}} RootsView */

/** The roots that the server gets. @param {Connection} connection @returns {RootsView} */
function rootsView(connection) {
  const text = el("textarea", { id: newId("roots"), class: "mono", rows: 3, spellcheck: "false", placeholder: "file:///home/me/project" });
  const note = el("p", { class: "problem", role: "alert", hidden: true });
  const set = async () => {
    const uris = text.value.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => (line.startsWith("/") ? `file://${line.split("/").map(encodeURIComponent).join("/")}` : line));
    try {
      const bad = uris.find((uri) => !uri.startsWith("file://"));
      if (bad) throw new Error(`A root is a path or begins with file://, and ${bad.slice(0, 60)} is neither.`);
      await post(connection.path("/roots"), { roots: uris.map((uri) => ({ uri })) });
      text.value = uris.join("\n");
      note.hidden = true;
      toast("The server gets these roots from now on.");
    } catch (error) {
      note.hidden = false;
      setText(note, error instanceof Error ? error.message : String(error));
    }
  };
  const label = el("label", { for: text.id, class: "hint" }, "Folders that the server may work in, one on each line");
  const section = el("section", null, el("h4", null, "Roots"), label, text, note, el("button", { type: "button", onclick: set }, "Set the roots"));
  return Object.assign(section, { parts: { text }, sent: "" });
}

/** Shows the roots that another page has set, unless others are being typed here. @param {RootsView} view @param {Connection} connection */
function updateRoots(view, { details }) {
  const roots = details.roots.map((/** @type {any} */ { uri }) => uri).join("\n");
  const { text } = view.parts;
  if (text.value === view.sent) text.value = roots;
  view.sent = roots;
}
