// Connects to a server: a command, an address, or one of the config files.

import { get } from "../api.js";
import { Tabs } from "../components/tabs.js";
import { el, fill, newId, setText } from "../dom.js";
import { keepSetting, setting } from "../settings.js";

/** @param {string} label @param {HTMLElement} control @param {string} [about] */
function labelled(label, control, about) {
  control.id ||= newId("control");
  return el("div", { class: "labelled" }, el("label", { for: control.id }, label), control, about ? el("p", { class: "hint" }, about) : null);
}

/** Reads lines of names and values. @param {string} text @param {string} separator */
function pairs(text, separator) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const at = line.indexOf(separator);
    if (at < 1) throw new Error(`Write each line as NAME${separator}VALUE: “${line.slice(0, at < 0 ? 12 : at)}” has no ${separator}.`);
    found[line.slice(0, at).trim()] = separator === ":" ? line.slice(at + 1).trim() : line.slice(at + 1);
  }
  return found;
}

/**
 * Returns the panel that connects.
 * @param {import("./model.js").Model} model
 * @param {() => (id: number) => void} connecting is called when it begins; what it returns, when there is a connection
 */
export function connectForm(model, connecting) {
  const problem = el("p", { class: "banner is-error", role: "alert", hidden: true });
  const element = el("div", { class: "connect" });

  /** @param {any} choice @param {HTMLButtonElement} button */
  async function connect(choice, button) {
    if (button.getAttribute("aria-disabled") === "true") return;
    problem.hidden = true;
    button.setAttribute("aria-disabled", "true"); // a disabled button would lose the focus
    const connected = connecting();
    try {
      connected((await model.connect(typeof choice === "function" ? choice() : choice)).id);
    } catch (error) {
      problem.hidden = false;
      setText(problem, error instanceof Error ? error.message : String(error));
    } finally {
      button.removeAttribute("aria-disabled");
    }
  }

  /** @param {HTMLElement[]} fields @param {() => any} choice */
  function form(fields, choice) {
    const button = el("button", { type: "submit", class: "primary" }, "Connect");
    const made = el("form", { class: "connect-form" }, ...fields, el("div", null, button));
    made.addEventListener("submit", (event) => {
      event.preventDefault();
      connect(choice, button);
    });
    return made;
  }

  /** @param {HTMLElement} panel */
  function commandPanel(panel) {
    const command = el("input", { type: "text", class: "mono", placeholder: "python weather.py", spellcheck: "false", autocomplete: "off", required: true, value: setting("workbench.command", "") });
    const folder = el("input", { type: "text", class: "mono", spellcheck: "false", placeholder: "the folder of mcplumb view" });
    const env = el("textarea", { class: "mono", rows: 2, spellcheck: "false", placeholder: "NAME=VALUE" });
    panel.append(
      form(
        [
          labelled("Command", command, "It is started as written, without a shell, with your rights. Quote words with spaces."),
          el("details", { class: "more" }, el("summary", null, "Folder and environment"), labelled("Folder", folder), labelled("Variables", env, "One on each line. The server inherits only a short list of harmless ones.")),
        ],
        () => {
          keepSetting("workbench.command", command.value);
          return { kind: "command", command: command.value, folder: folder.value.trim(), env: pairs(env.value, "=") };
        },
      ),
    );
  }

  /** @param {HTMLElement} panel */
  function addressPanel(panel) {
    const address = el("input", { type: "text", class: "mono", placeholder: "https://example.com/mcp", spellcheck: "false", autocomplete: "off", required: true, value: setting("workbench.address", "") });
    const headers = el("textarea", { class: "mono", rows: 2, spellcheck: "false", placeholder: "Authorization: Bearer …" });
    panel.append(
      form(
        [
          labelled("Address", address, "http://…, https://…, tcp://host:port, or unix:/path. If the server wants it, you are asked to sign in."),
          el("details", { class: "more" }, el("summary", null, "Headers"), labelled("Headers", headers, "One on each line. They are not kept.")),
        ],
        () => {
          keepSetting("workbench.address", address.value.split("?")[0]);
          return { kind: "address", address: address.value, headers: pairs(headers.value, ":") };
        },
      ),
    );
  }

  /** @param {HTMLElement} panel */
  async function configuredPanel(panel) {
    fill(panel, el("p", { class: "hint" }, "Reading the config files…"));
    let found;
    try {
      found = await get("workbench/configured");
    } catch (error) {
      fill(panel, el("p", { class: "banner is-error" }, error instanceof Error ? error.message : String(error)));
      return;
    }
    fill(
      panel,
      found.servers.length
        ? el("ul", { class: "configured" }, ...found.servers.map((/** @type {any} */ server) => configured(server)))
        : el("p", { class: "hint" }, "No server is configured. Add one in a terminal: mcplumb add NAME -- COMMAND"),
      ...found.faults.map((/** @type {string} */ fault) => el("p", { class: "banner is-warn" }, fault)),
      el("button", { type: "button", onclick: () => configuredPanel(panel) }, "Read the files again"),
    );
  }

  /** @param {any} server */
  function configured(server) {
    const button = el("button", { type: "button", class: server.consent ? "danger" : "primary", disabled: Boolean(server.fault) }, server.consent ? "Allow and connect" : "Connect");
    button.setAttribute("aria-label", `${button.textContent} ${server.name}`);
    /** @type {[string, HTMLInputElement | HTMLSelectElement][]} */
    const inputs = (server.inputs ?? []).map((/** @type {any} */ input) => [
      input.id,
      input.options.length
        ? el("select", null, ...input.options.map((/** @type {string} */ option) => el("option", { value: option }, option)))
        : el("input", { type: "text", class: input.isSecret ? "secret" : null, autocomplete: "off", spellcheck: "false", value: input.default ?? "" }),
    ]);
    (server.inputs ?? []).forEach((/** @type {any} */ input, /** @type {number} */ at) => {
      if (input.options.length && input.default) inputs[at][1].value = input.default;
    });
    button.addEventListener("click", () =>
      connect({ kind: "configured", name: server.name, answers: Object.fromEntries(inputs.map(([id, control]) => [id, control.value])), consent: server.consent?.digest ?? "" }, button),
    );
    return el(
      "li",
      null,
      el("div", { class: "configured-head" }, el("strong", null, server.name), el("span", { class: "badge" }, server.program), el("span", { class: "spacer" }), button),
      el("code", { class: "summary" }, server.summary),
      el("p", { class: "hint" }, server.source),
      server.fault && el("p", { class: "problem" }, server.fault),
      server.consent &&
        el(
          "div",
          { class: "banner is-warn" },
          el("p", null, "A file of this project names this server: it may come from anyone. Connecting would use:"),
          el("pre", { class: "text mono" }, server.consent.actions.join("\n")),
          el("p", null, "If you allow it, you are not asked again until it changes."),
        ),
      ...inputs.map(([id, control], at) => labelled(server.inputs[at].description || id, control)),
    );
  }

  const tabs = new Tabs("Ways to connect");
  tabs.set([
    { name: "command", title: "Command", render: commandPanel },
    { name: "address", title: "Address", render: addressPanel },
    { name: "configured", title: "Configured", render: configuredPanel },
  ]);
  const started = el("code");
  const startButton = el("button", { type: "button", onclick: () => connect({ kind: "start" }, startButton) }, "Connect to it again");
  const again = el("div", { class: "start-again", hidden: true }, el("span", null, "Started with ", started), startButton);
  model.on("connections", () => {
    again.hidden = !model.start;
    setText(started, model.start ?? "");
  });
  element.append(
    el("div", { class: "connect-head" }, el("h2", null, "Try a server"), el("p", null, "Connect to it, and use its tools, resources and prompts by hand.")),
    again,
    tabs.element,
    problem,
  );
  return element;
}
