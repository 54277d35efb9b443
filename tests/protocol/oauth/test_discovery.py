from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.challenge import Challenge
from mcplumb.protocol.oauth.discovery import (
    MAX_DOCUMENT,
    canonical_resource,
    check_address,
    find_resource_metadata,
    find_server_metadata,
    is_loopback,
    may_get_tokens,
    resource_metadata_addresses,
    server_metadata_addresses,
)
from tests.protocol.oauth.world import (
    ENDPOINT,
    ISSUER,
    MISSING,
    RESOURCE_METADATA,
    SERVER_METADATA,
    World,
    answer,
    issuer,
    resource,
)


@pytest.mark.req("AUT-4")
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://auth.example", "https"),
        ("ftp://auth.example", "address"),
        ("auth.example", "address"),
        ("https://", "address"),
        ("https://user@auth.example", "address"),
        ("https://good.example\\@evil.example", "address"),
        ("https://auth.example:port", "address"),
        ("https://[::1", "address"),
        pytest.param("https://auth.example/" + "x" * 8000, "address", id="too long"),
        ("https://auth.example/\n", "address"),
        ("https://auth.example/ x", "address"),
        ("https://äuth.example", "address"),
        ("https://localhost", "loopback"),
        ("https://mcp.localhost.", "loopback"),
        ("https://127.0.0.1.", "loopback"),
        ("https://127.1", "loopback"),
        ("https://0x7f000001", "loopback"),
        ("https://2130706433", "loopback"),
        ("https://017700000001", "loopback"),
        ("https://0.0.0.0", "loopback"),
        ("https://[::]", "loopback"),
        ("https://[::ffff:127.0.0.1]", "loopback"),
        ("https://169.254.169.254/latest", "loopback"),
        ("https://[::ffff:169.254.169.254]", "loopback"),
        ("https://[64:ff9b::a9fe:a9fe]", "loopback"),
        ("https://[2002:a9fe:a9fe::1]", "loopback"),
        ("https://[fe80::1]", "loopback"),
        ("https://[fd00:ec2::254]", "loopback"),
        ("https://100.100.100.200", "loopback"),
        ("https://168.63.129.16", "loopback"),
        ("http://127.0.0.1:80", "loopback"),
        ("http://[::1]:80", "loopback"),
    ],
)
def test_an_address_that_may_not_be_used(url: str, reason: str) -> None:
    with pytest.raises(AuthorizationError) as caught:
        check_address(url, "The address", loopback=False)
    assert caught.value.reason == reason
    assert str(caught.value).startswith("The address is ")
    assert len(str(caught.value)) < 400


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize(
    "url",
    [
        "http://auth.example/x?key=hidden",
        "https://user:hidden@auth.example/x",
        "https://auth.example:port/?hidden",
        "https://localhost/#hidden",
        "https://localhost/ ?hidden",
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str) -> None:
    with pytest.raises(AuthorizationError) as caught:
        check_address(url, "The address", loopback=False)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:1/x", "http://127.8.9.1/", "https://[::1]/", "https://a.example:8443/x"]
)
def test_an_address_that_may_be_used(url: str) -> None:
    assert check_address(url, "The address", loopback=True).geturl() == url


@pytest.mark.parametrize(
    "url",
    ["https://10.0.0.1", "https://192.168.1.1", "https://[fd00::1]", "https://[64:ff9b::808:808]", "https://1.2.3.4"],
)
def test_authorization_servers_may_have_private_addresses(url: str) -> None:
    assert check_address(url, "The address", loopback=False).geturl() == url


def test_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "LOCALHOST.", "127.0.0.1", "127.1.2.3", "::1")))
    assert not any(map(is_loopback, ("localhost.example", "10.0.0.1", "0.0.0.0", "example", "127.0.0.1.example")))  # noqa: S104


