"""The software of third parties that ``make interop-wild`` runs: one table, with exact versions.

``python -m tests.interop.wild.software`` installs all of it. What cannot be installed is reported, and its tests are
skipped with that reason. The docs list the rows of these tables (``make docs``).
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.environments import (
    CACHE,
    FASTMCP_4,
    PYTHON_V2,
    TYPESCRIPT_V1,
    Environment,
    NotInstalled,
    say,
)
from tests.interop.visiting import LEGACY, MODERN

PROGRAMS = Path(__file__).parents[1]
#: Our own server, which the clients use, and which the proxies and bridges stand in front of.
OWN_SERVER = (sys.executable, str(PROGRAMS / "server.py"))

#: At most so many are installed at the same time: each is mostly downloads, but some unpack thousands of files.
MOST_AT_ONCE = 4


class Call(NamedTuple):
    """A call that changes nothing and needs neither a network nor anything that has to be prepared."""

    tool: str
    arguments: dict[str, Any]
    #: A part of the text that it returns.
    text: str


class ThirdPartyServer(NamedTuple):
    package: str
    environment: Environment
    #: The program of the package and its arguments. ``{scratch}`` is an empty folder.
    program: tuple[str, ...]
    #: What the client and the server agree on.
    revision: str
    call: Call | None

    def __str__(self) -> str:
        return self.package.rpartition("/")[2]

    def command(self, scratch: Path) -> list[str]:
        """Install the server if need be, and return its command: that of ``npx`` for a package of npm."""
        program, *arguments = (part.format(scratch=scratch) for part in self.program)
        if self.environment.is_python:
            return [self.environment.executable(program), *arguments]
        return ["npx", "--no", program, *arguments]

    def folder(self, scratch: Path) -> Path:
        """The folder to start it in: ``npx`` looks for the program there."""
        return scratch if self.environment.is_python else self.environment.made()


class ThirdPartyClient(NamedTuple):
    package: str
    environment: Environment
    #: Our program that uses it, or the program of the package.
    program: str
    #: What the tests do with it, for the docs.
    runs: str

    def __str__(self) -> str:
        return self.package.rpartition("/")[2]


def npm(package: str, version: str) -> Environment:
    return Environment(f"npm_{package.lstrip('@').replace('/', '_')}", (f"{package}@{version}",))


def pypi(package: str, version: str, *others: str) -> Environment:
    return Environment(f"pypi_{package.partition('[')[0]}", (f"{package}=={version}", *others))


SERVERS = [
    ThirdPartyServer(
        "@modelcontextprotocol/server-everything",
        TYPESCRIPT_V1,
        ("mcp-server-everything",),
        LEGACY,
        Call("echo", {"message": "hello"}, "Echo: hello"),
    ),
    ThirdPartyServer(
        "@modelcontextprotocol/server-filesystem",
        TYPESCRIPT_V1,
        ("mcp-server-filesystem", "{scratch}"),
        LEGACY,
        Call("list_allowed_directories", {}, "Allowed directories:"),
    ),
    ThirdPartyServer(
        "@modelcontextprotocol/server-memory",
        TYPESCRIPT_V1,
        ("mcp-server-memory",),
        LEGACY,
        Call("search_nodes", {"query": "nobody has this name"}, '"entities": []'),
    ),
    ThirdPartyServer(
        "@modelcontextprotocol/server-sequential-thinking",
        npm("@modelcontextprotocol/server-sequential-thinking", "2026.8.31"),
        ("mcp-server-sequential-thinking",),
        LEGACY,
        Call(
            "sequentialthinking",
            {"thought": "One.", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False},
            '"thoughtHistoryLength": 1',
        ),
    ),
    ThirdPartyServer(
        "shadcn",
        npm("shadcn", "4.23.0"),
        ("shadcn", "mcp"),
        MODERN,
        Call("get_audit_checklist", {}, "Component Audit Checklist"),
    ),
    ThirdPartyServer(
        "@upstash/context7-mcp",
        npm("@upstash/context7-mcp", "4.1.1"),
        ("context7-mcp",),
        MODERN,
        None,
    ),
    ThirdPartyServer(
        "mongodb-mcp-server",
        npm("mongodb-mcp-server", "3.0.4"),
        ("mongodb-mcp-server",),
        MODERN,
        Call("list-connections", {}, "There are no active connections."),
    ),
    ThirdPartyServer("@playwright/mcp", npm("@playwright/mcp", "0.0.83"), ("playwright-mcp",), LEGACY, None),
    ThirdPartyServer(
        "mcp-server-kubernetes",
        npm("mcp-server-kubernetes", "4.1.7"),
        ("mcp-server-kubernetes",),
        LEGACY,
        Call("ping", {}, ""),
    ),
    ThirdPartyServer("nx-mcp", npm("nx-mcp", "0.25.0"), ("nx-mcp", "{scratch}"), LEGACY, None),
    ThirdPartyServer(
        "mcp-server-time",
        PYTHON_V2,
        ("mcp-server-time", "--local-timezone", "Europe/Oslo"),
        MODERN,
        Call(
            "convert_time",
            {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            '"time_difference": "+9.0h"',
        ),
    ),
    ThirdPartyServer("mcp-server-git", PYTHON_V2, ("mcp-server-git",), MODERN, None),
    ThirdPartyServer(
        "mcp-server-fetch",
        pypi("mcp-server-fetch", "2026.10.24", "mcp==2.3.0"),
        ("mcp-server-fetch",),
        MODERN,
        None,
    ),
    ThirdPartyServer(
        "mcp-server-sqlite",
        # It was written for the first version of the SDK, and does not say so.
        pypi("mcp-server-sqlite", "2025.4.25", "mcp==1.30.0"),
        ("mcp-server-sqlite", "--db-path", "{scratch}/notes.db"),
        LEGACY,
        Call("list_tables", {}, "[]"),
    ),
    ThirdPartyServer(
        "mcp-simple-arxiv",
        pypi("mcp-simple-arxiv", "0.6.0", "fastmcp==2.14.7", "mcp==1.30.0"),
        ("mcp-simple-arxiv",),
        LEGACY,
        None,
    ),
    ThirdPartyServer(
        "fastmcp (proxy)",
        FASTMCP_4,
        ("python", str(PROGRAMS / "servers" / "fastmcp_proxy.py"), *OWN_SERVER),
        MODERN,
        Call("greet", {"name": "Åse"}, "Hello, Åse!"),
    ),
]

CLIENTS = [
    INSPECTOR := ThirdPartyClient(
        "@modelcontextprotocol/inspector",
        npm("@modelcontextprotocol/inspector", "2.12.0"),
        "mcp-inspector",
        "its command line, over stdio and Streamable HTTP, in both eras",
    ),
    LANGCHAIN := ThirdPartyClient(
        "langchain-mcp-adapters",
        pypi("langchain-mcp-adapters", "0.3.2", "langchain-core==1.7.2", "mcp==1.30.0"),
        "langchain_adapters.py",
        "over stdio and Streamable HTTP, with progress, and with a session for each call",
    ),
    PYDANTIC_AI := ThirdPartyClient(
        "pydantic-ai",
        pypi("pydantic-ai-slim[mcp]", "2.66.0", "fastmcp-slim==4.2.0", "mcp==2.3.0"),
        "pydantic_ai_agent.py",
        "over stdio and Streamable HTTP, with progress, and by an agent",
    ),
    OPENAI_AGENTS := ThirdPartyClient(
        "openai-agents",
        pypi("openai-agents", "0.24.0", "mcp==2.3.0"),
        "openai_agents_sdk.py",
        "over stdio and Streamable HTTP",
    ),
    MCP_REMOTE := ThirdPartyClient(
        "mcp-remote",
        npm("mcp-remote", "0.15.1"),
        "mcp-remote",
        "between an mcplumb client (stdio) and server (Streamable HTTP), in both eras, with progress",
    ),
    SUPERGATEWAY := ThirdPartyClient(
        "supergateway",
        npm("supergateway", "4.0.0"),
        "supergateway",
        "between an mcplumb client (stdio) and server (Streamable HTTP, HTTP+SSE), which drops progress; and between a "
        "client (Streamable HTTP stateless and stateful, HTTP+SSE) and a server (stdio)",
    ),
    MCP_PROXY := ThirdPartyClient(
        "mcp-proxy",
        # It was written for the first version of the SDK, and does not say so.
        pypi("mcp-proxy", "0.13.0", "mcp==1.30.0"),
        "mcp-proxy",
        "between the official SDKs, in the table that compares bridges",
    ),
]


def environments() -> list[Environment]:
    """Every environment that the tables name, once."""
    # The list of tools that a client of ours gets is compared with the one that the official client gets.
    rows: list[ThirdPartyServer | ThirdPartyClient] = [*SERVERS, *CLIENTS]
    return list(dict.fromkeys([PYTHON_V2, *(row.environment for row in rows)]))


def version(row: ThirdPartyServer | ThirdPartyClient) -> str:
    """The version of the row's package, as its environment names it."""
    name = row.package.partition(" ")[0]
    for requirement in row.environment.without_dependencies + row.environment.packages:
        package, _, found = requirement.replace("==", "@").rpartition("@")
        if package.partition("[")[0] in (name, f"{name}-slim"):
            return found
    raise LookupError(f"The environment {row.environment.name} has no package {name}.")


def packages_below(row: ThirdPartyServer | ThirdPartyClient) -> list[str]:
    """The other packages of the row's environment that have a version: the SDKs that its package is built on."""
    name = row.package.partition(" ")[0]
    pinned = dict(each.replace("==", "@").rpartition("@")[::2] for each in row.environment.packages)
    return [
        f"{package} {found}" for package, found in pinned.items() if package in ("mcp", "fastmcp") and package != name
    ]


def install(environment: Environment, cache: Path = CACHE) -> None:
    """Install an environment, or say why that cannot be done."""
    try:
        environment.made(cache)
    except NotInstalled as error:
        say(f"{environment} cannot be installed, and its tests are skipped: {error}")


def main() -> None:
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        list(pool.map(install, environments()))


if __name__ == "__main__":
    main()
