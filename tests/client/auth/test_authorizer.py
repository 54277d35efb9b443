from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest

from mcplumb import (
    AuthorizationError,
    ClientCredentials,
    ConnectError,
    EnterpriseManaged,
    HttpError,
    OAuth,
    UsageError,
    WorkloadIdentity,
    connect,
    connect_all,
)
from mcplumb.client.auth import authorizer
from mcplumb.client.auth.authorizer import Authorizer, entry_name, read_entry
from mcplumb.client.auth.loopback_redirect import LoopbackRedirect, is_own_port
from mcplumb.stores.token_store import FileTokens, KeyringTokens
from mcplumb.sync import connect as blocking_connect
from mcplumb.transports.http_client.response import token_id
from tests.attacks.hostile import DISCOVERED, Seen, Undiscovered, response, result
from tests.client.auth.authorization_server import AuthorizationServer
from tests.client.auth.site import Site, make_server, site
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, happens, turns
from tests.kit.ports import FreePort
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
@pytest.mark.parametrize(
    "refusal", [(400, "invalid_grant"), (200, "bad_refresh_token"), (401, "invalid_refresh_token")]
)
async def test_a_dead_refresh_token_leads_to_a_new_sign_in(tmp_path: Path, refusal: tuple[int, str]) -> None:
    """Some large providers have their own words for it: GitHub, and Slack."""
    async with site(tmp_path) as place:
        place.auth.refusal = refusal
        async with connect(place.url, auth=place.oauth()) as client:
            place.auth.tokens.clear()
            place.auth.refresh_tokens.clear()
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (2, 1)
        assert len(place.auth.clients) == 1, "The registration is used again, if its port is free."


@pytest.mark.req("AUT-7")
async def test_a_refresh_token_that_was_refused_to_another_program_leads_to_a_new_sign_in(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as place,
        connect(place.url, auth=place.oauth()) as one,
        connect(place.url, auth=place.oauth(sign_in=False)) as other,
    ):
        place.auth.tokens.clear()
        place.auth.refresh_tokens.clear()
        with pytest.raises(HttpError, match="401"):
            await other.call_tool("whoami")
        await one.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (2, 1)
        await other.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (2, 1)


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize("is_refused", [True, False])
async def test_what_is_kept_says_that_a_sign_in_is_over(tmp_path: Path, is_refused: bool) -> None:
    """If the server has refused the token that the dead refresh token came with, that is dead as well."""
    async with site(tmp_path) as place:
        auth = place.oauth(sign_in=False)
        async with connect(place.url, auth=place.oauth()):
            pass
        assert list(place.store.ends().values()) == [None]
        place.auth.refresh_tokens.clear()
        if is_refused:
            place.auth.tokens.clear()
        else:
            place.age(3570)
        before = place.entry().grant.expires_at
        assert before is not None
        with pytest.raises(ConnectError, match="401") if is_refused else contextlib.nullcontext():
            async with connect(place.url, auth=auth):
                pass
        [ends_at] = place.store.ends().values()
        assert ends_at is not None
        assert ends_at < before if is_refused else ends_at == before
        place.auth.tokens.clear()
        async with connect(place.url, auth=place.oauth()):
            pass
        assert list(place.store.ends().values()) == [None]


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
        assert (one.value.reason, one.value.issuer) == ("unreachable", place.auth.issuer)
        place.age(3600)
        with pytest.raises(AuthorizationError, match="status 503"):
            async with connect(place.url, auth=place.oauth()):
                pass
        place.auth.refuses = None
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")
        assert place.visits == 1


