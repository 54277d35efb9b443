// Forms made from JSON Schemas. A field holds a value, or what was typed in its place; a value that a field cannot show
// is shown as JSON instead, so that switching between the form and JSON loses nothing.

import { el, fill, newId, setText, shortened } from "../dom.js";
import { ExactNumber, parseJson, toNumber } from "../exact_json.js";
import { completing } from "./completion.js";
import { BadJson, asText, check, choicesOf, describeType, exampleOf, isObject, kindOf, put, resolve, typeOf, variantsOf } from "./schema.js";

/** @typedef {import("./schema.js").Schema} Schema */
/** @typedef {import("./schema.js").Problem} Problem */

/**
 * @typedef {object} Field
 * @property {HTMLElement} element
 * @property {() => unknown} get undefined if there is no value
 * @property {(value: unknown) => boolean} set false if the field cannot show the value
 * @property {(problems: Problem[]) => void} [show] shows problems of its parts
 * @property {() => boolean} [isEmpty] whether the user has left it empty
 * @property {() => Problem[]} [gaps] parts that are to be sent, and have no value
 */

/**
 * @typedef {object} Context
 * @property {Schema} root
 * @property {() => void} changed
 * @property {string} id of the main control
 * @property {string} label id of the label, for groups
 * @property {number} depth
 * @property {((value: string) => Promise<string[]>)} [complete]
 */

/** Fields of one object, entries of one list, and levels that get fields of their own; all else is JSON. */
const MAX_FIELDS = 300;
const MAX_ENTRIES = 300;
const MAX_CHOICES = 1000;
const MAX_LEVELS = 12;
/** Characters of a name and of a description that are shown. */
const MAX_NAME = 200;
const MAX_ABOUT = 4000;

/** A form for an object, as tools take it. */
export class SchemaForm {
  /**
   * @param {unknown} schema
   * @param {{changed?: () => void, complete?: (name: string, value: string) => Promise<string[]>}} [options]
   */
  constructor(schema, { changed = () => {}, complete } = {}) {
    this.schema = isObject(schema) ? schema : {};
    const label = newId("form");
    /** @type {Context} */
    const context = { root: this.schema, changed, id: newId("field"), label, depth: 0 };
    const resolved = resolve(this.schema, this.schema);
    this.field = flexible(objectField({ ...resolved, type: "object" }, context, complete), context);
    const hasFields = isObject(resolved.properties) && Object.keys(resolved.properties).length > 0;
    this.element = el("div", { class: "form" }, this.field.element);
    if (!hasFields && !isObject(resolved.additionalProperties) && resolved.additionalProperties !== true) {
      this.element.prepend(el("p", { class: "hint" }, "It takes no arguments."));
    }
  }

  /** @returns {Record<string, unknown>} */
  get() {
    return /** @type {Record<string, unknown>} */ (this.field.get() ?? {});
  }

  /** @param {unknown} value */
  set(value) {
    this.field.set(value);
  }

  /** Returns what is wrong, and shows it beside the fields. */
  check() {
    const problems = [...check(this.get(), this.schema, this.schema), ...(this.field.gaps?.() ?? [])];
    this.field.show?.(problems);
    return problems;
  }

  /** Moves the focus to the first field that has a problem. */
  focusProblem() {
    const at = this.element.querySelector('[aria-invalid="true"], .has-problem input, .has-problem textarea, .has-problem select');
    if (at instanceof HTMLElement) at.focus();
  }
}

/**
 * @param {unknown} given
 * @param {Context} context
 * @returns {Field}
 */
function makeField(given, context) {
  const schema = resolve(given, context.root);
  if (context.depth > MAX_LEVELS) return jsonField(context);
  if ("const" in schema) return constField(schema, context);
  const choices = choicesOf(schema);
  if (choices && choices.length <= MAX_CHOICES) return flexible(choiceField(choices, context), context);
  const variants = variantsOf(schema);
  if (variants && variants.length <= 50) return flexible(variantField(variants, context), context);
  switch (kindOf(schema)) {
    case "string":
      return flexible(textField(schema, context), context);
    case "integer":
    case "number":
      return flexible(numberField(schema, context), context);
    case "boolean":
      return flexible(choiceField([true, false].map((value) => ({ value, title: String(value) })), context), context);
    case "null":
      return constField({ const: null }, context);
    case "array":
      return flexible(listField(schema, context), context);
    case "object":
      if (Object.keys(schema.properties ?? {}).length > MAX_FIELDS) return jsonField(context);
      return flexible(objectField(schema, context), context);
    default:
      return jsonField(context);
  }
}

