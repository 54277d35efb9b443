"""What an import of mcplumb loads. Not a timing: a list, which is the same on every machine."""

from __future__ import annotations

import subprocess
import sys

from tests.repo.source import modules
from tests.repo.test_layers import LAYERS, PURE

# Everything below may be loaded by ``import mcplumb``, and nothing else of the package.
OWN = {"mcplumb", "mcplumb.errors", "mcplumb.version"}
# The one dependency of the core, and what it brings: its typing helpers use typing_extensions where there is one.
THIRD_PARTY = {"msgspec", "typing_extensions"}

# Each of these costs a start-up milliseconds, and none of them is needed to begin. ``inspect`` and ``uuid`` are not
# here, because msgspec loads them by itself.
HEAVY = {
    "asyncio", "concurrent", "dataclasses", "email", "hashlib", "http", "json", "logging", "multiprocessing",
    "pathlib", "random", "secrets", "selectors", "socket", "ssl", "subprocess", "tempfile", "threading",
    "urllib", "xml", "aiohttp", "click", "httptools", "jsonschema_rs", "opentelemetry", "pydantic", "rich",
    "uvicorn", "uvloop",
}  # fmt: skip
# The modules of the lower layers that need more. They are loaded when a server seals something, a client signs in, or
# several servers are used as one.
HEAVY_MODULES = {
    "protocol.group_routing": {"hashlib"},
    "protocol.sealed_request_state": {"hashlib"},
    "protocol.oauth.access_tokens": {"urllib"},
    "protocol.oauth.client_identity": {"urllib"},
    "protocol.oauth.discovery": {"urllib"},
    "protocol.oauth.flow": {"hashlib", "urllib"},
    "protocol.oauth.steps": {"urllib"},
    "protocol.oauth.tokens": {"urllib"},
}


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has after running ``code``, without those that it starts with."""
    program = f"import sys; before = set(sys.modules); exec({code!r}); print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def tops(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def foreign(names: set[str]) -> set[str]:
    return {top for top in tops(names) if top not in sys.stdlib_module_names} - {"mcplumb"}


def test_importing_the_package_loads_these_modules_only() -> None:
    names = loaded("import mcplumb")
    assert {name for name in names if name.partition(".")[0] == "mcplumb"} == OWN
    assert foreign(names) <= THIRD_PARTY
    assert tops(names) & HEAVY == set()


# A server with a tool of each kind, and what it needs to run on stdio.
SERVER = """
import mcplumb
server = mcplumb.Server("x")
@server.tool
async def one(number: int) -> str: ...
@server.tool
def other(ctx: mcplumb.Context, names: list[str] = []) -> dict[str, int]: ...
"""
RUN = "import mcplumb.server.run, mcplumb.server.server_session, mcplumb.transports.stdio"


def test_a_server_that_does_not_run_yet_loads_no_asyncio() -> None:
    """``Server.run`` loads it in its own way, without OpenSSL, if nothing has loaded it before."""
    names = loaded(SERVER)
    assert "mcplumb.server.server" in names
    assert tops(names) & {"asyncio", "logging", "ssl"} == set()


def test_a_server_loads_no_payloads_that_it_does_not_use() -> None:
    names = loaded(SERVER + RUN)
    assert "mcplumb.types.tools" in names
    assert not names & {f"mcplumb.{name}" for name in ("types.client_features", "types.prompts")}
    assert "mcplumb.server.dispatch.client_input" not in names


def test_a_server_on_stdio_loads_asyncio_and_msgspec_and_hardly_anything_else() -> None:
    names = loaded(SERVER + RUN)
    own = {name for name in names if name.startswith("mcplumb.")}
    assert {"mcplumb.server.server_session", "mcplumb.transports.fd_connection"} <= own
    unwanted = (
        *("mcplumb.client", "mcplumb.cli", "mcplumb.protocol.sealed_request_state", "mcplumb.transports.http"),
        *("mcplumb.protocol.principal", "mcplumb.protocol.oauth", "mcplumb.server.dispatch.scope_check"),
    )
    assert not {name for name in own if name.startswith(unwanted)}
    assert names - own - loaded("import asyncio, msgspec") <= {
        "mcplumb", "bisect", "_bisect", "importlib.util", "importlib._abc",
    }  # fmt: skip


def test_a_server_over_http_loads_no_cryptography_without_a_verifier() -> None:
    names = loaded(SERVER + "server.asgi(mcplumb.HttpOptions(tokens=('x',)))")
    assert "mcplumb.transports.http_server.auth.bearer" in names
    assert tops(names) & {"joserfc", "cryptography", "aiohttp"} == set()


def test_no_module_of_the_lower_layers_loads_anything_heavy() -> None:
    light = [name for name, _ in modules() if name and name not in HEAVY_MODULES and LAYERS[name.split(".")[0]] <= PURE]
    names = loaded("\n".join(f"import mcplumb.{name}" for name in light))
    assert {f"mcplumb.{name}" for name in light} <= names
    assert foreign(names) <= THIRD_PARTY
    assert tops(names) & HEAVY == set()


def test_the_exceptions_are_what_they_say() -> None:
    for name, heavy in HEAVY_MODULES.items():
        assert tops(loaded(f"import mcplumb.{name}")) & HEAVY == heavy


def test_the_guard_sees_what_is_loaded() -> None:
    names = loaded("import json.decoder, mcplumb.protocol.transition_table")
    assert {"json.decoder", "mcplumb.protocol.transition_table", "msgspec"} <= names
    assert "sys" not in names
    assert "msgspec" in foreign(names)
