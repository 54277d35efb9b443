// The section Watch: the list of sessions, and one of them, or two side by side. Addresses: #/watch/KEY[,KEY][/LINE].

import { el, keyed } from "../dom.js";
import { addShortcuts, describeKeys } from "../keys.js";
import { SessionPane } from "./session_pane.js";
import { SessionsList } from "./sessions_list.js";

/** Sessions that are side by side. */
const MAX_PANES = 2;

/** @type {import("../main.js").Mount} */
export function mount(root, frame) {
  /** @type {SessionPane[]} */
  let panes = [];
  /** @type {SessionPane | null} */
  let active = null;
  /** The part of the address that was shown last. */
  let shownPath = "";

  const sessions = new SessionsList(open);
  const panesBox = el("div", { class: "panes" });
  const toggle = el(
    "button",
    { type: "button", class: "sessions-toggle", "aria-expanded": "false", onclick: () => showSessions(!root.classList.contains("has-sessions")) },
    "Sessions",
  );
  root.append(toggle, sessions.element, panesBox);

  /** On a narrow window, the list covers the session. @param {boolean} isShown */
  function showSessions(isShown) {
    root.classList.toggle("has-sessions", isShown);
    toggle.setAttribute("aria-expanded", String(isShown));
  }

  /** @param {string} key @param {boolean} beside */
  function open(key, beside) {
    const keys = panes.map(({ listed }) => listed.key);
    const wanted = beside && keys.length && !keys.includes(key) ? [keys[0], key] : [key];
    showSessions(false);
    frame.go(["watch", wanted.join(",")]);
  }

  /** @param {string[]} keys @param {number | null} line */
  function showPanes(keys, line) {
    const kept = panes.filter(({ listed }) => keys.includes(listed.key));
    for (const pane of panes) if (!kept.includes(pane)) pane.close();
    panes = keys
      .slice(0, MAX_PANES)
      .map((key) => kept.find(({ listed }) => listed.key === key) ?? newPane(key))
      .filter((pane) => pane !== null);
    if (!active || !panes.includes(active)) active = panes[0] ?? null;
    panesBox.classList.toggle("is-pair", panes.length > 1);
    // A pane that is moved in the page loses its place in the list.
    if (panes.length) keyed(panesBox, panes, ({ listed }) => listed.key, ({ element }) => element);
    else showEmpty();
    sessions.open = panes.map(({ listed }) => listed.key);
    sessions.show();
    if (line !== null && panes.length) panes[0].goTo(line);
  }

  /** @param {string} key */
  function newPane(key) {
    const listed = sessions.find(key);
    if (!listed) return null;
    return new SessionPane(listed, frame, {
      onselect: (pane, number) => {
        active = pane;
        if (panes.length !== 1 || frame.current() !== "watch") return;
        // The address of a message can be kept; going back goes to the session before, not through all messages.
        shownPath = [key, ...(number === null ? [] : [number])].join("/");
        history.replaceState(null, "", `#/watch/${shownPath}`);
      },
      onfocus: (pane) => (active = pane),
      onclose: () => frame.go(["watch", panes.map(({ listed }) => listed.key).filter((each) => each !== key).join(",") || "none"]),
    });
  }

  /** Shows what to do where there is no session; what is there already stays, with the focus. */
  function showEmpty() {
    const isLost = !["", "none"].includes(shownPath.split("/")[0]);
    const state = !sessions.isLoaded ? "loading" : isLost ? "lost" : sessions.sessions.length ? "choose" : "none";
    keyed(panesBox, [state], (each) => each, makeEmpty);
  }

  /** @param {string} state */
  function makeEmpty(state) {
    if (state === "loading") return el("div", { class: "empty" }, el("p", null, "Loading…"));
    if (state === "lost") {
      return el("div", { class: "empty" }, el("h2", null, "This session is not there any more"), el("p", null, "Its recording may have been deleted, or begun anew. Select another one."));
    }
    if (state === "choose") {
      return el("div", { class: "empty" }, el("h2", null, "Select a session"), el("p", null, "Live ones are at the top of the list."));
    }
    return el(
      "div",
      { class: "empty" },
      el("h2", null, "No sessions yet"),
      el("p", null, "Put mcplumb tap before the command of a server in the config of your host, and start the host:"),
      el("pre", null, "mcplumb tap -- python weather.py"),
      el("p", null, "or let mcplumb edit that config file:"),
      el("pre", null, "mcplumb wrap weather"),
      el("p", { class: "hint" }, `Every session then appears here at once. Recordings are in ${sessions.folder}`),
      el("p", null, "Without a host: ", el("a", { href: "#/workbench" }, "use a server by hand"), ", which is recorded, too."),
    );
  }

  /** @param {string[]} path */
  async function show(path) {
    shownPath = path.join("/");
    if (!sessions.isLoaded) {
      showEmpty();
      await sessions.load();
      if (shownPath !== path.join("/")) return;
    }
    let keys = (path[0] ?? "").split(",").filter(Boolean);
    if (keys.some((key) => key !== "none" && !sessions.find(key))) {
      await sessions.load();
      if (shownPath !== path.join("/")) return;
    }
    if (!keys.length) {
      const first = sessions.first ?? sessions.sessions.find(({ live }) => live)?.key ?? sessions.sessions[0]?.key;
      keys = panes.length ? panes.map(({ listed }) => listed.key) : first ? [first] : [];
    }
    const line = /^\d{1,15}$/.test(path[1] ?? "") ? Number(path[1]) : null;
    showPanes(keys, line);
  }

  async function refresh() {
    await sessions.load();
    for (const pane of panes) pane.update(sessions.find(pane.listed.key) ?? pane.listed);
    if (!panes.length) show(shownPath.split("/").filter(Boolean));
  }
  frame.events.on("sessions", refresh);
  frame.events.on("lost", refresh);
  frame.events.on("hello", () => sessions.isLoaded && refresh());

  const when = () => frame.current() === "watch" && active !== null;
  /** Whether the arrow keys do not scroll the part that has the focus. */
  const isElsewhere = () => when() && !document.activeElement?.closest(".detail, .findings");
  const group = "Watch";
  /** @param {(pane: SessionPane) => void} action */
  const inPane = (action) => () => active && action(active);
  addShortcuts(
    { keys: ["j"], what: "Next message", group, when, run: inPane((pane) => pane.list.move(1)) },
    { keys: ["k"], what: "Message before", group, when, run: inPane((pane) => pane.list.move(-1)) },
    { keys: ["ArrowDown"], what: "Next message, unless in the details or findings", group, when: isElsewhere, run: inPane((pane) => pane.list.move(1)) },
    { keys: ["ArrowUp"], what: "Message before", group, when: isElsewhere, run: inPane((pane) => pane.list.move(-1)) },
    { keys: ["/"], what: "Filter by text", group, when, run: inPane((pane) => (pane.showView("messages"), pane.filters.search.focus(), pane.filters.search.select())) },
    { keys: ["m"], what: "Filter by method", group, when, run: inPane((pane) => pane.filters.method.focus()) },
    { keys: ["i"], what: "Filter by id", group, when, run: inPane((pane) => pane.filters.id.focus()) },
    { keys: ["d"], what: "Filter by direction", group, when, run: inPane((pane) => pane.filters.direction.focus()) },
    { keys: ["e"], what: "Only errors", group, when, run: inPane((pane) => pane.filters.press(pane.filters.errors)) },
    { keys: ["f"], what: "Only messages with findings", group, when, run: inPane((pane) => pane.filters.press(pane.filters.findings)) },
    { keys: ["s"], what: "Only slow and hanging calls", group, when, run: inPane((pane) => pane.filters.press(pane.filters.slow)) },
    { keys: ["c"], what: "Only calls", group, when, run: inPane((pane) => pane.filters.press(pane.filters.quiet)) },
    { keys: ["x"], what: "Clear the filters", group, when, run: inPane((pane) => pane.filters.clear()) },
    { keys: ["F"], what: "List the findings, or the messages again", group, when, run: inPane((pane) => pane.showView(pane.findingsPanel.hidden ? "findings" : "messages")) },
    { keys: ["z"], what: "Zoom the timeline to the selected call", group, when, run: inPane((pane) => pane.timeline.zoomToSelected()) },
    { keys: ["+", "="], what: "Zoom in", group, when, run: inPane((pane) => pane.timeline.zoom(1 / 1.6)) },
    { keys: ["-"], what: "Zoom out", group, when, run: inPane((pane) => pane.timeline.zoom(1.6)) },
    { keys: ["0"], what: "Show the whole session", group, when, run: inPane((pane) => pane.timeline.fit()) },
    { keys: ["Escape"], what: "Close the details", group, when, run: () => closeSessions() || inPane((pane) => pane.unselect())() },
    { keys: ["l"], what: "Go to the list of sessions", group, when: () => frame.current() === "watch", run: focusSessions },
  );
  describeKeys(
    { keys: ["Enter"], what: "In the list: zoom the timeline to the call", group },
    { keys: ["ArrowLeft", "ArrowRight"], what: "On the timeline: move; in a tree: fold and unfold", group },
    { keys: ["Ctrl+Enter"], what: "In the list of sessions: show beside the other one", group },
  );

  sessions.element.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && closeSessions()) event.preventDefault();
  });

  /** Closes the list of sessions, if it covers the rest; returns whether it did. */
  function closeSessions() {
    if (!root.classList.contains("has-sessions") || !toggle.checkVisibility()) return false;
    showSessions(false);
    toggle.focus();
    return true;
  }

  function focusSessions() {
    showSessions(true);
    const first = sessions.body.querySelector(".session-open");
    if (first instanceof HTMLElement) first.focus();
  }

  return { show };
}