/** Shows a field, or JSON in its place if it has a value that the field cannot show. @param {Field} field @param {Context} context @returns {Field} */
function flexible(field, context) {
  /** @type {Field | null} */
  let instead = null;
  const element = el("div", { class: "flexible" }, field.element);
  const back = el("button", { type: "button", class: "quiet", onclick: () => toForm() }, "Back to the form");
  const toForm = () => {
    instead = null;
    fill(element, field.element);
    context.changed();
    focusIn(field.element); // the button that had the focus is no more
  };
  return {
    element,
    get: () => (instead ?? field).get(),
    set(value) {
      if (field.set(value)) {
        if (instead) fill(element, field.element);
        instead = null;
      } else {
        instead = jsonField({ ...context, id: newId("field") });
        instead.set(value);
        fill(element, instead.element, el("p", { class: "hint" }, "The form cannot show this value. ", back));
      }
      return true;
    },
    show: (problems) => field.show?.(problems),
    isEmpty: () => (instead ? false : (field.isEmpty?.() ?? false)),
    gaps: () => (instead ? [] : (field.gaps?.() ?? [])),
  };
}

/** Puts the name of a part before the paths of its problems. @param {string | number} name @param {Problem[]} problems */
const below = (name, problems) => problems.map((each) => ({ ...each, path: [name, ...each.path] }));

/** Moves the focus to the first control in an element. @param {Element} element */
function focusIn(element) {
  const control = element.matches("input, textarea, select") ? element : element.querySelector("input, textarea, select, button");
  if (control instanceof HTMLElement) control.focus();
}

/** @param {Schema} schema @param {Context} context @returns {Field} */
function constField(schema, { id }) {
  const text = shortened(asText(schema.const), MAX_ABOUT);
  return {
    element: el("output", { id, class: "const mono" }, text),
    get: () => schema.const,
    set: () => true,
  };
}

/** @param {{value: unknown, title: string}[]} choices @param {Context} context @returns {Field} */
function choiceField(choices, { id, changed }) {
  const select = el(
    "select",
    { id, onchange: changed },
    el("option", { value: "" }, "Choose…"),
    ...choices.map(({ title }, at) => el("option", { value: at }, title.length > 200 ? `${title.slice(0, 200)}…` : title)),
  );
  return {
    element: select,
    get: () => (select.value === "" ? undefined : choices[Number(select.value)].value),
    set(value) {
      const at = choices.findIndex((each) => JSON.stringify(each.value) === JSON.stringify(value));
      select.value = at < 0 ? "" : String(at);
      return at >= 0 || value === undefined;
    },
    isEmpty: () => select.value === "",
  };
}

/** @param {Schema} schema @param {Context} context @returns {Field} */
function textField(schema, { id, changed, complete }) {
  const isDate = schema.format === "date";
  const isShort = isDate || typeof schema.format === "string" || schema.maxLength <= 60 || complete !== undefined;
  const example = exampleOf(schema.format);
  // Not of the type "password": browsers would offer to keep it, and complain about it on the console.
  const isSecret = schema.format === "password" || schema.writeOnly === true;
  let isTouched = false;
  const touch = () => {
    isTouched = true;
    changed();
  };
  const control = isShort
    ? el("input", { id, type: isDate ? "date" : "text", class: isSecret ? "secret" : null, placeholder: isDate ? null : example || null, autocomplete: "off", spellcheck: "false", oninput: touch })
    : el("textarea", { id, rows: 1, spellcheck: "false", oninput: touch });
  const element = complete && control instanceof HTMLInputElement ? completing(control, complete, touch) : control;
  return {
    element,
    get: () => (control.value === "" && !isTouched ? undefined : control.value),
    set(value) {
      isTouched = value !== undefined;
      if (typeof value !== "string" && value !== undefined) return false;
      if (control instanceof HTMLInputElement && /[\r\n]/.test(value ?? "")) return false;
      control.value = value ?? "";
      // The browser's own field for dates takes only dates.
      return control.value === (value ?? "").replaceAll("\r\n", "\n");
    },
    isEmpty: () => control.value === "",
  };
}

