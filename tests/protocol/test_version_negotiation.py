from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from mcplumb.errors import UsageError
from mcplumb.protocol.version_negotiation import (
    SESSION,
    Admission,
    Admitted,
    InitializedSession,
    Need,
    Refused,
    has_capability,
    missing_capability,
)
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, MODERN, REVISIONS, Revision
from mcplumb.types import ClientCapabilities, Implementation, Params
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, UnsupportedVersionData
from mcplumb.types.payload_decoder import read, undecoded
from mcplumb.wire.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    ErrorDetail,
    Request,
)
from tests.protocol.walks import rows_taken

META: dict[str, Any] = {PROTOCOL_VERSION: str(LATEST), CLIENT_CAPABILITIES: {}}


def request(method: str, params: dict[str, Any] | None = None, **meta: Any) -> Request:
    if params is None and not meta:
        return Request(1, method)
    content = (params or {}) | ({"_meta": meta} if meta else {})
    return Request(1, method, msgspec.Raw(msgspec.json.encode(content)))


def modern(method: str, **more: Any) -> Request:
    return request(method, **{**META, **more})


def initialize(version: Any = "2025-06-18", **more: Any) -> Request:
    info = {"name": "c", "version": "1"}
    return request("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": info, **more})


def opened(revision: str = "2025-06-18") -> Admission:
    admission = Admission(REVISIONS)
    assert isinstance(admission.request(initialize(revision)), InitializedSession)
    return admission


def refusal(outcome: object) -> ErrorDetail:
    assert isinstance(outcome, Refused)
    return outcome.error


# --- modern -----------------------------------------------------------------------------------------------------


@pytest.mark.req("ERA-9", "ERA-10")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "x/y"])
def test_a_request_with_its_metadata_is_served(method: str) -> None:
    info = {"name": "c", "version": "1"}
    outcome = Admission(REVISIONS).request(modern(method, **{CLIENT_INFO: info, LOG_LEVEL: "info", "progressToken": 5}))
    assert isinstance(outcome, Admitted)
    assert (outcome.revision, outcome.capabilities) == (LATEST, ClientCapabilities())
    assert outcome.client_info == Implementation("c", "1")
    assert (outcome.log_level, outcome.progress_token) == ("info", 5)
    assert outcome.meta.raw[PROTOCOL_VERSION] == str(LATEST)


@pytest.mark.req("META-2")
@pytest.mark.parametrize("missing", [PROTOCOL_VERSION, CLIENT_CAPABILITIES])
@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
def test_missing_metadata_is_an_invalid_request(missing: str, method: str) -> None:
    meta = {key: value for key, value in META.items() if key != missing}
    error = refusal(Admission(REVISIONS).request(request(method, **meta)))
    assert error.code == INVALID_PARAMS
    assert missing in error.message


@pytest.mark.req("META-2")
def test_discover_needs_its_metadata_even_in_a_legacy_session() -> None:
    assert refusal(opened().request(request("server/discover"))).code == INVALID_PARAMS


@pytest.mark.req("META-2")
@pytest.mark.parametrize(
    "meta",
    [
        {PROTOCOL_VERSION: 5},
        {PROTOCOL_VERSION: None},
        {CLIENT_CAPABILITIES: []},
        {CLIENT_CAPABILITIES: {"roots": 1}},
        {CLIENT_INFO: "me"},
        {CLIENT_INFO: {"name": "no version"}},
        {LOG_LEVEL: "loud"},
        {"progressToken": 1.5},
    ],
)
def test_malformed_metadata_is_an_invalid_request(meta: dict[str, Any]) -> None:
    error = refusal(Admission(REVISIONS).request(modern("tools/list", **meta)))
    assert error.code == INVALID_PARAMS
    assert next(iter(meta)) in error.message


@pytest.mark.parametrize("params", [b'{"_meta": []}', b'{"_meta": 3}', b"[]", b'{"_meta": {"a": "\xff"}}'])
def test_params_that_cannot_be_read_are_an_invalid_request(params: bytes) -> None:
    outcome = Admission(REVISIONS).request(Request(1, "tools/list", msgspec.Raw(params)))
    assert refusal(outcome).code == INVALID_PARAMS


