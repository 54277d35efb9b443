"""What reads each type of payload, where nothing has to be forgiven."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["DECODERS", "UNREADABLE"]

#: What a decoder raises.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Decoders(dict[Any, msgspec.json.Decoder[Any]]):
    def __missing__(self, kind: Any) -> msgspec.json.Decoder[Any]:
        decoder = self[kind] = msgspec.json.Decoder(kind)
        return decoder


#: By the type. Each is made when it is first asked for.
DECODERS = _Decoders()
