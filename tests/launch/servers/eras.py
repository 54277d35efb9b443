"""Meets the questions of a new client in its own way.

* ``on_probe``, ``on_initialize``: ``answer`` as usual, ``exit``, ``silence``, or an error as an object.
* ``slow``: seconds that it takes to start; it reads nothing until then.
* ``waits_for``: a file whose appearance it waits for before it reads anything.
* ``ignores_unknown``: a method that it does not have is passed over in silence.
* ``stumbles``: a bridge that opens a session of its own for the probe, and then refuses ``initialize``. ``refuses``: it
  refuses the probe, too. ``exits``: it leaves the probe unanswered and exits.
* ``each``: options for each start (with ``state``), over the others; the last for all that follow.
"""

from __future__ import annotations

import os
import time
from typing import Any

from tests.launch.servers.hand import Object, Refusal, Server, Silence, crash, main


class Eras(Server):
    """Answers ``server/discover`` and ``initialize`` as it was told."""

    has_stumbled = False

    def __init__(self, options: Object) -> None:
        super().__init__(options)
        each = options.get("each")
        if each:
            self.options = {**options, **each[min(self.start_number, len(each)) - 1]}
            self.revisions = self.options.get("revisions", self.revisions)

    def run(self) -> None:
        time.sleep(self.options.get("slow", 0))
        while "waits_for" in self.options and not os.path.exists(self.options["waits_for"]):  # noqa: PTH110
            time.sleep(0.01)
        super().run()

    def requested(self, request: Object) -> None:
        how = self.options.get("stumbles")
        if how is None:
            super().requested(request)
        elif request["method"] == "server/discover":
            self.has_stumbled = True
            if how == "refuses":
                super().requested(request)
        elif request["method"] == "initialize" and self.has_stumbled:
            self.send({"id": request["id"], "error": {"code": -32000, "message": "Already started"}})
            if how == "exits":
                crash({"code": 1, "says": "TypeError: Cannot read properties of undefined\n"})
        else:
            super().requested(request)

    def result_of(self, request: Object, method: str, params: Object) -> Object:
        how: Any = {"server/discover": "on_probe", "initialize": "on_initialize"}.get(method, "")
        match self.options.get(how, "answer"):
            case "exit":
                crash({"code": 7, "says": f"I do not know {method}.\n"})
            case "silence":
                raise Silence
            case dict(error):
                raise Refusal(error["code"], error["message"], error.get("data"))
        return super().result_of(request, method, params)

    def unknown(self, method: str) -> Object:
        if self.options.get("ignores_unknown"):
            raise Silence
        return super().unknown(method)


if __name__ == "__main__":
    main(Eras)
