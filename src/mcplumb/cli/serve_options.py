"""What the commands that serve clients have in common: addresses, access over HTTP, and logs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from mcplumb.cli.command_runner import GlobalOptions
from mcplumb.errors import UsageError
from mcplumb.server.stderr_logs import LOG_FORMATS, LogFormat, set_up_logs

if TYPE_CHECKING:
    from mcplumb.transports.http_server.http_options import HttpOptions

__all__ = [
    "SCHEMES",
    "HttpAccess",
    "access_options",
    "address_options",
    "addresses_of",
    "check_port",
    "log_format_option",
    "set_up_serving_logs",
    "tokens_in",
]

F = TypeVar("F", bound=Callable[..., Any])

#: The environment variable with the address of the shared store.
_SHARED_VARIABLE = "MCPLUMB_SHARED"

#: The options for addresses, and the scheme of each.
SCHEMES = {"unix": "unix:", "tcp": "tcp://", "http": "http://"}


def addresses_of(**given: Sequence[str]) -> list[str]:
    """Return the addresses that the options of these names give; raise `UsageError` for a port without its colon."""
    for option, places in given.items():
        for place in places if option != "unix" else ():
            check_port(f"--{option}", place)
    return [f"{SCHEMES[option]}{place}" for option, places in given.items() for place in places]


def check_port(option: str, place: str) -> None:
    """Raise `UsageError` for a number, such as ``8000``, which would be a host, and is meant as a port."""
    if place.isdecimal():
        raise UsageError(f"{option} {place} names a host, and no port. For port {place}, write {option} :{place}.")


def set_up_serving_logs(log_format: LogFormat | None, options: GlobalOptions) -> None:
    """Send logs to stderr and to the log file, as verbose as the global options say."""
    set_up_logs(log_format, trace=options.trace or None)
    if options.verbose:
        logging.getLogger("mcplumb").setLevel(logging.DEBUG)
    if options.verbose > 1:
        logging.getLogger("mcplumb.http.access").setLevel(1)
    if options.log_file is not None:
        try:
            handler = logging.FileHandler(options.log_file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"The log file {options.log_file} cannot be written: {error.strerror}.") from None
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        logging.getLogger().addHandler(handler)


class HttpAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Who may use a server over HTTP, the address under which they know it, and what they learn of its operation."""

    token_file: Path | None = None
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    jwks_url: str | None = None
    resource: str | None = None
    host_name: tuple[str, ...] = ()
    metrics: bool = False
    open_metrics: bool = False
    shared: str | None = None

    def words(self) -> list[str]:
        """Return the arguments of the command that say the same."""
        words = []
        for name in self.__struct_fields__:
            value, option = getattr(self, name), f"--{name.replace('_', '-')}"
            if name == "shared" and self._has_shared_variable:
                continue  # it may have a password in it, and the environment is passed on
            if isinstance(value, bool):
                words += [option] * value
                continue
            for each in value if isinstance(value, tuple) else () if value is None else (value,):
                words += [option, str(each)]
        return words

    @property
    def _has_shared_variable(self) -> bool:
        return self.shared is not None and self.shared == os.environ.get(_SHARED_VARIABLE)

    def options_for(self, addresses: Sequence[str], tokens_option: str = "--token-file") -> HttpOptions | None:
        """Return the same as ``options``; raise `UsageError` if they make no sense, or no address is for them."""
        if any(address.startswith(SCHEMES["http"]) for address in addresses):
            return self.options()
        # A variable of the environment may be meant for other commands.
        if words := self.words():
            option = words[0] if self.token_file is None else tokens_option
            raise UsageError(f"{option} is for clients over HTTP: give --http as well.")
        return None

    def options(self) -> HttpOptions | None:
        """Return the options of the HTTP server; None for the defaults. Raises `UsageError` if they make no sense."""
        if self == HttpAccess():
            return None
        from mcplumb.transports.http_server.http_options import HttpOptions

        auth = None
        if self.issuer is not None:
            from mcplumb.transports.http_server.auth.jwt_verifier import JwtVerifier

            # The address of a server is the usual audience of its tokens.
            audience = self.audience or (() if self.resource is None else (self.resource,))
            if not audience:
                raise UsageError("--issuer needs --audience: what access tokens for this server have in 'aud'.")
            auth = JwtVerifier(issuer=self.issuer, audience=audience, jwks_url=self.jwks_url, scopes=self.scope)
        elif self.audience or self.scope or self.jwks_url is not None:
            raise UsageError("--audience, --scope and --jwks-url are for access tokens: give their --issuer as well.")
        tokens = () if self.token_file is None else tokens_in(self.token_file)
        if self.token_file is not None and not tokens:
            raise UsageError(f"There is no token in {self.token_file}: write one on each line.")
        return HttpOptions(
            tokens=tokens,
            auth=auth,
            resource=self.resource,
            hosts=self.host_name or None,
            metrics="open" if self.open_metrics else self.metrics,
            shared=self.shared,
        )


