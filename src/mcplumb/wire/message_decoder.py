"""Decode one line into one JSON-RPC message.

Only the envelope is decoded; payloads stay ``msgspec.Raw`` until a higher layer knows their type. The kind of a message
follows from the keys that it has, never from their values. A line that is not a message becomes a `BadMessage`, which
has the reason and the error response to send.

Refused are: bytes that are not UTF-8, anything that is not strict JSON (including NaN, lone surrogates and raw control
characters), nesting more than `MAX_DEPTH` deep, ids that are neither strings nor integers of 64 bits, duplicate keys in
the envelope, and an envelope with more than `MAX_FOREIGN` bytes that belong to no known key.
Not checked are: duplicate keys inside a payload (the last one wins), and unknown keys.

The file has three parts: the check of the nesting depth, the identification of a message from its first bytes, and the
decoder itself, which has a fast path for well-formed lines and a slow one that finds the exact fault.
"""

# The annotations here are types, not texts: msgspec would have to compile each text when a server starts.
from codecs import utf_8_decode
from itertools import accumulate, count
from operator import sub
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mcplumb.limits import MAX_DEPTH, MAX_FOREIGN
from mcplumb.wire.lines import HEAD_BYTES, LineTooLong
from mcplumb.wire.messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    BoundedId,
    Error,
    ErrorDetail,
    Message,
    Notification,
    Request,
    RequestId,
    Result,
)

if TYPE_CHECKING:
    from mcplumb.wire.server_sent_events import EventTooLong  # a stream of lines has none

__all__ = [
    "BadMessage",
    "Batch",
    "Expected",
    "as_torn",
    "decode_line",
    "end_of_string",
    "identify",
    "is_too_deep",
    "too_long",
]


# Nesting depth: checked without parsing, so that the decoder cannot overflow the stack.

# An opening bracket becomes 2, a closing one 0; all other bytes are dropped.
_STEPS = bytes(2 if byte in b"[{" else 0 for byte in range(256))
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
# Up to this number, brackets are searched for one by one. Most messages have fewer.
_FEW = 16
# How many bytes are split at once: the pieces of a whole line could take many times its size.
_SLICE = 64 * 1024


def is_too_deep(data: bytes, max_depth: int) -> bool:
    """Return whether arrays and objects are nested more than ``max_depth`` deep.

    ``data`` may be any bytes, also invalid JSON. The cost is linear, and small if there are few brackets.
    """
    if not _has_more_brackets(data, max_depth):
        return False
    if b"\\" in data:
        # A run of backslashes never begins within an escape: so remove the escaped backslashes first, then the quotes.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = 0
    in_text = False
    for at in range(0, len(data), _SLICE):
        pieces = data[at : at + _SLICE].split(b'"')
        steps = b"".join(pieces[in_text::2]).translate(_STEPS, _NO_BRACKETS)
        in_text ^= len(pieces) % 2 == 0
        # After n brackets, the depth has grown by the sum of their steps minus n.
        if depth + max(map(sub, accumulate(steps), count(1)), default=0) > max_depth:
            return True
        depth += sum(steps) - len(steps)
    return False


def _has_more_brackets(data: bytes, most: int) -> bool:
    """Return whether there are more than ``most`` opening brackets.

    Searching for each of a few brackets is many times faster than counting them all.
    """
    few = _FEW
    for bracket in (b"[", b"{"):
        at = data.find(bracket)
        while at != -1 and few:
            few -= 1
            at = data.find(bracket, at + 1)
    if few:
        return _FEW - few > most
    brackets = data.translate(None, _NO_BRACKETS)
    return brackets.count(b"[") + brackets.count(b"{") > most


# Identify a message from its first bytes, because the rest is too long, nested too deeply, or not JSON.

_decode_head_text = msgspec.json.Decoder(str).decode
_decode_head_id = msgspec.json.Decoder(BoundedId).decode


def identify(head: bytes) -> tuple[RequestId | UnsetType, Literal["request", "response"] | None]:
    """Return the id and the kind of the message that begins with ``head``, as far as its simple members show them.

    A simple member has a string, a number or a literal as its value. The search ends at the first other member.
    """
    id_: RequestId | UnsetType = UNSET
    has_id = has_method = False
    try:
        at = _expect(head, 0, b"{")
        while True:
            start = _after_space(head, at)
            end = end_of_string(head, _expect(head, start, b'"') - 1)
            key = _decode_head_text(head[start:end])
            if key in ("result", "error"):
                return (UNSET if has_method else id_), "response"
            has_method |= key == "method"
            value = _after_space(head, _expect(head, end, b":"))
            after = _end_of_simple(head, value)
            if key == "id":
                id_ = UNSET if has_id else _id_in(head[value:after])
                has_id = True
            at = _expect(head, after, b",")
    except ValueError:
        # The head ends, a value is not simple, or this is not JSON.
        return id_, "request" if has_method else None


