"""Watch sessions in a real browser: live and recorded, by filters, on the timeline, side by side, by keyboard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mcplumb.recording.recorder import RecordingWriter
from mcplumb.recording.recording_format import Record
from mcplumb.types.method_table import METHODS
from tests.browser.conftest import Opened, Serve
from tests.browser.recordings import Story, header, weather
from tests.kit.loop import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
from playwright.sync_api import expect


@pytest.fixture
def recorded(folder: Path) -> Path:
    return weather().write(header("weather", now=time.time() - 3600), folder)


@pytest.fixture
def watched(page: Page, serve: Serve, recorded: Path) -> Page:
    """A page that shows the session."""
    page.goto(serve())
    expect(rows(page).first).to_be_visible()
    expect(page.locator(".filter-count")).to_have_text("27")
    return page


def rows(page: Page) -> Locator:
    return page.locator(".vlist-row:visible")


def row(page: Page, text: str) -> Locator:
    return rows(page).filter(has_text=text).first


def shown(page: Page) -> int:
    """How many rows pass the filters."""
    return int((page.locator(".filter-count").inner_text()).split(" ")[0])


@pytest.mark.req("VIW-2")
def test_a_live_session_is_watched(page: Page, serve: Serve, folder: Path) -> None:
    page.goto(serve())
    expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    folder.mkdir(parents=True)
    writer = RecordingWriter(header("weather", now=time.time()), folder)
    expect(page.locator(".pane-head .badge.is-live")).to_be_visible()
    story = Story()
    id_ = story.request(0.1, "tools/call", name="forecast", arguments={"city": "Oslo"})
    writer.write(story.records)
    expect(row(page, "Oslo").locator(".cell-outcome")).to_contain_text("open")
    row(page, "Oslo").click()
    expect(page.locator(".detail")).to_contain_text("Request")
    expect(page.locator(".detail")).not_to_contain_text("Answer")
    story.records.clear()
    story.text(0.35, id_, "Oslo: sun.")
    writer.write(story.records)
    expect(row(page, "Oslo").locator(".cell-outcome")).to_have_text("250 ms")
    expect(page.locator(".detail")).to_contain_text("Oslo: sun.")
    writer.close()
    expect(page.locator(".pane-head .badge.is-live")).to_be_hidden()


@pytest.mark.req("VIW-2")
def test_numbers_are_shown_as_they_were_sent(page: Page, serve: Serve, folder: Path) -> None:
    story = Story()
    story.request(0.1, "tools/call", name="pay", arguments={"account": 12345678901234567890})
    story.write(header("bank", now=time.time() - 100), folder)
    page.goto(serve())
    row(page, "pay").click()
    expect(page.locator(".detail [role=tree]")).to_contain_text("account: 12345678901234567890")


def test_a_session_that_was_closed_stays_closed(page: Page, serve: Serve, folder: Path) -> None:
    folder.mkdir(parents=True)
    writer = RecordingWriter(header("weather", now=time.time()), folder)
    page.goto(serve())
    page.get_by_role("button", name="Close this session").click()
    expect(page.get_by_role("heading", name="Select a session")).to_be_visible()
    other = RecordingWriter(header("notes", now=time.time()), folder)
    expect(page.locator(".session-open")).to_have_count(2)
    expect(page.get_by_role("heading", name="Select a session")).to_be_visible()
    page.locator(".session-open").filter(has_text="notes").click()
    expect(page.locator(".pane-head h2")).to_have_text("notes")
    writer.close()
    other.close()


SERVER = """
import asyncio, sys
from pathlib import Path
from mcplumb import Context, Server

server = Server("slow-weather")

@server.tool
async def forecast(city: str, ctx: Context) -> str:
    print("looking up", city, file=sys.stderr)
    await ctx.report_progress(1, 2, "asked the station")
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return f"{city}: sun."

