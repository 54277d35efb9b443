"""Output of content from a server: text and JSON to stdout, images, audio and other bytes to files.

A pipe or a file gets text unchanged, byte for byte. On a terminal, control sequences are escaped.
"""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from mcplumb.cli.render.output import clean, clean_line, print_json, print_text, say, say_error
from mcplumb.errors import DecodeError, UsageError
from mcplumb.types.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcplumb.types.prompts import PromptMessage
from mcplumb.types.resources import ResourceContents
from mcplumb.types.tools import CallToolResult

__all__ = ["ContentSink", "end_line", "plain", "print_contents", "print_messages", "print_result", "say_failure"]

#: The file extensions of known media types. Others get ``.bin``, because some programs run or load files by extension.
_EXTENSIONS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "image/bmp": ".bmp",
    "image/tiff": ".tif",
    "image/avif": ".avif",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/ogg": ".ogg",
    "audio/flac": ".flac",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "application/gzip": ".gz",
    "application/json": ".json",
    "text/csv": ".csv",
    "text/markdown": ".md",
    "text/plain": ".txt",
}
#: Extensions of files that no program loads by name.
_PASSIVE_EXTENSIONS = {
    ending for kind, ending in _EXTENSIONS.items() if kind.startswith(("image/", "audio/", "video/"))
}
_PASSIVE_EXTENSIONS |= {".jpeg", ".pdf", ".zip"}
#: Numbered names that are tried, and the maximum bytes of a stem and an extension.
_MAX_TRIES = 10_000
_MAX_STEM = 120
_MAX_ENDING = 20
#: Files of one result without ``--output``.
_MAX_FILES = 100
#: Bytes of an image that is shown in the terminal.
_MAX_SHOWN = 16 * 1024 * 1024
#: Characters of one chunk in kitty's graphics protocol.
_CHUNK = 4096


class ContentSink:
    """Writes bytes to new files, and reports each on stderr.

    ``output`` is a file, a folder, ``-`` for stdout, or None for the current folder; ``stem`` begins generated names.

    In a folder that the user named, files get the names that the server suggests. Elsewhere only media files do: a
    ``conftest.py`` or a ``Makefile`` in the current folder would be run by other programs.
    """

    def __init__(self, output: str | None, stem: str) -> None:
        self.output = output
        self._stem = _safe_name(stem) or "content"
        self._count = 0
        self._taken: dict[Path, int] = {}
        path = Path(output or ".")
        is_folder = os.path.isdir(path)  # noqa: PTH112 - pathlib raises for a long name
        self._folder = path if output is None or output.endswith("/") or is_folder else None
        if output in (None, "-"):
            return
        folder = self._folder or path.parent
        if not os.path.isdir(folder):  # noqa: PTH112
            raise UsageError(f"--output {output}: there is no folder {str(folder)!r}.")
        if self._folder is None and os.path.lexists(path):
            raise UsageError(f"--output {output}: the file exists already, and is not overwritten.")

    def put(self, content: bytes, mime_type: str | None, name: str = "") -> None:
        """Write bytes to a new file; ``name`` is the name that the server suggests."""
        if self.output == "-":
            _write(content)
            return
        if self.output is None and self._count == _MAX_FILES:
            raise UsageError(f"There are more than {_MAX_FILES} files: give a folder for them, with --output FOLDER.")
        kind = clean_line(mime_type or "of no known type", 80)
        path = self._write_new(content, _extension(mime_type), self._name(_safe_name(name), mime_type))
        self._count += 1
        say(f"Saved {len(content):,} bytes ({kind}) as {path}.")

    def _name(self, given: str, mime_type: str | None) -> str:
        """Return the suggested name if it is safe here, otherwise one with a safe prefix and extension."""
        stem, ending = os.path.splitext(given)  # noqa: PTH122 - it is a name, not a path
        if self.output is not None or not given or ending.lower() in _PASSIVE_EXTENSIONS:
            return given
        return f"{self._stem}-{stem}{_extension(mime_type)}"

    def _write_new(self, content: bytes, ending: str, name: str) -> Path:
        first = self._candidate(1, ending, name)
        # Continue after the numbers that are taken already.
        for number in range(self._taken.get(first, 0) + 1, _MAX_TRIES):
            path = self._candidate(number, ending, name)
            self._taken[first] = number
            try:
                file = path.open("xb")
            except FileExistsError:
                continue
            except OSError as error:
                raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
            try:
                with file:
                    file.write(content)
            except OSError as error:
                path.unlink(missing_ok=True)  # do not leave an incomplete file
                raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
            return path
        raise UsageError("There are too many files of that name already: give another place with --output.")

    def _candidate(self, number: int, ending: str, name: str) -> Path:
        if self._folder is None:
            path = Path(self.output or "")
            # The first file gets the user's name, the others get numbered variants.
            return path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        if name:
            path = Path(name)
            ending = path.suffix or ending
            return self._folder / (f"{path.stem}{ending}" if number == 1 else f"{path.stem}-{number}{ending}")
        return self._folder / f"{self._stem}-{number}{ending}"


