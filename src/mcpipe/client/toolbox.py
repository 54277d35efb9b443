"""What is known of a server's tools: what may be sent again, and what their results must be."""

from __future__ import annotations

from collections.abc import Iterable

from mcpipe.types.tools import Tool

__all__ = ["Toolbox"]

#: Tools that are remembered; those listed last.
_MOST_TOOLS = 10_000


class Toolbox:
    """The tools that the server has listed so far, by their names."""

    def __init__(self) -> None:
        #: Whether the whole list has been seen, so that there is no use in asking for one that is not in it.
        self.is_complete = False
        #: Counts how often all was forgotten.
        self.generation = 0
        self._tools: dict[str, Tool] = {}

    def learn(self, tools: Iterable[Tool]) -> None:
        """The server lists these."""
        for tool in tools:
            self._tools.pop(tool.name, None)
            self._tools[tool.name] = tool
        while len(self._tools) > _MOST_TOOLS:
            del self._tools[next(iter(self._tools))]

    def find(self, name: str) -> Tool | None:
        """The tool of this name, as it was listed last."""
        return self._tools.get(name)

    def clear(self) -> None:
        """Forget all: they are not what they were."""
        self.is_complete = False
        self.generation += 1
        self._tools.clear()
