"""Attacks on a sign-in: by authorization servers, by other programs on the machine, and by whoever reads the logs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
import traceback
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import aiohttp
import pytest

from mcplumb import AuthorizationError, ClientCredentials, HttpOptions, McplumbError, OAuth, connect
from mcplumb.client.auth.loopback_redirect import LoopbackRedirect
from mcplumb.stores import FileTokens
from tests.attacks.hostile import Seen, Undiscovered, response
from tests.client.auth.authorization_server import AuthorizationServer
from tests.client.auth.site import Site, make_server, site
from tests.kit.loop import PATIENCE
from tests.kit.results import text_of
from tests.kit.servers import serving


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def with_query(url: str, **changes: str) -> str:
    return f"{url.partition('?')[0]}?{urlencode({**query_of(url), **changes})}"


async def fails(place: Site, **options: Any) -> AuthorizationError:
    """Try to sign in, which must fail and leave nothing behind."""
    with pytest.raises(AuthorizationError) as caught:
        async with connect(place.url, auth=place.oauth(**options)):
            pass
    assert place.store.names() == []
    return caught.value


# --- Authorization servers ---


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize("advertises", [True, False])
async def test_mix_up(tmp_path: Path, advertises: bool) -> None:
    """The server's authorization server sends the browser to another one, to get a code of that one."""
    honest, evil = AuthorizationServer(), AuthorizationServer()
    async with honest.running(), evil.running():
        evil.metadata = {
            "authorization_endpoint": f"{honest.issuer}/authorize",
            "authorization_response_iss_parameter_supported": advertises,
        }
        http = HttpOptions(auth=lambda _: None, authorization_servers=(evil.issuer,))
        async with serving(make_server(), "http://127.0.0.1:0", http=http) as [url]:
            error = await fails(Site(evil, url, FileTokens(tmp_path / "tokens")))
        assert error.reason == "redirect"
        assert len(honest.codes) == 1, "The user has signed in, and the code was sent."
        assert evil.requests == [], "The code has not arrived where it does not belong."


@pytest.mark.req("AUT-4")
async def test_code_injection(tmp_path: Path) -> None:
    """Somebody who can change the redirect replaces its code with one of a sign-in of their own."""
    async with site(tmp_path) as place:

        async def inject(url: str) -> str:
            stolen = query_of(await place.visit(with_query(url, state="theirs", code_challenge="theirs")))["code"]
            return with_query(await place.visit(url), code=stolen)

        error = await fails(place, on_visit=inject)
        assert (error.reason, "invalid_grant" in str(error)) == ("refused", True)


