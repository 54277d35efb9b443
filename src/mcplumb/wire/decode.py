"""Decode one line into one JSON-RPC message.

Only the envelope is decoded; payloads stay ``msgspec.Raw`` until a higher layer knows their type. What a line is
follows from which keys it has, never from their values. A line that is not a message becomes a `BadMessage`: it says
why, and knows the answer it deserves.

What is refused: bytes that are not UTF-8, anything that is not JSON to the letter (NaN, lone surrogates and raw control
characters too), nesting more than `MAX_DEPTH` deep, ids that are neither text nor an integer of 64 bits, a key that
appears twice in the envelope, and an envelope with more than `MAX_FOREIGN` bytes of no known key.
What is not looked at: keys that appear twice inside a payload (there the last one wins), and unknown keys.
"""

from __future__ import annotations

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

__all__ = ["BadMessage", "Batch", "Expected", "decode_line", "end_of_text", "is_too_deep", "look_at", "too_long"]


# How deep JSON is nested, found out without following it: what a decoder may read without filling the stack.


# An opening bracket becomes 2, a closing one 0; all other bytes are dropped.
_STEPS = bytes(2 if byte in b"[{" else 0 for byte in range(256))
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
# As many brackets as are searched for one by one. Most messages have fewer.
_FEW = 16
# What is cut into pieces at once. The pieces of a whole line could take many times its bytes.
_SLICE = 64 * 1024


def is_too_deep(data: bytes, max_depth: int) -> bool:
    """Whether arrays and objects are nested more than ``max_depth`` deep.

    ``data`` may be any bytes: whether it is JSON is for the decoder to say, which may then read it without danger.
    The cost is linear, and small where there are not many brackets.
    """
    if not _has_more_brackets(data, max_depth):
        return False
    if b"\\" in data:
        # Backslashes come in runs, and no run begins within an escape: so first the escaped ones, then the quotes.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = 0
    in_text = False
    for at in range(0, len(data), _SLICE):
        pieces = data[at : at + _SLICE].split(b'"')
        steps = b"".join(pieces[in_text::2]).translate(_STEPS, _NO_BRACKETS)
        in_text ^= len(pieces) % 2 == 0
        # After n brackets, the sum of their steps less n is how much deeper they have led.
        if depth + max(map(sub, accumulate(steps), count(1)), default=0) > max_depth:
            return True
        depth += sum(steps) - len(steps)
    return False


def _has_more_brackets(data: bytes, most: int) -> bool:
    """Whether more than ``most`` brackets open. A few are found many times faster by searching than by counting."""
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


# What a message is of which only the head can be read, because the rest is too long, too deep, or no JSON.


_decode_head_text = msgspec.json.Decoder(str).decode
_decode_head_id = msgspec.json.Decoder(BoundedId).decode


def look_at(head: bytes) -> tuple[RequestId | UnsetType, Literal["request", "response"] | None]:
    """The id and the kind of the message that begins like this, as far as its simple members tell.

    A member is simple if its value is a text, a number or a word. With the first that is not, the walk ends.
    """
    id_: RequestId | UnsetType = UNSET
    has_id = has_method = False
    try:
        at = _expect(head, 0, b"{")
        while True:
            start = _after_space(head, at)
            end = end_of_text(head, _expect(head, start, b'"') - 1)
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
        # The head ends, a value is not simple, or this is no JSON.
        return id_, "request" if has_method else None


def end_of_text(data: bytes, start: int) -> int:
    """The place after the JSON text whose first quote is at ``start``; ValueError if it does not end."""
    at = start + 1
    while True:
        quote = data.index(b'"', at)
        before = data[at:quote]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return quote + 1
        at = quote + 1


def _end_of_simple(head: bytes, at: int) -> int:
    """The place after the simple value at ``at``."""
    if head[at : at + 1] == b'"':
        return end_of_text(head, at)
    end = at
    while head[end : end + 1].isalnum() or head[end : end + 1] in (b"-", b"+", b"."):
        end += 1
    if end == len(head):
        raise ValueError("the value may go on")
    return end


