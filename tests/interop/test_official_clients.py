"""The official SDKs as clients of our server: each SDK, over each transport, and each way of agreeing on a revision."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from tests.interop.environments import PYTHON_V1, PYTHON_V2, TYPESCRIPT_V1, TYPESCRIPT_V2, Environment
from tests.interop.serving import served
from tests.interop.tapping import tapped

HERE = Path(__file__).parent
SERVER = [sys.executable, str(HERE / "server.py")]
VISIT_SECONDS = 60

LEGACY = "2025-11-25"
MODERN = "2026-07-28"


class Client(NamedTuple):
    environment: Environment
    #: How it is told to agree on a revision, where it has a choice.
    mode: str | None
    revision: str
    #: It finds the era out with a process of its own, which it stops before it starts the one that it uses.
    probes: bool = False
    way: Literal["stdio", "http", "sse"] = "stdio"

    def __str__(self) -> str:
        return "-".join(filter(None, [self.environment.name, self.mode, self.way]))

    @property
    def program(self) -> Path:
        return HERE / "clients" / (self.environment.name + (".py" if self.environment.is_python else ".mjs"))


CLIENTS = [
    Client(PYTHON_V1, None, LEGACY),
    Client(PYTHON_V2, "legacy", LEGACY),
    Client(PYTHON_V2, "auto", MODERN),
    Client(PYTHON_V2, MODERN, MODERN),
    Client(TYPESCRIPT_V1, None, LEGACY),
    Client(TYPESCRIPT_V2, "legacy", LEGACY),
    Client(TYPESCRIPT_V2, "auto", MODERN, probes=True),
    Client(TYPESCRIPT_V2, MODERN, MODERN, probes=True),
    Client(PYTHON_V1, None, LEGACY, way="http"),
    Client(PYTHON_V1, None, LEGACY, way="sse"),
    Client(PYTHON_V2, "legacy", LEGACY, way="http"),
    Client(PYTHON_V2, "legacy", LEGACY, way="sse"),
    Client(PYTHON_V2, "auto", MODERN, way="http"),
    Client(PYTHON_V2, MODERN, MODERN, way="http"),
    Client(TYPESCRIPT_V1, None, LEGACY, way="http"),
    Client(TYPESCRIPT_V1, None, LEGACY, way="sse"),
    Client(TYPESCRIPT_V2, "legacy", LEGACY, way="http"),
    Client(TYPESCRIPT_V2, "legacy", LEGACY, way="sse"),
    Client(TYPESCRIPT_V2, "auto", MODERN, way="http"),
    Client(TYPESCRIPT_V2, MODERN, MODERN, way="http"),
]


class Visit(NamedTuple):
    client: Client
    #: What the client says it saw.
    report: dict[str, Any]
    #: How each process of the server ended, the first one first.
    endings: list[dict[str, Any]]
    stderr: str


@pytest.fixture(scope="module", params=CLIENTS, ids=str)
def visited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    client: Client = request.param
    scratch = tmp_path_factory.mktemp(str(client))
    endings = scratch / "endings"
    endings.mkdir()
    command = client.environment.command(client.program, scratch)
    command += [client.mode] if client.mode else []
    witnessed = [sys.executable, str(HERE / "witness.py"), str(endings), *SERVER]
    if client.way == "stdio":
        witnessed = tapped(witnessed)
    log = scratch / "stderr"
    with log.open("w") as stderr, served(witnessed, client.way, stderr) as place:
        command += place
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                timeout=VISIT_SECONDS,
                check=False,
            )
            ending = f"ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            done, ending = None, f"was not done within {VISIT_SECONDS} s"
    said = log.read_text(errors="replace")
    if done is None or done.returncode != 0:
        pytest.fail(f"The client {client} {ending}. Its standard error and the server's:\n{said}", pytrace=False)
    records = [json.loads(path.read_text()) for path in sorted(endings.iterdir())]
    return Visit(client, json.loads(done.stdout), records, said)


@pytest.fixture
def visit(visited: Visit) -> Visit:
    print(visited.stderr)  # pytest shows it if the test fails
    return visited


def texts(*said: str, error: bool = False) -> dict[str, Any]:
    return {"text": list(said), "error": error}


def test_the_newest_revision_of_the_era_is_agreed_on(visit: Visit) -> None:
    assert visit.report["revision"] == visit.client.revision


def test_the_server_introduces_itself(visit: Visit) -> None:
    # The Python SDK, told the revision, asks nobody and so hears nothing.
    never_asks = visit.client.environment is PYTHON_V2 and visit.client.mode == MODERN
    assert visit.report["server"] == (None if never_asks else ["interop", "1.0.0"])
    assert visit.report["instructions"] == (None if never_asks else "A small inn, for trying clients.")


def test_tools_are_listed(visit: Visit) -> None:
    assert visit.report["tools"] == [
        "announce", "book", "climb", "forecast", "greet", "refuse", "release", "rewrite", "stopped",
    ]  # fmt: skip


def test_a_tool_gives_text(visit: Visit) -> None:
    assert visit.report["greeting"] == texts("Hello, Åse!")


def test_a_tool_gives_structured_content(visit: Visit) -> None:
    assert visit.report["forecast"] == {"city": "Oslo", "celsius": [0, 1]}


def test_a_tool_fails(visit: Visit) -> None:
    assert visit.report["refusal"] == texts("The inn is full.", error=True)


def test_resources_are_listed(visit: Visit) -> None:
    assert visit.report["resources"] == ["interop://dot", "interop://notes"]
    assert visit.report["templates"] == ["interop://cities/{city}"]


def test_resources_are_read(visit: Visit) -> None:
    assert visit.report["notes"] == "Bring a coat."
    assert visit.report["dot"] == ["image/png", "iVBORw0K"]
    assert visit.report["city"] == "Oslo is a city."


def test_a_resource_that_is_not_there_has_the_code_of_the_era(visit: Visit) -> None:
    # The newest TypeScript SDK knows both codes, and always shows the newer one.
    shows_newer = visit.client.revision == MODERN or visit.client.environment is TYPESCRIPT_V2
    assert visit.report["missing"] == (-32602 if shows_newer else -32002)


def test_prompts_are_listed_and_got(visit: Visit) -> None:
    assert visit.report["prompts"] == ["plan"]
    assert visit.report["plan"] == [["user", "Plan a day in Oslo."]]


def test_arguments_of_prompts_and_templates_are_completed(visit: Visit) -> None:
    assert visit.report["completions"] == [["Oslo", "Osaka"], ["Oslo", "Osaka"]]


def test_progress_arrives_while_the_call_runs(visit: Visit) -> None:
    assert visit.report["progress"] == [[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]]
    assert visit.report["climb"] == texts("climbed 3 steps")


def test_forms_are_filled_in_and_declined(visit: Visit) -> None:
    assert visit.report["asked"] == [
        "How long do you stay in the attic?",
        "Book the attic?",
        "How long do you stay in the cellar?",
    ]
    assert visit.report["booking"] == texts("the attic: Stay(nights=2, breakfast=True), Consent(sure=True)")
    assert visit.report["declined"] == texts("the cellar: decline")


def test_log_messages_arrive(visit: Visit) -> None:
    assert visit.report["log"] == ["info", "Dinner is served."]


def test_a_change_of_a_resource_is_announced(visit: Visit) -> None:
    assert visit.report["changes"] == ["interop://notes", "Bring a hat."]


def test_a_call_that_the_client_gives_up_is_stopped(visit: Visit) -> None:
    # The first version of the Python SDK does not tell the server that it gave up.
    tells = visit.client.environment is not PYTHON_V1
    assert visit.report["timeout"] == texts("stopped" if tells else "released")


def test_nobody_complains(visit: Visit) -> None:
    assert visit.report["complaints"] == [], "The client got something that it does not understand."
    assert "Traceback" not in visit.stderr


def test_the_server_ends_well(visit: Visit) -> None:
    *probed, ending = visit.endings
    assert len(probed) == visit.client.probes
    if visit.client.way != "stdio":
        # This one stays until somebody stops it.
        assert ending == {"status": 0, "signals": ["SIGTERM"]}
        return
    assert all(probe["status"] in (0, -signal.SIGTERM) for probe in probed), probed
    assert ending["signals"] == [], "The client closed the server's input, waited, and then had to stop it."
    assert ending["status"] == 0, "The server ended by itself, but not well."
