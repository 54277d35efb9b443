"""``mcplumb listen``: show changes on a server as they happen."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcplumb.cli.render.output import clean_line, print_json, print_text, say
from mcplumb.cli.server_target import Target, server_command
from mcplumb.errors import Closed, UsageError
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.types.notification_params import SubscriptionFilter

if TYPE_CHECKING:
    from mcplumb.client.client import Client

__all__ = ["all_lists", "listen", "print_change", "say_subscribed"]


@server_command()
@click.argument("uris", metavar="[URI]...", nargs=-1)
@click.option("--tools", is_flag=True, help="Report changes of the list of tools.")
@click.option("--prompts", is_flag=True, help="Report changes of the list of prompts.")
@click.option("--resources", is_flag=True, help="Report changes of the list of resources.")
@click.option("-n", "--count", type=click.IntRange(1), metavar="NUMBER", help="End after this many changes.")
@click.option("--json", "as_json", is_flag=True, help="Print each change as a JSON document, on one line.")
async def listen(
    target: Target,
    *,
    uris: tuple[str, ...],
    tools: bool,
    prompts: bool,
    resources: bool,
    count: int | None,
    as_json: bool,
) -> None:
    """Show changes as they happen.

    Prints a line for each change of a resource with one of the URIs, or of one of the lists; by default, of all lists
    whose changes the server announces. If the connection was lost and restored, or changes came too fast, a line says
    that changes may have been missed.

    Ctrl-C ends it with exit code 0, or with 130 if it comes before the number of changes given with --count. If the
    server ends the subscription, the exit code is 3.

    \b
    mcplumb listen -- python weather.py
    mcplumb listen --tools weather://Oslo/today --count 1 --json -- python weather.py
    """
    try:
        async with target.connect() as client:
            wanted: dict[str, Any] = {"tools": tools, "prompts": prompts, "resources_list": resources}
            if not uris and not any(wanted.values()):
                wanted = all_lists(client)
            async with client.listen(**wanted, resources=uris) as changes:
                say_subscribed(changes.wanted, changes.honoured or SubscriptionFilter())
                shown = 0
                async for change in changes:
                    print_change(change, as_json=as_json)
                    shown += 1
                    if shown == count:
                        return
        raise Closed("The server ended the subscription.")
    except asyncio.CancelledError:
        # Without --count, Ctrl-C is the normal end.
        if count is not None:
            raise


def all_lists(client: Client) -> dict[str, Any]:
    """Return the lists whose changes the server announces; raise UsageError if there are none."""
    can = client.capabilities
    lists = {"tools": can.tools, "prompts": can.prompts, "resources_list": can.resources}
    told = {name: True for name, capability in lists.items() if capability is not None and capability.list_changed}
    if not told:
        raise UsageError("The server announces no changes of its lists: give the URI of a resource.")
    return told


def say_subscribed(
    wanted: SubscriptionFilter, honoured: SubscriptionFilter, how_it_ends: str = "Ctrl-C ends it."
) -> None:
    """Say what is subscribed, and what the server does not report; raise UsageError if it reports nothing."""
    asked, agreed = _names(wanted), _names(honoured)
    missing = ", ".join(name for name in asked if name not in agreed)
    if not agreed:
        raise UsageError(f"The server does not report changes of {missing}: there is nothing to listen to.")
    say(f"Listening for changes of {', '.join(agreed)}. {how_it_ends}", style="dim")
    if missing:
        say(f"The server does not report changes of {missing}.")


def _names(topics: SubscriptionFilter) -> list[str]:
    lists = {
        "tools": topics.tools_list_changed,
        "prompts": topics.prompts_list_changed,
        "resources": topics.resources_list_changed,
    }
    return [name for name, is_on in lists.items() if is_on] + [*map(clean_line, topics.resource_subscriptions or [])]


def print_change(change: Change | Missed, *, as_json: bool) -> None:
    """Print one change on one line."""
    if as_json:
        data = {"topic": "missed"} if isinstance(change, Missed) else msgspec.structs.asdict(change)
        print_json({name: value for name, value in data.items() if value is not None}, indent=-1)
        sys.stdout.flush()  # the reader of a pipe waits for it
    elif isinstance(change, Missed):
        print_text("Changes may have been missed.")
    elif change.uri is not None:
        print_text(f"The resource {clean_line(change.uri)} changed.")
    else:
        print_text(f"The list of {change.topic} changed.")
