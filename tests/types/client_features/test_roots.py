from __future__ import annotations

from mcplumb import types as t


def test_roots() -> None:
    read = t.read(t.ListRootsResult, b'{"roots":[{"uri":"file:///a","name":"A"},{"uri":"file:///b"}]}')
    assert read == t.ListRootsResult([t.Root("file:///a", name="A"), t.Root("file:///b")])
