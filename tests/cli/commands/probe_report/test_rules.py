from __future__ import annotations

import pytest

from mcplumb.cli.commands.probe_report import Findings
from tests.tap.sessions import ask, listed, plain, tool


@pytest.mark.req("TAP-4")
def test_a_probe_reports_rules_that_the_server_broke() -> None:
    findings = Findings()
    findings.trace("out", ask(1, "server/discover").encode())
    findings.trace("in", plain(1, supportedVersions=["2026-07-28"], capabilities={"tools": {}}).encode())
    findings.trace("out", ask(2, "tools/list").encode())
    findings.trace("in", listed(2, tool("a"), tool("a")).encode())  # other parts of the report are about definitions
    findings.trace("in", listed(3).encode())
    assert findings.broken_rules == [
        "A result without resultType (DIR-4). The result of server/discover (id 1) has no resultType.",
        "An answer to no request (FRM-8). The server sent an answer with the id 3, which no request had.",
    ]


def test_a_good_server_has_no_broken_rules() -> None:
    findings = Findings()
    findings.trace("out", ask(2, "tools/list").encode())
    findings.trace("in", listed(2, tool("a")).encode())
    assert findings.broken_rules == []