/** @param {Schema} schema @param {Context} context @returns {Field} */
function numberField(schema, { id, changed }) {
  const isWhole = kindOf(schema) === "integer";
  const input = el("input", { id, type: "text", inputmode: isWhole ? "numeric" : "decimal", autocomplete: "off", class: "number", oninput: changed });
  return {
    element: input,
    get() {
      const text = input.value.trim();
      if (text === "") return undefined;
      return /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text) ? toNumber(text) : text;
    },
    set(value) {
      const isNumber = typeof value === "number" || value instanceof ExactNumber;
      input.value = isNumber || typeof value === "string" ? String(value) : "";
      return value === undefined || isNumber || (typeof value === "string" && !/[\r\n]/.test(value));
    },
    isEmpty: () => input.value.trim() === "",
  };
}

/** @param {Context} context @returns {Field} */
function jsonField({ id, changed }) {
  const control = el("textarea", { id, class: "mono", rows: 2, spellcheck: "false", placeholder: "JSON", oninput: changed });
  return {
    element: control,
    get() {
      if (control.value.trim() === "") return undefined;
      try {
        return parseJson(control.value);
      } catch {
        return new BadJson(control.value);
      }
    },
    set(value) {
      control.value = value === undefined ? "" : value instanceof BadJson ? value.text : JSON.stringify(value, null, 2);
      return true;
    },
    isEmpty: () => control.value.trim() === "",
  };
}

/** @param {Schema[]} variants @param {Context} context @returns {Field} */
function variantField(variants, context) {
  /** What was typed into each stays there. @type {Map<number, Field>} */
  const made = new Map();
  const body = el("div", { class: "variant-body" });
  const select = el(
    "select",
    { id: context.id, class: "variant", "aria-label": "Alternative", onchange: () => (choose(Number(select.value)), context.changed()) },
    ...variants.map((each, at) => el("option", { value: at }, titleOf(each, at))),
  );

  /** @param {Schema} each @param {number} at */
  function titleOf(each, at) {
    const found = resolve(each, context.root);
    return String(found.title ?? describeType(each, context.root) ?? `Alternative ${at + 1}`).slice(0, 120);
  }

  /** @param {number} at */
  function field(at) {
    let found = made.get(at);
    if (!found) {
      found = makeField(variants[at], { ...context, id: newId("field"), depth: context.depth + 1, complete: undefined });
      made.set(at, found);
      if (kindOf(resolve(variants[at], context.root)) !== "object") found.element.setAttribute("aria-labelledby", context.label);
    }
    return found;
  }

  /** @param {number} at */
  function choose(at) {
    select.value = String(at);
    fill(body, field(at).element);
  }

  choose(0);
  return {
    element: el("div", { class: "variants" }, select, body),
    get: () => field(Number(select.value)).get(),
    set(value) {
      if (value === undefined) return true;
      const { root } = context;
      const clean = parseJson(JSON.stringify(value));
      let at = variants.findIndex((each) => !check(clean, each, root).length);
      if (at < 0) at = variants.findIndex((each) => kindOf(resolve(each, root)) === typeOf(clean).replace("integer", kindOf(resolve(each, root)) === "number" ? "number" : "integer"));
      if (at < 0) return false;
      choose(at);
      return field(at).set(value);
    },
    show: (problems) => field(Number(select.value)).show?.(problems),
    isEmpty: () => field(Number(select.value)).isEmpty?.() ?? false,
    gaps: () => field(Number(select.value)).gaps?.() ?? [],
  };
}

