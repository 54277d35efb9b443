from __future__ import annotations

import ssl
import sys
from typing import Any

import pytest

import mcplumb
from mcplumb.client.client import Client
from mcplumb.client.connector import connect
from mcplumb.errors import UsageError
from mcplumb.revisions import LATEST
from mcplumb.types.base import Implementation
from mcplumb.types.meta import CLIENT_INFO
from tests.client.peers import Peer, modern, nothing, talk
from tests.kit.loop import run


async def stay(client: Client) -> None:
    """The body of a client that says nothing."""


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (None, "not None."),
        (7, "not an int."),
        ({7}, "not a set."),
        (
            {"command": "python", "args": ["weather.py"]},
            'not a dict. To use an entry of a config, load it with load_config: a file, or {"mcpServers": {…}}.',
        ),
    ],
)
def test_what_is_no_server_is_refused(target: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect(target)
    assert str(caught.value) == f"connect takes a command, an address or a Server, {said}"


@pytest.mark.parametrize("address", ["unix:/run/x.sock", "tcp://127.0.0.1:7000", "http://x/mcp", "https://x/mcp"])
def test_an_address_is_not_taken_for_a_command(address: str) -> None:
    with pytest.raises(UsageError, match="for a server that is started"):
        connect(address, cwd="/")


@pytest.mark.parametrize("target", [["x"], "x --y", "unix:/x", "tcp://127.0.0.1:1"])
@pytest.mark.parametrize("option", [{"headers": {}}, {"token": "t"}, {"proxy": "http://p"}, {"http_sse": True}])
def test_what_is_for_http_is_refused_for_others(target: Any, option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="for a server with an http:// or https:// address"):
        connect(target, **option)


@pytest.mark.parametrize("target", [["x"], "x --y", "unix:/x", "http://x/mcp"])
def test_tls_is_for_addresses_that_can_have_it(target: Any) -> None:
    with pytest.raises(UsageError, match="tcp:// or https://"):
        connect(target, tls=ssl.create_default_context())


@pytest.mark.parametrize("target", ["", "  ", [], "python 'x", [7]])
def test_a_command_that_makes_no_sense_is_refused_at_once(target: Any) -> None:
    with pytest.raises(UsageError):
        connect(target)


def test_a_policy_that_does_not_exist_is_refused_at_once() -> None:
    retry: Any = "sometimes"
    with pytest.raises(UsageError, match="no resend policy 'sometimes'"):
        connect(Peer(nothing), retry=retry)


@pytest.mark.parametrize("name", ["timeout", "max_timeout"])
@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf")])
def test_a_timeout_that_makes_no_sense_is_refused(name: str, wait: float) -> None:
    options: dict[str, Any] = {name: wait}
    with pytest.raises(UsageError, match=f"{name} is {wait}"):
        connect(Peer(nothing), **options)


def test_an_unknown_revision_is_refused() -> None:
    with pytest.raises(UsageError, match="no protocol revision '1999-01-01'"):
        connect(Peer(nothing), revisions=["1999-01-01"])


async def test_a_client_comes_out_of_a_context_or_can_be_awaited() -> None:
    peer = modern(nothing)
    async with connect(peer) as client:
        assert client.revision == LATEST
    peer.check()
    client = await connect(peer := modern(nothing))
    assert client.revision == LATEST
    await client.close()
    peer.check()


async def test_it_connects_once() -> None:
    connecting = connect(modern(nothing))
    async with connecting:
        with pytest.raises(UsageError, match="call connect again"):
            await connecting


@pytest.mark.req("META-1")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, {"name": "mcplumb", "version": mcplumb.__version__}),
        (
            {"client_info": Implementation("host", "3", title="A host")},
            {"name": "host", "version": "3", "title": "A host"},
        ),
        ({"client_info": None}, None),
    ],
)
def test_the_client_says_who_it_is_unless_told_not_to(options: dict[str, Any], said: dict[str, Any] | None) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.discover()
        assert request["params"]["_meta"].get(CLIENT_INFO) == said

    talk(Peer(play), stay, **options)


@pytest.mark.parametrize("options", [{}, {"client_info": None}])
def test_a_legacy_server_is_always_told_a_name(options: dict[str, Any]) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.initialize("2024-11-05")
        assert request["params"]["clientInfo"]["name"] == ("client" if options else "mcplumb")

    talk(Peer(play), stay, revisions=["2024-11-05"], **options)


async def test_the_body_may_fail() -> None:
    peer = modern(nothing)
    with pytest.raises(ZeroDivisionError):
        async with connect(peer):
            raise ZeroDivisionError
    peer.check()


@pytest.mark.parametrize(
    "options",
    [{"env": {}}, {"inherit_env": True}, {"cwd": "."}, {"stderr": "capture"}],
    ids=lambda value: next(iter(value)),
)
def test_what_is_for_a_process_is_refused_for_a_server_of_this_one(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not for one that runs"):
        connect(Peer(nothing), **options)


@pytest.mark.parametrize("name", ["restart", "stop", "limits", "waits"])
def test_options_that_are_none_are_refused_at_once(name: str) -> None:
    options: dict[str, Any] = {name: None}
    with pytest.raises(UsageError, match=f"{name} is a NoneType"):
        connect(Peer(nothing), **options)


@pytest.mark.parametrize("name", ["on_elicit", "on_sample", "on_log"])
def test_functions_are_functions(name: str) -> None:
    options: dict[str, Any] = {name: "yes"}
    with pytest.raises(UsageError, match=f"{name} is a str: give it a function"):
        connect(Peer(nothing), **options)


def test_whoever_forgets_to_enter_it_is_told() -> None:
    connecting: Any = connect(Peer(nothing))
    with pytest.raises(AttributeError, match=r"has no 'call_tool'\. Use the client that it gives: async with connect"):
        connecting.call_tool("x")
    with pytest.raises(AttributeError, match="has no 'nonsense'"):
        _ = connecting.nonsense


def test_a_trace_is_shown_what_goes_and_comes() -> None:
    shown: list[tuple[str, bytes]] = []

    async def main() -> None:
        async with connect(modern(nothing), trace=lambda way, line: shown.append((way, line))):
            pass

    run(main())
    assert [way for way, _ in shown] == ["out", "in"]
    assert b"server/discover" in shown[0][1]


def test_a_trace_is_not_for_transports_of_the_users_own() -> None:
    async def opens() -> Any:
        raise AssertionError

    with pytest.raises(UsageError, match="record the messages in your own transport"):
        connect(opens, trace=print)


async def test_an_entry_of_a_config_file_says_what_its_caller_does_not() -> None:
    class Configured:
        def connect_arguments(self) -> tuple[Any, dict[str, Any]]:
            return [sys.executable, "-c", PROGRAM], {"env": {"ONE": "1", "TWO": "2"}, "cwd": "/"}

    async with connect(Configured(), env={"TWO": "two"}) as client:
        assert client.instructions == "1 two /"


PROGRAM = """
import os
from mcplumb import Server
Server("x", instructions=f"{os.environ['ONE']} {os.environ['TWO']} {os.getcwd()}").run()
"""
