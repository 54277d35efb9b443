"""Config files: which servers there are, in the dialects of the programs that people have."""

from mcpipe.config.config import Config, discover_config, load_config
from mcpipe.config.entries import Input, ServerEntry
from mcpipe.config.errors import ConfigError, NotTrusted, UnknownServer

__all__ = [
    "Config",
    "ConfigError",
    "Input",
    "NotTrusted",
    "ServerEntry",
    "UnknownServer",
    "discover_config",
    "load_config",
]