@pytest.mark.req("AUT-4")
async def test_a_redirect_of_an_earlier_sign_in_is_replayed(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        redirects: list[str] = []
        answers: list[int] = []

        async def browse(url: str) -> None:
            redirects.append(await place.visit(url))
            first, last = query_of(redirects[0]), query_of(redirects[-1])
            async with aiohttp.ClientSession() as session:
                if len(redirects) > 1:
                    # The earlier redirect, with its state and its code, and with this sign-in's code.
                    for code in (first["code"], last["code"]):
                        old = with_query(redirects[-1], state=first["state"], code=code)
                        async with session.get(old, allow_redirects=False) as answer:
                            answers.append(answer.status)
                async with session.get(redirects[-1]):
                    pass

        place.auth.gives_refresh_tokens = False
        async with connect(place.url, auth=place.oauth(on_visit=browse)) as client:
            place.auth.tokens.clear()
            assert text_of(await client.call_tool("whoami")) == "somebody"
        first, second = redirects
        assert query_of(first)["state"] != query_of(second)["state"]
        assert answers == [400, 400], "A replayed one is refused, and does not end the wait."
        used = [fields["code"] for path, fields in place.auth.requests if path == "/token"]
        assert used == [query_of(first)["code"], query_of(second)["code"]]

        place.auth.tokens.clear()
        with pytest.raises(AuthorizationError, match="its state is another") as caught:
            async with connect(place.url, auth=place.oauth(on_visit=lambda _: second, fresh=True)):
                pass
        assert caught.value.reason == "state", "A pasted address is held to the same."


#: What a look-alike makes of an issuer without a path.
LOOK_ALIKES = [
    lambda issuer: f"{issuer}/",
    lambda issuer: f"{issuer}/.",
    lambda issuer: issuer.replace("127.0.0.1", "localhost"),
    lambda issuer: issuer.replace("127.0.0.1", "127.0.0.1."),
    lambda issuer: issuer.replace("http:", "HTTP:"),
    lambda issuer: f"{issuer}%20",
    lambda issuer: f"{issuer}\u200b",
    lambda issuer: f"{issuer}.evil.example",
]


@pytest.mark.req("AUT-2")
@pytest.mark.parametrize("look_alike", LOOK_ALIKES)
async def test_an_issuer_that_looks_like_another(tmp_path: Path, look_alike: Any) -> None:
    async with site(tmp_path) as place:
        place.auth.metadata = {"issuer": look_alike(place.auth.issuer)}
        assert (await fails(place)).reason == "issuer"
        assert (place.visits, place.auth.clients, place.auth.requests) == (0, {}, [])


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize("look_alike", LOOK_ALIKES)
async def test_a_redirect_of_an_issuer_that_looks_like_another(tmp_path: Path, look_alike: Any) -> None:
    async with site(tmp_path) as place:

        async def visit(url: str) -> str:
            return with_query(await place.visit(url), iss=look_alike(place.auth.issuer))

        assert (await fails(place, on_visit=visit)).reason == "redirect"
        assert [path for path, _ in place.auth.requests] == ["/authorize"]


@asynccontextmanager
async def redirecting(status: str) -> AsyncIterator[tuple[str, Undiscovered]]:
    """An address that redirects every request, and the server that it redirects to."""
    async with (
        Undiscovered(lambda _: [response()]) as other,
        Undiscovered(lambda _: [response(status, Location=f"{other.origin}/token")]) as server,
    ):
        yield f"{server.origin}/token", other


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
@pytest.mark.parametrize("endpoint", ["token_endpoint", "registration_endpoint"])
async def test_an_endpoint_that_redirects(tmp_path: Path, endpoint: str, status: str) -> None:
    async with site(tmp_path) as place, redirecting(status) as (address, other):
        place.auth.metadata = {endpoint: address}
        await fails(place)
        if endpoint == "token_endpoint":
            with pytest.raises(AuthorizationError):
                async with connect(place.url, auth=ClientCredentials(client_id="me", client_secret="mine")):
                    pass
        assert other.visits == 0


@pytest.mark.req("AUT-8")
async def test_a_refresh_that_is_redirected(tmp_path: Path) -> None:
    async with site(tmp_path) as place, redirecting("307 Temporary Redirect") as (address, other):
        async with connect(place.url, auth=place.oauth()):
            pass
        [name] = place.store.names()
        kept = json.loads(place.store.load(name) or b"")
        kept["grant"]["token_endpoint"] = address
        place.store.save(name, json.dumps(kept).encode())
        place.age(3600)
        with pytest.raises(AuthorizationError):
            async with connect(place.url, auth=place.oauth()):
                pass
        assert other.visits == 0


# --- Other programs on this machine ---

#: Takes a port of all addresses of this machine, in every way that there is: RIVAL PORT WHEN. It listens now, or when
#: a line comes, and says at the end how many connections it got.
RIVAL = """
import socket, sys
port, when = int(sys.argv[1]), sys.argv[2]
taken = []
for host in ("127.0.0.1", "0.0.0.0", "::1", "::"):
    for option in (None, socket.SO_REUSEADDR, getattr(socket, "SO_REUSEPORT", None)):
        made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            if option is not None:
                made.setsockopt(socket.SOL_SOCKET, option, 1)
            made.bind((host, port))
            if when == "now":
                made.listen()
            taken.append(made)
        except OSError:
            made.close()
print(len(taken), flush=True)
if when == "later":
    sys.stdin.readline()
    for made in taken:
        try:
            made.listen()
        except OSError:
            pass
    print("ready", flush=True)
sys.stdin.read()
got = 0
for made in taken:
    made.setblocking(False)
    try:
        while True:
            made.accept()
            got += 1
    except OSError:
        pass
print(got, flush=True)
"""


class Rival:
    """Another program that wants the port of a redirect."""

    def __init__(self, process: asyncio.subprocess.Process, taken: int) -> None:
        self.process = process
        #: How many sockets it has bound.
        self.taken = taken

    async def listen(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b"\n")
        assert await self.process.stdout.readline() == b"ready\n"

    async def got(self) -> int:
        """Stop it, and return how many connections it has got."""
        out, _ = await self.process.communicate(b"\n")
        return int(out.split()[-1])


@asynccontextmanager
async def rival(port: int, when: str) -> AsyncIterator[Rival]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RIVAL, str(port), when, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield Rival(process, int(await process.stdout.readline()))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def browsed(url: str) -> None:
    """Open an address as a browser does."""
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        await answer.read()


def free_port() -> int:
    free = LoopbackRedirect()
    free.close()
    return free.port


async def test_a_process_that_comes_second_does_not_get_the_redirect(tmp_path: Path) -> None:
    others: list[Rival] = []
    async with AsyncExitStack() as stack, site(tmp_path) as place:

        async def visit(url: str) -> None:
            port = urlsplit(query_of(url)["redirect_uri"]).port
            assert port is not None
            others.append(await stack.enter_async_context(rival(port, "now")))
            await browsed(url)

        async with connect(place.url, auth=place.oauth(on_visit=visit)) as client:
            assert text_of(await client.call_tool("whoami")) == "somebody"
        assert [await other.got() for other in others] == [0]


async def test_a_process_that_has_the_port_first_gets_no_redirect(tmp_path: Path) -> None:
    port = free_port()
    async with site(tmp_path) as place, rival(port, "now") as other:
        assert other.taken
        assert (await fails(place, port=port)).reason == "port"
        assert place.auth.requests == [], "The browser was not sent there."
        assert await other.got() == 0


async def test_a_process_that_has_reserved_the_port_gets_no_redirect(tmp_path: Path) -> None:
    """It has bound the port without listening, and listens as soon as the browser is on its way."""
    port = free_port()
    async with site(tmp_path) as place, rival(port, "later") as other:

        async def visit(url: str) -> None:
            await other.listen()
            await browsed(url)

        reasons = []
        try:
            async with connect(place.url, auth=place.oauth(on_visit=visit, port=port)):
                pass
        except AuthorizationError as error:
            reasons.append(error.reason)
        assert reasons in ([], ["port"])
        assert len(place.auth.tokens) == 1 - len(reasons)
        assert await other.got() == 0


# --- Whoever reads the logs ---

PROGRAM = """
import asyncio, logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
import aiohttp
from mcplumb import ClientCredentials, OAuth, connect
from mcplumb.stores import FileTokens
from tests.client.auth.site import age

url, folder, records = sys.argv[1:]
store = FileTokens(folder)

async def visit(address):
    async with aiohttp.ClientSession() as session, session.get(address, allow_redirects=False) as answer:
        return answer.headers["Location"]

async def use(auth):
    try:
        async with connect(url, auth=auth, trace=lambda way, data: print(way, data), record=records) as client:
            print(await client.call_tool("whoami"), client, auth, vars(client), client.stats)
    except Exception:
        logging.exception("It failed.")

async def main():
    auth = OAuth(store=store, on_visit=visit, client_id="me", client_secret="s3cret+of/mine=")
    await use(auth)
    age(store, 3600)
    await use(auth)
    await use(ClientCredentials(client_id="me", client_secret="s3cret+of/mine="))
    print("spoil", flush=True)
    sys.stdin.readline()
    age(store, 3600)
    await use(auth)

asyncio.run(main(), debug=True)
"""


def spellings(secret: str) -> Iterator[bytes]:
    """All ways in which a secret may be written."""
    data = secret.encode()
    yield data
    yield quote(secret, safe="").encode()
    yield data.hex().encode()
    yield json.dumps(secret)[1:-1].encode()
    for shift in range(3):
        # Only what does not depend on the bytes before and after it, of which two are unknown at most.
        text = base64.b64encode(bytes(shift) + data)[4 if shift else 0 :].rstrip(b"=")[:-2]
        yield text
        yield text.replace(b"+", b"-").replace(b"/", b"_")


def found_in(data: bytes, secrets: Iterable[str]) -> list[str]:
    return [secret for secret in secrets if any(spelling in data for spelling in spellings(secret))]


def files_with(secrets: list[str], folder: Path) -> Iterator[Path]:
    """Return the files below a folder whose content or name has a secret in it."""
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if found_in(content + str(path).encode(), secrets):
            yield path


def secrets_of(auth: AuthorizationServer) -> list[str]:
    names = ("code", "code_verifier", "refresh_token", "client_secret", "client_assertion")
    sent = [fields[name] for _, fields in auth.requests for name in names if name in fields]
    return [*auth.tokens, *auth.refresh_tokens, *sent]


@pytest.mark.parametrize("secret", ["access-0123456789abcdef", "s3cret+of/mine="])
def test_a_secret_is_found_however_it_is_written(secret: str) -> None:
    for before in (b"", b"a", b"ab", b"me:"):
        for written in (
            secret.encode(),
            quote(secret, safe="").encode(),
            secret.encode().hex().encode(),
            base64.b64encode(before + secret.encode() + b"x"),
            base64.urlsafe_b64encode(before + secret.encode() + b"x"),
        ):
            assert found_in(b"Basic " + written + b"\n", [secret]) == [secret]
    assert found_in(b"nothing", [secret]) == []


@pytest.mark.req("AUT-8")
async def test_no_secret_is_written_anywhere(tmp_path: Path) -> None:
    """A program logs, prints and records all that it can: sign-ins, refreshes, a dead session, and its own objects."""
    home, records = tmp_path / "home", tmp_path / "records"
    home.mkdir()
    records.mkdir()
    env = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "PYTHONDEVMODE": "1"}
    async with site(tmp_path) as place:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, place.url, str(place.store.folder), str(records),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=env,
        )  # fmt: skip
        assert process.stdout is not None
        out = b""
        async with asyncio.timeout(PATIENCE):
            while b"spoil\n" not in out:
                out += (line := await process.stdout.readline())
                assert line, (await process.communicate())[1].decode()
            secrets = ["s3cret+of/mine=", *secrets_of(place.auth)]
            place.auth.refresh_tokens.clear()
            rest, err = await process.communicate(b"\n")
        written = out + rest + err
    assert process.returncode == 0, err.decode()
    assert out.count(b"somebody") >= 3, "Signed in, refreshed, and authorized itself."
    assert b"DEBUG" in err
    assert len(set(secrets)) >= 8
    assert found_in(written, secrets) == []
    assert [b"whoami" in record.read_bytes() for record in records.iterdir()] == [True] * 4
    assert list(files_with(secrets, tmp_path)) == list(place.store.folder.glob("*.json")), "Where they are kept."


