"""Check one message of a session against the protocol and the schemas of its tools."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.client.known_tools import SchemaValidator
from mcplumb.client.validation_cost import SchemaRefused
from mcplumb.errors import DecodeError
from mcplumb.recording.recording_format import Record
from mcplumb.revisions import find_revision
from mcplumb.tap.payload_members import members, text_of, value_of
from mcplumb.tap.transcript import Call
from mcplumb.types import InputRequiredResult
from mcplumb.types.method_table import METHODS
from mcplumb.types.payload_decoder import read
from mcplumb.view.watch.watched_session import WatchedSession
from mcplumb.wire.lines import BYTE_ORDER_MARK
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line
from mcplumb.wire.messages import Error, Message, Notification, Request, Result

__all__ = ["Check", "check_message"]

#: Messages of a batch that are checked.
_MOST_CHECKED = 100
#: Answers to ``tools/list`` that are searched for a tool, the newest first.
_MOST_LISTS = 20


class Check(msgspec.Struct):
    """The result of one check: ``ok`` is None if the check was not possible."""

    ok: bool | None
    what: str
    reason: str = ""


def check_message(session: WatchedSession, number: int, record: Record) -> list[Check]:
    """Return the checks of a record, in order; empty if it is not a line of traffic."""
    line = record.line
    if record.event is not None or record.stderr is not None or not line:
        return []
    if record.cut is not None:
        return [Check(None, "The message", "only its beginning was recorded")]
    if record.base64 is not None:
        return [Check(False, "UTF-8", "the line is not valid UTF-8")]
    decoded = decode_line(line.removeprefix(BYTE_ORDER_MARK), batches=True)
    checks = [Check(True, "UTF-8")]
    if isinstance(decoded, Batch):
        checks.append(Check(True, f"A batch of {len(decoded.items)} messages"))
        for each in decoded.items[:_MOST_CHECKED]:
            checks += _check(session, None, each)
        return checks
    return checks + _check(session, session.call_of(number), decoded)


def _check(session: WatchedSession, call: Call | None, message: Message | BadMessage) -> list[Check]:
    match message:
        case BadMessage():
            return [Check(False, "JSON-RPC 2.0", message.reason)]
        case Request() | Notification():
            checks = [Check(True, "JSON-RPC 2.0"), *_check_params(call, message)]
            if message.method == "tools/call":
                checks += _check_tool(session, members(message.params), "inputSchema")
            return checks
        case Error():
            return [Check(True, "JSON-RPC 2.0"), Check(True, "The error has a code and a message")]
        case Result():
            return [Check(True, "JSON-RPC 2.0"), *_check_result(session, call, message)]


def _check_params(call: Call | None, message: Request | Notification) -> list[Check]:
    method = METHODS.get(message.method)
    if method is None:
        return [Check(None, f"The params of {message.method}", "the method is not one of the protocol")]
    checks = []
    revision = None if call is None else find_revision(call.revision)
    if call is not None and revision is not None:
        is_allowed = method.sent_by(call.sender, revision)
        reason = "" if is_allowed else f"a {call.sender} does not send it in {revision}"
        checks.append(Check(is_allowed, f"{message.method} is a method of {revision}", reason))
    return [*checks, _read(method.params, message.params, f"The params of {message.method}")]


def _check_result(session: WatchedSession, call: Call | None, message: Result) -> list[Check]:
    if call is None:
        return [Check(None, "The result", "the request that it answers is not known")]
    method = METHODS.get(call.method)
    if method is None or method.result is None:
        return [Check(None, f"The result of {call.method}", "the method is not one of the protocol")]
    if call.needs_input:
        return [_read(InputRequiredResult, message.result, "The questions to the user")]
    checks = [_read(method.result, message.result, f"The result of {call.method}")]
    if call.method == "tools/call" and not call.is_tool_error:
        checks += _check_tool(
            session, {"name": msgspec.json.encode(call.name), **members(message.result)}, "outputSchema"
        )
    return checks


def _read(kind: type[Any], payload: Any, what: str) -> Check:
    try:
        read(kind, payload, what=what)
    except DecodeError as error:
        return Check(False, what, str(error))
    return Check(True, what)


def _check_tool(session: WatchedSession, payload: dict[str, Any], key: str) -> list[Check]:
    """Check the arguments or the structured content of a call against the schema that the tool was listed with."""
    name = text_of(payload.get("name")) or ""
    is_input = key == "inputSchema"
    what = f"The arguments of {name}, by its schema" if is_input else f"The structured content of {name}, by its schema"
    tool = _find_tool(session, name)
    if tool is None:
        return [Check(None, what, "the session does not list this tool")] if is_input else []
    schema = tool.get(key)
    if not isinstance(schema, dict):
        return []
    content = value_of(payload.get("arguments" if is_input else "structuredContent"))
    if is_input and content is None:
        content = {}
    try:
        validator = SchemaValidator(schema, msgspec.json.encode(schema))
    except ImportError:
        return [Check(None, what, "this needs another package: pip install 'mcplumb[schema]'")]
    except SchemaRefused as error:
        return [Check(None, what, f"the schema cannot be used: {error}")]
    if validator.is_too_slow_for(content):
        return [Check(None, what, "there is too much for this schema")]
    if validator.is_valid(content):
        return [Check(True, what)]
    return [Check(False, what, validator.describe_error(content))]


def _find_tool(session: WatchedSession, name: str) -> dict[str, Any] | None:
    for number in reversed(session.tool_lists[-_MOST_LISTS:]):
        record = session.record(number)
        message = None if record is None or not record.line else decode_line(record.line, batches=True)
        for each in message.items if isinstance(message, Batch) else (message,):
            tools = value_of(members(each.result).get("tools")) if isinstance(each, Result) else None
            for tool in tools if isinstance(tools, list) else ():
                if isinstance(tool, dict) and tool.get("name") == name:
                    return tool
    return None
