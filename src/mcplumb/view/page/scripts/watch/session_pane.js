// One session: what it is, its timeline, its messages or findings, and the message that is selected.

import { splitter } from "../components/splitter.js";
import { el, keyed, setText, withoutFolder } from "../dom.js";
import { Detail } from "./detail.js";
import { Filters } from "./filters.js";
import { showFindings } from "./findings_list.js";
import { count, duration, localTime, size } from "./formats.js";
import { MessageList } from "./message_list.js";
import { SessionModel } from "./session_model.js";
import { Timeline } from "./timeline.js";

/** @typedef {import("./sessions_list.js").Listed} Listed */

/** Milliseconds between two looks at the clock, in a session that is live. */
const TICK = 500;

/** The pane of a session. There are two if two are compared. */
export class SessionPane {
  /**
   * @param {Listed} listed
   * @param {import("../main.js").Frame} frame
   * @param {object} hooks
   * @param {(pane: SessionPane, number: number | null) => void} hooks.onselect a message was selected
   * @param {(pane: SessionPane) => void} hooks.onfocus the user works in this pane
   * @param {() => void} hooks.onclose
   */
  constructor(listed, frame, hooks) {
    this.listed = listed;
    this.hooks = hooks;
    this.model = new SessionModel(listed.key, frame.events);
    this.filters = new Filters(this.model, () => this.#refilter());
    this.list = new MessageList(
      this.model,
      (row) => this.#select(row.index, "list"),
      () => this.timeline.zoomToSelected(),
    );
    this.timeline = new Timeline(this.model, (place) => this.#select(place, "timeline"));
    this.detail = new Detail(this.model, {
      session: listed.header.name || listed.file,
      goTo: (number) => this.goTo(number),
      onclose: () => {
        this.unselect();
        this.list.list.element.focus();
      },
    });
    /** What the head says, as far as it changes. */
    this.facts = {
      live: el("span", { class: "badge is-live", hidden: true }, "live"),
      client: el("span", { class: "who-client", title: "Client" }),
      server: el("span", { class: "who-server", title: "Server" }),
      revisions: el("span", { class: "pane-revisions" }),
      amount: el("span", { class: "pane-facts" }),
      cut: el("span", { class: "badge is-warn", hidden: true }),
      lost: el("span", { class: "badge is-warn", hidden: true }),
      size: el("span", null, size(listed.size)),
    };
    this.findingsBadge = el("span", { class: "badge is-warn", hidden: true });
    this.messagesButton = this.#viewButton("Messages", () => this.showView("messages"));
    this.findingsButton = this.#viewButton("Findings ", () => this.showView("findings"), this.findingsBadge);
    this.findingsPanel = el("div", { class: "findings", tabindex: "0", role: "region", "aria-label": "Findings", hidden: true });
    this.statusTitle = el("h2");
    this.statusText = el("p");
    this.clearButton = el("button", { type: "button", onclick: () => this.filters.clear() }, "Clear the filters");
    this.status = el("div", { class: "empty", role: "status" }, this.statusTitle, this.statusText, this.clearButton);
    this.body = el("div", { class: "pane-body" });
    this.main = el("div", { class: "pane-main" }, this.status, this.list.element, this.findingsPanel);
    this.body.append(
      this.main,
      splitter({ name: "detail", label: "Width of the details", orientation: "vertical", size: 38, parent: this.body }),
      this.detail.element,
    );
    this.element = el(
      "article",
      { class: "pane", "aria-label": `Session ${listed.header.name || listed.file}` },
      this.#makeHead(),
      this.timeline.element,
      el(
        "div",
        { class: "pane-bar" },
        el("div", { class: "pane-views", role: "group", "aria-label": "View" }, this.messagesButton, this.findingsButton),
        this.filters.element,
      ),
      this.body,
    );
    this.element.addEventListener("focusin", () => hooks.onfocus(this));
    this.element.addEventListener("pointerdown", () => hooks.onfocus(this));
    /** The number of a record that is to be shown once it is loaded. @type {number | null} */
    this.wanted = null;
    this.model.onchange(() => this.#changed());
    this.showView("messages");
    this.model.load();
    // What is open takes longer and longer.
    this.ticking = setInterval(() => this.#tick(), TICK);
  }

  /** The file has changed. @param {Listed} listed */
  update(listed) {
    this.listed = listed;
    setText(this.facts.size, size(listed.size));
  }

  close() {
    clearInterval(this.ticking);
    this.timeline.close();
    this.model.close();
    this.element.remove();
  }

  #tick() {
    if (!this.model.isLive || document.hidden || !this.element.offsetParent) return;
    this.timeline.draw();
    this.list.list.refresh();
    this.detail.showOutcome();
  }

  /** @param {string} label @param {() => void} onclick @param {Node} [badge] */
  #viewButton(label, onclick, badge) {
    return el("button", { type: "button", "aria-pressed": "false", onclick }, label, badge);
  }

  /** @param {"messages" | "findings"} view */
  showView(view) {
    const isMessages = view === "messages";
    this.messagesButton.setAttribute("aria-pressed", String(isMessages));
    this.findingsButton.setAttribute("aria-pressed", String(!isMessages));
    this.list.element.hidden = !isMessages;
    this.filters.element.hidden = !isMessages;
    this.findingsPanel.hidden = isMessages;
    this.#showStatus();
    if (!isMessages) this.#showFindings();
  }

  /** Shows the row of a record, also one that the filters hide. @param {number} number */
  goTo(number) {
    const place = this.model.places.get(number);
    if (place === undefined) {
      this.wanted = number;
      return;
    }
    this.wanted = null;
    this.showView("messages");
    if (!this.list.select(place)) {
      this.filters.clear();
      this.list.select(place);
    }
    this.#select(place, "link");
  }

  /** Nothing is selected any more. */
  unselect() {
    this.list.selectedPlace = null;
    this.list.list.select(-1);
    this.timeline.select(null);
    this.detail.clear();
    this.body.classList.remove("has-detail");
    this.hooks.onselect(this, null);
  }

  /** @param {number} place @param {"list" | "timeline" | "link"} by */
  #select(place, by) {
    const row = this.model.rows[place];
    if (!row) return;
    if (by === "timeline" && !this.list.select(place)) {
      this.filters.clear();
      this.list.select(place);
    }
    this.list.selectedPlace = place;
    this.timeline.select(place);
    this.detail.show(row);
    if (!this.body.classList.contains("has-detail")) {
      this.body.classList.add("has-detail");
      this.list.select(place); // which may be out of sight now
    }
    this.hooks.onselect(this, row.n);
  }

  #refilter() {
    this.list.show(this.filters.apply());
    this.#showStatus();
  }

