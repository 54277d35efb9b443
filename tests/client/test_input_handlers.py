from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcplumb import Context, Server, connect
from mcplumb.client.input_handlers import Elicitation, InputHandlers
from mcplumb.errors import NotInRevision, ProtocolError, UsageError
from mcplumb.revisions import LATEST, get_revision
from mcplumb.types.client_features import (
    CreateMessageParams,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitParams,
    ElicitRequest,
    ElicitResult,
    InputRequest,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    Root,
)
from mcplumb.types.content import TextContent
from mcplumb.types.lifecycle import (
    ClientCapabilities,
    ElicitationCapability,
    RootsCapability,
    SamplingCapability,
)
from tests.kit.loop import PATIENCE, run
from tests.kit.results import text_of

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
FORM = ElicitRequest(ElicitParams("Your name?", requested_schema=SCHEMA))
PAGE = ElicitRequest(ElicitParams.for_url("Sign in.", "https://example.com/in"))
SAMPLE = CreateMessageRequest(CreateMessageParams(messages=[], max_tokens=10))
ROOTS = ListRootsRequest()

OLDEST = get_revision("2024-11-05")


class Name(msgspec.Struct):
    name: str


def answer(request: InputRequest, **handlers: Any) -> InputResponse:
    return run(InputHandlers(**handlers).answer(request, LATEST))


async def later(value: Any) -> Any:
    return value


class Asker:
    """Handlers may be objects."""

    async def __call__(self, request: Elicitation) -> dict[str, Any]:
        return {"thread": threading.current_thread() is threading.main_thread()}


# --- what is declared -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handlers", "declared"),
    [
        ({}, ClientCapabilities()),
        (
            {"on_elicit": print},
            ClientCapabilities(elicitation=ElicitationCapability(form={}, url={})),
        ),
        ({"on_sample": print}, ClientCapabilities(sampling=SamplingCapability())),
        ({"roots": []}, ClientCapabilities(roots=RootsCapability(list_changed=True))),
        (
            {"capabilities": ClientCapabilities(extensions={"x/y": {}}, sampling=SamplingCapability(tools={}))},
            ClientCapabilities(extensions={"x/y": {}}),
        ),
        (
            {"on_sample": print, "capabilities": ClientCapabilities(sampling=SamplingCapability(tools={}))},
            ClientCapabilities(sampling=SamplingCapability(tools={})),
        ),
    ],
)
def test_what_has_a_handler_is_declared_and_nothing_else(handlers: Any, declared: ClientCapabilities) -> None:
    assert InputHandlers(**handlers).capabilities == declared


@pytest.mark.parametrize("request_", [FORM, SAMPLE, ROOTS])
def test_what_has_no_handler_is_refused(request_: InputRequest) -> None:
    input_handlers = InputHandlers()
    assert not input_handlers.can_answer(request_)
    with pytest.raises(ProtocolError, match="which this client did not declare"):
        run(input_handlers.answer(request_, LATEST))


# --- the user -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ({"name": "Ada"}, ElicitResult("accept", {"name": "Ada"})),
        ({}, ElicitResult("accept", {})),
        (None, ElicitResult("decline")),
        (ElicitResult("cancel"), ElicitResult("cancel")),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_form_is_filled_in_or_not(said: Any, result: ElicitResult, is_async: bool) -> None:
    assert answer(FORM, on_elicit=lambda _: later(said) if is_async else said) == result


@pytest.mark.parametrize(
    ("request_", "seen"),
    [
        (FORM, Elicitation("Your name?", "form", SCHEMA, None, FORM.params)),
        (PAGE, Elicitation("Sign in.", "url", None, "https://example.com/in", PAGE.params)),
    ],
)
def test_the_handler_sees_the_question(request_: ElicitRequest, seen: Elicitation) -> None:
    questions: list[Elicitation] = []
    answer(request_, on_elicit=questions.append)
    assert questions == [seen]


