"""``mcplumb login`` and ``logout``: sign in to a protected server once, for all commands."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import click

from mcplumb.cli.render.output import clean_line, is_terminal, say
from mcplumb.cli.server_target import Target, server_command
from mcplumb.errors import AuthorizationError, McplumbError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcplumb.client.auth.authorizer import Entry
    from mcplumb.client.auth.oauth import OAuth

__all__ = ["default_sign_in", "login", "logout", "sign_ins", "signed_in"]

#: The environment variable with the secret of a client that was registered by hand.
_SECRET = "MCPLUMB_CLIENT_SECRET"  # noqa: S105
_LONGEST = 200


@server_command(only_http=True)
@click.option("--client-id", metavar="ID", help=f"A client registered by hand; its secret is in {_SECRET}.")
@click.option("--client-metadata-url", metavar="URL", help="Where this client's metadata document is published.")
@click.option("--issuer", metavar="URL", help="The authorization server that --client-id belongs to.")
@click.option(
    "--scope", metavar="SCOPE", multiple=True, help="A scope to request, besides those granted and asked for."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="The port of the redirect address."
)
@click.option("--no-browser", is_flag=True, help="Print the address, to be opened on another machine.")
@click.option("--dpop", is_flag=True, help="Bind the tokens to a key (DPoP), so that a stolen one is of no use.")
@click.option(
    "--again",
    is_flag=True,
    help="Sign in again, even if you are signed in. The old tokens are kept until the server accepts new ones.",
)
async def login(
    target: Target,
    *,
    client_id: str | None,
    client_metadata_url: str | None,
    issuer: str | None,
    scope: tuple[str, ...],
    port: int,
    no_browser: bool,
    dpop: bool,
    again: bool,
) -> None:
    """Sign in to a protected server.

    A browser opens, where you agree. The tokens are kept in your keyring, or in a file that only you can read, and are
    refreshed when they expire. Every command uses them, for this server only. On a machine without a browser, open the
    printed address elsewhere, and paste the address that the browser ends at.

    \b
    mcplumb login -s https://example.com/mcp
    mcplumb login -s https://example.com/mcp --no-browser
    """
    from mcplumb.client.auth.authorizer import in_thread
    from mcplumb.client.auth.oauth import OAuth

    if issuer is not None and client_id is None:
        raise UsageError("--issuer names the authorization server that --client-id belongs to: give that as well.")
    address = _address_of(target)
    known = await in_thread(signed_in, address)
    secret = (os.environ.get(_SECRET) or None) if client_id is not None else None
    if known is not None:
        client = known.grant.client
        if not {*scope} <= {*known.grant.allows}:
            again, scope = True, (*known.grant.scopes, *scope)
        again = again or (dpop and known.dpop_key is None)
        again = again or client_id not in (None, client.client_id) or secret not in (None, client.client_secret)
    show, has_visited = _print_and_ask if no_browser else _open_browser, False

    async def visit(url: str) -> str | None:
        nonlocal has_visited
        has_visited = True
        answer: str | None = await in_thread(show, url)
        return answer

    auth = OAuth(
        client_id=client_id,
        client_secret=secret,
        client_metadata_url=client_metadata_url,
        issuer=issuer,
        scopes=scope or None,
        port=port,
        on_visit=visit,
        fresh=again,
        dpop=dpop,
    )
    try:
        async with target.connect(auth=auth, token=None):
            pass
    except McplumbError:
        if has_visited and known is not None and not known.grant.is_over(time.time()):
            left = await in_thread(signed_in, address)
            if left is not None and left.grant.access_token == known.grant.access_token:
                say("The tokens that you had are still kept.")
        raise
    entry = await in_thread(signed_in, address)
    if has_visited and (entry is None or entry == known):
        raise AuthorizationError(
            "store",
            f"You have signed in to {target.title}, but the tokens could not be kept, so that no command can use them. "
            "If your keyring refuses them, MCPLUMB_KEYRING=0 keeps them in a file.",
        )
    if entry is None:
        say(f"{target.title} does not ask for a sign-in.")
        return
    say(f"Signed in to {target.title}. {_described(entry)}")


@server_command(only_http=True)
@click.option(
    "--user", metavar="NAME", default="default", help="The user to sign out, if a program has signed in several."
)
async def logout(target: Target, *, user: str) -> None:
    """Sign out of a server.

    Deletes the tokens on this machine, and revokes them at the authorization server if it supports that.

    \b
    mcplumb logout -s https://example.com/mcp
    """
    from mcplumb.client.auth.authorizer import revoke_entry

    address = _address_of(target)
    who = "You are" if user == "default" else f"{clean_line(user, _LONGEST)} is"
    was_signed_in, entry = await _forget(address, user)
    if not was_signed_in:
        say(f"{who} not signed in to {target.title}.")
        return
    if entry is None:
        say(f"Signed out of {target.title}. Another version of mcplumb has kept the tokens; they are deleted.")
        return
    issuer = clean_line(entry.grant.issuer, _LONGEST)
    try:
        is_told = await revoke_entry(entry, proxy=target.options.get("proxy"), tls=target.options.get("tls"))
    except AuthorizationError as error:
        say(f"Signed out of {target.title}: the tokens are deleted here, but may be valid still.")
        say(f"The authorization server {issuer} was not told. {clean_line(str(error), 2 * _LONGEST)}")
        return
    say(f"Signed out of {target.title}." + (f" {issuer} was told." if is_told else ""))


def signed_in(address: str) -> Entry | None:
    """Return what is kept of the user's sign-in at an address."""
    from mcplumb.client.auth.authorizer import entry_name, may_have, open_default_store, read_entry

    name = entry_name(address, "default")
    return read_entry(open_default_store().load(name)) if may_have(name) else None


