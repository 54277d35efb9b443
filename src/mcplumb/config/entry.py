"""One server of a config file: its settings, how they resolve, and how they are shown without secrets.

A `ServerEntry` holds the values as they are written, with their variables. ``resolve`` replaces the variables and makes
paths absolute; ``connect_arguments`` turns the result into arguments of `connect`, and refuses a project's server that
the user has not agreed to.
"""
# pathlib is avoided, and some imports are local: both would slow down the start of every command.
# ruff: noqa: PTH111, PTH113, PTH118
# ruff: noqa: PLC0415

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.config.files import ConfigError, NotTrusted, read_file
from mcplumb.config.locations import Dialect, Scope, home, with_tilde
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


# --- Masking secrets ---

#: The replacement of a secret.
MASK = "***"

#: Prefixes of the API keys of well-known services.
_SECRET_STARTS = ("sk-", "pk-", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xox", "AKIA", "AIza", "eyJ")
#: From this length on, a mixture of letters and digits is taken for a key, not a word.
_MIN_KEY_LENGTH = 20


def looks_secret(name: str) -> bool:
    """Whether a value of this name should not be shown."""
    from mcplumb.recording import mask_secrets

    return mask_secrets.looks_secret(name)


def mask_values(values: Mapping[str, str]) -> dict[str, str]:
    """Mask the values of variables or headers, except those that only refer to a variable: ``Bearer ${TOKEN}``."""
    return {name: value if _is_reference(value) else MASK for name, value in values.items()}


def mask_arguments(arguments: Iterable[str]) -> list[str]:
    """Mask the values of options whose names look secret, arguments that look like keys, and secrets within others.

    An option may be a header, and an argument a command line of its own.
    """
    from mcplumb.recording.mask_secrets import mask_text

    shown: list[str] = []
    is_next_secret = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if any(map(_is_reference, (argument, value, argument.partition(":")[2].lstrip()))):
            shown.append(argument)
        elif is_next_secret and not argument.startswith("-"):
            shown.append(MASK)
        elif equals and (looks_secret(name) or _looks_like_key(value)):
            shown.append(f"{name}={MASK}")
        elif "://" in argument:
            shown.append(mask_text(mask_url(argument)))
        else:
            shown.append(MASK if _looks_like_key(argument) else mask_text(argument))
        is_next_secret = argument.startswith("-") and not equals and looks_secret(name)
    return shown


def mask_url(url: str) -> str:
    """Mask a URL's user and password, the values of its query, and the parts of its path that look like keys."""
    before, has_query, query = url.partition("?")
    scheme, slashes, rest = before.partition("://")
    host, slash, path = rest.partition("/")
    host = f"{MASK}@{host.rpartition('@')[2]}" if "@" in host else host
    parts = [MASK if _looks_like_key(part) else part for part in path.split("/")]
    pairs = [_mask_pair(pair) for pair in query.split("&")]
    return f"{scheme}{slashes}{host}{slash}{'/'.join(parts)}{has_query}{'&'.join(pairs)}"


def _mask_named(name: str, value: str) -> str:
    """Return ``name: value``, with a secret value masked."""
    is_hidden = looks_secret(name) and "$" not in value
    return f"{name}: {MASK if is_hidden else mask_url(value) if '://' in value and '@' in value else value}"


def _mask_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{name}={value if _is_reference(value) else MASK}" if equals else MASK if pair else ""


def _is_reference(value: str) -> bool:
    """Whether the value is only a reference to a variable, without a default."""
    for scheme in ("Bearer ", "Basic ", "Token "):
        value = value.removeprefix(scheme)
    return value.startswith("${") and value.endswith("}") and value.count("$") == 1 and ":-" not in value


def _looks_like_key(text: str) -> bool:
    if text.startswith(_SECRET_STARTS) and len(text) >= _MIN_KEY_LENGTH:
        return True
    return (
        len(text) >= _MIN_KEY_LENGTH
        and text.isascii()
        and all(character.isalnum() or character in "-_" for character in text)
        and any(character.isdigit() for character in text)
        and any(character.isupper() for character in text)
        and any(character.islower() for character in text)
    )


# --- Entries ---

Transport: TypeAlias = Literal["stdio", "http", "sse"]


class Input(msgspec.Struct, frozen=True):
    """A value that the user is asked for when a server needs it, as VS Code defines inputs."""

    id: str
    description: str = ""
    default: str | None = None
    is_secret: bool = False
    #: The choices; empty if any text is allowed.
    options: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that can provide the value."""
        return "MCPLUMB_INPUT_" + "".join(c.upper() if c.isascii() and c.isalnum() else "_" for c in self.id)


class ResolvedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry with all variables replaced and all paths absolute."""

    #: The program and its arguments; empty for a server with a URL.
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    #: The variables of the env file, which are also in ``env``, and a digest of that file.
    env_file: dict[str, str] = {}
    env_file_digest: str = ""

    def __repr__(self) -> str:
        return f"<{'url' if self.url else 'command'} with {len(self.env)} variables, {len(self.headers)} headers>"


class ServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A server of a config file, which `connect` accepts. Values are as written, with their variables."""

    name: str
    #: The path of the config file.
    source: str
    dialect: Dialect
    scope: Scope
    #: The folder that relative paths and ``${workspaceFolder}`` refer to.
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
    #: Whether the file disables it for its own program; mcplumb can use it all the same.
    disabled: bool = False
    #: The inputs that the file defines, and the values given for them, by id.
    inputs: tuple[Input, ...] = ()
    answers: dict[str, str] = {}
    #: The entry as it is in the file.
    raw: dict[str, Any] = {}

    def __repr__(self) -> str:
        # Values may be secrets, so they are left out.
        return f"<ServerEntry {self.name!r} of {self.source}>"

    def connect_arguments(self) -> tuple[str | list[str], dict[str, Any]]:
        """Return the target and the options for `connect`; raise `ConfigError` if the entry cannot be used.

        A project's server that the user has not agreed to raises `NotTrusted`.
        """
        preview = self.preview() if self.scope == "project" else None
        if preview is not None and not is_trusted(self.digest(preview)):
            raise self._not_trusted()
        resolved = self.resolve()
        # The env file may have changed since the check: only the checked contents may be used.
        if preview is not None and preview.env_file_digest != resolved.env_file_digest:
            raise self._not_trusted()
        options: dict[str, Any] = {}
        if resolved.url is None:
            if resolved.env:
                options["env"] = resolved.env
            if resolved.cwd is not None:
                options["cwd"] = resolved.cwd
            if self.inherit_env:
                options["inherit_env"] = self.inherit_env
            return list(resolved.argv), options
        if resolved.headers:
            options["headers"] = resolved.headers
        if self.transport == "sse":
            options["http_sse"] = True
        return resolved.url, options

    def preview(self) -> ResolvedEntry:
        """Resolve the entry with its inputs left as ``${input:…}``: this is what a user agrees to."""
        return self._expanded(self._expander(lambda name: f"${{input:{name}}}"))

    def actions(self, preview: ResolvedEntry) -> list[str]:
        """Return what using the server would do, as written, line by line: what a user agrees to.

        Values from the user's own environment are not shown.
        """
        import shlex

        actions = []
        if self.url is not None:
            actions.append(self.url)
        else:
            actions.append(shlex.join([self.command or "", *self.args]))
            actions.append(f"in {self.cwd or with_tilde(self.folder)}")
            if self.env_file is not None:
                actions.append(f"with the variables in {self.env_file}")
                actions += [f"  {_mask_named(name, value)}" for name, value in preview.env_file.items()]
            if isinstance(self.inherit_env, tuple):
                actions.append(f"with {', '.join(self.inherit_env)} of your environment")
            elif self.inherit_env:
                actions.append("with all variables of your environment")
        return actions + [f"with {_mask_named(name, value)}" for name, value in {**self.env, **self.headers}.items()]

    def digest(self, preview: ResolvedEntry | None = None) -> str:
        """Return a digest of the entry as written, and of the command or URL that it resolves to.

        Values that come from the user's environment, such as tokens, and values of inputs are not included: they may
        change without a new consent.
        """
        import json

        resolved = preview or self.preview()
        parts = (self.source, self.name, self.raw, resolved.argv, resolved.cwd, resolved.url, resolved.env_file_digest)
        try:
            # json writes ASCII only, so that paths that are not valid UTF-8 can be encoded.
            return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        except RecursionError:
            raise self._error("its values are nested too deeply.") from None

    def is_allowed(self) -> bool:
        """Whether the server may be used: a project's server needs the user's consent, all others do not."""
        return self.scope != "project" or is_trusted(self.digest())

    def unanswered_inputs(self) -> list[Input]:
        """Return the inputs without a value from `with_answers` or from the environment."""
        expander = self._expander()
        self._expanded(expander)
        known = {one.id: one for one in self.inputs}
        return [known.get(name) or Input(name) for name in expander.unanswered]

    def with_answers(self, answers: Mapping[str, str]) -> ServerEntry:
        """Return a copy with values for inputs, by id."""
        return msgspec.structs.replace(self, answers={**self.answers, **answers})

    def with_consent(self) -> ServerEntry:
        """Return a copy that needs no stored consent."""
        return msgspec.structs.replace(self, scope="named")

    def missing(self) -> list[str]:
        """Return the names of the environment variables that the entry needs and that are not set."""
        expander = self._expander()
        self._expanded(expander)
        return expander.missing

    def resolve(self) -> ResolvedEntry:
        """Resolve the entry; raise `ConfigError` if a variable is not set, or an input or a file is missing."""
        expander = self._expander()
        resolved = self._expanded(expander)
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
        if resolved.url is not None:
            self._check_address(resolved.url, resolved.headers)
        return resolved

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
                data: bytes | None = b""  # the path is incomplete; the caller reports what is missing
            else:
                data = read_file(file) if os.path.isfile(file) else None
            if data is None:
                raise self._error(f"there is no file {file}.", "envFile")
            from_file = parse_env_file(data, file)
            digest = hashlib.sha256(data).hexdigest()
        env = from_file | {name: value(text, f"env.{name}") for name, text in self.env.items()}
        program = os.path.expanduser(value(self.command or "", "command"))
        argv = (program, *(value(text, "args") for text in self.args))
        # A project's server starts in the project, as in other programs. The user's own start in the current folder.
        cwd = path(self.cwd, "cwd") if self.cwd is not None else self.folder if self.scope != "user" else None
        return ResolvedEntry(argv=argv, env=env, cwd=cwd, env_file=from_file, env_file_digest=digest)

    def _check_address(self, url: str, headers: Mapping[str, str]) -> None:
        try:
            address = read_address(url)
        except UsageError as error:
            raise self._error(str(error).replace(repr(url), repr(mask_url(url))), "url") from None
        if address is None:
            raise self._error("it is not an address: it must begin with http:// or https://.", "url")
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
