"""Config files: the servers that mcplumb's own file, a project, and other MCP clients configure."""

from mcplumb.config.entry import Input, ServerEntry
from mcplumb.config.files import ConfigError, NotTrusted, UnknownServer
from mcplumb.config.load_config import Config, discover_config, load_config

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
