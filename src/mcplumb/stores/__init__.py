"""Where state is kept that outlives a process: tokens."""

from mcplumb.stores.token_store import FileTokens, KeyringTokens, TokenStore

__all__ = ["FileTokens", "KeyringTokens", "TokenStore"]
