// Shows what a call has brought: texts, pictures, sounds, links, data, and errors in words. Everything here was said by
// a server: text stays text, and media are only data of types that cannot run.

import { jsonTree } from "../components/json_tree.js";
import { toast } from "../components/toast.js";
import { append, el, fill, shortened } from "../dom.js";
import { parseJson } from "../exact_json.js";
import { addressBox, openAddress } from "./web_address.js";

/** Characters of a text that are shown before a button offers the others. */
const SHOWN_TEXT = 20_000;
const MEDIA = /^(image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml|x-icon)|audio\/[a-z0-9][a-z0-9.+-]*)$/;
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

/**
 * Returns what a call has brought.
 * @param {any} call with `outcome`
 * @param {{read?: (uri: string) => void}} [actions]
 */
export function resultView(call, { read } = {}) {
  const { outcome } = call;
  if (!outcome) return el("p", { class: "hint" }, "The result is not kept any more: call again to see it.");
  if (outcome.error) return errorView(outcome.error);
  const { result, warning } = outcome;
  const shown = el("div", { class: "result" });
  if (result?.isError) shown.append(el("p", { class: "banner is-error", role: "alert" }, "The tool says that it failed."));
  if (warning) shown.append(el("p", { class: "banner is-warn" }, warning));
  if (Array.isArray(result?.content)) {
    if (!result.content.length && result.structuredContent === undefined) shown.append(el("p", { class: "hint" }, "The result is empty."));
    for (const block of result.content) shown.append(blockView(block, read));
  }
  if (Array.isArray(result?.contents)) {
    for (const each of result.contents) shown.append(contentsView(each));
  }
  if (Array.isArray(result?.messages)) {
    if (result.description) shown.append(el("p", { class: "about" }, result.description));
    for (const { role, content } of result.messages) {
      shown.append(el("div", { class: `message is-${role === "assistant" ? "assistant" : "user"}` }, el("h4", null, String(role)), blockView(content, read)));
    }
  }
  if (result && "structuredContent" in result) {
    shown.append(el("section", { class: "block" }, el("h4", null, "Structured content"), jsonTree(result.structuredContent, { label: "Structured content" })));
  }
  const isKnown = result && ["content", "contents", "messages"].some((name) => Array.isArray(result[name]));
  if (!isKnown) shown.append(jsonTree(result, { label: "Result" }));
  else shown.append(el("details", { class: "raw" }, el("summary", null, "The whole result as JSON"), lazy(() => jsonTree(result, { label: "Result", open: 2 }))));
  return shown;
}

/** Makes its content when the `<details>` around it is opened. @param {() => Node} make */
function lazy(make) {
  const place = el("div");
  queueMicrotask(() => place.parentElement?.addEventListener("toggle", () => place.childElementCount || fill(place, make())));
  return place;
}

/** @param {any} error */
function errorView(error) {
  const isCancelled = error.kind === "Cancelled";
  // Below the sentence may be what the server wrote to its stderr.
  const [sentence, ...more] = shortened(error.sentence, SHOWN_TEXT).split("\n");
  const words = more.length ? el("pre", { class: "text", tabindex: "0", "aria-label": "More of the error" }, more.join("\n")) : null;
  if (words) requestAnimationFrame(() => (words.scrollTop = words.scrollHeight)); // the last words tell the most
  const shown = el(
    "div",
    { class: `result banner ${isCancelled ? "is-warn" : "is-error"}`, role: "alert" },
    el("p", { class: "sentence" }, sentence),
    words,
    error.code !== undefined && el("p", { class: "hint" }, `JSON-RPC error ${error.code}`),
    error.status !== undefined && el("p", { class: "hint" }, `HTTP status ${error.status}`),
  );
  const pages = error.code === -32042 && Array.isArray(error.data?.elicitations) ? error.data.elicitations.slice(0, 10) : [];
  for (const page of pages) {
    if (typeof page?.url !== "string") continue;
    append(shown, el("p", null, shortened(page.message ?? "", 4000)), addressBox(page.url), el("button", { type: "button", onclick: () => openAddress(page.url) }, "Open this page"));
  }
  if (error.data !== undefined && error.data !== null) shown.append(jsonTree(error.data, { label: "Data of the error" }));
  return shown;
}

/**
 * @param {any} block
 * @param {((uri: string) => void) | undefined} read
 * @returns {HTMLElement}
 */