/** @param {Schema} schema @param {Context} context @returns {Field} */
function listField(schema, context) {
  const choices = schema.uniqueItems || schema.items?.enum || schema.items?.anyOf ? choicesOf(resolve(schema.items, context.root)) : null;
  if (choices && choices.length <= 50 && schema.uniqueItems !== false) return checksField(choices, context);
  const first = Array.isArray(schema.prefixItems) ? schema.prefixItems : [];
  /** @type {{field: Field, element: HTMLElement, problem: HTMLElement}[]} */
  let entries = [];
  const list = el("ol", { class: "entries" });
  const add = el("button", { type: "button", class: "add", onclick: () => (insert(), context.changed(), focusLast()) }, "+ Add");
  const element = el("div", { class: "list", role: "group", "aria-labelledby": context.label }, list, add);

  const focusLast = () => {
    const control = list.lastElementChild?.querySelector("input, textarea, select");
    if (control instanceof HTMLElement) control.focus();
  };

  function insert() {
    const at = entries.length;
    const id = newId("field");
    const field = makeField(at < first.length ? first[at] : (schema.items ?? {}), { ...context, id, label: newId("label"), depth: context.depth + 1, complete: undefined });
    const problem = el("p", { class: "problem", hidden: true });
    const button = (/** @type {string} */ mark, /** @type {string} */ what, /** @type {() => void} */ run) =>
      el("button", { type: "button", class: "quiet", title: what, "aria-label": what, onclick: run }, mark);
    const entry = {
      field,
      problem,
      element: el(
        "li",
        { class: "entry" },
        el("div", { class: "entry-body" }, field.element, problem),
        el(
          "div",
          { class: "entry-tools" },
          button("↑", "Move up", () => move(entry, -1)),
          button("↓", "Move down", () => move(entry, 1)),
          button("✕", "Remove", () => remove(entry)),
        ),
      ),
    };
    entries.push(entry);
    list.append(entry.element);
    describe();
  }

  function describe() {
    entries.forEach((entry, at) => {
      for (const control of entry.element.querySelectorAll(":scope > .entry-body input, :scope > .entry-body textarea, :scope > .entry-body select")) {
        if (!control.closest(".property") || !entry.element.contains(control.closest(".property"))) control.setAttribute("aria-label", `Entry ${at + 1}`);
      }
    });
  }

  /** @param {typeof entries[number]} entry @param {number} by */
  function move(entry, by) {
    const at = entries.indexOf(entry);
    const to = at + by;
    if (to < 0 || to >= entries.length) return;
    entries.splice(at, 1);
    entries.splice(to, 0, entry);
    if (by < 0) entry.element.after(entries[at].element);
    else entry.element.before(entries[at].element);
    describe();
    context.changed();
  }

  /** @param {typeof entries[number]} entry */
  function remove(entry) {
    entries = entries.filter((each) => each !== entry);
    entry.element.remove();
    describe();
    context.changed();
    add.focus();
  }

  for (let at = 0; at < Math.min(Number(schema.minItems) || first.length || 0, 20); at++) insert();
  return {
    element,
    get: () => entries.map(({ field }) => field.get() ?? null),
    gaps: () => entries.flatMap(({ field }, at) => below(at, field.gaps?.() ?? [])),
    set(value) {
      if (value === undefined) return true;
      if (!Array.isArray(value) || value.length > MAX_ENTRIES) return false;
      entries = [];
      list.replaceChildren();
      for (const each of value) {
        insert();
        entries[entries.length - 1].field.set(each);
      }
      return true;
    },
    show(problems) {
      entries.forEach(({ field, problem }, at) => {
        const own = problems.filter(({ path }) => path[0] === at).map((each) => ({ ...each, path: each.path.slice(1) }));
        showProblem(problem, own);
        field.show?.(own);
      });
    },
  };
}

/** A list of different values out of a few: boxes to check. @param {{value: unknown, title: string}[]} choices @param {Context} context @returns {Field} */
function checksField(choices, { label, changed }) {
  const boxes = choices.map(() => el("input", { type: "checkbox", onchange: changed }));
  return {
    element: el(
      "div",
      { class: "checks", role: "group", "aria-labelledby": label },
      ...boxes.map((box, at) => el("label", { class: "check" }, box, el("span", null, choices[at].title))),
    ),
    get: () => choices.filter((_, at) => boxes[at].checked).map(({ value }) => value),
    set(value) {
      if (value === undefined) return true;
      if (!Array.isArray(value)) return false;
      const wanted = value.map((each) => JSON.stringify(each));
      const known = choices.map((each) => JSON.stringify(each.value));
      if (new Set(wanted).size < wanted.length || !wanted.every((each) => known.includes(each))) return false;
      boxes.forEach((box, at) => (box.checked = wanted.includes(known[at])));
      return true;
    },
    isEmpty: () => !boxes.some((box) => box.checked),
  };
}

/**
 * @param {Schema} schema
 * @param {Context} context
 * @param {(name: string, value: string) => Promise<string[]>} [complete]
 * @returns {Field}
 */
