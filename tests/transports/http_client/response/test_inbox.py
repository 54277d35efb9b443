from __future__ import annotations

import asyncio

from aiohttp import RequestInfo
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from mcplumb.errors import Closed
from mcplumb.limits import Limits
from mcplumb.transports.http_client.response import Inbox
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.server_sent_events import EventTooLong
from tests.kit.loop import turns
from tests.transports.http_client.raw import Heard, answer

REQUEST = RequestInfo(URL("http://x/mcp"), "POST", CIMultiDictProxy(CIMultiDict()), URL("http://x/mcp"))


async def test_it_decodes_counts_shows_and_passes_on() -> None:
    seen: list[bytes] = []

    inbox, heard = Inbox(Limits(max_batch=1), lambda _, line: seen.append(line)), Heard()
    inbox.open(heard)
    inbox.take(answer(1), REQUEST)
    inbox.take(b"[%b]" % answer(2), REQUEST)
    inbox.take(b"[%b,%b]" % (answer(3), answer(4)), REQUEST)
    inbox.report_too_long(EventTooLong(10, b'{"jsonrpc":"2.0","id":5,"result":'), REQUEST)
    assert heard.items == []
    await turns()
    assert [type(item) for item in heard.items[1:]] == [Batch, BadMessage, BadMessage]
    last = heard.items[-1]
    assert isinstance(last, BadMessage)
    assert (last.id, last.is_response) == (5, True)
    assert (inbox.stats.messages_in, inbox.stats.bad_lines) == (2, 2)
    assert len(seen) == 4


async def test_each_end_is_told_once_and_nothing_after_it_is_shut() -> None:
    inbox, heard = Inbox(Limits(), None), Heard()
    inbox.open(heard)
    inbox.break_off(OSError(1, "a"))
    inbox.break_off(OSError(2, "b"))
    inbox.end(clean=False)
    inbox.end(clean=True)
    await turns()
    assert heard.order == ["broke", "ended"]
    assert heard.ends == [False]
    inbox.take(answer(1), REQUEST)
    inbox.shut()
    inbox.fail(1, Closed("x"))
    await turns()
    assert (heard.items, heard.failures) == ([], {})
    assert heard.order == ["broke", "ended"]


async def test_those_who_wait_while_it_is_paused_go_on_when_it_is_shut() -> None:
    inbox = Inbox(Limits(), None)
    await inbox.wait_until_resumed()
    inbox.pause()
    waiting = asyncio.create_task(inbox.wait_until_resumed())
    await turns()
    assert not waiting.done()
    inbox.shut()
    await waiting
