// The timeline: a canvas with lanes for the client, the server and the user, which can be zoomed and moved.

import { el, printable, setText } from "../dom.js";
import { clock, duration } from "./formats.js";
import { titleOf, whatOf } from "./message_list.js";
import { lanesOf } from "./timeline_bars.js";

/** @typedef {import("./session_model.js").SessionModel} SessionModel */
/** @typedef {import("./timeline_bars.js").Lane} Lane */
/** @typedef {import("./timeline_bars.js").Bar} Bar */
/** @typedef {import("./timeline_bars.js").Kind} Kind */

const GUTTER = 58;
const AXIS = 18;
const BAR = 7;
const GAP = 2;
const PAD = 5;
/** Pixels beside a bar at which a click still means it. */
const NEAR = 5;
const SHORTEST_VIEW = 1e-4;
/** Drawn in this order, so that what matters is on top. */
const ORDER = /** @type {const} */ (["mark", "plain", "user", "open", "slow", "error"]);

/** One session on a line. */
export class Timeline {
  /**
   * @param {SessionModel} model
   * @param {(place: number) => void} onselect
   */
  constructor(model, onselect) {
    this.model = model;
    this.onselect = onselect;
    this.canvas = el("canvas", {
      class: "timeline-canvas",
      tabindex: "0",
      role: "img",
      title: "Wheel: zoom · drag: move · click: select",
    });
    this.note = el("span", { class: "timeline-note", "aria-hidden": "true" });
    this.buttons = el(
      "span",
      { class: "timeline-buttons" },
      this.#button("−", "Zoom out (−)", () => this.zoom(1.6)),
      this.#button("+", "Zoom in (+)", () => this.zoom(1 / 1.6)),
      this.#button("⤢", "Show all (0)", () => this.fit()),
    );
    this.element = el(
      "div",
      { class: "timeline" },
      this.canvas,
      this.note,
      this.buttons,
    );
    /** @type {Lane[]} */
    this.lanes = [];
    this.start = 0;
    this.end = 1;
    /** Whether the whole session is shown, also when it grows. */
    this.isFit = true;
    /** @type {number | null} */
    this.selected = null;
    /** @type {Record<string, string>} */
    this.colors = {};
    this.frame = 0;
    this.isStale = true;
    this.#listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.ending = new AbortController();
    const { signal } = this.ending;
    document.addEventListener("themechange", () => this.#themed(), { signal });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#themed(), { signal });
  }

  close() {
    this.ending.abort();
  }

  /** @param {string} label @param {string} title @param {() => void} onclick */
  #button(label, title, onclick) {
    return el("button", { type: "button", class: "quiet", "aria-label": title, title, onclick }, label);
  }