@pytest.mark.req("META-3")
@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", "", "x" * 10_000])
def test_a_version_that_is_not_served_is_refused_on_every_request(version: str) -> None:
    admission = opened()
    assert isinstance(admission.request(modern("tools/list")), Admitted)
    for _ in range(2):
        error = refusal(admission.request(modern("tools/list", **{PROTOCOL_VERSION: version})))
        assert error.code == UNSUPPORTED_VERSION
        assert error.data == UnsupportedVersionData([str(LATEST)], version[:64])
        assert len(error.message) < 200
    assert isinstance(admission.request(modern("tools/list")), Admitted)


@pytest.mark.req("META-7")
def test_nothing_is_inferred_from_an_earlier_request() -> None:
    admission = Admission(REVISIONS)
    full = modern("tools/list", **{CLIENT_CAPABILITIES: {"roots": {}}, LOG_LEVEL: "debug"})
    first = admission.request(full)
    assert isinstance(first, Admitted)
    assert first.capabilities.roots is not None
    second = admission.request(modern("tools/list"))
    assert isinstance(second, Admitted)
    assert (second.capabilities, second.log_level, second.client_info) == (ClientCapabilities(), None, None)
    assert refusal(admission.request(request("tools/list"))).code == INVALID_PARAMS


# --- capabilities -----------------------------------------------------------------------------------------------

DECLARED: list[tuple[dict[str, Any], set[Need]]] = [
    ({}, set()),
    ({"roots": {}}, {"roots"}),
    ({"sampling": {}}, {"sampling"}),
    ({"sampling": {"tools": {}}}, {"sampling", "sampling.tools"}),
    ({"elicitation": {}}, {"elicitation.form"}),
    ({"elicitation": {"form": {}}}, {"elicitation.form"}),
    ({"elicitation": {"url": {}}}, {"elicitation.url"}),
    ({"elicitation": {"form": {}, "url": {}}}, {"elicitation.form", "elicitation.url"}),
]


@pytest.mark.req("META-4")
@pytest.mark.req("META-7")
def test_the_same_metadata_means_the_same_however_often_and_however_much_other_came_between() -> None:
    admission = Admission(REVISIONS)
    for round_number in range(3):
        for token in range(40):
            outcome = admission.request(modern("tools/list", progressToken=token, long="x" * 3000 * (token % 2)))
            assert isinstance(outcome, Admitted), round_number
            assert outcome.progress_token == token
    assert isinstance(admission.request(modern("tools/list", **{CLIENT_CAPABILITIES: {"roots": {}}})), Admitted)
    assert refusal(admission.request(modern("tools/list", **{PROTOCOL_VERSION: "x"}))).code == UNSUPPORTED_VERSION


@pytest.mark.req("META-4")
def test_metadata_that_was_read_already_means_the_same() -> None:
    admission = Admission(REVISIONS)
    for token in (1, 1, 1, 2, 1):
        asked = modern("tools/call", progressToken=token)
        outcome = admission.request(asked, read(undecoded(Params, "meta"), asked.params).meta)
        assert isinstance(outcome, Admitted)
        assert (outcome.progress_token, outcome.revision) == (token, LATEST)
        assert admission.request(asked) == outcome
    nothing = request("tools/call", {"name": "x"})
    assert (
        refusal(admission.request(nothing, read(undecoded(Params, "meta"), nothing.params).meta)).code == INVALID_PARAMS
    )


@pytest.mark.parametrize(("declared", "has"), DECLARED)
def test_what_a_client_has_declared(declared: dict[str, Any], has: set[Need]) -> None:
    capabilities = msgspec.convert(declared, ClientCapabilities)
    assert {need for need in get_args(Need) if has_capability(capabilities, need)} == has


@pytest.mark.req("META-4")
@pytest.mark.parametrize(
    ("need", "required"),
    [
        ("roots", {"roots": {}}),
        ("sampling", {"sampling": {}}),
        ("sampling.tools", {"sampling": {"tools": {}}}),
        ("elicitation.form", {"elicitation": {"form": {}}}),
        ("elicitation.url", {"elicitation": {"url": {}}}),
    ],
)
def test_a_missing_capability_is_listed(need: Need, required: dict[str, Any]) -> None:
    error = missing_capability(need)
    assert error.code == MISSING_CAPABILITY
    assert msgspec.to_builtins(error)["data"] == {"requiredCapabilities": required}
    assert need in error.message


