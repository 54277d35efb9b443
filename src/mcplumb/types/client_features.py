"""Client features, which servers may use: roots, sampling and elicitation.

On the wire a form is a JSON Schema, and ``ElicitParams.requested_schema`` is that schema, as a dict with all its keys.
``FormSchema`` and the field types are a typed view of what the protocol allows in it: to create a form, pass one to
``ElicitParams.for_form``; to read a form, call ``ElicitParams.read_form``.

Modern servers ask for input in the result of a request; legacy servers send requests of their own. The params and
results are the same types.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.errors import DecodeError, UsageError
from mcplumb.types.base import Number, Params, Payload, Result, Role
from mcplumb.types.content import SamplingContent
from mcplumb.types.payload_decoder import read
from mcplumb.types.tools import Tool

__all__ = [
    "BooleanSchema",
    "Choice",
    "ChoiceItems",
    "CreateMessageParams",
    "CreateMessageRequest",
    "CreateMessageResult",
    "ElicitParams",
    "ElicitRequest",
    "ElicitResult",
    "ElicitationCompleteParams",
    "FieldSchema",
    "FormSchema",
    "InputRequest",
    "InputRequiredResult",
    "InputResponse",
    "IntegerSchema",
    "ListRootsRequest",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "MultiSelectSchema",
    "NumberSchema",
    "Root",
    "SamplingMessage",
    "StringSchema",
    "ToolChoice",
    "UrlElicitationRequiredData",
    "read_input_response",
]


# Roots: the folders that a client lets a server use.


class _RootDetails(Payload, frozen=True, kw_only=True):
    name: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Root(_RootDetails, frozen=True):
    """A folder or file that the server may use, as a ``file://`` URI."""

    uri: str


class _RootsDetails(Payload, frozen=True, kw_only=True):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ListRootsResult(_RootsDetails, frozen=True):
    """All roots of a client."""

    roots: list[Root]


# Sampling: a server asks the client's model for a message.


class _MessageDetails(Payload, frozen=True, kw_only=True):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _Message(_MessageDetails, frozen=True):
    role: Role
    content: SamplingContent | list[SamplingContent]

    @property
    def blocks(self) -> list[SamplingContent]:
        """The content as a list, even if it is a single block."""
        return self.content if isinstance(self.content, list) else [self.content]


class SamplingMessage(_Message, frozen=True):
    """One message to or from a model: one content block, or a list of blocks."""


class ModelHint(Payload, frozen=True):
    """The name of a model, or a part of it."""

    name: str | None = None


class ModelPreferences(Payload, frozen=True, kw_only=True):
    """The server's preferences for the choice of a model; each priority is between 0 and 1."""

    hints: list[ModelHint] | None = None
    cost_priority: Number | None = None
    speed_priority: Number | None = None
    intelligence_priority: Number | None = None


class ToolChoice(Payload, frozen=True):
    """Whether the model may, must or must not call tools; ``auto`` if absent."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageParams(Params, frozen=True, kw_only=True):
    """The params of ``sampling/createMessage``: ask the client's model for a message."""

    messages: list[SamplingMessage]
    max_tokens: Number
    system_prompt: str | None = None
    model_preferences: ModelPreferences | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: Number | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None


class CreateMessageResult(_Message, frozen=True, kw_only=True):
    """The message that the client's model generated."""

    model: str
    #: ``endTurn``, ``stopSequence``, ``maxTokens``, ``toolUse``, or a value of the model's own.
    stop_reason: str | None = None


# Elicitation: a server asks the client's user, with a form or on a web page.


class Choice(Payload, frozen=True):
    """One option of a choice: its value, and the title to display."""

    const: str
    title: str


class _Field(Payload, frozen=True, kw_only=True, tag_field="type"):
    title: str | None = None
    description: str | None = None


class StringSchema(_Field, frozen=True, kw_only=True, tag="string"):
    """A text field, or a choice of one value.

    A choice has ``enum`` (values), ``one_of`` (values with titles) or, in the older form, ``enum`` with ``enum_names``.
    ``choices`` reads all three.
    """

    min_length: Number | None = None
    max_length: Number | None = None
    #: ``email``, ``uri``, ``date`` or ``date-time``.
    format: str | None = None
    enum: list[str] | None = None
    enum_names: list[str] | None = None
    one_of: list[Choice] | None = None
    default: str | None = None

    @property
    def choices(self) -> list[Choice] | None:
        """The options, each with a title (by default its value); None if the field takes any text."""
        if self.one_of is not None:
            return self.one_of
        return None if self.enum is None else _titled(self.enum, self.enum_names or [])


class _Numeric(_Field, frozen=True, kw_only=True):
    minimum: Number | None = None
    maximum: Number | None = None
    default: Number | None = None


class NumberSchema(_Numeric, frozen=True, tag="number"):
    """A number field."""


class IntegerSchema(_Numeric, frozen=True, tag="integer"):
    """An integer field."""


class BooleanSchema(_Field, frozen=True, kw_only=True, tag="boolean"):
    """A yes/no field."""

    default: bool | None = None


