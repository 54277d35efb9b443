"""``mcplumb probe``: what a server is, and why it cannot be reached."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mcplumb.revisions import REVISIONS
from tests.cli.kit import LEGACY, PYTHON, SERVERS, WEATHER, here, mcplumb, on_terminal, serving
from tests.kit.web import Reply, posted, web_server

ALL = [str(revision) for revision in REVISIONS]


def broken(how: str) -> list[str]:
    return ["--", PYTHON, str(SERVERS / "broken.py"), how]


def picky(*how: str) -> list[str]:
    return ["--", PYTHON, str(SERVERS / "picky.py"), *how]


def pairs(text: str) -> dict[str, str]:
    """What is printed in two columns, by its names."""
    found: dict[str, str] = {}
    name, width = "", 0
    for line in text.splitlines():
        if line and not line.startswith(" "):
            name, _, value = line.partition(" ")
            width = len(line) - len(value.lstrip())
            found[name] = value.strip()
        elif line:
            found[name] += f"\n{line[width:]}"
    return found


def test_a_modern_server() -> None:
    done = here("probe", *WEATHER)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "weather 1.0"
    shown = pairs(done.out)
    assert shown["transport"] == "stdio"
    assert shown["era"] == "modern: it answered server/discover"
    assert shown["revision"] == ALL[0]
    assert shown["offers"] == ", ".join(ALL)
    assert shown["capabilities"] == (
        "tools (listChanged), resources (listChanged, subscribe), prompts (listChanged), logging"
    )
    assert shown["has"] == "2 tools, 0 resources, 1 resource template, 1 prompt"
    assert shown["instructions"] == "Forecasts for a few cities."
    assert shown["start-up"].startswith("ready after ")
    assert ", first message after " in shown["start-up"]
    assert shown["answers"].startswith("in ")
    assert shown["memory"].endswith(" MiB in 1 process")
    assert shown["stdout"] == "clean: nothing but messages"


def test_a_legacy_server_is_asked_for_each_revision() -> None:
    report = here("probe", "--json", *LEGACY).json
    assert report["era"] == "legacy"
    assert report["found"] == "it answered server/discover with error -32601 (Method not found), and then initialize"
    assert report["revision"] == "2025-06-18"
    assert report["offers"] == ["2025-06-18", "2025-03-26"]
    assert report["server"] == {"name": "old", "version": "0.1"}
    assert report["capabilities"] == {"tools": {}}
    assert report["counts"] == {"tools": 2, "resources": 0, "resourceTemplates": 0, "prompts": 0}
    assert (report["bad_lines"], report["first_bad_line"], report["stderr"]) == (0, None, [])
    assert report["memory"] > 1_000_000
    assert report["processes"] == 1
    assert 0 < report["first_answer_after"] <= report["ready_after"]
    assert report["answers_in"] > 0


def test_quick_connects_once() -> None:
    assert here("probe", "--quick", "--json", *LEGACY).json["offers"] == ["2025-06-18"]
    done = here("probe", "--quick", "--json", "--revision", "2025-03-26", "--trace", *WEATHER)
    assert done.json["found"] == "it was sent only initialize, and answered"
    assert done.err.count('"method":"initialize"') == 1


def test_what_disturbs_is_told() -> None:
    server = f"echo 'to stderr' >&2; echo noise; echo more; exec {PYTHON} {SERVERS / 'legacy.py'}"
    done = here("probe", "--quick", "--", "sh", "-c", server)
    assert (done.code, done.err) == (0, "")
    shown = pairs(done.out)
    assert shown["stdout"] == "2 lines that are not messages, the first: noise"
    assert shown["stderr"] == "to stderr"


def test_what_is_wrong_with_lines_is_logged_for_those_who_ask() -> None:
    server = f"echo noise; exec {PYTHON} {SERVERS / 'legacy.py'}"
    done = here("-v", "probe", "--quick", "--", "sh", "-c", server)
    assert "A line from the server was ignored: 'noise'." in done.err


def test_a_list_that_fails_is_no_reason_to_fail() -> None:
    done = here("probe", "--quick", "--", PYTHON, str(SERVERS / "lists.py"), "failing")
    assert done.code == 0
    shown = pairs(done.out)
    said = "tools: The server answered tools/list with error -32603: No tools today., resources:"
    assert shown["has"].startswith(said)
    assert shown["capabilities"] == "none"


def test_a_server_without_a_name_and_one_with_much_to_say() -> None:
    server = (
        "import json, sys\nfor line in sys.stdin:\n    m = json.loads(line)\n"
        "    i = {'name': 'x', 'version': '1', 'title': 'The X'} if len(sys.argv) > 1 else None\n"
        "    r = {'protocolVersion': '2025-06-18', 'capabilities': {'odd': 5}, 'serverInfo': i}\n"
        "    r['instructions'] = 'y' * 900\n"
        "    ok = {'initialize': r, 'ping': {}}.get(m['method'])\n"
        "    e = {'error': {'code': -32601, 'message': 'No.'}}\n"
        "    a = {'jsonrpc': '2.0', 'id': m.get('id'), **(e if ok is None else {'result': ok})}\n"
        "    'id' in m and print(json.dumps(a), flush=True)\n"
    )
    done = here("probe", "--quick", "--", PYTHON, "-c", server)
    assert done.out.startswith("A server without a name\n")
    assert pairs(done.out)["capabilities"] == "odd"
    assert pairs(done.out)["instructions"] == "y" * 500 + "…"
    assert pairs(here("probe", "--quick", "--", PYTHON, "-c", server, "named").out)["title"] == "The X"


@pytest.mark.req("STR-1")
def test_servers_at_addresses() -> None:
    with TemporaryDirectory() as folder, serving("--unix", f"{folder}/s", "--tcp", ":0", "--http", ":0") as addresses:
        unix, tcp, http = addresses
        wanted = {unix: "unix", tcp: "tcp", http: "streamable-http", http.replace("/mcp", "/sse"): "http-sse"}
        for address, transport in wanted.items():
            report = here("probe", "--quick", "--json", "-s", address).json
            assert (report["transport"], report["memory"]) == (transport, None)
            assert report["counts"]["tools"] == 2
        assert "Streamable HTTP" in here("probe", "--quick", "-s", http, "--revision", "2025-06-18").out
        assert "HTTP+SSE" in here("probe", "--quick", "--sse", "-s", http.replace("/mcp", "/sse")).out
        lost = here("probe", "-s", http.replace("/mcp", "/nothing"))
        assert lost.code == 3
        assert pairs(lost.err)["try"].startswith("Correct the path")


# --- One connection after the other ---


def test_a_server_that_can_only_run_once_is_asked_for_all_revisions(tmp_path: Path) -> None:
    report = here("probe", "--json", *picky(f"lock={tmp_path / 'lock'}")).json
    assert report["offers"] == ["2025-11-25", "2025-06-18", "2025-03-26"]
    assert report["unknown"] == {}


def test_only_revisions_that_the_user_allows_are_asked_for() -> None:
    allowed = ["--revision", "2025-11-25", "--revision", "2024-11-05"]
    report = here("probe", "--json", "--timeout", "10", *allowed, *picky("silent=2025-06-18")).json
    assert (report["offers"], report["unknown"]) == (["2025-11-25"], {})


def test_a_revision_without_an_answer_is_unknown_and_the_timeout_is_obeyed() -> None:
    done = here("probe", "--json", "--timeout", "3", *picky("silent=2024-11-05"))
    assert done.json["offers"] == ["2025-11-25", "2025-06-18", "2025-03-26"]
    assert done.json["unknown"].keys() == {"2024-11-05"}
    assert "did not answer within 3 s" in done.json["unknown"]["2024-11-05"]
    shown = pairs(here("probe", "--timeout", "3", *picky("silent=2024-11-05")).out)
    assert shown["offers"] == "2025-11-25, 2025-06-18, 2025-03-26"
    assert shown["unknown"].startswith("2024-11-05: The server did not answer within 3 s.")


def test_a_revision_that_ends_the_server_is_unknown() -> None:
    report = here("probe", "--json", *LEGACY, ALL[-1]).json
    assert report["offers"] == ["2025-06-18", "2025-03-26"]
    assert report["unknown"].keys() == {ALL[-1]}
    assert "exited with code 1" in report["unknown"][ALL[-1]]


def _initialized(body: Any, **headers: str) -> Reply:
    result = {"protocolVersion": body["params"]["protocolVersion"], "capabilities": {}, "serverInfo": None}
    return Reply(200, {"jsonrpc": "2.0", "id": body["id"], "result": result}, headers)


def test_a_refusal_over_http_with_a_json_rpc_error_is_an_answer() -> None:
    def answer(body: Any) -> Reply:
        if body["method"] == "initialize":
            return _initialized(body)
        # The official SDK does not repeat the id.
        error = {"code": -32600, "message": "Bad Request: no session"}
        return Reply(400, {"jsonrpc": "2.0", "id": "server-error", "error": error})

    with web_server(answer) as url:
        report = here("probe", "--quick", "--json", "-s", url).json
    said = "error -32600 (Bad Request: no session)"
    assert report["found"] == f"it answered server/discover with {said}, and then initialize"


def test_a_refusal_over_http_with_a_text_is_an_answer() -> None:
    def answer(body: Any) -> Reply:
        return _initialized(body) if body["method"] == "initialize" else Reply(400, "No session")

    with web_server(answer) as url:
        report = here("probe", "--quick", "--json", "-s", url).json
        assert posted(url).count("initialize") == 1
    assert report["transport"] == "streamable-http"
    assert report["found"].startswith("it answered server/discover with HTTP 400 Bad Request: 'No session'")


def test_a_server_that_is_too_busy_for_a_revision_has_not_refused_it() -> None:
    def answer(body: Any) -> Reply:
        is_first = body["method"] == "initialize" and body["params"]["protocolVersion"] == ALL[1]
        return _initialized(body) if is_first else Reply(429, "Slow down")

    with web_server(answer) as url:
        report = here("probe", "--json", "-s", url).json
    assert report["offers"] == [ALL[1]]
    assert report["unknown"].keys() == {*ALL} - {ALL[1]}


# --- What was learned is kept ---


@pytest.mark.parametrize("how", ["hang=tools/list", "hang=ping"])
def test_a_server_that_hangs_after_the_handshake_is_described(how: str) -> None:
    done = here("probe", "--timeout", "0.5", *picky(how))
    assert done.code == 5
    assert done.out.startswith("picky 3\n")
    shown = pairs(done.out)
    assert shown["capabilities"] == "tools"
    assert shown["era"].startswith("legacy: ")
    method = how.partition("=")[2]
    assert done.err.startswith(f"Error: {method} was not answered in time (0.5 s)")
    report = here("probe", "--json", "--timeout", "0.5", *picky(how))
    assert (report.code, report.json["reached"], report.json["answers_in"]) == (5, True, None)
    assert report.json["error"].startswith(f"{method} was not answered in time (0.5 s)")


def test_a_server_that_exits_after_the_handshake_is_described() -> None:
    done = here("probe", "--json", *picky("crash=tools/list"))
    assert (done.code, done.json["server"]) == (3, {"name": "picky", "version": "3"})
    assert "exited with code 7" in done.json["error"]
    assert done.json["counts"]["resources"] == "not asked"


# --- Findings ---


def test_tools_that_only_legacy_clients_see_are_a_finding() -> None:
    done = here("probe", *picky("modern=0"))
    assert done.code == 0
    assert pairs(done.out)["finding"] == "It lists 0 tools to a modern client, and 3 to a legacy one (2025-11-25)."
    assert here("probe", "--json", *picky("modern=3")).json["findings"] == []


def test_broken_definitions_are_findings() -> None:
    report = here("probe", "--quick", "--json", "--", PYTHON, str(SERVERS / "lists.py"), "broken").json
    assert report["findings"][0] == "The tool 'number' is broken: its description is 5, and must be a string."


# --- What is remembered ---


def test_the_next_command_knows_the_era() -> None:
    here("probe", "--quick", *LEGACY)
    after = here("ping", "--trace", *LEGACY)
    assert after.code == 0
    assert "server/discover" not in after.err
    assert "initialize" in after.err


def test_a_probe_asks_anew() -> None:
    for _ in range(2):
        assert "server/discover" in here("probe", "--quick", "--trace", *LEGACY).err


# --- Servers that cannot be reached ---


def failed(*words: str, code: int = 3) -> tuple[dict[str, str], Any]:
    """What is shown of a server that cannot be reached, and the same as JSON; the second line of it is blank."""
    done = here("probe", *words)
    assert (done.code, done.out) == (code, "")
    sentence, _, rest = done.err.partition("\n\n")
    assert sentence.startswith("Error: ")
    document = here("probe", "--json", *words)
    assert (document.code, document.err) == (code, "")
    assert document.json["reached"] is False
    return {**pairs(rest), "error": sentence.removeprefix("Error: ")}, document.json


def test_a_program_that_does_not_exist() -> None:
    shown, report = failed("-e", "PATH=/one:/two:/one", "--", "no-program-of-this-name")
    assert shown["error"].endswith("there is no 'no-program-of-this-name' in the PATH.")
    assert shown["PATH"] == "/one\n/two"
    assert report["path"] == ["/one", "/two"]
    assert report["program"] is None
    assert shown["try"] == "Is it installed? Give its whole path, or add its folder to PATH."


def test_a_server_that_exits() -> None:
    shown, report = failed(*broken("variable"))
    assert shown["ended"] == "exit code 2, while starting"
    assert shown["program"] == sys.executable
    assert shown["stderr"] == "Error: the environment variable WEATHER_API_KEY is not set"
    assert shown["try"] == "A server gets few of your variables. Pass this one on: --inherit-env WEATHER_API_KEY"
    assert (report["exit_code"], report["signal"], report["phase"]) == (2, None, "spawn")
    assert report["path"]


def test_a_server_that_is_killed() -> None:
    shown, report = failed("--", "sh", "-c", "kill -9 $$")
    assert shown["ended"] == "SIGKILL, while starting"
    assert (report["exit_code"], report["signal"]) == (None, "SIGKILL")
    assert shown["stderr"] == "empty"


def test_a_server_that_talks_of_other_things() -> None:
    shown, report = failed("--timeout", "1", *broken("chatty"), code=5)
    assert shown["stdout"] == "2 lines that are not messages, the first: Starting up\\x1b[2J …"
    assert shown["stderr"] == "ready"
    assert shown["try"].splitlines()[0].endswith("Try: mcplumb probe -s http://127.0.0.1:3000/mcp")
    assert report["bad_lines"] == 2
    assert "(--timeout)" in shown["error"]


def test_a_server_at_an_address_where_nobody_is() -> None:
    shown, report = failed("-s", "tcp://127.0.0.1:1")
    assert shown.keys() == {"error", "server", "try"}
    assert (report["program"], report["path"]) == (None, [])


def test_wrong_usage_is_not_a_finding() -> None:
    assert here("probe", "--revision", "2025", *LEGACY).code == 2
    assert here("probe").code == 2


def test_a_server_that_is_lost_meanwhile() -> None:
    server = 'import sys, runpy\nsys.stdin.readline()\nprint(\'{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":'
    server += f'["{ALL[0]}"],"capabilities":{{}}}}}}\', flush=True)\nsys.exit(4)\n'
    done = here("probe", "--quick", "--no-restart", "--", PYTHON, "-c", server)
    assert done.code == 3
    assert "Error: " in done.err


# --- As people see it ---


def test_it_fits_a_terminal() -> None:
    done = on_terminal("probe", "--no-color", *WEATHER, columns=60)
    assert done.code == 0
    plain = done.out.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert max(map(len, plain.splitlines())) <= 60


def test_a_failure_is_on_stderr_and_its_document_on_stdout(tmp_path: Path) -> None:
    done = mcplumb("probe", *broken("module"), cwd=tmp_path)
    assert (done.code, done.out) == (3, "")
    assert "Install nothing_of_this_name where " in done.err
    assert "Traceback" in done.err  # that of the server, quoted
    assert mcplumb("probe", "--json", *broken("module"), cwd=tmp_path).json["exit_code"] == 1
