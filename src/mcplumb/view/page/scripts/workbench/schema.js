// Reads JSON Schemas: follows references, and checks values. It says only what it is sure of: keywords that it does not
// know are left to the server. Patterns are not tried, because a hostile one could make the page hang.

import { ExactNumber, canSendExactly } from "../exact_json.js";

/** @typedef {Record<string, any>} Schema */
/** @typedef {{path: (string | number)[], message: string}} Problem */

/** A part of a form that is not JSON: what was typed stays as it is. */
export class BadJson {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  toJSON() {
    return this.text;
  }
}

/** References that are followed, levels that are checked, and steps of one check. */
const MAX_HOPS = 20;
const MAX_DEPTH = 40;
const MAX_STEPS = 20_000;

/** @param {unknown} value @returns {value is Record<string, any>} */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof BadJson) && !(value instanceof ExactNumber);
}

/**
 * Sets a member, whatever its name is: `__proto__`, too.
 * @param {object} target @param {string} name @param {unknown} value
 */
export function put(target, name, value) {
  Object.defineProperty(target, name, { value, writable: true, enumerable: true, configurable: true });
}

/**
 * Returns a schema without `$ref` and `allOf` at its top, as far as they can be resolved within the root.
 * @param {unknown} schema
 * @param {Schema} root
 * @returns {Schema}
 */
export function resolve(schema, root, hops = 0) {
  if (!isObject(schema)) return {};
  /** @type {Schema} */
  let found = schema;
  if (typeof schema.$ref === "string" && hops < MAX_HOPS) {
    const { $ref, ...siblings } = schema;
    const target = follow($ref, root);
    if (target !== undefined) found = { ...resolve(target, root, hops + 1), ...siblings };
  }
  if (Array.isArray(found.allOf) && hops < MAX_HOPS) {
    const { allOf, ...own } = found;
    found = allOf.map((each) => resolve(each, root, hops + 1)).reduce(merge, own);
  }
  return found;
}

/** @param {string} reference @param {Schema} root */
function follow(reference, root) {
  if (reference === "#") return root;
  if (!reference.startsWith("#/")) return undefined; // nothing is fetched
  /** @type {any} */
  let at = root;
  for (const part of reference.slice(2).split("/")) {
    let name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    try {
      name = decodeURIComponent(name);
    } catch {
      // as it is
    }
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, name)) return undefined;
    at = at[name];
  }
  return at;
}

/** @param {Schema} one @param {Schema} two @returns {Schema} */
function merge(one, two) {
  const merged = { ...two, ...one };
  if (isObject(one.properties) || isObject(two.properties)) merged.properties = { ...two.properties, ...one.properties };
  if (one.required || two.required) merged.required = [...(one.required ?? []), ...(two.required ?? [])];
  return merged;
}

/** @param {unknown} value */
export function typeOf(value) {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (value instanceof ExactNumber) return /^-?\d+$/.test(value.text) || Number.isInteger(Number(value)) ? "integer" : "number";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value;
}

/**
 * Returns the choices of a schema that lists its values; null if it does not.
 * @param {Schema} schema
 * @returns {{value: unknown, title: string}[] | null}
 */
export function choicesOf(schema) {
  if (Array.isArray(schema.enum)) {
    const names = Array.isArray(schema.enumNames) ? schema.enumNames : [];
    return schema.enum.map((value, at) => ({ value, title: String(names[at] ?? asText(value)) }));
  }
  for (const list of [schema.oneOf, schema.anyOf]) {
    if (Array.isArray(list) && list.length && list.every((each) => isObject(each) && "const" in each)) {
      return list.map((each) => ({ value: each.const, title: String(each.title ?? asText(each.const)) }));
    }
  }
  return null;
}

