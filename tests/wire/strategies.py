"""Messages and ways to cut a stream, for the properties of the wire layer."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET

from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result

texts = st.text(max_size=20)
ids: st.SearchStrategy[RequestId] = st.one_of(
    st.sampled_from([0, 1, -1, 9, 10, 2**63 - 1, -(2**63), "", "1", "0", " ", "é", '"', "\\", "id"]),
    st.integers(-(2**63), 2**63 - 1),
    texts,
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | st.just("id"), inner, max_size=4),
    max_leaves=8,
)
objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    texts | st.sampled_from(["id", "method", "result", "_meta"]), values, max_size=5
)
methods = st.sampled_from(["", "ping", "tools/call", "id", '"id"', "résumé"]) | texts
params = objects | st.just(UNSET)
requests = st.builds(Request, ids, methods, params)
notifications = st.builds(Notification, methods, params)
results = st.builds(Result, ids, values)
errors = st.builds(
    Error, ids | st.just(UNSET), st.builds(ErrorDetail, st.integers(-(2**40), 2**40), texts, values | st.just(UNSET))
)
messages: st.SearchStrategy[Message] = st.one_of(requests, notifications, results, errors)


@st.composite
def chunked(draw: st.DrawFn, streams: st.SearchStrategy[bytes]) -> list[bytes]:
    """A stream, cut anywhere into at most nine chunks."""
    data = draw(streams)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
