"""Many clients of three replicas behind a proxy that sends every request to another one, while replicas and Redis fail.

    python -m chaos replicas

Half of the clients are modern. The others open legacy sessions: over Streamable HTTP, and some over HTTP+SSE. They
call tools, answer questions, lose connections and resume streams, and follow changes, each of which has its own name.
Meanwhile replicas are killed and started again, and Redis is killed and started again with its append-only file.

lost sessions  a legacy session over Streamable HTTP that no replica knows any more
lost events    an event of a stream that is missing, doubled or out of order
lost changes   a change that a subscriber did not hear of, and was not told that it may have missed some; or heard of
               twice, or out of order
lost calls     a call without an answer and without an error before its timeout; or with the answer of another one

All of them must be 0. Calls that were under way at a replica that was killed fail, with an error: these are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import aiohttp
import redis.asyncio

from mcplumb import connect
from mcplumb.errors import McplumbError, RequestTimeout
from mcplumb.protocol.subscription_state import Change
from tests.kit.legacy_peer import Peer, events
from tests.kit.replicas import Replicas, running_replicas

#: Seconds for one call, with all its retries, and until a client gives it up: what is lost is reported long before.
PATIENCE = 90.0
TIMEOUT = 60.0
#: Changes that are announced, and so resources that each client subscribes to.
CHANGES = 40
_OUTCOME_UNKNOWN = "is unknown"


class Soak:
    """One run: what the clients do, what fails, and what is counted."""

    def __init__(self, replicas: Replicas, options: argparse.Namespace) -> None:
        self.replicas = replicas
        self.options = options
        self.random = random.Random(options.seed)
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, list[str]] = {
            "lost sessions": [], "lost events": [], "lost calls": [], "lost changes": [],
        }  # fmt: skip
        self.calls_left: int = options.calls
        self.faults_over = 0
        #: Notified after each fault.
        self.fault_over = asyncio.Condition()
        self.numbers = itertools.count()
        #: The changes whose announcement has begun, and those that were announced for certain.
        self.begun: list[str] = []
        self.announced: list[str] = []
        self.is_over = asyncio.Event()
        self.listeners: list[Listener] = []
        #: Clients that have not made all their calls.
        self.working = options.clients

    async def next_call(self) -> bool:
        """Whether another call is to be made. Calls and faults wait for each other, however fast the machine is.

        A fault begins when so many calls have begun since the last one. Half as many begin until it is over.
        """
        if self.calls_left <= 0:
            return False
        self.calls_left -= 1
        begun, every = self.options.calls - self.calls_left, self.options.every
        async with self.fault_over:
            await self.fault_over.wait_for(lambda: begun <= (self.faults_over + 1.5) * every)
        return True

    def failed(self, what: str, case: str) -> None:
        self.failures[what].append(case)

    async def run(self) -> None:
        options = self.options
        kinds = ["modern", "legacy", "modern", "legacy", "modern", "legacy", "modern", "legacy", "modern", "sse"]
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0)
        ) as http:
            ready: list[asyncio.Future[None]] = []
            clients = []
            for number in range(options.clients):
                opened = asyncio.get_running_loop().create_future()
                ready.append(opened)
                kind = kinds[number % len(kinds)]
                work = self.legacy(http, number, opened) if kind == "legacy" else self.ours(kind, number, opened)
                clients.append(asyncio.create_task(work))
            await asyncio.gather(*ready)
            faults = asyncio.create_task(self.faults())
            announcing = asyncio.create_task(self.announce(http))
            while self.working or not faults.done():
                await asyncio.sleep(0.05)
                for task in (faults, *clients):
                    if task.done():
                        task.result()
            for replica in self.replicas.replicas:
                if replica.process is None:
                    replica.start()
                await replica.ready()
            if self.replicas.redis.command("PING") != b"+PONG":
                await asyncio.to_thread(self.replicas.redis.start)
            await announcing
            await self.settle()
            self.is_over.set()
            await asyncio.gather(*clients, *(listener.task for listener in self.listeners))
        for listener in self.listeners:
            listener.check(self)

    async def settle(self) -> None:
        """Wait until all have heard of all changes, or have had the time for it."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not all(each.has_all(self.announced) for each in self.listeners):  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    # --- Failures ---

    async def faults(self) -> None:
        """Kill replicas, and now and then Redis."""
        total, every = self.options.calls, self.options.every
        for number in range(1, total // every + 1):
            while total - self.calls_left < number * every:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
            if number % 4 == 0:
                self.counts["restarts of Redis"] += 1
                self.replicas.redis.kill()
                await asyncio.sleep(0.5)
                await asyncio.to_thread(self.replicas.redis.start)
            else:
                self.counts["killed replicas"] += 1
                replica = self.random.choice(self.replicas.replicas)
                replica.kill()
                await asyncio.sleep(0.2)
                replica.start()
                await replica.ready()
            async with self.fault_over:
                self.faults_over = number
                self.fault_over.notify_all()

    async def announce(self, http: aiohttp.ClientSession) -> None:
        """Announce each change once, at another replica each time, over the time of all calls."""
        total = self.options.calls
        for number in range(CHANGES):
            while self.calls_left > total * (1 - number / CHANGES):  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.02)
            uri = f"change://{number}"
            self.begun.append(uri)
            if await self._touch(http, uri):
                self.announced.append(uri)
            else:
                self.counts["announcements cut short"] += 1

    async def _touch(self, http: aiohttp.ClientSession, uri: str) -> bool:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        message["params"] = {"name": "touch", "arguments": {"uri": uri}, "_meta": meta}
        headers = {
            "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call", "Mcp-Name": "touch",
        }  # fmt: skip
        try:
            async with http.post(self.replicas.url, json=message, headers=headers) as response:
                # The replica that has it may be killed before it reaches the store: that is known when Redis has it.
                return response.status == 200 and await self._is_in_log(uri)
        except aiohttp.ClientError:
            return False

    async def _is_in_log(self, uri: str) -> bool:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with suppress(redis.RedisError, OSError):
                async with redis.asyncio.Redis(port=self.replicas.redis.port) as client:
                    entries: Any = await client.xrange("mcplumb:{changes}:log")
                    if any(uri.encode() + b'"' in fields[b"d"] for _, fields in entries):
                        return True
            await asyncio.sleep(0.05)
        return False

    # --- Clients of this package ---

    async def ours(self, kind: str, number: int, opened: asyncio.Future[None]) -> None:
        url = f"{self.replicas.proxy.url}/sse" if kind == "sse" else self.replicas.url
        revisions = ["2025-06-18"] if kind == "sse" else ["2026-07-28"]
        http_sse = True if kind == "sse" else None
        async with connect(url, revisions=revisions, http_sse=http_sse, on_elicit=_answer, timeout=TIMEOUT) as client:
            if kind == "modern":
                listener = Listener(f"modern {number}", self.begun)
                started = asyncio.get_running_loop().create_future()
                listener.task = asyncio.create_task(listener.follow(client, self.is_over, started))
                await started
                self.listeners.append(listener)
            opened.set_result(None)
            while await self.next_call():
                n = next(self.numbers)
                tool, arguments, wanted = self._choice(n)
                try:
                    async with asyncio.timeout(PATIENCE):
                        result = await client.call_tool(tool, arguments)
                except RequestTimeout:
                    self.failed("lost calls", f"{kind} {number}: {tool} {n} ended only by its timeout")
                except McplumbError as error:
                    self.counts[f"{kind} calls that failed with {type(error).__name__}"] += 1
                    await asyncio.sleep(0.1)
                except TimeoutError:
                    self.failed("lost calls", f"{kind} {number}: {tool} {n} got no outcome")
                else:
                    self._check_answer(f"{kind} {number}", n, wanted, result.text)
            self.working -= 1
            await self.is_over.wait()

    def _choice(self, n: int) -> tuple[str, dict[str, Any], str]:
        if n % 10 == 0:
            return "ask", {"question": f"{n}?"}, f"accept: answer to {n}?"
        if n % 10 == 5:
            return "count", {"to": 5, "wait": 0.01}, "counted to 5"
        return "add", {"a": n, "b": 1}, str(n + 1)

    def _check_answer(self, who: str, n: int, wanted: str, got: str) -> None:
        if got == wanted:
            self.counts["calls answered"] += 1
        elif "shared store" in got:
            self.counts["calls that the store was away for"] += 1
        else:
            self.failed("lost calls", f"{who}: call {n} got {got!r:.200} instead of {wanted!r}")

    # --- Legacy clients over Streamable HTTP ---

    async def legacy(self, http: aiohttp.ClientSession, number: int, opened: asyncio.Future[None]) -> None:
        peer = Peer(http, self.replicas.url)
        await self._retry(lambda: peer.open(elicitation={}))
        who = f"legacy {number}"
        for change in range(CHANGES):
            await self._retry(lambda uri=f"change://{change}": peer.ask("resources/subscribe", {"uri": uri}))
        listener = Listener(who, self.begun)
        listener.task = asyncio.create_task(listener.follow_stream(peer, self))
        self.listeners.append(listener)
        opened.set_result(None)
        while await self.next_call():
            n = next(self.numbers)
            steps: list[str] = []
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._legacy_call(peer, who, n, steps)
            except TimeoutError:
                self.failed("lost calls", f"{who}: call {n} got no outcome: {', '.join(steps[-40:])}")
        self.working -= 1
        await self.is_over.wait()

    async def _retry(self, attempt: Any) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                await attempt()
            except (aiohttp.ClientError, AssertionError):
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.2)
            else:
                return

    async def _legacy_call(self, peer: Peer, who: str, n: int, steps: list[str]) -> None:
        """Make one call; resume its stream when the connection is lost, at times on purpose. Note each step."""
        began = time.monotonic()
        tool, arguments, wanted = self._choice(n)
        message = peer.request("tools/call", {"name": tool, "arguments": arguments})
        message["params"]["_meta"] = {"progressToken": n}
        progress: list[int] = []
        last: str | None = None
        is_first = True
        while True:
            try:
                response = await (peer.post(message) if is_first else peer.get(last))
            except aiohttp.ClientError:
                if is_first:
                    self.counts["legacy calls cut short"] += 1
                    return
                await asyncio.sleep(0.1)
                continue
            async with response:
                steps.append(f"{response.status} at {last} after {time.monotonic() - began:.1f} s")
                if response.status in (502, 503):
                    if response.status == 502 and is_first:
                        self.counts["legacy calls cut short"] += 1
                        return
                    self.counts["503s for legacy calls"] += response.status == 503
                    await asyncio.sleep(0.1)
                    continue
                if response.status == 404:
                    self.failed("lost sessions", f"{who}: call {n}: {await response.text()}")
                    return
                if response.status != 200:
                    self.failed("lost events", f"{who}: call {n}: {response.status} {await response.text()} at {last}")
                    return
                is_first = False
                if response.content_type == "application/json":
                    try:
                        self._finish(who, n, wanted, await response.json())
                    except aiohttp.ClientError:
                        self.counts["legacy calls cut short"] += 1
                    return
                answer, last = await self._read_stream(peer, response, progress, last, n)
            if answer is not None:
                self._finish(who, n, wanted, answer)
                if progress != sorted(set(progress)):
                    self.failed("lost events", f"{who}: call {n} has the progress {progress}")
                elif tool == "count" and "result" in answer and progress[-1:] != [5]:
                    self.failed("lost events", f"{who}: call {n} ended after the progress {progress}")
                return
            if last is None:
                self.counts["legacy calls cut short"] += 1
                return
            self.counts["streams resumed"] += 1

    async def _read_stream(
        self, peer: Peer, response: aiohttp.ClientResponse, progress: list[int], last: str | None, n: int
    ) -> tuple[Any, str | None]:
        seen = 0
        with suppress(aiohttp.ClientError):
            async for event_id, data in events(response):
                last = event_id or last
                if not data:
                    continue
                if data.get("method") == "notifications/progress":
                    progress.append(data["params"]["progress"])
                elif data.get("method") == "elicitation/create":
                    question = data["params"]["message"]
                    reply = {"action": "accept", "content": {"value": f"answer to {question}"}}
                    asyncio.get_running_loop().create_task(
                        self._reply(peer, {"jsonrpc": "2.0", "id": data["id"], "result": reply})
                    )
                elif data.get("id") is not None:
                    return data, last
                seen += 1
                if seen == 2 and n % 3 == 0:
                    break  # the connection is lost
        return None, last

    async def _reply(self, peer: Peer, message: Any) -> None:
        for _ in range(200):
            with suppress(aiohttp.ClientError):
                async with await peer.post(message) as response:
                    if response.status == 202:
                        return
            await asyncio.sleep(0.1)

    def _finish(self, who: str, n: int, wanted: str, answer: Any) -> None:
        if "error" in answer:
            if _OUTCOME_UNKNOWN in answer["error"]["message"]:
                self.counts["lost calls that were reported"] += 1
            else:
                self.failed("lost calls", f"{who}: call {n}: {answer['error']}")
            return
        self._check_answer(who, n, wanted, answer["result"]["content"][0]["text"])