@pytest.mark.req("AUT-8")
async def test_a_server_that_quotes_secrets_does_not_get_them_into_errors(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        place.auth.quotes = True

        async def visit(url: str) -> str:
            return with_query(await place.visit(url), code="another-code-0123456789")

        error = await fails(place, on_visit=visit, client_id="me", client_secret="s3cret+of/mine=")
        secrets = ["s3cret+of/mine=", *secrets_of(place.auth)]
        assert "You sent" in str(error), "The other words of the server are shown."
        assert found_in(str(error).encode(), secrets) == []
        assert "another-code-0123456789" in secrets


@asynccontextmanager
async def echoing(answer: bytes, told: bytes | None = None) -> AsyncIterator[str]:
    """A server whose answer quotes this, or the whole request without its line ends, in the place of ``%s``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = b"" if length is None else await reader.readexactly(int(length[1]))
        writer.write(answer % ((head + body).replace(b"\r\n", b" ") if told is None else told))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"


ECHOES = [
    b"%s\r\n\r\n",
    b"HTTP/1.1 %s\r\n\r\n",
    b"HTTP/1.1 400 %s\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 400 Bad Request\r\n%s\r\n\r\n",
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: %s\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/?%s\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%s\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s",
    b'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n{"error": "%s"}',
    b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"access_token": ["%s"]}',
    b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"access_token": "x", "token_type": "%s"}',
]

_JSON, _EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nConnection: close\r\n\r\n" % kind
    for kind in (b"application/json", b"text/event-stream")
)
#: With the token in the place of ``%s``, where a message is awaited.
TOKEN_ECHOES = [
    b"HTTP/1.1 200 OK\r\nContent-Type: text/%s\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 307 X\r\nLocation: http://%s.example/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 307 X\r\nLocation: %s://[\r\nContent-Length: 0\r\n\r\n",
    _JSON + b'"%s"',
    _JSON + b'{"jsonrpc": "2.0", "a": "%s"}',
    _JSON + b'{"jsonrpc": "2.0", "id": 77, "error": {"code": -1, "message": "%s"}}',
    _EVENTS + b'data: {"%s": 1}\n\n',
    _EVENTS + b"event: endpoint\ndata: http://%s/\n\n",
]


def whole(error: BaseException) -> bytes:
    """Return everything that a log with tracebacks shows of an error, and what a debugger shows of its fields."""
    shown = [repr(vars(error)), *traceback.format_exception(error)]
    return "".join(shown).encode()


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("answer", ECHOES)
async def test_a_token_endpoint_that_echoes_the_request(tmp_path: Path, answer: bytes) -> None:
    secret = f"s3cret+of/mine={os.urandom(12).hex()}"
    async with site(tmp_path) as place, echoing(answer) as address:
        async with connect(place.url, auth=place.oauth(client_id="me", client_secret=secret)):
            pass
        [name] = place.store.names()
        kept = json.loads(place.store.load(name) or b"")
        kept["grant"]["token_endpoint"] = address
        place.store.save(name, json.dumps(kept).encode())
        place.age(3600)
        errors = []
        for auth in (
            place.oauth(client_id="me", client_secret=secret),  # a refresh, in a process of its own
            place.oauth(client_id="me", client_secret=secret, fresh=True),
            ClientCredentials(client_id="me", client_secret=secret),
        ):
            with pytest.raises(AuthorizationError) as caught:
                async with connect(place.url, auth=auth):
                    pass
            errors.append(whole(caught.value))
            place.auth.metadata = {"token_endpoint": address}
        secrets = [secret, *secrets_of(place.auth), *place.auth.codes]
        assert len(secrets) >= 5
        assert found_in(b"".join(errors), secrets) == []


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("answer", ECHOES)
async def test_a_server_that_echoes_the_request(answer: bytes) -> None:
    key, token = os.urandom(12).hex(), os.urandom(12).hex()
    async with echoing(answer) as address:
        with pytest.raises(McplumbError) as caught:
            async with connect(f"{address}?key={key}", token=token):
                pass
    assert found_in(whole(caught.value), [key, token]) == []


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("answer", TOKEN_ECHOES)
@pytest.mark.parametrize("http_sse", [False, True])
async def test_a_server_that_echoes_the_token(answer: bytes, http_sse: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    token = os.urandom(12).hex()
    async with echoing(answer, token.encode()) as address:
        with pytest.raises(McplumbError) as caught:
            async with connect(address, token=token, http_sse=http_sse):
                pass
    assert found_in(whole(caught.value) + caplog.text.encode(), [token]) == []


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n",
        b'HTTP/1.1 401 \r\nWWW-Authenticate: Bearer resource_metadata="http://other/?%s"\r\nContent-Length: 0\r\n\r\n',
    ],
)
async def test_an_address_with_a_secret_in_it(tmp_path: Path, answer: bytes) -> None:
    """Some servers take a key in the query of their address."""
    key = os.urandom(12).hex()
    documents: dict[str, dict[str, Any]] = {
        "names another": {"resource": "https://other.example", "authorization_servers": ["https://other.example"]},
        "names no server": {"authorization_servers": []},
        "names no metadata": {"authorization_servers": [f"http://127.0.0.1:1/?key={key}"]},
        "names a server that is gone": {"authorization_servers": ["http://127.0.0.1:1/x"]},
        "is none": {"resource": 1},
    }
    for document in documents.values():

        def answered(seen: Seen, document: dict[str, Any] = document) -> list[bytes]:
            if seen.path.startswith("/.well-known/oauth-protected-resource"):
                body = json.dumps({"resource": server.url, **document}).encode()
                return [response(body=body, Content_Type="application/json")]
            return [answer % seen.path.encode() if b"%s" in answer else answer]

        async with Undiscovered(answered) as server:
            for auth in (
                OAuth(store=FileTokens(tmp_path), on_visit=lambda _: None, timeout=0.1),
                OAuth(store=FileTokens(tmp_path), client_id="me", issuer="https://x.example"),
                ClientCredentials(client_id="me", client_secret="mine"),
            ):
                with pytest.raises(AuthorizationError) as caught:
                    async with connect(f"{server.url}?key={key}", auth=auth):
                        pass
                assert found_in(whole(caught.value), [key]) == []