def test_a_page_has_no_content() -> None:
    assert answer(PAGE, on_elicit=lambda _: {"ignored": 1}) == ElicitResult("accept")


def test_another_answer_is_the_mistake_of_the_handler() -> None:
    with pytest.raises(UsageError, match="on_elicit returned a str: return the content as a dict"):
        answer(FORM, on_elicit=lambda _: "Ada")


def test_what_a_handler_raises_goes_through() -> None:
    def fail(_: Elicitation) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        answer(FORM, on_elicit=fail)


def test_plain_handlers_run_in_a_thread_and_async_ones_do_not() -> None:
    def plain(_: Elicitation) -> dict[str, Any]:
        return {"thread": threading.current_thread() is threading.main_thread()}

    async def on_the_loop(request: Elicitation) -> dict[str, Any]:
        return plain(request)

    assert answer(FORM, on_elicit=plain) == ElicitResult("accept", {"thread": False})
    for handler in (on_the_loop, partial(on_the_loop), Asker()):
        assert answer(FORM, on_elicit=handler) == ElicitResult("accept", {"thread": True})


async def test_the_threads_of_plain_handlers_end_with_the_client() -> None:
    threads: list[threading.Thread] = []

    def plain(_: Elicitation) -> None:
        threads.append(threading.current_thread())

    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Well?", Name)).action

    async with connect(server, on_elicit=plain) as client:
        assert text_of(await client.call_tool("ask")) == "decline"
        assert threads[0].daemon  # a handler that never returns does not keep the process from ending
        assert threads[0].name == "mcplumb-handler"
    await asyncio.to_thread(threads[0].join, PATIENCE)
    assert not threads[0].is_alive()


# --- the model ------------------------------------------------------------------------------------------------------


def test_a_model_answers_with_a_text_or_in_full() -> None:
    full = CreateMessageResult("assistant", TextContent("Paris"), model="m-1", stop_reason="endTurn")
    assert answer(SAMPLE, on_sample=lambda _: full) == full
    short = CreateMessageResult("assistant", TextContent("Paris"), model="unknown")
    assert answer(SAMPLE, on_sample=lambda params: later("Paris" if params.max_tokens == 10 else "")) == short


def test_another_sample_is_the_mistake_of_the_handler() -> None:
    with pytest.raises(UsageError, match="on_sample returned a NoneType: return the model's text"):
        answer(SAMPLE, on_sample=lambda _: None)


def test_what_the_revision_cannot_say_is_refused() -> None:
    two = CreateMessageResult("assistant", [TextContent("a"), TextContent("b")], model="m")
    with pytest.raises(NotInRevision, match="exactly one content block"):
        run(InputHandlers(on_sample=lambda _: two).answer(SAMPLE, OLDEST))


# --- the roots ------------------------------------------------------------------------------------------------------


def test_roots_are_paths_addresses_or_records(tmp_path: Path) -> None:
    given = [tmp_path, str(tmp_path / "a b"), "file:///c", Root("file:///d", name="D"), "."]
    result = answer(ROOTS, roots=given)
    assert result == ListRootsResult(
        [
            Root(tmp_path.as_uri(), name=tmp_path.name),
            Root((tmp_path / "a b").as_uri(), name="a b"),
            Root("file:///c"),
            Root("file:///d", name="D"),
            Root(Path.cwd().as_uri(), name=Path.cwd().name),
        ]
    )
    assert answer(ROOTS, roots=["/"]) == ListRootsResult([Root("file:///")])


@pytest.mark.parametrize("is_async", [False, True])
def test_roots_may_be_asked_for_each_time(is_async: bool) -> None:
    given = ["file:///a"]
    assert answer(ROOTS, roots=lambda: later(given) if is_async else given) == ListRootsResult([Root("file:///a")])


@pytest.mark.parametrize("roots", ["file:///a", Path("a"), Root("file:///a")])
def test_a_single_root_is_not_a_list(roots: Any) -> None:
    with pytest.raises(UsageError, match="roots is a single folder"):
        InputHandlers(roots=roots)