class Listener:
    """What one subscriber has heard."""

    task: asyncio.Task[None]

    def __init__(self, name: str, begun: list[str]) -> None:
        self.name = name
        #: The changes whose announcement has begun: a report covers no later ones.
        self._begun = begun
        #: The changes since the last time when it was told that it may have missed some, and all before.
        self.heard: list[str] = []
        self.covered: set[str] = set()
        self.faults: list[str] = []
        self.missed = 0
        #: Whether the changes that come now belong to a report that all may have changed.
        self._is_report = 0

    def take(self, uri: str) -> None:
        if self._is_report:
            self._is_report -= 1
            return
        if uri in self.heard:
            self.faults.append(f"heard {uri} twice")
        elif self.heard and _number(uri) < _number(self.heard[-1]):
            self.faults.append(f"heard {uri} after {self.heard[-1]}")
        self.heard.append(uri)

    def may_have_missed(self, burst: int) -> None:
        self.missed += 1
        self.covered |= {*self._begun, *self.heard}
        self.heard = []
        self._is_report = burst

    def has_all(self, announced: list[str]) -> bool:
        return set(announced) <= self.covered | set(self.heard)

    def check(self, soak: Soak) -> None:
        missing = set(soak.announced) - self.covered - set(self.heard)
        if missing:
            soak.failed("lost changes", f"{self.name} did not hear of {sorted(missing)}")
        for fault in self.faults:
            soak.failed("lost changes", f"{self.name} {fault}")
        soak.counts["changes heard"] += len(self.heard) + len(self.covered)
        soak.counts["reports of missed changes"] += self.missed

    async def follow(self, client: Any, is_over: asyncio.Event, started: asyncio.Future[None]) -> None:
        uris = [f"change://{number}" for number in range(CHANGES)]
        over = asyncio.ensure_future(is_over.wait())
        while not is_over.is_set():
            try:
                await self._listen(client, uris, is_over, over, started)
            except McplumbError:  # a report as well: all may have changed since
                if not started.done():
                    raise
                self.may_have_missed(0)
                await asyncio.sleep(0.1)
        over.cancel()

    async def _listen(
        self,
        client: Any,
        uris: list[str],
        is_over: asyncio.Event,
        over: asyncio.Future[Any],
        started: asyncio.Future[None],
    ) -> None:
        async with client.listen(tools=True, resources=uris) as changes:
            if not started.done():
                started.set_result(None)
            while not is_over.is_set():
                news = asyncio.ensure_future(anext(changes))
                await asyncio.wait((news, over), return_when=asyncio.FIRST_COMPLETED)
                if not news.done():
                    news.cancel()
                    break
                change = news.result()
                if isinstance(change, Change) and change.topic == "updates":
                    self.take(change.uri or "")
                elif isinstance(change, Change):
                    self.may_have_missed(CHANGES)  # nothing changes the lists: the replica missed something
                else:
                    self.may_have_missed(0)

    async def follow_stream(self, peer: Peer, soak: Soak) -> None:
        last: str | None = None
        over = asyncio.ensure_future(soak.is_over.wait())
        while not soak.is_over.is_set():
            with suppress(aiohttp.ClientError):
                async with await peer.get(last) as response:
                    if response.status == 404:
                        soak.failed("lost sessions", f"{self.name}: GET: {await response.text()}")
                        return
                    if response.status == 200:
                        stream = events(response)
                        while True:
                            news = asyncio.ensure_future(anext(stream, None))
                            await asyncio.wait((news, over), return_when=asyncio.FIRST_COMPLETED)
                            if not news.done():
                                news.cancel()
                                await asyncio.wait((news,))
                                return
                            found = news.result()
                            if found is None:
                                break
                            last = found[0] or last
                            self._take_message(found[1])
            await asyncio.sleep(0.05)

    def _take_message(self, data: Any) -> None:
        if not data:
            return
        if data["method"] == "notifications/tools/list_changed":
            self.may_have_missed(CHANGES)
        elif data["method"] == "notifications/resources/updated":
            self.take(data["params"]["uri"])


def _number(uri: str) -> int:
    return int(uri.rpartition("/")[2])


async def _answer(question: Any) -> Any:
    return {"value": f"answer to {question.message}"}


async def run_soak(options: argparse.Namespace) -> dict[str, list[str]]:
    """Run everything, print the figures, and return what failed."""
    began = time.monotonic()
    async with running_replicas(3) as replicas:
        soak = Soak(replicas, options)
        await soak.run()
    seconds = time.monotonic() - began
    print(f"  {options.clients} clients, {options.calls} calls, {seconds:.0f} s")
    for name, count in sorted(soak.counts.items()):
        print(f"  {name:<60} {count:>7}")
    return soak.failures


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this part."""
    parser.add_argument("--clients", type=int, default=200, help="clients (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=20_000, help="calls of all together (default: %(default)s)")
    parser.add_argument("--every", type=int, default=500, help="calls between two faults (default: %(default)s)")