def end_of_string(data: bytes, start: int) -> int:
    """Return the index after the JSON string whose first quote is at ``start``; raise ValueError if it does not end."""
    at = start + 1
    while True:
        quote = data.index(b'"', at)
        before = data[at:quote]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return quote + 1
        at = quote + 1


def _end_of_simple(head: bytes, at: int) -> int:
    """Return the index after the simple value at ``at``."""
    if head[at : at + 1] == b'"':
        return end_of_string(head, at)
    end = at
    while head[end : end + 1].isalnum() or head[end : end + 1] in (b"-", b"+", b"."):
        end += 1
    if end == len(head):
        raise ValueError("the value may continue")
    return end


def _expect(head: bytes, at: int, byte: bytes) -> int:
    """Return the index after ``byte``, which may follow white space; raise ValueError if it is not there."""
    at = _after_space(head, at)
    if head[at : at + 1] != byte:
        raise ValueError(byte)
    return at + 1


def _after_space(head: bytes, at: int) -> int:
    while head[at : at + 1].isspace():
        at += 1
    return at


def _id_in(value: bytes) -> RequestId | UnsetType:
    try:
        id_: RequestId = _decode_head_id(value)
    except ValueError:
        return UNSET
    return id_


# The decoder: from one line to one message.

#: The kinds of message that `decode_line` can be told to expect.
Expected: TypeAlias = type[Request] | type[Result]


class BadMessage(msgspec.Struct, frozen=True):
    """A line that is not a message: the reason, and the error response for its sender."""

    #: A sentence for the log. It quotes nothing from the line.
    reason: str
    #: -32700 if the line is not JSON, -32600 if it is JSON, but not a message.
    code: int
    #: The id, if the line has one that can be trusted.
    id: RequestId | UnsetType = UNSET
    #: Whether it has, or may have, a result or an error. It must not be answered, but the call with that id has failed.
    is_response: bool = False
    #: The first bytes of the line, for the receiver's diagnostics. They are never sent back.
    head: bytes = b""
    #: Whether the stream ended within the line. The connection is lost then, and with it whatever the line would say.
    is_torn: bool = False

    @property
    def quoted(self) -> str:
        """The beginning of the line, in quotes. Control characters are escaped."""
        try:
            shown = repr(utf_8_decode(self.head)[0])  # this decoder accepts a head that ends within a character
        except UnicodeDecodeError:
            shown = repr(self.head)[1:]
        return shown if len(self.head) < _SHOWN_BYTES else f"{shown[:-1]}…{shown[-1]}"

    def reply(self, *, idless_errors: bool) -> Error | None:
        """Return the error response to the line, or None; ``idless_errors`` is whether the revision has such responses.

        A peer with the same rules does not answer this response, so two of them cannot start an endless exchange.
        """
        if self.is_response or (self.id is UNSET and not idless_errors):
            return None
        return Error(self.id, ErrorDetail(self.code, self.reason))


def as_torn(bad: BadMessage) -> BadMessage:
    """Return the bad message as the torn end of a stream, unless it is whole: a part of a message is never JSON."""
    return msgspec.structs.replace(bad, is_torn=True) if bad.code == PARSE_ERROR else bad


class Batch(msgspec.Struct, frozen=True):
    """The messages of one JSON array; never empty."""

    items: tuple[Message | BadMessage, ...]


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    jsonrpc: Literal["2.0"]
    id: BoundedId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _LooseEnvelope(msgspec.Struct, frozen=True, gc=False):
    """An envelope whose members may have any JSON values."""

    jsonrpc: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode_request = msgspec.json.Decoder(Request).decode
_decode_result = msgspec.json.Decoder(Result).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_loose = msgspec.json.Decoder(_LooseEnvelope).decode
_decode_error = msgspec.json.Decoder(ErrorDetail).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_id = msgspec.json.Decoder(BoundedId | None).decode
_check_syntax = msgspec.json.Decoder(Raw).decode

