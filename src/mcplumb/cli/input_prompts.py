"""Answer the elicitations of a server, from ``--answer`` options or by prompting at the terminal.

The elicitation capability is declared only if there are answers or a terminal. Sampling is never offered.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal, TypeAlias, TypeVar

import click

from mcplumb.cli.arguments import fill, read_pair, signature
from mcplumb.cli.parse_value import InvalidText, SchemaView
from mcplumb.cli.render.output import clean, clean_line, is_terminal, say, stderr
from mcplumb.client.input_handlers import Elicitation
from mcplumb.errors import DecodeError, McplumbError, RemoteError, UsageError
from mcplumb.server.schema.read_value import as_text
from mcplumb.types.client_features import ElicitResult, UrlElicitationRequiredData
from mcplumb.types.lifecycle import ClientCapabilities, ElicitationCapability
from mcplumb.types.payload_decoder import read
from mcplumb.wire.messages import MISSING_CAPABILITY, URL_ELICITATION_REQUIRED

__all__ = ["InputPrompter", "ReadLine", "discard_typed_input", "input_options", "read_line"]

_T = TypeVar("_T")
_Command = TypeVar("_Command", bound=Callable[..., Any])

#: Shows a prompt and returns the line that is typed; raises EOFError at the end of the input.
ReadLine: TypeAlias = Callable[[str], Awaitable[str]]

_DECLINE, _CANCEL = "!decline", "!cancel"
#: Choices of a field, and characters of a message, that are shown.
_MAX_CHOICES = 100
_MAX_MESSAGE = 4000
#: Characters of an invalid answer that are repeated.
_MAX_TYPED = 80
#: Forms that are answered from the options without a prompt; a server with more is in a loop.
_MAX_AUTO_ANSWERS = 100


def input_options(command: _Command) -> _Command:
    """Add the options of a command during which a server may ask for input: ``answers`` and ``roots``."""
    folder = click.Path(exists=True, file_okay=False)
    root = click.option(
        "--root", "roots", metavar="FOLDER", type=folder, multiple=True, help="A folder that the server may work in."
    )
    answer = click.option(
        "--answer", "answers", metavar="KEY=VALUE", multiple=True, help="An answer, in case the server asks for it."
    )
    return answer(root(command))


class InputPrompter:
    """Answers the elicitations of one server, one at a time.

    ``answers`` (``key=value``) fill the fields of any form that has them. If they complete a form, there is no prompt;
    otherwise the user is prompted for the rest. Without a terminal the elicitation is cancelled, and ``mistake`` says
    what was missing.

    ``paused`` is entered during a prompt, so that nothing else is drawn. ``read`` replaces the terminal's own line
    editing.
    """

    def __init__(
        self,
        server: str,
        answers: Sequence[str] = (),
        *,
        roots: Sequence[str] = (),
        paused: Callable[[], AbstractContextManager[Any]] = nullcontext,
        read: ReadLine | None = None,
    ) -> None:
        #: Why an elicitation could not be answered.
        self.mistake: UsageError | None = None
        self._server = server
        self._answers = [read_pair(answer) for answer in answers]
        self._roots = list(roots)
        self._paused = paused
        self._read = read or (read_line if is_terminal() else None)
        self._lock = asyncio.Lock()
        self._auto_answered = 0

    @property
    def options(self) -> dict[str, Any]:
        """The options for `connect` that declare what can be answered, and nothing else."""
        options: dict[str, Any] = {"roots": self._roots} if self._roots else {}
        if self._read is not None:
            options["on_elicit"] = self.answer
        elif self._answers:
            form = ElicitationCapability(form={})
            options |= {"on_elicit": self.answer, "capabilities": ClientCapabilities(elicitation=form)}
        return options

    async def answer(self, question: Elicitation) -> ElicitResult:
        """Return the answer to one elicitation. Cancelling it during a prompt leaves the terminal clean."""
        async with self._lock:
            with self._paused():
                if self._read is read_line:
                    discard_typed_input()
                try:
                    match question.mode:
                        case "form":
                            return ElicitResult("accept", await self._fill_in(question.message, question.schema))
                        case "url":
                            return await self._visit(question.message, question.url or "")
                        case mode:
                            say(f"{self._server} asks in an unknown way ({mode}), which was declined.")
                            return ElicitResult("decline")
                except _NotAnswered as ended:
                    return ElicitResult(ended.action)

    async def wait_for(self, call: Awaitable[_T]) -> _T:
        """Await a call; if it fails after an elicitation could not be answered, raise ``mistake`` instead."""
        try:
            return await call
        except McplumbError as error:
            self.raise_mistake()
            if isinstance(error, RemoteError):
                self._say_hint(error)
            raise

    def raise_mistake(self) -> None:
        """Raise the mistake, if there is one."""
        if self.mistake is not None:
            raise self.mistake

    def _say_hint(self, error: RemoteError) -> None:
        """Say what to do about an error that an elicitation caused."""
        if error.code == MISSING_CAPABILITY and not self.options:
            say("The server wants to ask you: run this at a terminal, or give --answer KEY=VALUE (or --root).")
        if error.code == URL_ELICITATION_REQUIRED:
            with suppress(DecodeError):
                for page in read(UrlElicitationRequiredData, error.data).elicitations:
                    say(f"{self._server} wants you to see a web page first: {_quoted(page.message)}")
                    say(f"  {clean_line(page.url or '')}", style="bold")

    # --- Forms ---

    async def _fill_in(self, message: str, schema: Any) -> dict[str, Any]:
        form = SchemaView(schema)
        defaults = {name: part.schema["default"] for name, part in _fields(form) if "default" in part.schema}
        given = [pair for pair in self._answers if pair.key in form.names]
        values: dict[str, Any] = {}
        mistakes = fill(values, given, form)
        lacking = [name for name in form.needed if name not in {**defaults, **values}]
        if given and not mistakes and not lacking:
            self._auto_answered += 1
            if self._auto_answered <= _MAX_AUTO_ANSWERS:
                return {**defaults, **values}
            self.mistake = UsageError(f"{self._server} has asked {_MAX_AUTO_ANSWERS} times, which is the limit.")
            raise _NotAnswered("cancel")
        if self._read is None:
            mistakes += [f"--answer has no {name}." for name in lacking]
            mistakes = mistakes or ["No --answer matches it."]
            fields = signature("form", schema)
            self.mistake = UsageError("\n".join([f"{self._server} asks: {_quoted(message)}", *mistakes, "", fields]))
            raise _NotAnswered("cancel")
        return await _FormDialog(self._read, form, defaults, values).run(
            f"{self._server} asks: {_quoted(message)}", mistakes
        )

    # --- Web pages ---

    async def _visit(self, message: str, url: str) -> ElicitResult:
        if self._read is None:
            raise _NotAnswered("cancel")
        say(f"{self._server} asks you to open a web page: {_quoted(message)}")
        say(f"  {clean_line(url)}", style="bold")
        page = _web_page(url)
        if page is None:
            say("That is not the address of a web page, and was declined.")
            raise _NotAnswered("decline")
        address, host = page
        say(f"  It is at {host}. Type o if you open it yourself.")
        while True:
            match (await _typed(self._read, "Open it in your browser? [y/o/N, c to cancel]: ")).lower():
                case "y" | "yes":
                    await asyncio.to_thread(_open, address)
                    return ElicitResult("accept")
                case "o":
                    return ElicitResult("accept")
                case "" | "n" | "no":
                    raise _NotAnswered("decline")
                case "c" | "cancel":
                    raise _NotAnswered("cancel")
            say("  Type y, o, n or c.")


class _NotAnswered(Exception):
    """The user declines or cancels."""

    def __init__(self, action: Literal["decline", "cancel"]) -> None:
        super().__init__(action)
        self.action = action


class _FormDialog:
    """Prompts for the fields of one form, and for the confirmation to send them."""

    def __init__(self, read: ReadLine, form: SchemaView, defaults: dict[str, Any], values: dict[str, Any]) -> None:
        self._read = read
        self._form = form
        self._known = {**defaults, **values}
        self._fields = [(name, part) for name, part in _fields(form) if name not in values]

    async def run(self, message: str, mistakes: Sequence[str]) -> dict[str, Any]:
        say(message, style="bold")
        for mistake in mistakes:
            say(f"  {mistake}")
        say(f"  Enter takes what is in [brackets]; {_DECLINE} declines, {_CANCEL} or Ctrl-D cancels.", style="dim")
        while True:
            for name, part in self._fields:
                await self._ask(name, part)
            if await self._confirm():
                return self._known

    async def _confirm(self) -> bool:
        """Ask whether to send the form; return False to edit it."""
        while True:
            match (await _typed(self._read, "Send it? [Y/d/c/e: yes, decline, cancel, edit]: ")).lower():
                case "" | "y" | "yes":
                    return True
                case "d" | "n" | "no" | "decline":
                    raise _NotAnswered("decline")
                case "c" | "cancel":
                    raise _NotAnswered("cancel")
                case "e" | "edit":
                    return False
            say("  Type y, d, c or e.")

    async def _ask(self, name: str, part: SchemaView) -> None:
        label = clean_line(_title(part) or name, 80)
        about = part.schema.get("description")
        choices = _choices(part)
        if isinstance(about, str) and about:
            say(f"  {clean_line(about, 400)}", style="dim")
        for number, (_, title) in enumerate(choices, 1):
            say(f"  {number:3}  {clean_line(title, 200)}")
        known = f" [{_shown(self._known[name])}]" if name in self._known else ""
        needed = "" if name in self._form.needed or known else ", optional"
        prompt = f"  {label} ({_hint(part, choices)}{needed}){known}: "
        while True:
            typed = await _typed(self._read, prompt)
            if not typed and (known or needed):
                return
            try:
                self._known[name] = _field_value(part, choices, typed)
            except InvalidText as mistake:
                say(f"  It {mistake}." if typed else "  It is required.")
            else:
                return


def _fields(form: SchemaView) -> list[tuple[str, SchemaView]]:
    return [(name, form.part(name) or SchemaView({})) for name in form.names]


def _title(part: SchemaView) -> str:
    title = part.schema.get("title")
    return title if isinstance(title, str) else ""


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return clean_line(", ".join(map(as_text, value)), 80)
    return "y" if value is True else "n" if value is False else clean_line(as_text(value), 80)


def _hint(part: SchemaView, choices: list[tuple[Any, str]]) -> str:
    if choices:
        several = ", or several with commas" if part.type == "array" else ""
        return f"1 to {len(choices)}{several}"
    return "y/n" if part.type == "boolean" else clean_line(part.words, 200)


def _choices(part: SchemaView) -> list[tuple[Any, str]]:
    """Return the values of a choice with their titles; empty if the field is not a choice."""
    if part.type == "array":
        return _choices(part.items)
    found = []
    names = part.schema.get("enumNames")
    for option in part.options:
        if option.type != "constant":
            return []
        constants = [option.schema["const"]] if "const" in option.schema else option.schema["enum"]
        own = _title(option) if option is not part and _title(option) != _title(part) else ""
        titles = names if isinstance(names, list) else [own]
        for number, constant in enumerate(constants):
            title = titles[number] if number < len(titles) and isinstance(titles[number], str) else ""
            found.append((constant, title or as_text(constant)))
    return found[:_MAX_CHOICES]


def _field_value(part: SchemaView, choices: list[tuple[Any, str]], typed: str) -> Any:
    """Convert the typed text to the field's value; a choice is typed as its value, title or number."""
    if choices and part.type == "array":
        return [_chosen(choices, one.strip()) for one in typed.split(",") if one.strip()]
    if choices:
        return _chosen(choices, typed)
    try:
        value = part.read(typed)
    except InvalidText:
        if part.type == "boolean":
            raise InvalidText(f"must be y or n, not {typed[:_MAX_TYPED]!r}") from None
        raise
    if isinstance(value, str) and (mistake := _format_mistake(value, part.schema.get("format"))):
        raise InvalidText(f"must be {mistake}")
    return value


