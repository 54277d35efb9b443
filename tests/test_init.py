"""The top of the package: names that load when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mcplumb


@pytest.mark.parametrize("name", mcplumb.__all__)
def test_every_name_can_be_had_and_is_kept(name: str) -> None:
    value = getattr(mcplumb, name)
    assert vars(mcplumb)[name] is value


def test_all_names_are_listed_and_there_are_no_others() -> None:
    assert dir(mcplumb) == mcplumb.__all__
    with pytest.raises(AttributeError, match="module 'mcplumb' has no attribute 'nothing'"):
        mcplumb.nothing  # type: ignore[attr-defined] # noqa: B018 - the access is the test


def test_a_server_does_not_load_the_client() -> None:
    program = "import sys, mcplumb; mcplumb.Server; print(*(name for name in sys.modules if 'mcplumb.client' in name))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_blocking_package_is_an_attribute() -> None:
    program = "import mcplumb; print(mcplumb.sync.connect.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "connect\n"


#: Runs a program as if only the core was installed.
CORE_ALONE = """
import sys

extras = "aiohttp yarl httptools uvicorn click rich jsonschema_rs joserfc keyring opentelemetry redis"
sys.modules.update(dict.fromkeys(extras.split()))
"""


def test_every_name_can_be_had_without_any_extra() -> None:
    program = CORE_ALONE + "from mcplumb import *; print(JwtVerifier.__name__, Introspection.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("JwtVerifier Introspection\n", "")


@pytest.mark.parametrize(
    "use",
    [
        "mcplumb.JwtVerifier(issuer='https://login.example', audience='notes')",
        "mcplumb.Introspection(url='https://login.example/ask', client_id='a', client_secret='b', audience='notes')",
    ],
)
def test_a_verifier_without_its_extra_is_refused_when_it_is_made(use: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{CORE_ALONE}import mcplumb\n{use}"], capture_output=True, text=True, check=False
    )
    assert "UsageError" in done.stderr
    assert "pip install 'mcplumb[auth]'" in done.stderr
