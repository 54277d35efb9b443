// The section Workbench: use a server by hand. Addresses are #/workbench/CONNECTION/KIND/KEY.

import { toastError } from "../components/toast.js";
import { el, fill, keyed, printable, setText, withoutFolder } from "../dom.js";
import { addShortcuts, describeKeys } from "../keys.js";
import { CallView } from "./call_view.js";
import { connectForm } from "./connect_form.js";
import { ItemList } from "./item_list.js";
import { itemOf, specOf } from "./item_views.js";
import { Model } from "./model.js";
import { Panels } from "./panels.js";
import { QuestionDialogs } from "./questions.js";

/** Views that are kept, with what was typed into them. */
const MAX_VIEWS = 60;

/** @type {import("../main.js").Mount} */
export function mount(root, frame) {
  const model = new Model(frame.events);
  const dialogs = new QuestionDialogs(model);
  /** @type {string[]} */
  let path = [];
  /** The connections that were shown. @type {Set<number>} */
  const seen = new Set();
  /** By connection, kind and key, with the item that each was made for. @type {Map<string, CallView & {item: string}>} */
  const views = new Map();
  /** @type {CallView | null} */
  let view = null;

  const go = (/** @type {(string | number)[]} */ ...parts) => frame.go(["workbench", ...parts.map(String)]);
  const open = (/** @type {string} */ kind, /** @type {string} */ key) => go(model.current, kind, key);
  const items = new ItemList(open);
  const panels = new Panels(model, openCall);
  const chips = el("span", { class: "connection-chips" });
  const newButton = el("button", { type: "button", class: "quiet", title: "Connect to another server (n)", onclick: () => go("new") }, "+ Connect");
  const bar = el("div", { class: "connections", role: "group", "aria-label": "Connections" }, chips, newButton);
  const work = el("div", { class: "work" });
  const body = el("div", { class: "bench" }, items.element, work, panels.element);
  const connect = connectForm(model, goLater);
  root.append(bar, dialogs.bar, body, connect);

  /** Returns what goes to a new connection, unless the user has opened another one, or has left this one, by then. */
  function goLater() {
    const from = current();
    return (/** @type {number} */ id) => {
      const now = current();
      if (!seen.has(id) && (!now || now === from)) go(id);
    };
  }

  const current = () => model.connections.get(model.current) ?? null;

  function showBar() {
    keyed(chips, model.connections.values(), ({ id }) => id, makeChip, updateChip);
    setCurrent(newButton, !current());
    bar.hidden = !model.connections.size;
  }

  /** @param {Element} element @param {boolean} isCurrent */
  function setCurrent(element, isCurrent) {
    if (isCurrent) element.setAttribute("aria-current", "true");
    else element.removeAttribute("aria-current");
  }

  /** @param {import("./model.js").Connection} connection */
  function makeChip(connection) {
    const name = el("span", { class: "connection-label" });
    const state = el("span", { class: "sr" });
    const open = el("button", { type: "button", class: "connection-name", onclick: () => go(connection.id) }, el("span", { class: "dot", "aria-hidden": "true" }), name, state);
    const close = el("button", { type: "button", class: "quiet close", title: "Disconnect", onclick: () => disconnect(connection) }, "✕");
    return Object.assign(el("span", null, open, close), { parts: { open, close, name, state } });
  }

  /** @param {ReturnType<typeof makeChip>} chip @param {import("./model.js").Connection} connection */
  function updateChip(chip, { id, summary }) {
    const { open, close, name, state } = chip.parts;
    const whole = withoutFolder(String(summary.name ?? summary.title));
    const label = whole.length > 60 ? `${whole.slice(0, 60)}…` : whole;
    chip.className = `connection is-${summary.state}`;
    open.title = printable(String(summary.title));
    setCurrent(open, id === model.current);
    setText(name, label);
    setText(state, `, ${summary.state}`);
    close.setAttribute("aria-label", printable(`Disconnect ${label}`));
  }

  /** @param {import("./model.js").Connection} connection */
  async function disconnect(connection) {
    try {
      await model.disconnect(connection);
    } catch (error) {
      toastError(error);
    }
    for (const key of views.keys()) if (key.startsWith(`${connection.id}/`)) views.delete(key);
    if (connection.id === model.current) go([...model.connections.keys()].at(-1) ?? "new");
  }

  function render() {
    const connection = current();
    showBar();
    body.hidden = !connection;
    connect.hidden = Boolean(connection) || !model.isLoaded;
    if (!connection) {
      view = null;
      return;
    }
    const [, kind = "", key = ""] = path;
    items.show(connection, kind ? `${kind}/${key}` : "");
    panels.show(connection);
    renderWork(connection, kind, key);
  }

  /** @param {import("./model.js").Connection} connection @param {string} kind @param {string} key */
  function renderWork(connection, kind, key) {
    const isOpen = connection.summary.state === "open";
    items.element.hidden = !isOpen;
    if (!isOpen) {
      view = null;
      keyed(work, [connection], ({ id }) => id, makeClosed, updateClosed);
      return;
    }
    const name = `${connection.id}/${kind}/${key}`;
    let found = kind ? views.get(name) : undefined;
    const item = kind ? itemOf(connection, kind, key) : null;
    // The server may have another idea of it by now.
    if (item && (!found || found.item !== JSON.stringify(item))) {
      const before = found;
      found = Object.assign(new CallView(connection, specOf(connection, kind, item), (uri) => open("resource", uri)), { item: JSON.stringify(item) });
      if (before) found.takeOver(before);
      views.set(name, found);
      const oldest = [...views.keys()].find((each) => each !== name && views.get(each)?.call?.state !== "running");
      if (views.size > MAX_VIEWS && oldest) views.delete(oldest);
    }
    if (found && found === view && work.firstElementChild === found.element) return;
    view = found ?? null;
    if (view) fill(work, view.element);
    else fill(work, welcome(connection, Boolean(kind)));
    work.scrollTop = 0;
  }

  /** What is shown of a server that is not connected. @param {import("./model.js").Connection} connection */
  function makeClosed(connection) {
    const again = async () => {
      const goThere = goLater();
      try {
        goThere(await model.reconnect(connection));
      } catch (problem) {
        toastError(problem);
      }
    };
    const parts = {
      progress: el("progress", { "aria-label": "Connecting" }),
      title: el("h2"),
      error: el("pre", { class: "banner is-error" }),
      again: el("button", { type: "button", class: "primary", onclick: again }, "Connect again"),
      close: el("button", { type: "button", onclick: () => disconnect(connection) }),
    };
    const { progress, title, error, close } = parts;
    return Object.assign(el("div", { class: "empty", role: "status" }, progress, title, error, el("div", { class: "row" }, parts.again, close)), { parts });
  }

  /** @param {ReturnType<typeof makeClosed>} shown @param {import("./model.js").Connection} connection */
  function updateClosed({ parts }, { summary: { state, error, title } }) {
    const isConnecting = state === "connecting";
    parts.progress.hidden = !isConnecting;
    parts.again.hidden = isConnecting;
    setText(parts.title, isConnecting ? `Connecting to ${title}` : state === "failed" ? `Not connected to ${title}` : `Disconnected from ${title}`);
    parts.error.hidden = !error;
    setText(parts.error, error?.sentence ?? "");
    setText(parts.close, isConnecting ? "Cancel" : "Close");
  }

  /** @param {import("./model.js").Connection} connection @param {boolean} isMissing */
  function welcome(connection, isMissing) {
    const { details, lists } = connection;
    const isLoading = !details || (isMissing && !Object.keys(lists).length);
    const counts = Object.entries(lists).map(([what, list]) => amount(list?.items.length ?? 0, what));
    return el(
      "div",
      { class: "empty" },
      el("h2", null, isLoading ? "Asking what the server offers…" : isMissing ? "The server does not offer this any more" : String(details?.server?.title ?? details?.server?.name ?? connection.summary.title)),
      isLoading ? null : el("p", null, counts.length ? `It offers ${counts.join(", ")}. Choose one from the list.` : "It offers neither tools, resources nor prompts."),
      details?.instructions && !isMissing ? el("pre", null, String(details.instructions).slice(0, 4000)) : null,
    );
  }

  /** Shows a call of the history, or a saved one. @param {any} call @param {any} [summary] */
  function openCall(call, summary) {
    const connection = current();
    if (!connection) return;
    const { method, params } = call;
    const kinds = { "tools/call": "tool", "prompts/get": "prompt", "resources/read": params.uriTemplate ? "template" : "resource" };
    const kind = kinds[/** @type {keyof typeof kinds} */ (method)] ?? "request";
    const key = kind === "request" ? "" : String(params.uriTemplate ?? params.uri ?? params.name);
    path = [String(connection.id), kind, key];
    open(kind, key);
    render();
    if (!view) return;
    view.setCall(call);
    if (summary) {
      view.call = null;
      fill(view.result);
      view.show(summary);
    }
  }

  model.on("connections", () => {
    // The page begins with the server that the command line names.
    if (!path.length && model.connections.size && frame.current() === "workbench") go([...model.connections.keys()].at(-1) ?? "new");
    render();
  });
  model.on("details", (connection, more) => {
    if (connection !== current()) return;
    if (more?.resource && view?.element.isConnected && view.spec.title === more.resource) view.start();
    render();
  });
  model.on("lists", (connection) => connection === current() && render());
  model.on("call", (connection, call) => {
    for (const each of views.values()) if (each.connection === connection && each.call?.id === call.id) each.show(call);
  });

  const isHere = () => frame.current() === "workbench";
  const group = "Workbench";
  addShortcuts(
    { keys: ["/"], what: "Filter the tools, resources and prompts", group, when: isHere, run: () => (items.filter.focus(), items.filter.select()) },
    { keys: ["n"], what: "Connect to another server", group, when: isHere, run: () => go("new") },
    { keys: ["Ctrl+Enter"], what: "Call, or send an answer", group, when: () => isHere() && view !== null, run: () => view?.start() },
    { keys: ["Ctrl+."], what: "Cancel the call", group, when: () => isHere() && view !== null, run: () => view?.stop() },
    { keys: ["l"], what: "Log", group, when: isHere, run: () => panels.tabs.select("log") },
    { keys: ["h"], what: "History of calls", group, when: isHere, run: () => panels.tabs.select("history") },
    { keys: ["s"], what: "Saved calls", group, when: isHere, run: () => panels.tabs.select("saved") },
    { keys: ["i"], what: "About the server; roots", group, when: isHere, run: () => panels.tabs.select("server") },
  );
  describeKeys({ keys: ["ArrowUp", "ArrowDown"], what: "Move in the list, and in suggestions", group }, { keys: ["Enter"], what: "Open, or take a suggestion", group });

  return {
    show(given) {
      const before = model.current;
      path = given;
      model.current = Number(given[0]) || 0;
      seen.add(model.current);
      if (!model.isLoaded) model.reload();
      else if (model.current !== before) {
        const connection = current();
        if (connection) model.refresh(connection);
      }
      if (model.isLoaded && !given.length && model.connections.size) go([...model.connections.keys()].at(-1) ?? "new");
      else render();
      if (given[1]) root.querySelector(".work h2")?.scrollIntoView({ block: "nearest" });
    },
  };
}

/** @param {number} number @param {string} what a plural */
function amount(number, what) {
  return `${number.toLocaleString("en")} ${number === 1 ? what.replace(/s$/, "") : what}`;
}
