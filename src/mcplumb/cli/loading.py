"""Finding the server in a file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from mcplumb.errors import McplumbError, UsageError
from mcplumb.server.server import Server

__all__ = ["CannotLoad", "find_file", "is_own", "load_server", "reason"]


class CannotLoad(UsageError):
    """There is a file, but no server to be had from it. The cause is what it raised, if it did."""


def load_server(target: str) -> Server:
    """The server that ``FILE`` or ``FILE:NAME`` says; `CannotLoad` if it cannot be had, or UsageError."""
    path, name = find_file(target)
    module, run = _imported(path)
    if run is not None and not name:
        return run
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, Server):
            what = "has no" if found is None else f"has a {type(found).__name__}, and no Server, called"
            raise CannotLoad(f"{path} {what} {name!r}. {_hint(module)}")
        return found
    servers = _servers_in(module)
    if len(set(servers.values())) != 1:
        what = "several servers" if servers else "no server"
        raise CannotLoad(f"{path} has {what} at its top level. {_hint(module)}")
    return next(iter(servers.values()))


class _Run(BaseException):
    """The file runs its server while it is imported, and means this one."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server


def _note_run(self: Server, *_: object, **__: object) -> None:
    raise _Run(self)


def find_file(target: str) -> tuple[Path, str]:
    """The file that ``FILE`` or ``FILE:NAME`` means, and the name, if any; UsageError if there is no such file."""
    if Path(target).is_file():
        return Path(target), ""
    file, colon, name = target.rpartition(":")
    path = Path(file if colon else target)
    if not path.is_file():
        raise UsageError(f"There is no file {str(path)!r}. Give the path of a Python file that has a Server.")
    return path, name


def _imported(path: Path) -> tuple[ModuleType, Server | None]:
    """The module, and the server that it runs, if it does."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CannotLoad(f"{path} cannot be imported: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    # As for a program that is run: its neighbours can be imported.
    sys.path.insert(0, str(path.resolve().parent))
    run = Server.run
    try:
        # Many files end with server.run(), and this is what runs it.
        setattr(Server, "run", _note_run)  # noqa: B010 - a method cannot be assigned to
        spec.loader.exec_module(module)
    except _Run as noted:
        return module, noted.server
    except (Exception, SystemExit) as error:
        raise CannotLoad(f"{path} cannot be imported. {reason(error, path)}") from error
    finally:
        setattr(Server, "run", run)  # noqa: B010 - the same
    return module, None


def reason(error: BaseException, path: Path) -> str:
    """What went wrong, and on which line of the file or of one beside it, without a wall of traceback."""
    if isinstance(error, SyntaxError):
        return f"{_place(error.lineno, error.filename, path)}: {error.msg}."
    said = str(error) if isinstance(error, McplumbError) else f"{type(error).__name__}: {error}"
    folder = path.resolve().parent
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename, folder)]
    return f"{_place(frames[-1].lineno, frames[-1].filename, path)}: {said}" if frames else said


def is_own(name: str, folder: Path) -> bool:
    """Whether a file is the author's: in the folder, and not a package that is installed there."""
    file = Path(name).resolve()
    return file.is_relative_to(folder) and "site-packages" not in file.parts


def _place(line: int | None, name: str | None, path: Path) -> str:
    is_other = Path(name or path).resolve() != path.resolve()
    return f"Line {line} of {name}" if is_other else f"Line {line}"


def _servers_in(module: ModuleType) -> dict[str, Server]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Server)}


def _hint(module: ModuleType) -> str:
    names = ", ".join(repr(name) for name in _servers_in(module))
    return f"Its servers are {names}." if names else "Make one with: server = Server('name')"