export function blockView(block, read) {
  switch (block?.type) {
    case "text":
      return textView(String(block.text));
    case "image":
    case "audio":
      return mediaView(block.data, String(block.mimeType), block.type);
    case "resource_link":
      return el(
        "section",
        { class: "block link-block" },
        el("span", { class: "link-mark", "aria-hidden": "true" }, "→"),
        el("div", null, el("strong", null, shortened(block.title ?? block.name ?? "", 300)), " ", el("code", null, shortened(block.uri, 2000)), block.description ? el("p", { class: "about" }, shortened(block.description, 4000)) : null),
        read && el("button", { type: "button", onclick: () => read(String(block.uri)) }, "Read"),
      );
    case "resource":
      return contentsView(block.resource ?? {});
    case "mcplumb/unknown":
      return el("section", { class: "block" }, el("h4", null, `A block of the type ${shortened(block.kind, 80)}`), jsonTree(block.data, { label: "Block" }));
    default:
      return el("section", { class: "block" }, jsonTree(block, { label: "Block" }));
  }
}

/** @param {string} text */
function textView(text) {
  const pre = el("pre", { class: "text", tabindex: text.length > 2000 ? "0" : null });
  const all = () => {
    fill(pre, text);
    more.remove();
    pre.focus(); // the button that had the focus is no more
  };
  const more = el("button", { type: "button", onclick: all }, `Show all ${text.length.toLocaleString("en")} characters`);
  const shown = el("section", { class: "block" }, pre);
  if (text.length > SHOWN_TEXT) {
    append(pre, text.slice(0, SHOWN_TEXT));
    shown.append(more);
  } else {
    append(pre, text || " ");
  }
  if (/^\s*[[{]/.test(text) && text.length < 5_000_000) {
    try {
      const value = parseJson(text);
      shown.append(el("details", { class: "raw" }, el("summary", null, "As JSON"), lazy(() => jsonTree(value, { label: "Text as JSON" }))));
    } catch {
      // not JSON, which is fine for a text
    }
  }
  return shown;
}

/** @param {unknown} data @param {string} given @param {string} kind */
function mediaView(data, given, kind) {
  const type = given.toLowerCase();
  const text = typeof data === "string" ? data.replace(/\s/g, "") : "";
  if (!MEDIA.test(type) || !type.startsWith(`${kind}/`) || !BASE64.test(text)) {
    return el("section", { class: "block" }, el("p", { class: "hint" }, `Not shown: ${kind} of the type ${given.slice(0, 80)}.`), saveButton(text, "data.bin"));
  }
  const src = `data:${type};base64,${text}`;
  const media =
    kind === "image"
      ? el("img", { src, alt: `Picture of the type ${type}`, class: "picture" })
      : el("audio", { src, controls: true, class: "sound" });
  const size = Math.floor((text.length * 3) / 4);
  const about = el("span", { class: "hint" }, `${type}, ${size.toLocaleString("en")} bytes`);
  media.addEventListener("error", () => media.replaceWith(el("p", { class: "problem" }, `This is no ${kind === "image" ? "picture" : "sound"} that the browser can show.`)));
  if (media instanceof HTMLImageElement) {
    media.addEventListener("load", () => append(about, `, ${media.naturalWidth} × ${media.naturalHeight}`));
  }
  return el("section", { class: "block" }, media, el("div", { class: "media-foot" }, about, saveButton(text, `${kind}.${type.replace(/^.*\//, "").replace(/[^a-z0-9]/g, "").slice(0, 8)}`)));
}

/** @param {any} contents */
function contentsView(contents) {
  const type = String(contents.mimeType ?? "");
  const head = el("h4", null, el("code", null, shortened(contents.uri ?? "", 2000)), type ? el("span", { class: "badge" }, shortened(type, 80)) : null);
  if (typeof contents.text === "string") {
    const shown = textView(contents.text);
    shown.prepend(head);
    return shown;
  }
  const kind = type.split("/")[0];
  if (kind === "image" || kind === "audio") {
    const shown = mediaView(contents.blob, type, kind);
    shown.prepend(head);
    return shown;
  }
  const blob = typeof contents.blob === "string" ? contents.blob : "";
  return el("section", { class: "block" }, head, el("div", { class: "media-foot" }, el("span", { class: "hint" }, `${Math.floor((blob.length * 3) / 4).toLocaleString("en")} bytes`), saveButton(blob, "resource.bin")));
}

/** @param {string} base64 @param {string} name */
function saveButton(base64, name) {
  const save = () => {
    try {
      const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
      // Of a type that no browser runs or shows.
      const url = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
      const link = document.createElement("a");
      link.href = url;
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    } catch {
      toast("The data is not valid base64.", "error");
    }
  };
  return el("button", { type: "button", class: "quiet", onclick: save }, "Save as a file");
}
