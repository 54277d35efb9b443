from __future__ import annotations

import pytest

from mcplumb import types as t


@pytest.mark.parametrize("token", [0, 1, "1", ""])
def test_tokens_keep_their_type(token: t.RequestId) -> None:
    read = t.read(t.ProgressParams, {"progressToken": token, "progress": 1}).progress_token
    assert read == token
    assert type(read) is type(token)


def test_progress_may_be_a_fraction() -> None:
    read = t.read(t.ProgressParams, b'{"progressToken":1,"progress":0.5,"total":2,"message":"half"}')
    assert read == t.ProgressParams(1, 0.5, 2, "half")


def test_cancellation() -> None:
    assert t.read(t.CancelledParams, b'{"requestId":"7","reason":"late"}') == t.CancelledParams("7", "late")
    assert t.read(t.CancelledParams, b"{}").request_id is None
