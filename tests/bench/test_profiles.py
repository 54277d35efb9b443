"""The shares that profiles of other servers show are worked out from what their profilers print."""

from __future__ import annotations

import pytest

from bench.profiles import shares_of_functions, shares_of_stacks

TRACES = """File: bench
Type: cpu
Duration: 33.49s, Total samples = 6.21s (18.54%)
-----------+-------------------------------------------------------
      30ms   runtime.scanblock
             runtime.gcBgMarkWorker
-----------+-------------------------------------------------------
        1s   runtime.memclrNoHeapPointers
             example/json.(*Decoder).Decode (inline)
             example/json.Unmarshal
             main.main
-----------+-------------------------------------------------------
     970ms   main.main
"""
ANNOTATED = """--------------------------------------------------------------------------------
Ir
--------------------------------------------------------------------------------
4,000,000 (100.0%)  PROGRAM TOTALS

4,000,000 (100.0%)  ???:main [bench]
2,000,000 (50.00%)  src/de.rs:<Message as Deserialize>::deserialize [bench]
  300,000 ( 7.50%)  src/de.rs:<Content as Deserialize>::deserialize'2 [bench]
"""


def test_stacks_are_counted_once_for_each_work_that_they_have() -> None:
    work = {"json": r"json\.Unmarshal$", "decoder": r"\.Decode$", "garbage": r"^runtime\.gcBgMarkWorker$", "no": "x$"}
    assert shares_of_stacks(TRACES, work) == pytest.approx({"json": 0.5, "decoder": 0.5, "garbage": 0.015, "no": 0.0})


def test_the_largest_share_of_functions_counts() -> None:
    work = {"messages": "<Message as", "all": "as Deserialize", "content": "<Content as", "no": "<Nothing as"}
    assert shares_of_functions(ANNOTATED, work) == {"messages": 0.5, "all": 0.5, "content": 0.075, "no": 0.0}
