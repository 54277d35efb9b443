"""Images, audio and files as return values of a server's functions, and the detection of MIME types.

A value has bytes, or the path of a file that is read when the result is created. Its MIME type comes, in this order,
from the author, from the first bytes, or from the file's name; otherwise it is ``application/octet-stream``.
"""

from __future__ import annotations

import os
from typing import TypeAlias

from mcplumb.errors import UsageError
from mcplumb.types.content import AudioContent, EmbeddedResource, ImageContent
from mcplumb.types.resources import ResourceContents

__all__ = [
    "OCTET_STREAM",
    "Audio",
    "Data",
    "File",
    "Image",
    "block_of_bytes",
    "contents_of_bytes",
    "is_textual",
    "mime_type_of",
    "to_base64",
]

Data: TypeAlias = bytes | bytearray | memoryview

OCTET_STREAM = "application/octet-stream"

# Magic numbers: the first bytes, further bytes and their offset, and the MIME type.
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", b"", 0, "image/png"),
    (b"\xff\xd8\xff", b"", 0, "image/jpeg"),
    (b"GIF87a", b"", 0, "image/gif"),
    (b"GIF89a", b"", 0, "image/gif"),
    (b"RIFF", b"WEBP", 8, "image/webp"),
    (b"RIFF", b"WAVE", 8, "audio/wav"),
    (b"ID3", b"", 0, "audio/mpeg"),
    (b"\xff\xfb", b"", 0, "audio/mpeg"),
    (b"\xff\xf3", b"", 0, "audio/mpeg"),
    (b"\xff\xf2", b"", 0, "audio/mpeg"),
    (b"OggS", b"\x80theora", 28, "video/ogg"),
    (b"OggS", b"", 0, "audio/ogg"),
    (b"fLaC", b"", 0, "audio/flac"),
)

# File extensions, or whole names of files without one, in lower case. The standard library knows more, but its table
# depends on the machine, and it considers TypeScript a video format.
_NAMES = {
    suffix: mime_type
    for mime_type, suffixes in {
        "text/plain": "txt text log ini cfg conf env dockerfile license makefile readme",
        "text/markdown": "md markdown",
        "text/html": "html htm",
        "text/css": "css",
        "text/csv": "csv",
        "text/tab-separated-values": "tsv",
        "text/javascript": "js mjs cjs",
        "text/x-typescript": "ts tsx",
        "text/x-python": "py pyi",
        "text/x-rst": "rst",
        "text/x-sh": "sh bash",
        "text/x-c": "c h",
        "text/x-c++": "cc cpp hpp",
        "text/x-go": "go",
        "text/x-java": "java",
        "text/x-rust": "rs",
        "text/x-diff": "diff patch",
        "application/json": "json",
        "application/x-ndjson": "jsonl ndjson",
        "application/xml": "xml",
        "application/yaml": "yaml yml",
        "application/toml": "toml",
        "application/sql": "sql",
        "application/pdf": "pdf",
        "application/zip": "zip",
        "application/gzip": "gz tgz",
        "image/png": "png",
        "image/jpeg": "jpg jpeg",
        "image/gif": "gif",
        "image/webp": "webp",
        "image/svg+xml": "svg",
        "image/avif": "avif",
        "image/bmp": "bmp",
        "image/tiff": "tif tiff",
        "image/vnd.microsoft.icon": "ico",
        "audio/wav": "wav",
        "audio/mpeg": "mp3",
        "audio/ogg": "ogg oga opus",
        "audio/flac": "flac",
        "audio/mp4": "m4a",
        "audio/aac": "aac",
        "video/mp4": "mp4",
        "video/webm": "webm",
        "video/ogg": "ogv",
    }.items()
    for suffix in suffixes.split()
}

# MIME types of text formats that neither start with "text/" nor have a suffix that shows it.
_TEXTUAL = frozenset(
    f"application/{name}"
    for name in ("graphql", "javascript", "json", "jsonl", "sql", "toml", "x-ndjson", "x-sh", "x-yaml", "xml", "yaml")
)


class _Media:
    __slots__ = ("_mime_type", "_source")

    def __init__(
        self, data: Data | None = None, *, path: str | os.PathLike[str] | None = None, mime_type: str | None = None
    ) -> None:
        kind = type(self).__name__
        if mime_type is not None and "/" not in mime_type:
            raise UsageError(f"{mime_type!r} is not a MIME type: those have two parts, as in 'image/png'.")
        if (data is None) == (path is None):
            raise UsageError(f"{kind} needs either bytes or the path of a file, not both.")
        if path is None and not isinstance(data, Data):
            raise UsageError(f"{kind} takes bytes, not {type(data).__name__}; the path of a file goes into path=.")
        self._source: bytes | str = os.fspath(path) if path is not None else bytes(data or b"")
        self._mime_type = mime_type

    @property
    def name(self) -> str | None:
        """The name of the file; None for bytes."""
        return self._source.rpartition("/")[2] if isinstance(self._source, str) else None

    def read(self, mime_type: str | None = None) -> tuple[bytes, str]:
        """Return the bytes and their MIME type; ``mime_type`` is the default if the author gave none.

        Raises UsageError if the file cannot be read.
        """
        data = _read_file(self._source) if isinstance(self._source, str) else self._source
        return data, self._mime_type or mime_type or mime_type_of(data, self.name)

    def contents(self, uri: str, mime_type: str | None = None) -> ResourceContents:
        """Return the contents of the resource ``uri``: text if the MIME type is textual and the data UTF-8."""
        return contents_of_bytes(*self.read(mime_type), uri)


