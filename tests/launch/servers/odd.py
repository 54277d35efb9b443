"""Answers calls of its tool ``odd`` in a way that no client can expect: the argument ``how`` says in which."""

from __future__ import annotations

from typing import Any

from tests.launch.servers.hand import Object, Server, Silence, content, main

#: Members of a result, or the result itself, that are not what they have to be.
_WRONG: dict[str, Any] = {
    "a list": [1],
    "a string": "done",
    "null": None,
    "no content": {"resultType": "complete"},
    "content of another type": {"resultType": "complete", "content": "done"},
    "an unknown result type": {"resultType": "unheard of", "content": []},
    "a result type that is a number": {"resultType": 5, "content": []},
    "input that nobody named": {"resultType": "input_required"},
}


class Odd(Server):
    """Answers, but how."""

    #: The call that is answered when its caller has given it up.
    late: Object | None = None

    def notified(self, method: str, params: Object) -> None:
        super().notified(method, params)
        if method == "notifications/cancelled" and self.late is not None and params["requestId"] == self.late["id"]:
            self.respond(self.late, self._done())
            self.note(event="late")

    def tool_odd(self, request: Object, arguments: Object) -> Object:
        how, request_id = arguments["how"], request["id"]
        match how:
            case "late":
                self.late = request
                raise Silence
            case "twice":
                self.respond(request, self._done())
            case "with unknown ids first":
                for unknown in (10**9, -1, 0, "x", str(request_id), request_id + 0.5, True, None, [request_id]):
                    self.send({"id": unknown, "result": {**content("wrong"), "resultType": "complete"}})
            case "with an error without an id first":
                self.send({"error": {"code": -32700, "message": "I could not read that."}})
                self.send({"id": None, "error": {"code": -32700, "message": "I could not read that."}})
            case "with result and error":
                self.send({"id": request_id, "result": self._done(), "error": {"code": 1, "message": "no"}})
                raise Silence
            case "with a broken error":
                self.send({"id": request_id, "error": "no"})
                raise Silence
            case "with an error":
                self.send({"id": request_id, "error": {"code": -32050, "message": "No.", "data": {"why": 1}}})
                raise Silence
            case "without a result type":
                self.respond(request, content("done"))
                raise Silence
            case "with progress for nobody":
                for token in (10**9, "x", None, request_id):
                    self.notify("notifications/progress", progressToken=token, progress="much")
                    self.notify("notifications/progress", progressToken=token, progress=1)
            case "with a cancellation":
                self.notify("notifications/cancelled", requestId=request_id)
                self.notify("notifications/cancelled", requestId=None)
                self.notify("notifications/cancelled")
            case _:
                self.respond(request, _WRONG[how])
                raise Silence
        return content("done")

    def _done(self) -> Object:
        return {"resultType": "complete", **content("done")}


if __name__ == "__main__":
    main(Odd)
