"""Translation between protocol revisions: what a message of one becomes in another, for a bridge between two peers.

The *front* is the revision that a client speaks to the bridge, the *back* the one that the bridge speaks to a server.
Payloads are read only as far as they have to change: members that need no change, and members that no revision knows,
keep their bytes. Within a list of items or content, an item is replaced only if the other revision cannot represent it
as it is. What cannot be read passes unchanged, because the other end may understand it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from operator import is_
from typing import Any, get_args

import msgspec
from msgspec import UNSET

from mcplumb.errors import DecodeError
from mcplumb.revisions import Revision
from mcplumb.types.base import COMPLETE, INPUT_REQUIRED, CacheableResult, Implementation, Payload
from mcplumb.types.client_features import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
    UrlElicitationRequiredData,
)
from mcplumb.types.content import ContentBlock, UnknownContent
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.types.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    SERVER_INFO,
)
from mcplumb.types.method_table import METHODS
from mcplumb.types.notification_params import LoggingLevel
from mcplumb.types.payload_decoder import read
from mcplumb.types.prompts import Prompt, PromptMessage
from mcplumb.types.resources import Resource, ResourceContents, ResourceTemplate
from mcplumb.types.revision_adapter import ADAPTERS, FIELDS, for_revision, wrap_result
from mcplumb.types.tools import CallToolResult, Tool
from mcplumb.wire.messages import URL_ELICITATION_REQUIRED, ErrorDetail

__all__ = [
    "InputRequired",
    "answer_for_server",
    "asks_for_input",
    "error_for_client",
    "is_input_required",
    "members_for_client",
    "members_of",
    "meta_for_server",
    "params_for_server",
    "params_with_meta",
    "question_for_client",
    "read_input_required",
    "result_for_client",
    "urls_to_visit",
]

#: The keys of a modern request's ``_meta`` that say what a legacy session says once.
_REQUEST_KEYS = frozenset((PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL))
#: The params that belong to one round of a modern request.
_ROUND_PARAMS = ("inputResponses", "requestState")
#: Params, and the flag that a revision must have for them to be sent.
_PARAMS = {"completion/complete": {"context": "has_completion_context"}}
#: Members of results, and the flag that a revision must have for them.
_RESULT_MEMBERS = {"resultType": "has_result_types", "ttlMs": "has_cache_hints", "cacheScope": "has_cache_hints"}
_WHITE_SPACE = b" \t\r\n"
#: The lists within results whose items differ between revisions.
_ITEMS: dict[str, tuple[str, Any]] = {
    "tools/list": ("tools", Tool),
    "tools/call": ("content", ContentBlock),
    "resources/list": ("resources", Resource),
    "resources/templates/list": ("resourceTemplates", ResourceTemplate),
    "resources/read": ("contents", ResourceContents),
    "prompts/list": ("prompts", Prompt),
    "prompts/get": ("messages", PromptMessage),
}
_QUESTIONS: dict[str, type[Payload]] = {
    "elicitation/create": ElicitParams,
    "sampling/createMessage": CreateMessageParams,
}
_ANSWERS: dict[str, type[Payload]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}

_encode = msgspec.json.encode
_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_items = msgspec.json.Decoder(list[msgspec.Raw]).decode

_WRITTEN_COMPLETE = _encode(COMPLETE)
_COMPLETE = msgspec.Raw(_WRITTEN_COMPLETE)
_NO_TTL, _PRIVATE = msgspec.Raw(b"0"), msgspec.Raw(b'"private"')
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, TypeError)


def members_of(payload: Any) -> dict[str, Any]:
    """Return the members of a JSON object as raw JSON, to be changed; raise `DecodeError` if it is no object."""
    if payload is UNSET:
        return {}
    try:
        members: dict[str, Any] = _read_members(payload)
    except _UNREADABLE as error:
        raise DecodeError(f"The payload is not a JSON object: {error}.") from error
    return members


# --- From the client to the server ---


def params_for_server(members: dict[str, Any], method: str, back: Revision) -> dict[str, Any]:
    """Remove from a request's params what the server's revision lacks, and ``_meta``; return them."""
    members.pop("_meta", None)
    if not back.has_input_required:
        for name in _ROUND_PARAMS:
            members.pop(name, None)
    for name, flag in _PARAMS.get(method, {}).items():
        if not getattr(back, flag):
            members.pop(name, None)
    return members


def meta_for_server(
    meta: Mapping[str, Any],
    back: Revision,
    *,
    capabilities: ClientCapabilities,
    client_info: Implementation | None,
    log_level: LoggingLevel | None,
) -> dict[str, Any]:
    """Return the ``_meta`` of a request for the server, without a progress token.

    For a modern server, the values that the front declares: in the request itself, or once for its legacy session. For
    a legacy server, they are left out.
    """
    kept = {key: value for key, value in meta.items() if key not in _REQUEST_KEYS and key != PROGRESS_TOKEN}
    if back.is_modern:
        kept[PROTOCOL_VERSION] = back.name
        kept[CLIENT_CAPABILITIES] = meta.get(CLIENT_CAPABILITIES) or for_revision(capabilities, back)
        if client_info is not None:
            kept[CLIENT_INFO] = meta.get(CLIENT_INFO) or for_revision(client_info, back)
        if log_level is not None:
            kept[LOG_LEVEL] = log_level
    return kept


def params_with_meta(params: msgspec.Raw, meta: bytes) -> msgspec.Raw:
    """Return params that have no ``_meta`` with this one, which is JSON. All else keeps its bytes."""
    members = bytes(params)[:-1].rstrip(_WHITE_SPACE)
    return msgspec.Raw(b'%b%b"_meta":%b}' % (members, b"" if members == b"{" else b",", meta))


def answer_for_server(answer: Any, method: str, back: Revision) -> Any:
    """Return a client's answer to a question, as the server's revision has it.

    Raises `NotInRevision` if the revision cannot represent it.
    """
    return _adapted(answer, _ANSWERS.get(method), back)


# --- From the server to the client ---


def result_for_client(
    result: msgspec.Raw, method: str, *, front: Revision, back: Revision, server_info: Implementation | None = None
) -> Any:
    """Return a final result as the client's revision has it: the same object if nothing has to change.

    ``server_info`` is the identity of a legacy server, which a modern client gets with every result.
    """
    if front is back:
        return result
    return members_for_client(members_of(result), method, front=front, back=back, server_info=server_info)


def members_for_client(
    members: dict[str, Any], method: str, *, front: Revision, back: Revision, server_info: Implementation | None = None
) -> dict[str, Any]:
    """Change the members of a final result to those that the client's revision has, and return them."""
    for name in _lacking_members(front):
        members.pop(name, None)
    if front.has_result_types and not back.has_result_types:
        members.setdefault("resultType", _COMPLETE)
        if _is_cacheable(method):
            members.setdefault("ttlMs", _NO_TTL)
            members.setdefault("cacheScope", _PRIVATE)
        if server_info is not None:
            members["_meta"] = {SERVER_INFO: for_revision(server_info, front), **_meta_of(members)}
    elif "_meta" in members and not front.is_modern and back.is_modern and SERVER_INFO in (meta := _meta_of(members)):
        del meta[SERVER_INFO]
        members["_meta"] = meta
        if not meta:
            del members["_meta"]
    items = _ITEMS.get(method)
    if items is not None and _lacks(front, back, items[1]):
        _adapt_items(members, *items, front)
    if "structuredContent" in members and method == "tools/call" and _lacks(front, back, CallToolResult):
        _adapt_structured_content(members, front)
    return members


