"""What happens all the time does not disturb what the user does: elements, focus, folding and scrolling stay."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcplumb.recording.recorder import RecordingWriter
from tests.browser.conftest import Opened, Serve
from tests.browser.recordings import Story, header, weather
from tests.view.workbench.bench import SERVER

if TYPE_CHECKING:
    from playwright.sync_api import ElementHandle, Locator, Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
from playwright.sync_api import expect

#: Uses `keyed` of the page by itself, and returns what is shown after each step.
KEYED = """async () => {
  const { el, keyed } = await import(new URL("scripts/dom.js", location.href));
  const parent = el("ul", null, el("li", null, "something else"));
  document.body.append(parent);
  const made = [];
  const steps = [];
  const show = (keys) => {
    keyed(parent, keys, (key) => key, (key) => {
      const item = el("li", { tabindex: "0" });
      item.dataset.made = String(made.push(key));
      return item;
    }, (item, key) => (item.textContent = key));
    steps.push([...parent.children].map((each) => `${each.textContent}${each.dataset.made}`).join(" "));
  };
  show(["a", "b", "c"]);
  parent.children[1].focus();
  show(["x", "b", "c"]);
  show(["c", "x", "b", "b"]);
  const isFocused = document.activeElement === parent.children[2];
  show([]);
  show(["b"]);
  parent.remove();
  return { steps, isFocused };
}"""


def test_an_item_keeps_its_element(page: Page, serve: Serve) -> None:
    page.goto(serve())
    found = page.evaluate(KEYED)
    assert found["steps"] == ["a1 b2 c3", "x4 b2 c3", "c3 x4 b2 b5", "", "b6"]
    assert found["isFocused"]


def kept(*locators: Locator) -> list[ElementHandle]:
    """The elements that are there now."""
    return [locator.element_handle() for locator in locators]


def assert_kept(elements: list[ElementHandle]) -> None:
    for element in elements:
        assert element.evaluate("(element) => element.isConnected && element.checkVisibility()")


@pytest.fixture
def writer(folder: Path) -> Iterator[RecordingWriter]:
    folder.mkdir(parents=True)
    writer = RecordingWriter(header("live", now=time.time()), folder)
    yield writer
    writer.close()


def call(city: str, t: float) -> tuple[Story, int]:
    story = Story()
    return story, story.request(t, "tools/call", name="forecast", arguments={"city": {"name": city}})


@pytest.mark.req("VIW-2")
def test_a_live_session_goes_on_under_the_pointer(
    page: Page, serve: Serve, folder: Path, writer: RecordingWriter
) -> None:
    weather().write(header("before", now=time.time() - 600), folder)
    story, id_ = call("Oslo", 0.1)
    writer.write(story.records)
    page.goto(serve())
    page.locator(".vlist-row:visible").filter(has_text="Oslo").click()
    request = page.get_by_role("tree", name="Request")
    request.get_by_role("treeitem", name="arguments").last.locator(".tree-line").first.click()  # folds
    expect(request.get_by_text("Oslo")).to_be_hidden()
    elements = kept(
        page.get_by_role("button", name="Close this session"),
        page.get_by_role("button", name="Compare with before"),
        page.locator(".session-open").first,
        page.locator(".session-open").last,
        page.get_by_role("tab", name="Message"),
        request,
    )
    page.locator(".session-open").last.focus()
    # Another call, stray output, which is a finding, and the answer.
    more = Story()
    more.last_id = id_
    more.request(0.2, "tools/call", name="forecast", arguments={"city": "Bergen"})
    more.line(0.3, "server", "DEBUG not a message")
    writer.write(more.records)
    expect(page.locator(".pane-views .badge")).to_have_text("1")
    expect(page.locator(".filter-count")).to_have_text("3")
    answer = Story()
    answer.text(0.4, id_, "Oslo: sun.")
    writer.write(answer.records)
    expect(page.get_by_role("tree", name="Answer")).to_contain_text("Oslo: sun.")
    assert_kept(elements)
    expect(request.get_by_text("Oslo")).to_be_hidden()  # folded still
    expect(page.locator(".session-open").last).to_be_focused()
    live = page.locator(".session-open").first
    live.focus()
    writer.close()
    expect(page.locator(".pane-head .badge.is-live")).to_be_hidden()
    expect(page.get_by_role("region", name="Live", exact=True)).to_have_count(0)
    assert_kept(elements)
    expect(live).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".session-open").last).to_be_focused()
    story = Story()
    story.request(0.1, "ping")
    story.write(header("after", now=time.time()), folder)
    expect(page.locator(".session-open")).to_have_count(3)
    expect(page.locator(".session-open").last).to_be_focused()


def test_a_list_stays_where_it_was_scrolled_to_when_another_session_comes_beside(
    page: Page, serve: Serve, folder: Path
) -> None:
    weather().write(header("weather", now=time.time() - 100), folder)
    other = Story()
    other.text(0.02, other.request(0.01, "tools/call", name="forecast", arguments={"city": "Oslo"}), "snow")
    other.write(header("other", now=time.time() - 200), folder)
    page.goto(serve())
    scroller = page.locator(".pane").first.locator(".vlist")
    expect(page.locator(".filter-count")).to_have_text("27")
    scroller.evaluate("(list) => (list.scrollTop = 120)")
    page.get_by_role("button", name="Compare with other").click()
    expect(page.locator(".pane")).to_have_count(2)
    assert scroller.evaluate("(list) => list.scrollTop") == 120
    page.locator(".pane").last.get_by_role("button", name="Close this session").click()
    expect(page.locator(".pane")).to_have_count(1)
    assert scroller.evaluate("(list) => list.scrollTop") == 120


@pytest.mark.req("VIW-2")
def test_a_call_that_reports_progress_disturbs_nothing(page: Page, serve: Serve) -> None:
    page.goto(serve("--", *SERVER))
    page.locator('[data-item="tool/speak"]').click()
    page.locator('.property[data-name="text"] input, .property[data-name="text"] textarea').first.fill("hello")
    page.locator(".call-view .run").click()
    expect(page.locator(".call-state")).to_contain_text("Done")
    page.get_by_role("tab", name="Server").click()
    page.locator(".panels [role=treeitem][aria-expanded=false]:visible").first.click()
    unfolded = page.locator(".panels [role=treeitem][aria-expanded=true]:visible").first
    expect(unfolded).to_be_visible()
    tree = kept(unfolded)
    page.get_by_role("tab", name="History").click()
    elements = kept(
        page.locator(".call-entry").filter(has_text="speak"),
        page.locator('[data-item="tool/ship"]'),
        page.locator('[data-item="group/tools"]'),
        page.get_by_role("button", name="Disconnect bench"),
        page.locator(".connection-name"),
    )
    page.locator('[data-item="tool/count"]').click()
    page.locator('.property[data-name="to"] input:not(.include)').fill("20")
    page.locator(".call-view .run").click()
    expect(page.locator(".call-state")).to_contain_text("Done")
    assert_kept(elements)
    # The menu and the list of tools change.
    page.locator('[data-item="tool/change_menu"]').click()
    page.locator('.property[data-name="dish"] textarea').fill("pie")
    page.locator(".call-view .run").click()
    expect(page.locator('[data-item="tool/eat_pie"]')).to_be_visible()
    assert_kept(elements)
    page.get_by_role("tab", name="Server").click()
    assert_kept(tree)


def test_the_form_that_connects_stays_while_another_page_connects(opened: Opened, serve: Serve) -> None:
    page, other = opened.page(), opened.page()
    url = serve("--", *SERVER)
    page.goto(url)
    page.get_by_role("button", name="Disconnect bench").click()
    expect(page).to_have_url(re.compile("#/workbench/new$"))
    other.goto(f"{url.partition('#')[0]}#/workbench/new")
    elements = kept(page.get_by_role("button", name="Connect to it again"), page.get_by_role("textbox", name="Command"))
    other.get_by_role("textbox", name="Command").fill("no-such-program")
    other.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator(".connection")).to_have_count(1)
    assert_kept(elements)


def test_the_log_follows_its_end(page: Page, serve: Serve) -> None:
    page.goto(serve("--", *SERVER))
    page.locator('[data-item="tool/flood"]').click()
    page.locator(".call-view .run").click()
    last = page.locator(".log-line").filter(has_text="line 200 of 200")
    expect(last).to_be_in_viewport()
    expect(page.get_by_label("Level of the log")).to_be_in_viewport()


@pytest.mark.req("VIW-2")
def test_the_page_catches_up_after_a_pause_and_says_when_the_program_has_ended(
    opened: Opened, serve: Serve, writer: RecordingWriter, running: list[subprocess.Popen[str]]
) -> None:
    page = opened.page()
    page.goto(serve())
    expect(page.get_by_text("Nothing was said yet.")).to_be_visible()
    running[0].send_signal(signal.SIGSTOP)
    story, _ = call("Oslo", 0.1)
    writer.write(story.records)
    running[0].send_signal(signal.SIGCONT)
    expect(page.locator(".vlist-row:visible")).to_contain_text("Oslo")
    running[0].kill()
    expect(page.locator("#link-state")).to_have_text("Connection lost: is mcplumb view still running?")
    page.close()  # it would go on to try, and to complain
    assert all("Failed to load resource" in each for each in opened.complaints)  # the browser says so itself
    opened.complaints.clear()
