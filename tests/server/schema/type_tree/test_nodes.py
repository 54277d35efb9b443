"""The nodes of the trees that types are taken apart into."""

from __future__ import annotations

from mcplumb.server.schema.type_tree import Field, Leaf, Record


def test_the_keys_of_a_record() -> None:
    field = Field(key="a", argument="a", shape=Leaf(kind=int, schema={}), required=True)
    record = Record(kind=dict, name="A", make=dict, fields=[field])
    assert record.keys == ["a"]
    record.tag = ("type", "x")
    assert record.keys == ["type", "a"]