def _meta_of(members: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return members_of(members.get("_meta", UNSET))
    except DecodeError:
        return {}


def error_for_client(error: ErrorDetail, method: str, *, front: Revision, back: Revision) -> ErrorDetail:
    """Return an error with the code that the client's revision has for it."""
    if method != "resources/read" or front.resource_not_found == back.resource_not_found:
        return error
    # In the modern era the code of a missing resource is that of all invalid params; its data has the URI.
    if error.code == back.resource_not_found and (not back.is_modern or _has_uri(error.data)):
        return msgspec.structs.replace(error, code=front.resource_not_found)
    return error


def question_for_client(params: Any, method: str, front: Revision, *, new_id: str) -> Any:
    """Return the params of a server's question, as the client's revision has them.

    ``new_id`` is the id of a question on a web page, for the one revision that needs one. Raises `NotInRevision` if the
    revision cannot represent the question.
    """
    if method == "elicitation/create" and front.has_elicitation_ids:
        members = members_of(params)
        if "url" in members and "elicitationId" not in members:
            params = msgspec.Raw(_encode({**members, "elicitationId": new_id}))
    return _adapted(params, _QUESTIONS.get(method), front)


# --- Questions within results ---


class _Question(msgspec.Struct, frozen=True):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class InputRequired(msgspec.Struct, frozen=True, rename="camel"):
    """A result that asks for input, with each question's params as raw JSON."""

    input_requests: dict[str, _Question] = {}
    #: The server's state, as raw JSON, to be sent back unchanged.
    request_state: Any = UNSET


class _ResultType(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = COMPLETE


_read_result_type = msgspec.json.Decoder(_ResultType).decode
_read_text = msgspec.json.Decoder(str).decode


def is_input_required(result: msgspec.Raw, back: Revision) -> bool:
    """Return whether a result asks for input."""
    if not back.has_input_required:
        return False
    try:
        return _read_result_type(result).result_type == INPUT_REQUIRED
    except _UNREADABLE:
        return False


def asks_for_input(members: Mapping[str, Any]) -> bool:
    """Return whether a result of a revision that has such results asks for input, by its members."""
    kind = members.get("resultType", _COMPLETE)
    if kind is _COMPLETE or bytes(kind) == _WRITTEN_COMPLETE:
        return False
    try:
        return _read_text(kind) == INPUT_REQUIRED
    except _UNREADABLE:
        return False


def read_input_required(result: msgspec.Raw) -> InputRequired:
    """Return what a result asks for; raise `DecodeError` if that cannot be read."""
    return read(InputRequired, result, what="result that asks for input")


def urls_to_visit(error: ErrorDetail) -> list[ElicitParams] | None:
    """Return the web pages that a user must visit before a call of one legacy revision can succeed; None if none."""
    if error.code != URL_ELICITATION_REQUIRED or error.data is UNSET:
        return None
    try:
        return read(UrlElicitationRequiredData, error.data).elicitations
    except DecodeError:
        return None


# --- Adapting ---


@cache
def _lacking_members(front: Revision) -> tuple[str, ...]:
    """Return the members of results that a revision does not have."""
    return tuple(name for name, flag in _RESULT_MEMBERS.items() if not getattr(front, flag))


@cache
def _lacks(front: Revision, back: Revision, kind: Any) -> bool:
    """Return whether the front lacks anything that items of this kind may have in the back."""
    return any(getattr(back, flag) and not getattr(front, flag) for flag in _flags_of(kind))


def _flags_of(kind: Any) -> set[str]:
    """Return the flags that a revision needs for all that payloads of this kind may have."""
    flags: set[str] = set()
    seen: list[Any] = []
    left = [kind]
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.append(each)
        left += get_args(each)
        if isinstance(each, type) and issubclass(each, Payload):
            left += (field.type for field in msgspec.structs.fields(each))
            for name in (base.__name__ for base in each.__mro__):
                flags.update(FIELDS.get(name, {}).values(), (ADAPTERS[name][0] or ()) if name in ADAPTERS else ())
    return flags


@cache
def _is_cacheable(method: str) -> bool:
    known = METHODS.get(method)
    return known is not None and known.result is not None and issubclass(known.result, CacheableResult)


def _adapt_items(members: dict[str, Any], name: str, kind: Any, front: Revision) -> None:
    """Replace the items of a list that the front cannot represent as they are."""
    try:
        items: list[Any] = _read_items(members[name])
    except (KeyError, *_UNREADABLE):
        return
    adapted = [_adapted(item, kind, front) for item in items]
    if any(new is not old for new, old in zip(adapted, items, strict=True)):
        members[name] = adapted


def _adapt_structured_content(members: dict[str, Any], front: Revision) -> None:
    structured = members["structuredContent"]
    if not front.has_structured_content:
        del members["structuredContent"]
        content = members.get("content", [])
        if not (content if isinstance(content, list) else bytes(content).strip(b" \t\r\n[]")):
            # Otherwise the result would be empty.
            members["content"] = [{"type": "text", "text": bytes(structured).decode()}]
    elif not front.has_any_structured_content and not bytes(structured).lstrip().startswith(b"{"):
        members["structuredContent"] = wrap_result(structured)


def _adapted(raw: Any, kind: Any, revision: Revision) -> Any:
    """Return a payload as the revision has it: the same object if nothing changes, or if it cannot be read."""
    if kind is None:
        return raw
    try:
        payload = read(kind, raw)
    except DecodeError:
        return raw
    return _merged(raw, payload, for_revision(payload, revision))


def _merged(raw: Any, payload: Any, adapted: Any) -> Any:
    """Return a part of a payload as it was adapted. What was not, and what no revision knows, keeps its bytes."""
    if adapted is payload or isinstance(payload, UnknownContent):
        return raw
    if isinstance(payload, list) and isinstance(adapted, list) and len(payload) == len(adapted):
        old: Any = _read_items(raw)
        new: Any = [_merged(*parts) for parts in zip(old, payload, adapted, strict=True)]
        return raw if all(map(is_, new, old)) else new
    if type(adapted) is not type(payload) or not isinstance(payload, Payload):
        return adapted
    old, new = members_of(raw), {}
    for field in msgspec.structs.fields(type(payload)):
        name, before, after = field.encode_name, getattr(payload, field.name), getattr(adapted, field.name)
        if after is None:
            new[name] = None
        else:
            new[name] = _merged(old[name], before, after) if name in old else after
    merged = {name: value for name, value in {**old, **new}.items() if value is not None}
    return raw if merged.keys() == old.keys() and all(merged[name] is old[name] for name in old) else merged


def _has_uri(data: Any) -> bool:
    try:
        return "uri" in members_of(data if isinstance(data, msgspec.Raw) else _encode(data))
    except (DecodeError, TypeError):
        return False
