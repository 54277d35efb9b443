// One tool, resource, template, prompt or request of one's own: a form or JSON for its arguments, the call with its
// progress, and the result. Switching between form and JSON, and to other items and back, loses nothing.

import { post } from "../api.js";
import { dialog } from "../components/dialog.js";
import { Tabs } from "../components/tabs.js";
import { toast, toastError } from "../components/toast.js";
import { append, el, fill, newId, setText } from "../dom.js";
import { parseJson } from "../exact_json.js";
import { resultView } from "./result_view.js";
import { SchemaForm } from "./schema_form.js";

/** @typedef {import("./model.js").Connection} Connection */

/**
 * @typedef {object} Spec
 * @property {string} title
 * @property {string} verb the label of the button
 * @property {HTMLElement} head
 * @property {unknown} schema of the arguments
 * @property {(values: Record<string, unknown>) => {method: string, params: Record<string, unknown>}} toCall
 * @property {(call: {method: string, params: any}) => Record<string, unknown>} fromCall
 * @property {(name: string, value: string, typed: Record<string, unknown>) => Promise<string[]>} [complete]
 * @property {HTMLElement[]} [tools] more buttons
 */

export class CallView {
  /**
   * @param {Connection} connection
   * @param {Spec} spec
   * @param {(uri: string) => void} read opens a resource
   */
  constructor(connection, spec, read) {
    this.connection = connection;
    this.spec = spec;
    this.read = read;
    /** @type {any} */
    this.call = null;
    this.timer = 0;
    this.mode = "form";
    this.isStarting = false;
    const { complete } = spec;
    this.form = new SchemaForm(spec.schema, {
      changed: () => this.#changed(),
      complete: complete && ((name, value) => complete(name, value, this.form.get())),
    });
    const raw = newId("raw");
    this.raw = el("textarea", { id: raw, class: "raw-json mono", rows: 10, spellcheck: "false", "aria-label": "Arguments as JSON", oninput: () => this.#changed() });
    this.note = el("div", { class: "call-note", role: "alert" });
    this.editor = el("div", { class: "editor" }, this.form.element);
    this.formButton = el("button", { type: "button", "aria-pressed": "true", onclick: () => this.setMode("form") }, "Form");
    this.rawButton = el("button", { type: "button", "aria-pressed": "false", onclick: () => this.setMode("json") }, "JSON");
    this.run = el("button", { type: "button", class: "primary run", title: "Ctrl+Enter", onclick: () => this.start() }, spec.verb);
    this.cancel = el("button", { type: "button", class: "danger", title: "Ctrl+.", hidden: true, onclick: () => this.stop() }, "Cancel");
    this.callBar = el("div", { class: "call-bar" });
    this.bar = el("progress", { "aria-label": "Progress", hidden: true });
    this.clock = el("span", { "aria-hidden": "true" }); // a screen reader would read it ten times a second
    this.words = el("span", { role: "status" });
    this.state = el("span", { class: "call-state" }, this.clock, this.words);
    this.result = el("div", { class: "call-result" });
    this.element = el(
      "article",
      { class: "call-view" },
      spec.head,
      el(
        "div",
        { class: "editor-head" },
        el("h3", null, "Arguments"),
        el("span", { class: "spacer" }),
        el("div", { class: "segmented", role: "group", "aria-label": "Edit as" }, this.formButton, this.rawButton),
      ),
      this.editor,
      this.callBar,
      this.result,
    );
    append(
      this.callBar,
      this.note,
      this.run,
      this.cancel,
      el("span", { class: "call-progress" }, this.bar, this.state),
      el("span", { class: "spacer" }),
      ...(spec.tools ?? []),
      el("button", { type: "button", class: "quiet", onclick: () => this.save() }, "Save"),
      el("button", { type: "button", class: "quiet", onclick: () => this.copy() }, "Copy as…"),
    );
  }

  /** @param {"form" | "json"} mode */
  setMode(mode) {
    if (mode === this.mode) return;
    if (mode === "json") {
      this.raw.value = JSON.stringify(this.form.get(), null, 2);
      this.raw.rows = Math.min(24, Math.max(6, this.raw.value.split("\n").length + 1));
      fill(this.editor, this.raw);
    } else {
      const value = this.#parsed();
      if (value === undefined) return;
      this.form.set(value);
      fill(this.editor, this.form.element);
    }
    this.mode = mode;
    fill(this.note);
    this.formButton.setAttribute("aria-pressed", String(mode === "form"));
    this.rawButton.setAttribute("aria-pressed", String(mode === "json"));
  }

  /** The object that was typed as JSON; undefined, with a note, if it is none. @returns {Record<string, unknown> | undefined} */
  #parsed() {
    let problem = "The arguments must be a JSON object.";
    try {
      const value = parseJson(this.raw.value.trim() || "{}");
      if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
    } catch (error) {
      problem = `This is not JSON: ${error instanceof Error ? error.message : error}`;
    }
    fill(this.note, el("p", { class: "problem" }, problem));
    this.raw.focus();
    return undefined;
  }

  #changed() {
    if (this.note.childElementCount) fill(this.note);
  }

