from __future__ import annotations

import msgspec
import pytest

from mcplumb import types as t


@pytest.mark.parametrize(
    ("reference", "kind"),
    [(t.PromptReference("plan"), "ref/prompt"), (t.ResourceTemplateReference("a:{b}"), "ref/resource")],
)
def test_references_are_told_apart_by_their_type(reference: t.Reference, kind: str) -> None:
    params = t.CompleteParams(reference, t.CompletionArgument("city", "Os"), t.CompletionContext({"land": "NO"}))
    data = msgspec.to_builtins(params)
    assert data["ref"]["type"] == kind
    assert t.read(t.CompleteParams, data) == params


def test_values() -> None:
    result = t.read(t.CompleteResult, b'{"completion":{"values":["Oslo"],"total":1,"hasMore":false}}')
    assert result.completion == t.Completion(["Oslo"], 1, has_more=False)
