"""The client that the official conformance suite expects: it connects to the URL it is given, and does what is asked.

    python conformance/client.py URL

The suite says what that is in environment variables: ``MCP_CONFORMANCE_SCENARIO`` names the scenario,
``MCP_CONFORMANCE_PROTOCOL_VERSION`` the revision to speak (the best one if there is none), and
``MCP_CONFORMANCE_CONTEXT`` has the details of some.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import aiohttp

from mcplumb import Client, ClientCredentials, EnterpriseManaged, OAuth, WorkloadIdentity, connect
from mcplumb.client import Elicitation
from mcplumb.stores import FileTokens, TokenStore

Context: TypeAlias = dict[str, Any]


async def list_tools(client: Client, context: Context) -> None:
    """Look at the tools, and call none."""
    await client.list_tools()


async def call_tools(client: Client, context: Context) -> None:
    """Call every tool that there is, with something for each argument that it needs."""
    for tool in await client.list_tools():
        await client.call_tool(tool.name, filled_in(tool.input_schema))


async def call_as_told(client: Client, context: Context) -> None:
    """Make the calls that the suite asks for."""
    await client.list_tools()
    for call in context["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def use_everything(client: Client, context: Context) -> None:
    """Call every tool, read every resource, get every prompt."""
    await call_tools(client, context)
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)


async def echo_schema(client: Client, context: Context) -> None:
    """Send a tool's schema back, as it was read."""
    tools = {tool.name: tool for tool in await client.list_tools()}
    await client.call_tool("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


SCENARIOS: dict[str, Callable[[Client, Context], Awaitable[None]]] = {
    "elicitation-sep1034-client-defaults": call_tools,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_tools,
    "http-standard-headers": use_everything,
    "initialize": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "json-schema-ref-no-deref": list_tools,
    "request-metadata": call_tools,
    "sep-2322-client-request-state": call_tools,
    "sse-retry": call_tools,
    "tools_call": call_tools,
}


def filled_in(schema: dict[str, Any]) -> dict[str, Any]:
    """A value for each field of a form, or for each argument that a tool needs: its default, or anything that fits."""
    anything: dict[str, Any] = {"string": "something", "integer": 1, "number": 1.5, "boolean": True}
    return {
        name: field["default"] if "default" in field else anything[field["type"]]
        for name, field in schema.get("properties", {}).items()
        if "default" in field or name in schema.get("required", ())
    }


def fill_in(question: Elicitation) -> dict[str, Any]:
    """Accept every form as it is."""
    return filled_in(question.schema or {})


async def visit(url: str) -> str:
    """Be the user's browser: open the address, and return where it is redirected to. The suite asks no questions."""
    async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
        return response.headers["Location"]


def authorization(
    scenario: str, context: Context, store: TokenStore
) -> ClientCredentials | WorkloadIdentity | EnterpriseManaged | OAuth | None:
    """Return what the client authorizes with, from what the suite gives it."""
    if not scenario.startswith("auth/"):
        return None
    client_id = context.get("client_id", "")
    match scenario.removeprefix("auth/"):
        case "client-credentials-jwt":
            return ClientCredentials(
                client_id=client_id, private_key=context["private_key_pem"], algorithm=context["signing_algorithm"]
            )
        case "client-credentials-basic":
            return ClientCredentials(client_id=client_id, client_secret=context["client_secret"])
        case "wif-jwt-bearer":
            return WorkloadIdentity(client_id=client_id, assertion=context["valid_jwt"])
        case "enterprise-managed-authorization" | "cross-app-access-complete-flow":
            return EnterpriseManaged(
                client_id=client_id,
                client_secret=context["client_secret"],
                idp_issuer=context["idp_issuer"],
                idp_token_endpoint=context["idp_token_endpoint"],
                idp_client_id=context["idp_client_id"],
                id_token=context["idp_id_token"],
            )
    return OAuth(
        client_id=context.get("client_id"),
        client_secret=context.get("client_secret"),
        issuer=context.get("issuer"),
        client_metadata_url="https://conformance-test.local/client-metadata.json",
        on_visit=visit,
        store=store,
        dpop=scenario.startswith("auth/dpop"),
    )


async def main(url: str) -> None:
    """Do what the suite asks for at this URL."""
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    scenario = SCENARIOS.get(name, call_tools)
    context: Context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    revision = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION")
    with tempfile.TemporaryDirectory() as folder:
        async with connect(
            url,
            revisions=[revision] if revision else None,
            on_elicit=fill_in,
            on_sample=lambda question: "Paris",
            roots=["/"],
            auth=authorization(name, context, FileTokens(folder)),
        ) as client:
            await scenario(client, context)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
