"""Wants something from its client.

Its tool ``ask`` takes the ``method`` and the ``params`` of a question. A legacy server sends it as a request, and its
answer is the client's whole response; a modern one asks for it with its result, and its answer is what the retry
brought. With ``rounds`` a modern one asks so many times.

* ``rogue``: it is modern, and sends requests all the same: one before each answer.
* ``pages``: how its list of tools goes on: ``again`` names the same page each time, ``on`` always another one.
"""

from __future__ import annotations

import json
from itertools import count

from tests.launch.servers.hand import MODERN, Object, Server, Silence, content, main

_STATE = 'é\u2028"\\/ a state that must come back as it is \U0001f600'


class Asking(Server):
    """Asks before it answers."""

    def __init__(self, options: Object) -> None:
        super().__init__(options)
        self._ids = count(1)
        #: The calls that wait for the client's answer, under the ids of the questions.
        self._open: dict[str, Object] = {}

    def respond(self, request: Object, result: Object) -> None:
        if self.options.get("rogue"):
            self.send({"id": f"rogue-{next(self._ids)}", "method": "ping"})
            self.send({"id": f"rogue-{next(self._ids)}", "method": "roots/list"})
        super().respond(request, result)

    def answered(self, response: Object) -> None:
        call = self._open.pop(response.get("id", ""), None)
        if call is not None:
            self.respond(call, content(json.dumps(response)))

    def list_tools(self, request: Object, params: Object) -> Object:
        page = super().list_tools(request, params)
        match self.options.get("pages"):
            case "again":
                page["nextCursor"] = "again"
            case "on":
                page["nextCursor"] = str(int(params.get("cursor", "0")) + 1)
        return page

    def tool_ask(self, request: Object, arguments: Object) -> Object:
        question = {"method": arguments["method"], "params": arguments.get("params", {})}
        if MODERN not in self.revisions:
            question_id = f"question-{next(self._ids)}"
            self._open[question_id] = request
            self.send({"id": question_id, **question})
            raise Silence
        params = request["params"]
        round_number = int(params.get("requestState", "0" + _STATE).removesuffix(_STATE))
        if round_number < arguments.get("rounds", 1):
            state = f"{round_number + 1}{_STATE}"
            asked = {"inputRequests": {"first": question, "second": question}, "requestState": state}
            self.respond(request, {"resultType": "input_required", **asked})
            raise Silence
        return content(json.dumps(params["inputResponses"]))


if __name__ == "__main__":
    main(Asking)
