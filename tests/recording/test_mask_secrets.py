from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.recording.mask_secrets import (
    MASK,
    StderrMask,
    is_secret_header,
    is_secret_name,
    looks_secret,
    mask_headers,
    mask_session_ids,
    mask_text,
)

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"


@pytest.mark.req("TAP-3", "AUT-8")
@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"api_key": "abc"}', '{"api_key": "***"}'),
        ('{"a":{"access_token":"x\\"y","b":1}}', '{"a":{"access_token":"***","b":1}}'),
        ('{"password" : 12345, "x":2}', '{"password" : "***", "x":2}'),
        ('{"clientSecret":"s","name":"n"}', '{"clientSecret":"***","name":"n"}'),
        ('{"text":"{\\"api_key\\": \\"abc\\"}"}', '{"text":"{\\"api_key\\": \\"***\\"}"}'),
        ('{"tokens":"{\\"secret\\":\\"v\\"}"}', '{"tokens":"{\\"secret\\":\\"***\\"}"}'),
        ('{"text":"{\\n  \\"token\\": \\"abc\\"\\n}"}', '{"text":"{\\n  \\"token\\": \\"***\\"\\n}"}'),
        ("Authorization: Bearer abcdef123", "Authorization: Bearer ***"),
        ("sent Bearer token-abc123, and Bearer authXYZ1", "sent Bearer ***, and Bearer ***"),
        ("started with API_KEY=abcdef and X=1", "started with API_KEY=*** and X=1"),
        ("/mcp?token=abcdef&x=1", "/mcp?token=***&x=1"),
        (f'{{"t":"use {JWT} now"}}', '{"t":"use *** now"}'),
        ("key sk-abcdefghijklmnop1234", "key ***"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\\nMIIB\\n-----END RSA", "-----BEGIN RSA PRIVATE KEY-----***-----END RSA"),
        # Lists, objects with a name and a value, names of options
        ('{"passwords":["a", "b"],"n":["c"]}', '{"passwords":["***"],"n":["c"]}'),
        (
            '{"env":[{"name":"API_KEY","value":"a"},{"name":"N","value":"b"}]}',
            '{"env":[{"name":"API_KEY","value":"***"},{"name":"N","value":"b"}]}',
        ),
        ('{"args":["--token","abc","--api-key=abcd","-v"]}', '{"args":["--token","***","--api-key=***","-v"]}'),
        ("run --token abc --password=abcd now", "run --token *** --password=*** now"),
        # Text within strings, and what ends in the middle
        ('{"text":"PASSWORD=\\"abcd\\" is set"}', '{"text":"PASSWORD=\\"***\\" is set"}'),
        ('{"text":"{\\"secret\\":\\"a\\\\\\\\\\"}"}', '{"text":"{\\"secret\\":\\"***\\"}"}'),
        ('{"password":"abc', '{"password":"***"'),
        ('"{\\"token\\": \\"C:\\dir\\"}"', '"{\\"token\\": \\"***\\dir\\"}"'),
        # What programs log
        ("{'password': 'abc', 'n': 'b'}", "{'password': '***', 'n': 'b'}"),
        ("{ apiKey: 'abc' }", "{ apiKey: '***' }"),
        ('export PASSWORD="abc"', 'export PASSWORD="***"'),
        ("password: abc123, user: b", "password: *** user: b"),
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        ("Set-Cookie: sid=abc; Path=/", "Set-Cookie: ***"),
        ("authorization: Token abc", "authorization: Token ***"),
        # Within a value that is no secret itself
        ("env: PASSWORD=hunter2", "env: PASSWORD=***"),
        ("stderr:\nPASSWORD=hunter2", "stderr:\nPASSWORD=***"),
        ("url=https://h/?token=abcdef&x=1", "url=https://h/?token=***&x=1"),
        ("command='run --secret=abcdef'", "command='run --secret=***'"),
        # Addresses
        ("postgres://me:abc@db/x", "postgres://***@db/x"),
        ('{"url":"https:\\/\\/me:abc@h\\/x"}', '{"url":"https:\\/\\/***@h\\/x"}'),
        ("/callback?code=abcdef&state=x", "/callback?code=***&state=x"),
        ("code=abcdef&code_verifier=abcd", "code=***&code_verifier=***"),
        # Longer names of headers
        ('{"authorizationHeader":"abc"}', '{"authorizationHeader":"***"}'),
        ('{"proxyAuthorization":"abc"}', '{"proxyAuthorization":"***"}'),
        ('{"authorization_code":"abc"}', '{"authorization_code":"***"}'),
        ('{"cookieHeader":"abc","cookie_value":"abc"}', '{"cookieHeader":"***","cookie_value":"***"}'),
        ("http.authorization=abcdef", "http.authorization=***"),
        ("_authToken=abcdef", "_authToken=***"),
    ],
)
def test_secrets_are_masked_and_the_rest_stays(text: str, masked: str) -> None:
    assert mask_text(text) == masked
    assert mask_text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":"abc"}}}',
        '{"nextToken": "abc", "pageToken": "def", "maxTokens": 100, "tokens": 5}',
        "a basic example of the secret of tokens",
        "",
        # The schema of a tool, the metadata of a server with a sign-in, and its challenge
        '{"properties":{"password":{"type":"string"},"token":{"type":"integer"}},"required":["password","token"]}',
        '{"authorization_servers":["https://a"],"token_endpoint":"https://a/t","authorization_endpoint":"https://a"}',
        'Bearer realm="x", resource_metadata="https://x/y"',
        "Bearer authentication is required, with a bearer token",
        # The complaint of a server
        '{"message":"password: Field required"}',
        '{"passed":3,"pass":12}',
        "ssh to me@host",
    ],
)
def test_what_is_no_secret_is_the_same_object(text: str) -> None:
    assert mask_text(text) is text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "token", "text", "API-Key"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@pytest.mark.req("TAP-3")