def _expect(head: bytes, at: int, byte: bytes) -> int:
    """The place after ``byte``, which has to be there, after white space or not; ValueError if it is not."""
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


# From one line to one message: the place where bytes from a stranger become something with a type.


#: The kinds of message that `decode_line` can be told to expect.
Expected: TypeAlias = type[Request] | type[Result]


class BadMessage(msgspec.Struct, frozen=True):
    """A line that is not a message: why, and what its sender may be told."""

    #: A sentence for the log. It quotes nothing from the line.
    reason: str
    #: -32700 if the line is not JSON, -32600 if it is, but not a message.
    code: int
    #: The id, where the line has one that can be trusted.
    id: RequestId | UnsetType = UNSET
    #: It has, or might have, a result or an error: never to be answered, but the call with that id can be failed now.
    is_response: bool = False
    #: How the line begins, for whoever received it and looks for the fault. It is never sent back.
    head: bytes = b""

    @property
    def quoted(self) -> str:
        """How the line begins, in quotes. What could drive a terminal is escaped."""
        try:
            shown = repr(utf_8_decode(self.head)[0])  # which may end within a character
        except UnicodeDecodeError:
            shown = repr(self.head)[1:]
        return shown if len(self.head) < _SHOWN_BYTES else f"{shown[:-1]}…{shown[-1]}"

    def reply(self, *, idless_errors: bool) -> Error | None:
        """The answer that the line deserves, or None; ``idless_errors`` says whether the revision has such answers.

        Whatever this returns, a peer that runs the same rules does not answer it: two of them cannot start a storm.
        """
        if self.is_response or (self.id is UNSET and not idless_errors):
            return None
        return Error(self.id, ErrorDetail(self.code, self.reason))


class Batch(msgspec.Struct, frozen=True):
    """Several messages that came in one JSON array; never empty."""

    items: tuple[Message | BadMessage, ...]


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    jsonrpc: Literal["2.0"]
    id: BoundedId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _LooseEnvelope(msgspec.Struct, frozen=True, gc=False):
    """An envelope of which nothing but JSON syntax is asked."""

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

# What msgspec raises for bytes that it cannot read. RecursionError is its answer to nesting beyond the stack.
_CANNOT_DECODE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# The bytes of each kind of message in its shortest form, without its values but with an id of one digit.
_REQUEST = len('{"jsonrpc":"2.0","id":1,"method":""}')
_NOTIFICATION = len('{"jsonrpc":"2.0","method":""}')
_PARAMS = len(',"params":')
_RESULT = len('{"jsonrpc":"2.0","id":1,"result":}')
# The shortest members that a line can have beyond those that were seen, each with its comma: a second id, and another
# one of any other known key. Escapes in a key only make it longer.
_SECOND_ID = len('"id":1,')
_SECOND_OTHER = len('"error":1,')
# From this length on, values not counted, a line has room for a second id. The digits of an id are counted only where
# that matters; the quotes of one that is a text always are, and there is room enough for them.
_ROOM_IN_REQUEST = _REQUEST + _PARAMS + _SECOND_ID
_ROOM_IN_RESULT = _RESULT + _SECOND_ID

# No line of this length is nested too deeply: each bracket has to be closed, too.
_SHALLOW = 2 * MAX_DEPTH

# How many bytes of a bad line are kept: enough to know it again.
_SHOWN_BYTES = 200

