from __future__ import annotations

import pytest

from mcplumb.client.group_member import all_failed, named
from mcplumb.errors import (
    ConnectError,
    HttpError,
    McplumbError,
    NoCommonRevision,
    RemoteError,
    RequestLost,
    RequestTimeout,
    ServerExited,
)


@pytest.mark.parametrize(
    "error",
    [
        RemoteError(-32602, "There is no such tool", {"x": 1}, request="tools/call"),
        ServerExited("python x.py", phase="call", exit_code=3, stderr_tail="No disk."),
        RequestTimeout("tools/call was not answered within 1 s."),
        HttpError(503, "Try again later.", www_authenticate="Bearer"),
        NoCommonRevision(["a"], ["b"]),
        RequestLost("The server is gone."),
    ],
)
def test_an_error_is_copied_with_the_name_of_the_server(error: McplumbError) -> None:
    said = str(error)
    copied = named("weather", error)
    assert type(copied) is type(error)
    assert str(copied) == f"Server 'weather': {said}"
    assert vars(copied) == vars(error)
    assert str(error) == said


def test_an_error_of_something_else_becomes_one_of_the_package() -> None:
    copied = named("weather", OSError("The cable is cut."))
    assert isinstance(copied, ConnectError)
    assert str(copied) == "Server 'weather': The cable is cut."


def test_several_errors_are_named_in_one() -> None:
    errors = {"a": RequestLost("One."), "b": OSError("Two.")}
    failed = all_failed("connected", errors)
    assert isinstance(failed, ConnectError)
    assert str(failed) == "None of the 2 servers could be connected:\n- a: One.\n- b: Two."
    assert isinstance(failed.__cause__, ExceptionGroup)
    assert list(failed.__cause__.exceptions) == list(errors.values())
