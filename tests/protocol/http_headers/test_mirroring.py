from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.protocol.http_headers import (
    BadAnnotation,
    ParamHeader,
    ParamHeaders,
    check_headers,
    headers_of,
    param_headers,
    status_of,
)
from mcplumb.revisions import LATEST
from mcplumb.types.meta import PROTOCOL_VERSION
from mcplumb.wire.messages import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    ErrorDetail,
    Request,
)

META = {PROTOCOL_VERSION: LATEST.name}
REGION = ParamHeaders((ParamHeader("Mcp-Param-Region", ("region",)),))
NESTED = ParamHeaders((ParamHeader("Mcp-Param-Limit", ("options", "page", "limit")),))


def properties(**found: Any) -> dict[str, Any]:
    return {"type": "object", "properties": found}


def annotated(name: Any = "Region", kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name}


def request(method: str = "tools/list", **params: Any) -> Request:
    """A request as it came from the wire."""
    return Request(1, method, msgspec.Raw(msgspec.json.encode({"_meta": META, **params})))


def call(**arguments: Any) -> Request:
    return request("tools/call", name="t", arguments=arguments)


def lookup(*headers: tuple[str, str]) -> Callable[[str], str | None]:
    found = {name.lower(): value for name, value in headers}
    return lambda name: found.get(name.lower())


def check(asked: Request, params: ParamHeaders | None = None, **changed: Any) -> str | None:
    """What is wrong with the right headers of a request after these are changed, or taken away."""
    right = dict(headers_of(asked, params))
    for name, value in changed.items():
        header = name.replace("_", "-")
        right.pop(header, None)
        if value is not None:
            right[header] = value
    error = check_headers(lookup(*right.items()), asked, params)
    assert error is None or error.code == HEADER_MISMATCH
    return None if error is None else error.message


# Annotations


def test_annotations_that_say_which_arguments_are_repeated() -> None:
    schema = properties(
        region=annotated("Region"),
        query={"type": "string", "default": {"x-mcp-header": "no annotation"}, "enum": [{"x-mcp-header": 1}]},
        options=properties(page=properties(limit=annotated("Limit", "integer"))),
        verbose=annotated("Verbose", ["boolean", "null"]),
    )
    assert param_headers(schema) == ParamHeaders(
        (
            ParamHeader("Mcp-Param-Region", ("region",)),
            ParamHeader("Mcp-Param-Limit", ("options", "page", "limit")),
            ParamHeader("Mcp-Param-Verbose", ("verbose",)),
        )
    )


@pytest.mark.parametrize(
    "schema",
    [
        {},
        properties(a={"type": "string"}),
        {"type": "object", "properties": {"x-mcp-header": {"type": "string"}}},
        {"type": "object", "required": ["x-mcp-header"], "$defs": {"x-mcp-header": True}},
        properties(a={"const": {"x-mcp-header": "A"}, "examples": [{"x-mcp-header": "B"}]}),
    ],
)
def test_schemas_without_annotations(schema: dict[str, Any]) -> None:
    assert param_headers(schema) is None


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize("name", ["", " ", "a b", "a:", "é", "a\r\n", 5, None, {"x": 1}, "y" * 200 + ":"])
def test_names_that_no_header_can_have(name: Any) -> None:
    with pytest.raises(BadAnnotation, match=r"at '#/properties/a' is .*, which cannot be part of a header's name\.$"):
        param_headers(properties(a=annotated(name)))


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    "kind", ["number", "object", "array", "null", None, ["string", "integer"], ["null"], [{}, "null"], {"a": 1}]
)
def test_types_that_no_header_can_say(kind: Any) -> None:
    with pytest.raises(BadAnnotation, match="whose type is not 'string', 'integer' or 'boolean'"):
        param_headers(properties(a=annotated("A", kind)))


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize("other", ["Region", "rEGION"])
def test_names_that_differ_only_in_their_case(other: str) -> None:
    with pytest.raises(BadAnnotation, match="must differ in more than their case"):
        param_headers(properties(a=annotated("Region"), b=properties(c=annotated(other))))


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    "schema",
    [
        annotated(),
        {"type": "object", "x-mcp-header": "Region"},
        properties(a={"type": "array", "items": annotated()}),
        properties(a={"type": "array", "prefixItems": [annotated()]}),
        properties(a={"items": properties(b=annotated())}),
        properties(a={"anyOf": [annotated()]}),
        {"oneOf": [properties(a=annotated())]},
        {"allOf": [{"properties": {"a": annotated()}}]},
        {"not": properties(a=annotated())},
        {"if": properties(a=annotated()), "then": {}},
        {"then": properties(a=annotated())},
        {"else": properties(a=annotated())},
        {"$defs": {"a": annotated()}},
        {"definitions": {"a": properties(b=annotated())}},
        {"patternProperties": {"^a": annotated()}},
        {"dependentSchemas": {"a": annotated()}},
        {"dependencies": {"a": annotated()}},
        {"additionalProperties": annotated()},
        {"unevaluatedProperties": {"unknownKeyword": annotated()}},
        {"properties": [annotated()]},
    ],
)
def test_annotations_in_the_wrong_place(schema: dict[str, Any]) -> None:
    with pytest.raises(BadAnnotation, match="not on a property that is reached through 'properties' alone"):
        param_headers(schema)


