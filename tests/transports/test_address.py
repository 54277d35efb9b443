"""Addresses as users write them."""

from __future__ import annotations

import pytest

from mcplumb.errors import UsageError
from mcplumb.transports.address import Address, HttpAddress, TcpAddress, UnixAddress, read_address

GOOD: list[tuple[str, Address, str]] = [
    ("unix:/run/a.sock", UnixAddress("/run/a.sock"), "unix:/run/a.sock"),
    ("unix:///run/a.sock", UnixAddress("/run/a.sock"), "unix:/run/a.sock"),
    ("unix:a b/c:d", UnixAddress("a b/c:d"), "unix:a b/c:d"),
    ("tcp://example.org:7000", TcpAddress("example.org", 7000), "tcp://example.org:7000"),
    ("tcp://127.0.0.1:0/", TcpAddress("127.0.0.1", 0), "tcp://127.0.0.1:0"),
    ("TCP://:65535", TcpAddress("127.0.0.1", 65535), "tcp://127.0.0.1:65535"),
    ("tcp://[::1]:7000", TcpAddress("::1", 7000), "tcp://[::1]:7000"),
    ("http://host", HttpAddress("http", "host", 80, ""), "http://host"),
    ("http://host/", HttpAddress("http", "host", 80, "/"), "http://host/"),
    ("https://host/mcp", HttpAddress("https", "host", 443, "/mcp"), "https://host/mcp"),
    ("https://host:80/a?b=/c", HttpAddress("https", "host", 80, "/a?b=/c"), "https://host:80/a?b=/c"),
    ("http://host?a=b", HttpAddress("http", "host", 80, "/?a=b"), "http://host/?a=b"),
    ("http://:8000/mcp", HttpAddress("http", "127.0.0.1", 8000, "/mcp"), "http://127.0.0.1:8000/mcp"),
    ("http://[fe80::1%eth0]", HttpAddress("http", "fe80::1%eth0", 80, ""), "http://[fe80::1%eth0]"),
    ("http://[::1]:8000", HttpAddress("http", "::1", 8000, ""), "http://[::1]:8000"),
]


@pytest.mark.req("STR-4")
@pytest.mark.parametrize(("text", "address", "written"), GOOD)
def test_an_address(text: str, address: Address, written: str) -> None:
    assert read_address(text) == address
    assert str(address) == written
    assert read_address(written) == address


@pytest.mark.parametrize(
    "text", ["stdio", "", "python server.py", "./a:b", "C:/x", "a b://c", "echo http://x", "docker run x:latest", "x:1"]
)
def test_what_is_no_address(text: str) -> None:
    assert read_address(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("unix:", "it needs the path of a file"),
        ("unix:///", "it needs the path of a file"),
        ("unix:/folder/", "it needs the path of a file"),
        ("unix://host/path", "a socket file has no host"),
        ("unix:/a\0b", "NUL"),
        ("unix:/" + "é" * 100, "its path has 201 bytes; the most is 10"),
        ("tcp:host:1", "it must begin with tcp://"),
        ("http:/host", "it must begin with http://"),
        ("tcp://host", "it needs a port"),
        ("tcp://host:", "it needs a port"),
        ("tcp://host:7000/path", "nothing may follow the port"),
        ("tcp://host:65536", "its port must be a number from 0 to 65535"),
        ("tcp://host:-1", "its port must be a number"),
        ("tcp://host:٣", "its port must be a number"),
        ("tcp://host:" + "9" * 5000, "its port must be a number"),
        ("tcp://::1:7000", "write an IPv6 address in brackets"),
        ("tcp://[::1:7000", "write an IPv6 address in brackets"),
        ("tcp://[]:7000", "write an IPv6 address in brackets"),
        ("tcp://[::1]7000", "write an IPv6 address in brackets"),
        ("http://ho st/", "it has a space or a control character in it"),
        ("http://host/\n", "it has a space or a control character in it"),
        ("https://host/#part", "the part after # is never sent"),
        ("ws://host", r"mcplumb knows unix:/path, tcp://host:port"),
    ],
)
def test_a_wrong_address(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_address(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"The address {text!r} cannot be used: ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("wss://me:secret@host/mcp", "wss://***@host/mcp"),
        ("https:me:secret@host", "https:***@host"),
        ("https://host/mcp?key=secret#part", "https://host/mcp?…"),
    ],
)
def test_what_may_be_secret_in_a_wrong_address_is_not_repeated(text: str, shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_address(text)
    assert str(caught.value).startswith(f"The address {shown!r} cannot be used: ")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["https://me:secret@host/mcp", "tcp://secret@host:1"])
def test_a_password_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="no user name and no password") as caught:
        read_address(text)
    assert "secret" not in str(caught.value)
