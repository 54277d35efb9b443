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
from typing import Any, get_overloads

import click
import msgspec

import mcplumb.limits
import mcplumb.protocol
from mcplumb import (
    Audio,
    Bridge,
    Client,
    ClientCredentials,
    Context,
    EnterpriseManaged,
    File,
    Group,
    Header,
    HttpOptions,
    Image,
    Introspection,
    JwtVerifier,
    OAuth,
    Principal,
    Server,
    WorkloadIdentity,
    connect,
    connect_all,
    errors,
    load_config,
    result_for_anthropic,
    result_for_openai,
    sync,
    tools_for_anthropic,
    tools_for_openai,
    types,
)
from mcplumb.bridge.bridge import Updated
from mcplumb.cli.command_group import cli
from mcplumb.cli.command_runner import EXIT_CODES
from mcplumb.cli.main import COMMANDS, OVERVIEW
from mcplumb.cli.server_target import ServerCommand
from mcplumb.client import (
    Change,
    Changes,
    ClientStats,
    Elicitation,
    EraWaits,
    GroupChanges,
    GroupUpdate,
    Missed,
    RestartPolicy,
    StopLadder,
    UnknownName,
)
from mcplumb.client.process_link import ProcessExit, ServerProcess
from mcplumb.config import Config, ConfigError, Input, NotTrusted, ServerEntry, UnknownServer, discover_config
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.transition_table import Table
from mcplumb.revisions import REVISIONS, Revision
from mcplumb.server.context import Accepted, Declined, Delivery
from mcplumb.server.dispatch.client_input import Sampled
from mcplumb.testing import check_transport, checks, memory_pair
from mcplumb.transports.connection import Connection, Peer, Receiver, Stats
from mcplumb.transports.custom_transport import Carrier, CarrierConnection
from mcplumb.transports.fd_connection import StreamConnection
from mcplumb.transports.line_connection import LineConnection, Sink, Source
from mcplumb.transports.tls import client_tls, server_tls
from tests.costs.walk import WALKS, Step, walk
from tests.interop.bridge import table as fidelity
from tests.interop.matrix import page as interop_matrix
from tests.interop.wild import software

ROOT = Path(__file__).parents[1]
#: Classes whose objects users get, and do not make.
NOT_MADE = {
    *(Changes, Client, Config, Context, Elicitation, ServerProcess, Delivery),
    *(Group, GroupChanges, sync.Changes, sync.Client, sync.Connecting),
    *(sync.Group, sync.GroupChanges, sync.ConnectingAll),
}
#: The topics of the page of types, in its order.
TYPE_MODULES: list[ModuleType] = [
    importlib.import_module(f"mcplumb.types.{name}")
    for name in (
        *("tools", "resources", "prompts", "content", "client_features", "notification_params"),
        *("lifecycle", "meta", "base", "payload_decoder", "revision_adapter"),
    )
]
NOTE = "`make docs` generates this page."
ARCHITECTURE = ROOT / "docs" / "topics" / "architecture.md"
#: What stands between these lines of the architecture page is generated.
WALK_BEGINS, WALK_ENDS = "<!-- walk: written by make docs -->\n", "<!-- end of walk -->\n"
PEERS = ROOT / "docs" / "topics" / "peers.md"
#: What stands between these lines of the page about peers is generated.
WILD_BEGINS, WILD_ENDS = "<!-- third parties: written by make docs -->\n", "<!-- end of third parties -->\n"
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
    text = f"# Errors\n\n{head} {NOTE}\n\n```text\n{inspect.cleandoc(tree)}\n```\n\n{as_markdown(rest)}\n"
    names = re.findall(r"^[\s│├└─]*(\w+)", tree, re.MULTILINE)
    return text + "".join(error_section(getattr(errors, name)) for name in names)


def error_section(kind: type[BaseException]) -> str:
    """Return a section for an exception: what it is, and the attributes that it adds."""
    bases = ", ".join(base.__name__ for base in kind.__bases__)
    text = f"\n## {kind.__name__}\n{code(f'class {kind.__name__}({bases})')}\n{prose(kind)}\n"
    said = comments(kind, r"self\.(\w+) = ")
    found = dict.fromkeys(re.findall(r"self\.([a-z]\w*) = ", inspect.getsource(kind)))
    names = [f"`{name}`" + (f" ({as_markdown(said[name]).rstrip('.')})" if name in said else "") for name in found]
    return text + (f"\nAttributes: {', '.join(names)}.\n" if names else "")