# --- legacy -----------------------------------------------------------------------------------------------------


@pytest.mark.req("LEG-1", "LEG-2")
@pytest.mark.parametrize("revision", LEGACY, ids=str)
def test_the_clients_version_is_taken_when_it_is_served(revision: Revision) -> None:
    admission = Admission(REVISIONS)
    assert admission.session is None
    handshake = InitializedSession(revision, ClientCapabilities(), Implementation("c", "1"))
    assert admission.request(initialize(str(revision))) == handshake
    assert (admission.session, admission.state) == (handshake, "opened")
    assert admission.initialized()
    assert admission.state == "ready"
    assert admission.initialized(), "a repeated one is harmless"
    outcome = admission.request(request("tools/list", progressToken="t"))
    assert isinstance(outcome, Admitted)
    assert (outcome.revision, outcome.progress_token) == (revision, "t")
    assert outcome.client_info == Implementation("c", "1")


@pytest.mark.req("LEG-2", "ERA-10")
@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "2999-01-01"])
def test_otherwise_it_is_our_newest_legacy_one(version: str) -> None:
    for served in (REVISIONS, REVISIONS[::-1], LEGACY[2:]):
        outcome = Admission(served).request(initialize(version))
        assert isinstance(outcome, InitializedSession)
        assert outcome.revision == (LEGACY[2] if served == LEGACY[2:] else LATEST_LEGACY)


def test_initialize_needs_little() -> None:
    admission = Admission(REVISIONS)
    admission.request(request("initialize", {"protocolVersion": "2024-11-05"}))
    outcome = admission.request(request("tools/list"))
    assert isinstance(outcome, Admitted)
    assert (outcome.capabilities, outcome.client_info) == (ClientCapabilities(), None)


@pytest.mark.parametrize(
    "params",
    [{}, {"protocolVersion": 5}, {"protocolVersion": "2024-11-05", "capabilities": 1}],
)
def test_a_malformed_initialize_is_refused_and_may_be_repeated(params: dict[str, Any]) -> None:
    admission = Admission(REVISIONS)
    assert refusal(admission.request(request("initialize", params))).code == INVALID_PARAMS
    assert isinstance(admission.request(initialize()), InitializedSession)


@pytest.mark.req("ERA-9", "HTP-5")
@pytest.mark.parametrize("served", [REVISIONS, MODERN])
def test_initialize_as_a_modern_request_is_a_method_like_any_other(served: list[Revision]) -> None:
    """One that there is not, as whoever asked for this verdict will find."""
    admission = Admission(served)
    assert isinstance(admission.request(initialize(_meta=META)), Admitted)
    assert (admission.session, admission.state) == (None, "unopened")
    error = refusal(admission.request(initialize(_meta={PROTOCOL_VERSION: str(LATEST)})))
    assert (error.code, CLIENT_CAPABILITIES in error.message) == (INVALID_PARAMS, True)


@pytest.mark.parametrize(
    "meta", [{}, None, 5, {"progressToken": 1}, {PROTOCOL_VERSION: 5}, {PROTOCOL_VERSION: "2025-06-18"}]
)
def test_initialize_with_other_metadata_opens_a_session(meta: Any) -> None:
    assert isinstance(Admission(REVISIONS).request(initialize(_meta=meta)), InitializedSession)
    assert refusal(Admission(MODERN).request(initialize(_meta=meta))).code == UNSUPPORTED_VERSION


@pytest.mark.req("LEG-1")
def test_another_initialize_is_refused_while_requests_are_in_flight() -> None:
    admission = opened("2025-06-18")
    error = refusal(admission.request(initialize("2024-11-05"), is_idle=False))
    assert (error.code, "in flight" in error.message) == (INVALID_REQUEST, True)
    assert admission.session is not None
    assert str(admission.session.revision) == "2025-06-18"