# What msgspec raises for bytes that it cannot read; RecursionError if they are nested too deeply for the stack.
_CANNOT_DECODE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# The size of each kind of message in its shortest form, without its values but with an id of one digit.
_REQUEST = len('{"jsonrpc":"2.0","id":1,"method":""}')
_NOTIFICATION = len('{"jsonrpc":"2.0","method":""}')
_PARAMS = len(',"params":')
_RESULT = len('{"jsonrpc":"2.0","id":1,"result":}')
# The size of the shortest duplicate member, with its comma: a second id, and a duplicate of any other known key.
# Escapes in a key only make it longer.
_SECOND_ID = len('"id":1,')
_SECOND_OTHER = len('"error":1,')
# From this length on, not counting values, a line has room for a second id. The digits of an id are counted only where
# that matters; the quotes of a string id always are, and there is room enough for them.
_ROOM_IN_REQUEST = _REQUEST + _PARAMS + _SECOND_ID
_ROOM_IN_RESULT = _RESULT + _SECOND_ID

# No line of this length is nested too deeply, because each bracket must be closed, too.
_SHALLOW = 2 * MAX_DEPTH

# How many bytes of a bad line are kept: enough to recognise it.
_SHOWN_BYTES = 200

_OPENING = ord("{")
_CLOSING = ord("}")
_J = ord("j")


@overload
def decode_line(
    line: bytes, batches: Literal[False] = False, max_batch: int = 1000, expect: Expected = Request
) -> Message | BadMessage: ...


@overload
def decode_line(
    line: bytes, batches: object, max_batch: int = 1000, expect: Expected = Request
) -> Message | BadMessage | Batch: ...


def decode_line(
    line: bytes, batches: object = False, max_batch: int = 1000, expect: Expected = Request
) -> Message | BadMessage | Batch:
    """Return the message in ``line``, or a `BadMessage` that says what is wrong with it. Never raises.

    ``batches`` is whether the revision has batches; a batch of more than ``max_batch`` messages is bad as a whole.
    ``expect`` is the kind of most lines. It affects the speed only: any message is decoded with either.
    """
    # The hot path. It decodes only the expected kind, accepts a line that its length proves to be well-formed, and
    # leaves the rest to `_decode_any_kind`. Keyword-only defaults would cost a dict lookup in each call.
    #
    # Both types forbid unknown keys. So, in an object, a j as the third byte begins "jsonrpc", which is not missing.
    # A line that is hardly longer than the shortest form of the decoded message has no room for a duplicate key
    # (msgspec silently takes the last one). And if the line ends with two braces, the first of them ends the params.
    size = len(line)
    if size > _SHALLOW and is_too_deep(line, MAX_DEPTH):
        return _from_head(line, f"The line is nested more than {MAX_DEPTH} deep.", INVALID_REQUEST)
    try:
        if line[2] == _J:
            if expect is Request:
                request = _decode_request(line)
                params = request.params
                if params is not UNSET:
                    around = size - len(request.method) - len(params)
                    if (
                        (around < _ROOM_IN_REQUEST or around - len(str(request.id)) < _ROOM_IN_REQUEST - 1)
                        and line[-1] == _CLOSING == line[-2]
                        and (line.isascii() or _is_utf8(line))
                    ):
                        return request
            else:
                result = _decode_result(line)
                around = size - len(result.result)
                if (around < _ROOM_IN_RESULT or around - len(str(result.id)) < _ROOM_IN_RESULT - 1) and (
                    line.isascii() or _is_utf8(line)
                ):
                    return result
    except (*_CANNOT_DECODE, IndexError):
        pass
    return _decode_any_kind(line, max_batch if batches else 0)


def _id_bytes(id_: RequestId | UnsetType) -> int:
    """Return how many bytes more than one digit the id takes."""
    if id_ is UNSET:
        return 0
    return len(id_) + 1 if isinstance(id_, str) else len(str(id_)) - 1


