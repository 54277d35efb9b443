"""Write a request of a client as a command or a program that sends it again."""

from __future__ import annotations

import msgspec

from mcplumb.recording.recording_format import Header, Record
from mcplumb.view.request_copies import curl_command, mcplumb_command, python_program, shell_words, visible_json
from mcplumb.wire.message_decoder import decode_line
from mcplumb.wire.messages import Request

__all__ = ["copies_of"]

#: Request headers that belong to one connection, or that the client of the copy sets itself.
_NOT_COPIED = frozenset({
    "accept-encoding", "connection", "content-length", "host", "transfer-encoding", "user-agent", "mcp-session-id",
})  # fmt: skip
#: A server whose command or address is not recorded.
_UNKNOWN = "SERVER"


def copies_of(header: Header, record: Record) -> dict[str, str]:
    """Return ways to send a request again, by name; empty if the record is not a request of the client."""
    message = decode_line(record.line or b"") if record.sender == "client" and record.cut is None else None
    if not isinstance(message, Request):
        return {}
    try:
        params = msgspec.json.decode(message.params) if isinstance(message.params, msgspec.Raw) else {}
    except msgspec.DecodeError:
        return {}
    params = params if isinstance(params, dict) else {}
    url, command = header.target.url, header.target.command
    copies = {}
    words = ["-s", url or _UNKNOWN] if command is None else ["--", *command]
    if (again := mcplumb_command(message.method, params, words)) is not None:
        copies["mcplumb"] = again
    text = record.text or ""
    if url is not None:
        copies["curl"] = _curl(url, record, text)
    elif command is not None:
        copies["shell"] = f"printf '%s\\n' {shell_words(visible_json(text))} | {shell_words(*command)}"
    copies["python"] = python_program(message.method, params, command or url or _UNKNOWN)
    return copies


def _curl(url: str, record: Record, text: str) -> str:
    sent = dict(record.http.headers or ()) if record.http is not None else {}
    headers = {name.lower(): value for name, value in sent.items() if name.lower() not in _NOT_COPIED}
    headers.setdefault("content-type", "application/json")
    headers.setdefault("accept", "application/json, text/event-stream")
    quoted = (shell_words(f"{name}: {value}") for name, value in headers.items())
    return curl_command(shell_words(url), quoted, text)
