"""The page for operators: its configurations are tried out with the programs that they are for."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import kubernetes_validate
import pytest
import yaml

from mcplumb import connect
from mcplumb.revisions import LATEST, LATEST_LEGACY
from mcplumb.telemetry.request_metrics import BackendMetrics, ServerMetrics
from tests.cli.workers.workshop import APP, WITHIN, Fleet, Load, fleet, until
from tests.kit.debian import find_program
from tests.kit.legacy_peer import HEADERS
from tests.kit.ports import FreePort
from tests.kit.redis_server import running_redis
from tests.repo.source import ROOT

PAGE = ROOT / "docs" / "howto" / "run-in-production.md"


def block(language: str, containing: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = [str(each) for each in blocks if containing in each]
    return found


def tool(name: str) -> str:
    found = find_program(name)
    if found is None:
        pytest.skip(f"{name} is not installed.")
    return found


def test_the_unit_of_systemd_is_valid(tmp_path: Path) -> None:
    program = tool("systemd-analyze")
    unit = block("ini", "ExecStart").replace("/opt/weather/bin/mcplumb", sys.executable)
    (tmp_path / "weather.service").write_text(unit)
    done = subprocess.run(
        [program, "verify", "--man=no", str(tmp_path / "weather.service")], capture_output=True, text=True, check=False
    )
    assert "weather.service" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_objects_of_kubernetes_are_valid() -> None:
    objects = list(yaml.safe_load_all(block("yaml", "apiVersion")))
    assert [each["kind"] for each in objects] == ["Deployment", "Service", "PodDisruptionBudget"]
    for each in objects:
        kubernetes_validate.validate(each, "1.33", strict=True)
    (container,) = objects[0]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["mcplumb", "serve"]


def test_the_alerts_name_metrics_that_there_are(tmp_path: Path) -> None:
    rules = yaml.safe_load(block("yaml", "alert:"))
    text = " ".join(rule["expr"] for group in rules["groups"] for rule in group["rules"])
    listed = set(re.findall(r"^\| `(mcplumb_\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name.removesuffix("_bucket") for name in re.findall(r"mcplumb_\w+", text)} <= listed
    promtool = shutil.which("promtool")
    if promtool is not None:
        (tmp_path / "rules.yml").write_text(block("yaml", "alert:"))
        subprocess.run([promtool, "check", "rules", str(tmp_path / "rules.yml")], check=True, capture_output=True)


def test_the_page_lists_every_metric() -> None:
    listed = set(re.findall(r"^\| `(mcplumb_\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    families = [*ServerMetrics().registry.snapshot(), *BackendMetrics().families()]
    elsewhere = {
        "mcplumb_requests_in_flight", "mcplumb_subscriptions", "mcplumb_sessions", "mcplumb_streams",
        "mcplumb_workers", "mcplumb_worker_restarts_total",
    }  # fmt: skip
    assert listed == {family.name for family in families} | elsewhere


@contextmanager
def nginx(folder: Path, port: int, first: str, second: str) -> Iterator[str]:
    """nginx with the configuration of the page, without TLS, in front of two replicas."""
    program = tool("nginx")
    text = block("nginx", "upstream")
    text = re.sub(r"^ *ssl_certificate.*\n", "", text, flags=re.MULTILINE)
    for old, new in {
        "listen 443 ssl": f"listen 127.0.0.1:{port}", "a.example:8000": first, "b.example:8000": second
    }.items():  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors warn; events {{}}\n"
        f"http {{ access_log off;\n{places}{text}}}\n"
    )
    with subprocess.Popen([program, "-c", str(folder / "nginx.conf"), "-p", str(folder)]) as process:
        try:
            until(lambda: _listens(port), "nginx")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def visit(url: str, answers: list[str], is_over: threading.Event) -> None:
    """Call a tool again and again, in one legacy session."""
    async with connect(url, revisions=[LATEST_LEGACY.name]) as client:
        while not is_over.is_set():
            answers.append((await client.call_tool("pid")).text)
            await asyncio.sleep(0.05)


@pytest.mark.req("SCL-1")
def test_replicas_behind_nginx_are_restarted_and_nobody_notices(tmp_path: Path, free_port: FreePort) -> None:
    tool("nginx")
    (tmp_path / "app.py").write_text(APP)
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    answers: list[str] = []
    is_over = threading.Event()
    with running_redis() as redis, ExitStack() as first, ExitStack() as second:
        stacks = first, second

        def start(number: int) -> Fleet:
            words = ("--shared", redis.url, "--host-name", "127.0.0.1")
            running = stacks[number].enter_context(fleet(tmp_path / "app.py", *words, place=places[number]))
            until(running.ready, "the replica")
            return running

        replicas = [start(0), start(1)]
        with nginx(tmp_path, free_port(), *places) as url, Load(url) as load:
            visiting = threading.Thread(target=lambda: asyncio.run(visit(url, answers, is_over)))
            visiting.start()
            try:
                until(lambda: len(answers) > 5, "answers")
                for number, stack in enumerate(stacks):
                    stack.close()  # SIGTERM, and waits
                    assert replicas[number].process.returncode == 0
                    load.go_on(50)
                    new = {str(pid) for pid in start(number).pids()}
                    until(lambda new=new: new & load.pids, "nginx to use it again")  # type: ignore[misc]
                count = len(answers)
                until(lambda: len(answers) > count, "another answer in the session")
            finally:
                is_over.set()
                visiting.join(WITHIN)
            assert (load.refused, load.broken, load.statuses) == ([], [], [])


async def served_without_the_store(url: str) -> None:
    """Legacy clients get 503 again and again; modern ones are served all the same."""
    params = {"protocolVersion": LATEST_LEGACY.name, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with connect(url, revisions=[LATEST.name]) as client, aiohttp.ClientSession(headers=HEADERS) as http:
        for _ in range(20):
            async with http.post(url, json=initialize) as response:
                assert response.status == 503
            assert (await client.call_tool("pid")).text


@pytest.mark.req("SCL-4")
def test_modern_clients_are_served_behind_nginx_without_the_store(tmp_path: Path, free_port: FreePort) -> None:
    tool("nginx")
    (tmp_path / "app.py").write_text(APP)
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    words = ("--shared", f"redis://127.0.0.1:{free_port()}", "--host-name", "127.0.0.1")
    with ExitStack() as stack:
        for place in places:
            stack.enter_context(fleet(tmp_path / "app.py", *words, place=place))
        for place in places:
            until(lambda place=place: _listens(int(place.rpartition(":")[2])), "the replica")  # type: ignore[misc]
        with nginx(tmp_path, free_port(), *places) as url:
            asyncio.run(served_without_the_store(url))
