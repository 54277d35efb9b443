from __future__ import annotations

import msgspec

from mcplumb import types as t


def test_handshake() -> None:
    opening = t.InitializeParams(
        protocol_version="2025-06-18",
        capabilities=t.ClientCapabilities(roots=t.RootsCapability(list_changed=True)),
        client_info=t.Implementation("me", "1"),
    )
    assert msgspec.to_builtins(opening) == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"roots": {"listChanged": True}},
        "clientInfo": {"name": "me", "version": "1"},
    }


def test_discovery() -> None:
    answer = t.read(t.DiscoverResult, b'{"supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0}')
    assert answer.supported_versions == ["2026-07-28"]
    assert answer.capabilities == t.ServerCapabilities()