function objectField(schema, context, complete) {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const properties = Object.entries(isObject(schema.properties) ? schema.properties : {});
  const rows = properties.map(([name, each]) => property(name, each, context, required.has(name), complete));
  /** Members that the schema does not name. @type {{name: HTMLInputElement, field: Field, element: HTMLElement}[]} */
  let extras = [];
  const extraRows = el("div", { class: "extras" });
  const isOpen = isObject(schema.additionalProperties) || schema.additionalProperties === true || (!properties.length && context.depth > 0 && schema.additionalProperties !== false);
  const add = el("button", { type: "button", class: "add", onclick: () => (insert("", undefined), context.changed()) }, "+ Add a property");

  /** @param {string} key @param {unknown} value */
  function insert(key, value) {
    const name = el("input", { type: "text", class: "mono", value: key, placeholder: "name", "aria-label": "Name of the property", oninput: context.changed });
    const field = makeField(isObject(schema.additionalProperties) ? schema.additionalProperties : {}, { ...context, id: newId("field"), label: newId("label"), depth: context.depth + 1 });
    const control = field.element.querySelector("input, textarea, select") ?? field.element;
    control.setAttribute("aria-label", "Value of the property");
    field.set(value);
    const remove = () => {
      extras = extras.filter((each) => each !== extra);
      extra.element.remove();
      add.focus(); // the button that had the focus is no more
      context.changed();
    };
    const extra = {
      name,
      field,
      element: el("div", { class: "extra" }, name, field.element, el("button", { type: "button", class: "quiet", "aria-label": "Remove the property", onclick: remove }, "✕")),
    };
    extras.push(extra);
    extraRows.append(extra.element);
    if (!key) name.focus();
  }

  const element = el(
    "div",
    { class: context.depth ? "object nested" : "object", role: context.depth ? "group" : null, "aria-labelledby": context.depth ? context.label : null },
    ...rows.map((row) => row.element),
    extraRows,
    isOpen && add,
  );
  return {
    element,
    get() {
      const value = {};
      for (const row of rows) {
        const each = row.get();
        if (each !== undefined) put(value, row.name, each);
      }
      for (const { name, field } of extras) {
        if (name.value !== "") put(value, name.value, field.get() ?? null);
      }
      return value;
    },
    set(value) {
      if (value !== undefined && !isObject(value)) return false;
      const given = value ?? {};
      for (const row of rows) row.set(Object.hasOwn(given, row.name) ? given[row.name] : undefined);
      extras = [];
      extraRows.replaceChildren();
      const known = new Set(rows.map(({ name }) => name));
      for (const [name, each] of Object.entries(given)) if (!known.has(name)) insert(name, each);
      return true;
    },
    gaps: () => rows.flatMap((row) => below(row.name, row.gaps())),
    show(problems) {
      for (const row of rows) {
        row.show(problems.filter(({ path }) => path[0] === row.name).map((each) => ({ ...each, path: each.path.slice(1) })));
      }
    },
  };
}

/**
 * One property: its name, what it is, a box that says whether it is sent, and its field.
 * @param {string} name
 * @param {unknown} given
 * @param {Context} context
 * @param {boolean} isRequired
 * @param {(name: string, value: string) => Promise<string[]>} [complete]
 */