def api(title: str, intro: str, *kinds: type) -> str:
    """Return a page of the public members of some classes, from their signatures and docstrings."""
    return f"# {title}\n\n{intro} {NOTE}\n" + "".join(map(class_section, kinds))


def class_section(kind: type) -> str:
    """Return a section for a class, with a heading for each public method and property."""
    return class_head(kind) + members(kind)


def class_head(kind: type) -> str:
    """Return a section for a class whose methods are not for users: its signature and docstring."""
    text = f"\n## {kind.__name__}\n"
    if kind not in NOT_MADE and not getattr(kind, "_is_protocol", False) and kind.__module__.startswith("mcplumb"):
        made = inspect.signature(kind).replace(return_annotation=inspect.Signature.empty)
        text += code(written(f"class {kind.__name__}", made))
    text += f"\n{prose(kind)}\n"
    if kind is Config:
        said = comments(kind, r"self\.([a-z]\w*): ")
        text += "\n" + "".join(f"- `{name}`: {as_markdown(words)}\n" for name, words in said.items())
    return text


def members(kind: type) -> str:
    """Return a heading, the signatures and the docstring of each public method and property of a class."""
    text = ""
    for name, member in vars(kind).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        if inspect.isfunction(member) and member.__name__ != name:
            continue  # another name of a documented method
        text += f"\n### {kind.__name__}.{name}\n"
        if isinstance(member, property):
            text += code(f"{name}: {typed(inspect.signature(member.fget).return_annotation)}") if member.fget else ""
        else:
            ways = get_overloads(member) or [member]
            text += code(*(written(f"{definition(way)} {name}", inspect.signature(way)) for way in ways))
        text += f"\n{prose(member)}\n"
    return text


def function_section(function: Callable[..., Any], before: str = "") -> str:
    """Return a section for a function."""
    shown = written(f"{definition(function)} {function.__name__}", inspect.signature(function))
    return f"\n## {function.__name__}\n{before}{code(shown)}\n{prose(function)}\n"


def code(*lines: str) -> str:
    # Not fenced as ``python``: such blocks are run as examples.
    return "\n```py\n" + "\n".join(lines) + "\n```\n"


def definition(function: Callable[..., Any]) -> str:
    is_awaited = str(inspect.signature(function).return_annotation).startswith("Asked[")
    return "async def" if is_awaited or inspect.iscoroutinefunction(function) else "def"


def written(name: str, signature: inspect.Signature) -> str:
    """Return a signature as source text, with its types and defaults."""
    parts: list[str] = []
    star = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            parts.append("*")
        prefix = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        if parameter.kind is parameter.VAR_POSITIONAL:
            prefix, star = "*", True
        kind = "" if parameter.annotation is parameter.empty else f": {typed(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else default_text(parameter.default)
        parts.append(prefix + parameter.name + kind + (default and (f" = {default}" if kind else f"={default}")))
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name != "self":
            parts.append("/")
    returns = "" if signature.return_annotation is signature.empty else f" -> {typed(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){returns}"
    return line if len(line) <= 100 else f"{name}(\n    " + ",\n    ".join(parts) + f",\n){returns}"


#: Names that are explained by what they stand for. ``UNSET`` means that the client's own setting applies.
ALIASES = {
    "Timeout": "float | None",
    "Meta": "dict[str, Any] | None",
    "NoneType": "None",
    "_L": "Any",
    "F": "Callable[..., Any]",
}
ALIAS = re.compile(r"\b(?:" + "|".join(ALIASES) + r")\b(?!\()")


