from __future__ import annotations

import base64
import math
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mcplumb.errors import StateRefused, UsageError
from mcplumb.protocol.sealed_request_state import Params, Sealer

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
NOW = 1_800_000_000.0
CALL: dict[str, Any] = {"name": "book", "arguments": {"city": "Oslo", "nights": 3}}

FORGED = (
    "The request state does not verify: it was changed, or it belongs to another request, caller or server. "
    "Send the request again without it."
)
OTHER = (
    "The request state was sealed by another process, with a key that this one does not have: processes that share "
    "their clients need the same Server(state_keys=…). Send the request again without it."
)
EXPIRED = "The request state has expired. Send the request again without it."


def seal(sealer: Sealer, state: bytes = b"round 1", *, params: Params = CALL, now: float = NOW) -> str:
    return sealer.seal(state, method="tools/call", params=params, principal="ada", now=now)


def opened(
    sealer: Sealer,
    token: str,
    *,
    method: str = "tools/call",
    params: Params = CALL,
    principal: str | None = "ada",
    now: float = NOW,
) -> bytes:
    return sealer.open(token, method=method, params=params, principal=principal, now=now)


def refusal(sealer: Sealer, token: str, **changed: Any) -> tuple[str, str]:
    with pytest.raises(StateRefused) as caught:
        opened(sealer, token, **changed)
    assert caught.value.reason
    return str(caught.value), caught.value.reason


SEALER = Sealer(KEY)
#: Sealed with the key, before tokens had its name.
UNNAMED = "AQAAAaMYZXfAcm91bmQgMUZ93JOPRNlkC1aE8XtlvB3ndVGxDdgvnT6ixz4Nn_WO"


@pytest.mark.req("MRT-3")
@given(state=st.binary(max_size=300), method=st.text(), principal=st.none() | st.text(), passed=st.floats(0, 599))
def test_what_was_sealed_opens_again(state: bytes, method: str, principal: str | None, passed: float) -> None:
    token = SEALER.seal(state, method=method, params=CALL, principal=principal, now=NOW)
    assert SEALER.open(token, method=method, params=CALL, principal=principal, now=NOW + passed) == state


def test_a_token_is_safe_to_put_anywhere() -> None:
    token = seal(SEALER, bytes(range(256)))
    assert token.isascii()
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_the_format_is_pinned() -> None:
    # A new version of mcplumb behind the same clients has to open what the old one sealed.
    assert opened(SEALER, UNNAMED) == b"round 1"
    assert seal(SEALER) == "AmLFez4AAAGjGGV3wHJvdW5kIDFYlyryzdrMb6nO4EfhrdKBGX2SurVcr3swsBT0WU7H4A"


def test_a_token_without_the_name_of_its_key_is_just_refused() -> None:
    assert refusal(Sealer(OTHER_KEY), UNNAMED)[0] == FORGED
    assert refusal(SEALER, UNNAMED, principal="eve")[0] == FORGED
    assert refusal(SEALER, UNNAMED, now=NOW + 600)[0] == EXPIRED


@pytest.mark.req("MRT-3")
@given(data=st.data())
def test_any_change_of_any_bit_is_refused(data: st.DataObject) -> None:
    token = seal(SEALER)
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("=")
    assert refusal(SEALER, changed)[0] in (FORGED, OTHER)


@pytest.mark.parametrize("token", ["", "AQ", "Ag", "A" * 54, "Aw" + "A" * 70, "AQ" + "A" * 52])
def test_what_is_too_short_or_of_another_version_is_no_token(token: str) -> None:
    assert refusal(SEALER, token) == (FORGED, "not a token of this version")


@pytest.mark.req("MRT-3")
@given(data=st.data())
def test_any_other_spelling_is_refused(data: st.DataObject) -> None:
    # 8 bytes of state leave spare bits in the last character, which a lax decoder would pass over.
    token = seal(SEALER, b"12345678")
    at = data.draw(st.integers(0, len(token)))
    kind = data.draw(st.sampled_from(["replace", "insert", "cut", "drop"]))
    character = data.draw(st.characters() | st.sampled_from("=\n +/-_A"))
    changed = {
        "replace": token[:at] + character + token[at + 1 :],
        "insert": token[:at] + character + token[at:],
        "cut": token[:at],
        "drop": token[:at] + token[at + 1 :],
    }[kind]
    assume(changed != token)
    assert refusal(SEALER, changed)[0] in (FORGED, OTHER)


