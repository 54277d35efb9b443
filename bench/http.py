"""Servers over HTTP: ours, the official SDK's and an application written by hand, driven with raw bytes."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from functools import partial
from socket import socket

from bench.environments import NotInstalled, go_program, rust_program
from bench.lineup import BARE, GO, OFFICIAL, OURS, RUST, Contender, Lineup, program
from bench.loads import WINDOW, Driver, cost_of_calls
from bench.machine import pinned, resident_megabytes
from bench.posts import Visited, read_some, visited
from bench.results import Part, Round
from bench.rounds import able, in_rounds, peers_among
from bench.traffic import MODERN, Calls, Failed

__all__ = ["run"]

ROUNDS, FEWER_ROUNDS = 5, 3
#: Open subscriptions in one process.
STREAMS = 1000
#: Seconds in which a subscription should have heard something.
ENOUGH = 60.0
THING = "bench://thing"
READ = (
    b'{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{' + MODERN.meta + b'"uri":"' + THING.encode() + b'"}}'
)


#: With the parser that ours has, too, although `pip install mcp` does not bring it.
PARSING = f"{OFFICIAL}, httptools"
#: As an application that is mounted, under servers that know nothing of it.
MOUNTED, GRANIAN = f"{OURS}, ASGI under uvicorn", f"{OURS}, ASGI under granian"
#: Those whose program here has nothing to subscribe to.
WITHOUT_SUBSCRIPTIONS = (BARE, MOUNTED, GRANIAN, GO, RUST)


def run(lineup: Lineup) -> Part:
    """What calls over one connection and over many cost, and open subscriptions."""
    servers = able(contenders(with_peers=lineup.with_peers), try_out)
    peers = peers_among(servers)
    work = {each.name: partial(load, each) for each in servers}
    with pinned():
        one = in_rounds(
            f"HTTP servers: calls of echo, modern, on one core; in flight: {WINDOW} connections",
            work,
            ROUNDS,
            peers=peers,
        )
    apart = in_rounds("HTTP servers: calls of echo, modern, on any core", work, FEWER_ROUNDS, peers=peers)
    listened = {each.name: partial(crowd, each) for each in servers if each.name not in WITHOUT_SUBSCRIPTIONS}
    crowds = in_rounds(f"{STREAMS:,} open subscriptions in one process", listened, FEWER_ROUNDS, peers=peers)
    return Part({"modern, one core": one, "modern, any core": apart, "subscriptions": crowds})


def contenders(*, with_peers: bool) -> list[Contender]:
    """Those in Python under uvicorn, ours and the floor with httptools; the others with the servers of their SDKs."""
    files = {BARE: ("mcplumb-http", "bare_http"), OURS: ("mcplumb-http", "ours_http")}
    if with_peers:
        files |= {OFFICIAL: ("mcp-2.3.0", "official_http"), PARSING: ("mcp-2.3.0-httptools", "official_http")}
    commands: dict[str, Callable[[], list[str]]] = {
        name: partial(program, environment, file) for name, (environment, file) in files.items()
    }
    mounted = {MOUNTED: ("mcplumb-http", "uvicorn"), GRANIAN: ("mcplumb-granian", "granian")}
    for name, (environment, word) in mounted.items():
        commands[name] = partial(mounted_under, environment, word)
    if with_peers:
        commands |= {GO: lambda: [go_program("go-sdk"), "http"], RUST: lambda: [rust_program("rmcp"), "http"]}
    servers = []
    for name, command in commands.items():
        try:
            servers.append(Contender(name, command()))
        except NotInstalled as error:
            print(f"==> {name} does not take part: {error}", flush=True)
    return servers


def mounted_under(environment: str, server: str) -> list[str]:
    """The command of ours under an ASGI server."""
    return [*program(environment, "ours_mounted"), server]


def try_out(server: Contender) -> None:
    """Both tools answer rightly."""
    with visited(server.server) as process:
        process.in_flight(Calls.echo(MODERN, range(1, 100)), WINDOW)
        process.one_at_a_time(Calls.add(MODERN, range(100, 200)))


def load(server: Contender) -> Round:
    with visited(server.server) as process:
        return cost_of_calls(Driver(process, partial(Calls.echo, MODERN)), [process.pid])


def crowd(server: Contender) -> Round:
    """The first subscription and the first change load what all others need; they do not count."""
    with visited(server.server) as process:
        heard(process, process.listen(1, THING))
        before = resident_megabytes(process.pid)
        streams = process.listen(STREAMS, THING)
        after = resident_megabytes(process.pid)
        return {"stream_memory": (after - before) * 1000 / STREAMS, "heard": heard(process, streams)}


def heard(server: Visited, streams: Sequence[socket]) -> float:
    """The seconds until all streams have brought the change that reading the resource makes; `Failed` if not all do."""
    waiting = {stream.fileno(): (stream, b"") for stream in streams}
    with select.epoll() as poll:
        for number in waiting:
            poll.register(number, select.EPOLLIN)
        started = time.perf_counter()
        server.ask(READ)
        while waiting:
            if not (ready := poll.poll(ENOUGH)):
                raise Failed(f"{len(waiting)} of {len(streams)} subscriptions have not heard of the change")
            for number, _ in ready:
                stream, torn = waiting.pop(number)
                data = torn + read_some(stream)
                if b"notifications/resources/updated" not in data:
                    waiting[number] = stream, data
                else:
                    poll.unregister(number)
        return time.perf_counter() - started
