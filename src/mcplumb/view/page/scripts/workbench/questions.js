// The server's questions as dialogs: forms, web pages, messages in place of a model, and sign-ins. Closing a dialog
// answers nothing: the question waits in a bar above the page.

import { post } from "../api.js";
import { dialog } from "../components/dialog.js";
import { jsonTree } from "../components/json_tree.js";
import { toast, toastError } from "../components/toast.js";
import { el, keyed, newId, setText, shortened } from "../dom.js";
import { parseJson } from "../exact_json.js";
import { blockView } from "./result_view.js";
import { SchemaForm } from "./schema_form.js";
import { addressBox, openAddress, webAddress } from "./web_address.js";

/** @typedef {import("./model.js").Connection} Connection */

/** Characters of a message that are shown, in its dialog and in the bar. */
const MAX_SAID = 10_000;
const MAX_SAID_IN_BAR = 200;

/** Asks the questions of all connections, one after the other. */
export class QuestionDialogs {
  /** @param {import("./model.js").Model} model */
  constructor(model) {
    this.model = model;
    this.bar = el("div", { class: "question-bar", role: "status", hidden: true });
    /** Questions that the user has put off. @type {Set<string>} */
    this.later = new Set();
    /** Those that have an answer: a list that was asked for before does not bring them back. @type {Set<string>} */
    this.answered = new Set();
    /** The one of them that the user wants to answer now. */
    this.wanted = "";
    /** @type {{key: string, close: (value: string) => void} | null} */
    this.open = null;
    this.isBusy = false;
    model.on("questions", () => this.update());
    model.on("connections", () => this.update());
  }

  /** @returns {{key: string, connection: Connection, question: any}[]} */
  all() {
    return [...this.model.connections.values()]
      .flatMap((connection) => connection.questions.map((question) => ({ key: `${connection.id}/${question.id}`, connection, question })))
      .filter(({ key }) => !this.answered.has(key));
  }

  update() {
    const keys = new Set(this.all().map(({ key }) => key));
    for (const key of this.later) if (!keys.has(key)) this.later.delete(key);
    for (const { connection } of this.all().filter(({ key }) => this.later.has(key))) this.#putOff(connection);
    if (this.open && !keys.has(this.open.key)) this.open.close("gone");
    this.#showBar();
    if (!this.isBusy) this.#askAll();
  }

  #showBar() {
    const waiting = this.all().filter(({ key }) => this.later.has(key));
    this.bar.hidden = !waiting.length;
    keyed(
      this.bar,
      waiting,
      ({ key }) => key,
      ({ key, connection, question }) => {
        const title = titleOf(question, nameOf(connection));
        const said = shortened(messageIn(question), MAX_SAID_IN_BAR);
        const words = said ? `${title}: ${said}` : title;
        return el(
          "div",
          { class: "question-waiting" },
          el("span", { title: words }, said ? `${title}: ` : title, el("bdi", null, said)),
          el("button", { type: "button", class: "primary", "aria-label": `Answer ${words}`, onclick: () => this.#answer(key) }, "Answer"),
        );
      },
    );
  }

  /** Asks one that was put off. @param {string} key */
  #answer(key) {
    this.wanted = key;
    this.later.delete(key);
    this.update();
  }

  async #askAll() {
    this.isBusy = true;
    try {
      for (;;) {
        const found = this.all().find(({ key }) => !this.later.has(key));
        if (!found) break;
        const isDone = await this.ask(found);
        this.wanted = "";
        if (isDone) this.answered.add(found.key);
        else this.#putOff(found.connection);
        this.#showBar();
      }
    } finally {
      this.isBusy = false;
      this.open = null;
    }
  }

  /** Lets all questions of a server wait, and so later those that it asks meanwhile: they must not keep its user from working. @param {Connection} connection */
  #putOff(connection) {
    for (const each of this.all()) if (each.connection === connection && each.key !== this.wanted) this.later.add(each.key);
  }

  /** Asks one question; returns whether it waits no more. @param {{key: string, connection: Connection, question: any}} asked */
  async ask({ key, connection, question }) {
    const kinds = { elicitation: question.mode === "url" ? askUrl : askForm, sampling: askSample, "sign-in": askSignIn };
    const make = kinds[/** @type {keyof typeof kinds} */ (question.kind)];
    if (!make) return false;
    const { title, body, actions, answer } = make(question, nameOf(connection));
    const opened = (/** @type {(value: string) => void} */ close) => {
      this.open = { key, close };
      const first = body.querySelector(".property input:not(.include), textarea, select");
      if (first instanceof HTMLElement) first.focus();
    };
    const value = await dialog({ title, body, actions, opened });
    this.open = null;
    if (value === "gone") {
      toast("The server does not wait for this answer any more.");
      return true;
    }
    if (value === "") return false;
    try {
      await post(connection.path(`/questions/${question.id}`), answer(value));
    } catch (error) {
      toastError(error);
      return /** @type {any} */ (error).status === 410;
    }
    return true;
  }
}

/** @param {Connection} connection */
function nameOf(connection) {
  return shortened(connection.summary.name ?? connection.summary.title, 80);
}

/** The title of a question's dialog. @param {any} question @param {string} name */
function titleOf(question, name) {
  if (question.kind === "sign-in") return `Sign in to ${name}`;
  if (question.kind === "sampling") return `${name} asks a model`;
  return question.mode === "url" ? `${name} sends you to a web page` : `${name} asks`;
}