server.run()
"""


@pytest.mark.req("VIW-2")
def test_a_host_and_its_server_are_watched_through_a_tap(
    page: Page, serve: Serve, folder: Path, tmp_path: Path
) -> None:
    """A real client, the real tap, and a real server, which answers when it is told to."""
    (tmp_path / "server.py").write_text(SERVER)
    page.goto(serve())
    mcplumb = [sys.executable, "-m", "mcplumb"]
    command = [*mcplumb, "call", "forecast", "city=Oslo", "--", *mcplumb, "tap", "--", sys.executable, "server.py"]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder.parent.parent), "HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as host:
        try:
            expect(page.locator(".pane-head .badge.is-live")).to_be_visible()
            expect(page.locator(".who-server")).to_contain_text("slow-weather")
            call = row(page, "Oslo")
            expect(call.locator(".cell-outcome")).to_contain_text("open")
            expect(row(page, "asked the station")).to_be_visible()
            expect(row(page, "looking up Oslo")).to_be_visible()
        finally:
            (tmp_path / "go").touch()
        said, _ = host.communicate(timeout=60)
    assert "Oslo: sun." in said
    # On a machine that is busy, the answer may have been slow.
    expect(row(page, '"Oslo"').locator(".cell-outcome")).to_have_class(re.compile("^cell-outcome (is-warn)?$"))
    expect(page.locator(".pane-head .badge.is-live")).to_be_hidden()
    expect(rows(page).filter(has_text="exit")).to_have_count(1)


def test_events_say_whose_they_are(page: Page, serve: Serve, folder: Path) -> None:
    story = Story()
    story.request(0.1, "ping")
    story.records += [
        Record(t=0.2, event="lost", sender="client", records=1, reason="The disk is full."),
        Record(t=0.3, event="end_of_input", sender="client"),
        Record(t=0.4, event="end_of_input", sender="server"),
        Record(t=0.5, event="signal", signal="SIGTERM"),
    ]
    story.write(header("ends", now=time.time() - 300), folder)
    page.goto(serve())
    ends = rows(page).filter(has_text="end of input")
    expect(ends.locator(".cell-way")).to_have_text(["→", "←"])
    expect(row(page, "SIGTERM").locator(".cell-way")).to_have_text("")
    expect(page.locator(".pane-head")).to_contain_text("1 record lost")
    expect(page.locator(".pane-head")).to_contain_text("1 message in")


def test_the_methods_of_the_protocol_are_not_cut_off(page: Page, serve: Serve, folder: Path) -> None:
    story = Story()
    for at, name in enumerate(METHODS):
        if name.startswith("notifications/"):
            story.say(at, "server", method=name)
        else:
            story.request(at, name)
    story.write(header("methods", now=time.time() - 300), folder)
    page.set_viewport_size({"width": 1280, "height": 1300})
    page.goto(serve())
    expect(rows(page)).to_have_count(len(METHODS))
    cut: list[str] = page.locator(".vlist-row .cell-method").evaluate_all(
        "(all) => all.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.textContent)"
    )
    assert cut == []


@pytest.mark.req("VIW-2")
def test_filters(watched: Page) -> None:
    page = watched
    page.keyboard.press("/")
    page.keyboard.type("bergen: RAIN")
    expect(page.locator(".filter-count")).to_have_text("1 of 27")
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("Bergen")  # it is the answer that has the text
    page.keyboard.press("Escape")  # empties the field
    expect(page.locator(".filter-count")).to_have_text("27")
    page.get_by_label("Filter by method").select_option("tools/list")
    expect(page.locator(".filter-count")).to_have_text("1 of 27")
    page.get_by_label("Filter by method").select_option("")
    page.get_by_label("Filter by id").fill("3")
    expect(page.locator(".filter-count")).to_have_text("1 of 27")
    expect(rows(page).first).to_contain_text("Oslo")
    page.get_by_role("button", name="Clear", exact=True).click()
    page.get_by_label("Filter by direction").select_option("server")
    expect(rows(page).filter(has_text="→")).to_have_count(0)
    page.locator("main").focus()
    page.keyboard.press("x")
    expect(page.locator(".filter-count")).to_have_text("27")
    for key, least in (("e", 3), ("f", 2), ("s", 2), ("c", 14)):
        page.keyboard.press(key)
        expect(page.locator(".filter-count")).to_contain_text(" of 27")
        eventually(page, lambda: shown(page) >= least)  # noqa: B023 - called at once
        page.keyboard.press("x")
        expect(page.locator(".filter-count")).to_have_text("27")
    page.get_by_label("Filter by id").fill("nothing")
    expect(page.get_by_text("No message passes the filters")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()
    expect(page.locator(".filter-count")).to_have_text("27")


def test_a_message_is_opened(watched: Page) -> None:
    page = watched
    row(page, '"Oslo","days":2').click()
    detail = page.locator(".detail")
    expect(detail.get_by_role("tree").first).to_contain_text('city: "Oslo"')
    expect(detail.get_by_role("tree").last).to_contain_text("high: 21.5")
    expect(page).to_have_url(re.compile(r"#/watch/[0-9a-f]+/\d+$"))
    detail.get_by_role("tab", name="Raw").click()
    expect(detail.locator("pre:visible").first).to_contain_text('{"jsonrpc":"2.0","id":3,"method":"tools/call"')
    detail.get_by_role("tab", name="Checks").click()
    expect(
        detail.locator(".check-list li.is-ok").filter(has_text="The arguments of forecast, by its schema")
    ).to_be_visible()
    expect(detail.locator(".check-list li.is-error")).to_have_count(0)
    detail.get_by_role("tab", name="Copy as").click()
    expect(detail.locator("pre:visible").first).to_have_text(
        'mcplumb call forecast --args \'{"city":"Oslo","days":2}\' -- python weather.py'
    )
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    detail.get_by_role("button", name="Copy", exact=True).first.click()
    eventually(page, lambda: "mcplumb call forecast" in page.evaluate("navigator.clipboard.readText()"))
    # The address leads to the same message again.
    page.reload()
    expect(page.locator(".detail-head")).to_contain_text("forecast")


def test_what_breaks_a_schema_is_said(watched: Page) -> None:
    page = watched
    row(page, "Bergen").click()
    page.locator(".detail").get_by_role("tab", name="Checks").click()
    wrong = page.locator(".check-list li.is-error")
    expect(wrong).to_have_count(1)
    expect(wrong).to_contain_text("The structured content of forecast, by its schema")
    page.locator(".detail").get_by_role("tab", name="Progress").click()
    expect(page.locator(".related li")).to_have_count(5)
    page.locator(".related button").first.click()
    expect(page.locator(".detail-head")).to_contain_text("progress")


def test_findings_lead_to_their_lines(watched: Page) -> None:
    page = watched
    page.keyboard.press("F")
    finding = page.locator(".finding").filter(has_text="stray-output")
    expect(finding).to_contain_text("DEBUG cache refreshed")
    finding.locator(".finding-lines button").first.click()
    expect(page.locator('.vlist-row[aria-selected="true"]')).to_contain_text("not a message")
    expect(page.locator(".detail pre:visible")).to_contain_text("DEBUG cache refreshed")


def eventually(page: Page, is_so: Callable[[], bool]) -> None:
    """Wait for what the page draws, which is in one of its next frames."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline, "The page did not draw it."
        page.wait_for_timeout(50)


