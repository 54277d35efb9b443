"""Clients of the older legacy revisions with modern servers of the official SDKs, through the bridge."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from mcplumb import RemoteError
from mcplumb.client.input_handlers import Elicitation
from tests.interop.sdk_servers import NOTES, TS_2, V2, SdkServer, said_in
from tests.interop.visiting import complain_not, read, said, visiting


def answer(question: Elicitation) -> dict[str, Any]:
    assert question.schema is not None
    return {"nights": 2, "breakfast": True}


@pytest.mark.req("BRG-1")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
@pytest.mark.parametrize("server", [V2, TS_2], ids=str)
async def test_an_older_client_uses_a_modern_server(server: SdkServer, revision: str, tmp_path: Path) -> None:
    bridge = [sys.executable, "-m", "mcplumb", "bridge", "--", *server.command(tmp_path, is_full=True)]
    async with visiting(bridge, revisions=[revision], on_elicit=answer) as client:
        assert str(client.revision) == revision
        [forecast] = [tool for tool in await client.list_tools() if tool.name == "forecast"]
        assert (forecast.output_schema is not None) == client.revision.has_structured_content
        result = await client.call_tool("forecast", {"city": "Oslo", "days": 2})
        assert "Oslo" in said(result)
        structured = {"city": "Oslo", "celsius": [0, 1]} if client.revision.has_structured_content else None
        assert result.structured_content == structured
        assert said(await client.call_tool("refuse", {"reason": "Full."})) == f"error: {server.error_prefix}Full."
        assert await read(client, NOTES) == "Bring a coat."
        with pytest.raises(RemoteError) as missing:
            await read(client, "interop://nowhere")
        assert missing.value.code == -32002
        assert said_in(await client.get_prompt("plan", {"city": "Oslo"})) == ["user: Plan a day in Oslo."]
        if revision == "2025-06-18":
            booked = said(await client.call_tool("book", {"room": "the attic"}))
            assert booked == f"the attic: 2 nights, breakfast {server.true}"
        else:
            # These revisions have no questions to the user, so the server is told that it cannot ask.
            with pytest.raises(RemoteError, match="elicitation"):
                await client.call_tool("book", {"room": "the attic"})
        complain_not(client)
