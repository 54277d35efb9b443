"""One connection, as its client sees it: how a connection is opened, and lines that are no messages."""

import pytest

from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from mcplumb.wire.messages import Request
from tests.kit.loop import run, turns
from tests.kit.products import revisions
from tests.server.harness import ABLE, Id, Peer, make_server, raw_client
from tests.server.workshop import Workshop, both_eras, codes, every_legacy, every_revision, limited, numbered

# How a connection is opened


@pytest.mark.req("LEG-1", "LEG-2")
@every_legacy
async def test_the_handshake(revision: Revision) -> None:
    server = make_server(version="1.2", title="Test!", instructions="Be kind.")
    server.add_tool(lambda: None, name="t")

    async with raw_client(server, revision, opens=False) as peer:
        opened = await peer.initialize()
        assert opened["protocolVersion"] == str(revision)
        assert opened["capabilities"]["tools"] == {"listChanged": True}
        assert opened["instructions"] == "Be kind."
        assert opened["serverInfo"]["name"] == "test"
        assert opened["serverInfo"]["version"] == "1.2"
        assert ("title" in opened["serverInfo"]) == revision.has_titles
        assert "resultType" not in opened
        assert "result" in await peer.request("tools/list")


@pytest.mark.req("LEG-2")
@pytest.mark.parametrize("version", ["1999-01-01", "2099-01-01", "", str(LATEST)])
async def test_a_version_that_is_not_served_gets_the_newest_that_is(version: str) -> None:
    async with raw_client(make_server(), LATEST_LEGACY, opens=False) as peer:
        assert (await peer.initialize(protocolVersion=version))["protocolVersion"] == str(LATEST_LEGACY)
    served = make_server(revisions=[str(LEGACY[-1]), str(LEGACY[-2])])
    async with raw_client(served, LATEST_LEGACY, opens=False) as peer:
        assert (await peer.initialize(protocolVersion=version))["protocolVersion"] == str(LEGACY[-2])