def settle(page: Page) -> None:
    """Wait until what has happened so far is drawn."""
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")


def colors(page: Page) -> set[tuple[int, int, int]]:
    """The colours on the timeline."""
    found: list[list[int]] = page.evaluate(
        """() => {
          const canvas = document.querySelector(".timeline-canvas");
          // Of a copy: Chromium complains on the console about one that is read more than once.
          const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
          copy.drawImage(canvas, 0, 0);
          const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
          const found = new Set();
          for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3] === 255) found.add(data.slice(at, at + 3).join());
          }
          return [...found].map((each) => each.split(",").map(Number));
        }"""
    )
    return {tuple(each) for each in found}  # type: ignore[misc]


def color(page: Page, name: str) -> tuple[int, int, int]:
    """A colour of the present theme."""
    text: str = page.evaluate(
        """(name) => {
          const probe = document.createElement("span");
          probe.style.color = `var(--${name})`;
          document.body.append(probe);
          const found = getComputedStyle(probe).color;
          probe.remove();
          return found;
        }""",
        name,
    )
    red, green, blue = map(int, re.findall(r"\d+", text))
    return red, green, blue


@pytest.mark.req("VIW-2")
def test_a_call_is_followed_on_the_timeline(watched: Page) -> None:
    page = watched
    wanted = {color(page, "warn"), color(page, "error"), color(page, "user")}  # slow, hanging, asked
    eventually(page, lambda: wanted <= colors(page))
    row(page, "Bergen").click()
    page.keyboard.press("z")
    # The slow call now fills the middle third, so a click in the middle of its lane is a click on it.
    page.keyboard.press("Escape")
    expect(page.locator(".detail")).to_be_hidden()
    box = page.locator(".timeline-canvas").bounding_box()
    assert box is not None
    middle = 58 + (box["width"] - 58) / 2
    page.locator(".timeline-canvas").click(position={"x": middle, "y": 26})
    expect(page.locator('.vlist-row[aria-selected="true"]')).to_contain_text("Bergen")
    expect(page.locator(".detail")).to_contain_text("Bergen: rain")
    canvas = page.locator(".timeline-canvas")
    canvas.focus()
    before = canvas.screenshot()
    page.keyboard.press("ArrowRight")
    eventually(page, lambda: canvas.screenshot() != before)
    page.mouse.move(box["x"] + middle, box["y"] + 30)
    settle(page)
    moved = canvas.screenshot()
    page.mouse.wheel(0, -300)
    eventually(page, lambda: canvas.screenshot() != moved)
    page.keyboard.press("0")


