"""Generate the reference pages of the docs: ``python -m tools.generate_docs``.

The code is the single source of the state machines, the revisions, the limits, the errors, the commands and the
requirements, so their pages are generated from it. A test fails if a page differs from what this program generates.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import click
import msgspec

import mcplumb.limits
import mcplumb.protocol
from mcplumb import Audio, Client, Context, File, Header, HttpOptions, Image, Server, connect, errors
from mcplumb.cli.command_group import cli
from mcplumb.cli.command_runner import EXIT_CODES
from mcplumb.cli.help_text import COMMANDS, OVERVIEW
from mcplumb.cli.server_target import ServerCommand
from mcplumb.client import Change, Changes, ClientStats, Elicitation, EraWaits, Missed, RestartPolicy, StopLadder
from mcplumb.client.links.process_link import ProcessExit, ServerProcess
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.transition_table import Table
from mcplumb.revisions import REVISIONS, Revision
from mcplumb.testing import check_transport, checks, memory_pair
from mcplumb.transports.connection import Connection, Peer, Receiver, Stats
from mcplumb.transports.custom_transport import Carrier, CarrierConnection
from mcplumb.transports.fd_connection import StreamConnection
from mcplumb.transports.line_connection import LineConnection, Sink, Source
from mcplumb.transports.tls import client_tls, server_tls
from tests.costs.walk import WALKS, Step, walk

ROOT = Path(__file__).parents[1]
NOTE = "`make docs` generates this page."
ARCHITECTURE = ROOT / "docs" / "topics" / "architecture.md"
#: What stands between these lines of the architecture page is generated.
WALK_BEGINS, WALK_ENDS = "<!-- walk: written by make docs -->\n", "<!-- end of walk -->\n"
#: The walk differs between Pythons: 3.12 starts tasks eagerly by itself. The page has that of the oldest one.
WALK_PYTHON = (3, 11)


def tables() -> Iterator[tuple[str, Table[str, str]]]:
    """Yield every state table of the package with its module, sorted by module."""
    seen: set[int] = set()
    for info in sorted(pkgutil.iter_modules(mcplumb.protocol.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"mcplumb.protocol.{info.name}")
        for value in vars(module).values():
            if isinstance(value, Table) and id(value) not in seen:
                seen.add(id(value))
                yield info.name, value


def state_machines() -> str:
    """Return the page of the state machines: the purpose, the diagram and the rows of each."""
    text = (
        "# State machines\n\n"
        "The rules of the protocol are state machines without I/O. Each takes an event, changes its state by a row of "
        f"its\ntable, and returns actions. Transitions that a table does not list are errors. {NOTE[:-1]} from\n"
        "the tables.\n"
    )
    for module, table in tables():
        rows = "\n".join(f"| {source} | {event} | {target} |" for (source, event), target in table.rows.items())
        text += (
            f"\n## {table.name}\n\n"
            f"{table.doc} ([source](../../src/mcplumb/protocol/{module}.py))\n\n"
            f"```mermaid\n{table.mermaid()}```\n\n"
            f"| state | event | next state |\n|---|---|---|\n{rows}\n"
        )
    return text


def comments(source: type | ModuleType, name: str = r"(\w+): ") -> dict[str, str]:
    """Return the ``#:`` comment above each field of a record, or other name, from the source."""
    found: dict[str, str] = {}
    held: list[str] = []
    for line in inspect.getsource(source).splitlines():
        line = line.strip()
        if line.startswith("#: "):
            held.append(line[3:])
        else:
            field = re.match(name, line)
            if field and held:
                found[field[1]] = " ".join(held)
            held = []
    return found


def as_markdown(comment: str) -> str:
    return comment.replace("``", "`").replace("|", "\\|")