@pytest.mark.req("AUT-4")
def test_where_tokens_may_be_sent() -> None:
    assert all(
        map(may_get_tokens, ("https://mcp.example", "https://10.0.0.1", "http://127.0.0.1:1/mcp", "http://[::1]"))
    )
    assert not any(map(may_get_tokens, ("http://mcp.example", "http://10.0.0.1", "ftp://127.0.0.1", "http:", "x")))


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("https://MCP.Example/Mcp/", "https://mcp.example/Mcp"),
        ("https://mcp.example/", "https://mcp.example"),
        ("https://mcp.example:8443/mcp?x=1#y", "https://mcp.example:8443/mcp"),
    ],
)
def test_the_canonical_address_of_a_server(endpoint: str, expected: str) -> None:
    assert canonical_resource(endpoint) == expected


@pytest.mark.req("AUT-1")
def test_where_the_metadata_of_a_resource_is() -> None:
    well_known = "https://mcp.example/.well-known/oauth-protected-resource"
    assert resource_metadata_addresses("https://mcp.example/a/b/", None) == [f"{well_known}/a/b", well_known]
    assert resource_metadata_addresses("https://mcp.example/", Challenge("bearer")) == [well_known]
    named = Challenge("bearer", {"resource_metadata": "https://x.example/y"})
    assert resource_metadata_addresses(ENDPOINT, named) == ["https://x.example/y"]


@pytest.mark.req("AUT-2")
def test_where_the_metadata_of_an_authorization_server_is() -> None:
    assert server_metadata_addresses("https://a.example/") == [
        "https://a.example/.well-known/oauth-authorization-server",
        "https://a.example/.well-known/openid-configuration",
    ]
    assert server_metadata_addresses("https://a.example/tenant/1") == [
        "https://a.example/.well-known/oauth-authorization-server/tenant/1",
        "https://a.example/.well-known/openid-configuration/tenant/1",
        "https://a.example/tenant/1/.well-known/openid-configuration",
    ]


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    "name",
    [
        "https://mcp.example",
        "https://mcp.example/",
        "https://MCP.example:443/mcp",
        "https://mcp.example/mcp/",
        ENDPOINT,
    ],
)
def test_metadata_of_the_resource_or_of_a_folder_above_it(name: str) -> None:
    world = World({RESOURCE_METADATA: answer(resource(resource=name, scopes_supported=None))})
    found = world.drive(find_resource_metadata(ENDPOINT, None))
    assert found is not None
    assert found.resource == name
    assert found.scopes_supported is None


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(
    "name",
    [
        "https://evil.example/mcp",
        "https://mcp.example.evil.example/mcp",
        "https://mcp.example:8443/mcp",
        "https://mcp.example/mc",
        "https://mcp.example/mcp/inner",
        "https://mcp.example/other",
        "https://mcp.example/mcp?x",
        "https://mcp.example/mcp#x",
    ],
)
def test_metadata_of_another_resource_is_refused(name: str) -> None:
    world = World({RESOURCE_METADATA: answer(resource(resource=name))})
    with pytest.raises(AuthorizationError, match="another resource") as caught:
        world.drive(find_resource_metadata(ENDPOINT, None))
    assert caught.value.reason == "resource"
    assert world.urls() == [RESOURCE_METADATA]


@pytest.mark.parametrize("name", ["http://mcp.example/mcp", "nothing", "http://127.0.0.1/mcp"])
def test_a_resource_that_is_no_safe_address(name: str) -> None:
    with pytest.raises(AuthorizationError):
        World({RESOURCE_METADATA: answer(resource(resource=name))}).drive(find_resource_metadata(ENDPOINT, None))


@pytest.mark.req("AUT-1")
def test_the_challenge_names_the_metadata() -> None:
    named = "https://elsewhere.example/metadata"
    challenge = Challenge("bearer", {"resource_metadata": named})
    world = World({named: answer(resource())})
    assert world.drive(find_resource_metadata(ENDPOINT, challenge)) is not None
    assert world.urls() == [named]


