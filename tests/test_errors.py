from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from mcplumb import errors
from mcplumb.errors import (
    AuthorizationError,
    Closed,
    ConnectError,
    ConnectTimeout,
    DecodeError,
    EncodeError,
    HttpError,
    McplumbError,
    NoCommonRevision,
    NotInRevision,
    ProtocolError,
    RemoteError,
    RequestCancelled,
    RequestError,
    RequestLost,
    RequestTimeout,
    ServerDown,
    ServerExited,
    StateRefused,
    StoreUnavailable,
    ToolError,
    ToolFailed,
    UsageError,
)

SENTENCE = "It did not work."

EXAMPLES: list[McplumbError] = [
    AuthorizationError("denied", SENTENCE, issuer="https://auth.example"),
    Closed(SENTENCE),
    ConnectError(SENTENCE),
    ConnectTimeout(SENTENCE),
    DecodeError(SENTENCE),
    EncodeError(SENTENCE),
    HttpError(401, SENTENCE, www_authenticate="Bearer"),
    McplumbError(SENTENCE),
    NoCommonRevision(["2"], ["1"]),
    NotInRevision(SENTENCE),
    ProtocolError(SENTENCE),
    RemoteError(-32601, "No such method", {"method": "x"}),
    RequestCancelled(SENTENCE),
    RequestError(-32000, "Out of ink.", {"printer": 3}),
    RequestLost(SENTENCE),
    RequestTimeout(SENTENCE),
    ServerDown("It failed 5 times in a row."),
    ServerExited("weather", phase="spawn", exit_code=3, stderr_tail="no key"),
    StateRefused(SENTENCE, reason="forged"),
    StoreUnavailable(SENTENCE),
    ToolError(SENTENCE),
    ToolFailed(SENTENCE),
    UsageError(SENTENCE),
]


