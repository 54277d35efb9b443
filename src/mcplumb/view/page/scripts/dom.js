// Builds elements. Every text of a server goes through here: it becomes a text node, never markup, and characters
// that would change how it reads (control, bidirectional, invisible) are shown as escapes.

// Controls but tab and newline; the soft hyphen; zero-width, bidirectional and other invisible format characters;
// the tags of plane 14; lone surrogates.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Returns a text in which all characters can be seen.
 * @param {string} text
 */
export function printable(text) {
  return text.replace(HIDDEN, (found) => {
    const code = found.codePointAt(0) ?? 0;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
  });
}

/**
 * Returns the beginning of a text. Browsers take seconds to lay out a word of 100,000 characters.
 * @param {unknown} text
 * @param {number} most
 */
export function shortened(text, most) {
  const whole = String(text);
  return whole.length <= most ? whole : `${whole.slice(0, most)}… (${whole.length.toLocaleString("en")} characters)`;
}

/**
 * Returns a command without the folder of its program, which matters least and comes first.
 * @param {string} text
 */
export function withoutFolder(text) {
  return text.replace(/^\/\S*\/(?=[^\s/])/, "");
}

/**
 * Returns a new element. Attributes that are false or null are left out; functions under `on…` become listeners.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown> | null} [attributes]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) {
      if (typeof value !== "function") throw new TypeError(`${name} must be a function`);
      made.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (name === "value" && "value" in made) {
      /** @type {HTMLInputElement} */ (made).value = String(value);
    } else {
      if (name === "href" && !String(value).startsWith("#")) throw new TypeError("Links stay within the page");
      if (name === "src" && !/^(data:(image|audio)\/|blob:)/.test(String(value))) throw new TypeError("Only own media");
      made.setAttribute(name, value === true ? "" : printable(String(value)));
    }
  }
  append(made, ...children);
  return made;
}

/**
 * @param {Node} parent
 * @param {...Child} children
 */
export function append(parent, ...children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(printable(String(child))));
  }
}

/**
 * Replaces everything in an element.
 * @param {Element} parent
 * @param {...Child} children
 */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, ...children);
}

/** The elements that `keyed` has made for a parent, by the keys of their items. @type {WeakMap<Element, Map<string, Element>>} */
const keyedElements = new WeakMap();

/**
 * Shows one element for each item in a parent, in this order. The element of an item stays the same for as long as the
 * item is there, so that a click, the focus or an opened part never meets one that an update has just replaced.
 * @template I
 * @template {Element} E
 * @param {Element} parent
 * @param {Iterable<I>} items
 * @param {(item: I) => string | number} keyOf
 * @param {(item: I) => E} make
 * @param {(element: E, item: I) => void} [update] called for new elements, too
 */
export function keyed(parent, items, keyOf, make, update = () => {}) {
  const before = keyedElements.get(parent) ?? new Map();
  /** @type {Map<string, E>} */
  const now = new Map();
  for (const item of items) {
    let key = String(keyOf(item));
    while (now.has(key)) key += "+"; // a server may list two things with the same name
    const known = /** @type {E | undefined} */ (before.get(key));
    const element = known?.parentNode === parent ? known : make(item);
    now.set(key, element);
    update(element, item);
  }
  const wanted = new Set(/** @type {Iterable<Node>} */ (now.values()));
  for (const child of [...parent.childNodes]) if (!wanted.has(child)) child.remove();
  // An element that is moved loses the focus: only those that are not in their place are.
  let place = parent.firstChild;
  for (const element of now.values()) {
    if (element === place) place = place.nextSibling;
    else parent.insertBefore(element, place);
  }
  keyedElements.set(parent, now);
}

/**
 * Sets the text of an element, if it is another one.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  const shown = printable(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/**
 * Returns the element of the page with this id.
 * @param {string} id
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no element #${id}`);
  return found;
}

let lastId = 0;

/**
 * Returns an id that no other element has.
 * @param {string} [prefix]
 */
export function newId(prefix = "id") {
  return `${prefix}-${++lastId}`;
}