def test_a_schema_that_is_too_deep() -> None:
    schema: dict[str, Any] = annotated()
    for _ in range(64):
        schema = properties(a=schema)
    found = param_headers(schema)
    assert found is not None
    assert found.headers[0].path == ("a",) * 64
    with pytest.raises(BadAnnotation, match="nested too deeply"):
        param_headers(properties(a=schema))


# Headers of a client


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    ("asked", "more"),
    [
        (request("tools/list"), []),
        (request("tools/call", name="add"), [("Mcp-Name", "add")]),
        (request("prompts/get", name="größe", uri="x:y"), [("Mcp-Name", "=?base64?Z3LDtsOfZQ==?=")]),
        (request("resources/read", uri="file:///a%20b", name="n"), [("Mcp-Name", "file:///a%20b")]),
        (request("completion/complete", name="n", uri="u:v"), []),
        (request("tools/call"), []),
    ],
)
def test_headers_of_a_request(asked: Request, more: list[tuple[str, str]]) -> None:
    standard = [("Mcp-Method", asked.method), ("MCP-Protocol-Version", LATEST.name)]
    assert headers_of(asked, None) == standard + more
    # Before it is written, it is the same.
    unwritten = Request(1, asked.method, {**msgspec.json.decode(asked.params), "_meta": msgspec.Raw(b'{"a":1}')})
    assert headers_of(unwritten, None) == standard[:1] + more


def test_headers_of_a_request_without_params() -> None:
    assert headers_of(Request(1, "ping"), None) == [("Mcp-Method", "ping")]
    assert headers_of(Request(1, "a\r\nb: c"), None) == [("Mcp-Method", "=?base64?YQ0KYjogYw==?=")]


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("", ""),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        (42, "42"),
        (-7, "-7"),
        (42.0, "42"),
        (-(2**53) + 1, "-9007199254740991"),
        (True, "true"),
        (False, "false"),
        (None, None),
        (2**53, None),
        (1.5, None),
        (1e300, None),
        (["a"], None),
        ({"a": 1}, None),
    ],
)
def test_headers_of_arguments(value: Any, header: str | None) -> None:
    found = dict(headers_of(call(region=value), REGION))
    assert found.get("Mcp-Param-Region") == header


def test_arguments_inside_of_others() -> None:
    def find(**arguments: Any) -> str | None:
        return dict(headers_of(call(**arguments), NESTED)).get("Mcp-Param-Limit")

    assert find(options={"page": {"limit": 5}}) == "5"
    assert find(options={"page": {}}) is None
    assert find(options={"page": 5}) is None
    assert find(options="page") is None
    assert find() is None


