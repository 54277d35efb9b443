"""In fresh processes: in this one, everything is loaded already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tricks

LOADED = "import sys; from mcplumb._fast.lazy_ssl import load_asyncio; load_asyncio(); import mcplumb; "
#: A server, and what it has loaded by the end.
SERVER = """
import atexit, os, sys
from mcplumb import Server

server = Server("x")
atexit.register(lambda: os.write(2, b"%d %d" % ("_ssl" in sys.modules, "mcplumb.server.server_session" in sys.modules)))
if __name__ == "__main__":
    server.run()
"""


def run(program: str) -> list[str]:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-I", "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("command", [[], ["-m", "mcplumb", "serve"]], ids=["run", "serve"])
def test_a_server_that_owns_its_process_does_not_load_openssl(command: list[str], tmp_path: Path) -> None:
    file = tmp_path / "server_without_tls.py"
    file.write_text(SERVER)
    done = subprocess.run([sys.executable, *command, str(file)], input=b"", capture_output=True, check=True, timeout=60)
    assert done.stderr == b"0 1"


@pytest.mark.parametrize("name", ["Server", "connect", "Context", "client_tls"])
def test_an_import_changes_nothing(name: str) -> None:
    show = "import asyncio, ssl, types; print(type(ssl) is types.ModuleType, '_ssl' in sys.modules)"
    assert run(f"import sys, mcplumb; mcplumb.{name}; {show}") == ["True", "True"]


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
    assert run(f"{LOADED}{use}; {show}") == ["True"] * 3


def test_looking_at_where_it_is_does_not_load_it() -> None:
    look = "import ssl, asyncio.sslproto; ssl.__name__, ssl.__spec__, isinstance(ssl, type(sys)), asyncio.sslproto"
    assert run(f"{LOADED}{look}; print('_ssl' in sys.modules)") == ["False"]


def test_what_is_put_into_it_stays() -> None:
    program = (
        LOADED + "import ssl; ssl.create_default_context = 'mine'; print(ssl.create_default_context, ssl.CERT_NONE)"
    )
    assert run(program)[0] == "mine"


def test_what_is_taken_out_of_it_is_gone() -> None:
    assert run(LOADED + "import ssl; del ssl.SSLContext; print(hasattr(ssl, 'SSLContext'))") == ["False"]


def test_all_threads_see_it_whole() -> None:
    program = """
import sys, threading
from mcplumb._fast.lazy_ssl import load_asyncio
load_asyncio()
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
    assert run(f"import {first}; {LOADED}import ssl; print(type(ssl).__name__)") == ["module"]


def test_a_python_without_openssl_is_left_alone() -> None:
    hide = "import sys; sys.modules['_ssl'] = None; "
    # A finder that knows of no _ssl, as in a Python that was built without it.
    hide += "from importlib.machinery import PathFinder as P; find = P.find_spec; "
    hide += "P.find_spec = lambda name, path=None, target=None: None if name == '_ssl' else find(name, path, target); "
    show = "import asyncio; print(asyncio.base_events.ssl, 'ssl' in sys.modules)"
    assert run(f"{hide}{LOADED}{show}") == ["None", "False"]


def test_a_python_of_another_make_is_left_alone() -> None:
    hide = "from importlib.machinery import PathFinder as P; find = P.find_spec; P.find_spec = lambda name, path=None, "
    hide += (
        "target=None: None if name == 'asyncio.sslproto' and 'mcplumb' in sys.modules else find(name, path, target); "
    )
    show = "print(type(sys.modules.get('ssl')).__name__)"
    assert run(f"import sys; {hide}from mcplumb._fast.lazy_ssl import load_asyncio; load_asyncio(); {show}") == [
        "NoneType"
    ]
