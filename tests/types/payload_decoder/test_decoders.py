from __future__ import annotations

import pytest

from mcplumb.types.notification_params import ProgressParams
from mcplumb.types.payload_decoder import DECODERS, UNREADABLE


def test_each_type_has_one_decoder() -> None:
    decoder = DECODERS[ProgressParams]
    assert DECODERS[ProgressParams] is decoder
    assert decoder.decode(b'{"progressToken":1,"progress":0.5}') == ProgressParams(1, 0.5)


@pytest.mark.parametrize("data", [b"{", b"{}", b'{"progressToken":"\xff","progress":1}'])
def test_what_cannot_be_read_raises_one_of_these(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        DECODERS[ProgressParams].decode(data)
