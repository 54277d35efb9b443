"""In fresh processes: in this one, everything is loaded already."""

from __future__ import annotations

import subprocess
import sys

import pytest

SERVER = "import sys, mcplumb; mcplumb.Server; "


def run(program: str) -> list[str]:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-I", "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("name", ["Server", "connect", "Context"])
def test_openssl_is_not_loaded(name: str) -> None:
    assert run(f"import sys, mcplumb; mcplumb.{name}; print('_ssl' in sys.modules, 'asyncio' in sys.modules)") == [
        "False",
        "True",
    ]


@pytest.mark.parametrize(
    "use",
    [
        "import ssl; ssl.create_default_context()",
        "from ssl import SSLContext",
        "import asyncio; asyncio.sslproto.SSLProtocol",
        "import asyncio.sslproto; dir(asyncio.sslproto)",
        "import ssl; assert 'SSLContext' in dir(ssl)",
        "import ssl; assert 'SSLContext' in vars(ssl)",
        "import ssl; assert ssl.__doc__.startswith('This module provides')",
        "import http.client; http.client.HTTPSConnection('127.0.0.1')",
        "import importlib, ssl; assert importlib.reload(ssl).SSLContext",
        "mcplumb.client_tls()",
    ],
)
def test_it_is_loaded_when_it_is_used(use: str) -> None:
    show = "import ssl, types; print('_ssl' in sys.modules, type(ssl) is types.ModuleType, sys.modules['ssl'] is ssl)"
    assert run(f"{SERVER}{use}; {show}") == ["True"] * 3


def test_looking_at_where_it_is_does_not_load_it() -> None:
    look = "import ssl, asyncio.sslproto; ssl.__name__, ssl.__spec__, isinstance(ssl, type(sys)), asyncio.sslproto"
    assert run(f"{SERVER}{look}; print('_ssl' in sys.modules)") == ["False"]


def test_what_is_put_into_it_stays() -> None:
    program = (
        SERVER + "import ssl; ssl.create_default_context = 'mine'; print(ssl.create_default_context, ssl.CERT_NONE)"
    )
    assert run(program)[0] == "mine"


def test_what_is_taken_out_of_it_is_gone() -> None:
    assert run(SERVER + "import ssl; del ssl.SSLContext; print(hasattr(ssl, 'SSLContext'))") == ["False"]


def test_all_threads_see_it_whole() -> None:
    program = """
import sys, threading, mcplumb
mcplumb.Server
assert "_ssl" not in sys.modules
sys.setswitchinterval(1e-6)
start, seen = threading.Barrier(16), []
def look(number):
    start.wait()
    import asyncio, ssl
    # What stands at the end of each.
    seen.append(asyncio.sslproto.SSLProtocol if number % 2 else ssl.get_server_certificate)
    assert ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
threads = [threading.Thread(target=look, args=(number,)) for number in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(seen), len(set(seen)))
"""
    for _ in range(5):
        assert run(program) == ["16", "2"]


@pytest.mark.parametrize("first", ["asyncio", "ssl"])
def test_it_is_left_alone_where_it_has_been_loaded(first: str) -> None:
    assert run(f"import {first}; {SERVER}import ssl; print(type(ssl).__name__)") == ["module"]


def test_a_python_without_openssl_is_left_alone() -> None:
    hide = "import sys; sys.modules['_ssl'] = None; "
    # A finder that knows of no _ssl, as in a Python that was built without it.
    hide += "from importlib.machinery import PathFinder as P; find = P.find_spec; "
    hide += "P.find_spec = lambda name, path=None, target=None: None if name == '_ssl' else find(name, path, target); "
    show = "import asyncio; print(asyncio.base_events.ssl, 'ssl' in sys.modules)"
    assert run(f"{hide}{SERVER}{show}") == ["None", "False"]


def test_a_python_of_another_make_is_left_alone() -> None:
    hide = "from importlib.machinery import PathFinder as P; find = P.find_spec; P.find_spec = lambda name, path=None, "
    hide += (
        "target=None: None if name == 'asyncio.sslproto' and 'mcplumb' in sys.modules else find(name, path, target); "
    )
    show = "print(type(sys.modules.get('ssl')).__name__)"
    assert run(f"import sys; {hide}from mcplumb._fast.lazy_ssl import load_asyncio; load_asyncio(); {show}") == [
        "NoneType"
    ]