def typed(annotation: Any) -> str:
    """Return a type as it is written in the source, without the modules of names."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"^Asked\[(.*)\]$", r"\1", text)
    text = ALIAS.sub(lambda alias: ALIASES[alias[0]], text.strip("'\""))
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text)


def default_text(default: Any) -> str:
    if isinstance(default, Limits):
        return "DEFAULT_LIMITS"
    if default is msgspec.UNSET or default is ...:
        return "..."
    return re.sub(r"<(?:class|function) '?([\w.]+)'?.*>", r"\1", repr(default))


def prose(what: object) -> str:
    return as_markdown(inspect.getdoc(what) or "").replace("\\|", "|")


def servers() -> str:
    """Return the page of the server API."""
    return api(
        "Servers",
        "Import these with `from mcplumb import Server, Context, Image, Audio, File, Header, HttpOptions, JwtVerifier, "
        "Introspection, Principal`. The [how-to pages](../README.md) show them in use. What functions may return, and "
        "get from clients, is in "
        "[types](types.md).",
        Server,
        Context,
        Accepted,
        Declined,
        Delivery,
        Image,
        Audio,
        File,
        Header,
        JwtVerifier,
        Introspection,
    ) + records(Sampled, Principal, HttpOptions)


def bridge() -> str:
    """Return the page of the bridge."""
    return api(
        "Bridge",
        "Import it with `from mcplumb import Bridge`. [The bridge](../topics/bridge.md) explains how it works, and "
        "`mcplumb bridge` [runs one](command-line.md).",
        Bridge,
        Updated,
    )


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
    # Its module imports this for type checkers only: servers on stdio do not need it.
    vars(sys.modules[Peer.__module__]).setdefault("Principal", Principal)
    text += records(Peer, Stats)
    for function in (memory_pair, server_tls, client_tls, check_transport, checks):
        home = function.__module__ if function.__module__.startswith("mcplumb.transports") else "mcplumb.testing"
        text += function_section(function, f"\nIn `{home}`:\n")
    return text


def records(*kinds: type[msgspec.Struct]) -> str:
    """Return a section for each record, with a table of its fields, and its methods."""
    text = ""
    for kind in kinds:
        said: dict[str, str] = {}
        for base in reversed(kind.__mro__):
            if issubclass(base, msgspec.Struct) and base.__module__.startswith("mcplumb"):
                said |= comments(base)
        text += f"\n## {kind.__name__}\n\n{prose(kind)}\n"
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        if fields:
            text += "\n| field | type | default | |\n|---|---|---|---|\n"
            for name in kind.__struct_fields__:
                default = fields[name].default
                # The struct keeps None for a flag that was absent; users see False.
                is_flag = isinstance(vars(kind.__mro__[1]).get(name), property)
                kind_of = "bool" if is_flag else as_markdown(typed(source_type(kind, name)))
                shown = "" if default is msgspec.NODEFAULT else f"`{'False' if is_flag else default_text(default)}`"
                text += f"| `{name}` | `{kind_of}` | {shown} | {as_markdown(said.get(name, ''))} |\n"
        text += members(kind)
    return text


def source_type(kind: type, name: str) -> Any:
    """Return the annotation of a field as it stands in the source."""
    return next(
        vars(base)["__annotations__"][name] for base in kind.__mro__ if name in vars(base).get("__annotations__", {})
    )


def clients() -> str:
    """Return the page of the client API."""
    return (
        "# Clients\n\nImport functions, `Client`, `Group` and the ways to [sign in](../howto/sign-in.md) from "
        "`mcplumb`, and the other names from `mcplumb.client`. The same without "
        f"`await` is in [mcplumb.sync](sync.md). The [tutorial](../tutorial/first-client.md) shows a client in use. "
        f"A default of `...` means that the setting of the client applies. {NOTE}\n"
        + function_section(connect)
        + class_section(Client)
        + class_section(Elicitation)
        + class_section(ServerProcess)
        + class_section(Changes)
        + function_section(connect_all)
        + class_section(Group)
        + class_section(GroupChanges)
        + records(GroupUpdate)
        + error_section(UnknownName)
        + function_section(tools_for_openai)
        + function_section(result_for_openai)
        + function_section(tools_for_anthropic)
        + function_section(result_for_anthropic)
        + "".join(map(class_head, (OAuth, ClientCredentials, WorkloadIdentity, EnterpriseManaged)))
        + records(Change, Missed, RestartPolicy, StopLadder, EraWaits, ProcessExit, ClientStats)
    )


def blocking() -> str:
    """Return the page of the blocking API."""
    return (
        "# Without await\n\n`mcplumb.sync` has the client without `await`, for scripts, threads and notebooks: see "
        "[blocking code](../howto/blocking-code.md). The records that it takes and gives are those of "
        f"[mcplumb.client](clients.md). {NOTE}\n"
        + function_section(sync.connect)
        + class_section(sync.Connecting)
        + class_section(sync.Client)
        + class_section(sync.Changes)
        + function_section(sync.connect_all)
        + class_section(sync.ConnectingAll)
        + class_section(sync.Group)
        + class_section(sync.GroupChanges)
        + "\n## Context\n\n`mcplumb.sync.Context` is [`mcplumb.Context`](servers.md#context) with the types for "
        "tools that are plain functions: its methods return their results, and need no `await`.\n"
    )


def configs() -> str:
    """Return the page of config files."""
    return (
        "# Config files\n\nImport `load_config` from `mcplumb`, and the other names from `mcplumb.config`. The "
        f"[how-to page](../howto/config-files.md) shows which files there are. {NOTE}\n"
        + function_section(load_config)
        + function_section(discover_config)
        + class_section(Config)
        + records(ServerEntry, Input)
        + "".join(map(error_section, (ConfigError, UnknownServer, NotTrusted)))
    )


def payload_types() -> str:
    """Return the page of the payload types, by topic."""
    _, _, rules = inspect.cleandoc(types.base.__doc__ or "").partition("\n\n")
    text = (
        "# Types\n\n`mcplumb.types` has the payloads of the protocol: what clients get, and what functions of servers "
        f"may return. {NOTE}\n\n{rules.replace('``', '`')}\n"
    )
    for module in TYPE_MODULES:
        title = inspect.cleandoc(module.__doc__ or "").partition("\n")[0]
        kinds = [getattr(module, name) for name in module.__all__]
        found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, types.Payload)]
        text += f"\n**{as_markdown(title)}**\n" + records(*found)
        for each in kinds:
            text += function_section(each) if inspect.isfunction(each) and each.__name__ in types.__all__ else ""
    return text


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
    return with_part(page, WALK_BEGINS, walks(), WALK_ENDS)


def with_part(page: str, begins: str, part: str, ends: str) -> str:
    """Return a page with another text between two of its lines."""
    head, _, rest = page.partition(begins)
    _, found, tail = rest.partition(ends)
    assert found, f"The page has no lines {begins!r} and {ends!r}"
    return head + begins + part + ends + tail


def peers() -> str:
    """Return the page about peers with the software of third parties that the tests run."""
    servers = "".join(
        f"| `{server.package}` {software.version(server)} | {', '.join(software.packages_below(server))} | "
        f"{server.revision} | {f'`{server.call.tool}`' if server.call else ''} |\n"
        for server in software.SERVERS
    )
    clients = "".join(
        f"| `{client.package}` {software.version(client)} | {', '.join(software.packages_below(client))} | "
        f"{client.runs} |\n"
        for client in software.CLIENTS
    )
    tables = (
        f"\n| server | built on | revision | tool called |\n|---|---|---|---|\n{servers}"
        f"\n| client or bridge | built on | used |\n|---|---|---|\n{clients}\n"
    )
    return with_part(PEERS.read_text(encoding="utf-8"), WILD_BEGINS, tables, WILD_ENDS)


def fidelity_table() -> str:
    """Return the page about what crosses bridges, from the results that were measured last."""
    return fidelity.page(fidelity.load())


def matrix() -> str:
    """Return the page about who works with whom, from the results that were measured last."""
    return interop_matrix.page(interop_matrix.load())


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
    PEERS: peers,
    fidelity.PAGE: fidelity_table,
    interop_matrix.PAGE: matrix,
    ROOT / "docs" / "reference" / "revisions.md": revisions,
    ROOT / "docs" / "reference" / "limits.md": limits,
    ROOT / "docs" / "reference" / "errors.md": error_tree,
    ROOT / "docs" / "reference" / "requirements.md": requirements,
    ROOT / "docs" / "reference" / "servers.md": servers,
    ROOT / "docs" / "reference" / "clients.md": clients,
    ROOT / "docs" / "reference" / "bridge.md": bridge,
    ROOT / "docs" / "reference" / "sync.md": blocking,
    ROOT / "docs" / "reference" / "types.md": payload_types,
    ROOT / "docs" / "reference" / "config-files.md": configs,
    ROOT / "docs" / "reference" / "transports.md": transports,
    ROOT / "docs" / "reference" / "command-line.md": command_line,
}


if __name__ == "__main__":
    for page, text in PAGES.items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text(), encoding="utf-8")
        print(page.relative_to(ROOT))
