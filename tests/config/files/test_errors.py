"""What errors of config files say."""

from __future__ import annotations

import copy
import pickle

import pytest

from mcplumb.config.files import ConfigError, NotTrusted, UnknownServer
from mcplumb.errors import UsageError


def test_a_fault_names_file_server_and_key() -> None:
    error = ConfigError("it is wrong.", file="/f", entry="it", key="env.A")
    assert str(error) == "In /f, server 'it', key 'env.A': it is wrong."
    assert (error.file, error.entry, error.key) == ("/f", "it", "env.A")
    assert str(ConfigError("it is wrong.", file="/f")) == "In /f: it is wrong."
    assert isinstance(error, UsageError)
    assert issubclass(NotTrusted, ConfigError)


def test_a_name_that_is_not_there() -> None:
    assert str(UnknownServer("wether", ["docs", "weather"])).endswith("Did you mean 'weather'?")
    assert str(UnknownServer("x", ["docs", "weather"])).endswith("There are: docs, weather.")
    assert str(UnknownServer("x", [])).endswith("add one with 'mcplumb add NAME -- COMMAND'.")
    fault = ConfigError("it is wrong.", file="/f")
    assert str(UnknownServer("x", [], [fault])).endswith("It may be in a file that was not read. In /f: it is wrong.")
    with pytest.raises(KeyError):
        raise UnknownServer("x", [])


@pytest.mark.parametrize("error", [ConfigError("it is wrong.", file="/f", key="a"), UnknownServer("x", ["y"])])
def test_errors_can_be_copied(error: UsageError) -> None:
    assert str(copy.copy(error)) == str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - our own
    assert copy.copy(error).__dict__ == error.__dict__
