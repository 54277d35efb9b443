"""A client and a server in one process, without any I/O: the protocol's rules, and the lines that they exchange.

Run it with ``make demo``. Every line that crosses between the two sides is shown as it would be on a pipe.
"""

from __future__ import annotations

from typing import Any

from mcpipe.protocol.admission import Admission, Refused
from mcpipe.protocol.era import Agreed, EraFinder, SendProbe
from mcpipe.protocol.incoming import Incoming, Work
from mcpipe.protocol.outgoing import Call, Outgoing
from mcpipe.revisions import LATEST, REVISIONS
from mcpipe.types import (
    CallToolParams,
    CallToolResult,
    DiscoverResult,
    ListCapability,
    ServerCapabilities,
    TextContent,
    for_revision,
    read,
)
from mcpipe.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcpipe.wire.decoding import BadMessage, decode_line, too_long
from mcpipe.wire.lines import LineSplitter
from mcpipe.wire.messages import Error, ErrorDetail, Message, Notification, Request, Result, encode_line

META = {
    PROTOCOL_VERSION: str(LATEST),
    CLIENT_CAPABILITIES: {},
    CLIENT_INFO: {"name": "demo-client", "version": "1.0"},
}


class Server:
    """Takes bytes, gives bytes: what a server does between reading its stdin and writing its stdout."""

    def __init__(self) -> None:
        self.lines = LineSplitter(max_line=4096)
        self.admission = Admission(REVISIONS)
        self.incoming = Incoming(max_in_flight=100)

    def receive(self, data: bytes) -> bytes:
        """Answer what the bytes bring; a bad line is reported, answered where it can be, and skipped."""
        out = b""
        for line in self.lines.feed(data):
            message = decode_line(line) if isinstance(line, bytes) else too_long(line)
            if isinstance(message, Request):
                out += encode_line(self.answer(message))
            elif isinstance(message, BadMessage):
                print(f"   server: skipped a line. {message.reason}")
                reply = message.reply(idless_errors=LATEST.has_idless_errors)
                out += encode_line(reply) if reply is not None else b""
        return out

    def answer(self, request: Request) -> Result | Error:
        """Let the machines judge the request, then do what it asks for."""
        admitted = self.admission.request(request)
        if isinstance(admitted, Refused):
            return Error(request.id, admitted.error)
        work = self.incoming.accept(request)
        if not isinstance(work, Work):
            return work
        answer = self.incoming.answer(work, self.handle(request))
        assert answer is not None
        return answer

    def handle(self, request: Request) -> Result | Error:
        """Two methods are enough for a demo."""
        if request.method == "server/discover":
            names = [revision.name for revision in REVISIONS if revision.is_modern]
            found = DiscoverResult(supported_versions=names, capabilities=ServerCapabilities(tools=ListCapability()))
            return Result(request.id, for_revision(found, LATEST))
        if request.method == "tools/call":
            call = read(CallToolParams, request.params)
            text = f"Hello, {(call.arguments or {}).get('name', 'world')}!"
            return Result(request.id, for_revision(CallToolResult([TextContent(text)]), LATEST))
        return Error(request.id, ErrorDetail(-32601, f"There is no method {request.method!r}."))


class Client:
    """Speaks to the server above through nothing but bytes."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.lines = LineSplitter(max_line=1024 * 1024)
        self.outgoing = Outgoing(max_in_flight=100)

    def exchange(self, data: bytes) -> list[Message | BadMessage]:
        """Send bytes; return the messages that come back."""
        shown = data if len(data) < 200 else data[:60] + b"... (%d bytes)\n" % len(data)
        print(f"-> {shown.decode(errors='replace').rstrip()}")
        answered = self.server.receive(data)
        for line in answered.splitlines():
            print(f"<- {line.decode()}")
        return [decode_line(line) for line in self.lines.feed(answered) if isinstance(line, bytes)]

    def call(self, method: str, **params: Any) -> tuple[Call, Result | Error]:
        """Send one request and match its answer."""
        call = self.outgoing.open(method, now=0.0, timeout=10.0)
        (answer,) = self.exchange(encode_line(Request(call.id, method, {"_meta": META, **params})))
        assert isinstance(answer, Result | Error)
        assert self.outgoing.answer(answer) is call
        return call, answer


def main() -> None:
    """Find the era, call a tool, and show that nothing in between breaks the stream."""
    client = Client(Server())

    print("1. Which era does the server belong to?")
    finder = EraFinder(REVISIONS)
    (probe,) = finder.started(now=0.0)
    assert isinstance(probe, SendProbe)
    _, answer = client.call("server/discover")
    assert isinstance(answer, Result)
    found = read(DiscoverResult, answer.result)
    (agreed,) = finder.probe_result(found.supported_versions, now=0.1)
    assert isinstance(agreed, Agreed)
    print(f"   client: the server is {agreed.revision.era}, and both speak {agreed.revision}.\n")

    print("2. Garbage, an over-long line, and a message that is none: the stream goes on.")
    client.exchange(b"this is not JSON\n")
    client.exchange(b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":[' + b"0," * 5000 + b"0]}\n")
    client.exchange(b'{"jsonrpc":"2.0","id":"y","method":7}\n\n\r\n')

    print("\n3. A call to a tool.")
    call, answer = client.call("tools/call", name="hello", arguments={"name": "Oslo"})
    assert isinstance(answer, Result)
    (block,) = read(CallToolResult, answer.result).content
    assert isinstance(block, TextContent)
    print(f"   client: {call.method} is {call.state}: {block.text}\n")

    print("4. A call that is given up: the server is told, and the late answer harms nobody.")
    given_up = client.outgoing.open("tools/call", now=0.0, timeout=2.0)
    ((_, note),) = client.outgoing.expire(now=2.0)
    assert isinstance(note, Notification)
    params = {"_meta": META, "name": "hello"}
    (late,) = client.exchange(encode_line(Request(given_up.id, "tools/call", params)))
    client.exchange(encode_line(note))
    assert isinstance(late, Result)
    assert client.outgoing.answer(late) is None
    print(f"   client: the call is {given_up.state}; answers that came too late: {client.outgoing.late}.")


if __name__ == "__main__":
    main()
