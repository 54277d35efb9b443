"""What can be seen of a server while it is connected to: from the messages that go by, and from its stderr."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Literal

import msgspec

from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.revisions import Revision
from mcplumb.wire.decoding import BadMessage, decode_line

__all__ = ["Findings", "Question"]

_OPENING = ("server/discover", "initialize")
#: Lines of garbage and of stderr that are kept, and characters of each.
_MOST_LINES = 200
_LONGEST = 2000
_QUOTED = 120


class Question(msgspec.Struct):
    """One of the two questions that find out the era, and what came of it."""

    method: str
    asked: float
    answered: float | None = None
    #: The result, if it was one.
    result: Any = None
    #: The error, in words, if it was one.
    error: str | None = None


class Findings:
    """Watches one connection: give ``trace`` and ``stderr`` to ``connect``. It keeps a bounded amount of everything."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        #: Seconds until the first message came, and since when it was asked for.
        self.first_answer: float | None = None
        self.questions: list[Question] = []
        #: Lines on stdout that are no messages: the first of them, and how many there were.
        self.garbage: list[str] = []
        self.garbage_count = 0
        self.errors: deque[str] = deque(maxlen=_MOST_LINES)
        self._open: dict[Any, Question] = {}
        self._is_watching = True

    def stderr(self, line: str) -> None:
        """The server wrote this line to its stderr."""
        self.errors.append(line[:_LONGEST])

    def trace(self, direction: Literal["in", "out"], line: bytes) -> None:
        """A message goes by, or what should have been one."""
        if direction == "out":
            if self._is_watching:
                self._ask(line)
        elif isinstance(decode_line(line, True, DEFAULT_LIMITS.max_batch), BadMessage):
            self.garbage_count += 1
            if len(self.garbage) < _MOST_LINES:
                self.garbage.append(line[:_LONGEST].decode("utf-8", "backslashreplace"))
        else:
            if self.first_answer is None:
                self.first_answer = time.monotonic() - self.began
            if self._open:
                self._answer(line)

    def settled(self) -> None:
        """There is an agreement, or none will come: what goes by from now on is not about the era."""
        self._is_watching = False

    @property
    def offered(self) -> list[str]:
        """The revisions that the server named itself, in whatever way."""
        names: list[Any] = []
        for question in self.questions:
            if isinstance(question.result, dict):
                said = question.result.get("supportedVersions")
                names += said if isinstance(said, list) else [question.result.get("protocolVersion")]
        return list(dict.fromkeys(name[:_QUOTED] for name in names if isinstance(name, str)))

    def story(self, revision: Revision) -> str:
        """How the era of this revision was found, in half a sentence."""
        last = {question.method: question for question in self.questions}
        probe, opening = last.get("server/discover"), last.get("initialize")
        if revision.is_modern:
            return "it answered server/discover" + ("" if opening is None else ", and was sent initialize as well")
        if probe is None:
            return "it was sent nothing but initialize, and answered"
        if probe.error is not None:
            return f"it answered server/discover with {probe.error}, and then initialize"
        if probe.result is not None:
            return "it answered server/discover, though not as a modern server does, and then initialize"
        return "it gave no answer to server/discover, but one to initialize"

    def _ask(self, line: bytes) -> None:
        message = _plain(line)
        if message.get("method") in _OPENING and "id" in message:
            question = Question(message["method"], time.monotonic() - self.began)
            self.questions.append(question)
            self._open[message["id"]] = question

    def _answer(self, line: bytes) -> None:
        message = _plain(line)
        question = self._open.pop(message.get("id"), None) if "method" not in message else None
        if question is None:
            return
        question.answered = time.monotonic() - self.began
        question.result = message.get("result")
        error = message.get("error")
        if isinstance(error, dict):
            question.error = f"error {error.get('code')} ({str(error.get('message'))[:_QUOTED]})"


def _plain(line: bytes) -> dict[str, Any]:
    value = msgspec.json.decode(line)
    return value if isinstance(value, dict) else {}