_OPENING = ord("{")
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
    """The message in ``line``, or what is wrong with it. Raises nothing, whatever the bytes are.

    ``batches`` says whether the revision has them; a batch of more than ``max_batch`` messages is bad as a whole.
    ``expect`` is the kind that most lines will be, and is there for speed only: any message is decoded with either.
    """
    # The hot path. It decodes the expected kind and nothing else, accepts what it can prove to be right by looking at
    # lengths, and leaves the rest to `_weigh`. Keyword-only defaults would cost a look into a dict for each call.
    #
    # Both types forbid unknown keys. So, in an object, a j in the third place begins "jsonrpc", which is not missing.
    # A line that is hardly longer than the shortest way to say what was seen has no room for a second value of a key
    # (msgspec takes the last one, silently). And when the line ends in two braces, params ended in the first of them.
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
                    has_no_room = around < _ROOM_IN_REQUEST or around - len(str(request.id)) < _ROOM_IN_REQUEST - 1
                    if has_no_room and line.endswith(b"}}") and (line.isascii() or _is_utf8(line)):
                        return request
            else:
                result = _decode_result(line)
                around = size - len(result.result)
                has_no_room = around < _ROOM_IN_RESULT or around - len(str(result.id)) < _ROOM_IN_RESULT - 1
                if has_no_room and (line.isascii() or _is_utf8(line)):
                    return result
    except (*_CANNOT_DECODE, IndexError):
        pass
    return _weigh(line, max_batch if batches else 0)


def _id_bytes(id_: RequestId | UnsetType) -> int:
    """How many bytes more than a digit the id takes."""
    if id_ is UNSET:
        return 0
    return len(id_) + 1 if isinstance(id_, str) else len(str(id_)) - 1


def _weigh(line: bytes, max_batch: int) -> Message | BadMessage | Batch:
    """The same for any kind of message and any order of its members, and still without searching the line."""
    try:
        envelope = _decode_envelope(line)
    except _CANNOT_DECODE:
        return _examine(line, max_batch)
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
            return _examine(line, 0)
        if params is not UNSET and memoryview(params)[0] != _OPENING:
            return _examine(line, 0)
    else:
        result = envelope.result
        if result is UNSET or id_ is UNSET or id_ is None:
            return _examine(line, 0)
        spare = len(line) - len(result) - _RESULT
        message = Result(id_, result)
    if spare >= _SECOND_ID:
        spare -= _id_bytes(id_)
        if spare >= _SECOND_ID and (spare >= _SECOND_OTHER or line.count(b'"id"') > 1):
            return _examine(line, 0)
    if not line.isascii() and not _is_utf8(line):
        return _examine(line, 0)
    return message


def too_long(event: LineTooLong | EventTooLong) -> BadMessage:
    """The bad message that an over-long line or event is; its id is read from its head where it stands there."""
    if isinstance(event, LineTooLong):
        reason = f"A line is longer than the cap of {event.max_line} bytes, and was skipped."
    else:
        reason = f"An event is longer than the cap of {event.max_event} bytes, and was skipped."
    return _from_head(event.head, reason, INVALID_REQUEST)


def _is_utf8(line: bytes) -> bool:
    # In slices: as one text, a line could take four times its bytes.
    view = memoryview(line)
    at = 0
    try:
        while at < len(line):
            end = at + 65536
            at += utf_8_decode(view[at:end], "strict", end >= len(line))[1]
    except UnicodeDecodeError:
        return False
    return True


def _examine(line: bytes, max_batch: int) -> Message | BadMessage | Batch:
    """The whole truth about a line, without haste. Batches are accepted if ``max_batch`` is not 0."""
    if not _is_utf8(line):
        return _from_head(line, "The line is not valid UTF-8.", PARSE_ERROR)
    try:
        _check_syntax(line)
        kind = line.lstrip()[:1]
        if kind == b"{":
            return _examine_object(line)
        if kind == b"[":
            return _examine_batch(line, max_batch)
    except (msgspec.DecodeError, RecursionError) as error:  # The latter if the caller's own stack is nearly full.
        return _from_head(line, f"The line is not JSON: {_named_fault(error)}.", PARSE_ERROR)
    return _bad(line, "The line is JSON, but not an object.")