@pytest.mark.parametrize("page", [b"<html>", b"\xff", b"[]", b"1" * (MAX_DOCUMENT + 1), b"[" * 100_000])
def test_a_named_document_that_cannot_be_read(page: bytes) -> None:
    named = "https://mcp.example/metadata"
    challenge = Challenge("bearer", {"resource_metadata": named})
    with pytest.raises(AuthorizationError) as caught:
        World({named: answer(page)}).drive(find_resource_metadata(ENDPOINT, challenge))
    assert caught.value.reason == "document"


def test_a_challenge_whose_metadata_is_missing() -> None:
    challenge = Challenge("bearer", {"resource_metadata": "https://mcp.example/gone"})
    world = World({RESOURCE_METADATA: answer(resource())})
    assert world.drive(find_resource_metadata(ENDPOINT, challenge)) is not None
    assert world.urls() == ["https://mcp.example/gone", RESOURCE_METADATA]


@pytest.mark.req("AUT-1", "AUT-2")
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_server_that_is_out_of_order_does_not_say_that_it_has_no_metadata(status: int) -> None:
    """Otherwise a resource would be taken for its own authorization server, and get the client's secret."""
    challenge = Challenge("bearer", {"resource_metadata": "https://mcp.example/elsewhere"})
    for asked in (None, challenge):
        for world in (
            World({RESOURCE_METADATA: answer(b"", status)}),
            World({"https://mcp.example/.well-known/oauth-protected-resource": answer(b"", status)}),
        ):
            with pytest.raises(AuthorizationError, match=f"{ENDPOINT} answered with status {status} when") as caught:
                world.drive(find_resource_metadata(ENDPOINT, asked))
            assert caught.value.reason == "unreachable"
    with pytest.raises(AuthorizationError, match=f"{ISSUER} answered with status {status} when") as caught:
        World({SERVER_METADATA: answer(b"", status)}).drive(find_server_metadata(ISSUER, loopback=False))
    assert caught.value.reason == "unreachable"
    openid = f"{ISSUER}/.well-known/openid-configuration"
    found = World({SERVER_METADATA: answer(b"", status), openid: answer(issuer())})
    assert found.drive(find_server_metadata(ISSUER, loopback=False)) is not None, "Another address suffices."


def test_a_server_on_the_network_that_names_this_machine() -> None:
    challenge = Challenge("bearer", {"resource_metadata": "http://127.0.0.1:9/secret"})
    world = World({})
    with pytest.raises(AuthorizationError) as caught:
        world.drive(find_resource_metadata(ENDPOINT, challenge))
    assert caught.value.reason == "loopback"
    assert world.fetched == []


def test_a_page_for_every_path_is_not_metadata() -> None:
    root = "https://mcp.example/.well-known/oauth-protected-resource"
    world = World({RESOURCE_METADATA: answer(b"<html>"), root: answer(resource())})
    assert world.drive(find_resource_metadata(ENDPOINT, None)) is not None
    assert World({RESOURCE_METADATA: answer(b"<html>")}).drive(find_resource_metadata(ENDPOINT, None)) is None


@pytest.mark.parametrize(
    "document", [{}, {"resource": 1}, resource(authorization_servers=[]), resource(authorization_servers=1)]
)
def test_metadata_that_cannot_be_used(document: dict[str, object]) -> None:
    with pytest.raises(AuthorizationError) as caught:
        World({RESOURCE_METADATA: answer(document)}).drive(find_resource_metadata(ENDPOINT, None))
    assert caught.value.reason == "document"


def test_a_document_may_have_moved() -> None:
    moved = answer({}, 302, location="/moved")
    world = World({RESOURCE_METADATA: moved, "https://mcp.example/moved": answer(resource())})
    assert world.drive(find_resource_metadata(ENDPOINT, None)) is not None


