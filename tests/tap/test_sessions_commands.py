"""The commands that read recordings, as processes and in this process."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from mcplumb.cli.commands import recordings
from mcplumb.recording.recorder import RecordingWriter
from mcplumb.recording.recording_format import Http, Record, Target
from tests.cli.kit import PYTHON, here, mcplumb
from tests.tap.sessions import DISCOVER, META, answer, ask, called, fail, handshake, header, listed, records, tell, tool

SERVER = """
import sys
from mcplumb import Server

server = Server("shop", version=sys.argv[1])

@server.tool(annotations={"readOnlyHint": True})
def price(item: str) -> str:
    "The price of an item."
    return f"{item}: {sys.argv[1]}"

@server.tool()
def buy(item: str) -> str:
    "Buy it."
    open(sys.argv[2], "a").write(item)
    return "bought"

@server.resource("shop://hours")
def hours() -> str:
    return "always"

if sys.argv[1] == "2":
    @server.tool()
    def sell(item: str, amount: int = 1) -> str:
        return "sold"

server.run()
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "mcplumb" / "recordings"


def write(path: Path | None, lines: list[Any], **about: Any) -> Path:
    writer = RecordingWriter(header(**about), path)
    writer.write(records(lines))
    writer.close()
    assert writer.path is not None
    return writer.path


SESSION = [
    *DISCOVER,
    ("client", ask(1, "tools/list")),
    ("server", listed(1, tool("echo"))),
    ("client", ask(2, "tools/call", {**META, "progressToken": 1}, name="echo", arguments={"a": 1})),
    ("server", tell("notifications/progress", progressToken=1, progress=1, total=2)),
    ("server", called(2)),
    ("client", ask(3, "tools/call", name="echo", arguments={})),
    ("server", fail(3, -32602)),
    ("stderr", "warn: \x1b[31mred"),
]
FAULTY = [*SESSION, ("server", "print!")]


def test_sessions_are_listed_and_found_by_name_and_id(state: Path) -> None:
    assert "no recordings" in here("sessions").err
    assert here("show").code == 2
    write(None, SESSION, name="weather")
    done = here("sessions")
    assert "weather" in done.out
    assert "000000" in done.out
    for word in ("weather", "000000", "20260101T000000Z-000000", str(next(state.iterdir()))):
        assert "tools/call echo" in here("show", word).out
    assert here("show", "nothing").code == 2
    (found,) = here("sessions", "--json").json
    assert found["header"]["name"] == "weather"
    assert found["live"] is False
    (state / "broken.mcp.jsonl").write_text("x\n")
    assert "not a recording" in here("sessions").err
    assert here("sessions", "/no/such").code == 2


@pytest.mark.parametrize("when", ["find_recordings", "is_live"])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_recording_that_is_deleted_or_compressed_while_they_are_listed(
    state: Path, monkeypatch: pytest.MonkeyPatch, when: str, *, is_compressed: bool
) -> None:
    """Both happen after the list was made: before the recording is opened, or before its size is read."""
    write(None, SESSION, name="stays")
    writer = RecordingWriter(replace(header(name="goes"), id="20260102T000000Z-000001"))
    writer.close()
    path = writer.path
    assert path is not None
    original = getattr(recordings, when)

    def tidied(place: Path) -> Any:
        found = original(place)
        if path.is_file() and place in (path, state):
            if is_compressed:
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        return found

    monkeypatch.setattr(recordings, when, tidied)
    done = here("sessions", "--json")
    listed = [(found["header"]["name"], Path(found["file"]).suffix) for found in done.json]
    assert listed == [*([("goes", ".gz")] if is_compressed else []), ("stays", ".jsonl")]
    assert (done.code, done.err) == (0, "")


def test_a_session_is_shown_in_words(tmp_path: Path) -> None:
    done = here("show", str(write(tmp_path / "a", SESSION)))
    assert done.code == 0
    lines = done.out.splitlines()
    assert any("--> tools/call echo" in line and "400.0 ms, 1 notification" in line for line in lines)
    assert any("error -32602: no" in line for line in lines)
    assert any("| warn: \\x1b[31mred" in line for line in lines)
    assert lines[-1] == "No findings."