  #themed() {
    this.colors = {};
    this.draw();
  }

  /** The rows have changed. */
  update() {
    this.isStale = true;
    this.draw();
  }

  /** Shows which row is selected, and moves so that it is in sight. @param {number | null} place */
  select(place) {
    this.selected = place;
    const row = place === null ? undefined : this.model.rows[place];
    if (row && !this.isFit) {
      const end = row.end ?? row.t;
      if (end < this.start || row.t > this.end) {
        const width = this.end - this.start;
        this.#view(row.t - width / 3, row.t + (2 * width) / 3);
      }
    }
    this.draw();
  }

  /** Zooms so that the selected call fills a third of the width. */
  zoomToSelected() {
    const row = this.selected === null ? undefined : this.model.rows[this.selected];
    if (!row) return;
    const end = row.end ?? (row.state === "open" ? this.model.currentTime : row.t);
    const width = Math.max(end - row.t, 0.001);
    this.#view(row.t - width, end + width);
  }

  fit() {
    this.isFit = true;
    this.draw();
  }

  /** @param {number} factor @param {number} [at] the time that stays where it is */
  zoom(factor, at = (this.start + this.end) / 2) {
    this.#view(at - (at - this.start) * factor, at + (this.end - at) * factor);
  }

  /** @param {number} share of the width */
  pan(share) {
    const step = (this.end - this.start) * share;
    this.#view(this.start + step, this.end + step);
  }

  /** @param {number} start @param {number} end */
  #view(start, end) {
    const last = Math.max(this.model.currentTime, 0.001);
    if (end - start < SHORTEST_VIEW) {
      const middle = (start + end) / 2;
      [start, end] = [middle - SHORTEST_VIEW / 2, middle + SHORTEST_VIEW / 2];
    }
    if (end - start >= last * 1.02) {
      this.fit();
      return;
    }
    const slack = (end - start) / 2;
    const shift = start < -slack ? -slack - start : end > last + slack ? last + slack - end : 0;
    this.isFit = false;
    this.start = start + shift;
    this.end = end + shift;
    this.draw();
  }

  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.#drawNow();
    });
  }

  #drawNow() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    if (this.isStale) {
      this.isStale = false;
      this.lanes = lanesOf(this.model);
      const open = this.lanes.flatMap(({ bars }) => [...bars.open, ...bars.slow]).filter(({ end }) => end === Infinity).length;
      this.canvas.setAttribute(
        "aria-label",
        `Timeline of ${this.model.rows.length} messages over ${duration(this.model.now)}, ${open} calls open. ` +
          "The list of messages says the same.",
      );
    }
    if (this.isFit) {
      this.start = 0;
      this.end = Math.max(this.model.currentTime, 0.001) * 1.01;
    }
    const height = AXIS + this.lanes.reduce((sum, { levels }) => sum + heightOf(levels), 0);
    const ratio = window.devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext("2d");
    if (!context) return;
    context.scale(ratio, ratio);
    this.#readColors();
    context.font = `11px ${getComputedStyle(this.canvas).fontFamily}`;
    context.textBaseline = "middle";
    this.#drawAxis(context, width, height);
    let top = AXIS;
    for (const lane of this.lanes) {
      if (top > AXIS) this.#drawLine(context, top, width);
      this.#drawLane(context, lane, top, width);
      top += heightOf(lane.levels);
    }
  }

  #readColors() {
    if (this.colors.ink) return;
    // A canvas knows no variables: an element tells which colours they stand for in the present theme.
    const probe = el("span", { hidden: true });
    this.element.append(probe);
    for (const name of ["ink", "ink-faint", "line", "client", "server", "user", "warn", "error"]) {
      probe.style.color = `var(--${name})`;
      this.colors[name] = getComputedStyle(probe).color;
    }
    probe.remove();
  }

  /** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height */
  #drawAxis(context, width, height) {
    const step = niceStep((this.end - this.start) / Math.max(2, (width - GUTTER) / 110));
    context.fillStyle = this.colors["ink-faint"];
    context.strokeStyle = this.colors.line;
    context.lineWidth = 1;
    context.textAlign = "left";
    for (let time = Math.ceil(Math.max(0, this.start) / step) * step; time <= this.end; time += step) {
      const x = Math.round(this.#x(time, width)) + 0.5;
      if (x < GUTTER) continue;
      context.beginPath();
      context.moveTo(x, AXIS - 4);
      context.lineTo(x, height);
      context.stroke();
      const text = tickText(time, step, this.end);
      if (x + 3 + context.measureText(text).width < width - this.buttons.offsetWidth) context.fillText(text, x + 3, AXIS / 2);
    }
  }

  /** Draws the line between two lanes. @param {CanvasRenderingContext2D} context @param {number} top @param {number} width */
  #drawLine(context, top, width) {
    context.strokeStyle = this.colors.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(0, top - 0.5);
    context.lineTo(width, top - 0.5);
    context.stroke();
  }

  /** @param {CanvasRenderingContext2D} context @param {Lane} lane @param {number} top @param {number} width */
  #drawLane(context, lane, top, width) {
    const bottom = top + heightOf(lane.levels);
    context.fillStyle = this.colors[lane.name];
    context.textAlign = "left";
    context.fillText(lane.title, 8, (top + bottom) / 2);
    context.save();
    context.beginPath();
    context.rect(GUTTER, top, width - GUTTER, bottom - top);
    context.clip();
    for (const kind of ORDER) this.#drawBars(context, lane, kind, top, width);
    const selected = ORDER.flatMap((kind) => lane.bars[kind].find(({ place }) => place === this.selected) ?? [])[0];
    if (selected) {
      const [x, y, w] = this.#box(selected, top, width);
      context.strokeStyle = this.colors.ink;
      context.lineWidth = 2;
      context.strokeRect(x - 1.5, y - 1.5, Math.max(w, 2) + 3, BAR + 3);
    }
    context.restore();
  }

  /**
   * Draws the bars of one kind. Of many on the same pixels, one is drawn.
   * @param {CanvasRenderingContext2D} context @param {Lane} lane @param {Kind} kind
   * @param {number} top @param {number} width
   */
  #drawBars(context, lane, kind, top, width) {
    const color = { plain: lane.name, open: lane.name, mark: "ink-faint", user: "user", slow: "warn", error: "error" }[kind];
    context.fillStyle = this.colors[color];
    /** @type {number[]} */
    const painted = [];
    for (const bar of lane.bars[kind]) {
      if (bar.end < this.start || bar.start > this.end) continue;
      // Most bars of a long session end here, so nothing is made for them.
      if (this.#x(Math.min(bar.end, this.end), width) <= (painted[bar.level] ?? -1)) continue;
      const [x, y, w] = this.#box(bar, top, width);
      painted[bar.level] = x + Math.max(w, 1);
      if (kind === "mark") {
        context.fillRect(x, y + 2, 1.5, BAR - 4);
      } else if (bar.end === Infinity) {
        this.#drawOpen(context, x, y, w);
      } else {
        context.globalAlpha = kind === "plain" ? 0.75 : 1;
        context.fillRect(x, y, Math.max(w, 1.5), BAR);
        context.globalAlpha = 1;
      }
    }
  }

  /** Draws a call without an end: striped, up to now. @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} w */
  #drawOpen(context, x, y, w) {
    context.globalAlpha = 0.35;
    context.fillRect(x, y, w, BAR);
    context.globalAlpha = 1;
    for (let at = x; at < x + w; at += 6) context.fillRect(at, y, Math.min(3, x + w - at), BAR);
  }

  /** @param {Bar} bar @param {number} top @param {number} width @returns {[number, number, number]} */
  #box(bar, top, width) {
    const x = Math.max(GUTTER - 20, this.#x(bar.start, width));
    const end = Math.min(width + 20, this.#x(bar.end === Infinity ? this.model.currentTime : bar.end, width));
    return [x, top + PAD + bar.level * (BAR + GAP), Math.max(0, end - x)];
  }

  /** @param {number} time @param {number} width */
  #x(time, width) {
    return GUTTER + ((time - this.start) / (this.end - this.start)) * (width - GUTTER);
  }

  /** @param {number} x */
  #time(x) {
    return this.start + ((x - GUTTER) / (this.canvas.clientWidth - GUTTER)) * (this.end - this.start);
  }

  /** Returns the bar at a point of the canvas. @param {number} x @param {number} y */
  #barAt(x, y) {
    const width = this.canvas.clientWidth;
    const [from, to] = [this.#time(x - NEAR), this.#time(x + NEAR)];
    let top = AXIS;
    for (const lane of this.lanes) {
      const height = heightOf(lane.levels);
      if (y >= top && y < top + height) {
        /** @type {{bar: Bar, off: number} | null} */
        let best = null;
        for (const kind of ORDER) {
          for (const bar of lane.bars[kind]) {
            if (bar.end < from || bar.start > to) continue;
            const [left, barTop, w] = this.#box(bar, top, width);
            const across = x < left ? left - x : Math.max(0, x - left - w);
            const down = y < barTop ? barTop - y : Math.max(0, y - barTop - BAR);
            const off = across + down;
            if (off <= NEAR && (!best || off < best.off || (off === best.off && kind !== "mark"))) best = { bar, off };
          }
        }
        return best?.bar ?? null;
      }
      top += height;
    }
    return null;
  }

  #listen() {
    const { canvas } = this;
    /** @type {{x: number, start: number, end: number, hasMoved: boolean} | null} */
    let drag = null;
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / canvas.clientWidth);
        else this.zoom(Math.exp(event.deltaY * 0.002), this.#time(event.offsetX));
      },
      { passive: false },
    );
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      drag = { x: event.offsetX, start: this.start, end: this.end, hasMoved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const moved = event.offsetX - drag.x;
        drag.hasMoved ||= Math.abs(moved) > 3;
        if (drag.hasMoved) {
          const shift = (moved / (canvas.clientWidth - GUTTER)) * (drag.end - drag.start);
          this.#view(drag.start - shift, drag.end - shift);
        }
      } else {
        this.#hover(event.offsetX, event.offsetY);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const bar = drag && !drag.hasMoved ? this.#barAt(event.offsetX, event.offsetY) : null;
      drag = null;
      if (bar) this.onselect(bar.place);
    });
    canvas.addEventListener("pointercancel", () => (drag = null));
    canvas.addEventListener("pointerleave", () => setText(this.note, ""));
    canvas.addEventListener("keydown", (event) => {
      /** @type {Record<string, () => void>} */
      const actions = {
        ArrowLeft: () => this.pan(-0.2),
        ArrowRight: () => this.pan(0.2),
        "+": () => this.zoom(1 / 1.6),
        "=": () => this.zoom(1 / 1.6),
        "-": () => this.zoom(1.6),
        0: () => this.fit(),
        Enter: () => this.zoomToSelected(),
      };
      const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  }

  /** @param {number} x @param {number} y */
  #hover(x, y) {
    const bar = this.#barAt(x, y);
    this.canvas.style.cursor = bar ? "pointer" : "grab";
    const row = bar ? this.model.rows[bar.place] : null;
    const took = row?.kind === "call" ? ` · ${duration(this.model.secondsOf(row))}` : "";
    setText(this.note, row ? printable(`${clock(row.t)} ${titleOf(row)} ${whatOf(row)}${took}`) : "");
  }
}

/** @param {number} levels */
const heightOf = (levels) => 2 * PAD + levels * (BAR + GAP) - GAP;

/** @param {number} least */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of [1, 2, 5]) if (factor * power >= least) return factor * power;
  return 10 * power;
}

/** @param {number} time @param {number} step @param {number} end of what is shown */
function tickText(time, step, end) {
  if (step < 1 && end >= 1 && end < 60) return `${time.toFixed(Math.max(1, Math.ceil(-Math.log10(step))))} s`;
  if (step >= 1) return time < 60 ? `${time.toFixed(0)} s` : clock(time).replace(/\.000$/, "");
  return step >= 0.001 ? `${(time * 1e3).toFixed(0)} ms` : `${(time * 1e3).toFixed(2)} ms`;
}
