"""Calls its tools and prompts as it likes: those of ``names``, which say their own names."""

from __future__ import annotations

from tests.launch.servers.hand import Object, Server, content, main, text


class Naming(Server):
    """Has names that no good server would choose."""

    def list_tools(self, _: Object, __: Object) -> Object:
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.options["names"]]}

    def call(self, _: Object, params: Object) -> Object:
        return content(params["name"])

    def methods(self) -> dict:  # type: ignore[type-arg]
        return {
            **super().methods(),
            "prompts/list": lambda _, __: {"prompts": [{"name": name} for name in self.options["names"]]},
            "prompts/get": lambda _, params: {"messages": [{"role": "user", "content": text(params["name"])}]},
        }


if __name__ == "__main__":
    main(Naming)
