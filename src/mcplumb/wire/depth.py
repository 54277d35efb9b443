"""How deep JSON is nested, found out without following it: what a decoder may read without filling the stack."""

from __future__ import annotations

from itertools import accumulate, count
from operator import sub

__all__ = ["is_too_deep"]

# An opening bracket becomes 2, a closing one 0; all other bytes are dropped.
_STEPS = bytes(2 if byte in b"[{" else 0 for byte in range(256))
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
# As many brackets as are searched for one by one. Most messages have fewer.
_FEW = 16
# What is cut into pieces at once. The pieces of a whole line could take many times its bytes.
_SLICE = 64 * 1024


def is_too_deep(data: bytes, max_depth: int) -> bool:
    """Whether arrays and objects are nested more than ``max_depth`` deep.

    ``data`` may be any bytes: whether it is JSON is for the decoder to say, which may then read it without danger.
    The cost is linear, and small where there are not many brackets.
    """
    if not _has_more_brackets(data, max_depth):
        return False
    if b"\\" in data:
        # Backslashes come in runs, and no run begins within an escape: so first the escaped ones, then the quotes.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = 0
    in_text = False
    for at in range(0, len(data), _SLICE):
        pieces = data[at : at + _SLICE].split(b'"')
        steps = b"".join(pieces[in_text::2]).translate(_STEPS, _NO_BRACKETS)
        in_text ^= len(pieces) % 2 == 0
        # After n brackets, the sum of their steps less n is how much deeper they have led.
        if depth + max(map(sub, accumulate(steps), count(1)), default=0) > max_depth:
            return True
        depth += sum(steps) - len(steps)
    return False


def _has_more_brackets(data: bytes, most: int) -> bool:
    """Whether more than ``most`` brackets open. A few are found many times faster by searching than by counting."""
    few = _FEW
    for bracket in (b"[", b"{"):
        at = data.find(bracket)
        while at != -1 and few:
            few -= 1
            at = data.find(bracket, at + 1)
    if few:
        return _FEW - few > most
    brackets = data.translate(None, _NO_BRACKETS)
    return brackets.count(b"[") + brackets.count(b"{") > most