@given(value=VALUES)
def test_json_stays_json_with_only_the_secrets_masked(value: Any) -> None:
    def expected(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {key: expected(one) if key in ("a", "text") else hidden(one) for key, one in inner.items()}
        return [expected(one) for one in inner] if isinstance(inner, list) else inner

    def hidden(inner: Any) -> Any:
        if isinstance(inner, list) and not any(isinstance(one, list | dict) for one in inner):
            return [MASK]
        return MASK if isinstance(inner, str | int) and not isinstance(inner, bool) else expected(inner)

    assert json.loads(mask_text(json.dumps(value))) == expected(value)
    assert json.loads(json.loads(mask_text(json.dumps(json.dumps(value))))) == expected(value)


FRAGMENTS = st.sampled_from(
    ["password", "token", '"', "'", "\\", "=", ":", " ", ",", "{", "]", "--token", "://", "u:p@h/", "Cookie: ", "code=",
     "Authorization: Bearer ", "abc123", "\n", '"name":"token","value":"', "sk-abcdefghijklmnop1234", "\\u00e9",
     "-----BEGIN PRIVATE KEY-----"]
)  # fmt: skip
NASTY = st.lists(FRAGMENTS, max_size=8).map("".join)


@pytest.mark.req("TAP-3")
@given(value=st.dictionaries(NASTY, NASTY | st.lists(NASTY, max_size=2) | st.integers(0, 9), max_size=3))
def test_no_text_makes_masked_json_invalid(value: dict[str, Any]) -> None:
    """Neither where the text is that of a member, nor where it is JSON within a string."""
    for levels in (1, 2):
        text = json.dumps(value) if levels == 1 else json.dumps({"text": json.dumps(value)})
        # As pairs: two names may be one when they are masked.
        found = json.loads(mask_text(text), object_pairs_hook=list)
        if levels == 2:
            ((name, inner),) = found
            assert name == "text"
            found = json.loads(inner, object_pairs_hook=list)
        assert len(found) == len(value)


@pytest.mark.req("TAP-2", "TAP-3")
@pytest.mark.parametrize(
    "text",
    [
        "token" + "\\" * 1_000_000,
        "eyJ-" * 250_000,
        '"token":"' * 100_000,
        '\\"token\\":\\"' * 70_000,
        "-----BEGIN PRIVATE KEY-----" * 40_000,
        '"token"' + " " * 1_000_000,
        '"name":"token","value":"' * 40_000,
        "x-" * 500_000 + "token",
        "://token" * 100_000 + "@",
        "token" + "a=b:c1=d" * 100_000,
        "a='token: a1" * 100_000,
        "tokens=abcdef" * 100_000,
    ],
    ids=[
        "backslashes",
        "eyJ",
        "members",
        "nested",
        "keys",
        "blanks",
        "pairs",
        "headers",
        "addresses",
        "assignments",
        "quoted assignments",
        "plural assignments",
    ],
)
def test_no_text_keeps_a_recorder_busy(text: str) -> None:
    """A search that takes quadratic time would need hours for these."""
    mask_text(text)


def test_a_private_key_on_stderr_takes_several_lines() -> None:
    stderr = StderrMask()
    lines = [
        "loaded -----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADANBg",
        "kqhkiG9w0BAQE=",
        "-----END PRIVATE KEY-----",
        "on",
    ]
    assert [stderr.mask(line) for line in lines] == [lines[0], "***", "***", "***", "on"]
    for number in range(1000):  # there is no end
        assert stderr.mask(lines[0]) or number
    assert [stderr.mask("more") for _ in range(1000)].count("***") < 300


def test_session_ids_in_addresses_stay_apart() -> None:
    one, other, again = (mask_session_ids(f"/messages?session_id={word}&x=1") for word in ("abc", "def", "abc"))
    assert one == again != other
    assert one.startswith("/messages?session_id=***")
    assert one.endswith("&x=1")


@pytest.mark.req("TAP-3")
def test_headers_are_masked_so_that_equal_ones_stay_equal() -> None:
    (kept, session, again, other) = mask_headers(
        [("content-type", "a"), ("Mcp-Session-Id", "s1"), ("mcp-session-id", "s1"), ("Authorization", "Bearer x")]
    )
    assert kept == ("content-type", "a")
    assert session[1] == again[1] != other[1]
    assert session[1].startswith(MASK)
    assert "s1" not in session[1]
    ((_, referer),) = mask_headers([("referer", "https://u:abc@x/?session_id=def&token=ghij")])
    assert not any(word in referer for word in ("abc", "def", "ghij"))
    assert is_secret_header("Set-Cookie")
    assert is_secret_header("X-Api-Key")
    assert not is_secret_header("Mcp-Method")


#: Names that are secrets everywhere.
SECRETS = [
    "password", "DB_PASSWD", "passphrase", "client_secret", "credentials", "api_key", "API-KEY", "accessKey",
    "private_key", "code_verifier", "device_code", "DB_PASS", "pass", "pwd", "client_assertion", "Authorization",
    "authorization_header", "cookie", "Set-Cookie", "cookie_jar", "token", "X-Token", "access_token", "refreshtoken",
    "bearerToken", "authToken", "id_token", "sessionToken",
]  # fmt: skip
#: Names that may be secrets in settings and headers, and mean something else in messages.
MAYBE = [
    "key", "Ocp-Apim-Subscription-Key", "tokens", "myToken", "NPM_TOKENS", "secrets", "passwords", "MYPWD", "X-Auth",
    "OAUTH", "cookies_file", "session", "X-Session",
]  # fmt: skip
HARMLESS = ["MODE", "name", "content-type", "accept", "Mcp-Method", "user-agent", "host"]


@pytest.mark.req("TAP-3", "AUT-8")
@pytest.mark.parametrize("name", [*SECRETS, *MAYBE, *HARMLESS])
def test_a_name_that_is_secret_in_messages_is_secret_in_settings_and_headers(name: str) -> None:
    assert is_secret_name(name) or name not in SECRETS
    assert looks_secret(name) == is_secret_header(name) == (name not in HARMLESS)


@pytest.mark.parametrize("name", ["author", "maxTokens", "sortKey", "progressToken", "keywords", "session"])
def test_a_harmless_name_in_a_message(name: str) -> None:
    assert not is_secret_name(name)
    text = json.dumps({name: "abc"})
    assert mask_text(text) is text


@pytest.mark.parametrize("name", ["WWW-Authenticate", "Proxy-Authenticate", "Keep-Alive"])
def test_a_challenge_is_no_secret(name: str) -> None:
    assert mask_headers([(name, 'Bearer error="invalid_token"')]) == [(name, 'Bearer error="invalid_token"')]


def test_every_header_that_may_be_a_secret_is_masked() -> None:
    ((_, value),) = mask_headers([("Ocp-Apim-Subscription-Key", "hunter2hunter2")])
    assert value.startswith(MASK)