def test_two_sessions_side_by_side(page: Page, serve: Serve, recorded: Path, folder: Path) -> None:
    other = Story()
    other.text(0.02, other.request(0.01, "tools/call", name="forecast", arguments={"city": "Oslo"}), "Oslo: snow.")
    other.write(header("weather-new", now=time.time() - 60), folder)
    page.goto(serve(str(recorded)))
    expect(page.locator(".pane")).to_have_count(1)
    expect(page.locator(".pane-head h2")).to_have_text("weather")
    page.get_by_role("button", name="Compare with weather-new").click()
    panes = page.locator(".pane")
    expect(panes).to_have_count(2)
    # Sessions of one server have one name: the time tells them apart.
    for pane in (panes.nth(0), panes.nth(1)):
        expect(pane.locator(".pane-started")).to_be_visible()
        expect(pane.locator(".pane-started")).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
    expect(panes.nth(0).locator(".filter-count")).to_have_text("27")
    expect(panes.nth(1).locator(".filter-count")).to_have_text("1")
    panes.nth(1).locator(".vlist-row:visible").first.click()
    expect(panes.nth(1).locator(".detail")).to_contain_text("Oslo: snow.")
    expect(panes.nth(0).locator(".detail")).to_be_hidden()
    panes.nth(0).get_by_role("button", name="Close this session").click()
    # First the count: a locator that finds two elements is an error at once, and is not tried again.
    expect(panes).to_have_count(1)
    expect(page.locator(".pane-head h2")).to_have_text("weather-new")


@pytest.mark.req("VIW-2")
def test_everything_by_keyboard(watched: Page) -> None:
    page = watched
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard")
    expect(dialog).to_contain_text("Next message")
    expect(dialog).to_contain_text("Connect to another server")  # of the section that was not opened yet
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    for _ in range(4):
        page.keyboard.press("j")
    expect(page.locator('.vlist-row[aria-selected="true"]')).to_contain_text("Oslo")
    page.locator(".vlist").focus()
    page.keyboard.press("End")
    expect(page.locator('.vlist-row[aria-selected="true"]')).to_contain_text("exit")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(page.locator('.vlist-row[aria-selected="true"]')).to_contain_text("server/discover")
    expect(page.locator('.detail[aria-busy="true"]')).to_have_count(0)
    expect(page.get_by_role("tree", name="Request")).to_be_visible()
    # The tabs and the tree, with the arrow keys.
    page.locator(".detail [role=tab]").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".detail pre:visible").first).to_contain_text("server/discover")
    page.keyboard.press("ArrowLeft")
    page.locator(".detail [role=treeitem]").first.focus()
    page.keyboard.press("End")
    before = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.textContent") != before
    folding = page.locator(".detail [role=treeitem][aria-expanded=true]").first
    folding.focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    # The splitter, the list of sessions, the sections, the theme.
    page.get_by_role("separator").focus()
    width = page.get_by_role("separator").get_attribute("aria-valuenow")
    page.keyboard.press("ArrowLeft")
    assert page.get_by_role("separator").get_attribute("aria-valuenow") != width
    page.locator("main").focus()
    page.keyboard.press("l")
    assert page.evaluate("document.activeElement.className") == "session-open"
    page.locator("main").focus()
    for theme in ("light", "dark"):
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == theme
    page.keyboard.press("2")
    expect(page.get_by_role("region", name="Workbench")).to_be_visible()
    page.keyboard.press("1")
    expect(page.get_by_role("region", name="Watch")).to_be_visible()


