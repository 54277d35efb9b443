from __future__ import annotations

import asyncio
import errno
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from mcplumb import AuthorizationError, ClientCredentials, HttpError, OAuth, UsageError, connect
from mcplumb.client.auth import authorizer
from mcplumb.client.auth.authorizer import entry_name, read_entry
from mcplumb.client.auth.loopback_redirect import LoopbackRedirect
from mcplumb.stores.token_store import FileTokens, KeyringTokens
from mcplumb.sync import connect as blocking_connect
from tests.attacks.hostile import DISCOVERED, Seen, Undiscovered, response, result
from tests.client.auth.authorization_server import AuthorizationServer
from tests.client.auth.site import Site, make_server, site
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, happens, turns
from tests.kit.results import text_of
from tests.kit.servers import serving


@pytest.mark.req("AUT-7")
async def test_one_sign_in_lasts(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        for _ in range(3):
            async with connect(place.url, auth=place.oauth()) as client:
                assert text_of(await client.call_tool("whoami")) == "somebody"
        assert place.visits == 1
        assert len(place.auth.clients) == 1


async def test_without_authorization_the_error_says_what_is_asked(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        with pytest.raises(Exception, match="401"):
            async with connect(place.url):
                pass


@pytest.mark.req("AUT-7")
async def test_an_expired_token_is_refreshed_without_the_user(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        before = place.entry().grant
        place.age(3600)
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")
        after = place.entry().grant
        assert (place.visits, place.auth.refreshes) == (1, 1)
        assert before.access_token != after.access_token
        assert before.refresh_token != after.refresh_token


@pytest.mark.req("AUT-7")
async def test_a_token_that_the_server_forgot_is_refreshed(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()) as client:
            place.auth.tokens.clear()
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (1, 1)


@pytest.mark.req("AUT-7")
async def test_a_dead_refresh_token_leads_to_a_new_sign_in(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()) as client:
            place.auth.tokens.clear()
            place.auth.refresh_tokens.clear()
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (2, 1)
        assert len(place.auth.clients) == 1, "The registration is used again, if its port is free."


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize("has_refresh_token", [True, False])
async def test_nothing_that_is_kept_is_of_use_any_more(tmp_path: Path, has_refresh_token: bool) -> None:
    async with site(tmp_path) as place:
        place.auth.gives_refresh_tokens = has_refresh_token
        async with connect(place.url, auth=place.oauth()):
            pass
        place.age(3600)
        place.auth.tokens.clear()
        place.auth.refresh_tokens.clear()
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (2, int(has_refresh_token))


@pytest.mark.req("AUT-7")
async def test_a_refresh_that_fails_is_an_error_of_the_authorization(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()) as client:
            place.auth.tokens.clear()
            place.auth.refuses = 503
            with pytest.raises(
                AuthorizationError, match=r"tools/call 'whoami' was not authorized\. .* status 503"
            ) as one:
                await client.call_tool("whoami")
        assert (one.value.reason, one.value.issuer) == ("refused", place.auth.issuer)
        place.age(3600)
        with pytest.raises(AuthorizationError, match="status 503"):
            async with connect(place.url, auth=place.oauth()):
                pass
        place.auth.refuses = None
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")
        assert place.visits == 1


async def test_a_fixed_port_serves_one_sign_in_after_the_other(tmp_path: Path) -> None:
    async def browse(url: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            await response.text()

    free = LoopbackRedirect()
    free.close()
    async with site(tmp_path) as place:
        place.auth.gives_refresh_tokens = False
        async with connect(place.url, auth=place.oauth(on_visit=browse, port=free.port)) as client:
            place.auth.tokens.clear()
            await client.call_tool("whoami")
        assert len(place.auth.clients) == 1


class _OwnKeyring:
    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.is_locked = False

    def get_password(self, service: str, name: str) -> str | None:
        if self.is_locked:
            raise RuntimeError("The collection is locked.")
        return self.kept.get(name)

    def set_password(self, service: str, name: str, password: str) -> None:
        self.kept[name] = password


async def test_a_keyring_of_the_programs_own(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        keyring = _OwnKeyring()
        place.store = KeyringTokens(tmp_path / "names", keyring)
        async with connect(place.url, auth=place.oauth()) as client:
            place.auth.tokens.clear()
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (1, 1)
        keyring.is_locked = True
        with pytest.raises(AuthorizationError, match="keyring cannot be read: The collection is locked") as caught:
            async with connect(place.url, auth=place.oauth()):
                pass
        assert caught.value.reason == "store"


async def test_the_loop_goes_on_while_a_keyring_asks_its_user(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    waited: list[str] = []

    class Asking(_OwnKeyring):
        """Answers only after the event loop has had a turn."""

        def get_password(self, service: str, name: str) -> str | None:
            self._wait("read")
            return super().get_password(service, name)

        def set_password(self, service: str, name: str, password: str) -> None:
            self._wait("written")
            super().set_password(service, name, password)

        def _wait(self, what: str) -> None:
            assert threading.current_thread() is not threading.main_thread(), "The loop's thread would wait for itself."
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(PATIENCE)
            waited.append(what)

    async with site(tmp_path) as place:
        place.store = KeyringTokens(tmp_path / "names", Asking())
        async with connect(place.url, auth=place.oauth()) as client:
            place.auth.tokens.clear()
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (1, 1)
    assert set(waited) == {"read", "written"}


async def test_a_caller_that_gives_up_does_not_release_the_lock_before_the_tokens_are_saved(tmp_path: Path) -> None:
    is_saving, may_save = threading.Event(), threading.Event()

    class Slow(FileTokens):
        def save(self, name: str, data: bytes) -> None:
            is_saving.set()
            assert may_save.wait(PATIENCE)
            super().save(name, data)

    async with site(tmp_path) as place:
        place.store = Slow(tmp_path / "slow")
        opening = asyncio.ensure_future(_opened(place))
        await happens(is_saving)
        opening.cancel()
        locking = asyncio.ensure_future(_locked(place.store, entry_name(place.url, "default")))
        await turns()
        assert not locking.done()
        may_save.set()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await locking
        assert place.entry().grant.access_token in place.auth.tokens


async def _opened(place: Site) -> None:
    async with connect(place.url, auth=place.oauth()):
        pass


async def _locked(store: FileTokens, name: str) -> None:
    async with store.locked(name):
        pass


async def test_a_fresh_sign_in_replaces_the_tokens_only_when_it_has_others(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        before = place.entry().grant
        place.auth.denial = "access_denied"
        with pytest.raises(AuthorizationError, match="access_denied"):
            async with connect(place.url, auth=place.oauth(fresh=True)):
                pass
        assert place.entry().grant == before
        place.auth.denial = None
        async with connect(place.url, auth=place.oauth(fresh=True)) as client:
            await client.call_tool("whoami")
        assert place.entry().grant.access_token != before.access_token
        assert (place.visits, len(place.auth.clients)) == (3, 1)


async def test_a_sign_in_that_cannot_be_kept_holds_for_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(FileTokens):
        def save(self, name: str, data: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth(store=Full(tmp_path / "full"))) as client:
            await client.call_tool("whoami")
        assert place.visits == 1
    [record] = caplog.records
    assert "No space left on device" in record.getMessage()


async def test_an_ordinary_server_costs_no_look_for_a_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(authorizer, "default_token_store", None)
    async with serving(make_server(), "http://127.0.0.1:0") as [url], connect(url, auth=OAuth()) as client:
        assert text_of(await client.call_tool("whoami")) == "somebody"


@pytest.mark.req("AUT-7")
async def test_many_calls_share_one_refresh_and_one_consent(tmp_path: Path) -> None:
    async with site(tmp_path) as place, connect(place.url, auth=place.oauth()) as client:
        place.auth.tokens.clear()
        await asyncio.gather(*(client.call_tool("whoami") for _ in range(20)))
        assert (place.visits, place.auth.refreshes) == (1, 1)
        place.auth.tokens.clear()
        place.auth.refresh_tokens.clear()
        await asyncio.gather(*(client.call_tool("whoami") for _ in range(20)))
        assert place.visits == 2


async def test_other_clients_of_the_process_take_what_was_refreshed(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        place.age(3600)

        async def use() -> None:
            async with connect(place.url, auth=place.oauth()) as client:
                await client.call_tool("whoami")

        await asyncio.gather(*(use() for _ in range(10)))
        assert (place.visits, place.auth.refreshes) == (1, 1)


async def test_a_user_who_takes_longer_than_a_call_may_take(tmp_path: Path) -> None:
    async with site(tmp_path) as place:

        async def slowly(url: str) -> str:
            if place.visits:
                skip(40)
            return await place.visit(url)

        place.auth.gives_refresh_tokens = False
        async with connect(place.url, auth=place.oauth(on_visit=slowly), timeout=30) as client:
            place.auth.tokens.clear()
            await client.call_tool("whoami")
        assert place.visits == 2


async def test_a_denied_sign_in(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        place.auth.denial = "access_denied"
        with pytest.raises(AuthorizationError, match="did not grant access: access_denied") as caught:
            async with connect(place.url, auth=place.oauth()):
                pass
        assert caught.value.reason == "denied"
        assert place.store.names() == []


async def test_a_browser_reaches_the_loopback_address(tmp_path: Path) -> None:
    pages = []

    async def browse(url: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            pages.append(await response.text())

    async with site(tmp_path) as place, connect(place.url, auth=place.oauth(on_visit=browse)) as client:
        await client.call_tool("whoami")
    assert "Signed in" in pages[0]


async def test_a_plain_function_may_block(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    def paste(url: str) -> str:
        return asyncio.run_coroutine_threadsafe(place.visit(url), loop).result(PATIENCE)

    async with site(tmp_path) as place, connect(place.url, auth=place.oauth(on_visit=paste)) as client:
        await client.call_tool("whoami")


async def test_nobody_signs_in(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        with pytest.raises(AuthorizationError, match=r"within 0\.1 s"):
            async with connect(place.url, auth=place.oauth(on_visit=lambda url: None, timeout=0.1)):
                pass


async def test_a_function_that_fails(tmp_path: Path) -> None:
    def fail(url: str) -> str:
        raise RuntimeError("No display.")

    async with site(tmp_path) as place:
        with pytest.raises(RuntimeError, match="No display"):
            async with connect(place.url, auth=place.oauth(on_visit=fail)):
                pass


@pytest.mark.req("AUT-9")
async def test_a_program_authorizes_itself(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        auth = ClientCredentials(client_id="me", client_secret="mine")
        async with connect(place.url, auth=auth) as client:
            await client.call_tool("whoami")
            place.auth.tokens.clear()
            await asyncio.gather(*(client.call_tool("whoami") for _ in range(5)))
        assert [fields["grant_type"] for _, fields in place.auth.requests] == ["client_credentials"] * 2


async def test_a_server_that_never_accepts(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        place.auth.tokens = _Nothing()
        with pytest.raises((AuthorizationError, HttpError)):
            async with connect(place.url, auth=place.oauth()):
                pass
        assert place.visits <= 3


class _Nothing(dict[str, str]):
    def __setitem__(self, key: str, value: str) -> None:
        pass


@pytest.mark.req("AUT-8")
async def test_no_secret_is_logged_or_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    traced: list[bytes] = []
    with caplog.at_level(logging.DEBUG):
        async with site(tmp_path) as place:
            auth = place.oauth(client_id="me", client_secret="my-secret")
            async with connect(place.url, auth=auth, trace=lambda way, data: traced.append(data)) as client:
                place.auth.tokens.clear()
                await client.call_tool("whoami")
                said = repr(client) + repr(auth) + str(vars(client)) + repr(place.entry())
    out, err = capfd.readouterr()
    everything = caplog.text + out + err + said + b"".join(traced).decode()
    secrets = ["my-secret", *place.auth.tokens, *place.auth.refresh_tokens]
    secrets += [
        fields[name] for _, fields in place.auth.requests for name in ("code", "code_verifier") if name in fields
    ]
    assert len(secrets) >= 5
    for secret in secrets:
        assert secret not in everything


@pytest.mark.req("AUT-10")
def test_only_servers_over_http_are_signed_in_to() -> None:
    with pytest.raises(UsageError, match="auth"):
        connect(["python", "server.py"], auth=OAuth())


def test_a_token_and_a_sign_in_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="auth="):
        connect("http://127.0.0.1:1/mcp", auth=OAuth(store=FileTokens(tmp_path)), token="x")


@pytest.mark.req("AUT-4")
def test_tokens_are_not_sent_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(AuthorizationError, match="must be https"):
        connect("http://mcp.example/mcp", auth=OAuth(store=FileTokens(tmp_path)))


def test_what_cannot_be_read_is_as_if_it_were_not_there() -> None:
    assert read_entry(None) is None
    assert read_entry(b"{}") is None
    assert read_entry(json.dumps({"version": 9}).encode()) is None


@pytest.mark.req("AUT-3")
async def test_credentials_stay_with_the_issuer_that_they_were_used_at_first(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        auth = place.oauth(client_id="me", client_secret="my-secret")
        async with connect(place.url, auth=auth):
            pass
        [name] = place.store.names()
        entry = place.entry()
        moved = msgspec.structs.replace(entry.grant, issuer="https://first.example", refresh_token=None)
        place.store.save(name, msgspec.json.encode(msgspec.structs.replace(entry, grant=moved)))
        place.auth.tokens.clear()
        before = len(place.auth.requests)
        with pytest.raises(AuthorizationError, match=r"belong to https://first\.example"):
            async with connect(place.url, auth=auth):
                pass
        assert len(place.auth.requests) == before


# --- More scopes ---


@asynccontextmanager
async def step_up(folder: Path) -> AsyncIterator[Site]:
    """A server whose tools need a scope that it does not ask for at first."""
    auth = AuthorizationServer()

    def answer(seen: Seen) -> list[bytes]:
        if seen.path.startswith("/.well-known/"):
            document = {"resource": server.url, "authorization_servers": [auth.issuer]}
            return [response(body=json.dumps(document).encode(), Content_Type="application/json")]
        scopes = auth.tokens.get(seen.fields.get("authorization", "").removeprefix("Bearer "))
        if scopes is None:
            return [response("401 Unauthorized", WWW_Authenticate='Bearer scope="read"')]
        if seen.asks == "server/discover":
            return [result(seen, DISCOVERED)]
        if "write" not in scopes.split():
            challenge = 'Bearer error="insufficient_scope", scope="write"'
            return [response("403 Forbidden", WWW_Authenticate=challenge)]
        return [result(seen, {"resultType": "complete", "content": [{"type": "text", "text": scopes}]})]

    async with auth.running(), Undiscovered(answer) as server:
        yield Site(auth, server.url, FileTokens(folder / "tokens"))


@pytest.mark.req("AUT-6")
async def test_calls_that_need_more_scopes_share_one_consent_and_go_on(tmp_path: Path) -> None:
    async with step_up(tmp_path) as place, connect(place.url, auth=place.oauth()) as client:
        assert place.visits == 1
        results = await asyncio.gather(*(client.call_tool("write") for _ in range(10)))
        assert {text_of(each) for each in results} == {"read write"}, "The scopes before, and those that were missing."
        assert place.visits == 2
        assert place.entry().grant.scopes == ("read", "write")


@pytest.mark.req("AUT-6")
async def test_a_server_that_always_wants_more_is_asked_a_bounded_number_of_times(tmp_path: Path) -> None:
    async with step_up(tmp_path) as place, connect(place.url, auth=place.oauth()) as client:
        place.auth.grants = "read"
        with pytest.raises((AuthorizationError, HttpError)):
            await client.call_tool("write")
        assert place.visits <= 4


async def test_the_blocking_client_signs_in(tmp_path: Path) -> None:
    async with site(tmp_path) as place:

        def use() -> str:
            with blocking_connect(place.url, auth=place.oauth()) as client:
                return text_of(client.call_tool("whoami"))

        assert await asyncio.to_thread(use) == "somebody"
        assert await asyncio.to_thread(use) == "somebody"
        assert place.visits == 1
