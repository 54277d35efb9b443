"""The command that starts a server: parse it, build its environment, find its program, explain why it fails.

No shell is involved. Where possible, errors are reported before anything is started.
"""

# os.path instead of pathlib, whose import would slow down every start:
# ruff: noqa: PTH109, PTH110, PTH112, PTH113, PTH114, PTH115, PTH116, PTH117, PTH118, PTH123

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mcplumb.errors import ConnectError, UsageError

__all__ = ["SAFE_VARIABLES", "Command", "find_program", "is_safe", "kind_of", "read_command", "start_failure"]

#: Variables that every server inherits, if they are set; so are all ``LC_*``. None is a secret or leads to one: no
#: agent or bus sockets, and no URLs of proxies and registries, which often contain a password.
SAFE_VARIABLES = frozenset({
    # Set by every login, and passed on by the official SDKs.
    "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER",
    # Encoding, language and time zone.
    "LANG", "LANGUAGE", "TZ",
    # Temporary files: macOS has one folder per user, and npx and uvx unpack there.
    "TMPDIR",
    # Folders of uvx, npx and podman, if they are not below HOME.
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
    # Certificate authorities of a company, without which no package can be downloaded.
    "NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR", "SSL_CERT_FILE",
    # The Docker daemon. With only some of these, another daemon could be reached, or the same without encryption.
    "DOCKER_CERT_PATH", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_HOST", "DOCKER_TLS_VERIFY",
})  # fmt: skip
#: The prefix of functions that bash exports in variables; shells have executed what follows it (Shellshock).
_FUNCTION_PREFIX = "()"
#: The longest command that is shown, in characters.
_LONGEST_SHOWN = 200
#: The longest first line of a script in bytes, with its interpreter (the limit of Linux).
_FIRST_LINE = 256


class Command(msgspec.Struct, frozen=True):
    """A command to start. ``str`` gives it as a user could type it, truncated if it is long."""

    argv: tuple[str, ...]
    #: The complete environment of the server.
    env: dict[str, str]
    #: An absolute path, or None for the current directory of this process.
    cwd: str | None = None

    def __str__(self) -> str:
        import shlex

        text = shlex.join(self.argv)
        return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"

    def __repr__(self) -> str:
        # Without the values of variables, which may be credentials.
        return f"Command(argv={self.argv!r}, env=<{len(self.env)} variables>, cwd={self.cwd!r})"


def read_command(
    target: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    inherit_env: bool | Iterable[str] = False,
    cwd: str | os.PathLike[str] | None = None,
) -> Command:
    """Parse a command; raise `UsageError` if it is invalid.

    A list has the program and each argument as an item. A string is split at white space; quotes and backslashes work
    as in a POSIX shell. No other character is special: ``|``, ``>``, ``&&``, ``$NAME``, ``*`` and ``~`` reach the
    server unchanged. To use a shell, name it: ``["sh", "-c", "a | b"]``. A path object is a program without arguments.

    The server inherits the `SAFE_VARIABLES` of this process and those that ``inherit_env`` names; with True it inherits
    all. ``env`` adds or replaces single variables. A relative ``cwd`` is relative to the current directory at the time
    of this call.
    """
    argv = _read_argv(target)
    variables = _inherited(inherit_env)
    if env is not None:
        if not isinstance(env, Mapping):
            raise UsageError(f"env is {kind_of(env)}: give a mapping of names to values.")
        for name, value in env.items():
            variables[_variable(name)] = _text(value, f"The value of {name} in env")
    return Command(argv, variables, None if cwd is None else _read_cwd(cwd))


def find_program(command: Command) -> str:
    """Return the absolute path of the command's program; raise `ConnectError` with the reason if there is none.

    A name without a slash is searched for in the PATH that the server gets. Relative paths are relative to the
    directory in which it will run.
    """
    if command.cwd is not None and not os.path.isdir(command.cwd):
        problem = "is not a directory" if os.path.exists(command.cwd) else "does not exist"
        raise _failure(command, f"its directory {command.cwd} {problem}.")
    name = command.argv[0]
    if "/" in name:
        path = _from_cwd(command, name)
        if problem := _problem(path):
            raise _failure(command, f"{path} {problem}{_no_shell(name)}{_address_hint(name)}")
        return path
    folders = command.env.get("PATH", os.defpath).split(os.pathsep)
    blocked = None
    for folder in folders:
        path = _from_cwd(command, os.path.join(folder, name))
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            blocked = blocked or path
    if blocked is not None:
        raise _failure(command, f"{blocked} {_problem(blocked)}")
    searched = ", ".join(folder or "(the current directory)" for folder in folders)
    raise _failure(command, f"there is no {name!r} in the PATH that it gets: {searched}.{_suggestion(command)}")


def start_failure(command: Command, program: str, error: OSError) -> ConnectError:
    """Return the error for a program that was found but could not be started."""
    number = error.errno
    if error.filename is not None and error.filename == command.cwd:
        return _failure(command, f"its directory {command.cwd} cannot be entered: {error.strerror}.")
    if number == errno.ENOENT:
        return _failure(command, _missing_part(program))
    reasons = {
        errno.EACCES: f"the system does not allow {program} to be executed.",
        errno.ENOEXEC: f"{program} is neither a program for this machine nor a script that begins with '#!'.",
        errno.E2BIG: "its arguments and its environment are larger than the system allows.",
        errno.EAGAIN: "the system's limit of processes is reached.",
        errno.ENOMEM: "the system is out of memory.",
        errno.EMFILE: "this process has reached its limit of open files.",
        errno.ENFILE: "the system's limit of open files is reached.",
    }
    return _failure(command, reasons.get(number or 0, f"{error.strerror or error}."))


