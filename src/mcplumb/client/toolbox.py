"""What is known of a server's tools: what may be sent again, and what their results must be."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mcplumb.types.tools import Tool

if TYPE_CHECKING:
    from mcplumb.protocol.mirroring import ParamHeaders

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
        # The first of a plain dict is found by stepping over all that were first before.
        self._tools: OrderedDict[str, Tool] = OrderedDict()
        #: The names of those that have an output schema.
        self.promising: set[str] = set()
        self._headers: dict[str, ParamHeaders | None] = {}

    def learn(self, tools: Iterable[Tool]) -> None:
        """The server lists these."""
        for tool in tools:
            self._tools.pop(tool.name, None)
            self._forget(tool.name)
            self._tools[tool.name] = tool
            if tool.output_schema is not None:
                self.promising.add(tool.name)
        while len(self._tools) > _MOST_TOOLS:
            oldest, _ = self._tools.popitem(last=False)
            self._forget(oldest)

    def find(self, name: str) -> Tool | None:
        """The tool of this name, as it was listed last."""
        return self._tools.get(name)

    def param_headers(self, name: str) -> ParamHeaders | None:
        """Which arguments of this tool are told in HTTP headers, too; None if none are, or if that is not known."""
        tool = self._tools.get(name)
        if tool is None:
            return None
        if name not in self._headers:
            from mcplumb.protocol.mirroring import param_headers

            self._headers[name] = param_headers(tool.input_schema)
        return self._headers[name]

    def clear(self) -> None:
        """Forget all: they are not what they were."""
        self.is_complete = False
        self.generation += 1
        self._tools.clear()
        self._headers.clear()
        self.promising.clear()

    def _forget(self, name: str) -> None:
        self._headers.pop(name, None)
        self.promising.discard(name)
