// What the timeline draws: calls as bars in lanes, packed so that those that overlap are below each other.

import { SessionModel } from "./session_model.js";

/** @typedef {import("./session_model.js").Row} Row */

/**
 * @typedef {object} Bar
 * @property {number} start
 * @property {number} end Infinity while it is open
 * @property {number} level below how many others it is
 * @property {number} place of its row
 */

/** @typedef {"plain" | "slow" | "error" | "open" | "user" | "mark"} Kind */

/**
 * @typedef {object} Lane
 * @property {"client" | "server" | "user"} name
 * @property {string} title
 * @property {Record<Kind, Bar[]>} bars in the order of their beginning
 * @property {number} levels
 */

/** Bars below each other in one lane; further ones share the last level. */
const MAX_LEVELS = 6;
/** Requests of a server that its user answers. */
const ASKS_USER = new Set(["elicitation/create", "sampling/createMessage"]);

/**
 * Returns the three lanes of a session.
 * @param {SessionModel} model
 * @returns {Lane[]}
 */
export function lanesOf(model) {
  const lanes = {
    client: newLane("client", "Client"),
    server: newLane("server", "Server"),
    user: newLane("user", "User"),
  };
  /** Questions to the user that a result has asked, by the call that is sent again. @type {Map<string, Row>} */
  const asked = new Map();
  for (const row of model.rows) {
    if (!row) continue;
    if (row.kind === "call") {
      const end = row.state === "open" ? Infinity : (row.end ?? row.t);
      const kind = kindOf(model, row);
      lanes[row.sender ?? "client"].add(row, row.t, end, kind);
      if (row.sender === "server" && ASKS_USER.has(row.method ?? "")) lanes.user.add(row, row.t, end, "user");
      if (asked.size || row.needsInput) {
        const key = `${row.method} ${row.name}`;
        const question = asked.get(key);
        if (question) lanes.user.add(question, question.end ?? question.t, row.t, "user");
        asked.delete(key);
        if (row.needsInput) asked.set(key, row);
      }
    } else if (row.kind === "event") {
      if (row.method !== "http") lanes[row.sender ?? "server"].add(row, row.t, row.t, "mark");
    } else {
      const isBad = row.kind === "bad" || row.kind === "stray";
      lanes[row.sender ?? "server"].add(row, row.t, row.t, isBad ? "error" : "mark");
    }
  }
  for (const row of asked.values()) {
    // Never asked again: the user has not answered, or the client has given up.
    lanes.user.add(row, row.end ?? row.t, model.isLive ? Infinity : (row.end ?? row.t), "user");
  }
  return Object.values(lanes).map((each) => each.lane);
}

/** @param {SessionModel} model @param {Row} row @returns {Kind} */
function kindOf(model, row) {
  if (SessionModel.isError(row)) return "error";
  if (model.isSlow(row)) return "slow";
  return row.state === "open" ? "open" : row.state === "cancelled" ? "slow" : "plain";
}

/** @param {Lane["name"]} name @param {string} title */
function newLane(name, title) {
  return new Packer({ name, title, bars: { plain: [], slow: [], error: [], open: [], user: [], mark: [] }, levels: 1 });
}

/** Puts each bar on the first level that is free. */
class Packer {
  /** @param {Lane} lane */
  constructor(lane) {
    this.lane = lane;
    /** @type {number[]} */
    this.free = [];
  }

  /** @param {Row} row @param {number} start @param {number} end @param {Kind} kind */
  add(row, start, end, kind) {
    let level = 0;
    while (level < MAX_LEVELS - 1 && (this.free[level] ?? -1) > start) level++;
    this.free[level] = Math.max(this.free[level] ?? -1, end);
    this.lane.levels = Math.max(this.lane.levels, level + 1);
    this.lane.bars[kind].push({ start, end, level, place: row.index });
  }
}
