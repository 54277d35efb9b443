"""A bridge between a client and a server, against the two without it; and other bridges, over HTTP."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from bench.driver import PATIENCE, driven, launched
from bench.environments import CONTENDERS, NotInstalled, python_with
from bench.hosts import hosted
from bench.lineup import Lineup
from bench.loads import WINDOW, Driver, cost_of_calls, within_reason
from bench.machine import family, family_cpu_seconds, pinned, proportional_megabytes
from bench.posts import Address, Visited, read_answer
from bench.results import Part, Round
from bench.rounds import in_rounds
from bench.traffic import ERAS, LEGACY, MODERN, Calls, Era, Failed
from tests.interop.environments import Environment

__all__ = ["BRIDGED", "DIRECT", "MCP_PROXY", "RELAYED", "SUPERGATEWAY", "run"]

#: The second is the floor: what two more pipes and one more process cost that only hands on bytes, on asyncio.
DIRECT, RELAYED, BRIDGED = "direct", "bare relay on asyncio", "bridge"
#: The bridge with a legacy client over HTTP, which the others have, too: they speak nothing newer.
BRIDGED_LEGACY = "bridge, legacy client"
MCP_PROXY, SUPERGATEWAY = "mcp-proxy 0.13.0", "supergateway 4.0.0"
#: The environments of other bridges.
OTHERS = {
    MCP_PROXY: Environment("mcp_proxy", ("mcp-proxy==0.13.0",)),
    SUPERGATEWAY: Environment("npm_supergateway", ("supergateway@4.0.0",)),
}
ROUNDS, FEWER_ROUNDS = 7, 3
#: How long calls over HTTP are measured.
HTTP_SECONDS = 0.5
#: The clients that share a server.
CROWD = 50


def run(lineup: Lineup) -> Part:
    """What a bridge costs: the time of calls, the memory of many clients, and calls over HTTP beside other bridges."""
    client = [python_with("mcplumb"), str(CONTENDERS / "ours_client.py")]
    server = [python_with("mcplumb"), str(CONTENDERS / "ours.py")]
    relay = [python_with("mcplumb"), str(CONTENDERS / "relay.py")]
    bridge = [python_with("mcplumb"), str(CONTENDERS / "bridge.py")]
    tables = {}
    for era, place, rounds in (
        ("modern", "one core", ROUNDS),
        ("modern", "any core", FEWER_ROUNDS),
        ("legacy", "one core", FEWER_ROUNDS),
    ):
        work = {
            DIRECT: partial(load, [*client, era, *server]),
            RELAYED: partial(load, [*client, era, *relay, *server]),
            BRIDGED: partial(load, [*client, era, *bridge, *server]),
        }
        title = f"through a bridge, stdio to stdio: calls of echo, {era} client, modern server, on {place}"
        with pinned() if place == "one core" else nullcontext():
            tables[f"{era}, {place}"] = in_rounds(title, work, rounds)
    crowds = {DIRECT: partial(processes, server), BRIDGED: partial(sharing, bridge, server)}
    tables["memory"] = in_rounds(f"{CROWD} clients: a server for each, or one behind a bridge", crowds, 1)
    over_http = {BRIDGED: [python_with("mcplumb-http"), str(CONTENDERS / "bridge.py"), "http://127.0.0.1:{port}/mcp"]}
    others = other_bridges() if lineup.with_peers else {}
    over_http |= others
    over_http[BRIDGED_LEGACY] = over_http[BRIDGED]
    work = {
        name: partial(visit, MODERN if name == BRIDGED else LEGACY, [*words, *_after(name, server)])
        for name, words in over_http.items()
    }
    title = f"bridges from HTTP to stdio: calls of echo over {WINDOW} connections of a raw driver"
    tables["http"] = in_rounds(title, work, FEWER_ROUNDS, peers=others)
    return Part(tables)


def load(command: Sequence[str]) -> Round:
    with hosted(command) as host:
        return cost_of_calls(host, family(host.pid))


# --- Memory ---


def processes(server: Sequence[str]) -> Round:
    with ExitStack() as stack:
        started = [stack.enter_context(driven(server, MODERN)) for _ in range(CROWD)]
        return {"crowd": sum(proportional_megabytes(each.pid) for each in started)}


def sharing(bridge: Sequence[str], server: Sequence[str]) -> Round:
    """All clients have asked the bridge what the server is, so that it has been started."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = f"{folder}/s"
        process = stack.enter_context(launched([*bridge, f"unix:{place}", *server]))
        _wait_until(lambda: Path(place).exists())
        for _ in range(CROWD):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(place)
            client.sendall(ERAS["modern"].opening)
            if not client.makefile("rb").readline().startswith(b'{"jsonrpc"'):
                raise Failed("The bridge does not answer.")
        members = family(process.pid)
        try:
            return {"crowd": sum(map(proportional_megabytes, members))}
        finally:
            process.terminate()


# --- HTTP ---


def other_bridges() -> dict[str, list[str]]:
    """Those that can be installed, and how each is told its port; the command of the server follows."""
    ways = {
        MCP_PROXY: ["mcp-proxy", "--port", "{port}", "--"],
        SUPERGATEWAY: [
            "supergateway",
            "--outputTransport",
            "streamableHttp",
            "--stateful",
            "--port",
            "{port}",
            "--stdio",
        ],
    }
    found = {}
    for name, (program, *words) in ways.items():
        try:
            found[name] = [OTHERS[name].executable(program), *words]
        except NotInstalled as error:
            print(f"==> {name} does not take part: {error}", flush=True)
    return found


def _after(name: str, server: Sequence[str]) -> list[str]:
    """The command of the server, as the bridge takes it."""
    return [" ".join(server)] if name == SUPERGATEWAY else list(server)


def visit(era: Era, words: Sequence[str]) -> Round:
    """Each call is a POST. The driver is no part of the CPU time."""
    with _served(words) as (port, pid), ExitStack() as stack:
        address = _answering(Address("127.0.0.1", port), era)
        driver = Driver(Visited(pid, address, stack), partial(Calls.echo, era))
        driver.in_flight(WINDOW, WINDOW)
        few = 4 * WINDOW
        count = within_reason(HTTP_SECONDS * few / driver.in_flight(few, WINDOW))
        used = family_cpu_seconds(pid)
        seconds = driver.in_flight(count, WINDOW)
        used = family_cpu_seconds(pid) - used
        return {"in_flight": count / seconds, "cpu": used / count * 10_000}


def _answering(address: Address, era: Era) -> Address:
    """The address of a bridge that has answered; its port is open before it can."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if era is LEGACY:
                return address.opened()
            with address.connected() as connection:
                connection.sendall(address.post(era.opening.strip()))
                read_answer(connection)
        except (Failed, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return address


@contextmanager
def _served(words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """A bridge, with its port and the id of its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with launched([word.format(port=port) for word in words], stdout=subprocess.DEVNULL) as process:
        try:
            _wait_until(partial(_is_reached, port))
            yield port, process.pid
        finally:
            process.terminate()


def _is_reached(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Failed("The bridge does not start.")
        time.sleep(0.02)
