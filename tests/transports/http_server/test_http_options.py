"""The options of HTTP: what can be set, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mcplumb import HttpOptions, UsageError


def test_they_have_defaults() -> None:
    options = HttpOptions()
    assert options.path == "/mcp"
    assert options.hosts is None
    assert options.sse


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "mcp"},
        {"path": ""},
        {"path": "/a b"},
        {"path": "/a?b"},
        {"path": "/ä"},
        {"tokens": "secret"},
        {"tokens": ("",)},
        {"origins": (1,)},
        {"hosts": "localhost"},
        {"keep_alive": 0},
        {"body_within": float("inf")},
        {"session_ttl": float("nan")},
        {"max_sessions": 0},
        {"max_head": 1.5},
        {"tokens": ("secret secret",)},
        {"tokens": ("secrét",)},
        {"tokens": ("secret\n",)},
        {"authorization_servers": ("https://login.example",)},
        {"scopes": ("read",)},
        {"path": "/sse"},
        {"path": "/messages/"},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        HttpOptions(**wrong)
    assert next(iter(wrong)) in str(refused.value)
    assert "secret" not in str(refused.value)


def test_what_says_how_to_get_a_token_goes_with_what_checks_it() -> None:
    servers = ("https://login.example",)
    assert HttpOptions(authorization_servers=servers, tokens=("t",)).authorization_servers == servers
    assert HttpOptions(authorization_servers=servers, auth=lambda _: None).authorization_servers == servers


def test_without_http_sse_its_paths_are_free() -> None:
    assert HttpOptions(path="/sse", sse=False).path == "/sse"


def test_the_root_is_a_path() -> None:
    assert HttpOptions(path="/").path == "/"