# --- Results ---


def print_result(result: CallToolResult, sink: ContentSink) -> None:
    """Print the result of a tool. Text that only repeats the structured content is not printed."""
    structured = result.structured_content
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    is_repeated = structured is not None and _repeats(texts, structured)
    # Some servers wrap a string into an object, because structured content must be one. The bare text reads better.
    is_wrapped_text = len(texts) == 1 and structured == {"result": texts[0]}
    for block in result.content:
        if isinstance(block, TextContent) and is_repeated and not is_wrapped_text:
            continue
        _print_block(block, sink)
    if structured is not None and not is_wrapped_text:
        _print_data(structured)


def say_failure(result: CallToolResult, tool: str) -> None:
    """Print the tool's error text to stderr."""
    message = result.text.strip()
    if not message and result.structured_content is not None:
        message = msgspec.json.encode(result.structured_content).decode()
    say_error(message or f"The tool {tool} failed without a message.")


def plain(value: Any) -> Any:
    """Return a result as plain data, including unknown content blocks as they were received."""
    return _with_unknown(msgspec.to_builtins(value))


def print_contents(contents: Sequence[ResourceContents], sink: ContentSink) -> None:
    """Print the contents of a resource. With ``--output`` everything goes there; a terminal gets no binary data."""
    for part in contents:
        is_kept = sink.output not in (None, "-") or (not part.is_text and _is_tty() and sink.output is None)
        if is_kept:
            sink.put(_bytes_of(part), part.mime_type, _name_of(part.uri))
        elif part.text is not None:
            _print_text(part.text, is_exact=True)
        else:
            _write(_bytes_of(part))


def print_messages(messages: Iterable[PromptMessage], sink: ContentSink) -> None:
    """Print the messages of a prompt; on a terminal each under its role."""
    for number, message in enumerate(messages):
        if _is_tty():
            print_text(f"{message.role}:", style="bold")
        elif number:
            _write(b"\n")
        _print_block(message.content, sink)


def _print_block(block: ContentBlock, sink: ContentSink) -> None:
    match block:
        case TextContent(text=text):
            _print_text(text)
        case ImageContent(data=data, mime_type=mime_type):
            image = _decoded(data, "an image")
            if sink.output is not None or not _show(image):
                sink.put(image, mime_type)
        case AudioContent(data=data, mime_type=mime_type):
            sink.put(_decoded(data, "audio"), mime_type)
        case ResourceLink():
            named = " ".join(filter(None, [block.title or block.name, block.mime_type and f"({block.mime_type})"]))
            _print_text(f"{clean_line(block.uri)}  {clean_line(named)}".rstrip())
        case EmbeddedResource(resource=ResourceContents(text=str(text))):
            _print_text(text)
        case EmbeddedResource(resource=resource):
            sink.put(_bytes_of(resource), resource.mime_type, _name_of(resource.uri))
        case _:
            _print_data(block.data)


def _repeats(texts: list[str], structured: Any) -> bool:
    """Whether the texts only repeat the structured content, which the protocol recommends for older clients."""
    values = [structured]
    if isinstance(structured, dict) and len(structured) == 1:
        values += structured.values()
    for value in values:
        if len(texts) == 1 and _means(texts[0], value):
            return True
        if isinstance(value, list) and len(texts) == len(value) and all(map(_means, texts, value)):
            return True
    return False