# What a server checks


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    ("header", "value", "sentence"),
    [
        ("Mcp_Method", "tools/list", "Mcp-Method says 'tools/list', but the body says 'tools/call'."),
        ("Mcp_Method", "TOOLS/CALL", "Mcp-Method says 'TOOLS/CALL', but the body says 'tools/call'."),
        ("Mcp_Method", "=?base64?dG9vbHMvY2FsbA==?=", "Mcp-Method says '=?base64?dG9vbHMvY2FsbA==?=', but"),
        ("Mcp_Method", None, "Mcp-Method is missing."),
        ("Mcp_Name", "u", "Mcp-Name says 'u', but the body says 't'."),
        ("Mcp_Name", "T", "Mcp-Name says 'T', but the body says 't'."),
        ("Mcp_Name", "t, t", "Mcp-Name says 't, t', but"),
        ("Mcp_Name", None, "Mcp-Name is missing."),
        ("Mcp_Name", "=?base64?dA?=", "Mcp-Name cannot be read. The value has the base64 form, but"),
        ("Mcp_Name", "t\x00", "Mcp-Name cannot be read. The value has characters that HTTP headers do not allow."),
        ("Mcp_Name", "x" * 1000, "Mcp-Name says 'xxxx"),
        ("MCP_Protocol_Version", "v999", "MCP-Protocol-Version says 'v999', but the body says"),
        ("MCP_Protocol_Version", None, "MCP-Protocol-Version is missing."),
    ],
)
def test_standard_headers_that_are_refused(header: str, value: str | None, sentence: str) -> None:
    mistake = check(call(), None, **{header: value})
    assert mistake is not None
    assert mistake.startswith(f"Header mismatch: {sentence}")
    assert len(mistake) < 300


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Mcp_Name", "t"),
        ("Mcp_Name", " \tt "),
        ("Mcp_Name", "=?base64?dA==?="),
        ("Mcp_Method", " tools/call\t"),
        ("MCP_Protocol_Version", f" {LATEST.name}"),
        ("Mcp_Param_Region", "of another tool"),
    ],
)
def test_standard_headers_that_are_taken(header: str, value: str) -> None:
    assert check(call(), None, **{header: value}) is None


def test_a_name_that_nobody_asked_for_is_passed_over() -> None:
    assert check(request("tools/list"), Mcp_Name="t") is None


@pytest.mark.parametrize(
    "params",
    [
        msgspec.UNSET,
        msgspec.Raw(b"{}"),
        msgspec.Raw(b"[]"),
        msgspec.Raw(b'{"_meta":null}'),
        msgspec.Raw(b'{"_meta":{},"name":null}'),
        msgspec.Raw(b'{"_meta":5,"name":7}'),
        msgspec.Raw(b'{"name":5,"arguments":[]}'),
        msgspec.Raw(b'{"arguments":null}'),
        msgspec.Raw(b'{"arguments":[]}'),
        msgspec.Raw(b'{"arguments":{"a":1}}'),
    ],
)
def test_a_body_that_will_be_refused_anyway_is_left_alone(params: Any) -> None:
    asked = Request(1, "tools/call", params)
    given = lookup(("mcp-method", "tools/call"), ("mcp-name", "u"), ("mcp-protocol-version", "v999"))
    assert check_headers(given, asked, REGION) is None
    assert check_headers(lookup(), asked, None) == ErrorDetail(
        HEADER_MISMATCH, "Header mismatch: Mcp-Method is missing."
    )


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("Hello", "=?base64?SGVsbG8=?="),
        ("Hello", " Hello\t"),
        ("SGVsbG8=", "SGVsbG8="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("", ""),
        (True, "true"),
        (42, "42"),
        (42, "42.0"),
        (42, "042"),
        (42, "=?base64?NDI=?="),
        (42.0, "42"),
        (0, "-0"),
        (-7, "-7.000"),
    ],
)
def test_arguments_that_their_headers_repeat(value: Any, header: str) -> None:
    assert check(call(region=value), REGION, Mcp_Param_Region=header) is None


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    ("value", "header", "sentence"),
    [
        ("Hello", "=?base64?SGVsbG8?=", "Mcp-Param-Region cannot be read. The value has the base64 form"),
        ("Hello", "=?base64?SGVs!!!bG8=?=", "Mcp-Param-Region cannot be read. The value has the base64 form"),
        ("Hello", "hello", "Mcp-Param-Region says 'hello', but the body says 'Hello'."),
        ("Hello", None, "Mcp-Param-Region is missing."),
        (True, "True", "Mcp-Param-Region says 'True', but the body says 'true'."),
        (True, "1", "Mcp-Param-Region says '1', but"),
        (1, "true", "Mcp-Param-Region says 'true', but the body says '1'."),
        (42, "42.5", "Mcp-Param-Region says '42.5', but"),
        (42, "43", "Mcp-Param-Region says '43', but"),
        (42, "+42", "Mcp-Param-Region says '+42', but"),
        (42, "4_2", "Mcp-Param-Region says '4_2', but"),
        (42, "=?base64?NMKy?=", r"Mcp-Param-Region says '4\xb2', but"),
        (42, "9" * 5000, "Mcp-Param-Region says '9999"),
        (42, "", "Mcp-Param-Region says '', but"),
        (None, "x", "Mcp-Param-Region is present, but the argument 'region' is not."),
        (
            2**53,
            "9007199254740992",
            "the argument 'region' is not a string, boolean or integer up to 9007199254740991,",
        ),
        (1.5, "1.5", "the argument 'region' is not a string"),
        (["a"], None, "the argument 'region' is not a string"),
    ],
)
def test_arguments_that_their_headers_do_not_repeat(value: Any, header: str | None, sentence: str) -> None:
    mistake = check(call(region=value), REGION, Mcp_Param_Region=header)
    assert mistake is not None
    assert mistake.startswith(f"Header mismatch: {sentence}")
    assert len(mistake) < 300


