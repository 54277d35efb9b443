from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcplumb.wire.message_decoder import is_too_deep


def depth_of(value: Any) -> int:
    """Measure the depth of a decoded value by following its parts."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


TRICKY = st.text(alphabet='[]{}"\\,:a\u20ac', max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TRICKY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRICKY, inner, max_size=4),
    max_leaves=30,
)


@pytest.mark.req("FRM-4")
@settings(max_examples=300)
@given(VALUES, st.integers(1, 6), st.booleans())
def test_it_agrees_with_a_decoder(value: Any, max_depth: int, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert is_too_deep(data, max_depth) == (depth_of(value) > max_depth)


@given(st.binary())
def test_any_bytes_will_do(data: bytes) -> None:
    is_too_deep(data, 1)


@pytest.mark.parametrize("padding", [65535, 65536, 65537])
def test_texts_and_depth_go_on_over_slices(padding: int) -> None:
    text = b'"' + b"[" * padding + b'"'
    assert not is_too_deep(b"[" + text + b"," + text + b"]", 1)
    assert is_too_deep(b"[" + text + b",[]]", 1)
    assert is_too_deep(b"[[" + b" " * padding + b"[]]]", 2)
    assert not is_too_deep(b"[[" + b" " * padding + b"[]]]", 3)


def test_a_hidden_depth_is_found() -> None:
    assert is_too_deep(b'["]",' * 300 + b"1" + b"]" * 300, 256)


@pytest.mark.parametrize("data", [b'"",' * 1_000_000, b"[]," * 300_000, rb'"\"[",' * 500_000])
def test_it_takes_little_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        is_too_deep(data + b"[" * 300, 256)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A list with one item for each bracket takes more.
    assert peak < 5.7 * len(data)


PROGRAM = """
import threading
from mcplumb.types import CallToolParams, read
from mcplumb.wire.message_decoder import BadMessage, decode_line

def nested(depth):
    start = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":'
    return start + b"[" * depth + b"]" * depth + b"}}}"

def run():
    assert isinstance(decode_line(nested(100_000)), BadMessage)
    read(CallToolParams, decode_line(nested(490)).params)
    print("survived")

threading.stack_size(256 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


@pytest.mark.req("FRM-4")
def test_a_small_stack_survives_any_nesting() -> None:
    """Some interpreters crash where msgspec alone would read thousands of levels."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr
