"""Nothing that a server or a client said can run in the page, and nobody else can use it."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import Opened, Serve
from tests.browser.recordings import ATTACKS, Story, header, hostile, weather

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
from playwright.sync_api import expect


@pytest.mark.req("VIW-1")
def test_a_session_of_attacks_runs_nothing(page: Page, serve: Serve, folder: Path) -> None:
    """The fixture fails, too, if the page uses the console, opens a window or asks for anything elsewhere."""
    story = hostile()
    story.write(header(ATTACKS[0], [ATTACKS[1], ATTACKS[6]], program=ATTACKS[2], now=time.time() - 100), folder)
    page.goto(serve())
    count = page.locator(".filter-count")
    expect(count).not_to_have_text("0")
    expect(page.locator(".vlist-row:visible").first).to_be_visible()
    total = int(count.inner_text().replace(",", ""))
    page.locator(".vlist").focus()
    page.keyboard.press("Home")
    for number in range(total):
        # Each message, in each of its tabs.
        expect(page.locator(f'.vlist-row[aria-selected="true"][data-index="{number}"]')).to_be_attached()
        expect(page.locator('.detail[aria-busy="true"]')).to_have_count(0)
        page.evaluate("document.querySelectorAll('.detail [role=tab]').forEach((each) => each.click())")
        page.keyboard.press("ArrowDown")
    page.keyboard.press("F")
    expect(page.locator(".finding").first).to_be_visible()
    for attack in ATTACKS[:5]:
        page.keyboard.press("/")
        page.get_by_label("Filter by text").fill(attack)
        expect(count).to_contain_text(" of ")
    page.get_by_label("Filter by method").select_option(index=1)
    page.locator(".timeline-canvas").hover(position={"x": 200, "y": 25})
    assert page.evaluate("window.attacked") is None
    # No element that the page does not make itself.
    assert (
        page.evaluate("document.querySelectorAll('iframe, object, embed, svg, form, base, meta[http-equiv]').length")
        == 0
    )
    assert page.evaluate("[...document.images].every((each) => each.getAttribute('src') === 'icon.svg')")
    assert page.evaluate(
        "[...document.querySelectorAll('a')].every((each) => each.getAttribute('href').startsWith('#'))"
    )
    assert page.evaluate("({}).polluted") is None


@pytest.mark.req("VIW-1")
def test_a_recording_that_somebody_else_made_does_no_harm(page: Page, serve: Serve, folder: Path) -> None:
    """Lists in lists without end, a text of megabytes, numbers beyond all bounds, and lines that are no records."""
    story = Story()
    story.line(0.1, "server", "[" * 100_000 + "]" * 100_000)
    story.say(0.2, "client", id=1, method="tools/call", params={"name": "x", "arguments": {"text": "long" * 1_000_000}})
    deep = '{"a":' * 4000 + "12345678901234567890" + "}" * 4000
    story.line(0.3, "client", '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"arguments":' + deep + "}}")
    story.line(0.4, "server", '{"jsonrpc":"2.0","method":"x","params":{"n":1e999,"m":-1e-999,"z":' + "9" * 5000 + "}}")
    story.line(
        0.5, "server", json.dumps({"jsonrpc": "2.0", "method": "y", "params": {str(n): n for n in range(20_000)}})
    )
    path = story.write(header("foreign", now=time.time() - 100), folder)
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n" + b"\0" * 1000 + b'\n{"t":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    page.goto(serve())
    rows = page.locator(".vlist-row:visible")
    expect(rows).to_have_count(8)
    page.locator(".vlist").focus()
    page.keyboard.press("Home")
    for number in range(8):
        expect(page.locator(f'.vlist-row[aria-selected="true"][data-index="{number}"]')).to_be_attached()
        expect(page.locator('.detail[aria-busy="true"]')).to_have_count(0)
        page.evaluate("document.querySelectorAll('.detail [role=tab]').forEach((each) => each.click())")
        page.evaluate("document.querySelector('.detail [role=tab]').click()")
        page.keyboard.press("ArrowDown")
    page.keyboard.press("F")
    expect(page.locator(".finding").first).to_be_visible()


@pytest.mark.req("VIW-1")
def test_hidden_characters_are_shown(page: Page, serve: Serve, folder: Path) -> None:
    hostile().write(header("attacks", now=time.time() - 100), folder)
    page.goto(serve())
    expect(page.locator(".vlist-row:visible").first).to_be_visible()
    hidden: list[str] = page.evaluate(
        r"""async () => {
          const list = document.querySelector(".vlist");
          const found = new Set();
          const hidden =
            /[\u0000-\u0008\u000e-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
          const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
          for (let top = 0; top <= list.scrollHeight; top += 300) {
            list.scrollTop = top;
            await frame();
            for (const each of document.body.innerText.match(hidden) ?? []) found.add(each.codePointAt(0).toString(16));
          }
          return [...found];
        }"""
    )
    assert hidden == []


@pytest.mark.req("VIW-1")
def test_text_cannot_become_code_even_if_the_page_had_a_bug(opened: Opened, serve: Serve) -> None:
    page = opened.page()
    page.goto(serve())
    expect(page.get_by_role("heading", name="No sessions yet")).to_be_visible()
    # What the policy forbids is also said on the console, which is right here.
    for code in (
        "document.body.innerHTML = '<img src=x onerror=window.attacked=1>'",
        "document.createElement('script').text = 'window.attacked=2'",
        # Later, because the browser allows what the developer's tools do themselves.
        "requestAnimationFrame(() => { try { new Function('window.attacked=3')() } catch {} })",
        "document.body.setAttribute('onclick', 'window.attacked=4'); document.body.click()",
        "fetch('http://127.0.0.2:9/').catch((error) => { throw error })",
    ):
        with contextlib.suppress(Exception):
            page.evaluate(f"async () => {{ {code} }}")
    page.evaluate("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
    assert page.evaluate("window.attacked") is None
    assert not any("127.0.0.2" in url for url in opened.requests)
    page.close()  # it misses what was taken from it, and goes on to complain
    opened.complaints.clear()


@contextlib.contextmanager
def foreign_site(html: str) -> Iterator[str]:
    """A page of another origin, on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = html.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


#: What a page of another origin gets: the status and the text of an answer, or why there is none.
ATTEMPT = """async (url) => {
  try {
    const got = await fetch(url);
    return `${got.status} ${await got.text()}`;
  } catch (error) {
    return String(error);
  }
}"""


@pytest.mark.req("VIW-1")
def test_another_origin_gets_nothing(browser: Browser, serve: Serve, folder: Path) -> None:
    weather().write(header("weather", now=time.time() - 100), folder)
    url = serve()
    context = browser.new_context()
    page = context.new_page()
    with foreign_site("<h1>elsewhere</h1>") as elsewhere:
        page.goto(elsewhere)
        for path in ("", "api/sessions", "scripts/main.js"):
            assert page.evaluate(ATTEMPT, url + path) == "TypeError: Failed to fetch"  # although it knows the secret
        answers = page.evaluate(
            """async (url) => {
              const tried = {};
              const parts = { script: "scripts/settings.js", img: "icon.svg", link: "styles/theme.css" };
              for (const [tag, path] of Object.entries(parts)) {
                const made = document.createElement(tag);
                tried[tag] = await new Promise((resolve) => {
                  made.onload = () => resolve("loaded");
                  made.onerror = () => resolve("failed");
                  made.rel = "stylesheet";
                  made[tag === "link" ? "href" : "src"] = url + path;
                  document.body.append(made);
                });
              }
              const opened = window.open(url);
              // At first it is an empty page of this origin.
              const isCutOff = () => {
                try {
                  return opened === null || opened.closed || !opened.document;
                } catch {
                  return true;
                }
              };
              for (let at = 0; at < 600 && !isCutOff(); at++) await new Promise((resolve) => setTimeout(resolve, 50));
              tried.window = isCutOff() ? "cut off" : opened.document.documentElement.outerHTML;
              return tried;
            }""",
            url,
        )
        assert answers == {"script": "failed", "img": "failed", "link": "failed", "window": "cut off"}
    with foreign_site(f'<iframe src="{url}"></iframe>') as elsewhere:
        page.goto(elsewhere)
        frame = page.frames[-1]
        assert "mcplumb" not in frame.content()
    context.close()


@pytest.mark.req("VIW-1")
def test_another_name_and_another_secret_get_nothing(browser: Browser, serve: Serve, folder: Path) -> None:
    """By DNS rebinding, a name of another site leads to this machine; the browser then sends that name as the host."""
    from tests.browser.chromium import FLAGS, find_chromium

    weather().write(header("weather", now=time.time() - 100), folder)
    url, other = serve(), serve()
    port, secret = urlsplit(url).port, urlsplit(url).path
    context = browser.browser_type.launch(
        executable_path=find_chromium(), args=[*FLAGS, "--host-resolver-rules=MAP rebound.example 127.0.0.1"]
    )
    page = context.new_page()
    answer = page.goto(f"http://rebound.example:{port}{secret}")
    assert answer is not None
    assert answer.status == 403
    assert "another name" in page.content()
    assert page.evaluate(ATTEMPT, f"http://rebound.example:{port}{secret}api/sessions").startswith("403 ")
    answer = page.goto(f"http://127.0.0.1:{port}{urlsplit(other).path}")  # the secret of another user's page
    assert answer is not None
    assert answer.status == 403
    assert "weather" not in page.content()
    context.close()