def tokens_in(file: str | Path) -> tuple[str, ...]:
    """Return the tokens in a file, one on each line; raise `UsageError` if it cannot be read."""
    try:
        # Some editors begin a file with a byte order mark.
        lines = [line.strip() for line in Path(file).read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise UsageError(f"The token file {file} cannot be read: it is not UTF-8 text.") from None
    except OSError as error:
        raise UsageError(f"The token file {file} cannot be read: {error.strerror}.") from None
    return tuple(line for line in lines if line and not line.startswith("#"))


def address_options(function: F) -> F:
    """Add the options for the addresses to serve at."""
    return _with_options(
        function,
        click.option("--stdio", is_flag=True, help="Serve standard input and output, also beside addresses."),
        click.option("--unix", metavar="PATH", multiple=True, help="Serve a Unix socket, which only you can use."),
        click.option("--tcp", metavar="[HOST]:PORT", multiple=True, help="Serve a TCP port."),
        click.option(
            "--http", metavar="[HOST]:PORT[/PATH]", multiple=True, help="Serve HTTP; the path is /mcp if not given."
        ),
    )


def access_options(tokens_option: str = "--token-file") -> Callable[[F], F]:
    """Return a decorator that adds the options of `HttpAccess`; the one for tokens has this name."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    tokens = "Over HTTP, require one of the bearer tokens in this file, one per line."
    option, url = click.option, "URL"
    return lambda function: _with_options(
        function,
        option(tokens_option, type=file, help=tokens),
        option("--issuer", metavar=url, help="Over HTTP, require access tokens of this authorization server."),
        option("--audience", metavar="TEXT", multiple=True, help="The 'aud' of access tokens for this server."),
        option("--scope", metavar="SCOPE", multiple=True, help="A scope that every access token must have."),
        option("--jwks-url", metavar=url, help="Where the issuer publishes its keys, if its metadata does not say so."),
        option("--resource", metavar=url, help="The address of the server as clients know it, behind a proxy."),
        option("--host-name", metavar="NAME", multiple=True, help="A public name of the server, behind a proxy."),
        option(
            "--metrics", is_flag=True, help="Over HTTP, serve /metrics for Prometheus, to those who may use the server."
        ),
        option("--open-metrics", is_flag=True, help="Serve /metrics to everybody, without a token."),
        option(
            "--shared",
            metavar=url,
            envvar=_SHARED_VARIABLE,
            help="Over HTTP, share sessions and changes with other processes: redis://HOST:6379/0. A password is safer "
            "in the environment variable MCPLUMB_SHARED.",
        ),
    )


def _with_options(function: F, *options: Callable[[F], F]) -> F:
    # Decorators are applied from the last to the first.
    for option in reversed(options):
        function = option(function)
    return function


log_format_option = click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    help="How logs on stderr look: with times and levels, or plain with the prefixes [TRACE] and Error:.",
)
