"""``mcplumb serve`` at addresses, as a process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest

from mcplumb import connect as connect_async
from mcplumb.cli.main import main
from mcplumb.errors import ConnectError
from mcplumb.sync import connect
from tests.cli.kit import here
from tests.kit.loop import PATIENCE
from tests.kit.token_issuer import AUDIENCE, TokenIssuer

ALPHA, BETA = "alpha-token", "beta-token"
FILE = """
print("while it is imported")
from mcplumb import Server

server = Server("weather")

@server.tool
def forecast(city: str) -> str:
    print("while it runs")
    return f"sun in {city}"
"""


@pytest.mark.parametrize("option", ["--http", "--tcp"])
@pytest.mark.parametrize(
    "words", [("serve", "weather.py"), ("bridge", "-s", "http://127.0.0.1:9/mcp")], ids=["serve", "bridge"]
)
def test_a_port_without_its_colon_is_refused(words: tuple[str, ...], option: str) -> None:
    done = here(*words, option, "8000")
    assert done.code == 2
    assert f"{option} 8000 names a host, and no port. For port 8000, write {option} :8000." in done.err


def test_an_address_in_use_is_no_reason_to_probe_the_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = here("bridge", "--http", place, "--", sys.executable, "weather.py")
    assert done.code == 3
    assert f"The server cannot listen at {place}: the port" in done.err
    assert "mcplumb probe" not in done.err


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as path:  # that of pytest may be too long for a socket
        (Path(path) / "weather.py").write_text(FILE, encoding="utf-8")
        yield Path(path)


@contextmanager
def serving(folder: Path, count: int, *options: str) -> Iterator[list[str]]:
    """A process that serves at so many addresses; stopped in the end, when it must have gone well."""
    command = [sys.executable, "-m", "mcplumb", "serve", "weather.py", *options]
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    try:
        assert process.stderr is not None
        addresses = []
        for line in process.stderr:
            if "Serving at " in line:
                addresses.append(line.partition("Serving at ")[2].strip())
                if len(addresses) == count:
                    break
        timer.cancel()
        yield addresses
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
        assert output.splitlines()[0] == "while it is imported"
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


def forecast(address: str, **options: str) -> str:
    with connect(address, **options) as client:  # type: ignore[arg-type]
        return str(client.call_tool("forecast", {"city": "Oslo"}).content[0].text)  # type: ignore[union-attr]


@pytest.mark.req("STR-1")
def test_it_serves_at_several_addresses_at_once(folder: Path) -> None:
    options = ["--unix", "w.sock", "--tcp", "127.0.0.1:0", "--tcp", ":0", "--http", "127.0.0.1:0", "--http", ":0/here"]
    with serving(folder, 5, *options) as addresses:
        assert addresses[0] == "unix:w.sock"
        assert [address.rpartition("/")[2] for address in addresses[3:]] == ["mcp", "here"]
        for address in [f"unix:{folder / 'w.sock'}", *addresses[1:]]:
            assert forecast(address) == "sun in Oslo"
    assert not (folder / "w.sock").exists()


@pytest.mark.req("HTP-4")
def test_tokens_come_from_a_file(folder: Path) -> None:
    (folder / "tokens").write_text("# of alice\nalpha-token\n\n  beta-token \n", encoding="utf-8")
    with serving(folder, 1, "--http", ":0", "--token-file", "tokens") as (address,):
        assert forecast(address, token=ALPHA) == "sun in Oslo"
        assert forecast(address, token=BETA) == "sun in Oslo"
        for token in ("#", "gamma-token"):
            with pytest.raises(ConnectError, match="401"):
                forecast(address, token=token)


@pytest.mark.req("HTP-4")
def test_a_token_file_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    (folder / "tokens").write_text("alpha-token\n", encoding="utf-8-sig")
    with serving(folder, 1, "--http", ":0", "--token-file", "tokens") as (address,):
        assert forecast(address, token=ALPHA) == "sun in Oslo"


@pytest.mark.req("AUT-11")
@pytest.mark.req("AUT-12")
async def test_access_tokens_of_an_issuer(folder: Path) -> None:
    async with TokenIssuer().publishing() as issuer:
        options = ["--issuer", issuer.issuer, "--audience", "other", "--audience", AUDIENCE, "--scope", "weather:read"]
        with serving(folder, 1, "--http", ":0", *options) as (address,):
            async with connect_async(address, token=issuer.token(scope="weather:read")) as client:
                assert (await client.call_tool("forecast", {"city": "Oslo"})).text == "sun in Oslo"
            for token, status in ((issuer.token(aud="x", scope="weather:read"), "401"), (issuer.token(), "403")):
                with pytest.raises(ConnectError, match=status):
                    await connect_async(address, token=token)
            with pytest.raises(ConnectError, match="401"):
                await connect_async(address)
        resource = ["--issuer", issuer.issuer, "--resource", AUDIENCE, "--host-name", "notes.example"]
        with serving(folder, 1, "--http", ":0", *resource) as (address,):
            async with connect_async(address, token=issuer.token()) as client:
                assert (await client.call_tool("forecast", {"city": "Oslo"})).text == "sun in Oslo"
            async with aiohttp.ClientSession() as session:
                well_known = address.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
                async with session.get(well_known, headers={"Host": "notes.example"}) as response:
                    document = await response.json()
            assert (document["resource"], document["authorization_servers"]) == (AUDIENCE, [issuer.issuer])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--token-file", "tokens"], "give --http as well"),
        (["--http", ":0", "--token-file", "tokens"], "There is no token in tokens"),
        (
            ["--issuer", "https://login.example", "--audience", "x"],
            "--issuer is for clients over HTTP: give --http as well",
        ),
        (["--tcp", ":0", "--resource", "https://x.example"], "--resource is for clients over HTTP"),
        (["--http", ":0", "--issuer", "https://login.example"], "--issuer needs --audience"),
        (["--http", ":0", "--audience", "x"], "give their --issuer as well"),
        (["--http", ":0", "--scope", "x"], "give their --issuer as well"),
        (["--http", ":0", "--jwks-url", "https://login.example/keys"], "give their --issuer as well"),
        (["--http", ":0", "--issuer", "http://login.example", "--audience", "x"], "it must be https"),
        (["--http", ":0", "--issuer", "https://login.example", "--audience", "x", "--scope", "a b"], "the scope 'a b'"),
        (["--tcp", "nowhere"], "needs a port"),
        (["--unix", ""], "needs the path of a file"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    folder: Path, options: list[str], what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tokens").write_text("# none\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["mcplumb", "serve", "weather.py", *options])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code not in (0, None)
    assert what in str(ended.value.code) + capsys.readouterr().err