class ChoiceItems(Payload, frozen=True, kw_only=True):
    """The options of a multiple choice: ``enum`` with ``type``, or ``any_of`` with titles."""

    type: Literal["string"] | None = None
    enum: list[str] | None = None
    any_of: list[Choice] | None = None


class MultiSelectSchema(_Field, frozen=True, kw_only=True, tag="array"):
    """A choice of several values."""

    items: ChoiceItems
    min_items: Number | None = None
    max_items: Number | None = None
    default: list[str] | None = None

    @property
    def choices(self) -> list[Choice]:
        """The options, each with a title (by default its value)."""
        return self.items.any_of or _titled(self.items.enum or [], [])


FieldSchema: TypeAlias = StringSchema | NumberSchema | IntegerSchema | BooleanSchema | MultiSelectSchema


class _FormDetails(Payload, frozen=True, kw_only=True):
    required: list[str] | None = None
    schema: str | None = msgspec.field(default=None, name="$schema")


class FormSchema(_FormDetails, frozen=True, tag_field="type", tag="object"):
    """A form: a flat object whose fields each have a name and a schema."""

    properties: dict[str, FieldSchema]


class _ElicitDetails(Params, frozen=True, kw_only=True):
    #: ``form`` (also if absent) or ``url``. Any string is accepted: the caller decides what to do with an unknown mode.
    mode: str | None = None
    requested_schema: dict[str, Any] | None = None
    url: str | None = None
    elicitation_id: str | None = None


class ElicitParams(_ElicitDetails, frozen=True):
    """The params of ``elicitation/create``: ask the user with a form (``requested_schema``) or a web page (``url``)."""

    message: str

    def __post_init__(self) -> None:
        if self.is_url and self.url is None:
            raise UsageError("An elicitation in url mode needs a 'url'.")
        if self.is_form and self.requested_schema is None:
            raise UsageError("An elicitation in form mode needs a 'requestedSchema'.")

    @classmethod
    def for_form(cls, message: str, schema: FormSchema | dict[str, Any]) -> ElicitParams:
        """Return params that ask with a form."""
        raw = schema if isinstance(schema, dict) else msgspec.to_builtins(schema)
        return cls(message, mode="form", requested_schema=raw)

    @classmethod
    def for_url(cls, message: str, url: str, elicitation_id: str | None = None) -> ElicitParams:
        """Return params that ask on a web page; one revision requires an id."""
        return cls(message, mode="url", url=url, elicitation_id=elicitation_id)

    @property
    def is_form(self) -> bool:
        """Whether the user is asked with a form."""
        return self.mode is None or self.mode == "form"

    @property
    def is_url(self) -> bool:
        """Whether the user is sent to a web page."""
        return self.mode == "url"

    def read_form(self) -> FormSchema:
        """Return the form as typed fields; raise DecodeError if the protocol does not allow its schema."""
        try:
            return msgspec.convert(self.requested_schema, FormSchema)
        except msgspec.ValidationError as error:
            raise DecodeError(f"The protocol does not allow the schema of the requested form: {error}.") from error


class _ElicitResultDetails(Payload, frozen=True, kw_only=True):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ElicitResult(_ElicitResultDetails, frozen=True):
    """The user's action and, if a form was accepted, its values."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


class ElicitationCompleteParams(Params, frozen=True):
    """The params of ``notifications/elicitation/complete``: the user has finished on the web page."""

    elicitation_id: str


class UrlElicitationRequiredData(Payload, frozen=True):
    """The data of error -32042, in one revision: the web pages that the user must visit first."""

    elicitations: list[ElicitParams]


def _titled(values: list[str], titles: list[str]) -> list[Choice]:
    return [Choice(value, titles[i] if i < len(titles) else value) for i, value in enumerate(values)]


# Input requests within a result (modern revisions), and the responses in the retried request.


class CreateMessageRequest(Payload, frozen=True, tag_field="method", tag="sampling/createMessage"):
    """An input request for a message from the client's model."""

    params: CreateMessageParams


class ElicitRequest(Payload, frozen=True, tag_field="method", tag="elicitation/create"):
    """An input request to the client's user."""

    params: ElicitParams


class ListRootsRequest(Payload, frozen=True, tag_field="method", tag="roots/list"):
    """An input request for the client's roots."""

    params: Params | None = None


InputRequest: TypeAlias = CreateMessageRequest | ElicitRequest | ListRootsRequest
InputResponse: TypeAlias = CreateMessageResult | ElicitResult | ListRootsResult


class InputRequiredResult(Result, frozen=True, kw_only=True):
    """A result that asks for input: the client must send the request again with the responses."""

    #: Under keys of the server's choice; the responses in ``input_responses`` have the same keys.
    input_requests: dict[str, InputRequest] | None = None
    #: The server's own state, which the client sends back unchanged.
    request_state: str | None = None


def read_input_response(request: InputRequest, response: Any) -> InputResponse:
    """Return one value of ``input_responses`` as the type that its request determines."""
    kind: type[InputResponse]
    match request:
        case CreateMessageRequest():
            kind = CreateMessageResult
        case ElicitRequest():
            kind = ElicitResult
        case _:
            kind = ListRootsResult
    return response if isinstance(response, kind) else read(kind, response)
