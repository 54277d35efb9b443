from __future__ import annotations

import msgspec
import pytest

from mcplumb import types as t
from mcplumb.revisions import LATEST, LATEST_LEGACY
from tests import spec


def examples(name: str) -> list[bytes]:
    files = [path for folder, path in spec.examples(str(LATEST)) if folder == name]
    return [msgspec.json.encode(msgspec.json.decode(path.read_bytes())["error"]["data"]) for path in files]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("UnsupportedProtocolVersionError", t.UnsupportedVersionData),
        ("MissingRequiredClientCapabilityError", t.MissingCapabilityData),
    ],
)
def test_the_official_examples_lose_nothing(name: str, kind: type[t.Payload]) -> None:
    found = examples(name)
    assert found
    for data in found:
        assert msgspec.json.decode(msgspec.json.encode(t.read(kind, data))) == msgspec.json.decode(data)


def test_the_error_that_asks_for_a_web_page_first() -> None:
    asked = t.UrlElicitationRequiredData([t.ElicitParams.for_url("Sign in.", "https://example.com", "1")])
    validator = spec.official_validator(str(LATEST_LEGACY), "URLElicitationRequiredError")
    error = {"code": -32042, "message": "Sign in first.", "data": t.for_revision(asked, LATEST_LEGACY)}
    message = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "error": error})
    assert validator.is_valid(msgspec.json.decode(message))
    assert t.read(t.UrlElicitationRequiredData, msgspec.json.encode(asked)) == asked
