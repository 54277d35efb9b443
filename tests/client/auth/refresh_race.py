"""Many processes find the same token expired, and are killed at random moments.

``python -m tests.client.auth.refresh_race`` runs rounds of this. In each, the tokens in the store are made older than
they may be, a crowd of processes wants to use them, and some are killed. The authorization server rotates refresh
tokens, and ends a session in which one is used twice. Printed is how many refreshes there were, and whether the session
has survived.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from mcplumb.client.auth.authorizer import Authorizer, Entry, entry_name, read_entry
from mcplumb.client.auth.oauth import OAuth
from mcplumb.protocol.oauth.client_identity import ClientIdentity
from mcplumb.protocol.oauth.tokens import Grant
from mcplumb.stores.token_store import FileTokens

ENDPOINT = "http://127.0.0.1:1/mcp"
LIFETIME = 3600


class Figures(NamedTuple):
    rounds: int
    processes: int
    killed: int
    #: Processes that were left alone, and got no valid token.
    failed: int
    refreshes: int
    #: Refresh tokens that were used twice, and sessions that ended.
    lost: int


class Report(msgspec.Struct):
    """What the authorization server says of itself."""

    refreshes: int
    lost: int
    tokens: list[str]


def serve() -> None:
    """Be the authorization server, until stdin ends."""
    from aiohttp import web

    from tests.client.auth.authorization_server import AuthorizationServer

    async def main() -> None:
        server = AuthorizationServer()
        server.refresh_tokens["first"] = "session"

        async def report(_: web.Request) -> web.Response:
            body = msgspec.json.encode(Report(server.refreshes, len(server.ended), list(server.tokens)[-100:]))
            return web.Response(body=body)

        async with server.running(report=report):
            print(server.issuer, flush=True)
            await asyncio.to_thread(sys.stdin.read)

    asyncio.run(main())


def run(rounds: int, crowd: int, seed: int) -> Figures:
    """Run the race."""
    chance = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-m", "tests.client.auth.refresh_race", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        issuer = server.stdout.readline().strip()
        store = FileTokens(Path(folder) / "tokens")
        _save(store, issuer, "first", "stale")
        killed = failed = 0
        for _ in range(rounds):
            _expire(store)
            pids = [_fork(store, issuer) for _ in range(crowd)]
            victims = chance.sample(pids, chance.randint(0, crowd))
            for pid in victims:
                time.sleep(chance.random() * 0.02)
                os.kill(pid, signal.SIGKILL)
            killed += len(victims)
            for pid in pids:
                _, status = os.waitpid(pid, 0)
                failed += pid not in victims and status != 0
        asyncio.run(_settled(store))
        report = _ask(issuer)
        server.stdin.close()
    return Figures(rounds, rounds * crowd, killed, failed, report.refreshes, report.lost)


async def _settled(store: FileTokens) -> None:
    """Wait for a refresh that goes on although everybody who wanted it was killed."""
    async with store.locked(entry_name(ENDPOINT, "default")):
        pass


def _save(store: FileTokens, issuer: str, refresh_token: str, access_token: str) -> None:
    grant = Grant(
        issuer=issuer,
        resource=ENDPOINT,
        client=ClientIdentity(client_id="me", issuer=issuer, auth_method="none"),
        access_token=access_token,
        token_endpoint=f"{issuer}/token",
        refresh_token=refresh_token,
        granted_at=time.time(),
        expires_at=time.time() + LIFETIME,
    )
    entry = Entry(endpoint=ENDPOINT, user="default", grant=grant)
    store.save(entry_name(ENDPOINT, "default"), msgspec.json.encode(entry))


def _expire(store: FileTokens) -> None:
    async def change() -> None:
        name = entry_name(ENDPOINT, "default")
        async with store.locked(name):
            entry = read_entry(store.load(name))
            assert entry is not None
            old = msgspec.structs.replace(entry.grant, expires_at=time.time() - 1)
            store.save(name, msgspec.json.encode(msgspec.structs.replace(entry, grant=old)))

    asyncio.run(change())


def _fork(store: FileTokens, issuer: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        headers = asyncio.run(_use(store))
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        code = 0 if token in _ask(issuer).tokens else 1
    finally:
        os._exit(code)


async def _use(store: FileTokens) -> dict[str, str]:
    return await Authorizer(OAuth(store=store), ENDPOINT).headers("POST", ENDPOINT)


def _ask(issuer: str) -> Report:
    import http.client

    connection = http.client.HTTPConnection(issuer.removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", "/report")
        return msgspec.json.decode(connection.getresponse().read(), type=Report)
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    figures = run(options.rounds, options.processes, options.seed)
    print(", ".join(f"{value} {name}" for name, value in figures._asdict().items()))
    sys.exit(bool(figures.failed or figures.lost))


if __name__ == "__main__":
    main()
