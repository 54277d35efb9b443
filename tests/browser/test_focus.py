"""Whoever works by keyboard stays where they are: the focus is never lost, whatever is removed, hidden or disabled."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Serve
from tests.browser.recordings import Story, header, weather
from tests.view.workbench.bench import SERVER

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
from playwright.sync_api import expect

pytestmark = pytest.mark.req("VIW-2")


def expect_focus(page: Page, selector: str) -> None:
    expect(page.locator(f"{selector}:focus")).to_have_count(1)


@pytest.fixture
def bench(page: Page, serve: Serve) -> Page:
    page.goto(serve("--", *SERVER))
    expect(page.locator('[data-item="tool/ship"]')).to_be_visible()
    return page


def choose(page: Page, name: str) -> None:
    page.locator(f'[data-item="tool/{name}"]').focus()
    page.keyboard.press("Enter")
    expect(page.locator(".call-view h2")).to_contain_text(name)


def test_a_call_leaves_the_focus_where_it_was(bench: Page) -> None:
    choose(bench, "count")
    bench.locator(".run").focus()
    for _ in range(2):
        bench.keyboard.press("Enter")
        expect(bench.locator(".call-result")).to_contain_text("counted to 5")
        expect_focus(bench, ".run")
    # Cancelled with its own button, which is gone then.
    choose(bench, "wait")
    bench.locator(".run").focus()
    bench.keyboard.press("Enter")
    bench.get_by_role("button", name="Cancel").focus()
    bench.keyboard.press("Enter")
    expect(bench.locator(".call-state")).to_contain_text("Cancelled")
    expect_focus(bench, ".run")
    # Sent although the schema does not allow it.
    choose(bench, "ship")
    bench.locator(".run").focus()
    bench.keyboard.press("Enter")
    bench.get_by_role("button", name="Send it anyway").focus()
    bench.keyboard.press("Enter")
    expect(bench.locator(".call-state")).to_contain_text("Failed")
    expect_focus(bench, ".call-bar button")


def test_a_dialog_gives_the_focus_back(bench: Page) -> None:
    choose(bench, "reserve")
    bench.locator(".run").focus()
    bench.keyboard.press("Enter")
    expect_focus(bench, "dialog textarea")
    bench.keyboard.type("Ada")
    bench.get_by_role("dialog").get_by_role("button", name="Send").focus()
    bench.keyboard.press("Enter")
    expect(bench.locator(".call-result")).to_contain_text("2 seats for Ada")
    expect_focus(bench, ".run")


def test_what_is_removed_hands_the_focus_on(bench: Page) -> None:
    choose(bench, "count")
    for title in ("one", "two"):
        bench.get_by_role("button", name="Save", exact=True).click()
        bench.get_by_label("Name").fill(title)
        bench.keyboard.press("Enter")
    bench.get_by_role("tab", name="Saved").click()
    delete = bench.get_by_role("button", name=re.compile("^Delete "))
    expect(delete).to_have_count(2)
    for left in (1, 0):
        delete.first.focus()
        bench.keyboard.press("Enter")
        expect(delete).to_have_count(left)
        expect_focus(bench, ".panels *")
    expect(bench.get_by_text("No call is saved.")).to_be_visible()
    # A connection that is closed, and the form that opens another one.
    bench.get_by_role("button", name="Disconnect bench").focus()
    bench.keyboard.press("Enter")
    expect(bench.get_by_role("heading", name="Try a server")).to_be_visible()
    expect_focus(bench, ".workbench *")
    bench.get_by_role("textbox", name="Command").fill(f"{sys.executable} -c pass")
    bench.get_by_role("button", name="Connect", exact=True).focus()
    bench.keyboard.press("Enter")
    expect(bench.get_by_role("heading", name=re.compile("^Not connected"))).to_be_visible()
    expect_focus(bench, ".workbench *")
    # The focus goes to the new connection, and not to the first one.
    bench.keyboard.press("n")
    bench.get_by_role("textbox", name="Command").fill(f"{sys.executable} -c exit(3)")
    bench.keyboard.press("Enter")
    expect(bench.get_by_role("heading", name=re.compile("^Not connected.*exit"))).to_be_visible()
    expect_focus(bench, ".connection-name[aria-current]")


#: Where the element that has the focus is covered by another one, which is named; else an empty text.
COVERED = """() => {
  const focused = document.activeElement;
  const { left, top, width, height } = focused.getBoundingClientRect();
  const at = document.elementFromPoint(left + Math.min(width / 2, 100), top + height / 2);
  return at && (focused.contains(at) || at.contains(focused)) ? "" : `${focused.outerHTML} by ${at?.outerHTML}`;
}"""


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (400, 800), (640, 400)])
def test_what_has_the_focus_is_not_covered(bench: Page, width: int, height: int) -> None:
    """The bar with the button that calls stays in sight below a long form, and the filter above a long list."""
    bench.set_viewport_size({"width": width, "height": height})
    choose(bench, "schemas")
    bench.locator(".include:not(:checked)").evaluate_all("(all) => all.forEach((each) => each.click())")
    bench.get_by_role("button", name="JSON", exact=True).focus()
    for key in ("Tab", "Shift+Tab"):
        for _ in range(45):
            bench.keyboard.press(key)
            assert bench.evaluate(COVERED) == ""
    bench.locator(".run").click()
    expect(bench.get_by_role("button", name="Send it anyway")).to_be_attached()
    expect_focus(bench, '[aria-invalid="true"]')
    assert bench.evaluate(COVERED) == ""


def test_a_click_beside_everything_is_left_alone(bench: Page) -> None:
    choose(bench, "count")
    bench.locator(".item-head .description").click()
    expect(bench.locator("main :focus")).to_have_count(0)
    bench.keyboard.press("Control+Enter")
    expect(bench.locator(".call-result")).to_contain_text("counted to 5")
    expect(bench.locator("main :focus")).to_have_count(0)


def test_more_of_a_long_message_is_reached_by_keyboard(page: Page, serve: Serve, folder: Path) -> None:
    story = Story()
    story.request(0.1, "tools/call", name="sum", arguments={"numbers": list(range(250)), "text": "long " * 1000})
    story.write(header("long", now=time.time() - 100), folder)
    page.goto(serve())
    page.locator(".vlist-row").first.click()
    page.locator('.detail [role="treeitem"]', has_text="numbers").last.focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="Show more (150 left)").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "100: 100"
    page.get_by_role("button", name="Show all 5,000 characters").focus()
    page.keyboard.press("Enter")
    expect_focus(page, '.detail [role="treeitem"]')


def test_the_details_scroll_and_close_by_keyboard(page: Page, serve: Serve, folder: Path) -> None:
    weather().write(header("weather", now=time.time() - 300), folder)
    page.goto(serve())
    page.locator(".vlist-row").filter(has_text="Bergen").first.click()
    chosen = page.locator('.vlist-row[aria-selected="true"]')
    page.get_by_role("tab", name="Raw").focus()
    page.keyboard.press("Enter")
    page.locator(".detail [role=tabpanel]:visible").focus()
    page.keyboard.press("ArrowDown")  # scrolls the text, and does not go to the next message
    expect(chosen).to_contain_text("Bergen")
    page.keyboard.press("j")
    expect(chosen).to_contain_text("Paris")
    page.get_by_role("button", name="Close the details").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".detail")).to_be_hidden()
    expect_focus(page, ".vlist")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".detail")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".detail")).to_be_hidden()


def test_the_details_close_by_keyboard_while_they_load(page: Page, serve: Serve, folder: Path) -> None:
    weather().write(header("weather", now=time.time() - 300), folder)
    page.goto(serve())
    page.locator(".vlist-row").filter(has_text="Bergen").first.click()
    detail = page.locator(".detail")
    expect(detail.locator('[role="tree"]').first).to_contain_text("Bergen")
    held: list[Route] = []
    page.route("**/records/*", lambda route: held.append(route))  # noqa: PLW0108 - playwright marks what it is given
    page.keyboard.press("j")
    page.get_by_role("button", name="Close the details").focus()
    expect(detail).to_have_attribute("aria-busy", "true")
    for _ in range(2):  # the request and its answer
        while not held:
            page.wait_for_timeout(10)
        held.pop().continue_()
    expect(detail.locator('[role="tree"]').first).to_contain_text("Paris")
    expect_focus(page, ".detail-close")
    page.keyboard.press("Enter")
    expect(detail).to_be_hidden()


def test_rows_are_read_out_as_they_look(page: Page, serve: Serve, folder: Path) -> None:
    weather().write(header("weather", now=time.time() - 300), folder)
    page.goto(serve())
    option = page.get_by_role("option", name=re.compile(r"4\.500.*tools.call.*Bergen.*11\.90 s.*from the client"))
    expect(option).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_text("mcplumb")
