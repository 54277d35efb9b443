"""The methods that a bridge knows: which of them it answers itself, and which it forwards."""

from __future__ import annotations

from functools import cache

from mcplumb.revisions import get_revision
from mcplumb.types.method_table import METHODS

__all__ = ["OWN_METHODS", "OWN_NOTIFICATIONS", "may_need_input", "passing_methods", "unknown_methods"]

#: Requests that the bridge answers.
OWN_METHODS = frozenset(
    (
        "initialize",
        "server/discover",
        "ping",
        "logging/setLevel",
        "subscriptions/listen",
        "resources/subscribe",
        "resources/unsubscribe",
    )
)
#: Notifications that concern the connection between the client and the bridge only.
OWN_NOTIFICATIONS = frozenset(("notifications/cancelled", "notifications/initialized"))


@cache
def unknown_methods(revision: str) -> frozenset[str]:
    """Return the methods that other revisions have, but not this one."""
    known = get_revision(revision)
    return frozenset(name for name, method in METHODS.items() if not method.sent_by("client", known))


@cache
def passing_methods(revision: str) -> frozenset[str]:
    """Return the methods whose requests may pass as they are, in a revision."""
    known = get_revision(revision)
    own = {*OWN_METHODS, *(["tools/list"] if known.has_mirrored_headers else [])}
    return frozenset(name for name, method in METHODS.items() if method.sent_by("client", known) and name not in own)


def may_need_input(method: str) -> bool:
    """Return whether a result of this method may ask for input."""
    known = METHODS.get(method)
    return known is not None and known.may_need_input
