"""What is worked out from the figures of a run: medians, ratios, verdicts, and the page that shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import goals
from bench.figures import FIGURES, as_markdown, as_text, cells, times
from bench.goals import AIMS, GOALS, Goal, judged
from bench.lineup import BARE, OFFICIAL, OURS, Contender
from bench.measure import Row
from bench.page import FIGURES_FILE, PAGES, SECTION, rendered, section
from bench.results import Part, Results, Table, begun, load, save, timed, updated
from bench.rounds import able, in_rounds
from bench.starting import by_package
from bench.tap import a_message
from bench.traffic import Failed


def table(figure: str = "p50", **figures: list[float]) -> Table:
    return Table("calls", {name: [{figure: value} for value in values] for name, values in figures.items()})


def results(**tables: Table) -> Results:
    found = begun("python -m bench", {"mcplumb": "msgspec 1", "mcp 2.3.0": "anyio 1", "mcp 1.30.0": "anyio 1"}, {})
    found.parts["server"] = Part(
        {name.replace("_", ", ").replace("core", "one core"): each for name, each in tables.items()}
    )
    return found


def test_ratios_are_taken_within_rounds() -> None:
    calls = table(us=[2.0, 9.0, 8.0], them=[1.0, 3.0])
    assert calls.ratios("p50", "us", "them") == [2.0, 3.0]
    assert calls.ratios("p50", "us", "nobody") == []
    assert calls.ratios("p99", "us", "them") == []
    assert calls.median("us", "p50") == 8.0
    assert calls.median("them", "p50") == 2.0
    assert calls.median("nobody", "p50") is None


def test_contenders_take_turns_and_some_have_fewer_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    turns: list[str] = []

    def work(name: str) -> dict[str, float]:
        turns.append(name)
        return {"p50": 1 / 3}

    found = in_rounds("calls", {name: lambda name=name: work(name) for name in "abc"}, 3, fewer={"b": 1})  # type: ignore[misc]
    assert "".join(turns) == "abcacac"
    assert found.rounds["b"] == [{"p50": 0.33333}]
    assert "calls, the median of 1 to 3" in capsys.readouterr().out


def test_a_peer_that_fails_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    turns: list[str] = []

    def work(name: str) -> dict[str, float]:
        turns.append(name)
        if turns[-1] == "b" and turns.count("b") == 2:
            raise Failed("it said nothing")
        return {"p50": 1.0}

    found = in_rounds("calls", {name: lambda name=name: work(name) for name in "abc"}, 3, peers="b")  # type: ignore[misc]
    assert "".join(turns) == "abcabcac"
    assert found.rounds == {"a": [{"p50": 1.0}] * 3, "c": [{"p50": 1.0}] * 3}
    assert "==> b failed in round 2 of calls: it said nothing; it is left out\n" in capsys.readouterr().out
    turns.clear()
    with pytest.raises(Failed, match=r"^b failed in round 2 of calls: it said nothing$"):
        in_rounds("calls", {name: lambda name=name: work(name) for name in "abc"}, 3, peers="c")  # type: ignore[misc]


def test_a_peer_that_fails_its_trial_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def try_out(contender: Contender) -> None:
        if contender.name != OURS:
            raise BrokenPipeError

    ours, peer, variant = Contender(OURS), Contender(OFFICIAL), Contender(f"{OFFICIAL}, httptools")
    assert able([peer, ours, variant], try_out) == [ours]
    said = capsys.readouterr().out
    assert f"==> {OFFICIAL} failed in a trial before the clock runs: BrokenPipeError; it is left out\n" in said
    with pytest.raises(Failed, match=r"^bare failed in a trial"):
        able([ours, Contender(BARE)], try_out)


def test_a_table_in_text_and_on_a_page() -> None:
    calls = table(us=[0.5], them=[0.000_002])
    calls.rounds["them"][0]["in_flight"] = 12345.6
    assert as_text(calls).splitlines() == [
        "==> calls, the median of 1",
        "         one at a time, p50   64 in flight, calls/s",
        "  us               500.0 ms                       -",
        "  them               2.0 µs                  12,346",
    ]
    assert as_markdown(cells(calls)).splitlines()[1:3] == ["| --- | ---: | ---: |", "| us | 500.0 ms | - |"]
    assert [times(ratio) for ratio in (1234.5, 12.34, 0.456, 0.0123)] == ["1,234", "12.3", "0.456", "0.012"]


def test_a_goal_is_judged_by_the_median_of_its_ratios() -> None:
    goal = Goal("calls", "server", "modern, one core", "p50", at_most=2.5)
    found = results(modern_core=table(mcplumb=[2.0, 3.0, 2.5], bare=[1.0, 1.0, 1.0]))
    verdict = judged(found, goal)
    assert verdict
    assert (verdict.lowest, verdict.ratio, verdict.highest, verdict.word) == (2.0, 2.5, 3.0, "reached")
    assert "at most 2.5 times bare: reached" in str(verdict)
    verdict = judged(found, goal._replace(at_most=None, at_least=2.6))
    assert verdict
    assert "at least 2.6 times bare: MISSED" in str(verdict)
    assert goal._replace(at_most=None, at_least=0.4).words == "at least 0.4 of bare"
    assert judged(found, goal._replace(part="client")) is None
    assert judged(found, goal._replace(table="any core")) is None


def test_who_speaks_only_legacy_is_compared_there() -> None:
    goal = Goal("calls", "server", "modern, one core", "p50", at_most=2.5)
    modern, legacy = table(mcplumb=[2.0], bare=[1.0]), table(old=[10.0], bare=[2.0])
    assert goal.ratios(results(modern_core=modern, legacy_core=legacy), "old") == [5.0]


def test_every_goal_names_a_figure() -> None:
    assert all(goal.figure in FIGURES and (goal.at_most is None) != (goal.at_least is None) for goal in GOALS + AIMS)
    assert goals.ONE_CORE in {goal.table for goal in GOALS}


def test_results_are_kept_as_they_are(tmp_path: Path) -> None:
    found = results(modern_core=table(mcplumb=[2.0, 3.0]))
    found.parts["wire"] = timed(lambda: Part(rows=[Row("lines", "1 line/s", 0.5, 0.4)]))
    save(found, tmp_path / "new" / "results.json")
    assert load(tmp_path / "new" / "results.json") == found
    assert '{ "p50": 2.0 }' in (tmp_path / "new" / "results.json").read_text()


def test_sections_of_a_page_are_replaced_and_the_rest_is_kept() -> None:
    plain, loop = {"mcplumb, plain": [1600.0]}, {"bare on asyncio": [1000.0]}
    modern = table("in_flight", mcplumb=[2000.0], bare=[4000.0], **plain, **loop, **{"mcp 2.3.0": [400.0]})
    legacy = table("in_flight", bare=[4000.0], **{"mcp 1.30.0": [200.0]})
    found = results(modern_core=modern, legacy_core=legacy)
    found.parts["wire"] = Part(rows=[Row("lines", "1 line/s", 0.5, 0.4), Row("words", "2 words/s", 3.0)])
    names = ("run", "goals", "headline", "aims", "peers", "server", "wire", "growth")
    page = "Before\n" + "".join(f"<!-- bench {name} -->\nold\n<!-- /bench -->\n" for name in names) + "After\n"
    new = rendered(page, found)
    assert new.startswith("Before\n<!-- bench run -->\n- when and how: ")
    assert new.endswith("Not measured in this run.\n<!-- /bench -->\nAfter\n")
    assert "old" not in new
    assert "| | goal | mcplumb |  | bare on asyncio | mcp 2.3.0 | mcp 1.30.0, legacy |".replace("| |", "|  |") in new
    assert "| server, 64 in flight | at least 0.4 of bare | 0.5 | reached | 0.25 | 0.1 | 0.05 |" in new
    assert "|  | bare | mcplumb | mcp 2.3.0 |\n" in new
    assert "| server, 64 in flight | 4,000 | 2,000 | 400 |" in new
    assert "| lines | 1 line/s | 0.5 | at least 0.4: reached |" in new
    assert "Calls, the median of 1:\n\n|  | 64 in flight, calls/s |" in new
    assert rendered(new, found) == new
    found.versions["mcplumb, plain"] = "msgspec 1"
    with_plain = rendered(page, found)
    assert "| server, 64 in flight | at least 0.4 of bare | 0.5 | reached | 0.4 | 0.25 | 0.1 | 0.05 |" in with_plain
    assert "| server, 64 in flight | 4,000 | 2,000 | 1,600 | 400 |" in with_plain


def test_beginnings_are_times_of_the_go_sdk() -> None:
    found = results(modern_core=table("in_flight", mcplumb=[1.0]))
    assert section("beginnings", found) == "Not measured in this run."
    starts = table("cold", mcplumb=[0.06, 0.08], **{"minimal Python": [0.01, 0.01], "Go SDK 1.8.0": [0.005, 0.005]})
    found.parts["server"].tables["starts"] = starts
    assert section("beginnings", found).splitlines()[2:] == [
        "| Go SDK 1.8.0 | 5.0 ms | 1 |",
        "| minimal Python | 10.0 ms | 2 |",
        "| mcplumb | 70.0 ms | 14 |",
    ]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_a_page_agrees_with_the_figures_that_are_kept(file: Path) -> None:
    page = file.read_text(encoding="utf-8")
    assert len(SECTION.findall(page)) == page.count("<!-- bench ") == page.count("<!-- /bench -->")
    assert rendered(page, load(FIGURES_FILE)) == page


def test_imports_are_counted_by_package() -> None:
    report = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:       200 |        200 |   msgspec._core\n"
        "import time:       100 |        300 | msgspec\n"
        "something else | 1 | 2\n"
        "import time:        50 |         50 | mcplumb\n"
    )
    assert by_package(report) == {
        "msgspec": {"modules": 2, "importing": pytest.approx(0.0003)},
        "mcplumb": {"modules": 1, "importing": pytest.approx(0.00005)},
    }


def test_a_later_run_replaces_the_parts_that_it_measured() -> None:
    kept, later = results(calls=table(us=[1.0])), begun("python -m bench tap", {}, {})
    kept.parts["tap"], later.parts["tap"] = Part(seconds=1.0), Part(seconds=2.0)
    both = updated(kept, later)
    assert both.command == kept.command
    assert both.parts["server"] == kept.parts["server"]
    assert both.parts["tap"] == Part(seconds=2.0, own_run=f"{later.date}, `python -m bench tap`")
    assert f"- tap was measured again later: {later.date}, `python -m bench tap`" in section("run", both)
    assert updated(later, kept) is kept
    later.machine = "another"
    with pytest.raises(ValueError, match="The parts tap were measured on another"):
        updated(kept, later)


def test_what_a_tap_adds_to_a_message() -> None:
    calls = table(tap=[50e-6, 72e-6, 90e-6], direct=[40e-6, 50e-6, 50e-6])
    row = a_message("one core", calls)
    assert (row.name, row.measure, row.verdict) == ("added to a message, one core", "11.0 µs, of 15 µs", "reached")
    assert row.ratio == pytest.approx(11 / 15)
    calls.rounds["tap"][0]["cpu_alone"], calls.rounds["direct"][0]["cpu_alone"] = 0.5, 0.3
    del calls.rounds["tap"][1:], calls.rounds["direct"][1:]
    row = a_message("one core, CPU", calls, "cpu_alone")
    assert (row.measure, row.verdict) == ("10.0 µs, of 15 µs", "reached")
