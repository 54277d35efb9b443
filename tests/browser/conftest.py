"""A browser, a page that is served by a process of its own, and a look at what the page complained about."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.browser.chromium import FLAGS, find_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

#: Milliseconds that something in the page may take, on a machine that is busy.
PATIENCE = 60_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
    playwright.expect.set_options(timeout=PATIENCE)
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A context of the browser, and everything that went wrong in its pages."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        context.set_default_timeout(PATIENCE)
        #: Messages on the console, exceptions, and requests that left the machine.
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def page(self) -> Page:
        page = self.context.new_page()
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("dialog", self._dialog)
        page.on("popup", lambda _: self.complaints.append("a window was opened"))
        page.on("request", self._requested)
        return page

    def _logged(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"console: {message.text} {message.location.get('url', '')}")

    def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        url: str = request.url
        self.requests.append(url)
        if urlsplit(url).hostname != "127.0.0.1" and not url.startswith(("data:", "blob:")):
            self.complaints.append(f"request: {url}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of recordings of the user whose page is served."""
    return tmp_path / "state" / "mcplumb" / "recordings"


Serve = Callable[..., str]


@pytest.fixture
def running() -> list[subprocess.Popen[str]]:
    """What ``serve`` has started."""
    return []


@pytest.fixture
def serve(tmp_path: Path, folder: Path, running: list[subprocess.Popen[str]]) -> Iterator[Serve]:
    """Start ``mcplumb view``, and return the address that it prints."""

    def start(*words: str) -> str:
        environment = {**os.environ, "XDG_STATE_HOME": str(folder.parent.parent), "HOME": str(tmp_path)}
        command = [sys.executable, "-m", "mcplumb", "view", "--no-browser", *words]
        started = subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        running.append(started)
        assert started.stdout is not None
        url = started.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]+/(#/workbench)?", url), url + started.stdout.read()
        return url

    yield start
    for each in running:
        each.terminate()
    for each in running:
        said, _ = each.communicate(timeout=60)
        assert "Traceback" not in said, said


@pytest.fixture
def opened(browser: Browser, serve: Serve) -> Iterator[Opened]:
    """A fresh context, whose pages must not complain, nor ask for anything elsewhere. It ends before its servers."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = Opened(context)
    yield opened
    context.close()
    assert opened.complaints == []


@pytest.fixture
def page(opened: Opened) -> Page:
    return opened.page()