def _decode_any_kind(line: bytes, max_batch: int) -> Message | BadMessage | Batch:
    """Decode any kind of message with its members in any order, still without searching the line."""
    try:
        envelope = _decode_envelope(line)
    except _CANNOT_DECODE:
        return _decode_carefully(line, max_batch)
    id_ = envelope.id
    method = envelope.method
    message: Message
    if method is not UNSET:
        params = envelope.params
        spare = len(line) - len(method)
        if params is not UNSET:
            spare -= len(params) + _PARAMS
        if id_ is UNSET:
            spare -= _NOTIFICATION
            message = Notification(method, params)
        elif id_ is not None:
            spare -= _REQUEST
            message = Request(id_, method, params)
        else:
            return _decode_carefully(line, 0)
        if params is not UNSET and memoryview(params)[0] != _OPENING:
            return _decode_carefully(line, 0)
    else:
        result = envelope.result
        if result is UNSET or id_ is UNSET or id_ is None:
            return _decode_carefully(line, 0)
        spare = len(line) - len(result) - _RESULT
        message = Result(id_, result)
    if spare >= _SECOND_ID:
        spare -= _id_bytes(id_)
        if spare >= _SECOND_ID and (spare >= _SECOND_OTHER or line.count(b'"id"') > 1):
            return _decode_carefully(line, 0)
    if not line.isascii() and not _is_utf8(line):
        return _decode_carefully(line, 0)
    return message


def too_long(event: "LineTooLong | EventTooLong") -> BadMessage:
    """Return the `BadMessage` for an over-long line or event, with its id if the head shows it."""
    if isinstance(event, LineTooLong):
        reason = f"A line is longer than the limit of {event.max_line} bytes, and was skipped."
    else:
        reason = f"An event is longer than the limit of {event.max_event} bytes, and was skipped."
    return _from_head(event.head, reason, INVALID_REQUEST)


def _is_utf8(line: bytes) -> bool:
    # In slices: as one string, a line could take four times its size.
    view = memoryview(line)
    at = 0
    try:
        while at < len(line):
            end = at + 65536
            at += utf_8_decode(view[at:end], "strict", end >= len(line))[1]
    except UnicodeDecodeError:
        return False
    return True


def _decode_carefully(line: bytes, max_batch: int) -> Message | BadMessage | Batch:
    """Decode a line with all checks, and find its exact fault. Batches are accepted if ``max_batch`` is not 0."""
    if not _is_utf8(line):
        return _from_head(line, "The line is not valid UTF-8.", PARSE_ERROR)
    try:
        _check_syntax(line)
        kind = line.lstrip()[:1]
        if kind == b"{":
            return _decode_object(line)
        if kind == b"[":
            return _decode_batch(line, max_batch)
    except (msgspec.DecodeError, RecursionError) as error:  # the latter if the caller's own stack is nearly full
        return _from_head(line, f"The line is not JSON: {_syntax_fault(error)}.", PARSE_ERROR)
    return _bad(line, "The line is JSON, but not an object.")


def _decode_object(line: bytes) -> Message | BadMessage:
    members = _decode_loose(line)
    method, params, result, error = members.method, members.params, members.result, members.error
    try:
        id_ = UNSET if members.id is UNSET else _decode_id(members.id)
        id_is_readable = True
    except msgspec.DecodeError:
        id_ = UNSET
        id_is_readable = False

    foreign = len(line) - _known_bytes(members)
    if foreign > MAX_FOREIGN:
        if b"\\" in line or line.count(b'"id"') != 1:
            id_ = UNSET
        fault = f"The envelope has more than {MAX_FOREIGN} bytes in it that belong to no known key"
    elif foreign >= _SECOND_ID and _has_duplicate_key(line):
        if not _has_one_id(line):
            id_ = UNSET
        fault = "A key appears twice in the envelope"
    elif members.jsonrpc is UNSET or not _is_text(members.jsonrpc, "2.0"):
        fault = 'The message does not have "jsonrpc": "2.0"'
    elif not id_is_readable:
        fault = "The id is neither a string nor an integer of at most 64 bits"
    elif (method is not UNSET) + (result is not UNSET) + (error is not UNSET) != 1:
        fault = "The message does not have exactly one of a method, a result and an error"
    elif method is not UNSET:
        if not _is_text(method):
            fault = "The method is not a string"
        elif id_ is None:
            fault = "The id of a request is null"
        elif params is not UNSET and memoryview(params)[0] != _OPENING:
            fault = "The params are not an object"
        else:
            name = _decode_text(method)
            return Notification(name, params) if id_ is UNSET else Request(id_, name, params)
    elif result is not UNSET:
        if id_ is not UNSET and id_ is not None:
            return Result(id_, result)
        fault = "The result has no id"
    else:
        detail = None if error is UNSET else _read_error(error)
        if detail is not None:
            return Error(UNSET if id_ is None else id_, detail)
        fault = "The error is not an object with an integer code and a string message"
    is_response = result is not UNSET or error is not UNSET
    return _bad(line, f"{fault}.", INVALID_REQUEST, UNSET if id_ is None else id_, is_response=is_response)


