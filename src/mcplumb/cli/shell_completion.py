"""Tab completion of the shell: commands, options, names, arguments, values and URIs.

Names come from the server's lists. Values of prompt arguments and of template variables come from its completions.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mcplumb.cli.commands.list_features import entries
from mcplumb.cli.parse_value import SchemaView
from mcplumb.cli.render.output import clean
from mcplumb.errors import RemoteError
from mcplumb.types.notification_params import LOGGING_LEVELS
from mcplumb.types.prompts import PromptReference, ResourceTemplateReference

if TYPE_CHECKING:
    from mcplumb.client.client import Client
    from mcplumb.types.prompts import Reference

__all__ = ["suggest"]

#: Suggestions that are shown, and the maximum depth of arguments within objects.
_MAX_SUGGESTIONS = 500
_MAX_DEPTH = 3


async def suggest(client: Client, commands: Mapping[str, click.Command], before: str, word: str) -> list[str]:
    """Return the completions of ``word`` after the line ``before``. Complete words end with a space.

    Text that a terminal would not show literally is left out: names come from the server, and go into the user's line.
    """
    try:
        words = shlex.split(before)
        bare = "".join(shlex.split(f"{word}'") if word.count("'") % 2 else shlex.split(word))
    except ValueError:  # inside an open quote
        return []
    found = await _Suggestions(client, commands, words, bare).all()
    kept = (text for text in found if text.startswith(bare) and _is_plain(text))
    return sorted({_quoted(text) for text in kept})[:_MAX_SUGGESTIONS]


class _Suggestions:
    """Finds the completions of one word."""

    def __init__(self, client: Client, commands: Mapping[str, click.Command], words: list[str], word: str) -> None:
        self._client = client
        self._commands = commands
        self._words = words
        self._word = word

    async def all(self) -> Iterable[str]:
        if not self._words:
            return _complete(self._commands)
        name, *given = self._words
        command = self._commands.get(name)
        if command is None:
            return []
        options = {text: param for param in command.params for text in (*param.opts, *param.secondary_opts)}
        if self._word.startswith("-"):
            return _complete(text for text, param in options.items() if isinstance(param, click.Option))
        taking = {text for text, param in options.items() if isinstance(param, click.Option) and not param.is_flag}
        if given and given[-1] in taking:
            return _complete(await self._names(name)) if given[-1] == "--schema" else []
        skipped = {at + 1 for at, text in enumerate(given) if text in taking}
        return await self._after(
            name, [text for at, text in enumerate(given) if at not in skipped and not text.startswith("-")]
        )

    async def _after(self, name: str, given: Sequence[str]) -> Iterable[str]:
        """Complete the next argument of a command, after the given ones."""
        if name == "listen":
            return _complete(_texts(await entries(self._client, "resources/list", "resources"), "uri"))
        if given:
            return await self._arguments(name, given[0], given[1:])
        match name:
            case "help":
                return _complete([*self._commands, *await self._names("tools"), *await self._names("prompts")])
            case "call":
                return _complete(await self._names("tools"))
            case "prompt":
                return _complete(await self._names("prompts"))
            case "complete":
                return _complete([*await self._names("prompts"), *await self._templates()])
            case "log":
                return _complete(LOGGING_LEVELS)
            case "read":
                return await self._addresses()
        return []

    async def _arguments(self, name: str, of: str, given: Sequence[str]) -> Iterable[str]:
        if name == "call":
            tools = await entries(self._client, "tools/list", "tools")
            schema: Any = next((tool.get("inputSchema") for tool in tools if tool.get("name") == of), None)
            return _pairs(SchemaView(schema), self._word, given)
        if name in ("prompt", "complete"):
            return await self._asked_pairs(of, given)
        return []

    async def _asked_pairs(self, of: str, given: Sequence[str]) -> Iterable[str]:
        """Complete arguments of a prompt or variables of a template; the server completes their values."""
        is_template = "{" in of
        names = _variables(of) if is_template else await self._prompt_arguments(of)
        key, mark, begun = self._word.partition("=")
        known = dict(pair.split("=", 1) for pair in given if "=" in pair)
        if not mark:
            return [f"{name}=" for name in names if name not in known]
        reference = ResourceTemplateReference(of) if is_template else PromptReference(of)
        return [f"{key}={value} " for value in await self._completed(reference, key, begun, known)]

    async def _addresses(self) -> Iterable[str]:
        """Complete URIs of resources, and those that templates produce."""
        found = [*_complete(_texts(await entries(self._client, "resources/list", "resources"), "uri"))]
        for template in await self._templates():
            match _opened(template, self._word):
                case str(text):
                    found.append(text)
                case (start, variable, begun, known, rest):
                    values = await self._completed(ResourceTemplateReference(template), variable, begun, known)
                    end = rest if rest is not None else " "
                    found += [f"{start}{value}{end}" for value in values]
        return found

    # --- Requests to the server ---

    async def _names(self, what: str) -> list[str]:
        what = what if what in ("tools", "prompts") else "tools"
        return _texts(await entries(self._client, f"{what}/list", what), "name")

    async def _templates(self) -> list[str]:
        return _texts(await entries(self._client, "resources/templates/list", "resourceTemplates"), "uriTemplate")

    async def _prompt_arguments(self, prompt: str) -> list[str]:
        prompts = await entries(self._client, "prompts/list", "prompts")
        found = next((one.get("arguments") for one in prompts if one.get("name") == prompt), None)
        return _texts([one for one in found if isinstance(one, dict)], "name") if isinstance(found, list) else []

    async def _completed(self, reference: Reference, name: str, begun: str, known: dict[str, str]) -> list[str]:
        try:
            return (await self._client.complete(reference, name, begun, known or None)).values
        except RemoteError:  # the server has no completions for it
            return []


def _complete(words: Iterable[str]) -> list[str]:
    return [f"{word} " for word in words]


def _texts(found: Iterable[dict[str, Any]], key: str) -> list[str]:
    return [text for entry in found if isinstance(text := entry.get(key), str)]


def _is_plain(text: str) -> bool:
    return clean(text) == text and not set(text) & {"\n", "\t"}


def _quoted(text: str) -> str:
    """Quote the word, or the value after ``=``, if the shell requires it."""
    body, end = (text[:-1], " ") if text.endswith(" ") else (text, "")
    key, mark, value = body.partition("=")
    if not mark:
        return shlex.quote(body) + end if body else end
    return f"{key}={shlex.quote(value) if value else ''}{end}"


# --- Arguments of tools ---


def _pairs(view: SchemaView, word: str, given: Sequence[str]) -> list[str]:
    """Complete ``name=`` of arguments that are not given yet and, after ``=``, the values that the schema lists."""
    key, mark, _ = word.partition("=")
    if mark:
        return [f"{key}={value} " for value in _values(_member(view, key))]
    taken = {pair.partition("=")[0].rstrip(":") for pair in given}
    return [f"{name}=" for name in _paths(view) if name not in taken]


def _paths(view: SchemaView, depth: int = 1) -> list[str]:
    """Return the paths of all members, including those of nested objects: ``place.city``."""
    found = []
    for name in view.names[:_MAX_SUGGESTIONS]:
        inner = [part for part in _options(view.part(name)) if part.names]
        deeper = [path for part in inner for path in _paths(part, depth + 1)] if depth < _MAX_DEPTH else []
        found += [f"{name}.{path}" for path in deeper] or [name]
    return found


def _member(view: SchemaView, path: str) -> SchemaView | None:
    found: SchemaView | None = view
    for name in path.split("."):
        found = next((part for one in _options(found) if (part := one.part(name)) is not None), None)
    return found


def _values(view: SchemaView | None) -> list[str]:
    found: list[str] = []
    for option in _options(view):
        found += [value for value in option.constants or () if isinstance(value, str)]
        if option.type == "boolean":
            found += ["true", "false"]
        if option.type == "array":
            found += _values(option.items) if option.items is not view else []
    return found


def _options(view: SchemaView | None) -> list[SchemaView]:
    return [] if view is None else view.options


# --- Templates ---


def _pieces(template: str) -> list[str]:
    """Split a template into text and names of variables, alternating. Variables with operators are not supported."""
    import re

    return re.split(r"\{([A-Za-z0-9_.]+)\}", template)


def _variables(template: str) -> list[str]:
    return _pieces(template)[1::2]


def _opened(template: str, typed: str) -> str | tuple[str, str, str, dict[str, str], str | None] | None:
    """Find where in a template a partly typed URI ends: in its text, or in one of its variables.

    In text: the URI up to the next variable. In a variable: the URI before it, its name, the typed part of its value,
    the values of the variables before it, and the text after it or None at the end. None if the URI does not match.
    """
    pieces = _pieces(template)
    known: dict[str, str] = {}
    start = ""
    for text, name, behind in zip(pieces[::2], pieces[1::2], pieces[2::2], strict=False):
        rest = typed[len(start) :]
        if len(rest) < len(text):
            return start + text if text.startswith(rest) else None
        if not rest.startswith(text):
            return None
        start += text
        value, is_over, _ = typed[len(start) :].partition(behind) if behind else (typed[len(start) :], "", "")
        if not is_over:
            return start, name, value, known, behind or None
        known[name] = value
        start += value
    return None
