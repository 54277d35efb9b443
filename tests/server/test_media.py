from __future__ import annotations

import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import UsageError
from mcplumb.server.media import (
    OCTET_STREAM,
    Audio,
    File,
    Image,
    block_of_bytes,
    contents_of_bytes,
    is_textual,
    mime_type_of,
    to_base64,
)
from mcplumb.types import AudioContent, EmbeddedResource, ImageContent, ResourceContents

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
WAV = b"RIFF\x24\0\0\0WAVEfmt "

MAGIC = {
    PNG: "image/png",
    b"\xff\xd8\xff\xe0JFIF": "image/jpeg",
    b"GIF87a..": "image/gif",
    b"GIF89a..": "image/gif",
    b"RIFF\x24\0\0\0WEBPVP8 ": "image/webp",
    WAV: "audio/wav",
    b"ID3\x04": "audio/mpeg",
    b"\xff\xfb\x90": "audio/mpeg",
    b"\xff\xf3\x90": "audio/mpeg",
    b"\xff\xf2\x90": "audio/mpeg",
    b"OggS" + bytes(24) + b"\x01vorbis": "audio/ogg",
    b"OggS" + bytes(24) + b"\x80theora": "video/ogg",
    b"fLaC\0": "audio/flac",
}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(("data", "mime_type"), MAGIC.items())
def test_the_first_bytes_say_what_it_is(data: bytes, mime_type: str) -> None:
    assert mime_type_of(data) == mime_type
    assert mime_type_of(data, "notes.txt") == mime_type


@pytest.mark.parametrize("data", [b"", b"RIFF", b"RIFF\x24\0\0\0AVI ", b"GIF88a", b"\xff\xfe", b"\x89PNG", b"plain"])
def test_other_bytes_say_nothing(data: bytes) -> None:
    assert mime_type_of(data) == OCTET_STREAM
    assert mime_type_of(data, "notes.txt") == "text/plain"


@pytest.mark.parametrize(
    ("name", "mime_type"),
    [
        ("a.md", "text/markdown"),
        ("a.b.JSON", "application/json"),
        ("main.ts", "text/x-typescript"),
        ("LICENSE", "text/plain"),
        ("Makefile", "text/plain"),
        (".env", "text/plain"),
        ("a.svg", "image/svg+xml"),
        ("a.tar.gz", "application/gzip"),
        ("a.eml", "message/rfc822"),  # only the standard library knows it
        ("a.svgz", OCTET_STREAM),
        ("a.unheard-of", OCTET_STREAM),
        ("a", OCTET_STREAM),
        ("", OCTET_STREAM),
    ],
)
def test_the_name_says_what_it_is(name: str, mime_type: str) -> None:
    assert mime_type_of(b"?", name) == mime_type


def test_text_is_told_from_bytes_by_its_type() -> None:
    for textual in [
        "text/plain",
        "TEXT/HTML; charset=utf-8",
        "application/json",
        "application/ld+json",
        "image/svg+xml",
        "application/xml",
        "application/yaml ; x=y",
    ]:
        assert is_textual(textual)
    for other in ["image/png", OCTET_STREAM, "application/pdf", "application/x-text/plain", ""]:
        assert not is_textual(other)


@given(st.binary(max_size=40))
def test_no_byte_is_lost(data: bytes) -> None:
    assert to_base64(data) == encoded(data)
    contents = contents_of_bytes(data, "text/plain", "x:y")
    assert (contents.uri, contents.mime_type) == ("x:y", "text/plain")
    if contents.text is not None:
        assert contents.text.encode() == data
    else:
        assert contents.blob == encoded(data)
        with pytest.raises(UnicodeDecodeError):
            data.decode()


def test_bytes_that_are_no_text_are_bytes_whatever_they_look_like() -> None:
    assert contents_of_bytes(b"abc", "image/png", "x:y") == ResourceContents("x:y", blob="YWJj", mime_type="image/png")


def test_pictures_and_sounds() -> None:
    assert Image(PNG).block() == ImageContent(encoded(PNG), "image/png")
    assert Image(bytearray(PNG)).block() == ImageContent(encoded(PNG), "image/png")
    assert Image(b"?", mime_type="image/x-own").block() == ImageContent(encoded(b"?"), "image/x-own")
    assert Image(b"?").block() == ImageContent(encoded(b"?"), OCTET_STREAM)
    assert Image(b"").block() == ImageContent("", OCTET_STREAM)
    assert Audio(WAV).block() == AudioContent(encoded(WAV), "audio/wav")
    assert Audio(memoryview(WAV), mime_type="audio/x-wav").block() == AudioContent(encoded(WAV), "audio/x-wav")


