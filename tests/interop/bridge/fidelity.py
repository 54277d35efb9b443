"""The fidelity table: which features cross a bridge, for each pair of eras and each pair of bindings.

A visit is one client, written with one SDK, which tries every feature through a bridge on one server, written with
another. A cell of the table passes if it did so in every visit.

`tests.interop.bridge.table` makes all visits and writes the table for the docs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from tests.interop.bridge.products import MCPLUMB, NO_BRIDGE, Binding, Product
from tests.interop.environments import PYTHON_V1, PYTHON_V2, TYPESCRIPT_V1, TYPESCRIPT_V2, Environment
from tests.interop.sdk_servers import FAST_3, FAST_4, TS_1, TS_2, V1, V2, SdkServer
from tests.interop.serving import NoPort, serving
from tests.interop.tapping import tapped
from tests.interop.toolchains import PROJECTS, Project
from tests.interop.visiting import LEGACY, MODERN
from tests.interop.wild.software import INSPECTOR

Era: TypeAlias = Literal["legacy", "modern"]

CLIENTS = Path(__file__).parent / "clients"
OWN_SERVER = Path(__file__).parents[1] / "server.py"

REVISIONS: dict[Era, str] = {"legacy": LEGACY, "modern": MODERN}
ERAS: tuple[Era, ...] = ("legacy", "modern")
BINDINGS: dict[Era, tuple[Binding, ...]] = {
    "legacy": ("stdio", "http", "sse", "unix", "tcp"),
    "modern": ("stdio", "http", "unix", "tcp"),
}
SDKS: dict[Era, tuple[Environment, Environment]] = {
    "legacy": (PYTHON_V1, TYPESCRIPT_V1),
    "modern": (PYTHON_V2, TYPESCRIPT_V2),
}
#: The bindings that no SDK has: our own client and server use them.
OWN_BINDINGS = ("unix", "tcp")
OWN = "own"
SDK_SERVERS: dict[str, SdkServer] = {row.environment.name: row for row in (V1, TS_1, V2, TS_2, FAST_3, FAST_4)}
#: The SDKs of compiled languages: they are in the matrix, and not in the table.
COMPILED: dict[str, Project] = {project.name: project for project in PROJECTS}
#: The reference servers, which have tools of their own: their command, with a folder for their files.
REFERENCE: dict[str, Callable[[Path], list[str]]] = {
    "server-everything": lambda _: [TYPESCRIPT_V1.executable("mcp-server-everything")],
    "server-filesystem": lambda folder: [TYPESCRIPT_V1.executable("mcp-server-filesystem"), str(folder)],
    "server-memory": lambda folder: [
        *("env", f"MEMORY_FILE_PATH={folder / 'memory.jsonl'}"),
        TYPESCRIPT_V1.executable("mcp-server-memory"),
    ],
    "mcp-server-time": lambda _: [PYTHON_V2.executable("mcp-server-time"), "--local-timezone", "Europe/Oslo"],
}

#: Each feature, as the clients name it, with its title.
FEATURES = {
    "introduction": "name and instructions",
    "calls": "tool calls",
    "tool_errors": "tool errors",
    "protocol_errors": "protocol errors",
    "structured_content": "structured content",
    "metadata": "`_meta` of requests and results",
    "progress": "progress",
    "cancellation": "cancellation",
    "logs": "logs",
    "resources": "resources",
    "templates": "resource templates",
    "subscriptions": "subscriptions to resources",
    "list_changes": "list changes",
    "prompts": "prompts",
    "completion": "completion",
    "forms": "elicitation: forms",
    "urls": "elicitation: web pages",
    "sampling": "sampling",
    "roots": "roots",
    "pagination": "pagination",
    "extension_methods": "methods of extensions",
}
PASS = "pass"
DINNER = "Dinner is served."

#: What differs between runs in what was observed.
CHANGING = (
    (re.compile(r"(?<![\w:/.])/(?:[^\s/\"']+/)+"), ""),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1"),
    (re.compile(r"\b[0-9a-f-]{32,}\b"), "…"),
)

#: Seconds for a client.
MOST_SECONDS = 180
#: MCP Inspector starts anew for each request, more than twenty times: it may take this many times as long.
INSPECTOR_FACTOR = 5


class Cell(NamedTuple):
    """Where in the table."""

    product: Product
    client_era: Era
    server_era: Era
    front: Binding
    back: Binding

    def __str__(self) -> str:
        return f"{self.product}-{self.client_era}-{self.front}-{self.server_era}-{self.back}"


class Visit(NamedTuple):
    cell: Cell
    #: The name of the SDK, or ``OWN``.
    client: str
    server: str

    def __str__(self) -> str:
        return f"{self.cell}-{self.client}-{self.server}"


def cells(product: Product) -> list[Cell]:
    return [
        Cell(product, client_era, server_era, front, back)
        for client_era in ERAS
        for server_era in ERAS
        for front in BINDINGS[client_era]
        for back in BINDINGS[server_era]
        if product.joins(front, back)
    ]


def visits(cell: Cell) -> list[Visit]:
    """Who visits whom: of two SDKs at both ends, each meets the other language."""
    clients = _names(cell.client_era, cell.front)
    servers = _names(cell.server_era, cell.back)
    if len(clients) == len(servers) == 2:
        servers.reverse()
        return [Visit(cell, client, server) for client, server in zip(clients, servers, strict=True)]
    return [Visit(cell, client, server) for client in clients for server in servers]


def _names(era: Era, binding: Binding) -> list[str]:
    return [OWN] if binding in OWN_BINDINGS else [sdk.name for sdk in SDKS[era]]


# --- What has to be observed ---


def expected(feature: str, visit: Visit) -> Any:
    """Return what a client observes if the feature crosses."""
    if visit.server in REFERENCE:
        return True
    sdk = SDK_SERVERS.get(visit.server)
    values: dict[str, Any] = {
        "introduction": ["interop" if visit.server == OWN else "inn", "A small inn, for trying clients."],
        "calls": "Hello, Åse!",
        "tool_errors": f"error: {sdk.error_prefix if sdk else ''}The inn is full.",
        "protocol_errors": _code_of_missing(visit),
        "structured_content": {"city": "Oslo", "celsius": [0, 1]},
        "metadata": "Åse",
        "progress": [[[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]], "hiked 3 steps"],
        "cancellation": "stopped",
        "logs": ["info", {"msg": DINNER, "extra": None} if sdk and sdk.wraps_log else DINNER],
        "resources": [["interop://dot", "interop://notes"], "Bring a coat.", "iVBORw0K"],
        "templates": [["interop://cities/{city}"], "Oslo is a city."],
        "subscriptions": ["interop://notes", "Bring a hat."],
        "list_changes": [False, True],
        "prompts": [["user", "Plan a day in Oslo."]],
        "completion": [["Oslo", "Osaka"], ["Oslo", "Osaka"]],
        "forms": _forms(visit.server),
        "urls": ["payment: accept", ["Pay for the room.", "https://inn.example/pay"]],
        "sampling": ["interop-model: It is short.", ["Summarize: a long text"]],
        "roots": "file:///inn",
        "pagination": _pages(visit),
        # Version 1 of the Python SDK cannot add methods, and answers that the request is invalid.
        "extension_methods": -32602 if visit.server == PYTHON_V1.name else "Åse",
    }
    return values[feature]


def _code_of_missing(visit: Visit) -> int | str:
    """Return the code for a resource that is not there: the servers differ, and so do the eras."""
    if visit.client == INSPECTOR.program:
        return "There is no resource 'interop://nowhere'."  # It shows no code.
    if visit.server == PYTHON_V1.name:
        return 0
    if visit.server == TYPESCRIPT_V1.name or (visit.server == "go" and visit.cell.server_era == "legacy"):
        return -32602
    # The newest TypeScript SDK knows both codes, and always shows the newer one.
    shows_newer = visit.cell.client_era == "modern" or visit.client == TYPESCRIPT_V2.name
    return -32602 if shows_newer else -32002


def _pages(visit: Visit) -> list[list[str]]:
    if visit.client == INSPECTOR.program:
        return [["plan", "pack"]]  # It reads all pages, and shows them as one.
    return [["pack"], ["plan"]] if visit.server == "go" else [["plan"], ["pack"]]  # The Go SDK sorts.


def _forms(server: str) -> Any:
    if server == OWN:
        asked = ["How long do you stay in the attic?", "Book the attic?", "How long do you stay in the cellar?"]
        return [asked, ["the attic: Stay(nights=2, breakfast=True), Consent(sure=True)", "the cellar: decline"]]
    asked = ["How long do you stay in the attic?", "How long do you stay in the cellar?"]
    true = SDK_SERVERS[server].true if server in SDK_SERVERS else "true"
    return [asked, [f"the attic: 2 nights, breakfast {true}", "the cellar: decline"]]


# --- Visits ---


def outcomes(visit: Visit) -> dict[str, str]:
    """Make a visit, and return for each feature ``PASS`` or what was observed instead."""
    observed = observe(visit)
    found = {}
    for feature in FEATURES:
        seen = observed.get(feature)
        found[feature] = PASS if seen == expected(feature, visit) else _reason(seen)
    return found


def _reason(seen: Any) -> str:
    if isinstance(seen, dict) and "failed" in seen:
        said = str(seen["failed"])
    else:
        said = f"observed {json.dumps(seen, ensure_ascii=False)}"
    [line, *_] = said.splitlines() or [""]
    for pattern, replacement in CHANGING:
        line = pattern.sub(replacement, line)
    return line if len(line) <= 120 else f"{line[:119]}…"


def observe(visit: Visit) -> dict[str, Any]:
    """Run the server, the bridge and the client, and return what the client observed.

    Our own bridge has to start and to stop well, too. That others do not is not what the table is about.
    """
    observed = _all_failed("it does not start")
    try:
        with tempfile.TemporaryDirectory(prefix="fidelity-") as name, ExitStack() as stack:
            scratch = Path(name)
            server = stack.enter_context(_server(visit, scratch))
            place = stack.enter_context(_bridge(visit, server, scratch))
            is_inspector = visit.client == INSPECTOR.program
            patience = MOST_SECONDS * (INSPECTOR_FACTOR if is_inspector else 1)
            observed = observed_by([*_client(visit, scratch), *place], scratch, patience)
    except (AssertionError, NoPort, subprocess.TimeoutExpired):
        if visit.cell.product is MCPLUMB:
            raise
    return observed


def observed_by(command: list[str], home: Path, patience: int = MOST_SECONDS) -> dict[str, Any]:
    """Run a client, and return what it observed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            # The server and the client leave files for each other there.
            env={**os.environ, "HOME": str(home)},
            timeout=patience,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _all_failed(f"the client hung for {patience} s")
    print(done.stderr)  # pytest shows it if the test fails
    lines = done.stdout.splitlines()
    if not lines:
        if done.returncode < 0:
            # That says nothing about any bridge.
            raise RuntimeError(f"Somebody ended the client with {signal.Signals(-done.returncode).name}.")
        return _all_failed(f"cannot connect: {_last_error(done.stderr)}")
    observed: dict[str, Any] = json.loads(lines[-1])
    return observed


