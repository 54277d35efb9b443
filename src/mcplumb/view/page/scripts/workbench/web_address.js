// Addresses that a server names: shown whole, and opened only if they are http or https, in a tab that knows nothing of
// this page.

import { toast } from "../components/toast.js";
import { el } from "../dom.js";

/**
 * Returns an address that a browser may be sent to; null for any other.
 * @param {string} text
 */
export function webAddress(text) {
  try {
    const url = new URL(text);
    return (url.protocol === "https:" || url.protocol === "http:") && url.hostname ? url : null;
  } catch {
    return null;
  }
}

/** Shows a whole address, and the host that it leads to. @param {string} text */
export function addressBox(text) {
  const url = webAddress(text);
  return el(
    "div",
    { class: "address-box" },
    el("p", null, "The address:"),
    el("pre", { class: "text mono", tabindex: "0" }, text),
    url
      ? el("p", null, "It leads to ", el("strong", { class: "mono" }, url.host), url.protocol === "http:" ? ", without encryption." : ".")
      : el("p", { class: "problem" }, "Only http and https addresses can be opened: this one is not."),
  );
}

/** Opens an address in a tab that knows nothing of this page. @param {string} text */
export function openAddress(text) {
  const url = webAddress(text);
  if (url) window.open(url.href, "_blank", "noopener,noreferrer");
  else toast("Only http and https addresses can be opened.", "error");
}
