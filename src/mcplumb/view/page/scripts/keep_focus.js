// The focus is never lost: if what has it is removed, hidden or disabled, what is next to it gets it. Otherwise, whoever
// works by keyboard would begin at the top of the page again.

const FOCUSABLE = 'button, a[href], input, select, textarea, summary, [tabindex]:not([tabindex="-1"])';

/** What had the focus last, outside of dialogs, with the elements around it, from the inside out. @type {Element[]} */
let last = [];

/** @param {Element} element */
function canHaveFocus(element) {
  return element.isConnected && element.checkVisibility() && !element.matches(":disabled");
}

function restore() {
  const { activeElement } = document;
  // What is disabled keeps the focus until the next frame.
  const isKept = activeElement && activeElement !== document.body && canHaveFocus(activeElement);
  if (!last.length || isKept || document.querySelector("dialog[open]")) return;
  const [element, ...around] = last;
  if (canHaveFocus(element)) return;
  for (const each of around) {
    if (each === document.body) return;
    if (!each.isConnected) continue;
    const found = [...each.querySelectorAll(FOCUSABLE), ...(each.matches(FOCUSABLE) ? [each] : [])].filter(canHaveFocus);
    const next = found.find((one) => one.matches("[aria-current]")) ?? found[0];
    if (next instanceof HTMLElement) {
      next.focus({ preventScroll: true });
      return;
    }
  }
}

/** Begins to watch the focus. */
export function keepFocus() {
  document.addEventListener("focusin", ({ target }) => {
    if (!(target instanceof Element) || target.closest("dialog")) return;
    last = [];
    for (let at = /** @type {Element | null} */ (target); at; at = at.parentElement) last.push(at);
  });
  // Whoever clicks beside everything wants no focus; if the click meets something that takes it, that is told next.
  document.addEventListener("pointerdown", ({ target }) => {
    if (target instanceof Element && !target.closest("dialog")) last = [];
  });
  let isWaiting = false;
  const soon = () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      restore();
    });
  };
  new MutationObserver(soon).observe(document.body, { childList: true, subtree: true, attributeFilter: ["hidden", "disabled", "open"] });
}
