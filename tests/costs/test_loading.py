"""Which modules are loaded when something is done for the first time, and how many.

What an import loads, before anything is done, is in ``tests/repo/test_import_cost.py``.
"""

from __future__ import annotations

import sys

import pytest

from tests.costs.ceilings import check
from tests.costs.loading import LOADED, figures_of
from tests.repo.test_import_cost import tops

# The ceilings are those of the fast mode.
pytestmark = pytest.mark.tricks

#: Loaded by nobody who speaks to another process over a pipe.
NEEDLESS = {
    "dataclasses", "email", "hashlib", "hmac", "html", "http", "json", "multiprocessing", "pathlib", "queue",
    "secrets", "shutil", "tempfile", "urllib", "xml", "zipfile",
    "aiohttp", "attr", "click", "httptools", "jsonschema_rs", "pydantic", "rich", "starlette", "uvicorn", "uvloop",
}  # fmt: skip
OTHERS = {
    "import mcplumb": ("mcplumb.client", "mcplumb.server", "mcplumb.transports", "mcplumb.cli"),
    "server at its first answer": (
        "mcplumb.client", "mcplumb.cli.", "mcplumb.config", "mcplumb.sync", "mcplumb.testing", "mcplumb.stores",
        "mcplumb.protocol.sealed_request_state", "mcplumb.protocol.oauth", "mcplumb.protocol.principal",
        "mcplumb.transports.process.child", "mcplumb.transports.http",
        "mcplumb.transports.socket_connection", "mcplumb.transports.tls",
    ),
    "client at its first result": (
        "mcplumb.server", "mcplumb.cli.", "mcplumb.config", "mcplumb.sync", "mcplumb.testing", "mcplumb.stores",
        "mcplumb.protocol.sealed_request_state", "mcplumb.protocol.oauth", "mcplumb.protocol.principal",
        "mcplumb.client.auth",
        "mcplumb.transports.stdio", "mcplumb.transports.http",
        "mcplumb.transports.socket_connection", "mcplumb.transports.tls",
    ),
    "mcplumb --help": ("mcplumb.client", "mcplumb.server", "mcplumb.transports", "mcplumb.cli.command_group"),
}  # fmt: skip


if sys.version_info >= (3, 14):  # asyncio itself loads it
    NEEDLESS.remove("dataclasses")


@pytest.mark.parametrize("subject", LOADED)
def test_only_what_is_needed_is_loaded(subject: str) -> None:
    names = LOADED[subject]()
    assert tops(names) & NEEDLESS == set()
    assert {name for name in names if name.startswith(OTHERS[subject])} == set()
    check(subject, figures_of(names))