/** @param {unknown} value */
export function asText(value) {
  return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

/**
 * Returns the alternatives of a schema; null if it has none.
 * @param {Schema} schema
 * @returns {Schema[] | null}
 */
export function variantsOf(schema) {
  const { oneOf, anyOf, ...common } = schema;
  const list = Array.isArray(oneOf) ? oneOf : Array.isArray(anyOf) ? anyOf : null;
  if (list?.length) {
    const { title, description, default: _, ...shared } = common;
    return list.map((each) => (isObject(each) ? { ...shared, ...each } : each === false ? { not: {} } : shared));
  }
  if (Array.isArray(schema.type) && schema.type.length) {
    const { title, description, default: _, ...shared } = schema;
    if (schema.type.length === 1) return null;
    return schema.type.map((type) => ({ ...shared, type }));
  }
  return null;
}

/**
 * Returns a few words for what a schema describes.
 * @param {unknown} given
 * @param {Schema} root
 * @returns {string}
 */
export function describeType(given, root, depth = 0) {
  const schema = resolve(given, root);
  if ("const" in schema) return asText(schema.const);
  if (choicesOf(schema)) return "choice";
  const variants = variantsOf(schema);
  if (variants && depth < 2) {
    const names = variants.slice(0, 4).map((each) => each.title ?? describeType(each, root, depth + 1));
    return [...new Set(names)].join(" | ") + (variants.length > 4 ? " | …" : "");
  }
  const type = kindOf(schema);
  if (type === "array" && isObject(schema.items) && depth < 2) return `list of ${describeType(schema.items, root, depth + 1)}`;
  if (type === "string" && typeof schema.format === "string") return schema.format;
  return { array: "list", object: "object", string: "text", integer: "whole number", number: "number", boolean: "true or false", null: "null" }[type] ?? "any JSON";
}

/** The type of a schema, guessed from its keywords if it names none; "" if it may be anything. @param {Schema} schema */
export function kindOf(schema) {
  const type = Array.isArray(schema.type) && schema.type.length === 1 ? schema.type[0] : schema.type;
  if (typeof type === "string") return type;
  if (isObject(schema.properties) || schema.required || isObject(schema.additionalProperties)) return "object";
  if (schema.items !== undefined || schema.prefixItems !== undefined) return "array";
  return "";
}

const FORMATS = {
  date: { test: /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/, like: "2026-11-18" },
  time: { test: /^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]\d\d:\d\d)?$/i, like: "12:30:00Z" },
  "date-time": {
    test: /^\d{4}-\d\d-\d\d[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/,
    like: "2026-11-18T12:30:00Z",
  },
  email: { test: /^[^\s@]+@[^\s@]+$/, like: "name@example.com" },
  uri: { test: /^[A-Za-z][A-Za-z0-9+.-]*:\S+$/, like: "https://example.com/page" },
  uuid: { test: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i, like: "123e4567-e89b-12d3-a456-426614174000" },
  ipv4: { test: /^((25[0-5]|2[0-4]\d|1?\d?\d)(\.(?!$)|$)){4}$/, like: "192.0.2.1" },
};

/** An example of a format; "" if it is not known. @param {unknown} format */
export function exampleOf(format) {
  return typeof format === "string" && Object.hasOwn(FORMATS, format)
    ? FORMATS[/** @type {keyof typeof FORMATS} */ (format)].like
    : "";
}

/**
 * Returns what is wrong with a value.
 * @param {unknown} value
 * @param {unknown} schema
 * @param {Schema} root
 * @returns {Problem[]}
 */
export function check(value, schema, root) {
  /** @type {Problem[]} */
  const problems = [];
  const budget = { steps: MAX_STEPS };
  checkPart(value, schema, root, [], problems, budget, 0);
  return problems;
}

const TYPE_WORDS = /** @type {Record<string, string>} */ ({
  string: "text",
  number: "a number",
  integer: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  null: "null",
});

/**
 * @param {unknown} value @param {unknown} given @param {Schema} root @param {(string | number)[]} path
 * @param {Problem[]} problems @param {{steps: number}} budget @param {number} depth
 */
