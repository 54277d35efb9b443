"""The servers that the other tests launch do what they say, seen with raw bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import pytest

from tests.kit.loop import PATIENCE, blocking_until
from tests.kit.products import revision_names
from tests.launch.harness import LEGACY, MODERN, Message, Stage
from tests.launch.remains import is_alive

# They are proven by the tests that use them, too.
pytestmark = pytest.mark.thorough


class Raw:
    """One of the servers, on pipes."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def send(self, *messages: Message) -> None:
        for message in messages:
            self.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.stdin.flush()

    def ask(self, request_id: int, method: str, **params: Any) -> Message:
        self.send({"id": request_id, "method": method, "params": params})
        return self.receive()

    def call(self, request_id: int, tool: str, **arguments: Any) -> None:
        self.send({"id": request_id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})

    def receive(self) -> Message:
        message: Message = json.loads(self.stdout.readline())
        return message

    def end(self) -> tuple[int, bytes, bytes]:
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


@contextmanager
def raw(stage: Stage, program: str, **options: Any) -> Iterator[Raw]:
    server = Raw(stage.command(program, **options))
    try:
        yield server
    finally:
        server.kill()


DISCOVER: Message = {"id": 1, "method": "server/discover", "params": {}}


@pytest.mark.parametrize("revision", revision_names())
def test_a_good_one_speaks_its_revision_only(stage: Stage, revision: str) -> None:
    with raw(stage, "good", revisions=[revision]) as server:
        found = server.ask(1, "server/discover")
        opened = server.ask(2, "initialize", protocolVersion="2025-06-18")
        if revision == MODERN:
            assert found["result"]["supportedVersions"] == [MODERN]
            assert opened["error"]["code"] == -32022
        else:
            assert found["error"]["code"] == -32601
            assert opened["result"]["protocolVersion"] == revision
        server.call(3, "echo", text="hello")
        assert server.receive()["result"]["content"][0]["text"] == "hello"
        assert server.end() == (0, b"", b"")
    assert stage.log.methods() == ["server/discover", "initialize", "tools/call"]
    assert stage.log.events() == ["started", "end of input"]


def test_one_that_crashes(stage: Stage) -> None:
    with raw(stage, "crashing", on="tools/list", nth=2, code=9, says="alas\n", times=1) as server:
        assert "result" in server.ask(1, "tools/list")
        server.send({"id": 2, "method": "tools/list"})
        assert server.end() == (9, b"", b"alas\n")
    with raw(stage, "crashing", on="start", signal="SIGSEGV", times=2) as server:
        assert server.end()[0] == -signal.SIGSEGV
    with raw(stage, "crashing", on="start", raises="no config", times=2) as server:
        assert "result" in server.ask(1, "tools/list")
    with raw(stage, "crashing", on="start", raises="no config") as server:
        code, _, err = server.end()
        assert code == 1
        assert b"RuntimeError: no config" in err


def test_one_that_crashes_in_the_middle_of_a_line(stage: Stage) -> None:
    with raw(stage, "crashing", on="*", torn=True, code=3) as server:
        server.send(DISCOVER)
        assert server.end() == (3, b'{"jsonrpc": "2.0", "id": 1, "resu', b"")


def test_one_that_hangs(stage: Stage) -> None:
    with raw(stage, "hanging", silent_on=["server/discover"], deaf_after=2) as server:
        server.send(DISCOVER)
        assert server.ask(2, "tools/list")["id"] == 2
        blocking_until(lambda: "deaf" in stage.log.events(), "deafness")
        server.stdin.close()
        server.process.terminate()
        assert server.process.wait(PATIENCE) == -signal.SIGTERM


def test_one_that_closes_its_stdout(stage: Stage) -> None:
    with raw(stage, "hanging", mute_after=0) as server:
        assert server.stdout.read() == b""
        assert server.process.poll() is None
        assert server.end()[0] == 0


@pytest.mark.parametrize("ignored", [["EOF"], ["EOF", "TERM"], ["TERM"]])
def test_one_that_does_not_leave(stage: Stage, ignored: list[str]) -> None:
    with raw(stage, "stubborn", ignores=ignored) as server:
        server.send(DISCOVER)
        server.receive()
        if "TERM" in ignored:
            server.process.terminate()
            blocking_until(lambda: "SIGTERM" in stage.log.events(), "the signal")
        if "EOF" in ignored:
            server.stdin.close()
            blocking_until(lambda: "end of input" in stage.log.events(), "the end of input")
            assert server.process.poll() is None
        else:
            assert server.end()[0] == 0


