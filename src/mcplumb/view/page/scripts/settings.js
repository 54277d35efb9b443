// What the user has chosen, kept by the browser for this address.

/**
 * Returns a setting, or the default.
 * @template T
 * @param {string} name
 * @param {T} otherwise
 * @returns {T}
 */
export function setting(name, otherwise) {
  try {
    const text = localStorage.getItem(`mcplumb.${name}`);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise; // private windows may have no storage
  }
}

/** @param {string} name @param {unknown} value */
export function keepSetting(name, value) {
  try {
    localStorage.setItem(`mcplumb.${name}`, JSON.stringify(value));
  } catch {
    // The setting then lasts as long as the page.
  }
}