@pytest.mark.req("AUT-7")
async def test_a_token_is_used_until_it_ends_while_the_authorization_server_is_away(tmp_path: Path) -> None:
    """It is renewed a minute before."""
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        place.age(3600 - 30)
        place.auth.refuses = 503
        async with connect(place.url, auth=place.oauth()) as client:
            assert text_of(await client.call_tool("whoami")) == "somebody"
            place.auth.refuses = None
            await client.call_tool("whoami")
        assert (place.visits, len(place.auth.tokens)) == (1, 2)
        used = Authorizer(ClientCredentials(client_id="me", client_secret="s3cret"), place.url)
        assert await used.renew(None, None, None)
        assert used.grant is not None
        place.auth.refuses = 503
        for seconds, is_valid in ((20, True), (-1, False)):
            used._grant = msgspec.structs.replace(used.grant, expires_at=time.time() + seconds)
            if is_valid:
                assert used.grant.access_token in (await used.headers("POST", place.url))["Authorization"]
            else:
                with pytest.raises(AuthorizationError, match="status 503"):
                    await used.headers("POST", place.url)


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
        def save(self, name: str, data: bytes, *, ends_at: float | None = None) -> None:
            is_saving.set()
            assert may_save.wait(PATIENCE)
            super().save(name, data, ends_at=ends_at)

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


async def _opened(place: Site, **options: Any) -> None:
    async with connect(place.url, auth=place.oauth(**options)):
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
        def save(self, name: str, data: bytes, *, ends_at: float | None = None) -> None:
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


async def test_a_user_without_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as any number. An ordinary server needs no tokens, and a store may be given."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    async with serving(make_server(), "http://127.0.0.1:0") as [url], connect(url, auth=OAuth()) as client:
        assert await client.list_tools()
    async with site(tmp_path) as place:
        with pytest.raises(UsageError, match=r"no home folder\. Set XDG_STATE_HOME, or HOME\."):
            async with connect(place.url, auth=OAuth(on_visit=place.visit)):
                pass
        assert place.visits == 0
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")


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


