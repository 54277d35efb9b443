"""Legacy clients over Streamable HTTP whose every request goes to another replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.kit.legacy_peer import HEADERS, Peer, events
from tests.kit.replicas import Replicas, running_replicas

PATIENCE = 60.0


@asynccontextmanager
async def peer(replicas: Replicas, token: str | None = None) -> AsyncIterator[Peer]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as session:
        yield Peer(session, replicas.url, token)


@pytest.mark.req("SCL-1")
async def test_any_replica_serves_any_request() -> None:
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        assert len({await client.call("which") for _ in range(6)}) == 3
        assert [await client.call("add", a=n, b=1) for n in range(9)] == [str(n + 1) for n in range(9)]
        # What the client sets at one replica holds at all.
        answer = await client.ask("logging/setLevel", {"level": "debug"})
        assert "result" in answer
        for _ in range(6):
            async with await client.post(
                client.request("tools/call", {"name": "log", "arguments": {"text": "hello"}})
            ) as response:
                heard = [data async for _, data in events(response) if data]
                assert [each.get("method") for each in heard] == ["notifications/message", None]
        # The end of the session, too.
        async with client.http.delete(client.url, headers=client.headers) as response:
            assert response.status == 204
        for _ in range(3):
            async with await client.post(client.request("ping")) as response:
                assert response.status == 404


@pytest.mark.req("SCL-1")
async def test_a_question_is_answered_through_another_replica() -> None:
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open(elicitation={})
        for _ in range(6):
            call = client.request("tools/call", {"name": "ask", "arguments": {"question": "Why?"}})
            async with await client.post(call) as response:
                found = events(response)
                async for _, data in found:
                    if data and data.get("method") == "elicitation/create":
                        break
                answer = {"action": "accept", "content": {"value": "because"}}
                async with await client.post({"jsonrpc": "2.0", "id": data["id"], "result": answer}) as posted:
                    assert posted.status == 202
                rest = [data async for _, data in found if data]
                assert "because" in rest[-1]["result"]["content"][0]["text"]


@pytest.mark.req("SCL-5")
async def test_what_a_replica_repeats_to_copy_a_session_is_not_counted() -> None:
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        await client.ask("logging/setLevel", {"level": "debug"})
        await client.ask("resources/subscribe", {"uri": "notes://a"})
        assert len({await client.call("which") for _ in range(6)}) == 3
        counted = dict.fromkeys(("initialize", "logging/setLevel", "resources/subscribe", "tools/call"), 0)
        for number in range(3):
            async with client.http.get(replicas.url_of(number).replace("/mcp", "/metrics")) as response:
                lines = (await response.text()).splitlines()
            for line in lines:
                for method in counted:
                    if line.startswith(f'mcplumb_requests_total{{method="{method}"'):
                        counted[method] += int(line.rpartition(" ")[2])
        assert list(counted.values()) == [1, 1, 1, 6]


@pytest.mark.req("SCL-1")
async def test_a_cancellation_reaches_the_replica_that_works() -> None:
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        for _ in range(3):
            call = client.request("tools/call", {"name": "wait_for_ever"}) | {}
            call["params"]["_meta"] = {"progressToken": "p"}
            async with await client.post(call) as response:
                found = events(response)
                async for _, data in found:
                    if data:
                        break
                cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call["id"]}}
                async with await client.post(cancel) as posted:
                    assert posted.status == 202
                assert [data async for _, data in found if data] == []


@pytest.mark.req("SCL-1", "SCL-3")
async def test_a_stream_is_resumed_at_another_replica() -> None:
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        call = client.request("tools/call", {"name": "count", "arguments": {"to": 30, "wait": 0.02}})
        call["params"]["_meta"] = {"progressToken": "p"}
        numbers: list[int] = []
        last: str | None = None
        response = await client.post(call)
        is_over = False
        while not is_over:
            async with response:
                seen = 0
                async for event_id, data in events(response):
                    last = event_id or last
                    if data and "result" in data:
                        is_over = True
                    elif data:
                        numbers.append(data["params"]["progress"])
                        seen += 1
                    if seen == 3:
                        break  # the client loses the connection
            if not is_over:
                response = await client.get(last)
                assert response.status == 200, await response.text()
        assert numbers == sorted(set(numbers))
        assert numbers[-1] == 30
        async with await client.get(last) as response:
            assert response.status == 204  # the stream is over


@pytest.mark.req("SCL-3")
async def test_a_killed_replica() -> None:
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        call = client.request("tools/call", {"name": "wait_for_ever"})
        call["params"]["_meta"] = {"progressToken": "p"}
        worker = replicas.replicas[1]
        last = None
        async with await client.post(call, replicas.url_of(1)) as response:
            async for event_id, data in events(response):
                last = event_id or last
                if data:
                    break
            worker.kill()
        # The session goes on, and the lost call is reported as lost.
        assert await client.call("add", a=1, b=1) == "2"
        async with await client.get(last) as response:
            assert response.status == 200
            rest = [data async for _, data in events(response) if data]
        assert [each["id"] for each in rest] == [call["id"]]
        assert "is unknown" in rest[0]["error"]["message"]
        worker.start()
        await worker.ready()
        assert [await client.call("add", a=n, b=n) for n in range(6)] == [str(2 * n) for n in range(6)]


@pytest.mark.req("SCL-3")
async def test_replicas_are_replaced_one_after_the_other() -> None:
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        for replica in replicas.replicas:
            stream = await client.get()
            assert await asyncio.to_thread(replica.stop) == 0
            stream.close()
            assert [await client.call("add", a=n, b=1) for n in range(4)] == ["1", "2", "3", "4"]
            replica.start()
            await replica.ready()


@pytest.mark.req("SCL-1", "SCL-3")
async def test_a_replica_that_stops_gets_the_answer_of_a_client() -> None:
    """The answer goes to another replica: the one that waits for it accepts nothing any more."""
    async with running_replicas(2, STOP_WITHIN=str(PATIENCE)) as replicas, peer(replicas) as client:
        await client.open(elicitation={})
        call = client.request("tools/call", {"name": "ask", "arguments": {"question": "Why?"}})
        async with await client.post(call, replicas.url_of(0)) as response:
            found = events(response)
            async for _, data in found:
                if data and data.get("method") == "elicitation/create":
                    break
            leaving = replicas.replicas[0]
            stopping = asyncio.create_task(asyncio.to_thread(leaving.stop))
            async with asyncio.timeout(PATIENCE):
                while await leaving.accepts():  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.02)
            answer = {"action": "accept", "content": {"value": "because"}}
            posted = await client.post({"jsonrpc": "2.0", "id": data["id"], "result": answer}, replicas.url_of(1))
            assert posted.status == 202
            rest = [data async for _, data in found if data]
        assert "because" in rest[-1]["result"]["content"][0]["text"]
        assert await stopping == 0


@pytest.mark.req("SCL-2")
async def test_changes_reach_the_stream_once() -> None:
    """Each call goes to another replica, so changes have an order only if each was awaited before the next."""
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        await client.ask("resources/subscribe", {"uri": "notes://a"})
        heard: list[str] = []
        last: str | None = None

        async def listen(until: int) -> None:
            nonlocal last
            async with await client.get(last) as response:
                assert response.status == 200
                async for event_id, data in events(response):
                    last = event_id or last
                    if data:
                        heard.append(data["params"]["uri"] if "params" in data else data["method"])
                    if len(heard) >= until:
                        return

        uris = [f"notes://{n}" for n in range(6)]
        for uri in uris:
            await client.ask("resources/subscribe", {"uri": uri})
        await client.call("touch", uri="notes://a")  # before there is a stream
        await asyncio.wait_for(listen(1), PATIENCE)
        assert heard == ["notes://a"]
        listening = asyncio.ensure_future(listen(4))
        for uri in uris[:3]:
            await client.call("touch", uri=uri)
        await client.call("touch", uri="notes://other")  # not subscribed
        await asyncio.wait_for(listening, PATIENCE)
        for uri in uris[3:]:  # while there is no stream
            await client.call("touch", uri=uri)
        await client.call("grow")
        await asyncio.wait_for(listen(8), PATIENCE)
        assert heard[0] == "notes://a"
        assert sorted(heard[1:4]) == uris[:3]
        assert sorted(heard[4:]) == [*uris[3:], "notifications/tools/list_changed"]


@pytest.mark.req("SCL-1", "AUT-14")
async def test_a_session_belongs_to_its_principal_everywhere() -> None:
    async with running_replicas(extra=("--auth",)) as replicas, peer(replicas, "alice-token") as alice:
        await alice.open()
        assert {await alice.call("whoami") for _ in range(3)} == {"alice"}
        async with peer(replicas, "bob-token") as bob:
            bob.headers["Mcp-Session-Id"] = alice.headers["Mcp-Session-Id"]
            for _ in range(4):
                async with await bob.post(bob.request("ping")) as response:
                    assert response.status == 404
            async with await bob.get() as response:
                assert response.status == 404
            async with bob.http.delete(bob.url, headers=bob.headers) as response:
                assert response.status == 404
        assert await alice.call("add", a=1, b=2) == "3"


@pytest.mark.req("SCL-4")
async def test_without_the_store() -> None:
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        assert await client.call("add", a=1, b=1) == "2"
        replicas.redis.kill()
        for _ in range(6):
            async with asyncio.timeout(20), await client.post(client.request("ping")) as response:
                assert response.status == 503
                assert int(response.headers["Retry-After"]) >= 1
                body = await response.json()
                assert "shared store" in body["error"]["message"]
                assert "redis://127" in body["error"]["message"]
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        modern = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        modern["params"] = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
        headers = {**HEADERS, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add"}
        async with client.http.post(client.url, json=modern, headers=headers) as response:
            assert response.status == 200, await response.text()
        replicas.redis.start()
        for number in range(3):  # each replica finds the store by itself
            async with asyncio.timeout(PATIENCE):
                while True:
                    async with await client.post(client.request("ping"), replicas.url_of(number)) as response:
                        if response.status == 200:
                            break
                    await asyncio.sleep(0.1)
        assert [await client.call("add", a=n, b=1) for n in range(6)] == [str(n + 1) for n in range(6)]


@pytest.mark.req("SCL-3")
async def test_a_stream_that_the_store_does_not_know_is_resumed_while_its_owner_lives() -> None:
    """The owner of the stream has not reached the store yet, or its record has expired during a long call."""
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open(elicitation={})
        call = client.request("tools/call", {"name": "ask", "arguments": {"question": "Why?"}})
        last = None
        async with await client.post(call, replicas.url_of(0)) as response:
            async for event_id, data in events(response):
                last = event_id or last
                if data:
                    break
        key = f"mcplumb:{{{client.headers['Mcp-Session-Id']}}}:header-{(last or '').partition('-')[0]}"
        assert replicas.redis.command("DEL", key) == b":1"
        async with await client.get(last, replicas.url_of(1)) as response:
            assert response.status == 200, await response.text()
            answer = {"action": "accept", "content": {"value": "because"}}
            async with await client.post({"jsonrpc": "2.0", "id": data["id"], "result": answer}) as posted:
                assert posted.status == 202
            rest = [data async for _, data in events(response) if data]
        assert "because" in rest[-1]["result"]["content"][0]["text"]


@pytest.mark.req("SCL-3")
async def test_an_answer_that_the_store_has_lost_is_reported_as_lost() -> None:
    """As when Redis restarts without its last second. The replica that has answered lives, and has nothing to add."""
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        call = client.request("tools/call", {"name": "count", "arguments": {"to": 2}})
        call["params"]["_meta"] = {"progressToken": "p"}
        async with await client.post(call, replicas.url_of(0)) as response:
            ids = [event_id or "" async for event_id, _ in events(response)]
        stream, _, last = ids[-1].partition("-")
        key = f"mcplumb:{{{client.headers['Mcp-Session-Id']}}}:stream-{stream}"
        async with asyncio.timeout(PATIENCE):
            while replicas.redis.command("XLEN", key) != b":3":  # noqa: ASYNC110 - Redis has no event for it
                await asyncio.sleep(0.02)
        assert replicas.redis.command("XDEL", key, f"{last}-0") == b":1"
        assert replicas.redis.command("XSETID", key, f"{int(last) - 1}-0") == b"+OK"
        for number in range(3):
            async with await client.get(ids[-2], replicas.url_of(number)) as response:
                assert response.status == 200
                rest = [data async for _, data in events(response) if data]
            assert [each["id"] for each in rest] == [call["id"]]
            assert "is unknown" in rest[0]["error"]["message"]


@pytest.mark.req("SCL-3")
async def test_a_session_of_which_the_store_has_lost_the_last_write_goes_on() -> None:
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open()
        client.url = replicas.url_of(0)
        await client.ask("resources/subscribe", {"uri": "notes://0"})
        key = f"mcplumb:{{{client.headers['Mcp-Session-Id']}}}:session"
        assert replicas.redis.command("HINCRBY", key, "v", "-1").startswith(b":")
        for number in range(1, 6):  # at one replica, then at all
            answer = await client.ask("resources/subscribe", {"uri": f"notes://{number}"})
            assert "result" in answer
            client.url = replicas.url


@pytest.mark.req("SCL-4")
async def test_an_answer_for_a_replica_without_an_inbox_is_not_swallowed() -> None:
    """After an outage of the store, a replica is without one until its next heartbeat."""
    async with running_replicas() as replicas, peer(replicas) as client:
        await client.open(elicitation={})
        call = client.request("tools/call", {"name": "ask", "arguments": {"question": "Why?"}})
        async with await client.post(call, replicas.url_of(0)) as response:
            found = events(response)
            async for _, data in found:
                if data and data.get("method") == "elicitation/create":
                    break
            answer = {"jsonrpc": "2.0", "id": data["id"]}
            answer["result"] = {"action": "accept", "content": {"value": "because"}}
            assert replicas.redis.command("DEL", f"mcplumb:{{replica-{data['id'] >> 32}}}:inbox") == b":1"
            async with asyncio.timeout(PATIENCE):
                while True:
                    async with await client.post(answer, replicas.url_of(1)) as posted:
                        if posted.status == 202:
                            break
                        assert posted.status == 503
                    await asyncio.sleep(0.05)
            rest = [data async for _, data in found if data]
            assert "because" in rest[-1]["result"]["content"][0]["text"]


@pytest.mark.req("SCL-4")
async def test_a_message_for_a_stream_of_a_replica_without_an_inbox_is_not_refused_for_good() -> None:
    """The same over HTTP+SSE, where 404 would end the session of the client."""
    async with running_replicas(2) as replicas, peer(replicas) as client:
        first, second = (replicas.url_of(number).removesuffix("/mcp") for number in range(2))
        async with client.http.get(f"{first}/sse", headers={"Accept": "text/event-stream"}) as stream:
            lines = aiter(stream.content)
            while not (line := await anext(lines)).startswith(b"data:"):
                pass
            place = second + line.decode().removeprefix("data:").strip()
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            inboxes = "\"return redis.call('DEL', unpack(redis.call('KEYS', '*:inbox')))\""
            assert replicas.redis.command("EVAL", inboxes, "0") == b":2"
            statuses = []
            async with asyncio.timeout(PATIENCE):
                while 202 not in statuses:
                    async with client.http.post(place, json=ping) as posted:
                        statuses.append(posted.status)
                    await asyncio.sleep(0.05)
                while not (line := await anext(lines)).startswith(b"data:"):
                    pass
            assert 404 not in statuses
            assert b'"id":1' in line