@pytest.mark.req("ERA-9", "HTP-5")
@pytest.mark.parametrize("revisions", [None, [str(LATEST)]])
async def test_a_modern_client_has_no_handshake(revisions: list[str] | None) -> None:
    async with raw_client(make_server(revisions=revisions), LATEST) as peer:
        opening = {"protocolVersion": str(LATEST), "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        assert (await peer.error("initialize", opening))["code"] == -32601
        assert (await peer.error("tools/list", meta={PROTOCOL_VERSION: None}))["code"] == -32602


@pytest.mark.req("LEG-3")
async def test_requests_before_the_handshake_get_a_clear_error_and_the_rest_works() -> None:
    async with raw_client(make_server(), LATEST_LEGACY, opens=False) as peer:
        assert (await peer.result("ping")) == {}
        error = await peer.error("tools/list")
        assert error["code"] == -32602
        assert "open a session with initialize first" in error["message"]
        await peer.initialize()
        assert "result" in await peer.request("tools/list")


@pytest.mark.req("LEG-1", "SUB-6")
async def test_another_initialize_forgets_what_the_client_had_set() -> None:
    server = make_server()
    server.add_resource("a:b", lambda: "x", name="x")
    async with raw_client(server, LATEST_LEGACY) as peer:
        assert "result" in await peer.request("resources/subscribe", {"uri": "a:b"})
        again = await peer.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        assert again["result"]["protocolVersion"] == "2025-06-18"
        peer.notify("notifications/initialized")
        assert "result" in await peer.request("tools/list")
        server.resource_changed("a:b")
        await peer.settled()
        assert [message for message in peer.seen if "method" in message] == []


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_handshake_whose_id_is_in_use_opens_nothing(is_held: bool) -> None:
    shop = Workshop(limits=limited(2))

    async with raw_client(shop.server) as peer:
        if is_held:
            numbered(peer, "hold", 1, 2)
        peer.post_call("hold", {"number": 3}, request_id="x")
        await turns()
        params = {"protocolVersion": str(LATEST_LEGACY), "capabilities": {}}
        peer.connection.send(Request("x", "initialize", params))
        assert codes(await peer.answer("x")) == [-32600]
        shop.go.set()
        assert "result" in await peer.answer("x")
        peer.revision = LATEST_LEGACY
        await peer.initialize()


@pytest.mark.req("ERA-11")
async def test_a_modern_server_answers_the_handshake_with_its_versions() -> None:
    async with raw_client(make_server(revisions=[str(LATEST)]), LATEST_LEGACY, opens=False) as peer:
        error = await peer.error("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        assert error["code"] == -32022
        assert error["data"] == {"supported": [str(LATEST)], "requested": "2025-06-18"}


async def test_a_legacy_server_does_not_know_modern_requests() -> None:
    async with raw_client(make_server(revisions=[str(LATEST_LEGACY)])) as peer:
        for method in ("server/discover", "tools/list"):
            assert "open a session with initialize first" in (await peer.error(method))["message"]
        peer.revision = LATEST_LEGACY
        await peer.initialize()
        assert (await peer.error("server/discover"))["code"] == -32601


@pytest.mark.req("META-2", "META-3", "META-7")
async def test_every_modern_request_has_to_say_its_version_and_capabilities() -> None:
    async with raw_client(make_server()) as peer:
        assert "result" in await peer.request("tools/list")
        for missing in (PROTOCOL_VERSION, CLIENT_CAPABILITIES):
            meta = {key: value for key, value in peer.meta().items() if key != missing}
            peer.connection.send(Request("x", "tools/list", {"_meta": meta}))
            response = await peer.answer("x")
            assert codes(response) == [-32602]
            assert missing in response["error"]["message"]
        error = await peer.error("tools/list", meta={PROTOCOL_VERSION: "2099-01-01"})
        assert (error["code"], error["data"]["supported"]) == (-32022, [str(LATEST)])
        for key, value in ((CLIENT_INFO, 5), (LOG_LEVEL, "loud"), (CLIENT_CAPABILITIES, [])):
            assert (await peer.error("tools/list", meta={key: value}))["code"] == -32602
        assert "result" in await peer.request("tools/list")


@pytest.mark.req("ERA-10")
@every_legacy
def test_both_eras_may_use_one_connection(revision: Revision) -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server, revision, capabilities=ABLE) as legacy:
            modern = Peer(legacy.connection, LATEST, ABLE)
            ids: dict[Id, bool] = {}
            for number in range(10):
                ids[legacy.post_call("hold", {"number": number}, request_id=f"l{number}")] = False
                ids[legacy_post(legacy, modern, number)] = True
            await turns()
            shop.go.set()
            for request_id, is_modern in ids.items():
                result = (await legacy.answer(request_id))["result"]
                assert ("resultType" in result) == is_modern
            # A question goes to each in its own way.
            legacy.post_call("ask", {"number": 1}, request_id="asked")
            question = await legacy.question("elicitation/create") if revision.has_url_elicitation else None
            legacy.connection.send(modern.message("tools/call", {"name": "ask", "arguments": {"number": 2}}))
            asked = await legacy.take(lambda each: "inputRequests" in each.get("result", {}))
            assert asked["result"]["resultType"] == "input_required"
            if question is not None:
                legacy.reply(question, {"action": "accept"})
            assert "result" in await legacy.answer("asked")

    def legacy_post(legacy: Peer, modern: Peer, number: int) -> Id:
        request = modern.message(
            "tools/call", {"name": "hold", "arguments": {"number": number}}, request_id=f"m{number}"
        )
        legacy.connection.send(request)
        return request.id

    run(main())


@pytest.mark.parametrize("revision", revisions(), ids=str)
@pytest.mark.parametrize("method", ["nothing", "tools/nothing", "", "x" * 10_000, "sampling/createMessage"])
async def test_a_method_that_is_not_there(revision: Revision, method: str) -> None:
    async with raw_client(make_server(), revision) as peer:
        error = await peer.error(method)
        assert error["code"] == -32601
        assert f"in protocol revision {revision}" in error["message"]
        assert len(error["message"]) < 300


# Lines that are no messages


@pytest.mark.req("FRM-7", "FRM-4")
@every_revision
@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"garbage", -32700, None),
        (b"{", -32700, None),
        (b"5", -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":"a","method":5}', -32600, "a"),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7),
    ],
)
def test_a_bad_line_is_answered_where_it_may_be(
    revision: Revision, line: bytes, code: int, request_id: Id | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with raw_client(make_server(), revision) as peer:
            peer.send_line(line)
            await peer.settled()
            answers = [each for each in peer.seen if "error" in each]
            if request_id is None and not revision.has_idless_errors:
                assert answers == []
            else:
                (answer,) = answers
                assert answer["error"]["code"] == code
                assert answer.get("id") == request_id

    run(main())
    assert "A line from the client was ignored." in caplog.text


@pytest.mark.req("FRM-7")
@both_eras
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":1,"error":2}',
        b'{"jsonrpc":"2.0","id":1,"error":"x"}',
        b'{"jsonrpc":"2.0","id":99,"result":{}}',
        b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}',
    ],
)
async def test_what_looks_like_a_response_is_never_answered(revision: Revision, line: bytes) -> None:
    async with raw_client(make_server(), revision) as peer:
        peer.send_line(line)
        await peer.settled()
        if line != b'{"jsonrpc":"2.0","id":1}':
            assert [each for each in peer.seen if "error" in each] == []


def test_a_flood_of_bad_lines_is_not_a_flood_of_logs(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with raw_client(make_server(), LEGACY[-1]) as peer:
            for _ in range(1000):
                peer.send_line(b"garbage")
            await peer.settled()

    run(main())
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 10 + 6
    assert [sentence.split()[0] for sentence in said[10:]] == ["16", "32", "64", "128", "256", "512"]


def test_a_broken_answer_ends_its_question() -> None:
    server = make_server()
    raised: list[BaseException] = []

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.roots()
        except Exception as error:
            raised.append(error)
            raise
        return "not reached"

    async def main() -> None:
        async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
            request_id = peer.post_call("ask")
            question = await peer.question()
            peer.send_line(b'{"jsonrpc":"2.0","id":%d,"result":1,"error":2}' % question["id"])
            assert (await peer.answer(request_id))["result"]["isError"] is True

    run(main())
    assert "answer to roots/list cannot be read" in str(raised[0])
