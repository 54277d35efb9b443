"""The rows of the matrix: our client with their server, their client with our server, and both through our bridge.

A row is a visit, as in the table of the bridge: one client tries every feature on one server. What they do differently
is written by us with each SDK (`tests/interop/servers`, `tests/interop/bridge/clients`, `tests/interop/go`, …).
"""

from __future__ import annotations

from typing import NamedTuple

from mcplumb.version import __version__
from tests.interop.bridge.fidelity import ERAS, OWN, REFERENCE, SDK_SERVERS, Cell, Era, Visit
from tests.interop.bridge.products import MCPLUMB, NO_BRIDGE, Binding
from tests.interop.environments import (
    FASTMCP_3,
    FASTMCP_4,
    PYTHON_V1,
    PYTHON_V2,
    TYPESCRIPT_V1,
    TYPESCRIPT_V2,
    Environment,
)
from tests.interop.toolchains import PROJECTS
from tests.interop.wild.software import INSPECTOR, version


class Peer(NamedTuple):
    """An SDK or a program, and the eras in which its server and its client are tried."""

    #: As visits name it.
    name: str
    title: str
    server_eras: tuple[Era, ...] = ERAS
    client_eras: tuple[Era, ...] = ERAS
    #: Those that its server has.
    bindings: tuple[Binding, ...] = ("stdio", "http")


def _version(environment: Environment) -> str:
    """Return the version of the package that an environment is named after: the first one."""
    return environment.packages[0].replace("==", "@").rpartition("@")[2]


def _version_in(environment: Environment, package: str) -> str:
    """Return the version of a package of an environment."""
    [found] = [each for each in environment.packages if package in each]
    return found.replace("==", "@").rpartition("@")[2]


#: The reference servers that have only this binding, with the newest era that they know.
_OVER_STDIO: tuple[tuple[str, Environment, Era], ...] = (
    ("server-filesystem", TYPESCRIPT_V1, "legacy"),
    ("server-memory", TYPESCRIPT_V1, "legacy"),
    ("mcp-server-time", PYTHON_V2, "modern"),
)

#: The newest versions of both SDKs know both eras, but our full servers for them refuse the legacy one: it is tried
#: with the first versions.
PEERS = (
    Peer(PYTHON_V1.name, f"Python SDK {_version(PYTHON_V1)}", ("legacy",), ("legacy",)),
    Peer(PYTHON_V2.name, f"Python SDK {_version(PYTHON_V2)}", ("modern",)),
    Peer(TYPESCRIPT_V1.name, f"TypeScript SDK {_version(TYPESCRIPT_V1)}", ("legacy",), ("legacy",)),
    Peer(TYPESCRIPT_V2.name, f"TypeScript SDK {_version(TYPESCRIPT_V2)}", ("modern",)),
    *(Peer(project.name, str(project), project.eras, project.eras) for project in PROJECTS),
    Peer(FASTMCP_3.name, f"FastMCP {_version(FASTMCP_3)}", ("legacy",), ("legacy",)),
    Peer(FASTMCP_4.name, f"FastMCP {FASTMCP_4.without_dependencies[0].rpartition('=')[2]}", ("modern",)),
    Peer("server-everything", f"server-everything {_version_in(TYPESCRIPT_V1, 'server-everything')}", ("legacy",), ()),
    *(
        Peer(name, f"{name} {_version_in(environment, name)}", (era,), (), ("stdio",))
        for name, environment, era in _OVER_STDIO
    ),
    Peer(INSPECTOR.program, f"MCP Inspector {version(INSPECTOR)}", ()),
)
TITLES = {OWN: f"mcplumb {__version__}"} | {peer.name: peer.title for peer in PEERS}
assert SDK_SERVERS.keys() | REFERENCE.keys() <= TITLES.keys()

DIRECT: tuple[tuple[Binding, Binding], ...] = (("stdio", "stdio"), ("http", "http"))
#: Through the bridge, the two ends use different bindings.
BRIDGED: tuple[tuple[Binding, Binding], ...] = (("stdio", "http"), ("http", "stdio"))


def server_visits(peer: Peer) -> list[Visit]:
    """Our client with their server."""
    return [
        Visit(Cell(NO_BRIDGE, era, era, front, back), OWN, peer.name)
        for era in peer.server_eras
        for front, back in DIRECT
        if back in peer.bindings
    ]


def client_visits(peer: Peer) -> list[Visit]:
    """Their client with our server."""
    return [
        Visit(Cell(NO_BRIDGE, era, era, front, back), peer.name, OWN)
        for era in peer.client_eras
        for front, back in DIRECT
    ]


def bridged_server_visits(peer: Peer) -> list[Visit]:
    """Our client with their server, through our bridge."""
    return [
        Visit(Cell(MCPLUMB, client_era, era, front, back), OWN, peer.name)
        for era in peer.server_eras
        for client_era in ERAS
        for front, back in BRIDGED
        if back in peer.bindings
    ]


def bridged_client_visits(peer: Peer) -> list[Visit]:
    """Their client with our server, through our bridge."""
    return [
        Visit(Cell(MCPLUMB, era, server_era, front, back), peer.name, OWN)
        for era in peer.client_eras
        for server_era in ERAS
        for front, back in BRIDGED
    ]


#: The parts of the page, with their visits.
PARTS = {
    "mcplumb's client with other servers": server_visits,
    "Other clients with mcplumb's server": client_visits,
    "mcplumb's client with other servers, through the bridge": bridged_server_visits,
    "Other clients with mcplumb's server, through the bridge": bridged_client_visits,
}
VISITS = [visit for visits in PARTS.values() for peer in PEERS for visit in visits(peer)]


def peer_of(visit: Visit) -> str:
    """Return the name of the one that is not ours."""
    return visit.client if visit.server == OWN else visit.server
