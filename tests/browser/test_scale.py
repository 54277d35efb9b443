"""A hundred thousand messages: they load, scroll and filter. The times are printed and not judged."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcplumb.recording.recorder import RecordingWriter
from tests.browser.conftest import Serve
from tests.browser.recordings import header, long_session

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
from playwright.sync_api import expect

MESSAGES = 100_000

#: Scrolls through the whole list, a part each frame, and returns how long each frame took, in milliseconds.
SCROLL = """async (frames) => {
  const list = document.querySelector(".vlist");
  const times = [];
  let before = await new Promise(requestAnimationFrame);
  for (let at = 1; at <= frames; at++) {
    list.scrollTop = ((list.scrollHeight - list.clientHeight) * at) / frames;
    const now = await new Promise(requestAnimationFrame);
    times.push(now - before);
    before = now;
  }
  return times;
}"""


@pytest.mark.req("VIW-2")
def test_a_hundred_thousand_messages(
    page: Page, serve: Serve, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir(parents=True)
    writer = RecordingWriter(header("long", now=time.time() - 3600), folder)
    for records in long_session(MESSAGES):
        writer.write(records)
    writer.close()
    begun = time.monotonic()
    page.goto(serve())
    expect(page.locator(".filter-count")).to_have_text("50,000", timeout=180_000)
    expect(page.locator(".pane-head")).to_contain_text("100,000 messages")
    loaded = time.monotonic() - begun
    times: list[float] = sorted(page.evaluate(SCROLL, 300))
    assert page.locator(".vlist-row").count() < 200
    expect(page.locator('.vlist-row[data-index="49999"]')).to_be_visible()
    page.locator(".vlist").focus()
    page.keyboard.press("End")
    expect(page.locator('.vlist-row[aria-selected="true"]')).to_contain_text('{"n":49999}')
    expect(page.locator(".detail")).to_contain_text("answer 49999")
    begun = time.monotonic()
    page.get_by_label("Filter by text").fill("answer 4321")
    expect(page.locator(".filter-count")).to_have_text("11 of 50,000", timeout=60_000)
    found = time.monotonic() - begun
    page.get_by_role("button", name="Clear", exact=True).click()
    page.locator("main").focus()
    page.keyboard.press("e")
    expect(page.locator(".filter-count")).to_have_text("50 of 50,000")
    with capsys.disabled():
        print(
            f"\n{MESSAGES:,} messages: shown after {loaded:.1f} s; frames while all were scrolled past: "
            f"median {times[len(times) // 2]:.1f} ms, 99 % {times[int(len(times) * 0.99)]:.1f} ms, "
            f"longest {times[-1]:.1f} ms; a text found after {found:.2f} s"
        )