def _chosen(choices: list[tuple[Any, str]], typed: str) -> Any:
    for value, title in choices:
        if typed in (as_text(value), title):
            return value
    if typed.isdecimal() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1][0]
    raise InvalidText(f"must be a number from 1 to {len(choices)}, not {typed!r}")


def _format_mistake(text: str, name: Any) -> str | None:
    """Return what the text has to be, if it does not have the format."""
    from datetime import date, datetime

    try:
        match name:
            case "email":
                user, _, host = text.rpartition("@")
                return None if user and host and not text.count(" ") else "an email address, such as ada@example.org"
            case "uri":
                scheme, colon, rest = text.partition(":")
                return None if scheme and colon and rest and " " not in text else "an address, with its https://"
            case "date":
                date.fromisoformat(text)
            case "date-time":
                if datetime.fromisoformat(text).tzinfo is None:
                    return "a date and time with its zone, such as 1999-12-31T23:59:59Z"
    except ValueError:
        return "a date such as 1999-12-31" + ("T23:59:59Z" if name == "date-time" else "")
    return None


# --- Web pages ---


def _web_page(url: str) -> tuple[str, str] | None:
    """Return a web address and its host in ASCII (punycode); None if the text is not a safe web address.

    Text that browsers and Python parse differently is refused: ``https://a.example\\@b.example`` has the host
    ``a.example`` for browsers and ``b.example`` for Python.
    """
    from urllib.parse import urlsplit

    if not url.isprintable() or set(url) & {" ", "\\"}:
        return None
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
        # Letters of other scripts can look like those of a trusted host.
        host = parts.hostname.encode("idna").decode()
        if host == parts.hostname:
            return url, host
        user, at, _ = parts.netloc.rpartition("@")
        port = "" if parts.port is None else f":{parts.port}"
        return parts._replace(netloc=f"{user}{at}{host}{port}").geturl(), host
    except ValueError:
        return None


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        say("No browser could be started: open the page yourself.")