def drawn_tree() -> list[tuple[int, str, str]]:
    """Depth, name and remark of each class in the module's docstring."""
    assert errors.__doc__ is not None
    drawn = []
    for line in errors.__doc__.splitlines():
        if line.startswith("    "):
            name, _, remark = line.lstrip(" │├└─").partition(" ")
            drawn.append(((len(line) - len(line.lstrip(" │├└─")) - 4) // 4, name, remark.strip()))
    return drawn


def real_tree(kind: type[McplumbError] = McplumbError, depth: int = 0) -> Iterator[tuple[int, str]]:
    yield depth, kind.__name__
    for below in kind.__subclasses__():
        if below.__module__ == "mcplumb.errors":
            yield from real_tree(below, depth + 1)


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    assert [(depth, name) for depth, name, _ in drawn_tree()] == list(real_tree())


def test_what_else_an_error_is_is_in_the_tree_too() -> None:
    for _, name, remark in drawn_tree():
        kind = getattr(errors, name)
        builtins = [base.__name__ for base in kind.__bases__ if base.__module__ == "builtins" and base is not Exception]
        assert [f"(also a {base})" in remark for base in builtins] == [True] * len(builtins), name
        assert ("also a" in remark) is bool(builtins), name


def test_every_class_has_a_docstring_and_an_example_and_is_exported() -> None:
    names = [name for _, name in real_tree()]
    assert sorted(names) == sorted(errors.__all__)
    assert sorted(names) == sorted(type(example).__name__ for example in EXAMPLES)
    assert all(getattr(errors, name).__doc__ for name in names)


def attributes(error: BaseException) -> dict[str, object]:
    return dict(vars(error))


def pickled(error: McplumbError, protocol: int = pickle.HIGHEST_PROTOCOL) -> McplumbError:
    copied = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - the data is our own
    assert isinstance(copied, McplumbError)
    return copied


COPIES: list[Callable[[McplumbError], McplumbError]] = [copy.copy, copy.deepcopy]
COPIES += [partial(pickled, protocol=protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("way", range(len(COPIES)))
def test_a_copy_is_the_same_error(error: McplumbError, way: int) -> None:
    copied = COPIES[way](error)
    assert copied is not error
    assert type(copied) is type(error)
    assert (str(copied), copied.args, attributes(copied)) == (str(error), error.args, attributes(error))


def test_notes_are_copied_too() -> None:
    error = RemoteError(1, "x")
    error.add_note("While asking for the weather.")
    assert pickled(error).__notes__ == ["While asking for the weather."]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_a_sentence(error: McplumbError) -> None:
    first = str(error).splitlines()[0]
    assert first[0].isupper()
    assert first.endswith((".", ":"))


def test_usage_and_timeout_are_also_what_python_calls_them() -> None:
    assert issubclass(UsageError, ValueError)
    assert issubclass(RequestTimeout, TimeoutError)
    assert issubclass(ConnectTimeout, TimeoutError)


def test_no_common_revision_names_both_sides() -> None:
    error = NoCommonRevision(["2026", "2025"], ["2024"], "Update the server.")
    assert (error.ours, error.theirs) == (("2026", "2025"), ("2024",))
    assert str(error) == (
        "No common protocol revision: this client allows 2026, 2025, and the server offers 2024. Update the server."
    )


def test_no_common_revision_says_when_the_server_named_none() -> None:
    assert str(NoCommonRevision(["2026"], [])) == (
        "No common protocol revision: this client allows 2026, and the server named none."
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            ServerExited("weather --now", phase="spawn", exit_code=3, stderr_tail="no key"),
            "The server `weather --now` exited with code 3 while starting; the end of its stderr:\nno key",
        ),
        (
            ServerExited("weather", phase="call", signal="SIGSEGV"),
            "The server `weather` was ended by SIGSEGV while connected, and wrote nothing to stderr.",
        ),
        (
            ServerExited("weather", phase="call", exit_code=1, stderr_tail=None),
            "The server `weather` exited with code 1 while connected.",
        ),
        (
            ServerExited("weather", phase="call"),
            "The server `weather` ended while connected, and wrote nothing to stderr.",
        ),
    ],
)
def test_server_exited_says_how(error: ServerExited, sentence: str) -> None:
    assert str(error) == sentence


def test_server_exited_keeps_what_it_knows() -> None:
    error = ServerExited("weather", phase="spawn", exit_code=3, stderr_tail="no key")
    assert attributes(error) == {
        "command": "weather",
        "phase": "spawn",
        "exit_code": 3,
        "signal": None,
        "stderr_tail": "no key",
    }


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("No such method", "The peer answered with error -32601: No such method."),
        ("No such method.", "The peer answered with error -32601: No such method."),
        ("What?", "The peer answered with error -32601: What?"),
        ("", "The peer answered with error -32601, without a message."),
    ],
)
def test_remote_error_quotes_the_peer(message: str, sentence: str) -> None:
    error = RemoteError(-32601, message, [1])
    assert str(error) == sentence
    assert (error.code, error.message, error.data) == (-32601, message, [1])


def test_state_refused_keeps_its_reason_out_of_the_sentence() -> None:
    error = StateRefused("The request state does not verify.", reason="forged")
    assert error.reason == "forged"
    assert str(error) == "The request state does not verify."


def test_a_notebook_shows_the_users_lines_and_the_sentence() -> None:
    """See tests/repo/test_notebooks.py for a real one."""
    notebook = {"__name__": "IPython.core", "cell": _fail}
    package = {"__name__": "mcplumb.client.fails", "error": UsageError}
    exec("def deep():\n    raise error('It did not work.')", package)  # noqa: S102
    exec("def run():\n    cell(deep)", {**notebook, "deep": package["deep"]}, notebook)  # noqa: S102
    with pytest.raises(UsageError) as caught:
        notebook["run"]()  # type: ignore[operator]
    caught.value.add_note("Look there.")
    shown = caught.value._render_traceback_()
    assert shown[-2:] == ["UsageError: It did not work.", "Look there."]
    lines = "\n".join(shown)
    assert "in _fail" in lines
    assert "in deep" not in lines
    assert "in run" not in lines
    assert UsageError("Made, and not raised.")._render_traceback_() == ["UsageError: Made, and not raised."]


def _fail(deep: Callable[[], None]) -> None:
    deep()