  /** Shows the arguments of a call. @param {{method: string, params: any}} call */
  setCall(call) {
    const values = this.spec.fromCall(call);
    this.form.set(values);
    if (this.mode === "json") this.raw.value = JSON.stringify(values, null, 2);
  }

  /** Takes what was typed into another view, and its call. @param {CallView} before */
  takeOver(before) {
    this.form.set(before.form.get());
    this.setMode(/** @type {"form" | "json"} */ (before.mode));
    if (this.mode === "json") this.raw.value = before.raw.value;
    if (before.call) this.show(before.call);
    clearTimeout(before.timer); // it is shown, and told of changes, no more
    before.call = null;
  }

  /** The call as it is now; undefined, with a note, if it cannot be sent. */
  wanted() {
    const values = this.mode === "json" ? this.#parsed() : this.form.get();
    return values === undefined ? undefined : this.spec.toCall(values);
  }

  /** @param {boolean} [anyway] despite what is wrong with the arguments */
  async start(anyway = false) {
    if (this.call?.state === "running" || this.isStarting) return;
    if (this.mode === "json") {
      const value = this.#parsed();
      if (value === undefined) return;
      this.form.set(value);
    }
    const problems = this.form.check();
    if (problems.length && !anyway) {
      const first = problems.slice(0, 5).map(({ path, message }) => `${path.join(".") || "The arguments"}: ${message}`);
      fill(
        this.note,
        el(
          "div",
          { class: "banner is-warn" },
          el("p", null, problems.length === 1 ? "The schema does not allow this:" : "The schema does not allow these:"),
          el("ul", null, ...first.map((line) => el("li", null, line)), problems.length > 5 && el("li", null, `and ${problems.length - 5} more`)),
          el("button", { type: "button", onclick: () => this.start(true) }, "Send it anyway"),
        ),
      );
      this.form.focusProblem();
      return;
    }
    fill(this.note);
    const wanted = this.wanted();
    if (wanted === undefined) return;
    this.isStarting = true; // a double click is one call
    try {
      const call = await this.connection.call(wanted.method, wanted.params);
      this.call = null;
      fill(this.result);
      this.show(this.connection.calls.get(call.id) ?? call);
    } catch (error) {
      fill(this.note, el("p", { class: "banner is-error" }, error instanceof Error ? error.message : String(error)));
    } finally {
      this.isStarting = false;
    }
  }

  async stop() {
    if (this.call?.state !== "running") return;
    try {
      await post(this.connection.path(`/calls/${this.call.id}/cancel`));
    } catch (error) {
      toastError(error);
    }
  }

  /** Shows a call, and its result when it has ended. @param {any} call a summary */
  async show(call) {
    const isNews = this.call?.id !== call.id || this.call.state !== call.state;
    this.call = { ...call, seen: performance.now() };
    this.#showState();
    if (call.state === "running" || !isNews) return;
    try {
      const details = await this.connection.outcome(call.id);
      if (this.call?.id !== call.id) return;
      fill(this.result, resultView(details, { read: this.read }));
      this.result.scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (this.call?.id === call.id) fill(this.result, el("p", { class: "banner is-error" }, error instanceof Error ? error.message : String(error)));
    }
  }

