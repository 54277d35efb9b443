// What the view of a call needs to know of a tool, a resource, a template, a prompt, or a request of one's own.

import { post } from "../api.js";
import { toastError } from "../components/toast.js";
import { el, shortened } from "../dom.js";

/** @typedef {import("./model.js").Connection} Connection */
/** @typedef {import("./call_view.js").Spec} Spec */

/**
 * Returns an item as the server has listed it; null if there is no such item.
 * @param {Connection} connection
 * @param {string} kind
 * @param {string} key
 */
export function itemOf(connection, kind, key) {
  const items = (/** @type {string} */ what) => connection.lists[what]?.items ?? [];
  switch (kind) {
    case "tool":
      return items("tools").find(({ name }) => name === key) ?? null;
    case "resource":
      // One that a result links to need not be in the list.
      return items("resources").find(({ uri }) => uri === key) ?? { uri: key, name: key };
    case "template":
      return items("templates").find(({ uriTemplate }) => uriTemplate === key) ?? null;
    case "prompt":
      return items("prompts").find(({ name }) => name === key) ?? null;
    case "request":
      return {};
  }
  return null;
}

/**
 * Returns what the view of an item needs to know.
 * @param {Connection} connection
 * @param {string} kind
 * @param {any} item
 * @returns {Spec}
 */
export function specOf(connection, kind, item) {
  switch (kind) {
    case "tool":
      return toolSpec(item);
    case "resource":
      return resourceSpec(connection, item);
    case "template":
      return templateSpec(connection, item);
    case "prompt":
      return promptSpec(connection, item);
    default:
      return requestSpec();
  }
}

/**
 * @param {string} kind
 * @param {any} item
 * @param {string} name
 * @param {(string | null | undefined | false)[]} badges
 */
function head(kind, item, name, badges) {
  const title = item.title ?? item.annotations?.title ?? item.name ?? name;
  return el(
    "header",
    { class: "item-head" },
    el("p", { class: "item-kind" }, kind),
    el("h2", { tabindex: "-1" }, shortened(title, 300), title === name ? null : el("code", null, shortened(name, 300))),
    badges.some(Boolean) && el("p", { class: "badges" }, ...badges.filter(Boolean).map((badge) => el("span", { class: badge === "destructive" ? "badge is-warn" : "badge" }, shortened(badge, 80)))),
    item.description ? el("p", { class: "description" }, shortened(item.description, 10_000)) : null,
  );
}

/** @param {any} tool @returns {Spec} */
function toolSpec(tool) {
  const hints = tool.annotations ?? {};
  const badges = [hints.readOnlyHint && "read-only", hints.destructiveHint && !hints.readOnlyHint && "destructive", hints.idempotentHint && "idempotent", hints.openWorldHint && "open world", tool.outputSchema && "structured output"];
  return {
    title: tool.name,
    verb: "Call",
    head: head("Tool", tool, tool.name, badges),
    schema: tool.inputSchema,
    toCall: (values) => ({ method: "tools/call", params: { name: tool.name, arguments: values } }),
    fromCall: ({ params }) => params.arguments ?? {},
  };
}

const NOTHING = { type: "object", properties: {}, additionalProperties: false };

/** @param {Connection} connection @param {any} resource @returns {Spec} */
function resourceSpec(connection, resource) {
  const { uri } = resource;
  const isSubscribed = () => connection.details?.subscriptions?.includes(uri);
  const subscribe = el("button", { type: "button", class: "quiet subscribe", "aria-pressed": String(Boolean(isSubscribed())) }, isSubscribed() ? "Subscribed" : "Subscribe");
  subscribe.addEventListener("click", async () => {
    try {
      await post(connection.path(isSubscribed() ? "/unsubscribe" : "/subscribe"), { uri });
    } catch (error) {
      toastError(error);
    }
  });
  connection.model.on("details", (changed) => {
    if (changed !== connection) return;
    subscribe.setAttribute("aria-pressed", String(Boolean(isSubscribed())));
    subscribe.textContent = isSubscribed() ? "Subscribed" : "Subscribe";
  });
  return {
    title: uri,
    verb: "Read",
    head: head("Resource", resource, uri, [resource.mimeType, typeof resource.size === "number" && `${resource.size.toLocaleString("en")} bytes`]),
    schema: NOTHING,
    toCall: () => ({ method: "resources/read", params: { uri } }),
    fromCall: () => ({}),
    tools: connection.details?.capabilities?.resources?.subscribe || connection.details?.era === "modern" ? [subscribe] : [],
  };
}

/** @param {Connection} connection @param {any} template @returns {Spec} */
function templateSpec(connection, template) {
  const { uriTemplate } = template;
  /** @type {string[] | null} */
  const variables = template.variables;
  const schema = variables
    ? { type: "object", properties: Object.fromEntries(variables.map((name) => [name, { type: "string" }])), additionalProperties: false }
    : { type: "object", properties: { uri: { type: "string", title: "Address", description: "mcplumb cannot fill in this template: write the address." } }, required: ["uri"] };
  return {
    title: uriTemplate,
    verb: "Read",
    head: head("Template", template, uriTemplate, [template.mimeType]),
    schema,
    toCall: (values) => ({ method: "resources/read", params: variables ? { uriTemplate, values } : { uri: values.uri } }),
    fromCall: ({ params }) => (variables ? (params.values ?? {}) : params),
    complete: completer(connection, "template", uriTemplate),
  };
}

/** @param {Connection} connection @param {any} prompt @returns {Spec} */
function promptSpec(connection, prompt) {
  /** @type {any[]} */
  const named = prompt.arguments ?? [];
  const schema = {
    type: "object",
    properties: Object.fromEntries(named.map(({ name, title, description }) => [name, { type: "string", title, description }])),
    required: named.filter(({ required }) => required).map(({ name }) => name),
    additionalProperties: false,
  };
  return {
    title: prompt.name,
    verb: "Get",
    head: head("Prompt", prompt, prompt.name, []),
    schema,
    toCall: (values) => ({ method: "prompts/get", params: { name: prompt.name, arguments: values } }),
    fromCall: ({ params }) => params.arguments ?? {},
    complete: completer(connection, "prompt", prompt.name),
  };
}

/** @returns {Spec} */
function requestSpec() {
  return {
    title: "request",
    verb: "Send",
    head: head("Request", { title: "Any request", description: "Sends a method of the protocol, or of an extension, with the params that you write. Questions that its answer asks are shown, and not asked." }, "Any request", []),
    schema: {
      type: "object",
      properties: { method: { type: "string", minLength: 1, maxLength: 60, default: "ping" }, params: { type: "object", additionalProperties: true } },
      required: ["method"],
      additionalProperties: false,
    },
    toCall: ({ method, params }) => ({ method: String(method), params: /** @type {any} */ (params ?? {}) }),
    fromCall: ({ method, params }) => ({ method, params }),
  };
}

/** @param {Connection} connection @param {string} kind @param {string} of */
function completer(connection, kind, of) {
  return async (/** @type {string} */ argument, /** @type {string} */ value, /** @type {Record<string, unknown>} */ typed) => {
    const others = Object.fromEntries(Object.entries(typed).filter(([name, each]) => name !== argument && typeof each === "string" && each));
    return (await post(connection.path("/complete"), { kind, of, argument, value, others })).values;
  };
}
