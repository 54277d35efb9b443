"""Many clients of both eras over all bindings on one server: nothing of one reaches another."""

from __future__ import annotations

import asyncio
import random
import re
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mcplumb import Client, HttpOptions, McplumbError, connect
from mcplumb.bridge.bridge import Bridge
from mcplumb.client.client_settings import DEFAULT_TIMEOUT
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from tests.bridge import told_server
from tests.kit.servers import serving

SERVER = [sys.executable, told_server.__file__]
RESTART = RestartPolicy(first_wait=0.01, factor=1.0, max_wait=0.05, jitter=0.0, breaker_after=1_000_000)
#: What marks everything of one client. It is on no wire but its own.
TAG = re.compile(rb"client-(\d{4})-")
#: How often each thing is done, of a hundred times.
CHANCES = {"echo": 70, "ask": 12, "change": 8, "hang": 8, "crash": 2}
#: Calls that a client has open at a time.
AT_ONCE = 4


class Visitor:
    """One client: what it does, and what it has seen."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self.tag = f"client-{number:04}-"
        self.foreign: set[bytes] = set()
        self.wrong: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.progress = self.logs = self.questions = self.changes = 0
        self._number = b"%04d" % number
        self._chance = chance
        self._calls = 0

    def options(self, revision: Revision, *, may_be_asked: bool) -> dict[str, Any]:
        return {
            "revisions": [str(revision)],
            "on_log": self._logged,
            "trace": self._traced,
            "restart": RESTART,
            "timeout": DEFAULT_TIMEOUT,
            **({"on_elicit": self._asked} if may_be_asked else {}),
        }

    def _traced(self, direction: str, data: Any) -> None:
        if direction == "in":
            self.foreign |= set(TAG.findall(bytes(data))) - {self._number}

    def _logged(self, message: Any) -> None:
        self.logs += 1
        self._check(str(message.data), "a log")

    async def _asked(self, question: Any) -> dict[str, str]:
        self.questions += 1
        self._check(question.message, "a question")
        return {"word": f"{question.message}!"}

    def _progressed(self, words: str, _: Any, __: Any, message: str | None) -> None:
        self.progress += 1
        if message != words:
            self.wrong.append(f"progress {message!r} for {words!r}")

    def _check(self, words: str, what: str) -> None:
        if not words.startswith(self.tag):
            self.wrong.append(f"{what} with {words!r}")

    async def visit(self, client: Client, calls: int, *, may_be_asked: bool) -> None:
        """Make so many calls, and watch the changes of an own resource meanwhile."""
        async with client.listen(resources=[f"own:{self.tag}"]) as changes:

            async def watch() -> None:
                async for change in changes:
                    self.changes += 1
                    uri = getattr(change, "uri", None)
                    if uri is not None:
                        self._check(uri.removeprefix("own:"), "a change")

            watching = asyncio.create_task(watch())
            gate = asyncio.Semaphore(AT_ONCE)
            names = self._chance.choices(list(CHANCES), list(CHANCES.values()), k=calls)
            if not may_be_asked:
                names = ["echo" if name == "ask" else name for name in names]
            await asyncio.gather(*(self._call(client, name, gate) for name in names))
            watching.cancel()
            await asyncio.wait([watching])

    async def _call(self, client: Client, name: str, gate: asyncio.Semaphore) -> None:
        async with gate:
            self._calls += 1
            words = self.tag if name == "change" else f"{self.tag}{self._calls}"
            expected = f"{words} {words}!" if name == "ask" else words
            on_progress = None if name in ("ask", "change") else self._on_progress(words)
            call = asyncio.create_task(client.call_tool(name, {"words": words}, on_progress=on_progress))
            if name == "hang":
                for _ in range(self._chance.randrange(40)):
                    await asyncio.sleep(0)
                call.cancel()
            try:
                result = await call
            except asyncio.CancelledError:
                self.outcomes[f"{name}: cancelled"] += 1
            except McplumbError as error:
                self.outcomes[f"{name}: {type(error).__name__}"] += 1
                if "told" not in str(error) and name != "hang":
                    self.wrong.append(f"an error of {name} that does not name the server: {error}")
            else:
                self.outcomes[f"{name}: answered"] += 1
                if result.text != expected or result.is_error:
                    self.wrong.append(f"{result.text!r} instead of {expected!r}")

    def _on_progress(self, words: str) -> Any:
        return lambda *progress: self._progressed(words, *progress)


async def visit_all(back: Revision, clients: int, calls: int, seed: int, folder: Path) -> Counter[str]:
    """Let so many clients make so many calls altogether; return the outcomes."""
    chance = random.Random(seed)
    bridge = Bridge(SERVER, name="told", revisions=[str(back)], restart=RESTART, stderr="discard")
    visitors = [Visitor(number, random.Random(chance.random())) for number in range(clients)]
    async with serving(bridge, f"unix:{folder / 's'}", "tcp://127.0.0.1:0", "http://127.0.0.1:0/mcp") as addresses:
        targets = [bridge, *addresses]

        async def one(number: int, visitor: Visitor) -> None:
            target: Any = targets[number % len(targets)]
            revision = (LATEST, LATEST_LEGACY)[number // len(targets) % 2]
            # A legacy server that may ask runs once for each client that can be asked: a few are enough.
            may_be_asked = number % 3 == 0 if back.is_modern else number < 8
            options = visitor.options(revision, may_be_asked=may_be_asked)
            async with connect(target, **options) as client:
                await visitor.visit(client, calls // clients, may_be_asked=may_be_asked)

        await asyncio.gather(*(one(*each) for each in enumerate(visitors)))
    for visitor in visitors:
        assert not visitor.foreign, f"{visitor.tag} has seen {visitor.foreign}"
        assert not visitor.wrong, visitor.wrong[:5]
        assert visitor.outcomes.total() == calls // clients, visitor.outcomes
        assert visitor.outcomes["echo: answered"]
        assert visitor.progress
    assert sum(visitor.questions for visitor in visitors)
    assert sum(visitor.changes for visitor in visitors)
    return sum((visitor.outcomes for visitor in visitors), Counter())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask soon again with another call, because the clients give up some of those that they are asked with."""
    monkeypatch.setattr("mcplumb.bridge.parked_calls._ASK_AGAIN_AFTER", 0.5)


