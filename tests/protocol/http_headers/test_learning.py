from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcplumb.protocol import http_headers
from mcplumb.protocol.http_headers import ParamHeaders, learn_headers, param_headers

ANNOTATED = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}
PLAIN = {"type": "object", "properties": {"city": {"type": "string"}}}
#: An array cannot be repeated in a header.
WRONG = {"type": "object", "properties": {"city": {"type": "array", "x-mcp-header": "City"}}}


def learned(*tools: tuple[str, Any], known: dict[str, ParamHeaders] | None = None) -> dict[str, ParamHeaders]:
    known = {} if known is None else known
    learn_headers({"tools": [{"name": name, "inputSchema": schema} for name, schema in tools]}, known)
    return known


def test_the_arguments_of_annotated_tools_are_learned() -> None:
    known = learned(("forecast", ANNOTATED), ("other", PLAIN))
    assert known == {"forecast": param_headers(ANNOTATED)}
    raw: dict[str, ParamHeaders] = {}
    written = msgspec.json.encode({"tools": [{"name": "forecast", "inputSchema": ANNOTATED, "more": 1}], "ttlMs": 0})
    learn_headers(msgspec.Raw(written), raw)
    assert raw == known


def test_a_list_without_annotations_is_not_read() -> None:
    known: dict[str, ParamHeaders] = {}
    learn_headers(msgspec.Raw(b"not JSON"), known)
    assert known == {}


def test_what_cannot_be_read_teaches_nothing() -> None:
    known: dict[str, ParamHeaders] = {}
    learn_headers(msgspec.Raw(b'{"tools": "x-mcp-header"}'), known)
    assert known == {}


def test_a_tool_that_changed_is_learned_anew() -> None:
    known = learned(("forecast", ANNOTATED))
    assert set(learned(("forecast", PLAIN), ("other", ANNOTATED), known=known)) == {"other"}
    assert learned(("other", WRONG), known=known) == {}


def test_the_last_annotation_that_goes_is_forgotten() -> None:
    known = learned(("forecast", ANNOTATED))
    assert learned(("forecast", PLAIN), known=known) == {}


def test_the_number_of_tools_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_headers, "_MAX_LEARNED", 2)
    assert set(learned(*((f"tool{number}", ANNOTATED) for number in range(3)))) == {"tool0", "tool1"}