def revisions() -> str:
    """Return the page of the revisions, from the records."""
    said = comments(Revision)
    lines = [
        "# Revisions",
        "",
        "Each revision is one record in [revisions.py](../../src/mcplumb/revisions.py). The tests check the records",
        f"against the official schemas. {NOTE}",
        "",
        "| feature | " + " | ".join(map(str, REVISIONS)) + " |",
        "|---|" + ":-:|" * len(REVISIONS),
    ]
    for field in Revision.__struct_fields__:
        if field == "name":
            continue
        values = [getattr(revision, field) for revision in REVISIONS]
        cells = [{True: "yes", False: ""}.get(v, str(v)) if isinstance(v, bool) else str(v) for v in values]
        words = as_markdown(said.get(field, ""))
        lines.append(f"| `{field}`{': ' + words if words else ''} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def limits() -> str:
    """Return the page of the limits: each with its default and the reason for it."""
    said = comments(Limits)
    lines = [
        "# Limits",
        "",
        "These limits keep a peer from making mcplumb grow without bound. Set them with `Server(limits=Limits(…))` and",
        f"`connect(limits=Limits(…))` ([source](../../src/mcplumb/limits.py)). {NOTE}",
        "",
        "| limit | default | |",
        "|---|--:|---|",
    ]
    lines += [
        f"| `{field}` | {getattr(DEFAULT_LIMITS, field):,} | {as_markdown(said[field])} |"
        for field in Limits.__struct_fields__
    ]
    lines += ["", "Some limits are fixed:", "", "| constant | value | |", "|---|--:|---|"]
    fixed = comments(mcplumb.limits, r"(MAX_\w+) = ")
    lines += [f"| `{name}` | {getattr(mcplumb.limits, name):,} | {as_markdown(why)} |" for name, why in fixed.items()]
    return "\n".join(lines) + "\n"


def error_tree() -> str:
    """Return the page of the exceptions, from the docstring that draws their tree."""
    head, tree, rest = inspect.cleandoc(errors.__doc__ or "").split("\n\n", 2)
    return f"# Errors\n\n{head} {NOTE}\n\n```text\n{inspect.cleandoc(tree)}\n```\n\n{as_markdown(rest)}\n"


def api(title: str, intro: str, *kinds: type) -> str:
    """Return a page of the public members of some classes, from their signatures and docstrings."""
    text = f"# {title}\n\n{intro} {NOTE}\n"
    for kind in kinds:
        text += f"\n## {kind.__name__}\n"
        if not getattr(kind, "_is_protocol", False):
            made = inspect.signature(kind) if kind.__module__.startswith("mcplumb") else None
            text += f"\n```text\n{written(kind.__name__, made)}\n```\n"
        text += f"\n{prose(kind)}\n"
        for name, member in vars(kind).items():
            if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
                continue
            if isinstance(member, property):
                text += f"\n**`{name}`**: {prose(member)}\n"
            else:
                word = "await " if inspect.iscoroutinefunction(member) else ""
                signature = inspect.signature(member)
                text += f"\n```text\n{word}{written(name, signature)}\n```\n\n{prose(member)}\n"
    return text


def written(name: str, signature: inspect.Signature | None) -> str:
    """Return a signature as source text, with defaults and without types."""
    parts: list[str] = []
    star = False
    for parameter in signature.parameters.values() if signature is not None else ():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            parts.append("*")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        prefix = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        if parameter.kind is parameter.VAR_POSITIONAL:
            prefix, star = "*", True
        parts.append(prefix + parameter.name + ("=DEFAULT_LIMITS" if default.startswith("=Limits(") else default))
    line = f"{name}({', '.join(parts)})"
    return line if len(line) <= 100 else f"{name}(\n    " + ",\n    ".join(parts) + ",\n)"


def prose(what: object) -> str:
    return as_markdown(inspect.getdoc(what) or "").replace("\\|", "|")


def servers() -> str:
    """Return the page of the server API."""
    return api(
        "Servers",
        "Import these with `from mcplumb import Server, Context, Image, Audio, File, Header, HttpOptions`. The "
        "[how-to pages](../README.md) show them in use.",
        Server,
        Context,
        Image,
        Audio,
        File,
        Header,
    ) + records(HttpOptions)


def transports() -> str:
    """Return the page of the transport API."""
    text = api(
        "Transports",
        "The interfaces of a transport, for authors who [write one](../howto/custom-transport.md). The kit that checks "
        "a transport is in `mcplumb.testing`.",
        Connection,
        Receiver,
        LineConnection,
        Source,
        Sink,
        StreamConnection,
        CarrierConnection,
        Carrier,
    )
    text += records(Peer, Stats)
    for function in (memory_pair, server_tls, client_tls, check_transport, checks):
        signature = written(function.__name__, inspect.signature(function))
        home = function.__module__ if function.__module__.startswith("mcplumb.transports") else "mcplumb.testing"
        text += f"\n## {function.__name__}\n\nIn `{home}`:\n\n```text\n{signature}\n```\n\n{prose(function)}\n"
    return text


def records(*kinds: type[msgspec.Struct]) -> str:
    """Return a section for each record, with a table of its fields."""
    text = ""
    for kind in kinds:
        said = comments(kind)
        text += f"\n## {kind.__name__}\n\n{prose(kind)}\n"
        if kind.__struct_fields__:
            defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
            text += "\n| field | default | |\n|---|---|---|\n"
            for field in kind.__struct_fields__:
                default = defaults[field]
                shown = "" if default is msgspec.NODEFAULT else f"`{default!r}`"
                text += f"| `{field}` | {shown} | {as_markdown(said.get(field, ''))} |\n"
    return text


def clients() -> str:
    """Return the page of the client API."""
    text = api(
        "Clients",
        "Import `connect` from `mcplumb`, and the other names from `mcplumb.client`. `mcplumb.sync.connect` is the "
        "same without `await`: see [blocking code](../howto/blocking-code.md). The "
        "[tutorial](../tutorial/first-client.md) shows a client in use.",
        Client,
        Elicitation,
        ServerProcess,
    )
    text += f"\n## Changes\n\n{prose(Changes)}\n"
    text += records(Change, Missed, RestartPolicy, StopLadder, EraWaits, ProcessExit, ClientStats)
    opening = f"\n## connect\n\n```text\n{written('connect', inspect.signature(connect))}\n```\n\n{prose(connect)}\n"
    head, mark, rest = text.partition("\n## Client\n")
    return head + opening + mark + rest


def requirements() -> str:
    """Return the page of the requirements, from the ledger."""
    rows = tomllib.loads((ROOT / "requirements.toml").read_text(encoding="utf-8"))
    states = [row["state"] for row in rows.values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("process", "rules", "not yet"))
    lines = [
        "# Requirements",
        "",
        "This page lists what the protocol requires of a transport and what mcplumb promises on top. The source is",
        "[requirements.toml](../../requirements.toml). *process* means proven with real processes or sockets, *rules*",
        f"implemented and tested without I/O, *not yet* open. The totals are {counts}.",
        f"To find the tests of a row, search for its id in `tests/`. {NOTE}",
        "",
        "| id | who | strength | rule | state |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {i} | {r['who']} | {r['strength']} | {r['rule']} | {r['state']} |" for i, r in rows.items()]
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """Return the page of the command line, from the commands themselves."""
    context = click.Context(cli, info_name="mcplumb", help_option_names=["-h", "--help"])
    commands = {name: cli.get_command(context, name) for name in COMMANDS}
    sample = next(command for command in commands.values() if isinstance(command, ServerCommand))
    text = (
        "# Command line\n\n"
        "Install the command with `pip install 'mcplumb[cli]'`. Results go to stdout, and everything else goes to "
        "stderr. Colours are\noff without a terminal, and with `--no-color` or `NO_COLOR`. On a terminal, control "
        f"sequences in the output of a server are escaped.\n{NOTE}\n\n```text\n{OVERVIEW}```\n"
        "\n## Naming a server\n\nCommands that use a server take it in one of three ways, with these options:\n"
        "\n```sh\nmcplumb tools -- python weather.py\nmcplumb tools -s http://127.0.0.1:8000/mcp\n"
        f"mcplumb tools -s weather\n```\n{option_table(sample.server_params, context)}"
        "\n## Options of all commands\n\nPut these options before the command. Commands that use a server also accept "
        f"them after it, except `--version`.\n{option_table(cli.params, context)}"
        "\n## Exit codes\n\nExit codes are stable.\n\n| code | meaning |\n|--:|---|\n"
    )
    text += "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    for name, command in commands.items():
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        usage = " ".join(["mcplumb", name, *command.collect_usage_pieces(inner)])
        text += f"\n## mcplumb {name}\n\n```text\n{usage}\n```\n"
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
            is_example = paragraph.startswith("\b\n")
            text += f"\n```sh\n{paragraph[2:]}\n```\n" if is_example else f"\n{as_markdown(paragraph)}\n"
        text += option_table(command.own_params if isinstance(command, ServerCommand) else command.params, inner)
    return text


def option_table(params: Iterable[click.Parameter], context: click.Context) -> str:
    records = [record for param in params if (record := param.get_help_record(context)) is not None]
    rows = "".join(f"| `{as_markdown(names)}` | {as_markdown(about)} |\n" for names, about in records if about)
    return f"\n| option | |\n|---|---|\n{rows}" if rows else ""


def architecture() -> str:
    """Return the architecture page with the walk of a call as it is now; with other Pythons, the page as it is."""
    page = ARCHITECTURE.read_text(encoding="utf-8")
    if sys.version_info[:2] != WALK_PYTHON:
        return page
    head, _, rest = page.partition(WALK_BEGINS)
    _, found, tail = rest.partition(WALK_ENDS)
    assert found, f"{ARCHITECTURE.name} has no lines {WALK_BEGINS!r} and {WALK_ENDS!r}"
    return head + WALK_BEGINS + walks() + WALK_ENDS + tail


def walks() -> str:
    """Return a table for each end: when a function is entered, its name, its file, and what it does."""
    text = ""
    for subject, side in WALKS.items():
        found = walk(side)
        files = len({step.file for step in found.steps})
        entered = max(step.places[-1] for step in found.steps)
        text += (
            f"\nThe {subject}, {entered} steps in {files} files:\n\n| step | function | file | |\n|--:|---|---|---|\n"
        )
        for step in found.steps:
            places = ", ".join(map(str, step.places))
            link = f"[{step.file}](../../src/mcplumb/{step.file})"
            text += f"| {places} | `{step.function}` | {link} | {as_markdown(first_sentence(step))} |\n"
    return text + "\n"


def first_sentence(step: Step) -> str:
    """Return the first sentence of a function's docstring, if it has one."""
    node: ast.AST = ast.parse((ROOT / "src" / "mcplumb" / step.file).read_text(encoding="utf-8"))
    doc = ""
    for name in step.function.replace("<locals>.", "").split("."):
        named = [each for each in ast.walk(node) if getattr(each, "name", None) == name]
        if not named:
            return ""  # a lambda
        node = named[-1]  # behind its overloads
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        doc = ast.get_docstring(node) or ""
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s", paragraph)[0]


PAGES: dict[Path, Callable[[], str]] = {
    ROOT / "docs" / "topics" / "state-machines.md": state_machines,
    ARCHITECTURE: architecture,
    ROOT / "docs" / "reference" / "revisions.md": revisions,
    ROOT / "docs" / "reference" / "limits.md": limits,
    ROOT / "docs" / "reference" / "errors.md": error_tree,
    ROOT / "docs" / "reference" / "requirements.md": requirements,
    ROOT / "docs" / "reference" / "servers.md": servers,
    ROOT / "docs" / "reference" / "clients.md": clients,
    ROOT / "docs" / "reference" / "transports.md": transports,
    ROOT / "docs" / "reference" / "command-line.md": command_line,
}


if __name__ == "__main__":
    for page, text in PAGES.items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text(), encoding="utf-8")
        print(page.relative_to(ROOT))