def test_every_last_character_but_one_is_refused() -> None:
    token = seal(SEALER, b"12345678")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    others = [token[:-1] + last for last in alphabet if last != token[-1]]
    assert {refusal(SEALER, other)[0] for other in others} == {FORGED}
    assert "not base64url" in {refusal(SEALER, other)[1] for other in others}


@pytest.mark.req("MRT-3")
@given(token=st.text(max_size=200) | st.binary(max_size=150).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_anything_else_is_refused(token: str) -> None:
    assert refusal(SEALER, token)[0] in (FORGED, OTHER)


@pytest.mark.req("MRT-3")
@pytest.mark.parametrize(
    "changed",
    [
        {"method": "prompts/get"},
        {"params": {"name": "book", "arguments": {"city": "Oslo", "nights": 4}}},
        {"params": {"name": "book", "arguments": {"city": "Oslo", "nights": "3"}}},
        {"params": {"name": "book", "arguments": {"city": "Oslo"}}},
        {"params": {"name": "book"}},
        {"params": {}},
        {"params": b'["book"]'},
        {"params": b"{"},
        {"params": b'{"x":' + b"[" * 100_000},
        {"principal": "eve"},
        {"principal": ""},
        {"principal": None},
        {"principal": "\ud800"},
    ],
)
def test_another_request_or_caller_is_refused(changed: dict[str, Any]) -> None:
    assert refusal(SEALER, seal(SEALER), **changed)[0] == FORGED


def test_no_principal_is_not_an_empty_one() -> None:
    token = SEALER.seal(b"", method="tools/call", params=CALL, principal=None, now=NOW)
    assert opened(SEALER, token, principal=None) == b""
    assert refusal(SEALER, token, principal="")[0] == FORGED


def test_method_and_principal_do_not_run_into_each_other() -> None:
    token = SEALER.seal(b"", method="ab", params=CALL, principal="c", now=NOW)
    assert refusal(SEALER, token, method="a", principal="bc")[0] == FORGED


@pytest.mark.req("MRT-3")
def test_another_key_is_refused_with_what_to_do() -> None:
    sentence, reason = refusal(Sealer(OTHER_KEY), seal(SEALER))
    assert sentence == OTHER
    assert "state_keys" in sentence
    assert "state_keys" in reason


def test_keys_are_changed_by_putting_the_new_one_in_front() -> None:
    both = Sealer([OTHER_KEY, KEY])
    assert opened(both, seal(SEALER)) == b"round 1"
    assert opened(Sealer(OTHER_KEY), seal(both)) == b"round 1"
    assert refusal(SEALER, seal(both))[0] == OTHER


@pytest.mark.req("MRT-3")
@given(late=st.floats(600, 1e9))
def test_old_state_is_refused_with_its_own_sentence(late: float) -> None:
    assert refusal(SEALER, seal(SEALER), now=NOW + late) == (EXPIRED, "expired")


@pytest.mark.parametrize("now", [math.nan, math.inf])
def test_a_time_that_is_none_counts_as_too_late(now: float) -> None:
    assert refusal(SEALER, seal(SEALER), now=now)[0] == EXPIRED


def test_a_forged_token_is_not_told_that_it_is_old() -> None:
    assert refusal(Sealer(OTHER_KEY), seal(SEALER), now=NOW + 10_000)[0] == OTHER
    assert refusal(SEALER, seal(SEALER), principal="eve", now=NOW + 10_000)[0] == FORGED


@pytest.mark.req("MRT-3")
def test_a_clock_that_went_back_is_tolerated_for_a_moment_only() -> None:
    token = seal(SEALER)
    assert opened(SEALER, token, now=NOW - 59) == b"round 1"
    assert refusal(SEALER, token, now=NOW - 61) == (FORGED, "ends too far in the future")
    assert refusal(Sealer(KEY, ttl=5.0), token)[1] == "ends too far in the future"


@pytest.mark.req("MRT-3")
@pytest.mark.parametrize(
    "params",
    [
        {"arguments": {"nights": 3, "city": "Oslo"}, "name": "book"},
        {"arguments": {"nights": 3.0, "city": "Oslo"}, "name": "book"},
        b' { "name" : "book", "arguments" : { "nights" : 3e0, "city" : "\\u004fslo" } } ',
        msgspec.Raw(b'{"name":"book","arguments":{"city":"Oslo","nights":3}}'),
        {"name": "book", "arguments": msgspec.Raw(b'{"nights":3,"city":"Oslo"}')},
        CALL | {"_meta": {"progressToken": 2}, "requestState": "x", "inputResponses": {"a": {"action": "accept"}}},
        msgspec.defstruct("Call", [("arguments", Any), ("name", str)])({"nights": 3, "city": "Oslo"}, "book"),
    ],
)
def test_the_same_values_in_another_spelling_verify(params: Params) -> None:
    assert opened(SEALER, seal(SEALER), params=params) == b"round 1"
    assert opened(SEALER, seal(SEALER, params=params)) == b"round 1"


def test_only_the_outermost_keys_are_left_out() -> None:
    inner = {"name": "book", "arguments": {"_meta": 1}}
    assert refusal(SEALER, seal(SEALER, params=inner), params={"name": "book", "arguments": {"_meta": 2}})[0] == FORGED


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equality of JSON values: as in Python, but a boolean is no number."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.req("MRT-3")
@given(one=JSON_VALUES, other=JSON_VALUES)
def test_parameters_open_a_token_exactly_when_they_are_equal(one: Any, other: Any) -> None:
    token = seal(SEALER, params={"x": one})
    assert opened(SEALER, token, params=msgspec.json.encode({"x": one})) == b"round 1"
    if same(one, other):
        assert opened(SEALER, token, params={"x": other}) == b"round 1"
    else:
        assert refusal(SEALER, token, params={"x": other})[0] == FORGED


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a", "b"], ["ab"]),
        (["a"], "a"),
        ([[], []], [[[]]]),
        ({"a": None}, {}),
        (True, 1),
        (False, 0),
        (None, "null"),
        (0.5, "0.5"),
        (1, "1"),
        ({"a": {"b": 1}}, {"a": {}, "b": 1}),
    ],
)
def test_values_that_look_alike_are_told_apart(one: Any, other: Any) -> None:
    assert refusal(SEALER, seal(SEALER, params={"x": one}), params={"x": other})[0] == FORGED


