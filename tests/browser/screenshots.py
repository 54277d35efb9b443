"""Make the pictures of the page that the docs show: ``make screenshots``. Each is made twice, light and dark.

An entry of `SHOTS` is a picture: what is written to the folder of recordings, and how a page is brought to show it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.browser.chromium import FLAGS, find_chromium
from tests.browser.recordings import Story, header, weather
from tests.view.workbench.bench import SERVER

if TYPE_CHECKING:
    from playwright.sync_api import Page

DOCS = Path(__file__).parents[2] / "docs"
#: When the sessions in the pictures took place, in seconds since 1970: not today, so that the pictures stay the same.
WHEN = 1785229200.0
SIZE = (1280, 760)


class Shot(NamedTuple):
    """One picture."""

    #: Words for ``mcplumb view``.
    words: tuple[str, ...]
    prepare: Callable[[Path], None]
    show: Callable[[Page], None]


def _write_sessions(folder: Path) -> None:
    other = Story()
    other.text(0.02, other.request(0.01, "tools/call", name="search", arguments={"text": "rain"}), "3 notes")
    other.write(header("notes", now=WHEN - 5000, program="editor"), folder)
    weather().write(header("weather", now=WHEN - 4000, program="editor"), folder)
    weather().write(header("weather", now=WHEN), folder)


def _show_slow_call(page: Page) -> None:
    page.locator(".vlist-row").filter(has_text="Bergen").first.click()
    page.locator(".detail [role=tree]").first.wait_for()


def _show_findings(page: Page) -> None:
    page.locator(".vlist-row").first.wait_for()
    page.keyboard.press("F")
    page.locator(".finding").first.wait_for()
    page.locator(".finding-lines button").first.focus()


def _show_tool(page: Page) -> None:
    _choose_tool(page, "ship")
    page.locator('.property[data-name="street"] textarea').fill("Main Street 1")
    page.get_by_role("button", name="+ Add").first.click()
    page.locator('.property[data-name="name"] textarea').fill("tea")
    page.locator(".call-view .run").click()
    page.locator(".call-result .result").wait_for()
    page.locator(".work").evaluate("(work) => (work.scrollTop = 0)")


def _show_question(page: Page) -> None:
    page.wait_for_timeout(4000)  # the question of the picture before waits still, and is asked again
    if not page.locator("dialog[open]").count():
        _choose_tool(page, "reserve")
        page.locator(".call-view .run").click()
    page.locator("dialog textarea").first.fill("Ada")


def _choose_tool(page: Page, name: str) -> None:
    page.get_by_role("link", name="Workbench").click()
    page.locator(f'[data-item="tool/{name}"]').click()
    page.locator(".call-view").wait_for()


_BENCH = ("--", *SERVER)

SHOTS = {
    "view-watch": Shot((), _write_sessions, _show_slow_call),
    "view-findings": Shot((), _write_sessions, _show_findings),
    "view-workbench": Shot(_BENCH, _write_sessions, _show_tool),
    "view-question": Shot(_BENCH, _write_sessions, _show_question),
}


def main() -> None:
    """Make all pictures, or those whose names are given."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        for name in sys.argv[1:] or SHOTS:
            with tempfile.TemporaryDirectory() as home:
                _take(browser, name, SHOTS[name], Path(home))
        browser.close()


def _take(browser: object, name: str, shot: Shot, home: Path) -> None:
    folder = home / "mcplumb" / "recordings"
    shot.prepare(folder)
    environment = {**os.environ, "XDG_STATE_HOME": str(home), "HOME": str(home)}
    command = [sys.executable, "-m", "mcplumb", "view", "--no-browser", *shot.words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=DOCS.parent) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            for theme in ("light", "dark"):
                context = browser.new_context(  # type: ignore[attr-defined]
                    viewport=dict(zip(("width", "height"), SIZE, strict=True)),
                    color_scheme=theme,
                    timezone_id="UTC",
                    locale="en-GB",
                    reduced_motion="reduce",
                )
                page = context.new_page()
                page.goto(url)
                shot.show(page)
                page.wait_for_timeout(500)  # the timeline is drawn in the next frame
                file = DOCS / f"{name}-{theme}.png"
                page.screenshot(path=file)
                context.close()
                print(file.relative_to(DOCS.parent))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
