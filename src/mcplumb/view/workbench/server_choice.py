"""The servers that the workbench can connect to: a command, an address, or an entry of a config file.

Nothing here runs a shell: a command is split into words, and its first word is the program.
"""

from __future__ import annotations

import shlex
from typing import Any, Literal

import msgspec

from mcplumb.config import Config, ConfigError, ServerEntry, load_config
from mcplumb.config.entry import looks_secret, mask_arguments, mask_url
from mcplumb.config.locations import with_tilde
from mcplumb.config.trust import is_trusted, remember
from mcplumb.errors import UsageError
from mcplumb.transports.address import read_address
from mcplumb.view.api_routes import ApiError

__all__ = ["ChosenServer", "ServerChoice", "choose_server", "list_configured"]


class ServerChoice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The server that the user chose, as the page sends it."""

    kind: Literal["start", "command", "address", "configured"]
    #: Of a command: its line as typed, its folder, and variables for it.
    command: str = ""
    folder: str = ""
    env: dict[str, str] = {}
    #: Of an address: the address, and headers for it.
    address: str = ""
    headers: dict[str, str] = {}
    #: Of a configured server: its name, values for its inputs, and the digest of what the user was shown and agrees to.
    name: str = ""
    answers: dict[str, str] = {}
    consent: str = ""


class ChosenServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server to connect to."""

    #: The server's name for the user, without secrets.
    title: str
    #: Arguments of `mcplumb.connect`.
    place: Any
    options: dict[str, Any] = {}
    #: The words that select it on the command line of mcplumb, without secrets.
    words: tuple[str, ...] = ()

    @property
    def command(self) -> list[str] | None:
        """The command that starts it, with secrets masked; None if it has an address."""
        return None if isinstance(self.place, str) else mask_arguments(map(str, self.place))

    @property
    def url(self) -> str | None:
        """Its address, with secrets masked; None if it is started by a command."""
        return mask_url(self.place) if isinstance(self.place, str) else None


def choose_server(choice: ServerChoice, start: ChosenServer | None, config: str | None = None) -> ChosenServer:
    """Return the chosen server; raise `UsageError` or `ConfigError` if it cannot be used."""
    match choice.kind:
        case "start":
            if start is None:
                raise ApiError(404, "mcplumb view was started without a server.")
            return start
        case "command":
            return _command(choice)
        case "address":
            return _address(choice)
        case "configured":
            return _configured(choice, config)


def _command(choice: ServerChoice) -> ChosenServer:
    try:
        words = shlex.split(choice.command)
    except ValueError as error:
        raise UsageError(f"The command cannot be split into words: {str(error).lower()}.") from None
    if not words:
        raise UsageError("Type the command that starts the server, for example: python weather.py")
    if read_address(words[0]) is not None:
        raise UsageError(f"{mask_url(words[0])} is an address: choose Address to connect to it.")
    options: dict[str, Any] = {}
    selecting: list[str] = []
    if choice.folder:
        options["cwd"] = choice.folder
        selecting += ["--cwd", choice.folder]
    if choice.env:
        options["env"] = choice.env
        selecting += [word for name in choice.env for word in ("-e", f"{name}=…")]
    shown = mask_arguments(words)
    return ChosenServer(
        title=shlex.join(shown), place=words, options=options, words=(*selecting, "--", *shown)
    )  # fmt: skip


def _address(choice: ServerChoice) -> ChosenServer:
    address = choice.address.strip()
    if read_address(address) is None:
        raise UsageError("Type an address that begins with http://, https://, tcp:// or unix:")
    options: dict[str, Any] = {}
    selecting = ["-s", mask_url(address)]
    if choice.headers:
        if not address.lower().startswith("http"):
            raise UsageError("Headers are for a server with an http:// or https:// address.")
        options["headers"] = choice.headers
        for name, value in choice.headers.items():
            selecting += ["--header", f"{name}: {'…' if looks_secret(name) else value}"]
    return ChosenServer(title=mask_url(address), place=address, options=options, words=tuple(selecting))


def _configured(choice: ServerChoice, config: str | None) -> ChosenServer:
    entry = load_config(config)[choice.name]
    if entry.scope == "project" and choice.consent:
        # Exactly what was shown: the file may have changed since.
        if entry.digest() != choice.consent:
            raise ApiError(409, "The config file has changed since it was shown. Look at it again.")
        remember(choice.consent, name=entry.name, source=entry.source)
    place, options = entry.with_answers(choice.answers).connect_arguments()
    return ChosenServer(title=entry.name, place=place, options=options, words=("-s", entry.name))


def list_configured(config: str | None = None) -> dict[str, Any]:
    """Return the configured servers for the page: without secrets, and with what each of them still needs."""
    found = load_config(config)
    return {
        "servers": [_described(found, name) for name in found],
        "faults": [str(fault) for fault in found.faults],
        "files": [with_tilde(file) for file in found.files],
    }


def _described(config: Config, name: str) -> dict[str, Any]:
    entry = config[name]
    shown: dict[str, Any] = {
        "name": entry.name,
        "source": with_tilde(entry.source),
        "program": entry.dialect.label,
        "transport": entry.transport,
        "summary": _summary(entry),
    }
    try:
        preview = entry.preview()
        if entry.scope == "project" and not is_trusted(digest := entry.digest(preview)):
            shown["consent"] = {"digest": digest, "actions": entry.actions(preview)}
        shown["inputs"] = [
            {
                "id": each.id,
                "description": each.description,
                "default": None if each.is_secret else each.default,
                "isSecret": each.is_secret,
                "options": each.options,
            }
            for each in entry.unanswered_inputs()
        ]
        if missing := entry.missing():
            shown["fault"] = f"It needs {', '.join(missing)}, not set in the environment of mcplumb view."
    except ConfigError as error:
        shown["fault"] = str(error)
    return shown


def _summary(entry: ServerEntry) -> str:
    if entry.url is not None:
        return mask_url(entry.url)
    return shlex.join([entry.command or "", *mask_arguments(entry.args)])
