"""The server that the official conformance suite expects: every tool, resource and prompt that it calls by name.

    python conformance/server.py --port 3001     serves http://127.0.0.1:3001/mcp
    python conformance/server.py --stdio         serves its standard input and output

The names and most texts are those that the suite asks for.
"""

from __future__ import annotations

import argparse
import asyncio
from base64 import b64decode
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from mcplumb import Audio, Context, File, Header, HttpOptions, Image, Server, ToolError

server = Server("conformance", version="1.0", instructions="What the conformance suite calls, and nothing useful.")

PIXEL = Image(
    b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==")
)
SILENCE = Audio(b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="))

#: Seconds between the steps of tools that take some.
STEP = 0.05


# Content


@server.tool
async def test_simple_text() -> str:
    """Give a text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Give a picture."""
    return PIXEL


@server.tool
async def test_audio_content() -> Audio:
    """Give a sound."""
    return SILENCE


@server.tool
async def test_embedded_resource() -> File:
    """Give a resource together with its contents."""
    return File(b"This is an embedded resource content.", mime_type="text/plain", uri="test://embedded-resource")


@server.tool
async def test_multiple_content_types() -> list[str | Image | File]:
    """Give a text, a picture and a resource."""
    resource = File(b'{"test":"data","value":123}', mime_type="application/json", uri="test://mixed-content-resource")
    return ["Multiple content types test:", PIXEL, resource]


@server.tool
async def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


# Arguments


@server.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(arguments: dict[str, Any]) -> str:
    """Take what a schema with all kinds of keywords describes."""
    return f"Taken: {sorted(arguments)}"


@server.tool
async def test_x_mcp_header(region: Annotated[str, Header("Region")]) -> str:
    """Take an argument that HTTP clients also send as a header."""
    return f"The region is {region}."


# Progress and log messages


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        await ctx.progress(done, 100)
        await asyncio.sleep(STEP)
    return "Done."


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three messages."""
    await ctx.info("Tool execution started")
    await asyncio.sleep(STEP)
    await ctx.info("Tool processing data")
    await asyncio.sleep(STEP)
    await ctx.info("Tool execution completed")
    return "Logged."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Log a message, which only a client that asks for it gets."""
    await ctx.info("This is for those who asked.")
    return "Logged."


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Let go of the response stream, so that the client has to come back for the result."""
    await ctx.release_stream(retry=2 * STEP)
    await asyncio.sleep(3 * STEP)
    return "You came back."


# Changes


@server.tool
async def test_trigger_tool_change() -> str:
    """Change the list of tools, for a moment."""
    server.add_tool(test_simple_text, name="test_passing_tool")
    server.remove_tool("test_passing_tool")
    return "Changed."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Change the list of prompts, for a moment."""
    server.add_prompt(test_simple_prompt, name="test_passing_prompt")
    server.remove_prompt("test_passing_prompt")
    return "Changed."


# Questions to the client


@dataclass
class Account:
    """A form with two fields that have to be filled in."""

    username: str
    email: str


@dataclass
class Profile:
    """A form that is filled in already."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@dataclass
class Name:
    """A form with a name."""

    name: str


@dataclass
class Consent:
    """A form with a box to tick."""

    ok: bool


@dataclass
class Situation:
    """A form with a text."""

    context: str


#: A form with every kind of choice, also the one that is out of use. The keys are the suite's.
CHOICES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}],
        },
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}]},
        },
    },
}


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model."""
    reply = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {reply.text}"


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the client's user for an account."""
    answer = await ctx.elicit(message, Account)
    return f"User response: {answer.action}, {answer.data}"


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a form that has a default for every field."""
    answer = await ctx.elicit("Is this you?", Profile)
    return f"Elicitation completed: action={answer.action}, content={answer.data}"


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with a form of choices."""
    answer = await ctx.elicit("Which ones?", CHOICES)
    return f"Elicitation completed: action={answer.action}, content={answer.data}"


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Need a client with a model; others are told so."""
    reply = await ctx.sample("Say something.", max_tokens=10)
    return f"The model said: {reply.text}"


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, and then ask: a modern client gets the question as a result, and never as a request."""
    await ctx.progress(0, 1)
    answer = await ctx.elicit("Who is there?", Name)
    return f"User response: {answer.action}"


# Questions with keys: those that the suite answers under in the results of modern calls.


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.data.name}!" if answer.data else "Hello, stranger!"


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask a model about France."""
    reply = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model says: {reply.text}"


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the roots."""
    roots = await ctx.roots(key="client_roots")
    return f"Your roots: {', '.join(root.uri for root in roots)}"


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask for consent; the client keeps the state meanwhile, and it comes back as it was."""
    answer = await ctx.elicit("Go on?", Consent, key="confirm")
    return f"state-ok, and the answer is {answer.action}"


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask for consent; state that does not come back as it was is refused."""
    answer = await ctx.elicit("Go on?", Consent, key="confirm")
    return f"The answer is {answer.action}."


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask three questions at once."""
    user, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Write a short greeting.", max_tokens=50, key="greeting"),
        ctx.roots(key="client_roots"),
    )
    return f"{greeting.text} {user.data.name if user.data else 'stranger'}, with {len(roots)} roots."


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask two questions, the second after the first."""
    first = await ctx.elicit("Step 1: what is your name?", Name, key="step1")
    second = await ctx.elicit("Step 2: go on?", Consent, key="step2")
    return f"Both steps are done: {first.action}, {second.action}."


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only what the client can answer."""
    said: list[str] = []
    if ctx.client_capabilities.elicitation is not None:
        said.append((await ctx.elicit("What is your name?", Name, key="user_name")).action)
    if ctx.client_capabilities.sampling is not None:
        said.append((await ctx.sample("Write a short greeting.", max_tokens=50, key="greeting")).text)
    return f"Answers: {said}"


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks for its context first."""
    answer = await ctx.elicit("What is it about?", Situation, key="user_context")
    return f"Help me with {answer.data.context if answer.data else 'nothing'}."


