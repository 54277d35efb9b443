"""Challenges: the ``WWW-Authenticate`` header in which a server says how to authenticate (RFC 9110, RFC 6750)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

__all__ = ["Challenge", "bearer_challenge", "format_challenge", "parse_challenges"]

_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
# Servers leave out commas, and quotes around addresses and scopes. What they mean is clear.
_SEPARATORS = re.compile(r"[\s,;]*")
_SCHEME = re.compile(_WORD)
_PARAMETER = re.compile(rf'({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,;"=][^\s,;"]*))(?=[\s,;]|$)')
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*\s*(?=,|$)")

#: More challenges than any server has a reason to send; the rest of the header is ignored.
_MAX_CHALLENGES = 16


class Challenge(msgspec.Struct, frozen=True):
    """One challenge of a server: a scheme, in lower case, and its parameters, with their names in lower case."""

    scheme: str
    parameters: Mapping[str, str] = {}

    @property
    def resource_metadata(self) -> str | None:
        """The address of the protected resource's metadata (RFC 9728)."""
        return self.parameters.get("resource_metadata")

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that the request needs; empty if the server does not name any. What cannot be a scope is none."""
        named = self.parameters.get("scope", "").split()
        return tuple(dict.fromkeys(scope for scope in named if scope.isascii() and scope.isprintable()))

    @property
    def error(self) -> str | None:
        """The reason for the refusal, for example ``invalid_token`` or ``insufficient_scope``."""
        return self.parameters.get("error")


def parse_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a ``WWW-Authenticate`` header; several header lines are joined with commas.

    A part that cannot be read ends the list: what was read before it counts.
    """
    found: list[Challenge] = []
    at = _skip(header, 0)
    while at < len(header) and len(found) < _MAX_CHALLENGES:
        scheme = _SCHEME.match(header, at)
        if scheme is None:
            break
        at = scheme.end()
        if at < len(header) and header[at] not in " \t,":
            break
        at, parameters = _parameters(header, at)
        found.append(Challenge(scheme.group().lower(), parameters))
        at = _skip(header, at)
    return found


def _parameters(header: str, at: int) -> tuple[int, dict[str, str]]:
    """Return the parameters from ``at`` on, and where they end: at the next scheme, or at the end."""
    parameters: dict[str, str] = {}
    start = at
    while True:
        following = _skip(header, at)
        match = _PARAMETER.match(header, following)
        if match is None:
            break
        name, quoted, plain = match.groups()
        value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        # The first one counts: a repeated parameter cannot replace what another reader has seen.
        parameters.setdefault(name.lower(), value)
        at = match.end()
    if not parameters and (token68 := _TOKEN68.match(header, _skip_blanks(header, start))):
        return token68.end(), parameters
    return at, parameters


def _skip(header: str, at: int) -> int:
    match = _SEPARATORS.match(header, at)
    return at if match is None else match.end()


def _skip_blanks(header: str, at: int) -> int:
    while at < len(header) and header[at] in " \t":
        at += 1
    return at


def bearer_challenge(header: str | None) -> Challenge | None:
    """Return the challenge for an access token (the Bearer or the DPoP scheme); None if there is none.

    A server that takes both kinds of tokens sends a challenge for each. The first value of a parameter counts.
    """
    if header is None:
        return None
    found = [challenge for challenge in parse_challenges(header) if challenge.scheme in ("bearer", "dpop")]
    if not found:
        return None
    parameters: dict[str, str] = {}
    # That only a nonce is missing is said in the challenge for DPoP alone.
    for challenge in sorted(found, key=lambda each: each.error != "use_dpop_nonce"):
        parameters = {**challenge.parameters, **parameters}
    return Challenge(found[0].scheme, parameters)


def format_challenge(scheme: str, parameters: Mapping[str, str]) -> str:
    """Return the text of one challenge, with every value quoted."""
    if not parameters:
        return scheme
    return f"{scheme} " + ", ".join(f'{name}="{_quoted(value)}"' for name, value in parameters.items())


def _quoted(value: str) -> str:
    # A header is one line of visible Latin-1 characters; nothing in a value may end it.
    printable = "".join(character if character.isprintable() else " " for character in value)
    return printable.replace("\\", "\\\\").replace('"', '\\"').encode("latin-1", "replace").decode("latin-1")
