// Times, sizes and other values as people read them.

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 0.0009995) return `${(seconds * 1e6).toFixed(0)} µs`;
  // The limits are those where rounding makes one more digit.
  if (seconds < 0.9995) return `${(seconds * 1e3).toFixed(seconds < 0.009995 ? 2 : seconds < 0.09995 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(2)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** Seconds since the start, all of the same form. @param {number} seconds */
export function clock(seconds) {
  if (seconds < 60) return seconds.toFixed(3);
  const whole = Math.floor(seconds);
  const rest = (seconds - whole).toFixed(3).slice(1);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const minutes = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}${rest}`;
  return whole < 3600 ? minutes : `${Math.floor(whole / 3600)}:${minutes}`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(bytes < 1e4 ? 1 : 0)} kB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/** @param {number} number */
export const count = (number) => number.toLocaleString("en");

/** A date of the format, in the zone of the user. @param {string} text */
export function localTime(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  const isToday = date.toDateString() === new Date().toDateString();
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  return isToday ? time : `${date.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}