def test_redirects_are_bounded_and_checked() -> None:
    circle = World(
        {
            RESOURCE_METADATA: answer({}, 301, location=RESOURCE_METADATA),
            "https://mcp.example/.well-known/oauth-protected-resource": MISSING,
        }
    )
    assert circle.drive(find_resource_metadata(ENDPOINT, None)) is None
    assert len(circle.fetched) == 5
    inwards = World({RESOURCE_METADATA: answer({}, 307, location="http://localhost:1/")})
    with pytest.raises(AuthorizationError):
        inwards.drive(find_resource_metadata(ENDPOINT, None))
    torn = World({RESOURCE_METADATA: answer({}, 302, location="https://[")})
    with pytest.raises(AuthorizationError, match="not a valid address"):
        torn.drive(find_resource_metadata(ENDPOINT, None))
    assert World({RESOURCE_METADATA: answer({}, 302)}).drive(find_resource_metadata(ENDPOINT, None)) is None


@pytest.mark.req("AUT-2")
def test_the_metadata_of_an_authorization_server_is_tried_in_order() -> None:
    urls = server_metadata_addresses("https://auth.example/tenant")
    for index, url in enumerate(urls):
        world = World({url: answer(issuer("https://auth.example/tenant"))})
        found = world.drive(find_server_metadata("https://auth.example/tenant", loopback=False))
        assert found is not None
        assert found.token_endpoint == "https://auth.example/tenant/token"
        assert world.urls() == urls[: index + 1]


@pytest.mark.req("AUT-2")
@pytest.mark.parametrize("named", [ISSUER + "/", ISSUER.upper(), "https://attacker.example", ISSUER + ":443", None, 1])
def test_another_issuer_is_refused(named: object) -> None:
    world = World({SERVER_METADATA: answer({**issuer(), "issuer": named})})
    with pytest.raises(AuthorizationError, match="must be identical") as caught:
        world.drive(find_server_metadata(ISSUER, loopback=False))
    assert caught.value.reason == "issuer"
    assert world.urls() == [SERVER_METADATA]


def test_another_spelling_where_nobody_named_the_issuer() -> None:
    world = World({SERVER_METADATA: answer(issuer(ISSUER + "/"))})
    found = world.drive(find_server_metadata(ISSUER, loopback=False, alias=ISSUER + "/"))
    assert found is not None
    assert found.issuer == ISSUER + "/"


@pytest.mark.parametrize(
    "name", ["authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"]
)
@pytest.mark.parametrize(
    "url", ["http://auth.example/x", "javascript:alert(1)", "http://localhost/x", "", f"{ISSUER}/x?y#z"]
)
def test_an_endpoint_that_is_not_safe(name: str, url: str) -> None:
    with pytest.raises(AuthorizationError, match=name):
        World({SERVER_METADATA: answer(issuer(**{name: url}))}).drive(find_server_metadata(ISSUER, loopback=False))


@pytest.mark.parametrize("name", [ISSUER + "?x=1", ISSUER + "#x", "http://auth.example"])
def test_an_issuer_that_is_none(name: str) -> None:
    world = World({})
    with pytest.raises(AuthorizationError):
        world.drive(find_server_metadata(name, loopback=False))
    assert world.fetched == []


def test_a_server_without_metadata() -> None:
    pages = {SERVER_METADATA: answer(b"<html>")}
    assert World(pages).drive(find_server_metadata(ISSUER, loopback=False)) is None


def test_null_is_not_given() -> None:
    world = World({SERVER_METADATA: answer(issuer(registration_endpoint=None, scopes_supported=None))})
    found = world.drive(find_server_metadata(ISSUER, loopback=False))
    assert found is not None
    assert found.registration_endpoint is None


@given(st.binary(max_size=200))
def test_any_document_is_used_or_refused(page: bytes) -> None:
    for flow in (find_resource_metadata(ENDPOINT, None), find_server_metadata(ISSUER, loopback=False)):
        world = World({RESOURCE_METADATA: answer(page), SERVER_METADATA: answer(page)})
        with suppress(AuthorizationError):
            world.drive(flow)