def test_one_with_children(stage: Stage) -> None:
    kinds: list[Message] = [{}, {"session": True}, {"orphan": True, "ignores": ["TERM"]}, {"holds": [1]}]
    with raw(stage, "parent", children=kinds) as server:
        server.send(DISCOVER)
        server.receive()
        children = stage.log.children()
        assert len(children) == len(kinds)
        server.stdin.close()
        assert server.process.wait(PATIENCE) == 0
        assert all(map(is_alive, children))
        assert os.getsid(children[0]) == server.process.pid
        assert os.getsid(children[1]) == children[1]
        for child in children:
            os.kill(child, signal.SIGKILL)
        blocking_until(lambda: not stage.living(), "the children to be gone")


def test_one_that_becomes_a_daemon(stage: Stage) -> None:
    with raw(stage, "parent", daemon=True) as server:
        assert server.process.wait(PATIENCE) == 0
        assert "result" in server.ask(1, "server/discover")
        server.stdin.close()
        blocking_until(lambda: not stage.living(), "the daemon to be gone")


@pytest.mark.parametrize("what", ["notifications", "unknown", "garbage", "requests", "blank", "line"])
def test_one_that_floods_its_stdout(stage: Stage, what: str) -> None:
    with raw(stage, "flooding", what=what, bytes=1 << 20) as server:
        server.send(DISCOVER)
        server.stdin.close()
        out = server.stdout.read()
        assert len(out) > 1 << 20
        assert json.loads(out.rstrip(b"\n").rpartition(b"\n")[2])["id"] == 1


def test_one_that_floods_without_an_end_and_still_answers(stage: Stage) -> None:
    with raw(stage, "flooding", what="garbage", after=1) as server:
        assert "result" in server.ask(1, "server/discover")
        server.call(2, "echo", text="hello")
        while not server.stdout.readline().startswith(b'{"jsonrpc": "2.0", "id": 2'):
            pass


def test_one_that_floods_its_stderr(stage: Stage) -> None:
    with raw(stage, "flooding", what="stderr", bytes=1 << 20) as server:
        server.send(DISCOVER)
        code, out, err = server.end()
        assert (code, len(out.splitlines())) == (0, 1)
        assert len(err) >= 1 << 20


def test_one_that_garbles(stage: Stage) -> None:
    options = {"first": "\xef\xbb\xbf", "before": "\xff\n\n", "ending": "\r\n", "pieces": 3}
    with raw(stage, "garbling", **options) as server:
        server.send(DISCOVER)
        out = server.end()[1]
        assert out.startswith(b"\xef\xbb\xbf\xff\n\n{")
        assert out.endswith(b"}\r\n")


def test_one_that_answers_oddly(stage: Stage) -> None:
    with raw(stage, "odd") as server:
        server.call(1, "odd", how="twice")
        assert server.receive()["id"] == server.receive()["id"] == 1
        server.call(2, "odd", how="late")
        server.send({"method": "notifications/cancelled", "params": {"requestId": 2}})
        assert server.receive()["id"] == 2
        server.call(3, "odd", how="a list")
        assert server.receive()["result"] == [1]


def test_one_that_changes_its_era(stage: Stage) -> None:
    each = [
        {"on_probe": "exit"},
        {"revisions": [LEGACY[0]], "ignores_unknown": True},
        {"on_initialize": {"code": 5, "message": "No."}},
    ]
    with raw(stage, "eras", each=each) as server:
        server.send(DISCOVER)
        assert server.end() == (7, b"", b"I do not know server/discover.\n")
    with raw(stage, "eras", each=each) as server:
        server.send(DISCOVER)
        assert server.ask(2, "initialize", protocolVersion=LEGACY[2])["result"]["protocolVersion"] == LEGACY[0]
    with raw(stage, "eras", each=each) as server:
        assert server.ask(2, "initialize")["error"]["code"] == 5


def test_one_that_asks(stage: Stage) -> None:
    with raw(stage, "asking", revisions=[LEGACY[-1]], pages="on") as server:
        assert server.ask(1, "tools/list")["result"]["nextCursor"] == "1"
        server.call(2, "ask", method="ping")
        question = server.receive()
        assert question["method"] == "ping"
        server.send({"id": question["id"], "result": {}})
        assert server.receive()["id"] == 2
    with raw(stage, "asking", rogue=True) as server:
        assert server.ask(1, "tools/list")["method"] == "ping"
        assert server.receive()["method"] == "roots/list"
        assert server.receive()["id"] == 1
        server.call(2, "ask", method="roots/list")
        server.receive(), server.receive()
        assert server.receive()["result"]["resultType"] == "input_required"