async def _page(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()


async def test_a_browser_reaches_the_loopback_address(tmp_path: Path) -> None:
    browsers: list[asyncio.Task[str]] = []

    def browse(url: str) -> None:
        loop.call_soon_threadsafe(lambda: browsers.append(loop.create_task(_page(url))))

    loop = asyncio.get_running_loop()
    async with site(tmp_path) as place, connect(place.url, auth=place.oauth(on_visit=browse)) as client:
        await client.call_tool("whoami")
        assert "<h1>Signed in</h1>" in await browsers[0]


async def test_the_page_says_that_the_code_was_not_exchanged(tmp_path: Path) -> None:
    browsers: list[asyncio.Task[str]] = []

    def browse(url: str) -> None:
        loop.call_soon_threadsafe(lambda: browsers.append(loop.create_task(_page(url))))

    loop = asyncio.get_running_loop()
    async with site(tmp_path) as place:
        place.auth.metadata = {"token_endpoint": f"{place.auth.issuer}/nothing"}
        with pytest.raises(AuthorizationError, match="refused to exchange the authorization code"):
            async with connect(place.url, auth=place.oauth(on_visit=browse)):
                pass
        page = await browsers[0]
    assert "<h1>Not signed in</h1>" in page
    assert "refused to exchange the authorization code: " in page


async def test_a_plain_function_may_block(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    def paste(url: str) -> str:
        return asyncio.run_coroutine_threadsafe(place.visit(url), loop).result(PATIENCE)

    async with site(tmp_path) as place, connect(place.url, auth=place.oauth(on_visit=paste)) as client:
        await client.call_tool("whoami")


@pytest.mark.parametrize("pasted", ["", "something else", "http://127.0.0.1:1/callback?code=x", "the address to open"])
async def test_an_address_that_is_not_the_redirect(tmp_path: Path, pasted: str) -> None:
    async with site(tmp_path) as place:
        with pytest.raises(AuthorizationError, match=r"which begins with http://127\.0\.0\.1:\d+/callback\?") as caught:
            await _opened(place, on_visit=lambda url: url if pasted == "the address to open" else pasted)
        assert caught.value.reason == "redirect"
        assert place.auth.requests == []


@pytest.mark.parametrize("opened", [True, False])
async def test_what_webbrowser_open_returns_is_no_address(tmp_path: Path, opened: bool) -> None:
    async with site(tmp_path) as place:

        async def browse(url: str) -> bool:
            browsing.append(asyncio.create_task(_follow(place, url)))
            return opened

        browsing: list[asyncio.Task[None]] = []
        await _opened(place, on_visit=browse)
        await browsing[0]


async def _follow(place: Site, url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(await place.visit(url)) as answer:
        assert answer.status == 200


async def test_a_function_that_returns_no_address(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        with pytest.raises(AuthorizationError, match=r"on_visit must return .* as a string, or None, not int\.") as one:
            await _opened(place, on_visit=lambda _: 1)
        assert one.value.reason == "redirect"


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


def _counting(threads: list[threading.Thread], *, is_async: bool) -> Any:
    """Return a function for tokens, which notes in which thread it is called."""

    def plain() -> str:
        threads.append(threading.current_thread())
        return f"token-{len(threads)}"

    async def later() -> str:
        return plain()

    return later if is_async else plain


@pytest.mark.req("AUT-9")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_workload_brings_a_token_of_its_platform(tmp_path: Path, is_async: bool) -> None:
    threads: list[threading.Thread] = []
    async with site(tmp_path) as place:
        place.auth.assertions = {"token-1", "token-2"}
        auth = WorkloadIdentity(client_id="me", assertion=_counting(threads, is_async=is_async))
        async with connect(place.url, auth=auth) as client:
            place.auth.tokens.clear()
            await client.call_tool("whoami")
        assert [fields["assertion"] for _, fields in place.auth.requests] == ["token-1", "token-2"]
        assert {each is threading.main_thread() for each in threads} == {is_async}, "A plain function may block."
        async with connect(place.url, auth=WorkloadIdentity(client_id="me", assertion="token-1")) as client:
            await client.call_tool("whoami")


@pytest.mark.req("AUT-9")
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_enterprise_exchanges_the_token_of_its_user(tmp_path: Path, is_async: bool) -> None:
    provider = AuthorizationServer()
    async with site(tmp_path) as place, provider.running():
        provider.subject_tokens = {"token-1"}
        provider.assertions = place.auth.assertions
        auth = EnterpriseManaged(
            client_id="me", client_secret="s3cret", idp_issuer=provider.issuer, idp_client_id="me-there",
            idp_token_endpoint=f"{provider.issuer}/token", id_token=_counting([], is_async=is_async),
        )  # fmt: skip
        async with connect(place.url, auth=auth) as client:
            await client.call_tool("whoami")
        [(_, exchange)], [(_, grant)] = provider.requests, place.auth.requests
        assert (exchange["subject_token"], exchange["audience"]) == ("token-1", place.auth.issuer)
        assert exchange["resource"] == place.url.rstrip("/")
        assert "token-1" not in grant.values()
        assert grant["assertion"] in place.auth.assertions


@pytest.mark.req("AUT-9")
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "must return a string, not NoneType"),
        (OSError("The platform is away."), "failed with OSError"),
        (StopIteration(), "failed with RuntimeError"),  # as of next(): no future can hold it
    ],
)
async def test_a_function_for_tokens_that_has_none(tmp_path: Path, given: object, sentence: str) -> None:
    tokens: list[Any] = [given, "token-1", given]

    def source() -> Any:
        if isinstance(tokens[0], Exception):
            raise tokens[0]
        return tokens.pop(0)

    async with site(tmp_path) as place:
        place.auth.assertions = {"token-1"}
        auth = WorkloadIdentity(client_id="me", assertion=source)
        with pytest.raises(AuthorizationError, match=sentence) as caught:
            async with connect(place.url, auth=auth):
                pass
        assert (caught.value.reason, place.auth.requests) == ("assertion", [])
        tokens[:] = ["token-1", given]
        async with connect(place.url, auth=auth) as client:
            place.auth.tokens.clear()
            with pytest.raises(AuthorizationError, match=sentence):
                await client.call_tool("whoami")


async def test_a_server_that_never_accepts(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        place.auth.tokens = _Nothing()
        with pytest.raises(
            AuthorizationError, match=r"has just granted.* The bearer token is invalid, or .*\.$"
        ) as one:
            async with connect(place.url, auth=place.oauth()):
                pass
        assert one.value.reason == "denied"
        assert place.auth.issuer in str(one.value)
        assert (place.visits, place.auth.refreshes) == (1, 0), "The user cannot help."
        place.auth.tokens = {}
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")


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


@pytest.mark.req("AUT-3")
async def test_a_fresh_sign_in_shows_credentials_to_no_other_issuer_either(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth(client_id="me", client_secret="my-secret")):
            pass
        [name] = place.store.names()
        entry = place.entry()
        moved = msgspec.structs.replace(entry.grant, issuer="https://first.example")
        place.store.save(name, msgspec.json.encode(msgspec.structs.replace(entry, grant=moved)))
        before = len(place.auth.requests)
        again = place.oauth(client_id="me", client_secret="my-secret", fresh=True)
        with pytest.raises(AuthorizationError, match=r"belong to https://first\.example.* name it with them") as caught:
            async with connect(place.url, auth=again):
                pass
        assert (caught.value.reason, len(place.auth.requests)) == ("client", before)
        named = place.oauth(client_id="me", client_secret="my-secret", fresh=True, issuer=place.auth.issuer)
        async with connect(place.url, auth=named) as client:
            await client.call_tool("whoami")
        assert place.entry().grant.issuer == place.auth.issuer


# --- Registrations that end ---


@pytest.mark.req("AUT-7")
async def test_a_registration_whose_secret_has_expired_is_made_anew(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        place.auth.registers = {"client_secret": "old", "client_secret_expires_at": int(time.time()) + 3600}
        async with connect(place.url, auth=place.oauth()):
            pass
        [name] = place.store.names()
        entry = place.entry()
        client = msgspec.structs.replace(entry.grant.client, secret_expires_at=1.0)
        ended = msgspec.structs.replace(entry, grant=msgspec.structs.replace(entry.grant, client=client))
        place.store.save(name, msgspec.json.encode(ended))
        place.age(3600)
        place.auth.registers = {"client_secret": "new", "client_secret_expires_at": 0}
        async with connect(place.url, auth=place.oauth()) as client_again:
            await client_again.call_tool("whoami")
        assert (place.visits, len(place.auth.clients), place.auth.refreshes) == (2, 2, 0)
        assert place.entry().grant.client.client_secret == "new"


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize("when", ["expired", "refused"])
async def test_a_client_that_is_not_known_any_more_registers_and_signs_in_anew(tmp_path: Path, when: str) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        place.auth.forgotten = set(place.auth.clients)
        place.auth.tokens.clear()
        if when == "expired":
            place.age(3600)
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")
        assert (place.visits, len(place.auth.clients), place.auth.refreshes) == (2, 2, 1)


@pytest.mark.req("AUT-7")
async def test_a_new_secret_of_a_client_is_used_for_the_next_refresh(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth(client_id="me", client_secret="old")):
            pass
        place.age(3600)
        async with connect(place.url, auth=place.oauth(client_id="me", client_secret="new")) as client:
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (1, 1)
        assert place.entry().grant.client.client_secret == "new"


@pytest.mark.req("AUT-7")
async def test_given_credentials_that_are_refused_lead_to_a_sentence_and_not_to_a_consent(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        auth = place.oauth(client_id="me", client_secret="my-secret")
        async with connect(place.url, auth=auth):
            pass
        place.auth.forgotten = {"me"}
        place.age(3600)
        with pytest.raises(AuthorizationError, match="invalid_client"):
            async with connect(place.url, auth=auth):
                pass
        assert place.visits == 1
        place.auth.forgotten = set()
        async with connect(place.url, auth=auth) as client:
            await client.call_tool("whoami")
        assert place.visits == 1, "The refresh token was kept."


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_a_registration_that_led_nowhere_is_not_used_again(tmp_path: Path, how: str) -> None:
    """An authorization server that does not know a client shows an error page, and never redirects."""
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        before = place.entry().grant
        place.auth.forgotten = set(place.auth.clients)
        shown = asyncio.Event()

        async def look(url: str) -> None:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                assert answer.status == 400
            shown.set()

        wait = 0.1 if how == "timeout" else PATIENCE
        opening = asyncio.ensure_future(_opened(place, on_visit=look, timeout=wait, fresh=True))
        await asyncio.wait_for(shown.wait(), PATIENCE)
        if how == "cancelled":
            opening.cancel()
        with pytest.raises((AuthorizationError, asyncio.CancelledError)):
            await opening
        assert place.entry().grant.access_token == before.access_token
        async with connect(place.url, auth=place.oauth(fresh=True)) as client:
            await client.call_tool("whoami")
        assert len(place.auth.clients) == 2


# --- Clients that were registered by hand ---


@pytest.mark.req("AUT-3")
@pytest.mark.parametrize("why", ["the session has ended", "again", "named again"])
@pytest.mark.parametrize("is_fixed", [True, False])
async def test_a_given_client_is_used_for_later_sign_ins(
    tmp_path: Path, why: str, is_fixed: bool, free_port: FreePort
) -> None:
    """Commands know nothing of the client that somebody has signed in with."""
    named = {"client_id": "me", "client_secret": "mine"} if why == "named again" else {}
    port = free_port() if is_fixed else 0
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth(client_id="me", client_secret="mine", port=port)):
            pass
        for _ in range(2):
            if "again" not in why:
                place.auth.tokens.clear()
                place.auth.refresh_tokens.clear()
            async with connect(place.url, auth=place.oauth(fresh="again" in why, **named)) as client:
                await client.call_tool("whoami")
            named = {}
        assert (place.visits, len(place.auth.clients)) == (3, 0)
        visited = [fields for path, fields in place.auth.requests if path == "/authorize"]
        assert [fields["client_id"] for fields in visited] == ["me"] * 3
        if is_fixed:
            assert {fields["redirect_uri"] for fields in visited} == {f"http://127.0.0.1:{port}/callback"}


@pytest.mark.req("AUT-3")
async def test_a_given_client_keeps_its_port(tmp_path: Path, free_port: FreePort) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth(client_id="me", port=free_port())):
            pass
        redirect_uri = place.entry().grant.client.redirect_uri
        assert redirect_uri is not None
        with (
            socket.create_server(("127.0.0.1", urlsplit(redirect_uri).port or 0)),
            pytest.raises(AuthorizationError, match=r"used by another program\. End that one") as caught,
        ):
            await _opened(place, fresh=True)
        assert (caught.value.reason, place.visits) == ("port", 1)


async def test_a_given_client_is_not_given_up_when_nobody_signs_in(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        await _opened(place, client_id="me")
        with pytest.raises(AuthorizationError, match=r"Nobody finished .* If the browser shows an error"):
            await _opened(place, fresh=True, on_visit=lambda url: None, timeout=0.1)
        await _opened(place, fresh=True)
        assert (place.entry().grant.client.client_id, len(place.auth.clients)) == ("me", 0)


async def test_a_given_client_that_is_not_known_any_more_makes_room_for_another(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        await _opened(place, client_id="me")
        place.auth.forgotten = {"me"}
        place.age(3600)
        await _opened(place)
        assert place.entry().grant.client.client_id == "client-0"


# --- Authorization servers and servers that fail for a while ---


@pytest.mark.req("AUT-9")
async def test_an_authorization_server_that_was_down_is_asked_again(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        auth = ClientCredentials(client_id="me", client_secret="mine")
        async with connect(place.url, auth=auth) as client:
            place.auth.tokens.clear()
            place.auth.refuses = 503
            for _ in range(5):
                with pytest.raises(AuthorizationError, match="status 503"):
                    await client.call_tool("whoami")
            place.auth.refuses = None
            await client.call_tool("whoami")


@pytest.mark.req("AUT-9")
async def test_a_server_that_refused_everything_for_a_while_gets_new_tokens_later(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as place:
        auth = ClientCredentials(client_id="me", client_secret="mine")
        async with connect(place.url, auth=auth) as client:
            place.auth.tokens = _Nothing()
            for _ in range(3):
                with pytest.raises((AuthorizationError, HttpError)):
                    await client.call_tool("whoami")
            assert len(place.auth.requests) == 4, "The number of attempts is bounded."
            place.auth.tokens = {}
            with pytest.raises(
                AuthorizationError, match=r"still refuses, after 3 grants .* The bearer token is invalid"
            ):
                await client.call_tool("whoami")
            skip(61)
            await client.call_tool("whoami")


@pytest.mark.req("AUT-7")
async def test_a_server_that_refuses_a_refreshed_token_does_not_cause_one_refresh_after_the_other(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        place.auth.tokens = _Nothing()
        with pytest.raises(ConnectError, match="401"):
            async with connect(place.url, auth=place.oauth(sign_in=False)):
                pass
        assert (place.visits, place.auth.refreshes) == (1, 1)


@asynccontextmanager
async def unusual_place(folder: Path, challenge: str) -> AsyncIterator[Site]:
    """A server whose metadata is only where its first challenge says; calls of tools get another challenge."""
    auth = AuthorizationServer()

    def answer(seen: Seen) -> list[bytes]:
        if seen.path.startswith("/unusual/"):
            document = {"resource": server.url, "authorization_servers": [auth.issuer]}
            return [response(body=json.dumps(document).encode(), Content_Type="application/json")]
        if seen.path.startswith("/.well-known/"):
            return [response("404 Not Found")]
        scopes = auth.tokens.get(seen.fields.get("authorization", "").removeprefix("Bearer "))
        if scopes is None:
            named = f'Bearer resource_metadata="{server.origin}/unusual/metadata"'
            return [response("401 Unauthorized", WWW_Authenticate=named)]
        if seen.asks == "server/discover":
            return [result(seen, DISCOVERED)]
        if "write" not in scopes.split() and challenge:
            return [response("403 Forbidden", WWW_Authenticate=challenge)]
        return [result(seen, {"resultType": "complete", "content": [{"type": "text", "text": scopes}]})]

    async with auth.running(), Undiscovered(answer) as server:
        yield Site(auth, server.url, FileTokens(folder / "tokens"))


@pytest.mark.req("AUT-1")
async def test_a_renewal_at_expiry_looks_for_the_metadata_where_the_challenge_said(tmp_path: Path) -> None:
    async with unusual_place(tmp_path, "") as place:
        place.auth.lifetime = 0
        auth = ClientCredentials(client_id="me", client_secret="mine")
        async with connect(place.url, auth=auth) as client:
            await client.call_tool("read")
            await client.call_tool("read")
        assert len(place.auth.tokens) >= 3


@pytest.mark.req("AUT-6")
async def test_a_challenge_for_more_scopes_need_not_repeat_where_the_metadata_is(tmp_path: Path) -> None:
    async with unusual_place(tmp_path, 'Bearer error="insufficient_scope", scope="write"') as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        place.age(3600)
        async with connect(place.url, auth=place.oauth()) as client:  # refreshed, and in another connection
            place.auth.grants = "write"
            assert text_of(await client.call_tool("write")) == "write"
        assert (place.visits, place.auth.refreshes) == (2, 1)


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
    async with step_up(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()) as client:
            place.auth.grants = "read"
            for _ in range(2):
                with pytest.raises(AuthorizationError, match=r"what .* has just granted.* HTTP 403 Forbidden\.$"):
                    await client.call_tool("write")
            assert place.visits == 2
            place.auth.grants = None
        async with connect(place.url, auth=place.oauth()) as client:
            assert text_of(await client.call_tool("write")) == "read write"


@pytest.mark.req("AUT-6")
async def test_the_user_is_asked_for_the_scopes_that_are_missing(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    class Noting(OAuth):
        def may_sign_in(self, missing: tuple[str, ...]) -> bool:
            asked.append(missing)
            return True

    async with site(tmp_path) as place:
        shared = Authorizer(Noting(store=place.store, on_visit=place.visit), place.url)
        challenges = [
            'Bearer scope="a"',
            *(f'Bearer error="insufficient_scope", scope="{each}"' for each in ("a b", "b")),
        ]
        for challenge in challenges:
            token = None if shared.grant is None else token_id(shared.grant.access_token)
            shared.accepted(None)
            refusal = HttpError(403 if token else 401, "No.", www_authenticate=challenge, token_id=token)
            assert await shared.authorize(refusal)
        assert asked == [(), ("b",), ("b",)]


REFUSAL = HttpError(401, "It asks for a token.", www_authenticate='Bearer scope="read"')


@pytest.mark.req("AUT-6")
async def test_requests_share_a_consent_that_is_denied(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        shared = Authorizer(place.oauth(), place.url)
        place.auth.denial = "access_denied"
        outcomes = await asyncio.gather(*(shared.authorize(REFUSAL) for _ in range(10)), return_exceptions=True)
        assert {getattr(each, "reason", each) for each in outcomes} == {"denied"}
        assert place.visits == 1
        place.auth.denial = None
        assert await shared.authorize(REFUSAL), "The next request asks again."
        assert place.visits == 2


@pytest.mark.req("AUT-6")
async def test_requests_share_the_question_whether_to_sign_in(tmp_path: Path) -> None:
    asked: list[bool] = []

    async def ask() -> bool:
        asked.append(len(asked) > 0)
        await asyncio.sleep(0)  # the others come meanwhile
        return asked[-1]

    async with site(tmp_path) as place:
        shared = Authorizer(place.oauth(sign_in=ask), place.url)
        assert not any(await asyncio.gather(*(shared.authorize(REFUSAL) for _ in range(10))))
        assert (place.visits, asked) == (0, [False])
        assert all(await asyncio.gather(*(shared.authorize(REFUSAL) for _ in range(10))))
        assert (place.visits, asked) == (1, [False, True])


@pytest.mark.req("AUT-7")
async def test_requests_share_a_refresh_that_fails(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        shared = Authorizer(place.oauth(), place.url)
        assert await shared.authorize(REFUSAL)
        place.auth.refuses = 503
        sent = (await shared.headers("POST", place.url))["Authorization"]
        outcomes = await asyncio.gather(*(shared.renew(sent, None, None) for _ in range(10)), return_exceptions=True)
        assert {getattr(each, "reason", each) for each in outcomes} == {"unreachable"}
        assert place.auth.refreshes == 1
        place.auth.refuses = None
        assert await shared.renew(sent, None, None)
        assert (place.visits, place.auth.refreshes) == (1, 2)


@pytest.mark.req("AUT-6")
async def test_a_user_is_not_asked_again_and_again(tmp_path: Path) -> None:
    """A connection that is opened again in the background must not open one page after the other."""
    async with site(tmp_path) as place:
        shared = Authorizer(place.oauth(), place.url)
        place.auth.denial = "access_denied"
        for _ in range(3):
            with pytest.raises(AuthorizationError, match="access_denied"):
                await shared.authorize(REFUSAL)
        skip(61)
        with pytest.raises(AuthorizationError, match=r"3 sign-ins did not give access to .* Connect again"):
            await shared.authorize(REFUSAL)
        assert place.visits == 3


async def test_servers_of_a_group_have_sign_ins_of_their_own(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as place,
        site(tmp_path / "other") as other,
        serving(make_server(), "http://127.0.0.1:0") as [open_to_all],
    ):
        servers: dict[str, Any] = {
            "one": {"target": place.url, "auth": place.oauth()},
            "same": {"target": place.url, "auth": place.oauth()},
            "other": {"target": other.url, "auth": other.oauth()},
            "open": open_to_all,
        }
        async with connect_all(servers) as group:
            for name in servers:
                assert text_of(await group[name].call_tool("whoami")) == "somebody"
        assert (place.visits, other.visits) == (1, 1)
        assert not {*place.auth.tokens} & {*other.auth.tokens}


async def test_servers_of_a_group_take_turns_at_a_fixed_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was registered by hand, or has a metadata document, may have only one redirect address."""
    free = LoopbackRedirect()
    free.close()
    has_met, open_pages = asyncio.Event(), 0

    def is_own(port: int) -> bool:
        if is_own_port(port):
            has_met.set()
        return is_own_port(port)

    async def browse(url: str) -> None:
        nonlocal open_pages
        open_pages += 1
        assert open_pages == 1
        await has_met.wait()
        open_pages -= 1
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200

    monkeypatch.setattr(authorizer, "is_own_port", is_own)
    async with site(tmp_path / "one") as one, site(tmp_path / "two") as two:
        servers: dict[str, Any] = {
            name: {"target": place.url, "auth": place.oauth(client_id="me", port=free.port, on_visit=browse)}
            for name, place in (("one", one), ("two", two))
        }
        async with connect_all(servers) as group:
            assert set(group) == {"one", "two"}


async def test_the_blocking_client_signs_in(tmp_path: Path) -> None:
    async with site(tmp_path) as place:

        def use() -> str:
            with blocking_connect(place.url, auth=place.oauth()) as client:
                return text_of(client.call_tool("whoami"))

        assert await asyncio.to_thread(use) == "somebody"
        assert await asyncio.to_thread(use) == "somebody"
        assert place.visits == 1
