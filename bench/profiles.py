"""Where the servers of the Go and of the Rust SDK spend their time, by the profilers of their languages.

A share is of the CPU time (Go, by pprof) or of the instructions (Rust, by callgrind) of a server that answers calls of
``echo``, 64 in flight, in the modern era, on one core. The page *Choosing* shows them, and says what comes of it.
"""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from bench.driver import ENVIRONMENT, Driven, launched
from bench.environments import CONTENDERS, NotInstalled, build_go, rust_program
from bench.lineup import GO, RUST, Lineup
from bench.loads import WINDOW
from bench.machine import pinned
from bench.measure import Row, show
from bench.results import Part
from bench.traffic import MODERN, Calls
from tests.interop.environments import run as run_program

__all__ = ["run", "shares_of_functions", "shares_of_stacks"]

#: callgrind makes a program slower by a factor of fifty or so.
GO_CALLS, RUST_CALLS = 30_000, 3_000
PATIENCE = 600.0

#: What a server does, and the functions that do it, as a pattern of their names. One work may be part of another.
Work: TypeAlias = Mapping[str, str]
GO_WORK: Work = {
    "decoding JSON": r"/internal/json\.Unmarshal$",
    "making buffers for that": r"encoding/json\.\(\*Decoder\)\.readValue$",
    "collecting garbage, in the background": r"^runtime\.gcBgMarkWorker$",
    "the tool, with the check of its arguments": r"/mcp\.\(\*Server\)\.callTool$",
}
RUST_WORK: Work = {
    "decoding messages": r"JsonRpcMessage<.*> as .*Deserialize>::deserialize\b",
    "trying the kinds of requests": r"Deserialize for rmcp::model::ClientRequest>::deserialize\b",
    "making the errors of kinds that do not fit": r"<serde_json::error::Error as .*Error>::custom\b",
    "handling the requests": r"<impl rmcp::service::Service<.*> for .*>::handle_request\b",
}


def run(_: Lineup) -> Part:
    """What each server spends its time with."""
    rows = []
    for name, calls, profile in ((GO, GO_CALLS, _profile_go), (RUST, RUST_CALLS, _profile_rust)):
        try:
            # As in the tables of calls on one core.
            with tempfile.TemporaryDirectory(prefix="profile-") as folder, pinned():
                shares = profile(Path(folder), calls)
        except NotInstalled as error:
            print(f"==> {name} is left out: {error}")
            continue
        found = [Row(what, f"{share:.0%}", share) for what, share in shares.items()]
        show(f"{name}: what its server does for {calls:,} calls of echo, {WINDOW} in flight", found)
        rows += [row._replace(name=f"{name}: {row.name}") for row in found]
    return Part(rows=rows)


def _profile_go(folder: Path, calls: int) -> dict[str, float]:
    if not shutil.which("go"):
        raise NotInstalled("There is no 'go' on the PATH.")
    program, profile = folder / "bench", folder / "profile"
    build_go(CONTENDERS / "go-sdk", folder, "-tags=profile")
    with launched([str(program), "server"], environment={**ENVIRONMENT, "CPU_PROFILE": str(profile)}) as process:
        _answer(Driven(process, MODERN, 0), calls)
        process.send_signal(signal.SIGUSR1)
        process.wait()
    return shares_of_stacks(run_program("go", "tool", "pprof", "-traces", str(program), str(profile)), GO_WORK)


def _profile_rust(folder: Path, calls: int) -> dict[str, float]:
    if not shutil.which("valgrind"):
        raise NotInstalled("There is no 'valgrind' on the PATH.")
    profile = folder / "profile"
    callgrind = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={profile}"]
    with launched([*callgrind, rust_program("rmcp"), "server"], patience=PATIENCE) as process:
        server = Driven(process, MODERN, 0)
        _answer(server, calls)
        server.finish()
        process.wait()
    return shares_of_functions(
        run_program("callgrind_annotate", "--inclusive=yes", "--threshold=100", str(profile)), RUST_WORK
    )


def _answer(server: Driven, calls: int) -> None:
    server.in_flight(Calls.echo(MODERN, range(1, calls + 1)), WINDOW)


def shares_of_stacks(traces: str, work: Work) -> dict[str, float]:
    """Return the share of the samples with such a function in their stack, of what ``pprof -traces`` prints."""
    whole, found = 0.0, dict.fromkeys(work, 0.0)
    for trace in re.split(r"^-+\+-+\n", traces, flags=re.MULTILINE)[1:]:
        first, *rest = trace.splitlines() or [""]
        if match := re.match(r"\s*([\d.]+)(ms|s)\s+(.*)", first):
            seconds = float(match[1]) / (1000 if match[2] == "ms" else 1)
            stack = [line.strip().removesuffix(" (inline)") for line in (match[3], *rest)]
            whole += seconds
            for what, pattern in work.items():
                if any(re.search(pattern, function) for function in stack):
                    found[what] += seconds
    return {what: seconds / whole for what, seconds in found.items()}


def shares_of_functions(annotated: str, work: Work) -> dict[str, float]:
    """Return the largest share of such a function, of what ``callgrind_annotate --inclusive=yes`` prints."""
    found = dict.fromkeys(work, 0.0)
    for line in annotated.splitlines():
        if match := re.match(r"\s*[\d,]+ \(\s*([\d.]+)%\)\s+[^:]*:(.*)", line):
            for what, pattern in work.items():
                if re.search(pattern, match[2]):
                    found[what] = max(found[what], float(match[1]) / 100)
    return found
