"""Write a call as a command or a program that repeats it: ``mcplumb``, ``curl`` and Python.

No secret is in a copy: headers and options that may have one get a placeholder.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.client.connector import OWN_INFO
from mcplumb.config.entry import looks_secret
from mcplumb.errors import DecodeError
from mcplumb.protocol.http_headers import headers_of, param_headers
from mcplumb.revisions import Revision
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcplumb.view.request_copies import curl_command, mcplumb_command, python_program, shell_words
from mcplumb.view.workbench.server_choice import ChosenServer
from mcplumb.wire.messages import Request

__all__ = ["copies_of_call"]

_CONTENT = ("content-type: application/json", "accept: application/json, text/event-stream")


def copies_of_call(
    server: ChosenServer,
    revision: Revision,
    method: str,
    params: dict[str, Any],
    input_schema: dict[str, Any] | None = None,
) -> dict[str, str]:
    """Return the copies of a call by name: ``mcplumb``, ``curl`` for a server over HTTP, and ``python``.

    ``input_schema`` is that of the called tool: it may say that arguments are repeated in headers.
    """
    copies = {}
    if (again := mcplumb_command(method, params, server.words)) is not None:
        copies["mcplumb"] = again
    if isinstance(server.place, str) and server.place.lower().startswith("http") and not server.options.get("http_sse"):
        copies["curl"] = _curl(server, revision, method, params, input_schema)
    place = server.url if server.command is None else server.command
    copies["python"] = python_program(method, params, place, **_own_options(server))
    return copies


def _curl(
    server: ChosenServer, revision: Revision, method: str, params: dict[str, Any], schema: dict[str, Any] | None
) -> str:
    headers = [*_CONTENT, *_own_headers(server)]
    if not revision.is_modern:
        return _legacy_curl(server, revision, headers, _request(1, method, params))
    meta = {PROTOCOL_VERSION: str(revision), CLIENT_INFO: OWN_INFO, CLIENT_CAPABILITIES: {}}
    full = {**params, "_meta": meta}
    try:
        mirrored = None if schema is None else param_headers(schema)
    except DecodeError:
        mirrored = None
    headers += [f"{name}: {value}" for name, value in headers_of(Request(1, method, full), mirrored)]
    return curl_command(shell_words(server.url or ""), map(shell_words, headers), _request(1, method, full))


def _legacy_curl(server: ChosenServer, revision: Revision, headers: list[str], body: str) -> str:
    """Return a script that opens a session first."""
    begin = {"protocolVersion": str(revision), "capabilities": {}, "clientInfo": OWN_INFO}
    version = [f"mcp-protocol-version: {revision}"] if revision.has_version_header else []
    quoted = [shell_words(each) for each in headers]
    in_session = [*quoted, *map(shell_words, version), '"mcp-session-id: $SESSION"']
    initialize = curl_command('"$URL"', quoted, _request(0, "initialize", begin), "-sS -D - -o /dev/null")
    initialized = msgspec.json.encode({"jsonrpc": "2.0", "method": "notifications/initialized"}).decode()
    return "\n".join([
        f"URL={shell_words(server.url or '')}",
        f"SESSION=$({initialize} \\",
        "  | tr -d '\\r' | sed -n 's/^mcp-session-id: *//Ip')",
        curl_command('"$URL"', in_session, initialized, "-sS"),
        curl_command('"$URL"', in_session, body),
    ])  # fmt: skip


def _own_headers(server: ChosenServer) -> list[str]:
    headers = [
        f"{name}: {'…' if looks_secret(name) else value}" for name, value in server.options.get("headers", {}).items()
    ]
    return [*headers, "authorization: Bearer …"] if server.options.get("token") else headers


def _request(number: int, method: str, params: dict[str, Any]) -> str:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).decode()


def _own_options(server: ChosenServer) -> dict[str, Any]:
    """Return the options with which a program connects to the server."""
    folder = server.options.get("cwd")
    shown: dict[str, Any] = {"cwd": None if folder is None else str(folder)}
    for name in ("env", "headers"):
        values = server.options.get(name) or {}
        shown[name] = {key: "…" if name == "env" or looks_secret(key) else value for key, value in values.items()}
    return shown
