"""Answers may overtake each other, and the user may be faster than an answer: what is shown is what is so now."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Opened, Serve
from tests.browser.recordings import Story, header, weather
from tests.view.workbench.bench import SERVER

if TYPE_CHECKING:
    from playwright.sync_api import APIResponse, Page, Route

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
from playwright.sync_api import expect

pytestmark = pytest.mark.req("VIW-2")


class Held:
    """Keeps the answer to one request of a page, until it is let through: the server has answered it long ago."""

    def __init__(self, page: Page, url: str, method: str = "GET") -> None:
        self._page = page
        self._url = re.compile(url)
        self._method = method
        self._kept: list[tuple[Route, APIResponse]] = []
        self._is_taken = False
        page.route(self._url, self._take)

    def _take(self, route: Route) -> None:
        if self._is_taken or route.request.method != self._method:
            route.continue_()
            return
        self._is_taken = True
        self._kept.append((route, route.fetch()))

    def wait(self) -> None:
        """Wait until there is one."""
        deadline = time.monotonic() + 60
        while not self._kept:
            assert time.monotonic() < deadline, f"Nobody has asked for {self._url.pattern}."
            self._page.wait_for_timeout(10)

    def let_through(self) -> None:
        """Let the page have it, and wait until that has made of it what it wants."""
        [(route, response)] = self._kept
        route.fulfill(response=response)
        for _ in range(5):
            self._page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")


@pytest.fixture
def bench(page: Page, serve: Serve) -> Page:
    page.goto(serve("--", *SERVER))
    expect(page.locator('[data-item="tool/ship"]')).to_be_visible()
    # The last of what it asks for at first.
    expect(page.locator(".log")).to_contain_text("Connected: bench")
    return page


def run(page: Page, tool: str, **fields: str) -> None:
    page.locator(f'[data-item="tool/{tool}"]').click()
    expect(page.locator(".call-view h2")).to_contain_text(tool)
    for name, text in fields.items():
        page.locator(f'.property[data-name="{name}"] textarea').fill(text)
    page.locator(".call-view .run").click()


def test_an_old_answer_takes_back_neither_a_question_nor_a_call(bench: Page) -> None:
    held = Held(bench, r"/connections/1$")
    bench.get_by_label("Level of the log").select_option("debug")
    held.wait()
    run(bench, "reserve")
    dialog = bench.get_by_role("dialog", name="bench asks")
    expect(dialog).to_be_visible()
    held.let_through()
    expect(dialog).to_be_visible()
    dialog.locator("textarea").first.fill("Ada")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(bench.locator(".call-result")).to_contain_text("2 seats for Ada")
    # The same, with a call that has ended, of which nothing is told any more.
    held = Held(bench, r"/connections/1$")
    bench.get_by_label("Level of the log").select_option("info")
    held.wait()
    run(bench, "count")
    expect(bench.locator(".call-result")).to_contain_text("counted to 5")
    held.let_through()
    bench.get_by_role("tab", name="History").click()
    expect(bench.locator(".call-entry")).to_have_count(2)


def test_an_old_list_does_not_replace_a_newer_one(bench: Page) -> None:
    held = Held(bench, r"/connections/1/lists/tools$")
    run(bench, "change_menu", dish="pie")
    held.wait()
    run(bench, "change_menu", dish="tart")
    expect(bench.locator('[data-item="tool/eat_tart"]')).to_be_visible()
    held.let_through()
    expect(bench.locator('[data-item="tool/eat_tart"]')).to_be_visible()


def test_the_call_that_was_chosen_last_is_shown(bench: Page) -> None:
    for tool in ("media", "count"):
        run(bench, tool)
        expect(bench.locator(".call-state")).to_contain_text("Done")
    bench.get_by_role("tab", name="History").click()
    expect(bench.locator(".call-entry")).to_have_count(2)
    bench.locator('[data-item="tool/ship"]').click()
    expect(bench.locator(".call-view h2")).to_contain_text("ship")
    held = Held(bench, r"/connections/1/calls/1$")
    bench.locator(".call-entry").filter(has_text="media").click()
    held.wait()
    bench.locator(".call-entry").filter(has_text="count").click()
    expect(bench.locator(".call-view h2")).to_contain_text("count")
    held.let_through()
    expect(bench.locator(".call-view h2")).to_contain_text("count")


def test_old_details_do_not_say_that_it_still_connects(page: Page, serve: Serve, tmp_path: Path) -> None:
    held = Held(page, r"/connections/1$")
    start = "import pathlib, runpy, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    page.goto(serve("--", SERVER[0], "-c", f"{start}runpy.run_path({SERVER[1]!r}, run_name='__main__')"))
    held.wait()
    (tmp_path / "go").touch()
    expect(page.locator('[data-item="tool/ship"]')).to_be_visible()
    held.let_through()
    expect(page.locator('[data-item="tool/ship"]')).to_be_visible()


def test_an_old_list_of_connections_does_not_replace_a_newer_one(page: Page, serve: Serve) -> None:
    held = Held(page, r"/api/workbench$")
    page.goto(serve() + "#/workbench")
    held.wait()
    page.get_by_role("textbox", name="Command").fill("no-such-program")  # there because it asks twice at first
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator(".log")).to_contain_text("could not be started")  # the last of what it asks for
    held.let_through()
    expect(page.locator(".connection")).to_have_count(1)
    expect(page.get_by_role("heading", name="Not connected to no-such-program")).to_be_visible()


def test_an_old_list_of_sessions_does_not_replace_a_newer_one(page: Page, serve: Serve, folder: Path) -> None:
    weather().write(header("weather", now=time.time() - 300), folder)
    page.goto(serve())
    expect(page.locator(".filter-count")).to_have_text("27")
    held = Held(page, r"/api/sessions$")
    for at, name in enumerate(("one", "two")):
        Story().write(header(name, now=time.time() - 100), folder)
        if not at:
            held.wait()
    expect(page.locator(".session-open")).to_have_count(3)
    held.let_through()
    expect(page.locator(".session-open")).to_have_count(3)


def test_a_session_that_was_opened_meanwhile_is_shown(page: Page, serve: Serve, folder: Path) -> None:
    weather().write(header("weather", now=time.time() - 300), folder)
    page.goto(f"{serve()}#/watch/none")
    expect(page.get_by_role("heading", name="Select a session")).to_be_visible()
    held = Held(page, r"/api/sessions$")
    page.evaluate("location.hash = '#/watch/0123456789abcdef'")
    held.wait()
    page.locator(".session-open").click()
    expect(page.locator(".pane-head h2")).to_have_text("weather")
    held.let_through()
    expect(page.locator(".pane-head h2")).to_have_text("weather")


def test_a_search_that_was_cleared_filters_nothing(page: Page, serve: Serve, folder: Path) -> None:
    weather().write(header("weather", now=time.time() - 300), folder)
    page.goto(serve())
    expect(page.locator(".filter-count")).to_have_text("27")
    held = Held(page, r"/search\?")
    page.keyboard.press("/")
    page.keyboard.insert_text("Lisbon")
    held.wait()
    page.locator("main").focus()
    page.keyboard.press("x")
    held.let_through()
    page.keyboard.press("c")
    expect(page.locator(".filter-count")).to_have_text(re.compile(r"^\d\d of 27$"))


def test_whoever_goes_on_while_a_connection_is_made_is_not_taken_back(page: Page, serve: Serve) -> None:
    page.goto(serve() + "#/workbench")
    held = Held(page, r"/api/workbench/connections$", "POST")
    command = page.get_by_role("textbox", name="Command")
    command.fill("no-such-program")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator(".work")).to_contain_text("Not connected to no-such-program")
    held.wait()
    page.get_by_role("button", name="+ Connect").click()
    expect(command).to_be_visible()
    held.let_through()
    expect(page).to_have_url(re.compile("#/workbench/new$"))
    expect(command).to_be_visible()


def test_whoever_connects_while_another_connection_ends_gets_to_it(bench: Page) -> None:
    ending = Held(bench, r"/connections/1$", "DELETE")
    bench.get_by_role("button", name="Disconnect bench").click()
    ending.wait()
    bench.get_by_role("textbox", name="Command").fill("no-such-program")
    asked: list[Route] = []
    bench.route("**/api/workbench/connections", lambda route: asked.append(route))  # noqa: PLW0108 - as it is marked
    bench.get_by_role("button", name="Connect", exact=True).click()
    while not asked:
        bench.wait_for_timeout(10)
    ending.let_through()
    expect(bench).to_have_url(re.compile("#/workbench/new$"))
    asked.pop().continue_()
    expect(bench.get_by_role("heading", name="Not connected to no-such-program")).to_be_visible()


def test_what_connects_keeps_the_focus(opened: Opened, serve: Serve) -> None:
    page = opened.page()
    page.goto(serve() + "#/workbench/new")
    held = Held(page, r"/api/workbench/connections$", "POST")
    page.get_by_role("textbox", name="Command").fill("'")
    page.get_by_role("button", name="Connect", exact=True).focus()
    page.keyboard.press("Enter")
    held.wait()
    page.keyboard.press("Enter")  # by mistake
    held.let_through()
    expect(page.get_by_role("alert").filter(has_text="cannot be split into words")).to_be_visible()
    expect(page.locator(".connect-form button:focus")).to_have_count(1)
    assert sum(url.endswith("/connections") for url in opened.requests) == 1


def test_what_is_disabled_hands_the_focus_on(bench: Page) -> None:
    bench.get_by_label("Level of the log").focus()
    bench.get_by_label("Level of the log").evaluate("(level) => (level.disabled = true)")
    expect(bench.locator(".panels :focus:not(:disabled)")).to_have_count(1)