  #showState() {
    const { call } = this;
    clearTimeout(this.timer);
    const isRunning = call?.state === "running";
    this.run.setAttribute("aria-disabled", String(isRunning)); // a disabled button would lose the focus
    this.callBar.classList.toggle("is-running", isRunning);
    this.cancel.hidden = !isRunning;
    this.bar.hidden = !isRunning;
    if (!call) return;
    if (isRunning) {
      if (call.progress !== null && call.total > 0) {
        this.bar.max = call.total;
        this.bar.value = Math.min(call.progress, call.total);
      } else this.bar.removeAttribute("value");
      const seconds = call.seconds + (performance.now() - call.seen) / 1000;
      const progress = call.progress === null ? "" : `${call.progress}${call.total === null ? "" : ` of ${call.total}`}`;
      setText(this.clock, `${seconds.toFixed(1)} s`);
      setText(this.words, [progress, call.message].filter(Boolean).map((each) => ` · ${each}`).join(""));
      this.timer = setTimeout(() => this.#showState(), 100);
    } else {
      const words = { done: call.isError ? "Failed" : "Done", failed: "Failed", cancelled: "Cancelled" };
      const word = words[/** @type {keyof typeof words} */ (call.state)];
      setText(this.clock, "");
      fill(this.words, el("span", { class: `badge ${call.state === "done" && !call.isError ? "is-ok" : call.state === "cancelled" ? "is-warn" : "is-error"}` }, word), ` ${duration(call.seconds)}`);
    }
  }

  async save() {
    const wanted = this.wanted();
    if (wanted === undefined) return;
    const name = el("input", { id: newId("name"), type: "text", value: this.spec.title, maxlength: 200 });
    const body = el("div", { class: "labelled" }, el("label", { for: name.id }, "Name"), name, el("p", { class: "hint" }, "Saved on this machine, in a file that only you can read, with its arguments."));
    const answer = await dialog({
      title: "Save this call",
      body,
      actions: [{ label: "Save", value: "save", kind: "primary" }],
      opened: (close) => {
        name.select();
        name.focus();
        name.addEventListener("keydown", (event) => {
          if (event.key !== "Enter") return;
          event.preventDefault(); // the same key would press the button that gets the focus back
          close("save");
        });
      },
    });
    if (answer !== "save") return;
    try {
      await post("workbench/saved", { title: name.value || this.spec.title, server: this.connection.summary.title, ...wanted });
      toast("Saved.");
    } catch (error) {
      toastError(error);
    }
  }

  async copy() {
    const wanted = this.wanted();
    if (wanted === undefined) return;
    let copies;
    try {
      copies = await post(this.connection.path("/copies"), wanted);
    } catch (error) {
      toastError(error);
      return;
    }
    const titles = { mcplumb: "mcplumb", curl: "curl", python: "Python" };
    const tabs = new Tabs("Copy as");
    tabs.set(
      Object.entries(copies).map(([name, text]) => ({
        name,
        title: titles[/** @type {keyof typeof titles} */ (name)] ?? name,
        render: (panel) => {
          const pre = el("pre", { class: "text mono", tabindex: "0" }, text);
          const copy = async () => {
            try {
              await navigator.clipboard.writeText(text);
              toast("Copied.");
            } catch {
              getSelection()?.selectAllChildren(pre);
              toast("The browser does not allow it: press Ctrl+C.");
            }
          };
          append(panel, pre, el("button", { type: "button", class: "primary", onclick: copy }, "Copy"));
        },
      })),
    );
    dialog({ title: "Copy this call", body: el("div", { class: "copies" }, tabs.element, el("p", { class: "hint" }, "Values that look secret are replaced by … or ***.")) });
  }
}

/** @param {number} seconds */
export function duration(seconds) {
  return seconds < 1 ? `${Math.max(1, Math.round(seconds * 1000))} ms` : seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