def test_files_are_read_when_the_block_is_made(tmp_path: Path) -> None:
    path = tmp_path / "drawing.svg"
    image, file = Image(path=path), File(path)
    path.write_text("<svg/>")
    assert image.block() == ImageContent(encoded(b"<svg/>"), "image/svg+xml")
    assert file.block() == EmbeddedResource(
        ResourceContents(path.as_uri(), text="<svg/>", mime_type="image/svg+xml"),
    )
    assert Audio(path=str(path)).block() == AudioContent(encoded(b"<svg/>"), "image/svg+xml")


def test_a_relative_path_has_an_absolute_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.txt").write_text("é")
    contents = File("a b.txt").block().resource
    assert contents == ResourceContents((tmp_path / "a b.txt").as_uri(), text="é", mime_type="text/plain")
    assert contents.uri.endswith("/a%20b.txt")


@pytest.mark.parametrize(
    ("given", "uri", "mime_type"),
    [
        ({}, "cid:352441c2", OCTET_STREAM),
        ({"name": "a b.txt"}, "cid:a%20b.txt", "text/plain"),
        ({"name": "x/é"}, "cid:x%2F%C3%A9", OCTET_STREAM),
        ({"uri": "notes://1", "name": "a.md"}, "notes://1", "text/markdown"),
        ({"uri": "notes://1", "mime_type": "text/x-own"}, "notes://1", "text/x-own"),
    ],
)
def test_files_of_bytes(given: dict[str, Any], uri: str, mime_type: str) -> None:
    contents = File(b"abc", **given).block().resource
    assert (contents.uri, contents.mime_type) == (uri, mime_type)
    assert (contents.text, contents.blob) == (("abc", None) if is_textual(mime_type) else (None, "YWJj"))


def test_a_name_stands_for_the_path(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"abc")
    contents = File(tmp_path / "secret", name="plan.md").block().resource
    assert contents == ResourceContents("cid:plan.md", text="abc", mime_type="text/markdown")
    assert File(tmp_path / "secret", uri="x:y").block().resource.uri == "x:y"


def test_names() -> None:
    assert File("a/b.txt").name == "b.txt"
    assert File("a/b.txt", name="c").name == "c"
    assert File(b"").name is None
    assert Image(path="a.png").name == "a.png"
    assert Audio(b"").name is None


def test_contents_of_a_resource() -> None:
    assert File(b"abc").contents("x:y") == ResourceContents("x:y", blob="YWJj", mime_type=OCTET_STREAM)
    assert File(b"abc").contents("x:y", "text/css") == ResourceContents("x:y", text="abc", mime_type="text/css")
    file = File(b"abc", uri="x:own", mime_type="text/x-own")
    assert file.contents("x:y", "text/css") == ResourceContents("x:own", text="abc", mime_type="text/x-own")
    assert Image(PNG).contents("x:y") == ResourceContents("x:y", blob=encoded(PNG), mime_type="image/png")


@pytest.mark.parametrize(("data", "mime_type"), MAGIC.items())
def test_bytes_become_what_they_begin_like(data: bytes, mime_type: str) -> None:
    block = block_of_bytes(data)
    match mime_type.partition("/")[0]:
        case "image":
            assert block == ImageContent(encoded(data), mime_type)
        case "audio":
            assert block == AudioContent(encoded(data), mime_type)
        case _:
            assert isinstance(block, EmbeddedResource)
            assert (block.resource.mime_type, block.resource.blob) == (mime_type, encoded(data))


def test_other_bytes_become_a_resource() -> None:
    expected = ResourceContents("cid:352441c2", blob="YWJj", mime_type=OCTET_STREAM)
    assert block_of_bytes(b"abc") == EmbeddedResource(expected)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("gone.txt", "No such file or directory"),
        (".", "Is a directory"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_a_file_that_cannot_be_read(path: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for media in (File(path), Image(path=path), Audio(path=path)):
        with pytest.raises(UsageError, match=f"^{re.escape(f'The file {path!r} cannot be read: {reason}.')}$"):
            media.block()


def test_mistakes() -> None:
    with pytest.raises(UsageError, match=r"^Image needs either bytes or the path of a file, not both.$"):
        Image()
    with pytest.raises(UsageError, match=r"^Audio needs either bytes or the path of a file, not both.$"):
        Audio(WAV, path="a.wav")
    wrong: Any = "a.png"
    with pytest.raises(UsageError, match=r"^Image takes bytes, not str; the path of a file goes into path=.$"):
        Image(wrong)
    with pytest.raises(UsageError, match=r"^'png' is not a MIME type: those have two parts, as in 'image/png'.$"):
        Image(PNG, mime_type="png")


def test_nothing_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys; from mcplumb.server.media import File, Image; Image(b'').block(); File(b'', name=None).block(); "
        "print(*{'base64', 'mimetypes', 'pathlib', 'urllib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