@pytest.mark.req("TAP-4")
def test_findings_are_shown_and_fail_a_check(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a", FAULTY))
    done = here("show", path, "--check")
    assert done.code == 1
    assert done.out.startswith("error FRM-2: Output that is not a message (line 12)\n")
    assert "To do: " in done.out
    assert here("show", path).code == 0
    assert [finding["rule"] for finding in here("show", path, "--check", "--json").json["findings"]] == ["stray-output"]
    clean = here("show", str(write(tmp_path / "b", SESSION)), "--check")
    assert (clean.code, clean.out) == (0, "No findings.\n")
    lost = write(tmp_path / "c", [*SESSION, ("event", {"event": "lost", "records": 1})])
    assert here("show", str(lost), "--check").code == 0


def test_a_damaged_recording_is_shown_without_findings_that_are_not_true(tmp_path: Path) -> None:
    path = write(tmp_path / "a", SESSION)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"garbage\n", *lines[4:]]))  # the request of an answer
    done = here("show", str(path), "--check")
    assert done.code == 0
    assert done.out.startswith("note TAP-2: The recording is not complete (line 4)\n")
    assert "answer" not in done.out


def test_a_revision_that_was_only_asked_for_is_not_shown(tmp_path: Path) -> None:
    lines = [("client", ask(0, "server/discover")), ("server", fail(0, -32601)), *handshake("2025-06-18")]
    done = here("show", str(write(tmp_path / "a", lines)))
    assert done.out.splitlines()[1] == "c 1 with s 1, 2025-06-18"
    done = here("show", str(write(tmp_path / "b", [*DISCOVER, *SESSION[2:4]])), "--json")
    assert done.code == 0