def _all_failed(why: str) -> dict[str, Any]:
    return {feature: {"failed": why} for feature in FEATURES}


def _last_error(stderr: str) -> str:
    """Return the last line that names an error, of what a client wrote before it gave up."""
    errors = [line.strip(" |+") for line in stderr.splitlines() if "Error: " in line]
    return errors[-1] if errors else "it did not say why"


@contextmanager
def _server(visit: Visit, scratch: Path) -> Iterator[list[str]]:
    """Where the bridge finds the server: a command or an address."""
    era, back = visit.cell.server_era, visit.cell.back
    folder = scratch / "server"
    folder.mkdir()
    address = "http://127.0.0.1:{port}/mcp"
    if visit.server in REFERENCE:
        files = scratch / "inn"
        files.mkdir()
        command = REFERENCE[visit.server](files)
        if back == "http":
            command = ["env", "PORT={port}", *command, "streamableHttp"]
    elif visit.server == OWN:
        address = {"unix": f"unix:{folder}/socket", "tcp": "tcp://127.0.0.1:{port}"}.get(back, address)
        command = [sys.executable, str(OWN_SERVER), era, *([] if back == "stdio" else [address])]
    elif visit.server in COMPILED:
        command = [*COMPILED[visit.server].command("server"), era, back, "{port}"]
    else:
        sdk_server = SDK_SERVERS[visit.server]._replace(way=_way(back))
        address = address.replace("/mcp", sdk_server.path)
        command = sdk_server.command(folder, is_full=True)
    if back == "stdio":
        yield tapped(command)
        return
    with serving(command, folder / "log") as server:
        yield [address.format(port=server.port)]


