"""What is shown of entries."""

from __future__ import annotations

import pytest

from mcplumb.config.entry import looks_secret, mask_arguments, mask_url, mask_values

KEY = "aB3dE5gH7jK9mN1pQ3sT"


@pytest.mark.parametrize(
    "name", ["API_KEY", "token", "X-Api-Key", "GITHUB_PASSWORD", "Authorization", "Cookie", "DB_PASS"]
)
def test_names_of_secrets(name: str) -> None:
    assert looks_secret(name)
    assert not looks_secret("MODE")


def test_values_are_never_shown_unless_they_name_a_variable() -> None:
    shown = mask_values(
        {
            "A": "plain",
            "B": "${TOKEN}",
            "C": "Bearer ${env:TOKEN}",
            "D": "${TOKEN:-hunter2}",
            "E": "${X}hunter2${Y}",
            "F": "Bearer hunter2",
            "G": "",
            "H": "${input:key}",
        }
    )
    assert shown == {
        "A": "***",
        "B": "${TOKEN}",
        "C": "Bearer ${env:TOKEN}",
        "D": "***",
        "E": "***",
        "F": "***",
        "G": "***",
        "H": "${input:key}",
    }


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("-y @scope/server /some/folder --port 80", "-y @scope/server /some/folder --port 80"),
        ("--api-key hunter2 next", "--api-key *** next"),
        ("--passphrase hunter2 --code-verifier hunter2", "--passphrase *** --code-verifier ***"),
        ("--api-key ${KEY} --token --verbose", "--api-key ${KEY} --token --verbose"),
        ("--token=hunter2 --mode=fast --token=${T}", "--token=*** --mode=fast --token=${T}"),
        (f"{KEY} --x={KEY} {KEY.lower()}", f"*** --x=*** {KEY.lower()}"),
        ("ghp_0123456789abcdefghij", "***"),
        ("https://me:hunter2@x.y/z?a=b", "https://***@x.y/z?a=***"),
    ],
)
def test_arguments(arguments: str, shown: str) -> None:
    assert " ".join(mask_arguments(arguments.split())) == shown


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("Authorization: Bearer hunter2", "Authorization: Bearer ***"),
        ("Authorization: Bearer ${TOKEN}", "Authorization: Bearer ${TOKEN}"),
        ("Authorization:${HEADER}", "Authorization:${HEADER}"),
        ("--header=X-Api-Key: hunter2", "--header=X-Api-Key: ***"),
        ("run --password hunter2 --fast", "run --password *** --fast"),
        ("curl https://x.y -H 'Cookie: hunter2'", "curl https://x.y -H 'Cookie: ***'"),
    ],
)
def test_headers_and_command_lines_as_arguments(argument: str, shown: str) -> None:
    assert mask_arguments(["sh", "-c", argument]) == ["sh", "-c", shown]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://x.y/mcp", "https://x.y/mcp"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://me:pw@x.y/mcp", "https://***@x.y/mcp"),
        ("https://x.y/mcp?key=hunter2&b=${B}&c", "https://x.y/mcp?key=***&b=${B}&***"),
        ("https://x.y/mcp?", "https://x.y/mcp?"),
        (f"https://x.y/s/{KEY}/sse", "https://x.y/s/***/sse"),
        ("unix:/run/me.sock", "unix:/run/me.sock"),
        ("${URL}/mcp", "${URL}/mcp"),
    ],
)
def test_addresses(url: str, shown: str) -> None:
    assert mask_url(url) == shown
