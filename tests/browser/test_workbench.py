"""Use a server by hand in a real browser: forms, questions, cancelling, media, completion, and a hostile server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mcplumb.limits import MAX_WORKBENCH_QUESTIONS
from tests.browser.conftest import Opened, Serve
from tests.client.auth.site import site
from tests.view.workbench.bench import SERVER

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
from playwright.sync_api import expect

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(page: Page, serve: Serve) -> Page:
    """A page that is connected to the server of the tests."""
    page.goto(serve("--", *SERVER))
    expect(page.locator('[data-item="tool/ship"]')).to_be_visible()
    return page


def item(page: Page, name: str) -> Locator:
    return page.locator(f'[data-item="{name}"]')


def choose(page: Page, name: str) -> None:
    item(page, name).click()
    expect(item(page, name)).to_have_attribute("aria-current", "true")
    expect(page.locator(".call-view .run")).to_be_visible()


def run(page: Page) -> None:
    page.locator(".call-view .run").click()


def result(page: Page) -> Locator:
    return page.locator(".call-result .result")


def field(page: Page | Locator, *path: str) -> Locator:
    """The control of a property."""
    found: Any = page
    for name in path:
        found = found.locator(f'.property[data-name="{name}"]')
    return found.locator("input:not(.include), textarea, select").first


@pytest.mark.req("VIW-2")
def test_a_tool_is_called_by_form_with_nested_arguments(bench: Page) -> None:
    choose(bench, "tool/ship")
    field(bench, "to", "street").fill("Main Street 1")
    bench.get_by_role("button", name="Add", exact=False).last.click()
    field(bench, "items", "name").fill("tea")
    field(bench, "items", "count").fill("3")
    run(bench)
    expect(result(bench)).to_contain_text('"Main Street 1"')
    expect(result(bench).get_by_role("treeitem", name=re.compile("pieces"))).to_contain_text("3")
    expect(bench.locator(".call-state")).to_contain_text("Done")


@pytest.mark.req("VIW-2")
def test_what_is_wrong_is_said_beside_the_field(bench: Page) -> None:
    choose(bench, "tool/ship")
    bench.get_by_role("button", name="Add", exact=False).last.click()
    field(bench, "items", "name").fill("x")
    field(bench, "items", "count").fill("many")
    run(bench)
    problems = bench.locator(".form .problem:visible")
    expect(problems).to_have_text(["Required.", "Needs at least 2 characters.", "Has to be a whole number."])
    expect(field(bench, "to", "street")).to_be_focused()
    expect(field(bench, "to", "street")).to_have_attribute("aria-invalid", "true")
    # What the schema forbids can still be tried.
    expect(bench.get_by_role("button", name="Send it anyway")).to_be_in_viewport()
    bench.get_by_role("button", name="Send it anyway").click()
    expect(result(bench)).to_be_visible()
    expect(bench.locator(".call-state")).to_contain_text("Failed")


def test_switching_between_form_and_json_loses_nothing(bench: Page) -> None:
    choose(bench, "tool/ship")
    field(bench, "to", "street").fill("Main\nStreet")
    bench.get_by_role("button", name="Add", exact=False).last.click()
    field(bench, "items", "count").fill("12a")
    bench.get_by_role("button", name="JSON", exact=True).click()
    raw = bench.get_by_label("Arguments as JSON")
    typed = json.loads(raw.input_value())
    assert typed["to"] == {"street": "Main\nStreet", "city": "Oslo"}
    assert typed["items"] == [{"count": "12a"}]
    more = {**typed, "to": 7, "unknown": {"a": [1]}, "__proto__": "kept", "note": ""}
    raw.fill(json.dumps(more))
    bench.get_by_role("button", name="Form", exact=True).click()
    expect(bench.get_by_text("The form cannot show this value.")).to_be_visible()
    bench.get_by_role("button", name="JSON", exact=True).click()
    assert json.loads(raw.input_value()) == more
    raw.fill("{ not json")
    bench.get_by_role("button", name="Form", exact=True).click()
    expect(bench.locator(".call-note")).to_contain_text("This is not JSON")
    assert raw.input_value() == "{ not json"
    # Another item, and back.
    choose(bench, "tool/count")
    choose(bench, "tool/ship")
    assert bench.get_by_label("Arguments as JSON").input_value() == "{ not json"


def test_schemas_of_every_kind(bench: Page) -> None:
    choose(bench, "tool/schemas")
    field(bench, "filter", "field").fill("a")
    bench.get_by_label("Send not").check()
    field(bench, "filter", "not", "field").fill("b")
    field(bench, "shape").select_option("Box")
    for at, value in enumerate(("1.5", "2")):
        bench.locator('.property[data-name="sides"] .entry input').nth(at).fill(value)
    field(bench, "when").fill("2026-11-18")
    field(bench, "mail").fill("a@example.com")
    field(bench, "key").fill("hush")
    assert field(bench, "key").evaluate("(input) => getComputedStyle(input).webkitTextSecurity") == "disc"
    bench.get_by_label("Send tags").check()
    bench.get_by_label("new").check()
    bench.get_by_label("odd").check()
    bench.get_by_label("Send extra").check()
    bench.get_by_role("button", name="Add a property").first.click()
    bench.get_by_label("Name of the property").fill("n")
    bench.get_by_label("Value of the property").fill("5")
    field(bench, "anything").fill('{"x": null}')
    bench.get_by_role("button", name="JSON", exact=True).click()
    assert json.loads(bench.get_by_label("Arguments as JSON").input_value()) == {
        "filter": {"field": "a", "not": {"field": "b"}},
        "shape": {"kind": "box", "sides": [1.5, 2]},
        "amount": 1,
        "when": "2026-11-18",
        "mail": "a@example.com",
        "key": "hush",
        "tags": ["new", "odd"],
        "extra": {"n": 5},
        "anything": {"x": None},
    }
    run(bench)
    expect(bench.locator(".call-state")).to_contain_text("Done")


def test_a_double_click_is_one_call(bench: Page) -> None:
    choose(bench, "tool/wait")  # which is not over by the second click, however late that comes
    bench.locator(".call-view .run").dblclick()
    expect(bench.locator(".call-state")).to_contain_text("1 of 3 · waiting")
    bench.get_by_role("button", name="Cancel").click()
    expect(bench.locator(".call-state")).to_contain_text("Cancelled")
    run(bench)
    expect(bench.locator(".call-state")).to_contain_text("1 of 3 · waiting")
    bench.get_by_role("tab", name="History").click()
    expect(bench.locator(".call-entry")).to_have_count(2)


def test_what_is_ticked_is_sent_or_said_to_lack_a_value(bench: Page) -> None:
    choose(bench, "tool/schemas")
    field(bench, "filter", "field").fill("a")
    bench.locator('.property[data-name="radius"] input').fill("1")
    bench.get_by_label("Send key").check()  # an empty text
    bench.get_by_label("Send when").check()
    bench.get_by_label("Send not").check()
    field(bench, "filter", "not", "field").fill("b")
    bench.get_by_label("Send anything").check()
    run(bench)
    problems = bench.locator(".form .problem:visible")
    expect(problems).to_have_text(["Has no value: fill it in, or untick its box."] * 2)
    expect(bench.locator(".call-note li")).to_have_text([re.compile("^when: "), re.compile("^anything: ")])
    field(bench, "when").fill("2026-11-18")
    bench.get_by_label("Send anything").uncheck()
    run(bench)
    expect(bench.locator(".call-state")).to_contain_text("Done")
    expect(result(bench)).to_contain_text('key: ""')


def test_numbers_keep_their_digits(bench: Page) -> None:
    """JavaScript would round this one to 12345678901234567000, and send that."""
    choose(bench, "tool/schemas")
    bench.get_by_role("button", name="JSON", exact=True).click()
    given = '{"filter": {"field": "a"}, "shape": {"kind": "circle", "radius": 1}, "amount": 12345678901234567890}'
    raw = bench.get_by_label("Arguments as JSON")
    raw.fill(given)
    bench.get_by_role("button", name="Form", exact=True).click()
    amount = bench.locator('.property[data-name="amount"] input.number')
    expect(amount).to_have_value("12345678901234567890")
    amount.fill("12345678901234567891")
    run(bench)
    expect(result(bench).get_by_role("treeitem", name="amount", exact=False)).to_contain_text("12345678901234567891")
    bench.get_by_role("button", name="JSON", exact=True).click()
    assert json.loads(raw.input_value())["amount"] == 12345678901234567891
    # A call of the history is the same call.
    raw.fill("{}")
    bench.get_by_role("tab", name="History").click()
    bench.locator(".call-entry").first.click()
    expect(raw).to_have_value(re.compile(r"12345678901234567891\b"))


@pytest.mark.req("VIW-2")
def test_a_question_is_answered_or_put_off(bench: Page) -> None:
    choose(bench, "tool/reserve")
    run(bench)
    dialog = bench.get_by_role("dialog", name="bench asks")
    expect(dialog).to_contain_text("Who comes to dinner?")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog.locator(".property .problem:visible")).to_have_text("Required.")
    bench.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    bench.get_by_role("button", name="Answer").click()
    field(dialog, "name").fill("Ada")
    field(dialog, "seats").fill("4")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(result(bench)).to_contain_text("4 seats for Ada")
    run(bench)
    dialog.get_by_role("button", name="Decline").click()
    expect(result(bench)).to_contain_text("Not reserved: decline.")


#: A server that asks a thousand questions at once, and answers the call when each has an answer or an error.
ASKS = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

answers, call = 0, None
for line in sys.stdin:
    message = json.loads(line)
    method, id_ = message.get("method"), message.get("id")
    if method == "initialize":
        info = {"name": "curious", "version": "1"}
        send(id=id_, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        send(id=id_, result={"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        call = id_
        for n in range(1000):
            schema = {"type": "object", "properties": {"why": {"type": "string"}}}
            send(id=f"q{n}", method="elicitation/create", params={"message": f"Why {n}?", "requestedSchema": schema})
    elif method is None:
        answers += 1
        if answers == 1000:
            send(id=call, result={"content": [{"type": "text", "text": "a thousand answers"}]})
    elif id_ is not None:
        send(id=id_, error={"code": -32601, "message": "unknown"})
"""