function checkPart(value, given, root, path, problems, budget, depth) {
  const add = (/** @type {string} */ message) => problems.push({ path, message });
  if (value instanceof BadJson) {
    add("This is not JSON.");
    return;
  }
  if (given === false) add("Nothing is allowed here.");
  if (!isObject(given) || depth > MAX_DEPTH || --budget.steps < 0) return;
  const schema = resolve(given, root);
  const type = typeOf(value);
  const types = Array.isArray(schema.type) ? schema.type : typeof schema.type === "string" ? [schema.type] : [];
  if (types.length && !types.includes(type) && !(type === "integer" && types.includes("number"))) {
    add(`Has to be ${types.map((each) => TYPE_WORDS[each] ?? each).join(" or ")}.`);
    return;
  }
  if ("const" in schema && !same(value, schema.const)) add(`Has to be ${asText(schema.const)}.`);
  if (Array.isArray(schema.enum) && !schema.enum.some((each) => same(value, each))) {
    add("Has to be one of the choices.");
  }
  for (const [list, isOne] of /** @type {[unknown, boolean][]} */ ([[schema.oneOf, true], [schema.anyOf, false]])) {
    if (!Array.isArray(list) || !list.length) continue;
    const found = list.map((each) => {
      /** @type {Problem[]} */
      const own = [];
      checkPart(value, each, root, path, own, budget, depth + 1);
      return own;
    });
    const fitting = found.filter((own) => !own.length).length;
    if (!fitting) {
      // The alternative that fits best says most.
      const deepest = found.map((own) => own.filter((each) => each.path.length > path.length)).find((own) => own.length);
      problems.push(...(deepest ?? [{ path, message: "Fits none of the alternatives." }]));
    } else if (isOne && fitting > 1 && budget.steps > 0) {
      add("Fits more than one of the alternatives.");
    }
  }
  if (typeof value === "string") checkText(value, schema, add);
  else if (value instanceof ExactNumber && !canSendExactly) add("Has more digits than this browser can send.");
  else if (typeof value === "number" || value instanceof ExactNumber) checkNumber(Number(value), schema, add);
  else if (Array.isArray(value)) {
    if (value.length < schema.minItems) add(`Needs at least ${schema.minItems} ${schema.minItems === 1 ? "entry" : "entries"}.`);
    if (value.length > schema.maxItems) add(`Has room for ${schema.maxItems} ${schema.maxItems === 1 ? "entry" : "entries"}.`);
    if (schema.uniqueItems && new Set(value.map((each) => JSON.stringify(each))).size < value.length) {
      add("Has the same entry twice.");
    }
    const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
    value.forEach((each, at) => {
      checkPart(each, at < first.length ? first[at] : schema.items, root, [...path, at], problems, budget, depth + 1);
    });
  } else if (isObject(value)) {
    const properties = isObject(schema.properties) ? schema.properties : {};
    for (const name of Array.isArray(schema.required) ? schema.required : []) {
      if (!Object.hasOwn(value, name)) problems.push({ path: [...path, name], message: "Required." });
    }
    for (const [name, each] of Object.entries(value)) {
      if (Object.hasOwn(properties, name)) {
        checkPart(each, properties[name], root, [...path, name], problems, budget, depth + 1);
      } else if (schema.additionalProperties === false && !isObject(schema.patternProperties)) {
        problems.push({ path: [...path, name], message: `There is no ${name} here.` });
      } else if (isObject(schema.additionalProperties) && !isObject(schema.patternProperties)) {
        checkPart(each, schema.additionalProperties, root, [...path, name], problems, budget, depth + 1);
      }
    }
  }
}

/** @param {string} value @param {Schema} schema @param {(message: string) => void} add */
function checkText(value, schema, add) {
  const length = [...value].length;
  if (length < schema.minLength) add(`Needs at least ${schema.minLength} ${schema.minLength === 1 ? "character" : "characters"}.`);
  if (length > schema.maxLength) add(`Has ${length} characters: ${schema.maxLength} is the most.`);
  if (typeof schema.format === "string" && Object.hasOwn(FORMATS, schema.format)) {
    const format = FORMATS[/** @type {keyof typeof FORMATS} */ (schema.format)];
    if (value.length < 2000 && !format.test.test(value)) add(`Has to look like ${format.like}.`);
  }
}

/** @param {number} value @param {Schema} schema @param {(message: string) => void} add */
function checkNumber(value, schema, add) {
  if (value < schema.minimum) add(`Has to be at least ${schema.minimum}.`);
  if (value > schema.maximum) add(`Has to be at most ${schema.maximum}.`);
  if (typeof schema.exclusiveMinimum === "number" && value <= schema.exclusiveMinimum) add(`Has to be above ${schema.exclusiveMinimum}.`);
  if (typeof schema.exclusiveMaximum === "number" && value >= schema.exclusiveMaximum) add(`Has to be below ${schema.exclusiveMaximum}.`);
  if (Number.isInteger(schema.multipleOf) && schema.multipleOf > 0 && Number.isSafeInteger(value) && value % schema.multipleOf) {
    add(`Has to be a multiple of ${schema.multipleOf}.`);
  }
}

/** @param {unknown} one @param {unknown} two */
function same(one, two) {
  return one === two || (typeof one === "object" && JSON.stringify(one) === JSON.stringify(two));
}
