"""``mcplumb demo``: a tour of what there is, with a real server."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from mcplumb.cli.everywhere import OwnCommand
from mcplumb.cli.output import clean, print_pairs, stdout
from mcplumb.cli.running import DONE, exit_code_of, global_options, run, sentence_of
from mcplumb.errors import McplumbError, RequestTimeout

if TYPE_CHECKING:
    from mcplumb.cli.tour import Step, Tour

__all__ = ["NEXT", "PATIENCE", "demo"]

#: Seconds that one step may take.
PATIENCE = 60.0

#: Commands to try after the tour, and what they do.
NEXT = (
    ("mcplumb shell -- mcplumb demo --server", "use this server interactively"),
    ("mcplumb demo --source > teahouse.py", "have its source, as a file to start from"),
    ("mcplumb serve teahouse.py --http :8000 --reload", "serve that over HTTP, while you change it"),
    ("mcplumb tools -s http://127.0.0.1:8000/mcp", "and use it there"),
    ("mcplumb servers", "see which servers your other programs know"),
)


@click.command(cls=OwnCommand)
@click.option("--server", is_flag=True, help="Be the demo server, on standard input and output, and nothing else.")
@click.option("--source", is_flag=True, help="Print the source of the demo server, and nothing else.")
def demo(*, server: bool, source: bool) -> int:
    """Take a tour, with the built-in demo server.

    It takes a few seconds and needs nothing but this package. Each step starts the server as a process of its own, does
    one thing with it, checks that it went well, and shows the command that does the same for any server. The exit code
    is that of the first step that failed. Nothing is left behind.

    \b
    mcplumb demo
    mcplumb demo --trace
    mcplumb demo --source > teahouse.py
    mcplumb tools -- mcplumb demo --server
    """
    from mcplumb.cli import demo_server

    if source:
        from pathlib import Path

        click.echo(Path(demo_server.__file__).read_text(encoding="utf-8"), nl=False)
        return DONE
    if server:
        demo_server.server.run(trace=global_options().trace or None)
        return DONE
    return run(_take_tour())


async def _take_tour() -> int:
    from mcplumb.cli.tour import STEPS, Tour

    began = time.monotonic()
    tour = Tour(trace=global_options().tracer)
    _show("mcplumb demo: a tour with a real server, a tea house", style="bold")
    codes = [await _take(tour, number, step) for number, step in enumerate(STEPS, 1)]
    _show("\nWhat was measured, here and now", style="bold cyan")
    print_pairs([*tour.measured(), ("this tour", f"{time.monotonic() - began:.1f} s")])
    _show("\nWhat to try next", style="bold cyan")
    print_pairs([(what, command) for command, what in NEXT])
    failed = [code for code in codes if code]
    if failed:
        _show(f"\n{len(failed)} of {len(codes)} steps failed.", style="bold red")
    return failed[0] if failed else DONE


async def _take(tour: Tour, number: int, step: Step) -> int:
    _show(f"\n{number}. {step.title}", style="bold cyan")
    _show(f"$ {step.command}", style="dim")
    try:
        async with asyncio.timeout(PATIENCE):
            learnt = await step.take(tour)
    except McplumbError as caught:
        error = caught
    except TimeoutError:
        error = RequestTimeout(f"This took longer than {PATIENCE:.0f} seconds.")
    else:
        _show(f"✓ {learnt}", style="green")
        return DONE
    _show(f"✗ {sentence_of(error)}", style="bold red")
    return exit_code_of(error)


def _show(text: str, style: str) -> None:
    stdout().print(clean(text), style=style)