#: A server whose tool takes another argument after each call.
GROWS = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

names = ["a"]
for line in sys.stdin:
    message = json.loads(line)
    method, id_ = message.get("method"), message.get("id")
    if method == "initialize":
        info = {"name": "growing", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        send(id=id_, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
    elif method == "tools/list":
        schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
        send(id=id_, result={"tools": [{"name": "grow", "inputSchema": schema}]})
    elif method == "tools/call":
        names.append("b")
        send(method="notifications/tools/list_changed")
        send(id=id_, result={"content": [{"type": "text", "text": "grown"}]})
    elif id_ is not None:
        send(id=id_, error={"code": -32601, "message": "unknown"})
"""


def test_the_form_follows_a_tool_that_has_changed(page: Page, serve: Serve) -> None:
    page.goto(serve("--", sys.executable, "-c", GROWS))
    choose(page, "tool/grow")
    field(page, "a").fill("kept")
    run(page)
    expect(field(page, "b")).to_be_visible()
    expect(field(page, "a")).to_have_value("kept")
    expect(result(page)).to_contain_text("grown")


@pytest.mark.req("VIW-2")
def test_a_server_that_asks_a_thousand_questions_keeps_nobody_from_working(opened: Opened, serve: Serve) -> None:
    page, other = opened.page(), opened.page()
    url = serve("--", sys.executable, "-c", ASKS)
    page.goto(url)
    choose(page, "tool/ask")
    run(page)
    expect(page.get_by_role("dialog")).to_contain_text("Why 0?")
    waiting = page.locator(".question-waiting")
    # The dialog that is dismissed puts off all others, too.
    expect(page.get_by_role("dialog")).to_be_visible()
    other.goto(url)
    expect(other.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(waiting).to_have_count(MAX_WORKBENCH_QUESTIONS)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".call-view .danger")).to_be_in_viewport()
    # What another tab answers is answered here as well.
    other.get_by_role("dialog").get_by_role("button", name="Decline").click()
    expect(waiting).to_have_count(MAX_WORKBENCH_QUESTIONS - 1)
    page.get_by_role("button", name="Disconnect curious").click()
    expect(waiting).to_have_count(0)
    expect(other.get_by_role("dialog")).to_have_count(0)


def test_a_web_page_is_shown_whole_and_opened_apart(opened: Opened, serve: Serve) -> None:
    page = opened.page()
    opened.context.route("https://pay.example/**", lambda route: route.fulfill(body="paid"))
    page.goto(serve("--", *SERVER))
    choose(page, "tool/pay")
    run(page)
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text("https://pay.example/42?from=bench")
    expect(dialog.locator("strong")).to_have_text("pay.example")
    with opened.context.expect_page() as popup:
        dialog.get_by_role("button", name="Open the page").click()
    popup.value.wait_for_url("https://pay.example/42?from=bench")
    assert popup.value.evaluate("[window.opener, document.referrer]") == [None, ""]
    expect(result(page)).to_contain_text("pay: accept")
    assert opened.complaints == ["a window was opened"]  # the one that was wanted
    opened.complaints.clear()


def test_questions_that_wait_can_be_told_apart(bench: Page) -> None:
    choose(bench, "tool/pay")
    run(bench)
    expect(bench.get_by_role("dialog")).to_be_visible()
    bench.keyboard.press("Escape")
    choose(bench, "tool/ask_model")
    field(bench, "question").fill("Why?")
    run(bench)
    waiting = bench.locator(".question-waiting")
    expect(waiting).to_have_count(2)
    expect(waiting.nth(0)).to_contain_text("bench sends you to a web page: Please pay for your dinner.")
    expect(waiting.nth(1)).to_contain_text("bench asks a model: Why?")
    bench.get_by_role("button", name="Answer bench asks a model: Why?").click()
    expect(bench.get_by_role("dialog", name="bench asks a model")).to_be_visible()


def test_a_message_is_written_in_place_of_a_model(bench: Page) -> None:
    choose(bench, "tool/ask_model")
    field(bench, "question").fill("Tea?")
    field(bench, "question").press("Control+Enter")
    dialog = bench.get_by_role("dialog", name="bench asks a model")
    expect(dialog).to_contain_text("Be brief.")
    dialog.get_by_label("Your answer in place of the model").fill("Always.")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(result(bench)).to_contain_text("It says: Always.")


@pytest.mark.req("VIW-2")
def test_a_call_shows_progress_and_is_cancelled(bench: Page) -> None:
    choose(bench, "tool/wait")
    run(bench)
    expect(bench.locator(".call-state")).to_contain_text("1 of 3 · waiting")
    assert bench.locator(".call-bar progress").evaluate("(bar) => [bar.value, bar.max]") == [1, 3]
    bench.get_by_role("button", name="Cancel").click()
    expect(result(bench)).to_contain_text("You have cancelled the call.")
    expect(bench.locator(".log")).to_contain_text("wait was cancelled")


@pytest.mark.req("VIW-2")
def test_pictures_sounds_and_links(bench: Page) -> None:
    choose(bench, "tool/media")
    run(bench)
    picture = result(bench).locator("img")
    expect(result(bench)).to_contain_text("32 \N{MULTIPLICATION SIGN} 20")
    assert picture.evaluate("(image) => [image.naturalWidth, image.src.slice(0, 22)]") == [32, "data:image/png;base64,"]
    expect(result(bench).locator("audio")).to_have_attribute("src", re.compile("^data:audio/wav;base64,"))
    with bench.expect_download() as saved:
        result(bench).get_by_role("button", name="Save as a file").first.click()
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    result(bench).get_by_role("button", name="Read").click()
    expect(bench.locator(".item-head h2")).to_contain_text("menu")
    run(bench)
    expect(result(bench)).to_contain_text("soup")


def test_errors_are_in_words(bench: Page) -> None:
    choose(bench, "tool/fail")
    run(bench)
    expect(result(bench)).to_contain_text("The tool says that it failed.")
    expect(result(bench)).to_contain_text("The kettle is empty. Fill it first.")
    choose(bench, "request/")
    field(bench, "method").fill("no/such")
    run(bench)
    expect(result(bench)).to_contain_text("JSON-RPC error -32601")


@pytest.mark.req("VIW-2")
def test_completion_as_one_types(bench: Page) -> None:
    choose(bench, "prompt/review")
    dish = field(bench, "dish")
    dish.press_sequentially("s")
    options = bench.locator(".suggestions [role=option]:visible")
    expect(options).to_have_text(["soup", "salad", "stew"])
    dish.press("ArrowDown")
    dish.press("ArrowDown")
    dish.press("Enter")
    expect(dish).to_have_value("salad")
    dish.press("Control+Enter")
    expect(result(bench)).to_contain_text("Write a kind review of the salad.")
    choose(bench, "template/bench://{dish}/recipe")
    field(bench, "dish").press_sequentially("so")
    expect(options).to_have_text(["soup"])
    options.first.click()
    run(bench)
    expect(result(bench)).to_contain_text("Cook the soup.")


def test_subscriptions_roots_level_and_changed_lists(bench: Page) -> None:
    choose(bench, "resource/bench://menu")
    bench.get_by_role("button", name="Subscribe").click()
    expect(bench.get_by_role("button", name="Subscribed")).to_be_visible()
    bench.get_by_label("Level of the log").select_option("debug")
    choose(bench, "tool/change_menu")
    field(bench, "dish").fill("pie")
    run(bench)
    expect(item(bench, "tool/eat_pie")).to_be_visible()
    choose(bench, "tool/speak")
    field(bench, "text").fill("hello log")
    run(bench)
    expect(bench.locator(".log")).to_contain_text("stderr: hello log")
    expect(bench.locator(".log")).to_contain_text('said: "hello log"', use_inner_text=True)
    bench.get_by_role("tab", name="Server").click()
    bench.get_by_label("Folders that the server may work in").fill("/srv/a b")
    bench.get_by_role("button", name="Set the roots").click()
    expect(bench.get_by_label("Folders that the server may work in")).to_have_value("file:///srv/a%20b")
    choose(bench, "tool/where")
    run(bench)
    expect(result(bench)).to_contain_text("file:///srv/a%20b")


def test_history_saved_calls_and_copies(bench: Page, folder: Path) -> None:
    choose(bench, "tool/speak")
    field(bench, "text").fill("first")
    run(bench)
    expect(bench.locator(".call-state")).to_contain_text("Done")
    bench.get_by_role("button", name="Save", exact=True).click()
    bench.get_by_label("Name").fill("a greeting")
    bench.keyboard.press("Enter")
    field(bench, "text").fill("second")
    bench.get_by_role("tab", name="History").click()
    bench.locator(".call-entry:visible").first.click()
    expect(field(bench, "text")).to_have_value("first")
    expect(result(bench)).to_contain_text("said")
    choose(bench, "tool/count")
    bench.get_by_role("tab", name="Saved").click()
    bench.get_by_role("button", name=re.compile("^a greeting")).click()
    expect(field(bench, "text")).to_have_value("first")
    file = folder.parent / "saved-calls.json"
    assert file.stat().st_mode & 0o777 == 0o600
    bench.get_by_role("button", name="Copy as…").click()
    dialog = bench.get_by_role("dialog", name="Copy this call")
    expect(dialog.locator("pre:visible")).to_contain_text('mcplumb call speak --args \'{"text":"first"}\' -- ')
    dialog.get_by_role("tab", name="Python").click()
    expect(dialog.locator("pre:visible")).to_contain_text("client.call_tool('speak', {'text': 'first'})")
    dialog.get_by_role("button", name="Close").click()
    bench.get_by_role("button", name="Delete a greeting").click()
    expect(bench.get_by_text("No call is saved.")).to_be_visible()


def test_several_connections_of_all_kinds(page: Page, serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / ".mcp.json"
    config.write_text(json.dumps({"mcpServers": {"other": {"command": SERVER[0], "args": SERVER[1:]}}}))
    page.goto(serve() + "#/workbench")
    page.get_by_role("textbox", name="Command").fill("no-such-program --now")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator(".work")).to_contain_text("Not connected to no-such-program --now")
    page.get_by_role("button", name="+ Connect").click()
    page.get_by_role("textbox", name="Command").fill(shlex.join(SERVER))
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(item(page, "tool/ship")).to_be_visible()
    page.keyboard.press("n")
    page.get_by_role("tab", name="Configured").click()
    expect(page.get_by_text("it may come from anyone")).to_be_visible()
    page.get_by_role("button", name="Allow and connect other").click()
    expect(page.locator(".connection")).to_have_count(3)
    expect(item(page, "tool/ship")).to_be_visible()
    page.reload()
    expect(page.locator(".connection")).to_have_count(3)
    for left in (2, 1, 0):
        page.get_by_role("button", name=re.compile("^Disconnect ")).first.click()
        expect(page.locator(".connection")).to_have_count(left)
    expect(page.get_by_role("heading", name="Try a server")).to_be_visible()


@contextlib.contextmanager
def protected_server(folder: Path) -> Iterator[str]:
    """Serve a server that wants a sign-in, in a thread; yield its address."""
    address: Future[str] = Future()
    ended: Future[asyncio.Event] = Future()

    async def serve() -> None:
        event = asyncio.Event()
        ended.set_result(event)
        async with site(folder) as protected:
            address.set_result(protected.url)
            await event.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        yield address.result(60)
    finally:
        loop.call_soon_threadsafe(ended.result(60).set)
        thread.join()
        loop.close()


def test_the_user_signs_in_where_a_server_wants_it(opened: Opened, serve: Serve, tmp_path: Path) -> None:
    with protected_server(tmp_path) as address:
        page = opened.page()
        page.goto(serve("-s", address))
        dialog = page.get_by_role("dialog", name="Sign in to")
        expect(dialog).to_contain_text("kept on this machine")
        dialog.get_by_role("button", name="Do not sign in").click()
        expect(page.locator(".work")).to_contain_text("You did not sign in at 127.0.0.1.")
        page.get_by_role("button", name="Connect again").click()
        expect(dialog).to_be_visible()
        with opened.context.expect_page() as popup:
            dialog.get_by_role("button", name="Sign in", exact=True).click()
        expect(popup.value.locator("body")).to_contain_text("You can close this")
        choose(page, "tool/whoami")
        run(page)
        expect(result(page)).to_contain_text("somebody")
    assert opened.complaints == ["a window was opened"]
    opened.complaints.clear()


def test_a_server_that_cannot_be_chosen_is_said_and_nothing_is_complained_about(page: Page, serve: Serve) -> None:
    """The fixture fails if the browser writes on the console, as it does for each HTTP error."""
    page.goto(f"{serve()}#/workbench/new")
    for text, sentence in (("'", "cannot be split into words"), ("http://127.0.0.1:9/", "choose Address")):
        page.get_by_role("textbox", name="Command").fill(text)
        page.get_by_role("button", name="Connect", exact=True).click()
        expect(page.get_by_role("alert").filter(has_text=sentence)).to_be_visible()
    page.get_by_role("tab", name="Address").click()
    page.get_by_role("textbox", name="Address").fill("ftp://example.com")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="cannot be used")).to_be_visible()


@pytest.mark.req("VIW-2")
def test_everything_by_keyboard(bench: Page) -> None:
    bench.locator("body").click(position={"x": 5, "y": 5})
    bench.keyboard.press("/")
    bench.keyboard.type("nothing of that name")
    expect(bench.get_by_text("Nothing passes the filter.")).to_be_visible()
    bench.keyboard.press("Enter")  # opens nothing
    bench.locator("main").focus()
    bench.keyboard.press("/")
    bench.keyboard.type("re")  # instead of what was there
    expect(item(bench, "tool/reserve")).to_be_visible()
    bench.keyboard.press("Enter")
    expect(bench.locator(".item-head h2")).to_contain_text("reserve")
    bench.keyboard.press("Control+a")
    bench.keyboard.type("res")
    bench.keyboard.press("ArrowDown")
    expect(item(bench, "tool/reserve")).to_be_focused()
    bench.keyboard.press("ArrowUp")
    bench.keyboard.press("ArrowUp")
    expect(bench.get_by_label("Filter the list")).to_be_focused()
    bench.keyboard.press("ArrowDown")
    bench.keyboard.press("Enter")
    expect(bench.locator(".item-head h2")).to_contain_text("reserve")
    bench.keyboard.press("Control+Enter")
    dialog = bench.get_by_role("dialog", name="bench asks")
    expect(field(dialog, "name")).to_be_focused()
    bench.keyboard.type("Ada")
    for _ in range(12):
        if bench.evaluate("document.activeElement.textContent") == "Send":
            break
        bench.keyboard.press("Tab")
    bench.keyboard.press("Enter")
    expect(result(bench)).to_contain_text("2 seats for Ada")


@pytest.mark.req("VIW-2")
@pytest.mark.parametrize(("width", "height"), [(360, 740), (640, 400)], ids=["narrow", "200 percent of 1280 x 800"])
def test_nothing_is_cut_off_in_a_small_window(bench: Page, width: int, height: int) -> None:
    bench.set_viewport_size({"width": width, "height": height})
    for name in ("tool/ship", "tool/schemas", "tool/media", "prompt/review"):
        choose(bench, name)
        if name == "tool/media":
            run(bench)
            expect(result(bench).locator("img")).to_be_visible()
        wide: list[str] = bench.evaluate(
            """() => [...document.querySelectorAll("main *")]
              .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1)
              .map((each) => each.outerHTML.slice(0, 80))"""
        )
        assert wide == []
        bench.locator(".call-view .run").scroll_into_view_if_needed()
        expect(bench.locator(".call-view .run")).to_be_in_viewport()


@pytest.mark.req("VIW-2")
@pytest.mark.parametrize(("width", "height"), [(1280, 700), (360, 740), (640, 400)])
def test_a_long_text_without_blanks_is_not_cut_off(bench: Page, width: int, height: int) -> None:
    bench.set_viewport_size({"width": width, "height": height})
    long = "x" * 500
    for name in ("pay", "ask_model"):
        choose(bench, f"tool/{name}")
        field(bench, "url" if name == "pay" else "question").fill(long)
        assert right_edge(bench, ".call-view textarea") <= width
    run(bench)
    answer = bench.get_by_role("dialog").locator("textarea").first
    answer.fill(long)
    assert right_edge(bench, "dialog *") <= width


def right_edge(page: Page, selector: str) -> float:
    found: float = page.locator(selector).evaluate_all(
        """(all) => Math.max(...all.filter((each) => each.checkVisibility())
            .map((each) => each.getBoundingClientRect().right))"""
    )
    return found


@pytest.mark.req("VIW-2")
@pytest.mark.parametrize(("width", "height"), [(1280, 700), (360, 740), (640, 400)])
def test_many_configured_servers_can_be_scrolled_to(
    page: Page, serve: Serve, tmp_path: Path, width: int, height: int
) -> None:
    config = tmp_path / ".cursor" / "mcp.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"mcpServers": {f"number{at}": {"command": "x"} for at in range(20)}}))
    page.set_viewport_size({"width": width, "height": height})
    page.goto(serve() + "#/workbench")
    page.get_by_role("tab", name="Configured").click()
    last = page.locator(".configured li").last
    expect(last).to_contain_text("number19")
    page.locator(".configured li").nth(1).hover()
    page.mouse.wheel(0, 10_000)
    expect(last.get_by_role("button", name="Connect")).to_be_in_viewport()


@pytest.mark.req("VIW-2")
def test_an_answer_is_sent_with_the_keys_of_a_call(bench: Page) -> None:
    choose(bench, "tool/ask_model")
    field(bench, "question").fill("Why?")
    bench.keyboard.press("Control+Enter")
    dialog = bench.get_by_role("dialog", name="bench asks a model")
    expect(dialog.locator("textarea").first).to_be_focused()
    bench.keyboard.press("Control+Enter")  # pressed twice by mistake: nobody has seen the question yet
    expect(dialog).to_be_visible()
    bench.keyboard.type("Because.")
    bench.keyboard.press("Control+Enter")
    expect(result(bench)).to_contain_text("It says: Because.")


@pytest.mark.req("VIW-1")
def test_a_hostile_server_runs_nothing(opened: Opened, serve: Serve) -> None:
    """The fixture fails, too, if the page uses the console, opens a window or asks for anything elsewhere."""
    page = opened.page()
    use = "from tests.browser.hostile_server import Hostile; Hostile().run()"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {use}"
    page.goto(serve("--", sys.executable, "-c", code))
    expect(item(page, "tool/form")).to_be_visible()
    for name in ("form", "url", "sample", "error"):
        choose(page, f"tool/{name}")
        page.locator(".call-view .run").click()
        if name != "error":
            dialog = page.get_by_role("dialog")
            expect(dialog).to_be_visible()
            # However long the question is, its answers are in sight.
            expect(dialog.get_by_role("button", name=re.compile("Decline|Reject"))).to_be_in_viewport()
            if name == "url":
                expect(dialog).to_contain_text("Only http and https addresses can be opened")
                expect(dialog.get_by_role("button", name="Open the page")).to_have_count(0)
            dialog.get_by_role("button", name=re.compile("Decline|Reject")).click()
        expect(result(page)).to_be_visible()
        if name == "error":
            result(page).get_by_role("button", name="Open this page").click()
            expect(page.locator(".toast").last).to_contain_text("Only http and https")
    # Every other item, its form, JSON and result.
    for group in ("resources", "templates", "prompts"):
        expect(item(page, f"group/{group}")).to_be_attached()
    count = page.locator(".item").count()
    assert count > 40
    for at in range(4, count):
        page.locator(".item").nth(at).click()
        expect(page.locator(".item").nth(at)).to_have_attribute("aria-current", "true")
        page.evaluate("document.querySelectorAll('.include:not(:checked)').forEach((each) => each.click())")
        if page.locator(".call-view .run").count():
            page.locator(".segmented button").nth(1).click()
            page.locator(".segmented button").nth(0).click()
            page.locator(".call-view .run").click()
            anyway = page.get_by_role("button", name="Send it anyway")
            expect(anyway.or_(result(page)).or_(page.locator(".call-note .banner")).first).to_be_visible()
            if anyway.count():
                anyway.click()
    for name in ("Log", "History", "Saved", "Server"):
        page.get_by_role("tab", name=name).click()
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert page.evaluate("window.attacked") is None
    assert page.evaluate("({}).polluted") is None
    foreign = "iframe, object, embed, svg, base, meta[http-equiv], script:not([src='scripts/main.js'])"
    assert page.evaluate(f"document.querySelectorAll({json.dumps(foreign)}).length") == 0
    assert page.evaluate(
        "[...document.querySelectorAll('a')].every((each) => each.getAttribute('href').startsWith('#'))"
    )
    images = "[...document.images].every((each) => /^(icon\\.svg$|data:image\\/)/.test(each.getAttribute('src')))"
    assert page.evaluate(images)
