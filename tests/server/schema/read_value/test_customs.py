"""The types that msgspec leaves to others."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pydantic
import pytest

from mcplumb.server.schema.read_value import is_path, read_custom, write_custom
from tests.server.types_in_use import Author


def test_paths_are_known() -> None:
    assert is_path(Path)
    assert is_path(PurePosixPath)
    for other in (str, os.PathLike, Path("a"), "a"):
        assert not is_path(other)


def test_reading() -> None:
    assert read_custom(Path, "a") == Path("a")
    assert read_custom(Author, {"fullName": "A"}) == Author(fullName="A")
    with pytest.raises(ValueError, match="the number 1 is not of type Path"):
        read_custom(Path, 1)
    with pytest.raises(ValueError, match="Field required"):
        read_custom(Author, {})
    with pytest.raises(ValueError, match='the string "a" is not of type object'):
        read_custom(object, "a")


def test_in_decoders() -> None:
    def read(json: bytes, kind: Any) -> Any:
        return msgspec.json.decode(json, type=kind, dec_hook=read_custom)

    assert read(b'["a"]', list[Path]) == [Path("a")]
    with pytest.raises(msgspec.ValidationError):
        read(b"[1]", list[Path])
    with pytest.raises(msgspec.ValidationError):
        read(b"{}", Author)


def test_writing() -> None:
    assert write_custom(Path("a")) == "a"
    assert write_custom(Author(fullName="A")) == {"fullName": "A", "born": None}
    assert write_custom(pydantic.AnyUrl("http://a/")) == "http://a/"
    with pytest.raises(TypeError, match="JSON has no form for 'object'"):
        write_custom(object())