class Image(_Media):
    """An image to return, from bytes or from a file."""

    __slots__ = ()

    def block(self) -> ImageContent:
        """Return the content block."""
        data, mime_type = self.read()
        return ImageContent(to_base64(data), mime_type)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.block()._repr_mimebundle_()


class Audio(_Media):
    """Audio to return, from bytes or from a file."""

    __slots__ = ()

    def block(self) -> AudioContent:
        """Return the content block."""
        data, mime_type = self.read()
        return AudioContent(to_base64(data), mime_type)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.block()._repr_mimebundle_()


class File(_Media):
    """A file to return with its contents, from its path or from bytes.

    With a ``name``, clients see only this name and not the path. ``uri`` is the full URI to report. Without either, the
    URI is a ``file:`` URI for a path, and a ``cid:`` URI, which is only an identifier, for bytes.
    """

    __slots__ = ("_name", "_uri")

    def __init__(
        self,
        source: str | os.PathLike[str] | Data,
        *,
        mime_type: str | None = None,
        name: str | None = None,
        uri: str | None = None,
    ) -> None:
        if isinstance(source, Data):
            super().__init__(source, mime_type=mime_type)
        else:
            super().__init__(path=source, mime_type=mime_type)
        self._name = name
        self._uri = uri

    @property
    def name(self) -> str | None:
        """The name of the file; None for bytes without a name."""
        return self._name if self._name is not None else super().name

    def block(self) -> EmbeddedResource:
        """Return the content block."""
        data, mime_type = self.read()
        return EmbeddedResource(contents_of_bytes(data, mime_type, self._uri or self._default_uri(data)))

    def contents(self, uri: str, mime_type: str | None = None) -> ResourceContents:
        """Return the contents of the resource ``uri``, or of the URI that the author gave."""
        return super().contents(self._uri or uri, mime_type)

    def _default_uri(self, data: bytes) -> str:
        if self._name is None and isinstance(self._source, str):
            from pathlib import Path

            return Path(self._source).absolute().as_uri()
        return _cid_of(data, self._name)


def mime_type_of(data: bytes, name: str | None = None) -> str:
    """Return the MIME type of data, by its first bytes or else by its name."""
    for start, more, place, mime_type in _MAGIC:
        if data.startswith(start) and data.startswith(more, place):
            return mime_type
    return _mime_type_of_name(name) if name else OCTET_STREAM


def is_textual(mime_type: str) -> bool:
    """Return whether data of this MIME type is text."""
    kind = mime_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(("+json", "+xml", "+yaml")) or kind in _TEXTUAL


def contents_of_bytes(data: bytes, mime_type: str, uri: str) -> ResourceContents:
    """Return the contents of the resource ``uri``: text if the MIME type is textual and the data UTF-8, else bytes."""
    if is_textual(mime_type):
        try:
            return ResourceContents(uri, text=data.decode(), mime_type=mime_type)
        except UnicodeDecodeError:
            pass
    return ResourceContents(uri, blob=to_base64(data), mime_type=mime_type)


def block_of_bytes(data: bytes) -> ImageContent | AudioContent | EmbeddedResource:
    """Return bytes as a content block: an image or audio if their first bytes show it, else an embedded resource."""
    mime_type = mime_type_of(data)
    if mime_type.startswith("image/"):
        return ImageContent(to_base64(data), mime_type)
    if mime_type.startswith("audio/"):
        return AudioContent(to_base64(data), mime_type)
    return EmbeddedResource(ResourceContents(_cid_of(data), blob=to_base64(data), mime_type=mime_type))


def _cid_of(data: bytes, name: str | None = None) -> str:
    """Return a URI for data without one, which distinguishes the parts of one result."""
    if name is None:
        from binascii import crc32

        return f"cid:{crc32(data):08x}"
    from urllib.parse import quote

    return f"cid:{quote(name, safe='')}"


def _mime_type_of_name(name: str) -> str:
    known = _NAMES.get(name.rpartition(".")[2].lower())
    if known is not None:
        return known
    from mimetypes import guess_type

    guessed, encoding = guess_type(name)
    # For "x.svgz" it returns SVG, the type of the uncompressed data.
    return guessed if guessed is not None and encoding is None else OCTET_STREAM


def _read_file(path: str) -> bytes:
    from pathlib import Path

    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"The file {path!r} cannot be read: {reason}.") from error


def to_base64(data: bytes) -> str:
    """Return bytes in base64, as payloads have them."""
    from binascii import b2a_base64  # most servers return text

    return b2a_base64(data, newline=False).decode("ascii")
