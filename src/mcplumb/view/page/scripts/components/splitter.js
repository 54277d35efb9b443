// A bar between two parts, moved by pointer or arrow keys. The parent is a grid that uses the size --split.

import { el } from "../dom.js";
import { keepSetting, setting } from "../settings.js";

/**
 * Returns a splitter.
 * @param {object} options
 * @param {string} options.name of the setting that keeps the size
 * @param {string} options.label for screen readers
 * @param {"vertical" | "horizontal"} options.orientation of the bar
 * @param {number} options.size the share of the second part at first, in percent
 * @param {HTMLElement} options.parent
 */
export function splitter({ name, label, orientation, size, parent }) {
  const isVertical = orientation === "vertical";
  let share = setting(`split.${name}`, size);
  const bar = el("div", {
    class: "splitter",
    role: "separator",
    tabindex: "0",
    "aria-orientation": orientation,
    "aria-label": label,
    "aria-valuemin": 10,
    "aria-valuemax": 90,
  });

  const apply = (/** @type {number} */ wanted) => {
    share = Math.min(90, Math.max(10, Math.round(wanted * 10) / 10));
    parent.style.setProperty("--split", `${share}%`);
    bar.setAttribute("aria-valuenow", String(Math.round(share)));
  };
  const keep = () => keepSetting(`split.${name}`, share);

  bar.addEventListener("pointerdown", (event) => {
    bar.setPointerCapture(event.pointerId);
    bar.classList.add("is-dragged");
    event.preventDefault();
  });
  bar.addEventListener("pointermove", (event) => {
    if (!bar.hasPointerCapture(event.pointerId)) return;
    const box = parent.getBoundingClientRect();
    apply(isVertical ? (100 * (box.right - event.clientX)) / box.width : (100 * (box.bottom - event.clientY)) / box.height);
  });
  bar.addEventListener("pointerup", () => {
    bar.classList.remove("is-dragged");
    keep();
  });
  bar.addEventListener("keydown", (event) => {
    /** @type {Record<string, number>} */
    const steps = isVertical ? { ArrowLeft: 2, ArrowRight: -2 } : { ArrowUp: 2, ArrowDown: -2 };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    apply(share + step);
    keep();
  });
  bar.addEventListener("dblclick", () => {
    apply(size);
    keep();
  });
  apply(share);
  return bar;
}
