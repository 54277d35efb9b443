"""Connections over HTTP pass the kit as far as their shape allows.

What a client posts has no order, and there are no batches: a legacy revision has them, but the newest ones do not.
Something that is no message is answered with an error, and not passed on. A legacy session outlives the connections of
its client, so nobody is told when that is gone without a word. A modern request, finally, is a connection by itself, on
which only the server can speak.
"""

from __future__ import annotations

import asyncio

import pytest

from mcplumb.testing import Check, MakePair, Trait, checks
from tests.transports.http_pairs import exchange_pair, legacy_pair, sse_pair

pytestmark = pytest.mark.thorough

KINDS: dict[str, tuple[MakePair, set[Trait]]] = {
    "legacy": (legacy_pair, {"order", "batches", "spoil", "notice"}),
    "sse": (sse_pair, {"order", "spoil"}),
    "exchange": (exchange_pair, {"order", "batches", "spoil", "both"}),
}


#: What a server sends goes over one stream.
ORDERED = [check for check in checks() if check.name == "order_from_second"]

CASES = [
    pytest.param(make_pair, check, id=f"{kind}-{check}")
    for kind, (make_pair, lacks) in KINDS.items()
    for check in [*checks(without=lacks), *ORDERED]
]


@pytest.mark.req("STR-5")
@pytest.mark.parametrize(("make_pair", "check"), CASES)
def test_http(make_pair: MakePair, check: Check) -> None:
    asyncio.run(check(make_pair))
