"""One server of a group: its entry, its connection, and the errors that name it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from mcplumb.client.client import Client
from mcplumb.client.connector import ConfigEntry, Connecting, Target, connect, is_started_by_command
from mcplumb.errors import Closed, ConnectError, McplumbError, UsageError

__all__ = [
    "GroupMember",
    "Servers",
    "all_failed",
    "enabled_servers",
    "loaded",
    "named",
    "new_member",
    "read_members",
    "target_and_options",
]

_logger = logging.getLogger("mcplumb.client")

#: The servers of a group by their names: what `connect` takes, or a mapping with a ``target`` and options of `connect`.
Servers: TypeAlias = Mapping[str, Target | Mapping[str, Any]]


@runtime_checkable
class _LoadedConfig(Protocol):
    #: The errors of broken entries, with their names in ``entry``.
    faults: list[Any]


class _Entry(msgspec.Struct, frozen=True):
    """A config entry for `connect`. Its name is that of the log file, if stderr goes to a folder."""

    name: str
    target: Any
    options: dict[str, Any]

    def connect_arguments(self) -> tuple[Any, dict[str, Any]]:
        return self.target, self.options


class GroupMember:
    """One server of a group: connected, failed, or closed."""

    def __init__(self, name: str, target: Any, options: dict[str, Any], error: Exception | None = None) -> None:
        self.name = name
        self.target = target
        self.options = options
        self.client: Client | None = None
        #: Why there is no client.
        self.error = error
        self._connecting: Connecting | None = None
        self._is_broken = error is not None

    def is_like(self, other: GroupMember) -> bool:
        """Whether another member would connect to the same server with the same options."""
        if self._is_broken or other._is_broken:
            return self._is_broken and other._is_broken and str(self.error) == str(other.error)
        return bool(self.target == other.target and self.options == other.options)

    @property
    def reason(self) -> Exception:
        """Why there is no client."""
        return self.error or ConnectError("It is being connected.")

    def connected(self) -> Client:
        """Return the client; raise an error that names the server if there is none."""
        if self.client is None:
            raise named(self.name, self.reason) from self.error
        return self.client

    def again(self) -> GroupMember:
        """Return a new member for the same server."""
        return GroupMember(self.name, self.target, self.options, self.error if self._is_broken else None)

    async def start(self, shared: Mapping[str, Any]) -> None:
        """Connect; set ``client``, or ``error`` if that fails."""
        if self._is_broken:
            _logger.warning("The server %r is left out: %s", self.name, self.error)
            return
        try:
            self._connecting = self._new_connection(shared)
            self.client = await self._connecting.__aenter__()
            self.error = None
        except Exception as error:  # noqa: BLE001 - of one server: reported, and the others go on
            self.error = error
            _logger.warning("The server %r is left out: %s", self.name, error)
        except BaseException:
            self.error = ConnectError("Connecting was cancelled.")
            raise

    async def close(self) -> None:
        """Disconnect. May be called at any time, also while ``start`` runs."""
        self.client = None
        self.error = self.error or Closed("It was closed.")
        if self._connecting is not None:
            await self._connecting.__aexit__(None, None, None)

    def _new_connection(self, shared: Mapping[str, Any]) -> Connecting:
        target: Any = self.target
        entry_options: dict[str, Any] = {}
        if isinstance(target, ConfigEntry):
            target, entry_options = target.connect_arguments()
        options = {**shared, **self.options}
        if "stderr" not in self.options and not is_started_by_command(target):
            del options["stderr"]
        return connect(_Entry(self.name, target, entry_options), **options)


def read_members(servers: Servers) -> dict[str, GroupMember]:
    """Return the servers of a mapping or a loaded config, not connected yet; raise `UsageError` if it is neither."""
    if not isinstance(servers, Mapping):
        raise UsageError(
            f"connect_all takes a mapping of names to servers, or a loaded config, not a {type(servers).__name__}."
        )
    return {name: new_member(name, target) for name, target in enabled_servers(servers).items()}


def new_member(name: str, target: Any) -> GroupMember:
    """Return a server of a group, not connected yet; an error in place of a target is why it cannot be connected."""
    if not isinstance(name, str):
        raise UsageError(f"The name of a server must be a string, not {name!r}.")
    if isinstance(target, Exception):
        return GroupMember(name, None, {}, target)
    return GroupMember(name, *target_and_options(name, target))


def target_and_options(name: str, server: Any) -> tuple[Any, dict[str, Any]]:
    """Return what `connect` takes for a server, and the options of its own."""
    if not isinstance(server, Mapping):
        return server, {}
    options = dict(server)
    if "target" not in options:
        raise UsageError(
            f'The server {name!r} has no "target", which is a command, an address, or a config entry. An entry as in a '
            f'config file goes below "mcpServers": {{"mcpServers": {{"{name}": {{…}}}}}}.'
        )
    return options.pop("target"), options


def loaded(servers: Any) -> Any:
    """Return a loaded config for the contents of a config file, ``{"mcpServers": {…}}``, and anything else as it is."""
    if not isinstance(servers, Mapping) or isinstance(servers, _LoadedConfig):
        return servers
    for key in ("mcpServers", "servers"):
        table = servers.get(key)
        # A single server of this name is a target, or a mapping with one.
        if isinstance(table, Mapping) and ("target" not in table or isinstance(table["target"], Mapping)):
            from mcplumb.config.load_config import load_config

            return load_config(servers)
    return servers


def enabled_servers(servers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the servers by name; of a config those that are not disabled, and broken ones as their errors."""
    servers = loaded(servers)
    if not isinstance(servers, _LoadedConfig):
        return dict(servers)
    found = {name: entry for name, entry in servers.items() if not getattr(entry, "disabled", False)}
    faults = {fault.entry: fault for fault in servers.faults if fault.entry is not None}
    return found | {name: fault for name, fault in faults.items() if name not in servers}


def named(server: str, error: Exception) -> Exception:
    """Return a copy of an error that names the server."""
    if not isinstance(error, McplumbError):
        return ConnectError(f"Server {server!r}: {error}")
    # The error itself may be raised from several requests, so it is not changed.
    copied = copy.copy(error)
    copied.args = (f"Server {server!r}: {error}",)
    return copied


def all_failed(what: str, errors: Mapping[str, Exception]) -> Exception:
    """Return the error for requests that all servers failed: it names each of them."""
    if len(errors) == 1:
        ((server, error),) = errors.items()
        failed = named(server, error)
        failed.__cause__ = error
        return failed
    each = "".join(f"\n- {server}: {error}" for server, error in errors.items())
    failed = ConnectError(f"None of the {len(errors)} servers could be {what}:{each}")
    failed.__cause__ = ExceptionGroup("the servers of a group", list(errors.values()))
    return failed