# Parsing


def _read_argv(target: object) -> tuple[str, ...]:
    if isinstance(target, str):
        items: Sequence[object] = _split(target)
    elif isinstance(target, os.PathLike):
        items = [target]
    elif isinstance(target, Sequence) and not isinstance(target, bytes | bytearray | memoryview):
        items = target
    else:
        raise UsageError(
            f"The command is {kind_of(target)}: give a list with the program and its arguments, or a string."
        )
    argv = tuple(
        _text(os.fspath(item) if isinstance(item, os.PathLike) else item, f"Item {number} of the command")
        for number, item in enumerate(items)
    )
    if not argv or not argv[0]:
        raise UsageError("The command is empty: it must begin with a program.")
    return argv


def _split(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError as error:
        what = "a quote that is not closed" if "quotation" in str(error) else "a backslash at its end"
        raise UsageError(
            f"The command {text[:_LONGEST_SHOWN]!r} has {what}: correct it, or give a list of arguments."
        ) from None


def _read_cwd(cwd: object) -> str:
    path = _text(os.fspath(cwd) if isinstance(cwd, os.PathLike) else cwd, "cwd")
    if not path:
        raise UsageError("cwd is empty: give the path of a directory, or None for the current one.")
    # Not normalized: after a symbolic link, ``..`` does not lead back to where it seems to.
    return path if os.path.isabs(path) else os.path.join(_here(), path)


def is_safe(name: str) -> bool:
    """Return whether every server inherits the variable of this name."""
    return name in SAFE_VARIABLES or name.startswith("LC_")


def _inherited(wanted: object) -> dict[str, str]:
    own = os.environ
    if wanted is True:
        return dict(own)
    safe = {name: value for name, value in own.items() if is_safe(name) and not value.startswith(_FUNCTION_PREFIX)}
    if wanted is False:
        return safe
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise UsageError(f"inherit_env is {kind_of(wanted)}: give True, False, or a list of names.")
    return safe | {name: own[name] for name in map(_variable, wanted) if name in own}


def _variable(name: object) -> str:
    text = _text(name, "The name of a variable")
    if not text or "=" in text:
        raise UsageError(f"A variable cannot have the name {text!r}.")
    return text


def _text(value: object, what: str) -> str:
    """Return the value if it can be passed to a program. The error does not quote it: it may be a secret."""
    if not isinstance(value, str):
        raise UsageError(f"{what} is {kind_of(value)}: it must be a string.")
    if "\0" in value:
        raise UsageError(f"{what} contains a NUL character, which cannot be passed to a program.")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise UsageError(f"{what} has a character that {sys.getfilesystemencoding()} cannot encode.") from None
    return value


def kind_of(value: object) -> str:
    """Return the type of a value for an error message, such as ``an int``."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


# Finding the program


def _from_cwd(command: Command, path: str) -> str:
    """Return the absolute path that a relative one means in the command's directory."""
    if os.path.isabs(path):
        return path
    return os.path.join(command.cwd or _here(), path)


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise ConnectError("The current directory no longer exists: choose another one with cwd=.") from None


def _problem(path: str) -> str:
    """Return why a file cannot be executed; empty if it can."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno == errno.ENOENT and os.path.islink(path):
            return f"is a link to {os.readlink(path)}, which does not exist."
        return "does not exist." if error.errno == errno.ENOENT else f"cannot be reached: {error.strerror}."
    if stat.S_ISDIR(mode):
        return "is a directory, not a program."
    if not os.access(path, os.X_OK):
        return f"is not executable: allow it with 'chmod +x {path}', or start it with its interpreter."
    return ""


def _suggestion(command: Command) -> str:
    name = command.argv[0]
    path = _from_cwd(command, name)
    if os.path.isfile(path):
        start = f"./{name}" if os.access(path, os.X_OK) or not name.endswith(".py") else f"python {name}"
        return f" There is the file {path}: to start that, write {start!r}."
    if len(command.argv) == 1 and " " in name:
        return " Arguments are items of their own; or give the whole command as a string, not as a list."
    return _no_shell(name) + _address_hint(name)


def _address_hint(name: str) -> str:
    """Return how to write an address without its scheme, such as ``localhost:8000``; empty for anything else."""
    netloc, _, path = name.partition("/")
    host, _, port = netloc.rpartition(":")
    if not host or not port.isdecimal():
        return ""
    corrected = f"http://{name}" if path else f"http://{netloc}/mcp, or tcp://{netloc}"
    return f" If it is an address, write {corrected}."


def _no_shell(name: str) -> str:
    return f" No shell expands the {name[0]!r} in it." if name.startswith(("~", "$")) else ""


def _missing_part(program: str) -> str:
    """Explain ENOENT for a program that exists: its interpreter or its loader does not."""
    try:
        with open(program, "rb") as file:
            first = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return f"{program} no longer exists."
    if first.startswith(b"#!"):
        line = first.decode("utf-8", "backslashreplace")
        return f"the interpreter of the script {program} does not exist. Its first line is {line!r}."
    return f"the loader that {program} needs does not exist here: it was made for another system."


def _failure(command: Command, why: str) -> ConnectError:
    return ConnectError(f"The server {str(command)!r} could not be started: {why}")