def _known_bytes(members: _LooseEnvelope) -> int:
    """Return the size of the known members in their shortest form."""
    total = 1
    for name in _LooseEnvelope.__struct_fields__:
        value = getattr(members, name)
        if value is not UNSET:
            total += len(name) + len('"":,') + len(value)
    return total


def _has_duplicate_key(line: bytes) -> bool:
    """Return whether a well-formed JSON object has a duplicate key.

    The decoder returns the last value of each key. This walks over the members of the line, as many as there are keys:
    a value that differs from the decoded one was replaced by a later duplicate, and members may not be left over.
    """
    members = _decode_members(line)
    at = line.index(b"{") + 1
    for _ in members:
        start = line.index(b'"', at)
        end = end_of_string(line, start)
        at = line.index(b":", end) + 1
        while line[at] in b" \t\r\n":
            at += 1
        value = members[_decode_text(line[start:end])]
        if not line.startswith(value, at):
            return True
        at += len(value)
    return line.find(b'"', at) != -1


def _has_one_id(line: bytes) -> bool:
    """Return whether ``id`` is certainly not a duplicate key."""
    inside = sum(bytes(value).count(b'"id"') for value in _decode_members(line).values())
    return b"\\" not in line and line.count(b'"id"') - inside == 1


def _is_text(raw: Raw, wanted: str | None = None) -> bool:
    try:
        text = _decode_text(raw)
    except msgspec.DecodeError:
        return False
    return wanted is None or text == wanted


def _read_error(raw: Raw) -> ErrorDetail | None:
    try:
        return _decode_error(raw)
    except msgspec.DecodeError:
        return None


def _decode_batch(line: bytes, max_batch: int) -> BadMessage | Batch:
    if not max_batch:
        return _bad(line, "The line is an array: this revision has no batches, or the array is inside a batch.")
    items = msgspec.structs.astuple(_batch_decoder(max_batch).decode(line))
    if items[0] is UNSET:
        return _bad(line, "The batch is empty.")
    if items[-1] is not UNSET:
        return _bad(line, f"The batch has more than {max_batch} messages.")
    return Batch(tuple(decode_line(bytes(item)) for item in items if item is not UNSET))


_batch_decoders: dict[int, msgspec.json.Decoder[msgspec.Struct]] = {}


def _batch_decoder(max_batch: int) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return a decoder that reads an array as a record with one field more than a batch may have messages.

    The decoder skips what follows the last field without keeping it. A list would be built in full before its length
    could be checked, and a list of zeros takes forty times the size of its JSON.
    """
    decoder = _batch_decoders.get(max_batch)
    if decoder is None:
        fields = [(f"item{n}", Raw | UnsetType, UNSET) for n in range(max_batch + 1)]
        decoder = msgspec.json.Decoder(msgspec.defstruct("_Items", fields, array_like=True, gc=False))
        _batch_decoders[max_batch] = decoder
    return decoder


def _syntax_fault(error: Exception) -> str:
    text = str(error)
    # msgspec reports a truncated line when a string ends where it expects the second half of a surrogate pair.
    return "it ends too early, or has half of a surrogate pair" if text == "Input data was truncated" else text


def _from_head(line: bytes, reason: str, code: int) -> BadMessage:
    """Return the `BadMessage` for a line that only its head can identify.

    Without the id, the peer that sent the request, or the local caller that waits for the response, would notice the
    loss only by a timeout; and a response could be answered. An object whose head does not show its kind may be one.
    """
    head = line[:HEAD_BYTES]
    id_, kind = identify(head)
    if kind == "request":
        # A line that is not JSON is answered without an id, even if it seems to have one.
        return _bad(line, reason, code, UNSET if code == PARSE_ERROR else id_)
    if kind == "response":
        return _bad(line, reason, code, id_, is_response=True)
    return _bad(line, reason, code, is_response=code != PARSE_ERROR and head.lstrip().startswith(b"{"))


def _bad(
    line: bytes,
    reason: str,
    code: int = INVALID_REQUEST,
    id_: RequestId | UnsetType = UNSET,
    *,
    is_response: bool = False,
) -> BadMessage:
    return BadMessage(reason, code, id_, is_response, line[:_SHOWN_BYTES])
