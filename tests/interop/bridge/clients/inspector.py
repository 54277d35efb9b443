"""Tries each feature that the command line of MCP Inspector has, and prints what it observed.

inspector.py INSPECTOR ERA SECONDS COMMAND [ARGUMENT ...], where ERA is legacy or modern; instead of a command, the
address of a server over Streamable HTTP. The Inspector starts anew for each request. A config file tells it where the
server is, as a user would, and what its roots are: on its command line, it takes a ``--`` within the command for its
own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steps import NOTES, ROOT, TRACE, TRIED

inspector, era, seconds, *place = sys.argv[1:]


def configured(folder: Path) -> list[str]:
    """Return how the Inspector is told where the server is."""
    if "://" in place[0]:
        where: dict[str, Any] = {"type": "streamable-http", "url": place[0]}
    else:
        where = {"command": place[0], "args": place[1:]}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"inn": {**where, "roots": [{"uri": ROOT}]}}}))
    return ["--config", str(file), "--server", "inn"]


def ask(method: str, *options: str) -> dict[str, Any]:
    """Return what one run of the Inspector prints: a result or an error."""
    command = [inspector, "--cli", *server, "--format", "json", "--protocol-era", era, "--method", method, *options]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=float(seconds), check=False
    )
    if done.stdout:
        answer: dict[str, Any] = json.loads(done.stdout)["result"]
        return answer
    # Whatever the server wrote comes first.
    error: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    return error


def call(tool: str, *options: str, **arguments: Any) -> dict[str, Any]:
    return ask("tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments), *options)


def said(result: dict[str, Any]) -> str:
    """Return the text of a result; after ``error:`` if the tool failed, or the request."""
    if "error" in result:
        return f"error: {result['error']['message']}"
    text = "\n".join(block["text"] for block in result["content"])
    return f"error: {text}" if result.get("isError") else text


def read(uri: str) -> str:
    [part] = ask("resources/read", "--uri", uri)["contents"]
    return str(part.get("text") or part.get("blob"))


def introduction() -> Any:
    introduced = ask("initialize")
    return [introduced["serverInfo"]["name"], introduced["instructions"]]


def resources() -> Any:
    uris = sorted(resource["uri"] for resource in ask("resources/list")["resources"])
    return [uris, read(NOTES), read("interop://dot")]


def templates() -> Any:
    found = ask("resources/templates/list")["resourceTemplates"]
    return [[template["uriTemplate"] for template in found], read("interop://cities/Oslo")]


def prompts() -> Any:
    plan = ask("prompts/get", "--prompt-name", "plan", "--prompt-args", "city=Oslo")
    return [[message["role"], message["content"]["text"]] for message in plan["messages"]]


FEATURES: dict[str, Callable[[], Any]] = {
    "introduction": introduction,
    "calls": lambda: said(call("greet", name="Åse")),
    "tool_errors": lambda: said(call("refuse", reason="The inn is full.")),
    # It shows the words of the error, without its code.
    "protocol_errors": lambda: ask("resources/read", "--uri", "interop://nowhere")["error"]["message"],
    "structured_content": lambda: call("forecast", city="Oslo", days=2)["structuredContent"],
    "metadata": lambda: call("sign", "--tool-metadata", f"{TRACE}=Åse")["_meta"][TRACE],
    "resources": resources,
    "templates": templates,
    "prompts": prompts,
    # It reads all pages, and shows them as one.
    "pagination": lambda: [[prompt["name"] for prompt in ask("prompts/list")["prompts"]]],
    "roots": lambda: said(call("look_around")),
    # What it says instead of these shows that it has no such thing.
    "forms": lambda: said(call("book", room="the attic")),
    "urls": lambda: said(call("pay")),
    "sampling": lambda: said(call("summarize", text="a long text")),
    "completion": lambda: ask("completion/complete"),
    "subscriptions": lambda: ask("resources/subscribe", "--uri", NOTES),
    "extension_methods": lambda: ask("interop/echo"),
}


def main() -> None:
    observed: dict[str, Any] = {}
    for name in TRIED:
        try:
            observed[name] = FEATURES[name]() if name in FEATURES else {"failed": "the command line has no such thing"}
        except Exception as error:
            observed[name] = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(observed))


with tempfile.TemporaryDirectory() as folder:
    server = configured(Path(folder))
    main()
