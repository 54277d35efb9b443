"""The measured clients against the raw server, and programs that do wrong what a figure relies on."""

from __future__ import annotations

import sys

import msgspec
import pytest

from bench.driver import TooSlow, driven
from bench.environments import CONTENDERS
from bench.hosts import hosted
from bench.machine import peak_megabytes, resident_megabytes
from bench.traffic import LEGACY, MODERN, Calls, Era, Failed
from tests.kit.products import spread

SERVER = [sys.executable, str(CONTENDERS / "raw_server.py")]


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("client", spread(["bare_client", "ours_client", "ours_sync_client"], 1))
def test_each_client_gets_its_results_in_both_eras(client: str, era: str) -> None:
    with hosted([sys.executable, str(CONTENDERS / f"{client}.py"), era, *SERVER]) as host:
        assert 0 < host.connect < host.cold_start
        assert len(host.alone(3)) == 3
        assert host.in_flight(50, 8) > 0
        assert host.in_flight(3, 8) > 0
        assert 1 < resident_megabytes(host.pid) <= peak_megabytes(host.pid)


@pytest.mark.parametrize("client", ["bare_client", "ours_client", "ours_sync_client"])
def test_large_texts_come_back_whole(client: str) -> None:
    with hosted([sys.executable, str(CONTENDERS / f"{client}.py"), "modern", *SERVER]) as host:
        assert host.large(3_000_000) > 0


@pytest.mark.parametrize("era", [MODERN, LEGACY], ids=lambda era: era.name)
def test_the_raw_server_speaks_both_eras(era: Era) -> None:
    with driven(SERVER, era) as server:
        assert b'"result"' in server.greeting
        tools = msgspec.json.decode(server.ask(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}\n'))
        assert [tool["name"] for tool in tools["result"]["tools"]] == ["echo"]
        server.in_flight(Calls.echo(era, range(2, 500)), 64)


def test_the_raw_server_takes_ids_of_any_kind_and_refuses_what_it_does_not_know() -> None:
    with driven(SERVER, MODERN) as server:
        answer = msgspec.json.decode(server.ask(b'{"jsonrpc":"2.0","id":"a","method":"no/such"}\n'))
        assert (answer["id"], answer["error"]["code"]) == ("a", -32601)


def test_a_client_that_gets_a_wrong_result_says_so() -> None:
    liar = 'import os\nfor id in range(2): os.read(0, 65536); os.write(1, b\'{"id":0,"result":{"content":[]}}\\n\')'
    with (
        pytest.raises(Failed, match="should have been 'hello from call 0'"),
        hosted([sys.executable, str(CONTENDERS / "bare_client.py"), "modern", *program(liar)]),
    ):
        pass


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("raise SystemExit('no such luck')", "last words: no such luck"),
        ("print(0.5); input(); raise SystemExit('at the first order')", "last words: at the first order"),
        (
            "print(0.5); input(); print(1); print(sys.stdin.read(), 'too much')",
            "after its last answer the program said",
        ),
        ("print(0.5); input(); print(1); sys.stdin.read(); sys.exit('at the end')", "at the end"),
    ],
)
def test_a_program_that_fails_is_found(code: str, complaint: str) -> None:
    flushing = f"import functools, sys; print = functools.partial(print, flush=True); {code}"
    with pytest.raises(Failed, match=complaint), hosted(program(flushing)) as host:
        host.large(1)


def test_a_program_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(TooSlow, match=r"was not done after 0\.1 s"), hosted(program("input()"), patience=0.1):
        pass
