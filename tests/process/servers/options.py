"""A server with the options that the command line gives, as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from mcplumb import Server
from mcplumb.limits import Limits

#: Everything that the test has given.
OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


def make_server(name: str, **defaults: Any) -> Server:
    options = defaults | OPTIONS
    limits = Limits(**options.pop("limits", {}))
    return Server(name, version="1.0", limits=limits, **options)