def test_a_header_of_an_argument_that_is_absent() -> None:
    mistake = check(call(), NESTED, Mcp_Param_Limit="5")
    assert mistake == "Header mismatch: Mcp-Param-Limit is present, but the argument 'options.page.limit' is not."
    assert check(call(), NESTED) is None


def test_an_argument_that_cannot_be_read() -> None:
    params = msgspec.Raw(b'{"name":"t","arguments":{"region":1e999}}')
    mistake = check(Request(1, "tools/call", params), REGION)
    assert mistake is not None
    assert "is not a string" in mistake


@pytest.mark.req("HTP-2")
@given(st.text() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.none(), st.text())
def test_what_a_client_sends_is_what_a_server_takes(value: Any, name: str) -> None:
    asked = request("tools/call", name=name, arguments={"region": value})
    headers = headers_of(asked, REGION)
    assert all(text.isascii() and text.isprintable() for _, text in headers)
    assert check_headers(lookup(*headers), asked, REGION) is None


@pytest.mark.req("HTP-2")
@given(st.text() | st.booleans() | st.integers(-9, 9), st.text() | st.booleans() | st.integers(-9, 9))
def test_headers_of_one_call_do_not_fit_another(one: Any, other: Any) -> None:
    texts = [dict(headers_of(call(region=value), REGION))["Mcp-Param-Region"] for value in (one, other)]
    mistake = check(call(region=one), REGION, Mcp_Param_Region=texts[1])
    assert (mistake is None) == (texts[0] == texts[1])


@pytest.mark.req("HTP-5")
def test_status_codes() -> None:
    bad = (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)
    for code in bad:
        assert status_of(ErrorDetail(code, "")) == 400
    assert status_of(ErrorDetail(METHOD_NOT_FOUND, "")) == 404
    assert status_of(ErrorDetail(INTERNAL_ERROR, "")) == 200
    assert status_of(ErrorDetail(-1, "")) == 200


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize("bad", [{"uri": 5}, {"name": 5}, {"arguments": 5}, {"_meta": {"other": [{}]}}, {"x": {}}])
def test_a_bad_member_does_not_hide_the_others(bad: dict[str, Any]) -> None:
    meta = {PROTOCOL_VERSION: "2026-07-28", **bad.get("_meta", {})}
    for method, named_by, name in (("tools/call", "name", "danger"), ("resources/read", "uri", "danger://x")):
        params = {named_by: name, **{key: value for key, value in bad.items() if key != named_by}, "_meta": meta}
        request = Request(1, method, msgspec.Raw(msgspec.json.encode(params)))
        good = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": name}
        assert check_headers(lookup(*good.items()), request, None) is None
        for wrong in ({"mcp-name": "safe"}, {"mcp-protocol-version": "2025-11-25"}):
            error = check_headers(lookup(*(good | wrong).items()), request, None)
            assert error is not None
            assert error.code == HEADER_MISMATCH
