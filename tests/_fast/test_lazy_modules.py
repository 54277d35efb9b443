"""In fresh processes: in this one, everything is loaded already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tricks

LOADED = "import sys; from mcplumb._fast.lazy_modules import load_asyncio; load_asyncio(); import mcplumb; "
#: A server, and what it has loaded by the end.
SERVER = """
import atexit, os, sys
sys.modules.setdefault("typing_extensions", None)  # msgspec uses it where it is installed, and it loads inspect
from mcplumb import Server

server = Server("x")
NAMES = ("_ssl", "ast", "dis", "_locale", "mcplumb.server.server_session")
atexit.register(lambda: os.write(2, " ".join(name for name in NAMES if name in sys.modules).encode()))

@server.tool
async def echo(text: str, times: int = 1) -> str:
    '''Repeat a text.

    Args:
        text: What to repeat.
    '''
    return text * times

if __name__ == "__main__":
    server.run()
"""


def run(program: str) -> list[str]:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-I", "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("command", "loaded"),
    # The library of the command line loads the others.
    [([], b""), (["-m", "mcplumb", "serve"], b"ast dis _locale ")],
    ids=["run", "serve"],
)
def test_a_server_that_owns_its_process_loads_little(command: list[str], loaded: bytes, tmp_path: Path) -> None:
    file = tmp_path / "server_without_tls.py"
    file.write_text(SERVER)
    done = subprocess.run([sys.executable, *command, str(file)], input=b"", capture_output=True, check=True, timeout=60)
    if sys.version_info >= (3, 14) and not loaded:
        loaded = b"ast dis "  # for inspect
    assert done.stderr == loaded + b"mcplumb.server.server_session"


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


#: From 3.14 on, asyncio itself loads dataclasses, and these inspect.
USES_OF_INSPECT = (
    [
        ("inspect", "inspect.signature(print)"),
        ("inspect", "asyncio.iscoroutinefunction(print)"),
        ("inspect", "loop = asyncio.new_event_loop(); repr(asyncio.Handle(print, (), loop)); loop.close()"),
        ("inspect", "import dataclasses; dataclasses.make_dataclass('X', [])"),
    ]
    if sys.version_info < (3, 14)
    else []
)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        *USES_OF_INSPECT,
        ("tokenize", "import linecache; linecache.getline(asyncio.__file__, 1)"),
        ("locale", "import subprocess; subprocess.run(['true'], text=True, capture_output=True)"),
    ],
)
def test_other_modules_are_loaded_when_they_are_used(name: str, use: str) -> None:
    hide = "import sys; sys.modules['typing_extensions'] = None; "  # it loads inspect
    show = f"type({name}) is type(sys), sys.modules[{name!r}] is {name}"
    program = f"{hide}{LOADED}import asyncio, {name}; was = type({name}).__name__; {use}; print(was, *({show}))"
    assert run(program) == ["_StandIn", "True", "True"]


@pytest.mark.parametrize("name", ["inspect", "tokenize", "locale", "ssl"])
def test_what_is_loaded_already_stays_as_it_is(name: str) -> None:
    program = f"import {name}; was = {name}; {LOADED}import {name}; print({name} is was, type({name}) is type(sys))"
    assert run(program) == ["True", "True"]


def test_a_traceback_shows_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "failing.py"
    file.write_text("def fail():\n    raise ValueError('no')\n")
    fail = f"sys.path.insert(0, {str(tmp_path)!r}); import failing, traceback\ntry: failing.fail()\n"
    show = "except ValueError: print(\"raise ValueError('no')\" in traceback.format_exc())"
    assert run(f"{LOADED}{fail}{show}") == ["True"]


def test_looking_at_where_it_is_does_not_load_it() -> None:
    look = "import ssl, asyncio.sslproto; isinstance(ssl, type(sys)), asyncio.sslproto"
    look += "; ssl.__name__, ssl.__file__, ssl.__spec__"
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
from mcplumb._fast.lazy_modules import load_asyncio
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


def test_all_is_left_alone_where_asyncio_has_been_loaded() -> None:
    show = "import ssl, inspect; print({type(ssl), type(inspect)} == {type(sys)})"
    assert run(f"import asyncio; {LOADED}{show}") == ["True"]


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
    assert run(f"import sys; {hide}from mcplumb._fast.lazy_modules import load_asyncio; load_asyncio(); {show}") == [
        "NoneType"
    ]
