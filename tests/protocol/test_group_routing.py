from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import UsageError
from mcplumb.protocol import group_routing
from mcplumb.protocol.group_routing import MAX_NAME, GroupNames, Origin, group_name, group_prefix, template_claims
from tests.kit.products import examples

ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")

#: Names as attackers and careless people choose them.
NASTY = st.one_of(
    st.text(max_size=8),
    st.text(alphabet="ab_-x01", max_size=12),
    st.text(alphabet="ab_./ é", max_size=80),
    st.sampled_from(["", "_", "__", "a", "b", "a_b", "a__b", "a-b", "a.b", "a b", "A", "x" * 64, "x" * 65, "é", "é"]),
    st.sampled_from(["a", "a_b"]).map(lambda name: f"{name}_{group_routing._tag(name)}"),
    st.sampled_from(["a", "a.b", "é", "_a"]).map(group_prefix),
    st.tuples(st.sampled_from(["a", "a_b"]), st.sampled_from(["c", "_c", "b_c"])).map(lambda pair: group_name(*pair)),
)


@pytest.mark.req("GRP-1")
@examples(400)
@given(origins=st.sets(st.tuples(NASTY, NASTY), max_size=12))
def test_names_are_allowed_unique_and_found_again(origins: set[tuple[str, str]]) -> None:
    names = {origin: group_name(*origin) for origin in origins}
    assert all(ALLOWED.fullmatch(name) for name in names.values())
    assert len(set(names.values())) == len(origins)
    table = GroupNames()
    for server in {server for server, _ in origins}:
        table.add_server(server)
        table.set_names(server, [name for other, name in origins if other == server])
    for origin, name in names.items():
        assert table.find(name) == Origin(*origin)
        assert table.name_of(*origin) == name
        assert table.server_of(name) == origin[0]


@pytest.mark.req("GRP-1")
@examples(200)
@given(mine=st.tuples(NASTY, NASTY), others=st.lists(st.tuples(NASTY, NASTY), max_size=6), data=st.data())
def test_a_name_does_not_depend_on_the_others_or_their_order(
    mine: tuple[str, str], others: list[tuple[str, str]], data: st.DataObject
) -> None:
    alone = GroupNames()
    alone.add_server(mine[0])
    alone.set_names(mine[0], [mine[1]])
    together = GroupNames()
    for server, name in data.draw(st.permutations([mine, *others])):
        together.add_server(server)
        together.set_names(server, [*together._listed.get(server, ()), name])
    assert together.name_of(*mine) == alone.name_of(*mine)


@examples(200)
@given(server=NASTY, name=NASTY)
def test_a_name_without_a_hash_is_found_without_a_list(server: str, name: str) -> None:
    table = GroupNames()
    table.add_server(server)
    found = table.find(group_name(server, name))
    assert found in (None, Origin(server, name))
    if re.fullmatch(r"[a-z][a-z-]{0,30}", name):
        assert found is not None


@examples(200)
@given(origins=st.sets(st.tuples(NASTY, NASTY), max_size=12))
def test_without_prefixes_names_are_unique_too(origins: set[tuple[str, str]]) -> None:
    table = GroupNames(prefix=False)
    for server in sorted({server for server, _ in origins}):
        table.set_names(server, [name for other, name in origins if other == server])
    names = {origin: table.name_of(*origin) for origin in origins}
    assert all(name is not None and ALLOWED.fullmatch(name) for name in names.values())
    assert len(set(names.values())) == len(origins)
    assert all(table.find(str(name)) == Origin(*origin) for origin, name in names.items())


@pytest.mark.parametrize(
    ("server", "name", "expected"),
    [
        ("weather", "forecast", "weather_forecast"),
        ("a", "b_c", "a_b_c"),
        ("a_b", "c", "a__b_c"),
        ("a_", "c", "a___c"),
        ("a", "a_b", "a_a_b"),
        ("my-notes", "search-all", "my-notes_search-all"),
        ("a", "_c", "a_c_xa1a1f2f0"),
        ("a", "b.c", "a_b_c_xb476cc5a"),
        ("a", "日本", "a_xcf2abf0c"),
        ("a", "", "a_xe3b0c442"),
        ("io.github.somebody/some-server", "run", "io-github-somebody-s-x20b63f73_run"),
        ("日本", "run", "server-xcf2abf0c_run"),
        ("a", "c_xa1a1f2f0", "a_c_xa1a1f2f0_xd7f9d05c"),
        ("a-xa1a1f2f0", "run", "a-xa1a1f2f0-x7f903e26_run"),
        ("a", "y" * 63, "a_" + "y" * 52 + "_xa96b8773"),
    ],
)
def test_names_look_like_this(server: str, name: str, expected: str) -> None:
    """The hashes are part of the contract: a name that somebody allowed or hid must not change with a version."""
    assert group_name(server, name) == expected


