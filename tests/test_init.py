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
