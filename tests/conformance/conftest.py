"""The server of conformance/, over each way that it can be reached and in each era."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.ways import LEGACY, MODERN, HttpWire, StdioWire, Wire, http_server

WAYS = ("stdio", "http")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that serves HTTP, for the tests of one file."""
    with http_server() as served:
        yield served


def _opened(request: pytest.FixtureRequest, way: str, revision: str) -> Iterator[Wire]:
    wire = StdioWire(revision) if way == "stdio" else HttpWire(revision, request.getfixturevalue("url"))
    try:
        wire.begin()
        yield wire
    finally:
        wire.finish()


@pytest.fixture(scope="module", params=[(way, era) for way in WAYS for era in (LEGACY, MODERN)], ids="-".join)
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """Each way, in each era."""
    yield from _opened(request, *request.param)


@pytest.fixture(scope="module", params=WAYS)
def legacy(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """Each way, in a legacy session."""
    yield from _opened(request, request.param, LEGACY)


@pytest.fixture(scope="module", params=WAYS)
def modern(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """Each way, with modern requests."""
    yield from _opened(request, request.param, MODERN)
