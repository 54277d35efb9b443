// What breaks the rules in a session: each finding with its reason, what to do, and links to its lines.

import { el, fill, keyed } from "../dom.js";
import { count } from "./formats.js";

/** @typedef {import("./session_model.js").Finding} Finding */

const BADGES = { error: "is-error", warning: "is-warn", note: "" };

/** @param {Finding} finding @param {(number: number) => void} goTo */
export function findingCard(finding, goTo) {
  return el(
    "article",
    { class: `finding is-${finding.severity}` },
    el(
      "h3",
      null,
      el("span", { class: `badge ${BADGES[finding.severity]}` }, finding.severity),
      finding.title,
      el("span", { class: "finding-rule" }, `${finding.requirement} · ${finding.rule}`),
    ),
    el("p", null, finding.message, finding.count > 1 ? ` (${count(finding.count)} times)` : ""),
    el("p", { class: "hint" }, finding.why),
    el("p", { class: "finding-advice" }, finding.advice),
    el(
      "p",
      { class: "finding-lines" },
      finding.lines.length ? "Lines: " : "",
      ...finding.lines.map((line) =>
        el("button", { type: "button", class: "quiet", "data-line": line, onclick: () => goTo(line) }, `${line}`),
      ),
      finding.count > finding.lines.length && finding.lines.length >= 20 ? "…" : "",
    ),
  );
}

/** @param {HTMLElement} panel @param {Finding[]} findings @param {boolean} isLive @param {(number: number) => void} goTo */
export function showFindings(panel, findings, isLive, goTo) {
  if (!findings.length) {
    fill(
      panel,
      el(
        "div",
        { class: "empty" },
        el("h2", null, "No findings"),
        el("p", null, `Nothing in this session breaks the rules of the protocol${isLive ? " so far" : ""}.`),
      ),
    );
    return;
  }
  const order = { error: 0, warning: 1, note: 2 };
  const sorted = [...findings].sort((a, b) => order[a.severity] - order[b.severity] || a.t - b.t);
  // Of one that was found again, the count and the lines have changed.
  keyed(panel, sorted, (each) => JSON.stringify(each), (each) => findingCard(each, goTo));
}