# --- Lines ---


def _quoted(message: str) -> str:
    """Return a server's message with its further lines marked as quoted, cut to a maximum length."""
    text = clean(message[:_MAX_MESSAGE]) + ("…" if len(message) > _MAX_MESSAGE else "")
    return text.strip().replace("\n", "\n  | ")


def discard_typed_input() -> None:
    """Discard what was typed before a prompt appeared, so that it is not taken for the answer."""
    import termios

    with suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


async def _typed(read: ReadLine, prompt: str) -> str:
    """Prompt for a line; raise `_NotAnswered` if the user declines or cancels."""
    try:
        typed = (await read(prompt)).strip()
    except EOFError:
        raise _NotAnswered("cancel") from None
    if typed == _DECLINE:
        raise _NotAnswered("decline")
    if typed == _CANCEL:
        raise _NotAnswered("cancel")
    return typed


async def read_line(prompt: str) -> str:
    """Show a prompt on stderr and read one line from the terminal; raise EOFError at the end of the input.

    The event loop keeps running. Cancelling it consumes no input.
    """
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    stderr().print(prompt, end="", soft_wrap=True)
    stderr().file.flush()
    is_readable = asyncio.Event()
    loop.add_reader(descriptor, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)
    # A terminal delivers whole lines, one per read.
    line = os.read(descriptor, 1 << 16)
    if not line:
        say()
        raise EOFError
    return line.decode(errors="replace").rstrip("\n")
