"""What a transport of one's own is made of loads when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mcplumb import transports


@pytest.mark.parametrize("name", transports.__all__)
def test_every_name_can_be_had_and_is_kept(name: str) -> None:
    value = getattr(transports, name)
    assert vars(transports)[name] is value


def test_all_names_are_listed_and_there_are_no_others() -> None:
    assert dir(transports) == transports.__all__
    with pytest.raises(AttributeError, match=r"module 'mcplumb\.transports' has no attribute 'nothing'"):
        transports.nothing  # noqa: B018 - the access is the test


def test_nothing_is_loaded_before() -> None:
    program = "import sys, mcplumb.transports; print(*(n for n in sys.modules if n.startswith('mcplumb.transports.')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
