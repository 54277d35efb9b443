// Reads and writes JSON without rounding: a number that JavaScript cannot hold keeps its digits.

/** Digits that a number always keeps. */
const KEPT_DIGITS = 15;
/** Only a text with so many digits in a row, or with a huge exponent, can have a number that would be rounded. */
const MAY_ROUND = /\d[\d.]{15}|[eE]\+?\d{3}/;
const { rawJSON } = /** @type {{rawJSON?: (text: string) => unknown}} */ (/** @type {unknown} */ (JSON));

/** Whether the browser can send such numbers as they are. */
export const canSendExactly = typeof rawJSON === "function";

/** A number with more digits than JavaScript keeps: as it was written. */
export class ExactNumber {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }

  valueOf() {
    return Number(this.text);
  }

  toJSON() {
    return rawJSON ? rawJSON(this.text) : Number(this.text);
  }
}

/**
 * Returns the number that a text of JSON stands for.
 * @param {string} text
 * @returns {number | ExactNumber}
 */
export function toNumber(text) {
  const value = Number(text);
  const digits = text.replace(/[eE].*$/, "").replace(/^-?[0.]*/, "").replace(".", "").length;
  return (digits <= KEPT_DIGITS && Number.isFinite(value)) || String(value) === text ? value : new ExactNumber(text);
}

/**
 * Parses JSON as `JSON.parse` does, except for numbers that would be rounded. A browser that does not tell how they
 * were written rounds them.
 * @param {string} text
 * @returns {any}
 */
export function parseJson(text) {
  if (!MAY_ROUND.test(text)) return JSON.parse(text);
  return JSON.parse(
    text,
    /** @param {string} _ @param {unknown} value @param {{source?: string}} [context] */
    function keep(_, value, context) {
      return typeof value === "number" && context?.source !== undefined ? toNumber(context.source) : value;
    },
  );
}
