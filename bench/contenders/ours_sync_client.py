"""The blocking client of mcplumb."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.contenders.orders import asked, orders, tell, text_of
from mcplumb.sync import Client, connect

clock = time.perf_counter


def main() -> None:
    era, command = asked()
    started = clock()
    with connect(command, revisions=["2025-11-25"] if era == "legacy" else None) as client:
        echo(client, text_of(0))
        tell([clock() - started])
        for what, numbers in orders():
            tell(WORK[what](client, *numbers))


def alone(client: Client, count: int) -> list[float]:
    return [echo(client, text_of(number)) for number in range(count)]


def echo(client: Client, text: str) -> float:
    started = clock()
    result: Any = client.call_tool("echo", {"text": text})
    seconds = clock() - started
    if [block.text for block in result.content] != [text]:
        raise SystemExit(f"The result should have been {text[:100]!r}: {repr(result)[:200]}")
    return seconds


def in_flight(client: Client, count: int, window: int) -> list[float]:
    """As many threads as the window is wide, each of which calls again as soon as it has its result."""
    numbers = iter(range(count))
    started = clock()
    with ThreadPoolExecutor(window) as pool:
        for caller in [pool.submit(call_on, client, numbers) for _ in range(window)]:
            caller.result()
    return [clock() - started]


def call_on(client: Client, numbers: Iterator[int]) -> None:
    for number in numbers:
        echo(client, text_of(number))


def large(client: Client, size: int) -> list[float]:
    return [echo(client, "x" * size)]


WORK: dict[str, Callable[..., list[float]]] = {"alone": alone, "in_flight": in_flight, "large": large}

main()
