"""Refreshes a grant in a process of its own, which holds the lock of the entry until the new tokens are saved.

A server that rotates refresh tokens accepts each once. If the program that refreshes is killed between the server's
answer and the saving, the user has to sign in again. This process does nothing else, is in no terminal's process group,
and ends within its time limit; whoever waits for it may come and go.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.flow import refresh
from mcplumb.protocol.oauth.steps import Answer, Fetch
from mcplumb.protocol.oauth.tokens import Grant, GrantRefused
from mcplumb.stores.token_store import EntryLock, FileTokens, KeyringTokens, default_token_store

__all__ = ["NotStarted", "main", "run"]

#: Seconds for one request, however slowly its answer arrives.
_TIMEOUT = 30.0
_MAX_BODY = (1 << 20) + 1
#: The line before the outcome. A process that has not written it has used no refresh token.
_STARTED = b"mcplumb refreshes\n"


class NotStarted(Exception):
    """The interpreter of this program cannot run the process, for example because it is embedded in another program."""


class _Job(msgspec.Struct, frozen=True):
    """The job of the process. It is sent over a pipe; the tokens stay in the store."""

    folder: str
    name: str
    in_keyring: bool
    proxy: str | None = None


class _Outcome(msgspec.Struct, frozen=True):
    """The outcome of a job. The grant is read from the store."""

    reason: str = ""
    sentence: str = ""
    error: str | None = None
    issuer: str | None = None


async def run(store: FileTokens, name: str, lock: EntryLock, *, proxy: str | None) -> Grant:
    """Refresh an entry in a process that inherits its lock, and return the grant that it has saved.

    `NotStarted`: nothing was done.
    """
    from mcplumb.client.auth.authorizer import in_thread, read_entry

    job = _Job(str(store.folder), name, isinstance(store, KeyringTokens), proxy)
    # -P: nothing is imported from the working folder.
    try:
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-P", "-m", "mcplumb.client.auth.refresh_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[lock.descriptor],
            start_new_session=True,
        )
    except OSError as error:
        raise NotStarted(str(error)) from error
    output, faults = await in_thread(process.communicate, msgspec.json.encode(job))
    # An interpreter may print something of its own, before and after.
    _, started, written = output.partition(_STARTED)
    if not started:
        raise NotStarted(f"It ended with exit code {process.returncode}.")
    try:
        outcome = msgspec.json.decode(written.partition(b"\n")[0], type=_Outcome)
    except msgspec.DecodeError:
        last = faults.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise AuthorizationError(
            "refused", f"The process that refreshes tokens failed with exit code {process.returncode}: {last}"
        ) from None
    if outcome.error is not None:
        raise GrantRefused(outcome.error, outcome.sentence, issuer=outcome.issuer or "")
    if outcome.reason:
        raise AuthorizationError(outcome.reason, outcome.sentence, issuer=outcome.issuer)
    entry = read_entry(await in_thread(store.load, name))
    if entry is None:
        raise AuthorizationError("refused", "The tokens were removed while they were refreshed.")
    return entry.grant


def main() -> None:
    """Do the job on stdin, and write the outcome to stdout."""
    _write(_STARTED)
    given = sys.stdin.buffer.read()
    if not given:
        return  # the parent was killed before it could send the job
    job = msgspec.json.decode(given, type=_Job)
    try:
        _refresh(job)
        outcome = _Outcome()
    except GrantRefused as refused:
        outcome = _Outcome("refused", str(refused), refused.error, refused.issuer)
    except AuthorizationError as error:
        outcome = _Outcome(error.reason, str(error), None, error.issuer)
    _write(msgspec.json.encode(outcome) + b"\n")


def _write(data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # the tokens are saved, although the parent is gone
        os.write(1, data)


def _refresh(job: _Job) -> None:
    from mcplumb.client.auth.authorizer import read_entry, save_entry
    from mcplumb.client.auth.key_signing import DpopKey

    store = default_token_store(job.folder) if job.in_keyring else FileTokens(job.folder)
    entry = read_entry(store.load(job.name))
    if entry is None:
        raise AuthorizationError("refused", "There are no tokens to refresh: sign in again.")
    prover = None if entry.dpop_key is None else DpopKey(entry.dpop_key)
    flow = refresh(entry.grant, now=time.time(), random=os.urandom, prover=prover)
    given: Any = None
    while True:
        try:
            step = flow.send(given)
        except StopIteration as end:
            save_entry(store, job.name, msgspec.structs.replace(entry, grant=end.value))
            return
        if not isinstance(step, Fetch):
            raise AuthorizationError("refused", "A refresh opens no browser.")
        given = _fetch(step, job.proxy)


def _fetch(fetch: Fetch, proxy: str | None) -> Answer:
    """Make one request with the standard library alone, which loads faster than aiohttp."""
    parts = urlsplit(fetch.url)
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    connection = _connection(parts, proxy)
    # The timeout of a socket begins anew with every byte.
    signal.signal(signal.SIGALRM, _stop)
    # Again and again: a signal that arrives just before a read does not interrupt it.
    signal.setitimer(signal.ITIMER_REAL, _TIMEOUT, 1)
    try:
        connection.request(fetch.method, target, fetch.body, dict(fetch.headers))
        response = connection.getresponse()
        body = response.read(_MAX_BODY)
        signal.setitimer(signal.ITIMER_REAL, 0)
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, body, time.time(), headers)
    except (OSError, ValueError, http.client.HTTPException) as error:
        # Errors of the parser quote the response, which may echo the request and its secrets.
        why = str(error).rstrip(".") if isinstance(error, OSError) else "its answer is not HTTP"
        raise AuthorizationError(
            "unreachable", f"{parts.scheme}://{parts.netloc} could not be asked for {fetch.purpose}: {why}."
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.close()


def _connection(parts: SplitResult, proxy: str | None) -> http.client.HTTPConnection:
    is_secure = parts.scheme == "https"
    # With a port, because without one http.client looks for it behind the last colon of an IPv6 address.
    host, port = parts.hostname or "", parts.port or (443 if is_secure else 80)
    kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    if proxy is None:
        return kind(host, port, timeout=_TIMEOUT)
    via = urlsplit(proxy)
    connection = kind(via.hostname or "", via.port or 80, timeout=_TIMEOUT)
    connection.set_tunnel(host, port, _proxy_headers(via))
    return connection


def _stop(*_: object) -> None:
    raise TimeoutError(f"there was no whole answer within {_TIMEOUT:g} s")


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


if __name__ == "__main__":
    main()
