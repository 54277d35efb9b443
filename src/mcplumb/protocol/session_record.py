"""The record of a legacy session that replicas share: the messages that set it up, and the changes to announce.

A replica that does not know a session yet is brought up to date with messages, as the client sent them: `setup`. So the
record works for any server, whatever it does with them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from mcplumb.limits import Limits
from mcplumb.protocol.subscription_state import LIST_CHANGED, Change
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Message, Notification, Request, encode_line

__all__ = ["SessionRecord", "encoded", "everything_for", "hears", "read_change", "setup", "updated", "write_change"]


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A legacy session. Positions are those of the log of changes."""

    #: Who opened it, if that is authenticated.
    identity: str | None
    #: The params of ``initialize`` and of the last ``logging/setLevel``, as JSON.
    initialize: bytes
    log_level: bytes | None = None
    #: The position at which the client sent ``notifications/initialized``; None before.
    ready_at: int | None = None
    #: The subscribed resources, each with the position at which the client subscribed.
    subscribed: dict[str, int] = {}
    #: The numbers of the replicas that know the session.
    replicas: tuple[int, ...] = ()
    #: The replica that carries the stream of the client's GET, and since when; None if none does.
    carrier: int | None = None
    carried_since: float = 0.0
    #: The replica that passes on the changes of servers behind a bridge: the last one that carried the stream.
    follower: int | None = None
    #: Where that stream goes on for a client that does not say it: in the changes, and in the messages of the session.
    #: None if it is not known, because a replica was killed.
    goes_on_at: tuple[int, int] | None = None


def updated(
    record: SessionRecord, item: Message | BadMessage | Batch, *, position: int, limits: Limits
) -> SessionRecord:
    """Return the record as updated by a message of the client; ``position`` is that of the log of changes."""
    for message in item.items if isinstance(item, Batch) else (item,):
        if isinstance(message, Request | Notification) and message.method in _STEPS:
            params = message.params if isinstance(message.params, msgspec.Raw) else b"{}"
            record = _STEPS[message.method](record, bytes(params), position, limits)
    return record


def setup(record: SessionRecord, known: SessionRecord | None = None) -> list[Message]:
    """Return the messages that set a session up, after ``initialize``; or only those after what is known."""
    messages: list[Message] = []
    if record.ready_at is not None and (known is None or known.ready_at is None):
        messages.append(Notification("notifications/initialized"))
    if record.log_level is not None and (known is None or known.log_level != record.log_level):
        messages.append(_request("logging/setLevel", msgspec.Raw(record.log_level)))
    before = {} if known is None else known.subscribed
    messages += [_request("resources/subscribe", {"uri": uri}) for uri in record.subscribed if uri not in before]
    messages += [_request("resources/unsubscribe", {"uri": uri}) for uri in before if uri not in record.subscribed]
    return messages


# --- Changes ---


def write_change(change: Change) -> bytes:
    """Return a change as it is announced to other replicas."""
    return msgspec.json.encode(change)


def read_change(body: bytes) -> Change | None:
    """Return a change that was announced by another replica; None if it is of a version that is not known here."""
    try:
        return _decode_change(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def hears(record: SessionRecord, change: Change, position: int) -> bool:
    """Return whether the client of a session must be notified of a change."""
    if change.topic == "updates":
        return change.uri is not None and record.subscribed.get(change.uri, position) < position
    return record.ready_at is not None and record.ready_at < position


def everything_for(record: SessionRecord) -> list[Change]:
    """Return all changes that the client may have missed."""
    lists = [] if record.ready_at is None else [Change(topic) for topic in LIST_CHANGED]
    return lists + [Change("updates", uri) for uri in record.subscribed]


def encoded(change: Change) -> bytes:
    """Return the notification of a change for a legacy client."""
    if change.topic == "updates":
        return encode_line(Notification("notifications/resources/updated", {"uri": change.uri}))
    return encode_line(Notification(LIST_CHANGED[change.topic]))


# --- What each message does to a record ---


class _Uri(msgspec.Struct):
    uri: str


_decode_change = msgspec.json.Decoder(Change).decode
_decode_uri = msgspec.json.Decoder(_Uri).decode


def _request(method: str, params: Any) -> Request:
    # Ids of clients are not known here, and these are answered before the client sends more.
    return Request(f"mcplumb-setup-{method}-{params if isinstance(params, dict) else ''}", method, params or UNSET)


def _uri_of(params: bytes) -> str | None:
    try:
        return _decode_uri(params).uri
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # refused by the server, too


def _subscribe(record: SessionRecord, params: bytes, position: int, limits: Limits) -> SessionRecord:
    uri, subscribed = _uri_of(params), record.subscribed
    if (
        uri is None
        or uri in subscribed
        or len(uri) > limits.max_uri
        or len(subscribed) >= limits.max_subscribed_resources
    ):
        return record
    return replace(record, subscribed={**subscribed, uri: position})


def _unsubscribe(record: SessionRecord, params: bytes, _: int, __: Limits) -> SessionRecord:
    uri = _uri_of(params)
    if uri not in record.subscribed:
        return record
    return replace(record, subscribed={each: at for each, at in record.subscribed.items() if each != uri})


def _set_level(record: SessionRecord, params: bytes, _: int, __: Limits) -> SessionRecord:
    return record if params == record.log_level else replace(record, log_level=params)


def _ready(record: SessionRecord, _: bytes, position: int, __: Limits) -> SessionRecord:
    return record if record.ready_at is not None else replace(record, ready_at=position)


def _start_over(record: SessionRecord, params: bytes, _: int, __: Limits) -> SessionRecord:
    return replace(record, initialize=params, log_level=None, ready_at=None, subscribed={})


_STEPS = {
    "initialize": _start_over,
    "notifications/initialized": _ready,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
