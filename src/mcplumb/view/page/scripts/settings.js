// What the user has chosen, kept by mcplumb: for the browser, each start of the page is another site.

import { ask, get } from "./api.js";

/** @type {Record<string, unknown>} */
let settings = {};
/** What has changed and is not kept yet. @type {Record<string, unknown>} */
let changes = {};
let timer = 0;

/** Milliseconds without a change before it is kept: a splitter that is moved changes with each step. */
const PAUSE = 300;

/** Asks for the settings, before anything is shown. Without them, everything is as at first. */
export async function loadSettings() {
  try {
    settings = (await get("settings")).settings;
  } catch {
    // What does not work is said by the parts of the page that cannot do without it.
  }
}

/**
 * Returns a setting, or the default.
 * @template T
 * @param {string} name
 * @param {T} otherwise
 * @returns {T}
 */
export function setting(name, otherwise) {
  const value = Object.hasOwn(settings, name) ? settings[name] : undefined;
  return typeof value === typeof otherwise ? /** @type {T} */ (value) : otherwise;
}

/** @param {string} name @param {unknown} value */
export function keepSetting(name, value) {
  settings[name] = value;
  changes[name] = value;
  clearTimeout(timer);
  timer = setTimeout(keep, PAUSE);
}

function keep() {
  clearTimeout(timer);
  if (!Object.keys(changes).length) return;
  // A setting that cannot be kept lasts as long as the page.
  ask("POST", "settings", changes, { keepalive: true }).catch(() => {});
  changes = {};
}

addEventListener("pagehide", keep);