@pytest.mark.req("BRG-1", "BRG-2", "BRG-3", "BRG-5", "BRG-6")
@pytest.mark.parametrize("back", [LATEST, LATEST_LEGACY], ids=str)
async def test_nothing_of_one_client_reaches_another(back: Revision, tmp_path: Path) -> None:
    await visit_all(back, 12, 360, 1, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("back", [LATEST, LATEST_LEGACY], ids=str)
async def test_nothing_of_fifty_clients_reaches_another(back: Revision, tmp_path: Path) -> None:
    outcomes = await visit_all(back, 50, 10_000, 7, tmp_path)
    assert outcomes["echo: answered"] > 5000, outcomes


# --- Tokens ---

TOKEN = "a-token-of-the-client-0123456789"
OWN_TOKEN = "the-token-of-the-bridge-9876543210"


@pytest.mark.req("BRG-7")
@pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)
async def test_a_client_s_token_reaches_no_process(revision: Revision, tmp_path: Path) -> None:
    told, env = tmp_path / "told", tmp_path / "env"
    script = f"env > {shlex.quote(str(env))}; tee {shlex.quote(str(told))} | {shlex.join(SERVER)}"
    bridge = Bridge(["/bin/sh", "-c", script], stderr="discard")
    options = HttpOptions(tokens=(TOKEN,))
    async with (
        serving(bridge, "http://127.0.0.1:0/mcp", http=options) as (address,),
        connect(address, token=TOKEN, revisions=[str(revision)]) as client,
    ):
        assert (await client.call_tool("echo", {"words": "searched"})).text == "searched"
    assert b"searched" in told.read_bytes()
    for file in (told, env):
        assert TOKEN.encode() not in file.read_bytes()


@pytest.mark.req("BRG-7")
@pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)
async def test_a_client_s_token_reaches_no_other_address(revision: Revision) -> None:
    sent: list[bytes] = []
    server = told_server.make_server()
    async with serving(server, "http://127.0.0.1:0/mcp", http=HttpOptions(tokens=(OWN_TOKEN,))) as (own,):
        port = int(own.rpartition(":")[2].partition("/")[0])

        async def listen_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
            passing = asyncio.create_task(_pass_on(back_reader, writer, []))
            await _pass_on(reader, back_writer, sent)
            await passing

        ears = await asyncio.start_server(listen_in, "127.0.0.1", 0)
        heard = f"http://127.0.0.1:{ears.sockets[0].getsockname()[1]}/mcp"
        bridge = Bridge(heard, token=OWN_TOKEN, revisions=[str(revision)])
        async with serving(bridge, "http://127.0.0.1:0/mcp", http=HttpOptions(tokens=(TOKEN,))) as (address,):
            for era in (LATEST, LATEST_LEGACY):
                async with connect(address, token=TOKEN, revisions=[str(era)]) as client:
                    assert (await client.call_tool("echo", {"words": "searched"})).text == "searched"
        ears.close()
    received = b"".join(sent)
    assert b"searched" in received
    assert OWN_TOKEN.encode() in received
    assert TOKEN.encode() not in received


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: list[bytes]) -> None:
    try:
        while data := await reader.read(65536):
            sent.append(data)
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other side has hung up
    finally:
        writer.close()