@pytest.mark.parametrize("length", range(50, 70))
def test_a_name_is_cut_only_where_it_has_to_be(length: int) -> None:
    name = group_name("notes", "y" * length)
    assert len(name) == min(MAX_NAME, length + 6)
    assert (name == "notes_" + "y" * length) == (length <= 58)


def test_two_servers_with_the_same_prefix_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_routing, "_tag", lambda _: "x00000000")
    table = GroupNames()
    table.add_server("a.b")
    table.add_server("a.b")
    with pytest.raises(UsageError, match=r"'a.b' and 'a/b' get the same prefix, 'a-b-x00000000': rename one"):
        table.add_server("a/b")


def test_of_two_tools_with_the_same_hash_one_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_routing, "_tag", lambda _: "x00000000")
    for names in (["b.c", "b/c"], ["b/c", "b.c"]):
        table = GroupNames()
        table.set_names("a", names)
        assert table.find("a_b_c_x00000000") == Origin("a", "b.c")
        assert table.name_of("a", "b/c") is None


def test_a_list_replaces_the_one_before() -> None:
    table = GroupNames()
    table.add_server("a")
    table.set_names("a", ["b.c", "d", "d"])
    assert sorted(table) == ["a_b_c_" + group_routing._tag("b.c"), "a_d"]
    hashed = group_name("a", "b.c")
    assert table.find(hashed) == Origin("a", "b.c")
    table.set_names("a", ["d"])
    assert table.find(hashed) is None
    assert table.name_of("a", "b.c") is None
    assert table.find("a_d") == Origin("a", "d")
    table.remove_server("a")
    table.remove_server("never there")
    assert table.find("a_d") is None
    assert table.name_of("a", "d") is None


@pytest.mark.parametrize(
    "name", ["", "a", "a_", "_a", "a__b", "other_b", "é_b", "a_" + "y" * 70, "a_b.c", "a_xa1a1f2f0"]
)
def test_what_belongs_to_no_server_is_not_found(name: str) -> None:
    table = GroupNames()
    table.add_server("a")
    assert table.find(name) is None


def test_globs_hide_names_from_lists_and_lookups() -> None:
    table = GroupNames(only=["a_*", "b_read*"], hide=["*_delete"])
    for server in "ab":
        table.add_server(server)
        table.set_names(server, ["read", "write", "delete"])
    visible = {(server, name) for server in "ab" for name in ("read", "write", "delete") if table.name_of(server, name)}
    assert visible == {("a", "read"), ("a", "write"), ("b", "read")}
    assert table.find("b_read_all") == Origin("b", "read_all")
    assert [table.find(name) for name in ("a_delete", "b_write", "c_read")] == [None, None, None]


@pytest.mark.parametrize("option", ["only", "hide"])
def test_a_single_glob_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=rf"{option} takes a list of patterns, not a single one: \['a_\*'\]"):
        GroupNames(**{option: "a_*"})  # type: ignore[arg-type]


def test_without_prefixes_a_shared_name_gets_them() -> None:
    table = GroupNames(prefix=False)
    table.set_names("a", ["read", "write"])
    table.set_names("b", ["read", "a_read"])
    names = {name: table.find(name) for name in ("read", "write", "a_read", "b_read", "b_a_read")}
    assert names == {
        "read": None,
        "write": Origin("a", "write"),
        "a_read": Origin("a", "read"),
        "b_read": Origin("b", "read"),
        "b_a_read": Origin("b", "a_read"),
    }
    assert table.server_of("b_read") is None
    table.set_names("b", [])
    assert table.find("read") == Origin("a", "read")


@pytest.mark.parametrize(
    ("template", "uri", "claims"),
    [
        ("notes://all", "notes://all", True),
        ("notes://all", "notes://all/1", False),
        ("notes://{id}", "notes://1", True),
        ("notes://{id}", "files://1", False),
        ("file:///{path}", "file:///a/b/c.txt", True),
        ("notes://{id}/text", "notes://1/text", True),
        ("notes://{id}/text", "notes://1/image", False),
        ("notes://{user}/{id}.txt", "notes://ada/1.txt", True),
        ("notes://{user}/{id}.txt", "notes://ada.txt", False),
        ("a{x}a", "a", False),
        ("{+any}", "notes://1", True),
        ("search://{?q,limit}", "search://?q=1", True),
        ("broken://{", "broken://{", True),
    ],
)
def test_a_template_claims_uris(template: str, uri: str, claims: bool) -> None:
    assert template_claims(template, uri) is claims


@given(literals=st.lists(st.text(alphabet="ab/:", max_size=4), min_size=1, max_size=5), value=st.text(max_size=4))
def test_a_template_claims_what_it_expands_to(literals: list[str], value: str) -> None:
    assert template_claims("{v}".join(literals), value.join(literals))


def test_a_template_is_matched_in_linear_time() -> None:
    """Each literal is looked for once: a pattern with backtracking would take years for this."""
    assert not template_claims("{v}".join(["a"] * 40) + "b", "a" * 5_000)
    assert all(template_claims("{v}".join(["a"] * count), "a" * 5_000) for count, _ in pairwise(range(2, 40)))
