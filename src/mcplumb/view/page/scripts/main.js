// The frame: sections, theme, keyboard help, and the state of the connection. A section is a module with `mount`.

import { Events } from "./api.js";
import { dialog } from "./components/dialog.js";
import { byId, el, fill, newId, setText } from "./dom.js";
import { keepFocus } from "./keep_focus.js";
import { addShortcuts, shortcutsByGroup } from "./keys.js";
import { keepSetting, loadSettings, setting } from "./settings.js";
import { mount as mountWatch } from "./watch/section.js";
import { mount as mountWorkbench } from "./workbench/section.js";

/**
 * What a section gets: the events of the server, and a way to change the address of the page.
 * @typedef {object} Frame
 * @property {Events} events
 * @property {(path: string[]) => void} go shows `#/section/…`; the section's `show` gets the rest
 * @property {() => string} current the name of the section that is shown
 */

/**
 * A mounted section.
 * @typedef {object} MountedSection
 * @property {(path: string[]) => void} show it becomes visible, or its part of the address has changed
 * @property {() => void} [hide]
 */

/** @typedef {(root: HTMLElement, frame: Frame) => MountedSection} Mount */

/** @type {Record<string, {title: string, mount: Mount}>} */
const SECTIONS = {
  watch: { title: "Watch", mount: mountWatch },
  workbench: { title: "Workbench", mount: mountWorkbench },
};

const events = new Events();
/** @type {Map<string, {root: HTMLElement, section: MountedSection}>} */
const mounted = new Map();
let currentName = "";

/** @type {Frame} */
const frame = {
  events,
  go: (path) => (location.hash = `#/${path.map(encodeURIComponent).join("/")}`),
  current: () => currentName,
};

function showSection() {
  const [name = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodePart);
  const wanted = Object.hasOwn(SECTIONS, name) ? name : "watch";
  for (const link of byId("sections").children) {
    link.toggleAttribute("aria-current", false);
    if (link.getAttribute("data-section") === wanted) link.setAttribute("aria-current", "page");
  }
  if (currentName !== wanted) mounted.get(currentName)?.section.hide?.();
  currentName = wanted;
  const { section } = sectionOf(wanted);
  for (const [other, { root }] of mounted) root.hidden = other !== wanted;
  document.title = `${SECTIONS[wanted].title} · mcplumb view`;
  section.show(name === wanted ? rest : []);
}

/** Mounts a section when it is first needed. @param {string} name */
function sectionOf(name) {
  let entry = mounted.get(name);
  if (!entry) {
    const root = el("section", { class: name, "aria-label": SECTIONS[name].title, hidden: true });
    byId("main").append(root);
    entry = { root, section: SECTIONS[name].mount(root, frame) };
    mounted.set(name, entry);
  }
  return entry;
}

/** @param {string} text */
function decodePart(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Theme

const THEMES = /** @type {const} */ (["auto", "light", "dark"]);
const THEME_MARKS = { auto: "◐", light: "☀", dark: "☾" };

function showTheme() {
  const theme = setting("theme", /** @type {"auto" | "light" | "dark"} */ ("auto"));
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = byId("theme");
  setText(button, THEME_MARKS[theme] ?? "◐");
  button.setAttribute("aria-label", `Theme: ${theme}`);
  button.title = `Theme: ${theme} (t)`;
  document.dispatchEvent(new CustomEvent("themechange"));
}

function nextTheme() {
  const at = THEMES.indexOf(setting("theme", /** @type {"auto" | "light" | "dark"} */ ("auto")));
  keepSetting("theme", THEMES[(at + 1) % THEMES.length]);
  showTheme();
}

// Help

/** @type {Record<string, string>} */
const KEY_NAMES = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", " ": "Space", Escape: "Esc" };

function showHelp() {
  Object.keys(SECTIONS).forEach(sectionOf); // each adds its keys
  const letters = el("input", { type: "checkbox", id: newId("letters"), onchange: () => keepSetting("letters", letters.checked) });
  letters.checked = setting("letters", true);
  const body = el("div", { class: "keys-groups" });
  for (const [group, shortcuts] of shortcutsByGroup()) {
    body.append(
      el(
        "table",
        { class: "keys" },
        el("caption", null, group),
        el(
          "tbody",
          null,
          ...shortcuts.map(({ keys, what }) =>
            el(
              "tr",
              null,
              el("td", null, ...keys.flatMap((key, at) => [at ? " " : "", el("kbd", null, KEY_NAMES[key] ?? key)])),
              el("td", null, what),
            ),
          ),
        ),
      ),
    );
  }
  const choice = el("p", null, letters, el("label", { for: letters.id }, " Enable single-key shortcuts. Turn them off if speech input triggers them by mistake."));
  dialog({ title: "Keyboard", body: el("div", null, choice, body) });
}

// Start

fill(
  byId("sections"),
  ...Object.entries(SECTIONS).map(([name, { title }], at) =>
    el("a", { href: `#/${name}`, "data-section": name, title: `${title} (${at + 1})` }, title),
  ),
);
addShortcuts(
  ...Object.entries(SECTIONS).map(([name, { title }], at) => ({
    keys: [String(at + 1)],
    what: `Go to ${title}`,
    group: "Everywhere",
    run: () => frame.go([name]),
  })),
  { keys: ["t"], what: "Theme: automatic, light, dark", group: "Everywhere", run: nextTheme },
  { keys: ["?"], what: "This help", group: "Everywhere", run: showHelp },
);
byId("theme").addEventListener("click", nextTheme);
byId("help").addEventListener("click", showHelp);
events.onstate = (state) => {
  const shown = byId("link-state");
  setText(shown, state === "lost" ? "Connection lost: is mcplumb view still running?" : "");
  shown.classList.toggle("is-lost", state === "lost");
};
window.addEventListener("hashchange", showSection);
keepFocus();
await loadSettings();
showTheme();
showSection();
events.open();
