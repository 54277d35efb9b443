from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from joserfc.jwk import ECKey

from mcplumb import HttpOptions, McplumbError, Principal, Server, connect
from mcplumb.client.auth.loopback_redirect import LoopbackRedirect
from mcplumb.stores.token_store import FileTokens, KeyringTokens
from tests.cli.kit import on_terminal
from tests.client.auth.authorization_server import AuthorizationServer
from tests.client.auth.proofs import bound_site
from tests.client.auth.site import Site, kept, site
from tests.kit.loop import PATIENCE, until
from tests.kit.servers import serving


class Run:
    """A run of the command line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def visit(self) -> str:
        """Open the address that it prints, as a browser does, and return the page at the end."""
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            if match := re.search(r"http://\S+/authorize\?\S+", line):
                async with aiohttp.ClientSession() as session, session.get(match.group()) as response:
                    return await response.text()
        raise AssertionError("It printed no address.")

    async def done(self) -> tuple[int, str, str]:
        out, err = await self.process.communicate()
        return self.process.returncode or 0, out.decode(), err.decode()


@asynccontextmanager
async def mcplumb(state: Path, *words: str, **more: str) -> AsyncIterator[Run]:
    env = {
        **os.environ,
        "HOME": str(state),
        "XDG_STATE_HOME": str(state),
        "XDG_CONFIG_HOME": str(state),
        "MCPLUMB_KEYRING": "0",
        "COLUMNS": "200",
        **more,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mcplumb", *words,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=env, cwd=state,
    )  # fmt: skip
    try:
        yield Run(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def said(state: Path, *words: str) -> tuple[int, str, str]:
    async with mcplumb(state, *words) as run:
        return await run.done()


async def test_login_lasts_until_logout(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        code, _, err = await said(tmp_path, "tools", "-s", place.url)
        assert code != 0
        assert f"mcplumb login -s {place.url}" in err
        async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser") as run:
            assert "Signed in" in await run.visit()
            code, _, err = await run.done()
        assert (code, "Signed in to" in err) == (0, True), err
        assert place.auth.issuer in err
        code, out, err = await said(tmp_path, "tools", "-s", place.url)
        assert (code, "whoami" in out) == (0, True), err
        code, _, err = await said(tmp_path, "login", "-s", place.url)
        assert (code, "Signed in to" in err) == (0, True), "It needs no browser any more."
        code, _, err = await said(tmp_path, "logout", "-s", place.url)
        assert (code, "Signed out" in err) == (0, True)
        code, _, err = await said(tmp_path, "tools", "-s", place.url)
        assert code != 0
        _, _, err = await said(tmp_path, "logout", "-s", place.url)
        assert "not signed in" in err


async def test_logout_of_a_client_whose_key_is_elsewhere(tmp_path: Path) -> None:
    """A program with a private key has signed in: only that program can tell the authorization server."""
    key = ECKey.generate_key("P-256").as_pem(private=True)
    store = FileTokens(tmp_path / "mcplumb" / "tokens")
    async with site(tmp_path) as place:
        place.auth.metadata = {"revocation_endpoint": f"{place.auth.issuer}/revoke"}
        place.store = store
        async with connect(place.url, auth=place.oauth(client_id="me", private_key=key, user="ann")):
            pass
        code, _, err = await said(tmp_path, "logout", "-s", place.url)
        assert (code, "You are not signed in" in err, len(store.names())) == (0, True, 1)
        code, _, err = await said(tmp_path, "logout", "-s", place.url, "--user", "ann")
        assert (code, store.names()) == (0, []), err
        assert "may be valid still" in err
        assert "private key" in err
        assert "/revoke" not in [path for path, _ in place.auth.requests]
        code, _, err = await said(tmp_path, "logout", "-s", place.url, "--user", "ann")
        assert "ann is not signed in" in err


async def test_logout_where_the_keyring_cannot_be_reached(tmp_path: Path) -> None:
    """The entry would stay there, and no command would name it any more."""

    class Keyring:
        def set_password(self, service: str, name: str, password: str) -> None:
            pass

    async with site(tmp_path) as place:
        store = KeyringTokens(tmp_path / "mcplumb" / "tokens", Keyring())
        store.save(f"{place.url} default", b"{}")
        code, _, err = await said(tmp_path, "logout", "-s", place.url)
        assert (code, "in your keyring" in err, len(store.names())) == (2, True, 1), err


@pytest.mark.parametrize("again", [(), ("--again",)], ids=["first", "again"])
async def test_a_sign_in_whose_tokens_cannot_be_kept_is_none(tmp_path: Path, again: tuple[str, ...]) -> None:
    (tmp_path / "refusing.py").write_text(
        "from keyring.backend import KeyringBackend\n"
        "class Keyring(KeyringBackend):\n"
        "    priority = 5\n"
        "    def get_password(self, service, name): return None\n"
        "    def set_password(self, service, name, password): raise RuntimeError('The user said no.')\n"
        "    def delete_password(self, service, name): pass\n",
        encoding="utf-8",
    )
    env = {"MCPLUMB_KEYRING": "", "PYTHON_KEYRING_BACKEND": "refusing.Keyring"}
    async with site(tmp_path) as place:
        if again:
            async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser") as run:
                await run.visit()
                assert (await run.done())[0] == 0
        async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser", *again, **env) as run:
            await run.visit()
            code, _, err = await run.done()
        assert "The user said no" in err
        assert "but the tokens could not be kept" in err
        assert code == 4
        code, _, err = await said(tmp_path, "call", "whoami", "-s", place.url)
        assert (code == 0) == bool(again), err


@pytest.mark.parametrize("is_up", [True, False])
async def test_logout_says_whether_the_authorization_server_was_told(tmp_path: Path, is_up: bool) -> None:
    store = FileTokens(tmp_path / "mcplumb" / "tokens")
    async with site(tmp_path) as place:
        where = "/revoke" if is_up else "/nothing"
        place.auth.metadata = {"revocation_endpoint": f"{place.auth.issuer}{where}"}
        place.store = store
        async with connect(place.url, auth=place.oauth()):
            pass
        token = kept(store).grant.refresh_token
        code, _, err = await said(tmp_path, "logout", "-s", place.url)
        assert (code, store.names()) == (0, [])
        assert (f"{place.auth.issuer} was told" in err, "It refused: it answered with status 404" in err) == (
            is_up,
            not is_up,
        )
        told = [fields["token"] for path, fields in place.auth.requests if path == "/revoke"]
        assert told == ([token] if is_up else [])


async def test_a_server_that_is_started_gets_its_credentials_otherwise(tmp_path: Path) -> None:
    code, _, err = await said(tmp_path, "login", "--", "python", "server.py")
    assert code == 2
    assert "from its environment" in err


@pytest.mark.parametrize("command", ["login", "logout"])
async def test_what_can_be_signed_in_to_is_not_started(tmp_path: Path, command: str) -> None:
    _, out, _ = await said(tmp_path, command, "--help")
    assert f"Usage: mcplumb {command} [OPTIONS] -s ADDRESS|NAME" in out
    assert not {"COMMAND...", "--env", "--inherit-env", "--cwd"} & set(out.split())
    code, _, err = await said(tmp_path, command)
    assert (code, "in one of two ways" in err, "python" in err) == (2, True, False), err


async def test_an_issuer_without_a_client_is_refused_in_the_words_of_the_command_line(tmp_path: Path) -> None:
    code, _, err = await said(tmp_path, "login", "-s", "http://127.0.0.1:1/mcp", "--issuer", "https://login.example")
    assert (code, "--client-id" in err, "client_id" in err) == (2, True, False), err


async def test_no_token_is_printed(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        async with mcplumb(tmp_path, "--trace", "-vv", "login", "-s", place.url, "--no-browser") as run:
            await run.visit()
            _, out, err = await run.done()
        _, out2, err2 = await said(tmp_path, "--trace", "-vv", "call", "whoami", "-s", place.url)
        for secret in [*place.auth.tokens, *place.auth.refresh_tokens]:
            assert secret not in out + err + out2 + err2
        assert place.auth.tokens


def has_open(pid: int, path: Path) -> bool:
    """Return whether a process has a file open."""
    if not Path("/proc/self/fd").exists():
        done = subprocess.run(["lsof", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
        return str(path.resolve()) in done.stdout
    try:
        return any(link.resolve() == path.resolve() for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it has just ended
        return False


async def test_logout_waits_for_a_refresh_that_is_under_way(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "mcplumb" / "tokens")
    async with site(tmp_path) as place:
        async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser") as run:
            await run.visit()
            await run.done()
        [name] = store.names()
        async with mcplumb(tmp_path, "logout", "-s", place.url) as run:
            async with store.locked(name):
                kept = store.load(name)
                assert kept is not None
                [lock] = store.folder.glob("*.lock")
                # A logout that does not wait for the lock ends.
                await until(lambda: has_open(run.process.pid, lock) or run.process.returncode is not None, "the logout")
                store.save(name, kept.replace(b"refresh-", b"rotated-"))
            code, _, err = await run.done()
        assert (code, "Signed out" in err, store.names()) == (0, True, [])


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        (["tools"], [("Open a browser? [Y/n]: ", "\x03")]),
        (["tools"], [("Open a browser? [Y/n]: ", "maybe\n"), ("Open a browser? [Y/n]: ", "n\n")]),
        (["login", "--no-browser"], [("Address: ", "\x03")]),
        (["login", "--no-browser"], [("Address: ", "\x04")]),
    ],
)
async def test_a_user_who_does_not_want_to_sign_in(
    tmp_path: Path, words: list[str], typed: list[tuple[str, str]]
) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "MCPLUMB_KEYRING": "0"}
    async with site(tmp_path) as place:
        done = await asyncio.to_thread(on_terminal, *words, "-s", place.url, typed=typed, columns=200, env=env)
    assert done.code in (1, 3, 130), done
    assert "Fatal Python error" not in done.out
    assert "Traceback" not in done.out


@pytest.mark.parametrize("words", [("login", "--no-browser"), ("login",), ("tools",)], ids=" ".join)
async def test_an_address_is_pasted_on_a_machine_without_a_browser(tmp_path: Path, words: tuple[str, ...]) -> None:
    """The user opens the address elsewhere, and pastes first the wrong one, and then the one where the browser ends."""
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "MCPLUMB_KEYRING": "0"}
    env |= {"PATH": str(tmp_path), "BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    loop = asyncio.get_running_loop()
    shown: list[str] = []

    def address(screen: str) -> str:
        # A terminal may break the line.
        [found] = re.findall(r"(http://\S+/authorize\?[^\s]+)", screen)
        shown.append(found)
        return f"{found}\n"

    def redirect(_: str) -> str:
        return asyncio.run_coroutine_threadsafe(place.visit(shown[0]), loop).result(PATIENCE) + "\n"

    typed: list[tuple[str, str | Callable[[str], str]]] = [
        ("Address: ", address),
        ("begins with http://127.0.0.1:", ""),
        ("Address: ", redirect),
    ]
    if "tools" in words:
        typed.insert(0, ("Open a browser? [Y/n]: ", "\n"))
    async with site(tmp_path) as place:
        done = await asyncio.to_thread(on_terminal, *words, "-s", place.url, typed=typed, columns=1000, env=env)
        assert (done.code, "whoami" in done.out or "Signed in to" in done.out) == (0, True), done
        assert place.visits == 1


async def test_nothing_is_drawn_over_a_prompt(tmp_path: Path) -> None:
    """The authorization server takes so long that there is a spinner, which erases its line when it turns."""
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "MCPLUMB_KEYRING": "0"}
    loop, has_spinner = asyncio.get_running_loop(), asyncio.Event()

    def go_on(_: str) -> str:
        loop.call_soon_threadsafe(has_spinner.set)
        return ""

    typed: list[tuple[str, str | Callable[[str], str]]] = [
        ("Waiting for ", go_on),
        ("Address: ", "another\n"),
        ("Address: ", "\x03"),
    ]
    async with site(tmp_path) as place:
        place.auth.before_metadata = has_spinner.wait
        words = ("login", "--no-browser", "-s", place.url)
        done = await asyncio.to_thread(on_terminal, *words, typed=typed, columns=200, env=env)
    assert "Address: another\n" in done.out, done


def browser(folder: Path) -> str:
    """Return the BROWSER of a user who agrees to everything."""
    program = folder / "browser.py"
    program.write_text("import sys, urllib.request\nurllib.request.urlopen(sys.argv[1], timeout=60).read()\n")
    return f"{sys.executable} {program} %s"


async def test_a_command_in_a_terminal_offers_to_sign_in_and_goes_on(tmp_path: Path) -> None:
    env = {
        "XDG_STATE_HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "MCPLUMB_KEYRING": "0",
        "BROWSER": browser(tmp_path),
    }
    typed = [("Open a browser? [Y/n]: ", "\n")]
    async with site(tmp_path) as place:
        done = await asyncio.to_thread(on_terminal, "tools", "-s", place.url, typed=typed, columns=200, env=env)
        assert (done.code, "whoami" in done.out) == (0, True), done
        again = await asyncio.to_thread(on_terminal, "tools", "-s", place.url, columns=200, env=env)
        assert (again.code, "Open a browser?" in again.out) == (0, False), again


@asynccontextmanager
async def notes(folder: Path) -> AsyncIterator[Site]:
    """A protected server with a tool that needs a scope which is not asked for at first."""
    auth = AuthorizationServer()
    server = Server("notes")

    @server.tool(scopes=["write"])
    def write() -> str:
        return "written"

    def check(token: str) -> Principal | None:
        found = auth.tokens.get(token)
        return None if found is None else Principal("ann", scopes=frozenset(found.split()))

    async with auth.running():
        http = HttpOptions(auth=check, authorization_servers=(auth.issuer,), scopes=("read",))
        async with serving(server, "http://127.0.0.1:0", http=http) as [url]:
            yield Site(auth, url, FileTokens(folder / "mcplumb" / "tokens"))


@pytest.mark.req("AUT-6")
async def test_without_a_terminal_a_command_says_how_to_get_more_scopes(tmp_path: Path) -> None:
    async with notes(tmp_path) as place:
        async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser") as run:
            await run.visit()
            code, _, err = await run.done()
        assert (code, "granted access to read." in err) == (0, True), err
        code, _, err = await said(tmp_path, "call", "write", "-s", place.url)
        assert code == 4
        found = re.search(r"Sign in with 'mcplumb (login [^']*)'\.", err)
        assert found is not None, err
        assert "--scope write" in found[1]
        async with mcplumb(tmp_path, *found[1].split(), "--no-browser") as run:
            await run.visit()
            code, _, err = await run.done()
        assert (code, "granted access to read, write." in err) == (0, True), err
        code, out, err = await said(tmp_path, "call", "write", "-s", place.url)
        assert (code, "written" in out) == (0, True), err
        code, _, err = await said(tmp_path, "login", "-s", place.url, "--scope", "write")
        assert (code, "Signed in to" in err) == (0, True), "Nothing is missing, so there is nothing to open."


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_a_host_of_a_bridge_is_told_which_command_signs_in(tmp_path: Path, revision: str) -> None:
    env = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "MCPLUMB_KEYRING": "0"}
    async with notes(tmp_path) as place:
        bridge = [sys.executable, "-m", "mcplumb", "bridge", "-s", place.url]
        with pytest.raises(McplumbError, match=f"Sign in with 'mcplumb login -s {place.url}', or give a token: --"):
            async with connect(bridge, env=env, revisions=[revision]) as client:
                await client.call_tool("write")
        async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser") as run:
            await run.visit()
            assert (await run.done())[0] == 0
        async with connect(bridge, env=env, revisions=[revision]) as client:
            with pytest.raises(McplumbError, match=f"Sign in with 'mcplumb login -s {place.url} --scope write'"):
                await client.call_tool("write")


@pytest.mark.req("AUT-6")
async def test_scopes_that_were_not_granted_can_be_asked_for_again(tmp_path: Path) -> None:
    async with notes(tmp_path) as place:
        place.auth.names_scopes, place.auth.grants = True, "read"
        words = ("login", "-s", place.url, "--no-browser", "--scope", "write")
        async with mcplumb(tmp_path, *words) as run:
            await run.visit()
            code, _, err = await run.done()
        assert (code, "granted access to read." in err) == (0, True), err
        place.auth.grants = None
        async with mcplumb(tmp_path, *words) as run:
            await run.visit()
            code, _, err = await run.done()
        assert (code, "write" in err.partition("granted access to ")[2]) == (0, True), err


@pytest.mark.req("AUT-6")
async def test_in_a_terminal_a_call_asks_for_more_scopes_and_goes_on(tmp_path: Path) -> None:
    env = {
        "XDG_STATE_HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "MCPLUMB_KEYRING": "0",
        "BROWSER": browser(tmp_path),
    }
    typed = [
        ("asks you to sign in. Open a browser? [Y/n]: ", "\n"),
        ("for the scopes write. Open a browser? [Y/n]: ", "y\n"),
    ]
    async with notes(tmp_path) as place:
        words = ("call", "write", "-s", place.url)
        done = await asyncio.to_thread(on_terminal, *words, typed=typed, columns=200, env=env)
        assert (done.code, "written" in done.out) == (0, True), done


async def test_login_again_keeps_the_tokens_until_there_are_others(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "mcplumb" / "tokens")
    async with site(tmp_path) as place:
        async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser") as run:
            await run.visit()
            await run.done()
        before = kept(store).grant.access_token
        for denial in ("access_denied", "server_error"):
            place.auth.denial = denial
            async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser", "--again") as run:
                assert "Not signed in" in await run.visit()
                code, _, err = await run.done()
            assert (code, denial in err, "The tokens that you had are still kept." in err) == (4, True, True), err
            assert kept(store).grant.access_token == before
        place.auth.denial = None
        async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser", "--again") as run:
            await run.visit()
            code, _, err = await run.done()
        assert (code, "Signed in to" in err) == (0, True), err
        assert kept(store).grant.access_token != before


@pytest.mark.req("AUT-3")
async def test_a_client_that_was_registered_by_hand_is_named_once(tmp_path: Path) -> None:
    free = LoopbackRedirect()
    free.close()
    async with notes(tmp_path) as place:
        words = ("-s", place.url, "--no-browser")
        async with mcplumb(tmp_path, "login", *words, "--client-id", "me", "--port", str(free.port)) as run:
            await run.visit()
            await run.done()
        async with mcplumb(tmp_path, "login", *words, "--scope", "write") as run:
            await run.visit()
            code, _, err = await run.done()
        assert (code, "granted access to read, write." in err) == (0, True), err
        asked = [fields for path, fields in place.auth.requests if path == "/authorize"]
        redirect = f"http://127.0.0.1:{free.port}/callback"
        assert [(fields["client_id"], fields["redirect_uri"]) for fields in asked] == [("me", redirect)] * 2


@pytest.mark.req("AUT-3")
async def test_another_client_than_that_of_the_last_sign_in_signs_in_anew(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        for options in ((), ("--client-id", "me"), ("--client-id", "you")):
            async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser", *options) as run:
                await run.visit()
                code, _, err = await run.done()
            assert code == 0, err
        code, _, err = await said(tmp_path, "login", "-s", place.url, "--client-id", "you")
        assert (code, "Signed in to" in err) == (0, True), "That is the client already."
        asked = [fields["client_id"] for path, fields in place.auth.requests if path == "/authorize"]
        assert asked == ["client-0", "me", "you"]


@pytest.mark.req("AUT-3")
async def test_a_new_secret_of_a_client_is_kept(tmp_path: Path) -> None:
    """Otherwise the next refresh would fail with the old one, although the user has just given the new one."""
    store = FileTokens(tmp_path / "mcplumb" / "tokens")
    async with site(tmp_path) as place:
        words = ("login", "-s", place.url, "--no-browser", "--client-id", "me")
        for secret in ("old", "new"):
            async with mcplumb(tmp_path, *words, MCPLUMB_CLIENT_SECRET=secret) as run:
                await run.visit()
                code, _, err = await run.done()
            assert (code, kept(store).grant.client.client_secret) == (0, secret), err
        for env in ({"MCPLUMB_CLIENT_SECRET": "new"}, {}):
            async with mcplumb(tmp_path, *words, **env) as run:
                code, _, err = await run.done()
            assert (code, "Signed in to" in err) == (0, True), "Nothing has changed."
        assert kept(store).grant.client.client_secret == "new"


async def test_tokens_are_bound_to_a_key_on_request(tmp_path: Path) -> None:
    """The key is kept with the sign-in, so that every command uses it, and so do later sign-ins."""
    auth, store = AuthorizationServer(), FileTokens(tmp_path / "mcplumb" / "tokens")
    auth.binds = True
    async with bound_site(store.folder, auth, says_so=False) as place:
        words = ("login", "-s", place.url, "--no-browser")
        async with mcplumb(tmp_path, *words) as run:
            await run.visit()
            code, _, err = await run.done()
        assert (code, "has just granted" in err) == (4, True), err
        for option in ("--dpop", "--again"):
            async with mcplumb(tmp_path, *words, option) as run:
                await run.visit()
                code, _, err = await run.done()
            assert (code, "bound to a key." in err, kept(store).grant.token_type) == (0, True, "DPoP"), err
        code, out, err = await said(tmp_path, "tools", "-s", place.url)
        assert (code, "whoami" in out) == (0, True), err
        code, _, err = await said(tmp_path, *words, "--dpop")
        assert (code, "bound to a key." in err) == (0, True), "It needs no browser any more."


@pytest.mark.req("AUT-7")
async def test_bound_tokens_that_are_refused_leave_the_earlier_sign_in(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        place.auth.binds = True
        words = ("login", "-s", place.url, "--no-browser")
        async with mcplumb(tmp_path, *words) as run:
            await run.visit()
            assert (await run.done())[0] == 0
        async with mcplumb(tmp_path, *words, "--dpop") as run:
            await run.visit()
            code, _, err = await run.done()
        assert (code, "bearer tokens only, sign in again without binding them" in err) == (4, True), err
        assert "The tokens that you had are still kept." in err
        code, out, err = await said(tmp_path, "tools", "-s", place.url)
        assert (code, "whoami" in out) == (0, True), err


async def test_servers_shows_who_is_signed_in(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        await said(tmp_path, "add", "protected", place.url)
        await said(tmp_path, "add", "other", "http://127.0.0.1:1/mcp")
        _, out, err = await said(tmp_path, "servers")
        assert "signed in" not in out + err
        async with mcplumb(tmp_path, "login", "-s", "protected", "--no-browser") as run:
            await run.visit()
            await run.done()
        _, out, err = await said(tmp_path, "servers")
        [line] = [line for line in out.splitlines() if "signed in" in line]
        assert (line.split()[0], "signed in" in err) == ("protected", False)
        _, out, _ = await said(tmp_path, "servers", "protected")
        assert "signed in" in out
        store = FileTokens(tmp_path / "mcplumb" / "tokens")
        [name] = store.names()
        store.save(f"{place.url} somebody else", store.load(name) or b"")
        _, out, _ = await said(tmp_path, "servers", "--json")
        listed = json.loads(out)
        assert listed["signedIn"] == {place.url: ["default", "somebody else"]}
        notes = {each["name"]: each["notes"] for each in listed["servers"]}
        assert notes == {"protected": ["signed in as default, somebody else"], "other": []}
        await said(tmp_path, "remove", "protected")
        _, out, err = await said(tmp_path, "servers")
        assert f"{place.url} has no name here, but you are signed in as default, somebody else." in err
        store.folder.chmod(0o755)
        for file in store.folder.glob("*.json"):
            file.chmod(0o644)
        code, out, err = await said(tmp_path, "servers")
        assert (code, "other" in out, "chmod go=" in err) == (0, True, True)


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize("has_refresh_token", [True, False])
async def test_servers_shows_that_a_sign_in_has_expired(tmp_path: Path, has_refresh_token: bool) -> None:
    """Its refresh token was refused, or it had none."""
    async with site(tmp_path) as place:
        place.store = FileTokens(tmp_path / "mcplumb" / "tokens")
        place.auth.gives_refresh_tokens = has_refresh_token
        await said(tmp_path, "add", "protected", place.url)
        async with mcplumb(tmp_path, "login", "-s", "protected", "--no-browser") as run:
            await run.visit()
            await run.done()
        place.auth.tokens.clear()
        place.auth.refresh_tokens.clear()
        if not has_refresh_token:
            place.age(3600)
        assert (await said(tmp_path, "tools", "-s", "protected"))[0] == 3
        code, out, err = await said(tmp_path, "servers")
        assert (code, "sign-in expired" in out, "signed in" in out + err) == (0, True, False), out + err
        _, out, _ = await said(tmp_path, "servers", "--json")
        listed = json.loads(out)
        assert (listed["signedIn"], listed["signInExpired"]) == ({}, {place.url: ["default"]})
        assert listed["servers"][0]["notes"] == ["sign-in expired"]
        await said(tmp_path, "remove", "protected")
        _, _, err = await said(tmp_path, "servers")
        assert f"{place.url} has no name here, and your sign-in there has expired." in err
        async with mcplumb(tmp_path, "login", "-s", place.url, "--no-browser") as run:
            await run.visit()
            assert (await run.done())[0] == 0
        _, out, _ = await said(tmp_path, "servers", "--json")
        listed = json.loads(out)
        assert (listed["signedIn"], listed["signInExpired"]) == ({place.url: ["default"]}, {})
