"""Write a request as a command or a program that sends it again: ``mcplumb``, ``curl`` and Python.

Whatever is in the request, the text that is made of it is quoted and runs nothing else, and all of it can be seen: it
may be pasted into a terminal.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

__all__ = ["curl_command", "mcplumb_command", "python_program", "shell_words", "visible_json"]

#: Characters that cannot be seen, or that change how others are read. In JSON, they can only be within a string.
_HIDDEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)

#: The command of mcplumb for a method, and the member of the params that is its argument.
_COMMANDS = {
    "tools/call": ("call", "name"),
    "resources/read": ("read", "uri"),
    "prompts/get": ("prompt", "name"),
    "tools/list": ("tools", None),
    "resources/list": ("resources", None),
    "prompts/list": ("prompts", None),
    "ping": ("ping", None),
}


def visible_json(text: str) -> str:
    """Return JSON that says the same, with escapes for characters that cannot be seen."""
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def shell_words(*words: str) -> str:
    """Return words of a command for bash, zsh and ksh, with escapes for characters that cannot be seen."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if all(map(_is_visible, word)):
        return shlex.quote(word)
    return f"$'{''.join(map(_escaped, word))}'"


def _is_visible(character: str) -> bool:
    return character.isprintable() and _HIDDEN.match(character) is None


def _escaped(character: str) -> str:
    if character in ("\\", "'"):
        return f"\\{character}"
    if _is_visible(character):
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass"))


def mcplumb_command(method: str, params: dict[str, Any], server: Sequence[str]) -> str | None:
    """Return the ``mcplumb`` command that sends a request to the server named by these words; None if there is none."""
    if method not in _COMMANDS:
        return None
    name, key = _COMMANDS[method]
    words = ["mcplumb", name]
    if key is not None:
        words.append(str(params.get(key, "")))
        if words[-1].startswith("-"):
            return None  # it would be taken for an option, and what follows -- is the server's command
    if arguments := params.get("arguments"):
        words += ["--args", visible_json(msgspec.json.encode(arguments).decode())]
    return shell_words(*words, *server)


def curl_command(url: str, headers: Iterable[str], body: str, options: str = "-sS -N") -> str:
    """Return the command that posts a message. The address and the headers are words of the shell already."""
    return " \\\n  ".join([
        f"curl {options} {url}", *(f"-H {each}" for each in headers), f"--data-raw {shell_words(visible_json(body))}",
    ])  # fmt: skip


def python_program(method: str, params: dict[str, Any], place: object, **options: object) -> str:
    """Return a program that connects to a place, with these options, and sends a request."""
    arguments = params.get("arguments") or {}
    match method:
        case "tools/call":
            call = f"client.call_tool({params.get('name')!r}, {arguments!r})"
        case "resources/read":
            call = f"client.read_resource({params.get('uri')!r})"
        case "prompts/get":
            call = f"client.get_prompt({params.get('name')!r}, {arguments!r})"
        case "tools/list" | "resources/list" | "prompts/list":
            call = f"client.list_{method.partition('/')[0]}()"
        case _:
            own = {key: value for key, value in params.items() if key != "_meta"}
            call = f"client.request({method!r}, {own!r})"
    given = "".join(f", {name}={value!r}" for name, value in options.items() if value)
    return f"""\
import asyncio

from mcplumb import connect


async def main() -> None:
    async with connect({place!r}{given}) as client:
        print(await {call})


asyncio.run(main())
"""
