"""Who takes part: floors, mcplumb, and peers in exact versions, each with a server, a client, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NamedTuple

from bench.environments import (
    CONTENDERS,
    NotInstalled,
    compiled,
    go_program,
    node_with,
    pin,
    python_with,
    rust_program,
)

__all__ = [
    "BARE",
    "BLOCKING",
    "FLOOR",
    "GO",
    "LOOP",
    "MINIMAL",
    "OFFICIAL",
    "OURS",
    "PEERS",
    "PLAIN",
    "RUST",
    "Contender",
    "Lineup",
    "lineup",
    "program",
    "without",
]

FLOOR, MINIMAL, BARE, LOOP = "C", "minimal Python", "bare", "bare on asyncio"
OURS, PLAIN, BLOCKING = "mcplumb", "mcplumb, plain", "mcplumb, sync"
OFFICIAL = "mcp 2.3.0"
GO, RUST = "Go SDK 1.8.0", "rmcp 3.8.0"
MODERN_ONLY, LEGACY_ONLY = ("modern",), ("legacy",)


class Contender(NamedTuple):
    """Someone who takes part."""

    name: str
    #: The commands that start its server and its client over stdio, if it has them.
    server: Sequence[str] = ()
    client: Sequence[str] = ()
    #: What it speaks, and what is measured first.
    eras: Sequence[str] = ("modern", "legacy")
    #: What it came with, for whoever wants to measure the same.
    versions: str = ""

    @property
    def is_peer(self) -> bool:
        """Whether it is neither ours nor a floor. A variant is named after a comma."""
        return self.name.partition(",")[0] in PEERS


class Lineup(NamedTuple):
    """All who take part, and why others do not."""

    contenders: Sequence[Contender]
    absent: dict[str, str]
    with_peers: bool

    def servers(self, era: str) -> list[Contender]:
        """Those with a server that speaks so."""
        return [each for each in self.contenders if each.server and era in each.eras]

    def clients(self, era: str) -> list[Contender]:
        """Those with a client that speaks so."""
        return [each for each in self.contenders if each.client and era in each.eras]


def lineup(*, peers: bool) -> Lineup:
    """The floors and mcplumb, and the peers if they are wanted. Who cannot be installed is named and left out."""
    contenders: list[Contender] = []
    absent: dict[str, str] = {}
    for name, made in {**HOME_TEAM, **(PEERS if peers else {})}.items():
        try:
            contenders.append(made(name))
        except NotInstalled as error:
            absent[name] = str(error)
            print(f"==> {name} does not take part: {error}", flush=True)
    return Lineup(contenders, absent, peers)


def program(environment: str, file: str) -> list[str]:
    """The command of a program in Python, with the packages of an environment."""
    return [python_with(environment), str(CONTENDERS / f"{file}.py")]


def bare(name: str) -> Contender:
    versions = f"msgspec {pin('mcplumb', 'msgspec')}"
    return Contender(name, program("mcplumb", "bare"), program("mcplumb", "bare_client"), versions=versions)


def loop(name: str) -> Contender:
    return bare(name)._replace(
        server=program("mcplumb", "loop"), client=program("mcplumb", "loop_client"), eras=MODERN_ONLY
    )


def floor(name: str) -> Contender:
    return Contender(name, [compiled("floor")], versions="cc -O2")


def ours(name: str) -> Contender:
    versions = f"mcplumb {version('mcplumb')}, msgspec {pin('mcplumb', 'msgspec')}"
    return Contender(name, program("mcplumb", "ours"), program("mcplumb", "ours_client"), versions=versions)


def without(tricks: str, name: str) -> Contender:
    """Return mcplumb with some of its speed tricks switched off, as ``MCPLUMB_PLAIN`` takes their names."""
    made = ours(name)
    switch = ["env", f"MCPLUMB_PLAIN={tricks}"]
    return made._replace(server=[*switch, *made.server], client=[*switch, *made.client])


def plain(name: str) -> Contender:
    return without("1", name)


def blocking(name: str) -> Contender:
    return ours(name)._replace(server=(), client=program("mcplumb", "ours_sync_client"))


def python_peer(server: str, client: str, eras: Sequence[str] = ("modern", "legacy")) -> Callable[[str], Contender]:
    def made(name: str) -> Contender:
        home = name.replace(" ", "-")
        versions = ", ".join(f"{each} {pin(home, each)}" for each in ("pydantic", "anyio"))
        return Contender(name, program(home, server), program(home, client), eras, versions)

    return made


def typescript(major: str, eras: Sequence[str] = ("modern", "legacy")) -> Callable[[str], Contender]:
    def made(name: str) -> Contender:
        server, client = (
            node_with(f"typescript-{major}", f"typescript_{major}_{end}.mjs") for end in ("server", "client")
        )
        return Contender(name, server, client, eras, "Node.js")

    return made


def native(program: Callable[[str], str], home: str, toolchain: str) -> Callable[[str], Contender]:
    """A contender whose one program is both its server and its client."""

    def made(name: str) -> Contender:
        path = program(home)
        return Contender(name, [path, "server"], [path, "client"], versions=f"{toolchain}, a release build")

    return made


HOME_TEAM: dict[str, Callable[[str], Contender]] = {
    FLOOR: floor,
    BARE: bare,
    LOOP: loop,
    OURS: ours,
    PLAIN: plain,
    BLOCKING: blocking,
}
PEERS: dict[str, Callable[[str], Contender]] = {
    OFFICIAL: python_peer("official", "official_client"),
    "mcp 1.30.0": python_peer("official_v1", "official_v1_client", LEGACY_ONLY),
    "fastmcp 4.1.4": python_peer("fastmcp_server", "fastmcp_client"),
    "TypeScript 2.4.0": typescript("v2"),
    "TypeScript 1.32.2": typescript("v1", LEGACY_ONLY),
    GO: native(go_program, "go-sdk", "Go"),
    RUST: native(rust_program, "rmcp", "Rust"),
}