def test_integers_of_any_length_can_be_bound() -> None:
    params = b'{"n":' + b"9" * 4000 + b"}"
    assert opened(SEALER, seal(SEALER, params=params), params=params) == b"round 1"
    assert refusal(SEALER, seal(SEALER, params=params), params=params.replace(b"99}", b"98}"))[0] == FORGED


@pytest.mark.parametrize(
    "params",
    [{"x": object()}, {"x": "\ud800"}, b"{", b"[]", msgspec.Raw(b'{"x":' + b"[" * 100_000)],
)
def test_parameters_that_are_no_json_cannot_be_bound(params: Params) -> None:
    with pytest.raises(UsageError, match="cannot be bound to these parameters of tools/call"):
        seal(SEALER, params=params)


def test_state_has_a_largest_size() -> None:
    small = Sealer(KEY, max_state=10)
    for length in range(11):
        assert opened(small, seal(small, b"x" * length)) == b"x" * length
    with pytest.raises(UsageError, match="has 11 bytes, and at most 10 are allowed"):
        seal(small, b"x" * 11)
    assert refusal(small, seal(SEALER, b"x" * 11)) == (FORGED, "too long")
    assert refusal(SEALER, "A" * 10_000_000) == (FORGED, "too long")


@pytest.mark.parametrize("now", [math.nan, math.inf, -1e6, 1e30])
def test_a_time_that_cannot_be_is_refused_when_sealing(now: float) -> None:
    with pytest.raises(UsageError, match="Request state cannot be sealed at the time"):
        seal(SEALER, now=now)


@pytest.mark.parametrize("keys", [b"", b"short", [KEY, b"x" * 31], ["x" * 32], [bytearray(32)]])
def test_a_weak_key_is_refused(keys: Any) -> None:
    with pytest.raises(UsageError, match=r"must be bytes, at least 32 of them, and random\."):
        Sealer(keys)


def test_no_key_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a key, and none was given"):
        Sealer([])


@pytest.mark.parametrize(
    "wrong", [{"ttl": 0}, {"ttl": math.inf}, {"ttl": math.nan}, {"skew": -1}, {"skew": math.inf}, {"max_state": -1}]
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Sealed state cannot have ttl="):
        Sealer(KEY, **wrong)


def test_a_key_does_not_show() -> None:
    assert KEY.hex() not in repr(SEALER)
    assert repr(KEY) not in repr(SEALER)
