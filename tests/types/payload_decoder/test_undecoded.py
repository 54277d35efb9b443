"""Payload types of which some fields stay JSON."""

from __future__ import annotations

import msgspec
import pytest

from mcplumb.errors import DecodeError
from mcplumb.types.base import Params, RetryParams
from mcplumb.types.payload_decoder import read, undecoded
from mcplumb.types.prompts import GetPromptParams
from mcplumb.types.tools import CallToolParams

FIELDS = ("meta", "input_responses", "arguments")


def test_fields_stay_as_they_were_sent() -> None:
    kind = undecoded(CallToolParams, *FIELDS)
    params = read(kind, b'{"name":"x","arguments":{"a": 1.0},"_meta":{"k":0},"inputResponses":{},"requestState":"s"}')
    assert isinstance(params, CallToolParams)
    assert (params.name, params.request_state) == ("x", "s")
    raw = [bytes(getattr(params, name)) for name in FIELDS]
    assert raw == [b'{"k":0}', b"{}", b'{"a": 1.0}']


def test_absent_fields_can_be_told_from_empty_ones_where_that_matters() -> None:
    params = read(undecoded(CallToolParams, *FIELDS), b'{"name":"x"}')
    assert bytes(params.meta) == b"null"
    assert bytes(params.arguments) == b"{}"
    assert params.input_responses is msgspec.UNSET


def test_the_other_fields_are_those_of_the_type() -> None:
    kind = undecoded(GetPromptParams, "meta", "input_responses")
    assert sorted(kind.__struct_encode_fields__) == sorted(GetPromptParams.__struct_encode_fields__)
    with pytest.raises(DecodeError, match="name"):
        read(kind, b"{}")
    with pytest.raises(DecodeError, match="arguments"):
        read(kind, b'{"name":"x","arguments":{"a":1}}')


def test_a_variant_is_made_once() -> None:
    assert undecoded(Params, "meta") is undecoded(Params, "meta")
    assert undecoded(Params, "meta") is not undecoded(RetryParams, "meta")
