"""Checks of single messages: by JSON-RPC, by the protocol, and by the schemas of the session's tools."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mcplumb.recording.recording_format import Record
from mcplumb.view.watch.message_check import Check, check_message
from mcplumb.view.watch.watched_session import WatchedSession
from tests.browser.recordings import Story, header, weather
from tests.kit.leaks import leaves_nothing

pytestmark = leaves_nothing


def checks(story: Story, folder: Path, text: str) -> list[Check]:
    """What is checked in the first record of the story with this text."""
    session = WatchedSession(story.write(header("weather", now=time.time() - 60), folder))
    while session.read_more():
        pass
    number = session.search(text)[0]
    record = session.record(number)
    assert record is not None
    found = check_message(session, number, record)
    session.close()
    return found


def failed(found: list[Check]) -> list[Check]:
    return [check for check in found if check.ok is False]


@pytest.mark.parametrize(
    "text", ['"days":2', "sun, for 2 days", '"tools/list"', "Which Springfield?", "notifications/progress"]
)
def test_what_is_right_passes(tmp_path: Path, text: str) -> None:
    found = checks(weather(), tmp_path, text)
    assert failed(found) == []
    assert sum(check.ok is True for check in found) >= 3


def test_arguments_are_checked_by_the_schema_of_the_tool(tmp_path: Path) -> None:
    (wrong,) = failed(checks(weather(), tmp_path, '"days":"two"'))
    assert wrong.what == "The arguments of forecast, by its schema"
    assert "days" in wrong.reason


def test_structured_content_is_checked_by_the_schema_of_the_tool(tmp_path: Path) -> None:
    (wrong,) = failed(checks(weather(), tmp_path, '"high":"12"'))
    assert wrong.what == "The structured content of forecast, by its schema"


def test_a_tool_that_nobody_listed_cannot_be_checked(tmp_path: Path) -> None:
    found = checks(weather(), tmp_path, "foercast")
    assert found[-1].ok is None
    assert found[-1].reason == "the session does not list this tool"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("DEBUG x", "JSON-RPC 2.0"),
        ('{"jsonrpc":"1.0","id":1,"method":"ping"}', "JSON-RPC 2.0"),
        ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":3}}', "The params of tools/call"),
        ('{"jsonrpc":"2.0","method":"notifications/progress","params":{}}', "The params of notifications/progress"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, line: str, what: str) -> None:
    story = Story()
    story.line(0.1, "client", line)
    found = failed(checks(story, tmp_path, line))
    assert [check.what for check in found] == [what]
    assert found[0].reason


def test_what_cannot_be_checked_is_said(tmp_path: Path) -> None:
    story = Story()
    story.say(0.1, "server", id=9, result={"stray": True})
    assert checks(story, tmp_path, "stray")[-1] == Check(None, "The result", "the request that it answers is not known")
    story = Story()
    story.line(0.1, "server", '{"jsonrpc":"2.0","result":{"cut":', cut=10**9)
    assert checks(story, tmp_path, "cut")[0].ok is None
    story = Story()
    story.say(0.1, "client", id=1, method="acme/dance", params={})
    assert checks(story, tmp_path, "acme")[-1].reason == "the method is not one of the protocol"
    story = Story()
    story.stderr(0.1, "nothing to check")
    assert checks(story, tmp_path, "nothing") == []
    story = Story()
    story.records.append(Record(t=0.1, sender="server", base64="/3ggeQ=="))
    assert failed(checks(story, tmp_path, "x y"))[0].what == "UTF-8"


def test_a_hostile_schema_does_no_harm(tmp_path: Path) -> None:
    story = Story()
    tools = story.request(0.1, "tools/list")
    schema = {"type": "object", "properties": {"a": {"$ref": "https://evil.example/x.json"}}}
    story.result(0.2, tools, tools=[{"name": "bad", "inputSchema": schema}])
    story.request(0.3, "tools/call", name="bad", arguments={"a": 1})
    found = checks(story, tmp_path, '"tools/call"')
    assert found[-1].ok is None
    assert found[-1].reason.startswith("the schema cannot be used")