function property(name, given, context, isRequired, complete) {
  const schema = resolve(given, context.root);
  const id = newId("field");
  const label = newId("label");
  const isLarge = ["object", "array"].includes(kindOf(schema)) || (variantsOf(schema) !== null && !choicesOf(schema));
  const problem = el("p", { class: "problem", id: `${id}-problem`, hidden: true });
  const place = el("div", { class: "property-field" });
  /** @type {Field | null} */
  let field = null;
  let isQuiet = false;

  const include = isRequired ? null : el("input", { type: "checkbox", class: "include", title: "Send it", "aria-label": `Send ${shortened(name, MAX_NAME)}` });
  const isSent = () => include === null || include.checked;

  function changed() {
    if (include && !isQuiet) include.checked = !(field?.isEmpty?.() ?? false);
    refresh();
    context.changed();
  }

  function made() {
    if (!field) {
      field = makeField(given, { ...context, id, label, depth: context.depth + 1, changed, complete: complete && ((text) => complete(name, text)) });
      fill(place, field.element);
      const control = place.querySelector(`[id="${id}"]`);
      control?.setAttribute("aria-describedby", `${id}-about ${id}-problem`);
    }
    return field;
  }

  function refresh() {
    if (isSent() || !isLarge) made();
    place.hidden = isLarge && !isSent();
    element.classList.toggle("is-left-out", !isSent());
  }

  const isText = kindOf(schema) === "string" && !("const" in schema) && !choicesOf(schema) && !variantsOf(schema) && schema.format !== "date";
  include?.addEventListener("change", () => {
    refresh();
    if (include.checked && isText && made().get() === undefined) made().set(""); // an empty text is a value, too
    context.changed();
  });

  const limits = limitsOf(schema);
  const element = el(
    "div",
    { class: "property", "data-name": name },
    el(
      "div",
      { class: "property-head" },
      include,
      el("label", { for: id, id: label, class: "property-name" }, typeof schema.title === "string" && schema.title !== name ? `${shortened(schema.title, MAX_NAME)} ` : "", el("code", null, shortened(name, MAX_NAME))),
      isRequired ? el("span", { class: "required", title: "Required" }, "required") : null,
      el("span", { class: "type" }, shortened(describeType(given, context.root), MAX_NAME)),
    ),
    el("p", { class: "about", id: `${id}-about`, hidden: !schema.description && !limits }, schema.description ? shortened(schema.description, MAX_ABOUT) : null, schema.description && limits ? " " : null, limits && el("span", { class: "limits" }, limits)),
    place,
    problem,
  );

  /** @param {unknown} value */
  function set(value) {
    isQuiet = true;
    if (include) include.checked = value !== undefined;
    if (isSent() || field) made().set(value);
    refresh();
    isQuiet = false;
  }

  refresh();
  if (Object.hasOwn(schema, "default") && !(schema.default === null && !isRequired)) set(schema.default);
  return {
    name,
    element,
    get: () => (isSent() ? made().get() : undefined),
    set,
    /** @returns {Problem[]} */
    gaps() {
      if (!isSent()) return [];
      if (include && made().get() === undefined) return [{ path: [], message: "Has no value: fill it in, or untick its box." }];
      return made().gaps?.() ?? [];
    },
    /** @param {Problem[]} problems */
    show(problems) {
      const own = isSent() ? problems : [];
      showProblem(problem, own);
      element.classList.toggle("has-problem", own.some(({ path }) => !path.length));
      const control = place.querySelector(`[id="${id}"]`);
      if (own.some(({ path }) => !path.length)) control?.setAttribute("aria-invalid", "true");
      else control?.removeAttribute("aria-invalid");
      field?.show?.(own);
    },
  };
}

/** @param {HTMLElement} shown @param {Problem[]} problems */
function showProblem(shown, problems) {
  const own = problems.filter(({ path }) => !path.length).map(({ message }) => message);
  shown.hidden = !own.length;
  setText(shown, own.join(" "));
}

/** What a schema demands of its value, in words. @param {Schema} schema */
function limitsOf(schema) {
  const words = [];
  if (schema.minimum !== undefined && schema.maximum !== undefined) words.push(`${schema.minimum} to ${schema.maximum}`);
  else if (schema.minimum !== undefined) words.push(`at least ${schema.minimum}`);
  else if (schema.maximum !== undefined) words.push(`at most ${schema.maximum}`);
  if (schema.minLength > 0) words.push(`at least ${schema.minLength} ${schema.minLength === 1 ? "character" : "characters"}`);
  if (schema.maxLength !== undefined) words.push(`at most ${schema.maxLength} ${schema.maxLength === 1 ? "character" : "characters"}`);
  if (schema.exclusiveMinimum !== undefined) words.push(`above ${schema.exclusiveMinimum}`);
  if (schema.exclusiveMaximum !== undefined) words.push(`below ${schema.exclusiveMaximum}`);
  if (schema.multipleOf !== undefined) words.push(`a multiple of ${schema.multipleOf}`);
  if (schema.minItems > 0) words.push(`at least ${schema.minItems} ${schema.minItems === 1 ? "entry" : "entries"}`);
  if (schema.maxItems !== undefined) words.push(`at most ${schema.maxItems} ${schema.maxItems === 1 ? "entry" : "entries"}`);
  if (typeof schema.pattern === "string") words.push(`pattern ${schema.pattern.slice(0, 200)}`);
  const limits = shortened(words.join(", "), MAX_NAME * 2);
  return limits && schema.description ? `(${limits})` : limits;
}