def _way(back: Binding) -> Literal["stdio", "http", "sse"]:
    assert back in ("stdio", "http", "sse")
    return back


@contextmanager
def _bridge(visit: Visit, server: list[str], scratch: Path) -> Iterator[list[str]]:
    """Where the client finds the bridge: a command or an address."""
    cell = visit.cell
    socket = str(scratch / "socket")
    command = cell.product.command(cell.front, socket, cell.back, server)
    if cell.product is NO_BRIDGE:
        yield command
        return
    if cell.front == "stdio":
        yield tapped(command)
        return
    with serving(command, scratch / "bridge") as bridge:
        addresses = {
            "http": bridge.url(cell.product.path),
            "sse": bridge.url("/sse"),
            "unix": f"unix:{socket}",
            "tcp": f"tcp://127.0.0.1:{bridge.port}",
        }
        yield [addresses[cell.front]]


def _client(visit: Visit, scratch: Path) -> list[str]:
    seconds = str(visit.cell.product.seconds)
    revision = REVISIONS[visit.cell.client_era]
    if visit.client == INSPECTOR.program:
        program = INSPECTOR.environment.executable(INSPECTOR.program)
        for_one = str(INSPECTOR_FACTOR * visit.cell.product.seconds)
        return [sys.executable, str(CLIENTS / "inspector.py"), program, visit.cell.client_era, for_one]
    if visit.server in REFERENCE:
        return [sys.executable, str(CLIENTS / "reference.py"), visit.server, revision, seconds]
    if visit.client == OWN:
        return [sys.executable, str(CLIENTS / "own.py"), revision, seconds]
    if visit.client in COMPILED:
        return [*COMPILED[visit.client].command("client"), revision, seconds]
    environment = SDK_SERVERS[visit.client].environment
    folder = scratch / "client"
    folder.mkdir()
    if environment.is_python:
        command = environment.command(CLIENTS / f"{environment.name}.py", folder)
    else:
        environment.command(CLIENTS / "steps.mjs", folder)
        command = environment.command(CLIENTS / f"{environment.name}.mjs", folder)
    # The first versions know only one era.
    if environment in SDKS["legacy"]:
        return [*command, seconds]
    return [*command, revision if visit.cell.client_era == "modern" else "legacy", seconds]