/** What a question says: its message, or the last text that a model shall answer. @param {any} question @returns {string} */
function messageIn(question) {
  if (question.kind !== "sampling") return question.message ?? "";
  const { messages } = question.params;
  const blocks = Array.isArray(messages) ? messages.flatMap((message) => message?.content) : [];
  return blocks.findLast((block) => typeof block?.text === "string")?.text ?? "";
}

/**
 * @typedef {object} Asked
 * @property {string} title
 * @property {HTMLElement} body
 * @property {{label: string, value: string, kind?: string, check?: () => boolean}[]} actions
 * @property {(value: string) => any} answer
 */

const DECLINE = { label: "Decline", value: "decline" };
const CANCEL = { label: "Cancel", value: "cancel", kind: "quiet" };

/** @param {any} question @param {string} name @returns {Asked} */
function askForm(question, name) {
  const form = new SchemaForm(question.schema);
  const note = el("p", { class: "problem", role: "alert", hidden: true });
  const ready = () => {
    const problems = form.check();
    note.hidden = !problems.length;
    setText(note, problems.length ? `${problems.length === 1 ? "One field needs" : `${problems.length} fields need`} another look.` : "");
    form.focusProblem();
    return !problems.length;
  };
  return {
    title: titleOf(question, name),
    body: el(
      "div",
      { class: "question" },
      el("p", { class: "said" }, shortened(question.message, MAX_SAID)),
      form.element,
      note,
      el("p", { class: "hint" }, `Your answer goes to ${name}. Servers must not ask for passwords in a form.`),
    ),
    actions: [CANCEL, DECLINE, { label: "Send", value: "accept", kind: "primary", check: ready }],
    answer: (value) => ({ action: value, content: value === "accept" ? form.get() : null }),
  };
}

/** @param {any} question @param {string} name @returns {Asked} */
function askUrl(question, name) {
  const open = () => {
    openAddress(String(question.url));
    return true;
  };
  const actions = [CANCEL, DECLINE];
  if (question.canBeOpened && webAddress(String(question.url))) {
    actions.push(/** @type {any} */ ({ label: "Open the page", value: "accept", kind: "primary", check: open }));
  }
  return {
    title: titleOf(question, name),
    body: el("div", { class: "question" }, el("p", { class: "said" }, shortened(question.message, MAX_SAID)), addressBox(String(question.url)), el("p", { class: "hint" }, "Open it only if you know where it leads. It opens in a new tab, which knows nothing of this page.")),
    actions,
    answer: (value) => ({ action: value }),
  };
}

/** @param {any} question @param {string} name @returns {Asked} */
function askSignIn(question, name) {
  const asked = askUrl({ ...question, message: "This server wants you to sign in. The tokens are kept on this machine, for this server only." }, name);
  const open = asked.actions.at(-1);
  if (open?.value === "accept") open.label = "Sign in";
  return { ...asked, actions: [{ label: "Do not sign in", value: "decline" }, ...asked.actions.slice(2)] };
}

/** @param {any} question @param {string} name @returns {Asked} */
function askSample(question, name) {
  const { params } = question;
  const text = el("textarea", { id: newId("sample"), rows: 5, class: "sample-text" });
  const model = el("input", { id: newId("sample"), type: "text", placeholder: "a person", autocomplete: "off" });
  const raw = el("textarea", { id: newId("sample"), rows: 8, class: "mono", spellcheck: "false" });
  const note = el("p", { class: "problem", role: "alert", hidden: true });
  const rawBox = el("details", { class: "raw" }, el("summary", null, "Answer with a whole result as JSON"), el("label", { for: raw.id }, "Result"), raw);
  rawBox.addEventListener("toggle", () => {
    if (rawBox.open && !raw.value) {
      const whole = { role: "assistant", content: { type: "text", text: text.value }, model: model.value || "a person", stopReason: "endTurn" };
      raw.value = JSON.stringify(whole, null, 2);
    }
  });
  const content = () => (rawBox.open ? parseJson(raw.value) : null);
  const ready = () => {
    try {
      content();
      return true;
    } catch (error) {
      note.hidden = false;
      setText(note, `The result is not JSON: ${error instanceof Error ? error.message : error}`);
      raw.focus();
      return false;
    }
  };
  const messages = Array.isArray(params.messages) ? params.messages : [];
  const { messages: _, ...settings } = params;
  return {
    title: titleOf(question, name),
    body: el(
      "div",
      { class: "question" },
      params.systemPrompt ? el("div", { class: "message is-system" }, el("h3", null, "system"), el("pre", { class: "text" }, shortened(params.systemPrompt, MAX_SAID))) : null,
      ...messages.map((/** @type {any} */ { role, content: said }) =>
        el("div", { class: `message is-${role === "assistant" ? "assistant" : "user"}` }, el("h3", null, String(role)), ...[said].flat().map((block) => blockView(block, undefined))),
      ),
      el("details", { class: "raw" }, el("summary", null, "Settings of the request"), jsonTree(settings, { label: "Settings" })),
      el("label", { for: text.id }, "Your answer in place of the model"),
      text,
      el("label", { for: model.id }, "Name of the model"),
      model,
      rawBox,
      note,
    ),
    actions: [{ label: "Reject", value: "decline" }, { label: "Send", value: "accept", kind: "primary", check: ready }],
    answer: (value) => (value === "accept" ? { action: value, text: text.value, model: model.value, content: content() } : { action: value }),
  };
}