def test_single_keys_can_be_switched_off(watched: Page) -> None:
    page = watched
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_role("checkbox").uncheck()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("e")
    page.keyboard.press("ArrowDown")  # moves still
    expect(page.locator('.vlist-row[aria-selected="true"]')).to_have_count(1)
    expect(page.locator(".filter-count")).to_have_text("27")
    page.get_by_role("button", name="Keyboard help").click()
    page.get_by_role("dialog").get_by_role("checkbox").check()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Keyboard help")).to_be_focused()
    page.keyboard.press("e")
    expect(page.locator(".filter-count")).to_contain_text(" of 27")


@pytest.mark.req("VIW-2")
def test_what_was_chosen_is_kept_across_starts(opened: Opened, serve: Serve, folder: Path) -> None:
    """Each start has another port, for which the browser keeps nothing."""
    for before, after in (("auto", "light"), ("light", "dark")):
        page = opened.page()
        page.goto(serve())
        button = page.get_by_role("button", name=f"Theme: {before}")
        expect(button).to_be_visible()
        with page.expect_response(lambda each: each.request.method == "POST" and "settings" in each.url) as kept:
            button.click()
        assert kept.value.ok
        expect(page.get_by_role("button", name=f"Theme: {after}")).to_be_visible()
        assert page.evaluate("localStorage.length") == 0


def test_a_session_that_is_not_there_is_said(page: Page, serve: Serve, recorded: Path) -> None:
    page.goto(f"{serve()}#/watch/0123456789abcdef")
    expect(page.get_by_role("heading", name="This session is not there any more")).to_be_visible()
    page.locator(".session-open").first.click()
    expect(page.locator(".pane-head h2")).to_have_text("weather")


def test_the_list_of_sessions_of_a_narrow_window_closes_with_escape(watched: Page) -> None:
    page = watched
    page.set_viewport_size({"width": 400, "height": 800})
    page.keyboard.press("l")
    session = page.locator(".session-open")
    expect(session).to_be_focused()
    page.keyboard.press("Escape")
    expect(session).to_be_hidden()
    expect(page.get_by_role("button", name="Sessions")).to_be_focused()
    # Opened with its button, it does not have the focus.
    page.get_by_role("button", name="Sessions").click()
    expect(session).to_be_visible()
    page.keyboard.press("Escape")
    expect(session).to_be_hidden()


def test_every_control_can_be_reached_and_has_a_name(watched: Page) -> None:
    row(watched, "Oslo").click()
    expect(watched.locator(".detail").get_by_role("tree").first).to_be_visible()
    nameless: list[str] = watched.evaluate(
        """() => [...document.querySelectorAll("button, input, select, [tabindex]")]
            .filter((each) => each.offsetParent !== null && each.tagName !== "MAIN" && each.role !== "treeitem")
            .filter((each) => !["aria-label", "aria-labelledby"].some((name) => each.getAttribute(name)))
            .filter((each) => !each.textContent.trim())
            .map((each) => each.outerHTML)"""
    )
    assert nameless == []


@pytest.mark.parametrize(
    ("width", "height", "scale"), [(1280, 800, 1), (640, 400, 2), (360, 700, 1)], ids=["plain", "zoomed", "narrow"]
)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_can_be_read(
    browser: Any, serve: Serve, recorded: Path, width: int, height: int, scale: int, theme: str
) -> None:
    """Nothing is cut off sideways, also at 200 % zoom, and text has enough contrast."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=scale, color_scheme=theme
    )
    opened = Opened(context)
    page = opened.page()
    page.goto(serve())
    expect(rows(page).first).to_be_attached()
    row(page, "server/discover").click()
    expect(page.locator(".detail [role=tree]").first).to_be_attached()
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert not wide
    inks = ("ink", "ink-soft", "ink-faint", "client", "server", "user", "ok", "warn", "error", "accent")
    code = ("string", "number", "literal", "key")
    for ground in ("page", "panel", "raised", "sunk", "accent-soft"):
        for name in (*inks, *code):
            assert contrast(color(page, name), color(page, ground)) >= 4.5, (name, ground)
        if ground != "accent-soft":
            assert contrast(color(page, "field"), color(page, ground)) >= 3, ("field", ground)
    for name, ground in (("warn", "warn-soft"), ("error", "error-soft"), ("accent-ink", "accent")):
        assert contrast(color(page, name), color(page, ground)) >= 4.5, (name, ground)
    context.close()
    assert opened.complaints == []


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """The contrast of two colours, as WCAG computes it."""

    def luminance(color: tuple[int, int, int]) -> float:
        parts = [each / 255 for each in color]
        linear = [each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
