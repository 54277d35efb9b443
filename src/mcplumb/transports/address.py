"""Parse server addresses: ``unix:/run/me.sock``, ``tcp://127.0.0.1:7000``, ``https://host/mcp``."""

from __future__ import annotations

import os
import sys
from typing import TypeAlias

import msgspec

from mcplumb.errors import UsageError

__all__ = ["LOOPBACK", "Address", "HttpAddress", "SocketAddress", "TcpAddress", "UnixAddress", "read_address"]

#: The host of an address that names none: reachable from this machine only.
LOOPBACK = "127.0.0.1"

_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_PORT = 65535
#: The longest path of a Unix socket in bytes (``sun_path`` without its NUL); Linux allows a few more than others.
_MAX_PATH = 107 if sys.platform == "linux" else 103


class UnixAddress(msgspec.Struct, frozen=True):
    """A Unix domain socket. Its path may be relative to the current directory."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


class TcpAddress(msgspec.Struct, frozen=True):
    """A TCP host and port. A listener with port 0 takes any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp://{_bracketed(self.host)}:{self.port}"


class HttpAddress(msgspec.Struct, frozen=True):
    """The URL of an HTTP server, in parts."""

    #: "http" or "https".
    scheme: str
    host: str
    port: int
    #: The path with its query, if any; empty if the address has neither.
    path: str

    def __str__(self) -> str:
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{_bracketed(self.host)}{port}{self.path}"


SocketAddress: TypeAlias = UnixAddress | TcpAddress
Address: TypeAlias = SocketAddress | HttpAddress


def read_address(text: str) -> Address | None:
    """Parse an address. Return None for text that is not one, such as "stdio" or a command.

    Raises `UsageError` if the address is invalid.
    """
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower()
    if not colon or not (scheme in {"unix", "tcp", *_DEFAULT_PORTS} or (rest.startswith("//") and scheme.isalnum())):
        return None
    if scheme == "unix":
        return UnixAddress(_path(text, rest))
    if not (scheme == "tcp" or scheme in _DEFAULT_PORTS):
        raise _invalid(text, "mcplumb knows unix:/path, tcp://host:port, http://host:port/path and https://…")
    if not rest.startswith("//"):
        raise _invalid(text, f"it must begin with {scheme}://")
    if any(character.isspace() or not character.isprintable() for character in rest):
        raise _invalid(text, "it has a space or a control character in it")
    rest = rest[2:]
    if scheme == "tcp":
        host, port = _split_host_port(text, rest.removesuffix("/"), None)
        return TcpAddress(host, port)
    cut = min((at for at in (rest.find("/"), rest.find("?"), rest.find("#")) if at >= 0), default=len(rest))
    authority, path = rest[:cut], rest[cut:]
    if "#" in path:
        raise _invalid(text, "the part after # is never sent to a server")
    host, port = _split_host_port(text, authority, _DEFAULT_PORTS[scheme])
    return HttpAddress(scheme, host, port, path if path.startswith("/") or not path else f"/{path}")


def _path(text: str, path: str) -> str:
    if path.startswith("//"):
        path = path[2:]
        if not path.startswith("/"):
            raise _invalid(text, "a socket file has no host: write unix:/absolute/path or unix:relative/path")
    if not path or path.endswith("/"):
        raise _invalid(text, "it needs the path of a file: unix:/path/to/file")
    if "\0" in path:
        raise _invalid(text, "a path cannot have a NUL character in it")
    if (size := len(os.fsencode(path))) > _MAX_PATH:
        raise _invalid(text, f"its path has {size} bytes; the most is {_MAX_PATH}. Choose a shorter one")
    return path


def _split_host_port(text: str, authority: str, default_port: int | None) -> tuple[str, int]:
    """Split ``host:port`` or ``[ipv6]:port``; a missing host is loopback, a missing port the default."""
    if "@" in authority:
        # The message does not quote the address, which may contain a password.
        raise UsageError("An address must have no user name and no password in it: give a token or headers instead.")
    if "/" in authority:
        raise _invalid(text, "nothing may follow the port")
    if authority.startswith("["):
        host, bracket, port = authority[1:].partition("]")
        if not bracket or not host or not (port == "" or port.startswith(":")):
            raise _invalid(text, "write an IPv6 address in brackets, followed by the port: [::1]:7000")
        port = port[1:]
    else:
        host, _, port = authority.rpartition(":") if ":" in authority else (authority, "", "")
        if ":" in host:
            raise _invalid(text, "write an IPv6 address in brackets, followed by the port: [::1]:7000")
    if not port:
        if default_port is None:
            raise _invalid(text, "it needs a port: tcp://host:port")
        return host or LOOPBACK, default_port
    if not (port.isascii() and port.isdecimal()) or len(port) > len(str(_MAX_PORT)) or int(port) > _MAX_PORT:
        raise _invalid(text, f"its port must be a number from 0 to {_MAX_PORT}")
    return host or LOOPBACK, int(port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _invalid(text: str, what: str) -> UsageError:
    scheme, colon, rest = text.partition(":")
    if scheme.lower() != "unix":
        # A password and a query may be secret.
        where, query, _ = rest.partition("?")
        user, _, host = where.rpartition("@")
        mask = f"{'//' if user.startswith('//') else ''}***@" if user else ""
        text = f"{scheme}{colon}{mask}{host}{'?…' if query else ''}"
    return UsageError(f"The address {text!r} cannot be used: {what}.")