def _means(text: str, value: Any) -> bool:
    if isinstance(value, str) and text == value:
        return True
    try:
        return bool(msgspec.json.decode(text) == value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _with_unknown(data: Any) -> Any:
    match data:
        case {"type": "mcplumb/unknown", "data": dict(block)}:
            return block
        case {"content": list(blocks)}:
            return {**data, "content": [_with_unknown(block) for block in blocks]}
        case {"content": dict(block)}:
            return {**data, "content": _with_unknown(block)}
        case {"messages": list(messages)}:
            return {**data, "messages": [_with_unknown(message) for message in messages]}
    return data


# --- Bytes and file names ---


def _bytes_of(part: ResourceContents) -> bytes:
    return (part.text or "").encode() if part.blob is None else _decoded(part.blob, f"{part.uri!a}")


def _decoded(data: str, what: str) -> bytes:
    from base64 import b64decode

    try:
        return b64decode(data, validate=True)
    except ValueError:
        raise DecodeError(f"The server sent {what} that is not valid base64.") from None


def _safe_name(name: str) -> str:
    """Turn a suggested name into a safe file name: no folders, not hidden, not too long."""
    kept = "".join(letter if _is_seen(letter) or letter in "._-" else "-" for letter in name).strip(".-")
    stem, dot, ending = kept.rpartition(".")
    if not dot:
        return _first(kept, _MAX_STEM)
    return f"{_first(stem, _MAX_STEM)}.{_first(ending, _MAX_ENDING)}"


def _is_seen(letter: str) -> bool:
    """Whether it is a visible letter or digit; some letters are blank."""
    return letter.isalnum() and clean(letter) == letter


def _first(name: str, size: int) -> str:
    """Cut a name to ``size`` bytes, the unit of file system limits."""
    return name.encode()[:size].decode(errors="ignore")


def _name_of(uri: str) -> str:
    from urllib.parse import unquote

    path = unquote(uri.partition("?")[0]).replace(":", "/").replace("\\", "/")
    return path.rstrip("/").rpartition("/")[2]


def _extension(mime_type: str | None) -> str:
    return _EXTENSIONS.get((mime_type or "").partition(";")[0].strip().lower(), ".bin")


# --- Writing ---


def _is_tty() -> bool:
    return sys.stdout.isatty()


def _print_text(text: str, *, is_exact: bool = False) -> None:
    if _is_tty():
        print_text(text.removesuffix("\n"))
    else:
        _write(text.encode() if is_exact or text.endswith("\n") else f"{text}\n".encode())


def _print_data(data: Any) -> None:
    if _is_tty():
        print_json(data)
    else:
        _write(msgspec.json.encode(data) + b"\n")


def _write(content: bytes) -> None:
    sys.stdout.flush()  # keeps the order with text printed before
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    _Line.open_on = None if content.endswith(b"\n") else sys.stdout


class _Line:
    """The stream whose last line has no newline: exact output may have none."""

    open_on: TextIO | None = None


def end_line() -> None:
    """Write a newline if the last line of stdout has none."""
    if _Line.open_on is sys.stdout:
        _write(b"\n")


def _show(image: bytes) -> bool:
    """Show an image in the terminal, if that is known to support images; return whether it was shown."""
    if not _is_tty() or len(image) > _MAX_SHOWN or os.environ.get("TMUX"):
        return False
    data = b64encode(image)
    if os.environ.get("TERM") in ("xterm-kitty", "xterm-ghostty") and image.startswith(b"\x89PNG\r\n\x1a\n"):
        chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
        for number, chunk in enumerate(chunks, 1):
            head = b"a=T,f=100," if number == 1 else b""
            _write(b"\x1b_G%sm=%d;%s\x1b\\" % (head, number < len(chunks), chunk))
    elif os.environ.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm"):
        _write(b"\x1b]1337;File=inline=1;size=%d:%s\x07" % (len(image), data))
    else:
        return False
    _write(b"\n")
    return True
