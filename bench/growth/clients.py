"""What clients cost that have much to do with: programs that are told what to do, and say what that took them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from bench.driver import ENVIRONMENT, launched, read_line
from bench.environments import ROOT
from bench.growth.costs import WARMING, WARMING_SIZE, Cost, Costs, calls_for, echoes_for, lists_for
from bench.growth.servers import served

__all__ = ["measures"]


class Program:
    """Has clients that are connected. See ``contenders/growth_orders.py`` for what it can be told."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self._stdin, self._stdout = process.stdin, process.stdout
        self._answer()

    def told(self, what: str, count: int, *sizes: int, each: int = 1) -> Cost:
        """Of one, if the program is told to do this so many times, each with so many."""
        self._stdin.write(" ".join([what, *map(str, [count, *sizes])]).encode() + b"\n")
        cpu, time = self._answer()
        return Cost(cpu / count / each, time / count / each)

    def _answer(self) -> list[float]:
        return [float(word) for word in read_line(self._stdout.fileno()).split()]


@contextmanager
def program(command: Sequence[str]) -> Iterator[Program]:
    with launched(command, environment={**ENVIRONMENT, "PYTHONPATH": str(ROOT)}) as process:
        yield Program(process)


def measures(server: Sequence[str]) -> Mapping[str, Callable[[Sequence[str], int], Costs]]:
    """What each of them grows with, and how that is measured, against this server."""

    def flight(command: Sequence[str], size: int) -> Costs:
        with program([*command, "1", *server, "0"]) as client:
            client.told("flight", calls_for(size, WARMING), size)
            return {"flight": client.told("flight", calls_for(size), size)}

    def clients(command: Sequence[str], size: int) -> Costs:
        with served(server) as (_, path), program([*command, str(size), f"unix:{path}"]) as client:
            client.told("together", WARMING)
            count = calls_for(size)
            return {"turns": client.told("turns", count), "together": client.told("together", count)}

    def tools(command: Sequence[str], size: int) -> Costs:
        with program([*command, "1", *server, str(size)]) as client:
            client.told("list", 1)
            client.told("tools", WARMING, size)
            return {
                "calls": client.told("tools", calls_for(1), size),
                "lists": client.told("list", lists_for(size), each=size),
            }

    def messages(command: Sequence[str], size: int) -> Costs:
        with program([*command, "1", *server, "0"]) as client:
            client.told("message", 1, min(size, WARMING_SIZE))
            return {"messages": client.told("message", echoes_for(size), size, each=size)}

    return {"flight": flight, "clients": clients, "tools": tools, "messages": messages}
