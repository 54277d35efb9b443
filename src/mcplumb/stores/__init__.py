"""Stores for state that outlives a process: tokens, and what the replicas of a server share."""

from mcplumb.stores.memory_store import MemoryStore
from mcplumb.stores.redis_store import RedisStore
from mcplumb.stores.shared_store import Entry, LogFull, Record, SharedStore
from mcplumb.stores.token_store import FileTokens, KeyringTokens, TokenStore

__all__ = [
    "Entry",
    "FileTokens",
    "KeyringTokens",
    "LogFull",
    "MemoryStore",
    "Record",
    "RedisStore",
    "SharedStore",
    "TokenStore",
]
