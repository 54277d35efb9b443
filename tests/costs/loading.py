"""Which modules are loaded, beyond those of a Python that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tests.costs.ceilings import Figures
from tests.costs.driving import driven
from tests.costs.measuring import PROGRAMS, raw_server, run
from tests.costs.messages import call

__all__ = ["LOADED", "figures_of", "loaded"]

_HELP = "from mcplumb.cli.main import main; sys.argv = ['mcplumb', '--help']; main()"


def loaded(code: str) -> set[str]:
    """What there is after running this."""
    at_exit = "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules)); "
    return set(run(["-c", at_exit + code]).decode().splitlines()[-1].split())


def _by_a_server() -> set[str]:
    with driven() as server:
        server.ask(call("modern", 1))
        answer = msgspec.json.decode(server.ask(call("modern", 2, b"echo", b'{"text":"modules"}')))
    return set(answer["result"]["content"][0]["text"].split())


def _by_a_client() -> set[str]:
    return set(run([str(PROGRAMS / "first_result.py"), *raw_server()]).decode().split())


#: What loads them, by its name in the table.
LOADED: Mapping[str, Callable[[], set[str]]] = {
    "import mcplumb": lambda: loaded("import mcplumb"),
    "server at its first answer": _by_a_server,
    "client at its first result": _by_a_client,
    "mcplumb --help": lambda: loaded(_HELP),
}


def figures_of(names: set[str]) -> Figures:
    """How many there are, and how many of the package."""
    names = names - loaded("pass")
    return {"modules": len(names), "our modules": sum(name.partition(".")[0] == "mcplumb" for name in names)}