def default_sign_in(address: str) -> OAuth | None:
    """Return the sign-in that commands use at an address: tokens that are kept, or a question in a terminal.

    Without a terminal, the error names the command that signs in.
    """
    from mcplumb.protocol.oauth.discovery import may_get_tokens

    if not may_get_tokens(address):
        return None

    from mcplumb.client.auth.oauth import OAuth, login_command

    class AskingUser(OAuth):
        async def may_sign_in(self, missing: tuple[str, ...]) -> bool:
            return is_terminal() and await _asked(_shown(address), [clean_line(scope, _LONGEST) for scope in missing])

        def advice(self, server: str, missing: tuple[str, ...]) -> str | None:
            if is_terminal():
                return None
            other = "" if missing else ", or give a token: --token-file FILE"
            return f"Sign in with {login_command(server, missing)}{other}."

    return AskingUser(on_visit=_open_browser)


async def _asked(address: str, missing: Sequence[str]) -> bool:
    """Ask whether to sign in. ``missing`` are scopes that were not granted yet."""
    what = f"for the scopes {', '.join(missing)}" if missing else "you to sign in"
    answer = ""
    while answer not in ("y", "yes", "n", "no"):
        answer = (await _typed(f"{address} asks {what}. Open a browser? [Y/n]: ")).lower() or "y"
    return answer.startswith("y")


def _address_of(target: Target) -> str:
    if target.is_started or not str(target.place).startswith(("http://", "https://")):
        raise UsageError(
            "Only a server with an http:// or https:// address asks for a sign-in. One that mcplumb starts gets its "
            "credentials from its environment: -e NAME=VALUE."
        )
    return str(target.place)


async def _forget(address: str, user: str) -> tuple[bool, Entry | None]:
    """Delete what is kept of a sign-in. Return whether there was anything, and what it was if it can be read."""
    from mcplumb.client.auth.authorizer import (
        entry_name,
        hold_lock,
        in_thread,
        may_have,
        open_default_store,
        read_entry,
    )
    from mcplumb.stores.token_store import FileTokens

    name = entry_name(address, user)
    if not may_have(name):
        return False, None
    store: FileTokens = await in_thread(open_default_store)
    if type(store) is FileTokens and await in_thread(store.is_elsewhere, name):
        raise UsageError(
            "The tokens are in your keyring, which cannot be reached here. Sign out in a session in which it works, "
            "with the package 'keyring' installed and without MCPLUMB_KEYRING=0."
        )
    async with hold_lock(store, name):  # a refresh that is under way would save its tokens afterwards
        entry = read_entry(await in_thread(store.load, name))
        await in_thread(store.delete, name)
    return True, entry


def sign_ins() -> list[tuple[str, str, bool]]:
    """Return the addresses that tokens are kept for, with the user and whether they may work.

    Neither the keyring nor the network is used: only a sign-in that is known to be over counts as such.
    """
    from mcplumb.client.auth.authorizer import default_folder
    from mcplumb.stores.token_store import FileTokens

    if (folder := default_folder()) is None:
        return []
    now, found = time.time(), FileTokens(folder).ends()
    names = ((*name.partition(" "), ends_at) for name, ends_at in found.items())
    return [(address, user, ends_at is None or now < ends_at) for address, _, user, ends_at in names]


def _described(entry: Entry) -> str:
    """Say who granted what, and for how long."""
    grant = entry.grant
    text = f"{grant.issuer} granted access"
    if grant.allows:
        text += f" to {clean_line(', '.join(grant.allows), _LONGEST)}"
    if grant.refresh_token is None and grant.expires_at is not None:
        text += f", for {max(0.0, grant.expires_at - time.time()) / 60:.0f} minutes"
    if entry.dpop_key is not None:
        text += ", with tokens that are bound to a key"
    return f"{clean_line(text, 2 * _LONGEST)}."


def _shown(address: str) -> str:
    return clean_line(address.partition("?")[0], _LONGEST)


async def _open_browser(url: str) -> str | None:
    import webbrowser

    from mcplumb.client.auth.authorizer import in_thread

    say(f"Sign in at this address, if no browser opens:\n{url}")
    if await in_thread(webbrowser.open, url):
        return None
    say("No browser could be opened here.")
    return await _pasted(url)


async def _print_and_ask(url: str) -> str | None:
    say(f"Open this address in a browser, on any machine:\n{url}")
    return await _pasted(url)


async def _pasted(url: str) -> str | None:
    """Return the redirect that the user pastes; None without a terminal, where it can only arrive by itself."""
    if not is_terminal():
        return None
    say("If the browser runs on another machine, it ends at a page that cannot be shown. Paste its address here.")
    begin = f"{dict(parse_qsl(urlsplit(url).query)).get('redirect_uri')}?"
    while not (answer := await _typed("Address: ")).startswith(begin):
        if answer:
            say(f"This is another address. After the sign-in, the browser ends at one that begins with {begin}")
    return answer


async def _typed(prompt: str) -> str:
    """Return a line that the user types. The wait can be cancelled, and no thread is left in it."""
    from mcplumb.cli.input_prompts import read_line
    from mcplumb.cli.render.progress_bar import bars_paused

    with bars_paused():
        try:
            return (await read_line(prompt)).strip()
        except EOFError:
            raise click.Abort from None