def _examine_object(line: bytes) -> Message | BadMessage:
    members = _decode_loose(line)
    method, params, result, error = members.method, members.params, members.result, members.error
    try:
        id_ = UNSET if members.id is UNSET else _decode_id(members.id)
        id_is_readable = True
    except msgspec.DecodeError:
        id_ = UNSET
        id_is_readable = False

    foreign = len(line) - _owned_bytes(members)
    if foreign > MAX_FOREIGN:
        if b"\\" in line or line.count(b'"id"') != 1:
            id_ = UNSET
        fault = f"The envelope has more than {MAX_FOREIGN} bytes in it that belong to no known key"
    elif foreign >= _SECOND_ID and _repeats_a_key(line):
        if not _has_one_id(line):
            id_ = UNSET
        fault = "A key appears twice in the envelope"
    elif members.jsonrpc is UNSET or not _is_text(members.jsonrpc, "2.0"):
        fault = 'The message does not say "jsonrpc": "2.0"'
    elif not id_is_readable:
        fault = "The id is neither a text nor an integer of at most 64 bits"
    elif (method is not UNSET) + (result is not UNSET) + (error is not UNSET) != 1:
        fault = "The message does not have exactly one of a method, a result and an error"
    elif method is not UNSET:
        if not _is_text(method):
            fault = "The method is not a text"
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
        fault = "The error is not an object with an integer code and a text for its message"
    is_response = result is not UNSET or error is not UNSET
    return _bad(line, f"{fault}.", INVALID_REQUEST, UNSET if id_ is None else id_, is_response=is_response)


def _owned_bytes(members: _LooseEnvelope) -> int:
    """The bytes that the known members take in their shortest form."""
    total = 1
    for name in _LooseEnvelope.__struct_fields__:
        value = getattr(members, name)
        if value is not UNSET:
            total += len(name) + len('"":,') + len(value)
    return total


def _repeats_a_key(line: bytes) -> bool:
    """Whether a JSON object, which is known to be well-formed, has some key twice: a walk over its members.

    The decoder gives the last value of each key. Walking along the line, one value after the other is skipped; when
    there have been as many members as keys, nothing may be left. Where the line has another value than the one that
    was given, a later one of the same key has replaced it.
    """
    members = _decode_members(line)
    at = line.index(b"{") + 1
    for _ in members:
        start = line.index(b'"', at)
        end = end_of_text(line, start)
        at = line.index(b":", end) + 1
        while line[at] in b" \t\r\n":
            at += 1
        value = members[_decode_text(line[start:end])]
        if not line.startswith(value, at):
            return True
        at += len(value)
    return line.find(b'"', at) != -1


def _has_one_id(line: bytes) -> bool:
    """Whether ``id`` is certainly not among the keys that appear twice."""
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


def _examine_batch(line: bytes, max_batch: int) -> BadMessage | Batch:
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
    """Reads an array as a record with one field more than a batch may have messages.

    What follows the last field is skipped without being kept: a list would be built in full before its length is
    looked at, and an array of zeros takes forty times its bytes.
    """
    decoder = _batch_decoders.get(max_batch)
    if decoder is None:
        fields = [(f"item{n}", Raw | UnsetType, UNSET) for n in range(max_batch + 1)]
        decoder = msgspec.json.Decoder(msgspec.defstruct("_Items", fields, array_like=True, gc=False))
        _batch_decoders[max_batch] = decoder
    return decoder


def _named_fault(error: Exception) -> str:
    text = str(error)
    # msgspec takes the end of a text for the end of the line when it looks for the second half of a pair.
    return "it ends too early, or has half of a surrogate pair" if text == "Input data was truncated" else text


def _from_head(line: bytes, reason: str, code: int) -> BadMessage:
    """The bad message of which no more than the head can be read.

    Without a look at it, the sender of the request, or the caller who waits for the response, would find out by a
    timeout; and a response might be answered. Where an object's head does not show what it is, it might be one.
    """
    head = line[:HEAD_BYTES]
    id_, kind = look_at(head)
    if kind == "request":
        # What is no JSON at all is answered without an id, whatever it looks like.
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