  #changed() {
    this.filters.showMethods();
    this.filters.refresh();
    this.#refilter();
    this.timeline.update();
    this.#showHead();
    if (!this.findingsPanel.hidden) this.#showFindings();
    const place = this.list.selectedPlace;
    if (place !== null && this.model.rows[place]) this.detail.show(this.model.rows[place]);
    if (this.wanted !== null && this.model.places.has(this.wanted)) this.goTo(this.wanted);
  }

  #showFindings() {
    showFindings(this.findingsPanel, this.model.findings, this.model.isLive, (number) => this.goTo(number));
  }

  #showStatus() {
    const { model } = this;
    const isFiltered = model.rows.length > 0 && !this.list.places.length;
    /** @type {[title: string, text: string]} */
    let said = ["", ""];
    if (model.failure) said = ["This session cannot be shown", model.failure];
    else if (!this.findingsPanel.hidden) said = ["", ""];
    else if (!model.rows.length) said = ["", model.isLoaded ? "Nothing was said yet." : "Loading…"];
    else if (isFiltered) said = ["No message passes the filters", ""];
    const [title, text] = said;
    this.status.hidden = !title && !text;
    setText(this.statusTitle, title);
    this.statusTitle.hidden = !title;
    setText(this.statusText, text);
    this.statusText.hidden = !text;
    this.clearButton.hidden = !isFiltered;
    if (this.findingsPanel.hidden) this.list.element.hidden = !this.status.hidden;
  }

  #showHead() {
    const { info, isLive, findingCount, now } = this.model;
    const { live, client, server, revisions, amount, cut, lost } = this.facts;
    live.hidden = !isLive;
    setText(client, nameAndVersion(info?.client));
    setText(server, nameAndVersion(info?.server));
    keyed(revisions, info?.revisions ?? [], (each) => each, (each) => el("span", { class: "badge", title: "Protocol revision" }, each));
    setText(amount, `${count(info?.messages ?? 0)} message${info?.messages === 1 ? "" : "s"} in ${duration(now)}`);
    cut.hidden = !info?.cut;
    setText(cut, `only the first ${count(info?.cut ?? 0)} records`);
    lost.hidden = !info?.lost;
    setText(lost, `${count(info?.lost ?? 0)} record${info?.lost === 1 ? "" : "s"} lost`);
    this.findingsBadge.hidden = !findingCount;
    setText(this.findingsBadge, count(findingCount));
  }

  #makeHead() {
    const { header, file } = this.listed;
    const { live, client, server, revisions, amount, cut, lost } = this.facts;
    const target = header.target?.command?.join(" ") ?? header.target?.url ?? "";
    return el(
      "header",
      { class: "pane-head" },
      el("h2", { title: file }, withoutFolder(header.name || target) || header.id),
      live,
      el("span", { class: "pane-facts" }, client, " → ", server),
      revisions,
      amount,
      cut,
      lost,
      el(
        "span",
        { class: "pane-facts", title: target },
        el("span", { class: "pane-started" }, localTime(header.started)),
        el("span", { class: "pane-minor" }, ` · ${header.by}, ${header.transport} · `, this.facts.size),
      ),
      el("button", { type: "button", class: "quiet pane-close", "aria-label": "Close this session", title: "Close this session", onclick: this.hooks.onclose }, "✕"),
    );
  }
}

/** @param {{name: string, version: string} | undefined} side */
function nameAndVersion(side) {
  return side?.name ? `${side.name}${side.version ? ` ${side.version}` : ""}` : "unknown";
}