def test_single_records_are_shown_in_full(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a", SESSION))
    done = here("show", path, "6")
    assert done.json["text"]["params"]["name"] == "echo"
    assert here("show", path, "1").code == 2
    assert here("show", path, "99").code == 2
    assert here("show", path, "--follow", "--check").code == 2


def test_a_running_session_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writer = RecordingWriter(header(), path)
    made = records(FAULTY)
    writer.write(made[:5])
    process = subprocess.Popen(
        [PYTHON, "-m", "mcplumb", "show", str(path), "--follow"], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "tools/call echo" in line:
            break
    writer.write(made[5:])
    for line in process.stdout:
        if "answer to 6" in line:
            assert "400.0 ms" in line
            break
    threading.Timer(0.1, writer.close).start()
    rest = process.stdout.read()
    assert process.wait(60) == 0
    assert "error FRM-2" in rest
    process.stdout.close()


def test_a_check_waits_for_the_last_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tap does not wait for its recorder for long, and what is recorded last may be what has to be found."""
    path = tmp_path / "a"
    writer = RecordingWriter(header(), path)
    made = records(FAULTY)
    writer.write(made[:-1])

    def end(_: float) -> None:
        writer.write(made[-1:])
        writer.close()

    monkeypatch.setattr(recordings, "time", SimpleNamespace(monotonic=time.monotonic, sleep=end))
    done = here("show", str(path), "--check")
    assert done.code == 1
    assert "error FRM-2" in done.out
    assert done.err == ""


def test_a_session_that_goes_on_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "_LAST_RECORDS_WITHIN", 0.0)
    path = tmp_path / "a"
    writer = RecordingWriter(header(), path)
    writer.write(records(SESSION))
    for options in ((), ("--check",)):
        done = here("show", str(path), *options)
        assert done.code == 0
        assert "The session is still being recorded" in done.err
    writer.close()
    assert here("show", str(path)).err == ""


@pytest.mark.parametrize("form", ["json", "html", "har", "otlp"])
def test_a_session_is_exported(tmp_path: Path, form: str) -> None:
    nasty = "<script>alert(1)</script>"
    path = str(write(tmp_path / "a", [*FAULTY, ("server", nasty)], name="x"))
    done = here("export", path, "--as", form)
    assert done.code == 0, done.err
    assert here("export", path, "--as", form, "-o", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out").read_text() == done.out
    assert here("export", path, "--as", form, "-o", str(tmp_path / "no" / "out")).code == 2
    if form == "html":
        assert nasty not in done.out
        assert "&lt;script&gt;" in done.out
        assert "<script" not in done.out
        return
    document = done.json
    if form == "json":
        assert len(document["records"]) == len(FAULTY) + 1
        assert {item["kind"] for item in document["items"]} == {"call", "notification", "stderr", "bad"}
    elif form == "har":
        entries = document["log"]["entries"]
        assert [entry["request"]["url"] for entry in entries][2] == "mcp://x/tools/call"
        assert json.loads(entries[2]["response"]["content"]["text"])["id"] == 2
        assert entries[2]["startedDateTime"] == "2026-01-01T00:00:01.000Z"
        assert entries[2]["time"] == pytest.approx(400)
    else:
        spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
        assert [span["name"] for span in spans] == [
            "server/discover",
            "tools/list",
            "tools/call echo",
            "tools/call echo",
        ]
        assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
        assert int(spans[2]["endTimeUnixNano"]) - int(spans[2]["startTimeUnixNano"]) == pytest.approx(4e8, rel=1e-3)
        assert spans[3]["status"]["code"] == 2


# What HAR 1.2 requires of each object.
HAR = {
    "entry": {"startedDateTime", "time", "request", "response", "cache", "timings"},
    "request": {
        "method", "url", "httpVersion", "cookies", "headers", "queryString", "headersSize", "bodySize",
    },
    "response": {
        "status", "statusText", "httpVersion", "cookies", "headers", "content", "redirectURL", "headersSize",
        "bodySize",
    },
    "content": {"size", "mimeType"},
    "timings": {"send", "wait", "receive"},
}  # fmt: skip


def test_har_is_complete_and_joins_the_heads_of_http(tmp_path: Path) -> None:
    def exchange(number: int, status: int, answered: str) -> list[Any]:
        head = {"exchange": number, "method": "POST", "path": "/mcp", "headers": [("x-number", f"{number}")]}
        return [
            ("client", head, ask(1, "tools/list")),
            (
                "server",
                {"exchange": number, "status": status, "headers": [("content-type", "application/json")]},
                answered,
            ),
        ]

    lines = [*exchange(1, 200, listed(1)), *exchange(2, 404, fail(1, -32601)), exchange(3, 200, "")[0]]
    path = write(tmp_path / "a", lines, name="a b", target=Target(url="https://x/mcp"))
    log = here("export", str(path), "--as", "har").json["log"]
    assert (log["version"], set(log["creator"])) == ("1.2", {"name", "version"})
    for entry in log["entries"]:
        for name, keys in HAR.items():
            found = {"entry": entry, "content": entry["response"]["content"]}.get(name) or entry[name]
            assert keys - set(found) == set(), name
    assert [entry["response"]["status"] for entry in log["entries"]] == [200, 404, 0]
    assert [entry["request"]["headers"][0]["value"] for entry in log["entries"]] == ["1", "2", "3"]
    assert log["entries"][0]["request"]["url"] == "https://x/mcp"
    assert log["entries"][0]["request"]["queryString"] == []
    # A session of HTTP+SSE posts to another path than that of the server.
    lines[0][1]["path"] = "/messages?a=1%202&b="
    path = write(tmp_path / "c", lines, name="a b", target=Target(url="https://x:1/sse"))
    request = here("export", str(path), "--as", "har").json["log"]["entries"][0]["request"]
    assert request["url"] == "https://x:1/messages?a=1%202&b="
    assert request["queryString"] == [{"name": "a", "value": "1 2"}, {"name": "b", "value": ""}]
    path = write(tmp_path / "b", DISCOVER, name="a b")
    (entry,) = here("export", str(path), "--as", "har").json["log"]["entries"]
    assert entry["request"]["url"] == "mcp://a%20b/server/discover"


def test_an_exported_span_is_a_child_of_what_the_request_names(tmp_path: Path) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    path = write(tmp_path / "a", [("client", ask(1, "x/y", {**META, "traceparent": parent})), ("server", answer(1))])
    (span,) = here("export", str(path), "--as", "otlp").json["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (span["traceId"], span["parentSpanId"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


@pytest.mark.parametrize(
    "parent",
    [
        f"00-{'x' * 32}-{'1' * 16}-01",
        f"00-{'1' * 32}-{'<' * 16}-01",
        f"00-{'0' * 32}-{'1' * 16}-01",
        f"00-{'1' * 32}-{'0' * 16}-01",
        "00-" + "\uff11" * 32 + f"-{'1' * 16}-01",
        "00",
    ],
)
def test_a_parent_that_is_none_does_not_break_the_export(tmp_path: Path, parent: str) -> None:
    """A collector refuses all spans if an id of one is no hexadecimal number."""
    path = write(tmp_path / "a", [("client", ask(1, "x/y", {**META, "traceparent": parent})), ("server", answer(1))])
    (span,) = here("export", str(path), "--as", "otlp").json["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
    assert "parentSpanId" not in span


# --- Comparing ---


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SERVER)
    return tmp_path / "shop.py"


def visit(shop: Path, version: str, place: Path, bought: Path) -> None:
    """Use the server through a tap: list, call, read."""
    code = f"""
import asyncio, sys
from mcplumb import connect
async def main():
    command = [sys.executable, "-m", "mcplumb", "tap", "--record", {str(place)!r}, "--", sys.executable, {str(shop)!r}]
    async with connect([*command, {version!r}, {str(bought)!r}]) as client:
        await client.list_tools()
        await client.call_tool("price", {{"item": "tea"}})
        await client.call_tool("buy", {{"item": "tea"}})
        await client.read_resource("shop://hours")
asyncio.run(main())
"""
    subprocess.run([PYTHON, "-c", code], check=True, timeout=120)


def test_sessions_are_compared_and_replayed(shop: Path, tmp_path: Path) -> None:
    one, two, bought = tmp_path / "one", tmp_path / "two", tmp_path / "bought"
    visit(shop, "1", one, bought)
    visit(shop, "2", two, bought)
    assert here("diff", str(one), str(one)) == (0, "No differences.\n", "")
    done = here("diff", str(one), str(two))
    assert done.code == 1
    text = done.out
    assert 'server serverInfo.version: "1" became "2"' in text
    assert "tools sell: added" in text
    assert 'answer tools/call price content[0].text: "tea: 1" became "tea: 2" (lines ' in text
    kinds = [each["kind"] for each in here("diff", str(one), str(two), "--json").json]
    assert sorted(set(kinds)) == ["answer", "server", "tools"]
    # Replayed: the same server answers the same, and nothing is bought.
    bought.unlink()
    again = mcplumb("replay", str(one), "--", PYTHON, str(shop), "1", str(bought))
    assert again.code == 0, again
    assert "tools/call price: the same" in again.out
    assert "tools/call buy: not sent, the tool is not marked read-only." in again.err
    assert "Requests sent again: 3, of which 0 got another answer. Not sent: " in again.err
    assert not bought.exists()
    other = mcplumb("replay", str(one), "--all", "--json", "--", PYTHON, str(shop), "2", str(bought))
    assert other.code == 1
    assert bought.read_text() == "tea"
    by_name = {each["name"]: each for each in other.json if each["method"] == "tools/call"}
    assert by_name["price"]["differences"][0]["place"] == "content[0].text"
    assert by_name["buy"]["differences"] == []


def test_masked_and_unanswered_requests_are_not_replayed(tmp_path: Path, shop: Path) -> None:
    path = write(
        tmp_path / "a",
        [
            *DISCOVER,
            ("client", ask(1, "tools/call", name="price", arguments={"password": "x1234"})),
            ("server", called(1)),
            ("client", ask(2, "tools/call", name="price", arguments={"item": "x"})),
            ("client", ask(3, "com.example/wipe")),
            ("server", answer(3)),
        ],
    )
    done = mcplumb("replay", str(path), "--", PYTHON, str(shop), "1", str(tmp_path / "bought"))
    assert done.code == 0, done
    assert "secrets in it are masked" in done.err
    assert "it had no answer" in done.err
    assert "it may change something" in done.err


def test_a_removed_tool_and_a_changed_schema_are_seen(tmp_path: Path) -> None:
    def session(*tools: Any) -> str:
        name = str(len(list(tmp_path.iterdir())))
        return str(write(tmp_path / name, [*DISCOVER, ("client", ask(1, "tools/list")), ("server", listed(1, *tools))]))

    old = session(tool("a", description="old"), tool("b"))
    new = session({**tool("a", description="new"), "inputSchema": {"type": "object", "required": ["x"]}})
    done = here("diff", old, new)
    assert 'tools a description: "old" became "new"' in done.out
    assert 'tools a inputSchema.required: added: ["x"]' in done.out
    assert "tools b: removed" in done.out


def test_records_may_be_anything(tmp_path: Path) -> None:
    deep = ask(1, "x").replace('"x"', f'"x","params":{{"deep":{"[" * 100_000}{"]" * 100_000}}}')
    late = [Record(t=t, sender="client", text=ask(t, "ping")) for t in (-1e300, 1e300)]
    http = Record(t=1.0, sender="client", text="{}", http=Http(exchange=1, method="POST", path="//[x"))
    events = [
        Record(t=1.0, event="lost", records=-5, byte_count=-1),
        Record(t=1.0, event="\x1b[2J\x9b\u202e", code=10**20),
    ]
    path = write(
        tmp_path / "a",
        [
            Record(t=1.0),
            Record(t=1.0, sender="client", base64="!"),
            ("server", "[1]"),
            ("client", deep),
            ("client", ask(1, "tools/list")),
            ("server", answer(1, tools=5)),
            *late,
            http,
            *events,
        ],
    )
    for words in (("show", str(path)), ("show", str(path), "--check"), ("diff", str(path), str(path))):
        done = here(*words)
        assert done.code in (0, 1), done.err
        assert not set(done.out) & {"\x1b", "\x9b", "\u202e"}
    for form in ("json", "html", "har", "otlp"):
        done = here("export", str(path), "--as", form)
        assert done.code == 0, done.err
        assert not set(done.out) & {"\x1b", "\x9b", "\u202e"}
