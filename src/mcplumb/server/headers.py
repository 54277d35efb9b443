"""Arguments that HTTP clients repeat in headers, for whoever stands between client and server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import UsageError

if TYPE_CHECKING:
    from mcplumb.protocol.mirroring import ParamHeaders

__all__ = ["Header", "header_schema", "headers_in"]

_ANNOTATION = "x-mcp-header"
_NULL = {"type": "null"}


class Header(msgspec.Struct, frozen=True):
    """Stands beside the type of a tool's parameter: HTTP clients repeat it in the header ``Mcp-Param-…``.

    ``Annotated[str, Header("Region")]`` is for texts, integers and booleans, which may be None as well. A server takes
    no call whose header and argument differ, so a gateway can route or meter by the header alone. Whoever is on the way
    can read it: this is nothing for secrets.
    """

    #: The rest of the header's name: letters, digits, and some signs such as the hyphen.
    name: str

    @property
    def json_schema_extra(self) -> dict[str, Any]:
        """What the schema of the parameter says of it."""
        return {_ANNOTATION: self.name}


def header_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The input schema of a function as clients may have it: no annotated property says that it may be null.

    Null has no header, and clients need not know a type that has one and may be null. They leave the argument out.
    """
    properties = {name: _without_null(part) for name, part in schema["properties"].items()}
    return {**schema, "properties": properties}


def headers_in(schema: dict[str, Any], spoken: str) -> ParamHeaders | None:
    """The headers that an input schema asks for; a UsageError about ``spoken`` if clients would refuse it for that."""
    if _ANNOTATION.encode() not in msgspec.json.encode(schema):
        return None
    from mcplumb.protocol.mirroring import BadAnnotation, param_headers  # most tools have none

    try:
        return param_headers(schema)
    except BadAnnotation as error:
        raise UsageError(f"HTTP clients would refuse the {spoken}. {error}") from error


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    options = [option for option in schema.get("anyOf", ()) if option != _NULL]
    if len(options) != 1 or _ANNOTATION not in schema | options[0]:
        return schema
    others = {key: part for key, part in schema.items() if key != "anyOf" and (key, part) != ("default", None)}
    return {**options[0], **others}
