"""One server of a config file: its settings, and what may be shown of them."""
# Without pathlib, as this is all that it would be used for:
# ruff: noqa: PTH111, PTH113, PTH118
# And what only a project's server needs is loaded for that:
# ruff: noqa: PLC0415

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.config.files import ConfigError, NotTrusted, read_file
from mcplumb.config.locations import Dialect, Scope, home
from mcplumb.config.trust import is_trusted
from mcplumb.config.variables import Expander, UnknownVariable, parse_env_file
from mcplumb.errors import UsageError
from mcplumb.transports.address import HttpAddress, UnixAddress, read_address

__all__ = [
    "MASK",
    "Input",
    "ResolvedEntry",
    "ServerEntry",
    "Transport",
    "looks_secret",
    "mask_arguments",
    "mask_url",
    "mask_values",
]


# What may be shown of an entry: everything but secrets, which many people write into config files.


#: What stands in the place of a secret.
MASK = "***"

#: Parts of names of what is nobody's business.
_SECRET_NAMES = ("key", "token", "secret", "passw", "pwd", "credential", "auth", "cookie", "session")
#: How keys of well-known services begin.
_SECRET_STARTS = ("sk-", "pk-", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xox", "AKIA", "AIza", "eyJ")
#: From this length on, letters and digits in a mixture are a key, not a word.
_OPAQUE = 20


def looks_secret(name: str) -> bool:
    """Whether something of this name should not be shown."""
    name = name.lower()
    return any(part in name for part in _SECRET_NAMES)


def mask_values(values: Mapping[str, str]) -> dict[str, str]:
    """Variables or headers without their values, except for those that only name a variable: ``Bearer ${TOKEN}``."""
    return {name: value if _is_reference(value) else MASK for name, value in values.items()}


def mask_arguments(arguments: Iterable[str]) -> list[str]:
    """Arguments without the values of options that are secret by name, and without what looks like a key."""
    shown: list[str] = []
    is_next_secret = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if _is_reference(argument):
            shown.append(argument)
        elif is_next_secret and not argument.startswith("-"):
            shown.append(MASK)
        elif equals and not _is_reference(value) and (looks_secret(name) or _looks_like_key(value)):
            shown.append(f"{name}={MASK}")
        elif "://" in argument:
            shown.append(mask_url(argument))
        else:
            shown.append(MASK if _looks_like_key(argument) else argument)
        is_next_secret = argument.startswith("-") and not equals and looks_secret(name)
    return shown


def mask_url(url: str) -> str:
    """An address without a password, the values of its query, and parts of its path that look like keys."""
    before, has_query, query = url.partition("?")
    scheme, slashes, rest = before.partition("://")
    place, slash, path = rest.partition("/")
    place = f"{MASK}@{place.rpartition('@')[2]}" if "@" in place else place
    parts = [MASK if _looks_like_key(part) else part for part in path.split("/")]
    pairs = [_shown_pair(pair) for pair in query.split("&")]
    return f"{scheme}{slashes}{place}{slash}{'/'.join(parts)}{has_query}{'&'.join(pairs)}"


def _shown_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{name}={value if _is_reference(value) else MASK}" if equals else MASK if pair else ""


def _is_reference(value: str) -> bool:
    """Whether it is nothing but a variable, without a default."""
    for scheme in ("Bearer ", "Basic ", "Token "):
        value = value.removeprefix(scheme)
    return value.startswith("${") and value.endswith("}") and value.count("$") == 1 and ":-" not in value


def _looks_like_key(text: str) -> bool:
    if text.startswith(_SECRET_STARTS) and len(text) >= _OPAQUE:
        return True
    return (
        len(text) >= _OPAQUE
        and text.isascii()
        and all(character.isalnum() or character in "-_" for character in text)
        and any(character.isdigit() for character in text)
        and any(character.isupper() for character in text)
        and any(character.islower() for character in text)
    )


# One server of a config file: as it is written there, and as it is used.


Transport: TypeAlias = Literal["stdio", "http", "sse"]


class Input(msgspec.Struct, frozen=True):
    """Something that VS Code asks its user for, when a server needs it."""

    id: str
    description: str = ""
    default: str | None = None
    is_secret: bool = False
    #: What can be chosen from; anything if empty.
    options: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The variable of the environment that can have the answer."""
        return "MCPLUMB_INPUT_" + "".join(c.upper() if c.isascii() and c.isalnum() else "_" for c in self.id)


class ResolvedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry means here and now: with all variables replaced, and all paths absolute."""

    #: The program and its arguments; empty for a server that runs already.
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    #: The variables that come from a file, which are in ``env``, too; and what identifies that file's contents.
    env_file: dict[str, str] = {}
    env_file_digest: str = ""

    def __repr__(self) -> str:
        return f"<{'url' if self.url else 'command'} with {len(self.env)} variables, {len(self.headers)} headers>"


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A server that a config file names: give it to `connect`. Values are as written, with their variables."""

    name: str
    #: The file.
    source: str
    dialect: Dialect
    scope: Scope
    #: What relative paths and ``${workspaceFolder}`` mean.
    folder: str
    transport: Transport
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    env_file: str | None = None
    inherit_env: bool | tuple[str, ...] = False
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    #: The program that the file belongs to does not start it. Who names it here can.
    disabled: bool = False
    #: What can be asked for, and what was answered, by ids.
    inputs: tuple[Input, ...] = ()
    answers: dict[str, str] = {}
    #: Everything that the file says of it.
    raw: dict[str, Any] = {}

    def __repr__(self) -> str:
        # Without values that may be secrets.
        return f"<ServerEntry {self.name!r} of {self.source}>"

    def connect_arguments(self) -> tuple[str | list[str], dict[str, Any]]:
        """What to call `connect` with: the target, and options. `ConfigError` if that cannot be.

        A project's server that the user has not agreed to is refused with `NotTrusted`.
        """
        meant = self.preview() if self.scope == "project" else None
        if meant is not None and not is_trusted(self.digest(meant)):
            raise self._not_trusted()
        usable = self.resolve()
        # What is used has to be what was looked at, and files can change in between.
        if meant is not None and meant.env_file_digest != usable.env_file_digest:
            raise self._not_trusted()
        options: dict[str, Any] = {}
        if usable.url is None:
            if usable.env:
                options["env"] = usable.env
            if usable.cwd is not None:
                options["cwd"] = usable.cwd
            if self.inherit_env:
                options["inherit_env"] = self.inherit_env
            return list(usable.argv), options
        if usable.headers:
            options["headers"] = usable.headers
        if self.transport == "sse":
            options["http_sse"] = True
        return usable.url, options

    def preview(self) -> ResolvedEntry:
        """What it means here and now, before anything was asked: that is what a user can agree to."""
        return self._expanded(self._expander(lambda name: f"${{input:{name}}}"))

    def digest(self, meant: ResolvedEntry | None = None) -> str:
        """Identifies all that the file says of the server, and the command or address that it means here.

        Values that the user's environment gives to variables and headers, like tokens, and answers are not in it: those
        may change.
        """
        import json

        usable = meant or self.preview()
        parts = (self.source, self.name, self.raw, usable.argv, usable.cwd, usable.url, usable.env_file_digest)
        try:
            # It writes everything in ASCII, also paths that are no text.
            return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        except RecursionError:
            raise self._error("its values are nested too deeply.") from None

    def is_allowed(self) -> bool:
        """Whether it may be used: all may, but for those of projects that the user has not agreed to."""
        return self.scope != "project" or is_trusted(self.digest())

    def unanswered_inputs(self) -> list[Input]:
        """The inputs that nobody has answered yet, neither with `answered` nor with variables of the environment."""
        expander = self._expander()
        self._expanded(expander)
        known = {one.id: one for one in self.inputs}
        return [known.get(name) or Input(name) for name in expander.unanswered]

    def with_answers(self, answers: Mapping[str, str]) -> ServerEntry:
        """The same with answers for inputs, by their ids."""
        return msgspec.structs.replace(self, answers={**self.answers, **answers})

    def with_consent(self) -> ServerEntry:
        """The same for who has agreed to it this once."""
        return msgspec.structs.replace(self, scope="named")

    def missing(self) -> list[str]:
        """The variables of the environment that it needs and that are not set."""
        expander = self._expander()
        self._expanded(expander)
        return expander.missing

    def resolve(self) -> ResolvedEntry:
        """What it means here and now; `ConfigError` if a variable is not set, an input not given, a file not there."""
        expander = self._expander()
        usable = self._expanded(expander)
        if expander.missing:
            names = ", ".join(expander.missing)
            s, are = ("s", "are") if len(expander.missing) > 1 else ("", "is")
            raise self._error(f"it needs the variable{s} {names}, which {are} not set in the environment.")
        if expander.unanswered:
            wanted = self.unanswered_inputs()[0]
            what = f" ({wanted.description})" if wanted.description else ""
            raise self._error(
                f"it needs the input {wanted.id!r}{what}. Use it in a terminal, where you are asked, or set "
                f"{wanted.variable}."
            )
        if usable.url is not None:
            self._check_address(usable.url, usable.headers)
        return usable

    def _expander(self, answer: Callable[[str], str | None] | None = None) -> Expander:
        return Expander(
            environ=os.environ,
            folder=self.folder,
            home=home(),
            answer=answer or self._answer,
            has_bare_names=self.dialect.has_bare_names,
        )

    def _answer(self, name: str) -> str | None:
        return self.answers.get(name, os.environ.get(Input(name).variable))

    def _expanded(self, expander: Expander) -> ResolvedEntry:
        def value(text: str, key: str) -> str:
            if not self.dialect.expands:
                return text
            try:
                return expander.expand(text)
            except UnknownVariable as error:
                raise self._error(f"{error}.", key) from None

        def path(text: str, key: str) -> str:
            return os.path.join(self.folder, os.path.expanduser(value(text, key)))

        if self.url is not None:
            headers = {name: value(text, f"headers.{name}") for name, text in self.headers.items()}
            return ResolvedEntry(url=value(self.url, "url"), headers=headers)
        from_file: dict[str, str] = {}
        digest = ""
        if self.env_file is not None:
            file = path(self.env_file, "envFile")
            if expander.missing or expander.unanswered:
                data: bytes | None = b""  # such a path leads nowhere, and what is missing is to be told first
            else:
                data = read_file(file) if os.path.isfile(file) else None
            if data is None:
                raise self._error(f"there is no file {file}.", "envFile")
            from_file = parse_env_file(data, file)
            digest = hashlib.sha256(data).hexdigest()
        env = from_file | {name: value(text, f"env.{name}") for name, text in self.env.items()}
        program = os.path.expanduser(value(self.command or "", "command"))
        argv = (program, *(value(text, "args") for text in self.args))
        # A project's server starts in the project, as it does elsewhere. Others start where the user is.
        cwd = path(self.cwd, "cwd") if self.cwd is not None else self.folder if self.scope != "user" else None
        return ResolvedEntry(argv=argv, env=env, cwd=cwd, env_file=from_file, env_file_digest=digest)

    def _check_address(self, url: str, headers: Mapping[str, str]) -> None:
        try:
            address = read_address(url)
        except UsageError as error:
            raise self._error(str(error).replace(repr(url), repr(mask_url(url))), "url") from None
        if address is None:
            raise self._error("it is no address: it must begin with http:// or https://.", "url")
        if isinstance(address, UnixAddress) and self.dialect.has_unix_http:
            raise self._error("mcplumb does not speak HTTP over Unix sockets.", "url")
        if not isinstance(address, HttpAddress) and (headers or self.transport == "sse"):
            raise self._error("only an http:// or https:// address has headers, or is of the type sse.", "url")

    def _not_trusted(self) -> NotTrusted:
        import shlex

        return NotTrusted(
            f"a project's file wants to {'use an address' if self.url else 'start a command'}, and you have not "
            "agreed to that. Use it once in a terminal, where you are asked: mcplumb probe -s "
            f"{shlex.quote(self.name)}. Or allow it with --yes, or name the file: --config on the command line, "
            "load_config(path) in Python.",
            file=self.source,
            entry=self.name,
        )

    def _error(self, what: str, key: str | None = None) -> ConfigError:
        return ConfigError(what, file=self.source, entry=self.name, key=key)
