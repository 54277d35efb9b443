"""Traces and metrics with the real SDK, in processes of their own: it is configured for a whole process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcplumb import Server, connect
from mcplumb.revisions import LATEST, LATEST_LEGACY
from mcplumb.telemetry.opentelemetry_observer import configured_observer
from tests.kit.loop import PATIENCE
from tests.kit.servers import serving

PROGRAM = [sys.executable, str(Path(__file__).parent / "programs" / "traced.py")]
ERAS = [LATEST.name, LATEST_LEGACY.name]
UNTRACED = """
import sys
from mcplumb import Server
server = Server("untraced")
@server.tool
async def modules() -> str:
    return " ".join(name for name in sys.modules if "telemetry" in name or "observed" in name)
server.run()
"""


class Written:
    """What the programs wrote."""

    def __init__(self, file: Path) -> None:
        records = [json.loads(line) for line in file.read_text().splitlines()]
        self.spans = [record for record in records if "span" in record]
        self.metrics = [record for record in records if "metric" in record]

    def span(self, role: str, name: str, kind: str) -> Any:
        found = [each for each in self.spans if (each["role"], each["name"], each["kind"]) == (role, name, kind)]
        assert found, (role, name, kind, [each["name"] for each in self.spans])
        return found[0]

    def parent(self, span: Any) -> Any:
        (found,) = [each for each in self.spans if each["span"] == span["parent"]]
        assert found["trace"] == span["trace"]
        return found

    def metric(self, role: str, name: str, **attributes: str) -> Any:
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        for each in self.metrics:
            if (each["role"], each["metric"]) == (role, name) and wanted.items() <= each["attributes"].items():
                return each
        raise AssertionError([each for each in self.metrics if each["metric"] == name])


def visit(file: Path, revision: str, *target: str) -> list[str]:
    done = subprocess.run(
        [*PROGRAM, str(file), "client", revision, *target], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    error, results = done.stdout.decode().splitlines()
    assert error == "RemoteError"
    return list(json.loads(results))


@contextmanager
def running(file: Path, role: str, address: str, *more: str) -> Iterator[str]:
    with subprocess.Popen([*PROGRAM, str(file), role, address, *more], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.terminate()
            process.wait(PATIENCE)


def check_joined(written: Written, transport: str) -> None:
    """Each call is one trace, from the caller's span at the client to the author's span at the server."""
    inside = written.span("server", "inside add", "INTERNAL")
    at_server = written.parent(inside)
    assert (at_server["name"], at_server["kind"], at_server["role"]) == ("tools/call add", "SERVER", "server")
    at_client = written.parent(at_server)
    assert (at_client["name"], at_client["kind"], at_client["role"]) == ("tools/call add", "CLIENT", "client")
    assert at_client["pid"] != at_server["pid"]
    assert written.parent(at_client)["name"] == "caller"
    for span in (at_client, at_server):
        attributes = span["attributes"]
        assert attributes["mcp.method.name"] == "tools/call"
        assert attributes["gen_ai.tool.name"] == "add"
        assert attributes["gen_ai.operation.name"] == "execute_tool"
        assert attributes["network.transport"] == transport
        assert attributes["jsonrpc.request.id"] == at_server["attributes"]["jsonrpc.request.id"]


Visited = Callable[[str], tuple[list[str], Written]]


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Visited:
    """Gives the results and the spans of a visit over stdio, which is made once for each revision."""

    @cache
    def over_stdio(revision: str) -> tuple[list[str], Written]:
        file = tmp_path_factory.mktemp("visit") / "spans"
        return visit(file, revision, *PROGRAM, str(file), "server"), Written(file)

    return over_stdio


@pytest.mark.req("SCL-5", "META-6")
@pytest.mark.parametrize("revision", ERAS)
def test_a_call_is_one_trace_over_stdio(visited: Visited, revision: str) -> None:
    texts, written = visited(revision)
    check_joined(written, "pipe")
    # Context and baggage reach a plain function, in its thread.
    span_id, user, _ = texts[1].split()
    assert span_id == written.span("server", "tools/call in_thread", "SERVER")["span"]
    assert user == "alice"
    for role, kind in (("client", "CLIENT"), ("server", "SERVER")):
        failed = written.span(role, "tools/call fail", kind)
        assert failed["status"] == "ERROR"
        assert failed["attributes"]["error.type"] == "tool_error"
        assert failed["attributes"]["mcp.protocol.version"] == revision
        check_unknown(written.span(role, "tools/call nothing", kind))


@pytest.mark.req("SCL-5", "META-6")
@pytest.mark.parametrize("revision", ERAS)
def test_a_call_is_one_trace_over_http(tmp_path: Path, revision: str) -> None:
    file = tmp_path / "spans"
    with running(file, "server", "http://127.0.0.1:0/mcp") as url:
        visit(file, revision, url)
    written = Written(file)
    check_joined(written, "tcp")
    assert written.span("server", "tools/call add", "SERVER")["attributes"]["network.protocol.name"] == "http"
    address = urlsplit(url)
    for kept in (
        written.span("client", "tools/call add", "CLIENT"),
        written.metric("client", "mcp.client.operation.duration", gen_ai__tool__name="add"),
    ):
        attributes = kept["attributes"]
        assert (attributes["server.address"], attributes["server.port"]) == (address.hostname, address.port)


@pytest.mark.req("SCL-5")
def test_a_legacy_servers_question_belongs_to_the_call(visited: Visited) -> None:
    _, written = visited(LATEST_LEGACY.name)
    answered = written.span("client", "elicitation/create", "SERVER")
    asked = written.parent(answered)
    assert (asked["role"], asked["kind"]) == ("server", "CLIENT")
    assert written.parent(asked)["name"] == "tools/call ask"


@pytest.mark.req("SCL-5")
@pytest.mark.parametrize("revision", ERAS)
def test_a_bridge_is_part_of_the_trace(tmp_path: Path, revision: str) -> None:
    file = tmp_path / "spans"
    with running(file, "bridge", "http://127.0.0.1:0/mcp", *PROGRAM, str(file), "server") as url:
        visit(file, revision, url)
    written = Written(file)
    at_server = written.parent(written.span("server", "inside add", "INTERNAL"))
    back = written.parent(at_server)
    front = written.parent(back)
    assert [(each["role"], each["kind"]) for each in (back, front)] == [("bridge", "CLIENT"), ("bridge", "SERVER")]
    assert written.parent(front)["role"] == "client"


def check_unknown(span: Any) -> None:
    """A tool that does not exist is an error of its caller, and none of the server."""
    assert span["attributes"]["rpc.response.status_code"] == "-32602"
    is_error = span["kind"] == "CLIENT"
    assert (span["status"] == "ERROR", "error.type" in span["attributes"]) == (is_error, is_error)


def check_tapped(written: Written, transport: str) -> None:
    """The span of the tap is a child of the client's, beside the server's: the tap changes no byte."""
    tapped = written.span("tap", "tools/call add", "SERVER")
    at_server = written.parent(written.span("server", "inside add", "INTERNAL"))
    assert written.parent(tapped) == written.parent(at_server)
    assert tapped["attributes"]["gen_ai.tool.name"] == "add"
    assert tapped["attributes"]["network.transport"] == transport
    assert tapped["attributes"]["jsonrpc.request.id"] == at_server["attributes"]["jsonrpc.request.id"]
    assert tapped["status"] == "UNSET"
    failed = written.span("tap", "tools/call fail", "SERVER")
    assert (failed["status"], failed["attributes"]["error.type"]) == ("ERROR", "tool_error")
    check_unknown(written.span("tap", "tools/call nothing", "SERVER"))


@pytest.mark.req("SCL-5", "TAP-1")
@pytest.mark.parametrize("revision", ERAS)
def test_a_tap_has_spans_over_stdio(tmp_path: Path, revision: str) -> None:
    file = tmp_path / "spans"
    visit(file, revision, *PROGRAM, str(file), "tap", *PROGRAM, str(file), "server")
    wait_for_span(file, "tools/call nothing")  # its recorder may still be writing
    check_tapped(Written(file), "pipe")
    asked = [each for each in Written(file).spans if (each["role"], each["kind"]) == ("tap", "CLIENT")]
    assert [each["name"] for each in asked] == ([] if revision == LATEST.name else ["elicitation/create"])


@pytest.mark.req("SCL-5", "TAP-1")
@pytest.mark.parametrize("revision", ERAS)
def test_a_tap_has_spans_over_http(tmp_path: Path, revision: str) -> None:
    file = tmp_path / "spans"
    with (
        running(file, "server", "http://127.0.0.1:0/mcp") as url,
        running(file, "http-tap", url) as tap,
    ):
        visit(file, revision, f"{tap.rstrip('/')}/mcp")
    written = Written(file)
    for span in written.spans:
        span["role"] = span["role"].removeprefix("http-")
    check_tapped(written, "tcp")


def wait_for_span(file: Path, name: str) -> None:
    end = time.monotonic() + PATIENCE
    while not any((each["role"], each["name"]) == ("tap", name) for each in Written(file).spans):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.req("SCL-5")
def test_durations_are_metrics(visited: Visited) -> None:
    _, written = visited(LATEST.name)
    for role in ("client", "server"):
        name = f"mcp.{role}.operation.duration"
        added = written.metric(role, name, gen_ai__tool__name="add")
        assert (added["unit"], added["count"], added["bounds"][0], added["bounds"][-1]) == ("s", 1, 0.01, 300.0)
        assert "jsonrpc.request.id" not in added["attributes"]
        assert written.metric(role, name, gen_ai__tool__name="fail")["attributes"]["error.type"] == "tool_error"
        assert written.metric(role, f"mcp.{role}.session.duration")["count"] == 1
    # A name that no tool has is not a label at the server.
    unknown = written.metric("server", "mcp.server.operation.duration", rpc__response__status_code="-32602")
    assert "error.type" not in unknown["attributes"]
    assert "gen_ai.tool.name" not in unknown["attributes"]


@pytest.mark.req("SCL-5")
def test_nothing_is_loaded_while_it_is_not_configured(tmp_path: Path) -> None:
    (tmp_path / "untraced.py").write_text(UNTRACED)
    script = (
        "import asyncio, sys\nfrom mcplumb import connect\n"
        "async def main():\n"
        f"    async with connect([sys.executable, {str(tmp_path / 'untraced.py')!r}]) as client:\n"
        "        print(repr((await client.call_tool('modules')).text))\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if 'telemetry' in name or 'observed' in name])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=True)
    assert done.stdout.decode().splitlines() == ["''", "[]"]


async def test_the_api_alone_is_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    # This process has loaded the API, and sets no provider.
    assert "opentelemetry.trace" in sys.modules
    assert configured_observer() is None
    async with serving(Server("plain"), "http://127.0.0.1:0/mcp") as (url,), connect(url) as client:
        assert await client.list_tools() == []


def test_it_can_be_turned_off_like_any_instrumentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "requests, mcplumb")
    file = tmp_path / "spans"
    visit(file, LATEST.name, *PROGRAM, str(file), "server")
    names = {span["name"] for span in Written(file).spans}
    assert names == {"caller", "inside add"}


@pytest.mark.req("SCL-5", "META-6")
def test_what_cannot_be_a_context_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "spans"
    metas: list[Any] = [
        {"traceparent": "nonsense"}, {"traceparent": 7}, {"traceparent": None}, {"traceparent": ["00"]},
        {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"}, {"baggage": "x" * 100_000, "tracestate": {"a": 1}},
    ]  # fmt: skip
    lines = [
        json.dumps({
            "jsonrpc": "2.0", "id": number, "method": "tools/call",
            "params": {"name": "add", "arguments": {"a": 1, "b": 1}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": LATEST.name,
                "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "0"},
                "io.modelcontextprotocol/clientCapabilities": {}, **meta,
            }},
        })
        for number, meta in enumerate(metas)
    ]  # fmt: skip
    done = subprocess.run(
        [*PROGRAM, str(file), "server"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(answer["id"] for answer in answers) == list(range(len(metas)))
    assert all(answer["result"]["content"][0]["text"] == "2" for answer in answers)
    roots = [span for span in Written(file).spans if span["name"] == "tools/call add"]
    assert [span["parent"] for span in roots] == [None] * len(metas)


@pytest.mark.req("SCL-5")
def test_the_span_of_the_http_request_is_the_parent_or_linked() -> None:
    """A client's context comes first; sessions that serve one request after the other keep none of the one before."""
    program = str(Path(__file__).parent / "programs" / "mounted.py")
    done = subprocess.run([sys.executable, program], capture_output=True, timeout=60, check=True)
    found = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert found == [["http 0", []], ["http 1", []], ["remote", ["http 2"]], ["remote", ["http 3"]]]