@pytest.mark.req("LEG-1")
def test_another_initialize_starts_the_session_over() -> None:
    admission = opened("2025-06-18")
    admission.initialized()
    before = admission.request(request("tools/list"))
    assert isinstance(before, Admitted)
    assert isinstance(admission.request(initialize("2024-11-05"), is_idle=True), InitializedSession)
    assert admission.state == "opened"
    after = admission.request(request("tools/list"))
    assert isinstance(after, Admitted)
    assert [str(each.revision) for each in (before, after)] == ["2025-06-18", "2024-11-05"]
    assert admission.initialized()
    assert admission.state == "ready"


@pytest.mark.req("LEG-1")
def test_a_client_that_initializes_twice_at_once() -> None:
    admission = opened("2025-06-18")
    assert isinstance(admission.request(initialize("2025-03-26"), is_idle=True), InitializedSession)
    assert admission.state == "opened"


@pytest.mark.req("LEG-1")
def test_an_initialize_that_cannot_be_read_leaves_the_session_as_it_is() -> None:
    admission = opened("2025-06-18")
    refusal(admission.request(initialize(5), is_idle=True))
    assert admission.session is not None


@pytest.mark.req("LEG-3")
def test_a_request_before_initialize_gets_a_clear_error_and_the_rest_works() -> None:
    admission = Admission(REVISIONS)
    error = refusal(admission.request(request("tools/list")))
    assert error.code == INVALID_PARAMS
    assert "initialize" in error.message
    assert PROTOCOL_VERSION in error.message
    assert not admission.initialized(), "it came out of turn"
    assert isinstance(admission.request(request("ping")), Admitted)
    assert isinstance(admission.request(initialize()), InitializedSession)


@pytest.mark.req("ERA-10")
def test_both_eras_on_one_connection() -> None:
    admission = opened("2024-11-05")
    for call, revision in [(modern("tools/list"), LATEST), (request("tools/list"), REVISIONS[4])] * 2:
        outcome = admission.request(call)
        assert isinstance(outcome, Admitted)
        assert outcome.revision == revision


# --- one era only -----------------------------------------------------------------------------------------------


@pytest.mark.req("ERA-11")
@pytest.mark.parametrize(
    ("params", "requested"),
    [
        (b'{"protocolVersion": "2025-11-25"}', "2025-11-25"),
        (b"{}", ""),
        (b'{"protocolVersion": []}', ""),
        (b"null", ""),
        (b'{"protocolVersion": "\\ud800"}', ""),
    ],
)
def test_a_modern_only_server_names_its_versions_to_a_legacy_client(params: bytes, requested: str) -> None:
    error = refusal(Admission(MODERN).request(Request(1, "initialize", msgspec.Raw(params))))
    assert error.code == UNSUPPORTED_VERSION
    assert error.data == UnsupportedVersionData([str(LATEST)], requested)
    assert str(LATEST) in error.message


@pytest.mark.req("META-2", "ERA-10")
@pytest.mark.parametrize("key", [CLIENT_INFO, LOG_LEVEL, CLIENT_CAPABILITIES, PROTOCOL_VERSION])
def test_any_key_of_the_modern_metadata_makes_a_request_modern(key: str) -> None:
    error = refusal(opened().request(request("tools/list", **{key: None})))
    assert PROTOCOL_VERSION in error.message


def test_a_modern_only_server_has_no_ping() -> None:
    error = refusal(Admission(MODERN).request(request("ping")))
    assert error.code == INVALID_PARAMS
    assert "initialize" not in error.message


def test_a_legacy_only_server_does_not_know_modern_metadata() -> None:
    admission = Admission(LEGACY)
    assert PROTOCOL_VERSION not in refusal(admission.request(modern("server/discover"))).message
    admission.request(initialize())
    outcome = admission.request(modern("tools/list"))
    assert isinstance(outcome, Admitted)
    assert str(outcome.revision) == "2025-06-18"


def test_a_server_serves_somebody() -> None:
    with pytest.raises(UsageError, match="at least one protocol revision"):
        Admission(())


def test_every_row_of_the_table_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [
        lambda: test_the_clients_version_is_taken_when_it_is_served(LATEST_LEGACY),
        test_another_initialize_starts_the_session_over,
        test_a_client_that_initializes_twice_at_once,
    ]
    assert rows_taken(SESSION, examples, monkeypatch) == set(SESSION.rows)