# Resources


@server.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> Image:
    """A picture."""
    return PIXEL


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A text that clients may subscribe to."""
    return "Nothing has changed."


@server.resource("test://template/{id}/data", mime_type="application/json")
async def template_data(id: str) -> dict[str, Any]:  # noqa: A002 - the suite names the variable
    """What belongs to an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Prompts


@server.prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
async def values_for_arg1(typed: str) -> list[str]:
    """Values that begin with what was typed."""
    return [value for value in ("testValue1", "testValue2", "other") if value.startswith(typed)]


@server.prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[File | str]:  # noqa: N803 - the suite's name
    """A prompt with a resource in it."""
    resource = File(b"Embedded resource content for testing.", mime_type="text/plain", uri=resourceUri)
    return [resource, "Please process the embedded resource above."]


@server.prompt
async def test_prompt_with_image() -> list[Image | str]:
    """A prompt with a picture in it."""
    return [PIXEL, "Please analyze the image above."]


def main() -> None:
    """Serve until the client is gone, or a signal comes."""
    parser = argparse.ArgumentParser(description="The server for the MCP conformance suite.")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--port", type=int, help="serve http://127.0.0.1:PORT/mcp; 0 for a free port, which is printed")
    way.add_argument("--stdio", action="store_true", help="serve standard input and output")
    parser.add_argument(
        "--shared", metavar="URL", help="share sessions and changes with other processes, by this store"
    )
    options = parser.parse_args()
    if options.stdio:
        server.run()
    else:
        server.run(
            f"http://127.0.0.1:{options.port}/mcp",
            http=HttpOptions(shared=options.shared),
            on_ready=lambda address: print(address, flush=True),
        )


if __name__ == "__main__":
    main()
