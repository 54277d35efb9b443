"""The bridges that the table compares: each stands between a client and a server, over the bindings that it has."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from mcplumb.version import __version__
from tests.interop.environments import FASTMCP_4, Environment
from tests.interop.wild.software import MCP_PROXY, PROGRAMS, SUPERGATEWAY, version

Binding: TypeAlias = Literal["stdio", "http", "sse", "unix", "tcp"]

#: The place of a port, in the command of a bridge.
PORT = "{port}"


class Product(NamedTuple):
    name: str
    version: str
    #: The bindings at its front and at its back that go together.
    bindings: tuple[tuple[tuple[Binding, ...], tuple[Binding, ...]], ...]
    #: Returns its command, for a front at ``PORT``, or at this Unix socket, and a back that is a command or an address.
    command: Callable[[Binding, str, Binding, list[str]], list[str]]
    #: What has to be installed; None if nothing.
    environment: Environment | None = None
    #: Where it serves Streamable HTTP.
    path: str = "/mcp"
    #: Seconds for one feature: others fail in many cells, and would take too long otherwise.
    seconds: int = 8

    def __str__(self) -> str:
        return self.name

    def joins(self, front: Binding, back: Binding) -> bool:
        """Return whether it has both bindings."""
        return any(front in fronts and back in backs for fronts, backs in self.bindings)


def _mcplumb(front: Binding, socket: str, back: Binding, server: list[str]) -> list[str]:
    doors = {
        "stdio": [],
        "http": ["--http", f"127.0.0.1:{PORT}"],
        "sse": ["--http", f"127.0.0.1:{PORT}"],
        "unix": ["--unix", socket],
        "tcp": ["--tcp", f"127.0.0.1:{PORT}"],
    }
    target = ["--", *server] if back == "stdio" else ["-s", *server]
    return [sys.executable, "-m", "mcplumb", "bridge", *doors[front], *target]


def _mcp_proxy(front: Binding, _socket: str, back: Binding, server: list[str]) -> list[str]:
    program = [MCP_PROXY.environment.executable(MCP_PROXY.program)]
    if front == "stdio":
        return [*program, "--transport", "streamablehttp" if back == "http" else "sse", *server]
    return [*program, "--port", PORT, "--", *server]


def _supergateway(front: Binding, _socket: str, back: Binding, server: list[str]) -> list[str]:
    program = [SUPERGATEWAY.environment.executable(SUPERGATEWAY.program)]
    if front == "stdio":
        return [*program, "--streamableHttp" if back == "http" else "--sse", *server, "--logLevel", "none"]
    # Without --stateful, each request has a server of its own.
    output = ["streamableHttp", "--stateful"] if front == "http" else ["sse"]
    return [*program, "--stdio", shlex.join(server), "--port", PORT, "--outputTransport", *output]


def _fastmcp(front: Binding, _socket: str, _back: Binding, server: list[str]) -> list[str]:
    place = [] if front == "stdio" else ["--serve", front, PORT]
    return [FASTMCP_4.executable("python"), str(PROGRAMS / "servers" / "fastmcp_proxy.py"), *place, *server]


_EVERYWHERE: tuple[Binding, ...] = ("stdio", "http", "sse", "unix", "tcp")
_WEB: tuple[Binding, ...] = ("http", "sse")

MCPLUMB = Product("mcplumb", __version__, ((_EVERYWHERE, _EVERYWHERE),), _mcplumb, seconds=30)
#: The client and the server alone, of the same era over the same binding: so all features have to be there.
NO_BRIDGE = Product(
    "none",
    "",
    ((("stdio",), ("stdio",)), (("http",), ("http",)), (("sse",), ("sse",))),
    lambda _front, _socket, _back, server: server,
    seconds=30,
)
OTHERS = (
    Product(
        "mcp-proxy",
        version(MCP_PROXY),
        ((_WEB, ("stdio",)), (("stdio",), _WEB)),
        _mcp_proxy,
        MCP_PROXY.environment,
        path="/mcp/",
    ),
    Product(
        "supergateway",
        version(SUPERGATEWAY),
        ((_WEB, ("stdio",)), (("stdio",), _WEB)),
        _supergateway,
        SUPERGATEWAY.environment,
    ),
    Product(
        "fastmcp",
        FASTMCP_4.without_dependencies[0].partition("==")[2],
        ((("stdio", *_WEB), ("stdio", *_WEB)),),
        _fastmcp,
        FASTMCP_4,
    ),
)
PRODUCTS = (MCPLUMB, *OTHERS)
