from __future__ import annotations

import re
import string
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import UsageError
from mcplumb.server import uri_templates
from mcplumb.server.uri_templates import UriTemplate, normalize_uri

MATCHES: list[tuple[str, str, dict[str, str] | None]] = [
    # One URI
    ("notes://all", "notes://all", {}),
    ("notes://all", "notes://all/", None),
    ("notes://all", "notes://al", None),
    ("notes://all?x=1#y", "notes://all?x=1#y", {}),
    ("urn:isbn:1", "urn:isbn:1", {}),
    # One segment
    ("weather://{city}/now", "weather://oslo/now", {"city": "oslo"}),
    ("weather://{city}/now", "weather://são/now", {"city": "são"}),
    ("weather://{city}/now", "weather://S%C3%A3o%20Paulo/now", {"city": "São Paulo"}),
    ("weather://{city}/now", "weather://a%3Fb%23c/now", {"city": "a?b#c"}),
    ("weather://{city}/now", "weather://a&b=c+d/now", {"city": "a&b=c+d"}),
    ("weather://{city}/now", "weather://.../now", {"city": "..."}),
    ("weather://{city}/now", "weather://👩‍🚀/now", {"city": "👩‍🚀"}),
    ("weather://{city}/now", "weather:///now", None),
    ("weather://{city}/now", "weather://oslo/now/", None),
    ("weather://{city}/now", "weather://oslo/then", None),
    ("weather://{city}/now", "weather://a/b/now", None),
    ("weather://{city}/now", "weather://a%2Fb/now", None),
    ("weather://{city}/now", "weather://a%2fb/now", None),
    ("weather://{city}/now", "weather://a\\b/now", None),
    ("weather://{city}/now", "weather://a%5Cb/now", None),
    ("weather://{city}/now", "weather://a%00b/now", None),
    ("weather://{city}/now", "weather://a\0b/now", None),
    ("weather://{city}/now", "weather://a%0Ab/now", None),
    ("weather://{city}/now", "weather://a%7Fb/now", None),
    ("weather://{city}/now", "weather://a%C2%85b/now", None),
    ("weather://{city}/now", "weather://./now", None),
    ("weather://{city}/now", "weather://../now", None),
    ("weather://{city}/now", "weather://%2E%2e/now", None),
    ("weather://{city}/now", "weather://%2E/now", None),
    ("weather://{city}/now", "weather://a?b/now", None),
    ("weather://{city}/now", "weather://a#b/now", None),
    ("weather://{city}", "weather://oslo?unit=c", None),
    ("weather://{city}", "weather://oslo#top", None),
    ("weather://{city}", "weather:oslo", None),
    ("weather://{city}", "", None),
    # Percent-escapes
    ("x:{a}", "x:%", None),
    ("x:{a}", "x:%4", None),
    ("x:{a}", "x:%4g", None),
    ("x:{a}", "x:% 4", None),
    ("x:{a}", "x:%é1", None),
    ("x:{a}", "x:%41%", None),
    ("x:{a}", "x:%FF", None),
    ("x:{a}", "x:%C3", None),
    ("x:{a}", "x:%ED%A0%80", None),
    ("x:{a}", "x:%C0%AE%C0%AE", None),
    ("x:{a}", "x:%c3%A9", {"a": "é"}),
    ("x:{a}", "x:%2541", {"a": "%41"}),
    # Several variables
    ("x:{a}/{b}", "x:1/2", {"a": "1", "b": "2"}),
    ("x:{a}{/b}", "x:1/2", {"a": "1", "b": "2"}),
    ("x:{a}/{b}", "x:1/2/3", None),
    ("x:{a}/{b}", "x:/2", None),
    ("x:{a}/{b}", "x:1/", None),
    ("x:{a}-{b}", "x:1-2-3", {"a": "1", "b": "2-3"}),
    ("x:{a}-{b}.json", "x:1-2.json-3.json", {"a": "1", "b": "2.json-3"}),
    ("x:{a}-{b}/c", "x:1/2-3/c", None),
    ("x:{a}-{b}", "x:12", None),
    ("x:v{a}.json", "x:v1.json", {"a": "1"}),
    ("x:v{a}.json", "x:v.json", None),
    ("x:ab{a}ba", "x:aba", None),
    # A digit of an escape is not the literal that it looks like
    ("x:{a}2{b}", "x:%20a2b", {"a": " a", "b": "b"}),
    ("x:{a}0{b}", "x:%20a0b", {"a": " a", "b": "b"}),
    ("x:{a}0{b}", "x:%20b", None),
    ("x:{+a}2{b}", "x:a2%20%22", {"a": "a", "b": ' "'}),
    ("x:{a}0", "x:%20", None),
    # The rest of a path
    ("file:///{+path}", "file:///a", {"path": "a"}),
    ("file:///{+path}", "file:///a/b/c.txt", {"path": "a/b/c.txt"}),
    ("file:///{path*}", "file:///a/b%2Fc%20d", {"path": "a/b/c d"}),
    ("file://{/path*}", "file:///a/b", {"path": "a/b"}),
    ("file:///{+path}", "file:///", None),
    ("file:///{+path}", "file:////etc/passwd", None),
    ("file:///{+path}", "file:///%2Fetc/passwd", None),
    ("file:///{+path}", "file:///a//b", None),
    ("file:///{+path}", "file:///a/", None),
    ("file:///{+path}", "file:///a/./b", None),
    ("file:///{+path}", "file:///a/../b", None),
    ("file:///{+path}", "file:///a/%2e%2E/b", None),
    ("file:///{+path}", "file:///a%2F..%2Fb", None),
    ("file:///{+path}", "file:///..", None),
    ("file:///{+path}", "file:///a\\..\\b", None),
    ("file:///{+path}", "file:///a/%5C/b", None),
    ("file:///{+path}", "file:///a%00", None),
    ("file:///{+path}", "file:///a?b", None),
    ("file:///{+path}", "file:///a#b", None),
    ("x:{user}/{+path}/raw/{rev}.txt", "x:u/a/raw/b/raw/r.txt", {"user": "u", "path": "a/raw/b", "rev": "r"}),
    ("x:{user}/{+path}/raw/{rev}.txt", "x:u/a/raw/b/c.txt", None),
    ("x:{user}/{+path}/raw/{rev}.txt", "x:u/raw/r.txt", None),
    ("x:{+path}{/last}", "x:a/b/c", {"path": "a/b", "last": "c"}),
    # Query parameters
    ("x:s{?q,limit}", "x:s", {}),
    ("x:s{?q,limit}", "x:s?q=a", {"q": "a"}),
    ("x:s{?q,limit}", "x:s?limit=3&q=a%20b", {"q": "a b", "limit": "3"}),
    ("x:s{?q,limit}", "x:s?q=", {"q": ""}),
    ("x:s{?q,limit}", "x:s?q=a/../b?c=d+e%0A", {"q": "a/../b?c=d+e\n"}),
    ("x:s{?q,limit}", "x:s?", None),
    ("x:s{?q,limit}", "x:s?q", None),
    ("x:s{?q,limit}", "x:s?q=a&", None),
    ("x:s{?q,limit}", "x:s?q=a&q=b", None),
    ("x:s{?q,limit}", "x:s?other=a", None),
    ("x:s{?q,limit}", "x:s?Q=a", None),
    ("x:s{?q,limit}", "x:s?q=%FF", None),
    ("x:s{?q,limit}", "x:s?q=%4", None),
    ("x:s{?q,limit}", "x:s?q=a#b", None),
    ("x:s{?q,limit}", "x:s#b?q=a", None),
    ("x:s{?q,limit}", "x:t?q=a", None),
    ("x:s/{a}{?b}{&c}", "x:s/1?c=3&b=2", {"a": "1", "b": "2", "c": "3"}),
    ("x:s/{a}{?b}", "x:s/1?a=2", None),
    ("x:s?v=1{&q}", "x:s?v=1", {}),
    ("x:s?v=1{&q}", "x:s?v=1&q=2", {"q": "2"}),
    ("x:s?v=1{&q}", "x:s?q=2&v=1", None),
    ("x:s?v=1{&q}", "x:s", None),
    ("x:s?v={v}&w={w}{&q}", "x:s?v=1&w=2&q=3", {"v": "1", "w": "2", "q": "3"}),
    ("x:s?v={v}", "x:s?v=1&w=2", None),
    ("x:s?v={v}", "x:s?v=1?2", {"v": "1?2"}),
    # Case
    ("Weather://Oslo.Example/{City}", "WEATHER://oslo.EXAMPLE/Bergen", {"City": "Bergen"}),
    ("weather://{city}.Example/now", "weather://Oslo.eXAMPLE/now", {"city": "Oslo"}),
    ("weather://oslo/now", "Weather://OSLO/now", {}),
    ("weather://oslo/now", "weather://oslo/Now", None),
    ("x://Ann@host/", "X://Ann@HOST/", {}),
    ("x://Ann@host/", "x://ann@host/", None),
    ("urn:isbn:{a}", "URN:isbn:1", {"a": "1"}),
    ("urn:isbn:{a}", "urn:ISBN:1", None),
]


@pytest.mark.parametrize(("template", "uri", "values"), MATCHES)
def test_matching(template: str, uri: str, values: dict[str, str] | None) -> None:
    assert UriTemplate(template).match(uri) == values


def test_what_a_template_says_of_itself() -> None:
    template = UriTemplate("x://{a}/b{/c*}{?d,e}")
    assert template.names == ("a", "c", "d", "e")
    assert template.optional_names == ("d", "e")
    assert template.is_template
    assert str(template) == "x://{a}/b{/c*}{?d,e}"
    assert repr(template) == "UriTemplate('x://{a}/b{/c*}{?d,e}')"
    assert UriTemplate("x:s{?q}").is_template
    assert not UriTemplate("x:s").is_template
    assert UriTemplate("x:s").names == ()


FORMS = (
    "the forms of variables are {name}, {/name}, {+name}, {name*}, {/name*}, {?a,b} and {&a,b}, and names are those of "
    "function arguments"
)
FOLLOW = "nothing can follow the query parameters"


@pytest.mark.parametrize(
    ("template", "character", "why"),
    [
        ("", 1, "a URI begins with its scheme, as in 'notes://{name}'"),
        ("notes", 1, "a URI begins with its scheme, as in 'notes://{name}'"),
        ("{scheme}://x", 1, "a URI begins with its scheme, as in 'notes://{name}'"),
        ("/a:b", 1, "a URI begins with its scheme, as in 'notes://{name}'"),
        ("1a:b", 1, "a URI begins with its scheme, as in 'notes://{name}'"),
        ("x_y:b", 1, "a URI begins with its scheme, as in 'notes://{name}'"),
        ("x:a b", 4, "' ' cannot be in a URI as it is; write it percent-encoded"),
        ("x:{a}é", 6, "'é' cannot be in a URI as it is; write it percent-encoded"),
        ("x:\0", 3, "'\\x00' cannot be in a URI as it is; write it percent-encoded"),
        ("x:a}", 4, "'}' cannot be in a URI as it is; write it percent-encoded"),
        ("x:a\\b", 4, "'\\\\' cannot be in a URI as it is; write it percent-encoded"),
        ("x:%4", 3, "'%' needs two hexadecimal digits after it; the percent sign itself is '%25'"),
        ("x:%4g", 3, "'%' needs two hexadecimal digits after it; the percent sign itself is '%25'"),
        ("x:%4{a}", 3, "'%' needs two hexadecimal digits after it; the percent sign itself is '%25'"),
        ("x:{a", 3, "this '{' has no '}'"),
        ("x:{a}{b}", 6, "two variables need a literal between them"),
        ("x:{+a}{b}", 7, "two variables need a literal between them"),
        ("x:{+a}/{b*}", 8, "only one variable can be the rest of a path"),
        ("x:{a}/{a}", 7, "'a' occurs twice"),
        ("x:{a}{?a}", 6, "'a' occurs twice"),
        ("x:{?a,a}", 3, "'a' occurs twice"),
        ("x:{}", 3, FORMS),
        ("x:{*}", 3, FORMS),
        ("x:{+}", 3, FORMS),
        ("x:{?}", 3, FORMS),
        ("x:{a,b}", 3, FORMS),
        ("x:{#a}", 3, FORMS),
        ("x:{.a}", 3, FORMS),
        ("x:{;a}", 3, FORMS),
        ("x:{a:3}", 3, FORMS),
        ("x:{+a*}", 3, FORMS),
        ("x:{?a*}", 3, FORMS),
        ("x:{?a,}", 3, FORMS),
        ("x:{a b}", 3, FORMS),
        ("x:{a{b}}", 3, FORMS),
        ("x:{é}", 3, FORMS),
        ("x:{a.b}", 3, FORMS),
        ("x:{?a}b", 7, FOLLOW),
        ("x:{?a}{b}", 7, FOLLOW),
        ("x:{?a}{?b}", 7, "the first query parameters begin with '{?', further ones with '{&'"),
        ("x:{&a}", 3, "the first query parameters begin with '{?', further ones with '{&'"),
        ("x:?a=1{?b}", 7, "the first query parameters begin with '{?', further ones with '{&'"),
        ("x:#a{?b}", 5, "query parameters come before the fragment"),
    ],
)
def test_a_bad_template_is_refused(template: str, character: int, why: str) -> None:
    said = f"The URI template {template!r} cannot be read at character {character}: {why}."
    with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
        UriTemplate(template)


@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        ("x:{a}", {"a": "são"}, "x:s%C3%A3o"),
        ("x:{a}", {"a": "a b&c"}, "x:a%20b%26c"),
        ("x:{a}", {"a": "-._~"}, "x:-._~"),
        ("x:{a}", {"a": "%41"}, "x:%2541"),
        ("x:a{/b}", {"b": "c?"}, "x:a/c%3F"),
        ("x:{+a}", {"a": "b/c:[d]@!$'()*+,;="}, "x:b/c:[d]@!$'()*+,;="),
        ("x:{+a}", {"a": "b?c#d&e%f"}, "x:b%3Fc%23d%26e%25f"),
        ("x:{a*}", {"a": "b/c d:"}, "x:b/c%20d%3A"),
        ("x:a{/b*}", {"b": "c/d"}, "x:a/c/d"),
        ("x:{?a,b}", {}, "x:"),
        ("x:{?a,b}", {"b": "1"}, "x:?b=1"),
        ("x:{?a,b}", {"b": "1", "a": "/&=\n"}, "x:?a=%2F%26%3D%0A&b=1"),
        ("x:?a=1{&b}", {"b": ""}, "x:?a=1&b="),
        ("x:{?a}{&b}", {"b": "2"}, "x:?b=2"),
        ("X://Host/{a}", {"a": "B"}, "x://host/B"),
        ("x:plain", {}, "x:plain"),
    ],
)
def test_expanding(template: str, values: dict[str, str], uri: str) -> None:
    assert UriTemplate(template).expand(**values) == uri


def test_values_that_are_missing() -> None:
    with pytest.raises(UsageError, match=r"^The URI template 'x:\{a\}/\{b\}\{\?c\}' needs a value for a, b.$"):
        UriTemplate("x:{a}/{b}{?c}").expand()


@pytest.mark.parametrize(
    ("template", "values", "said"),
    [
        ("x:{a}{?b}", {"a": "b", "c": "d"}, "The URI template 'x:{a}{?b}' has no variable 'c'. It has 'a', 'b'."),
        ("x:{a}", {"b": "1", "c": "2"}, "The URI template 'x:{a}' has no variable 'b', 'c'. It has 'a'."),
        ("x:plain", {"a": "b"}, "The URI 'x:plain' has no variables."),
    ],
)
def test_values_of_no_variable(template: str, values: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
        UriTemplate(template).expand(**values)


@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("x:{a}", {"a": ""}),
        ("x:{a}", {"a": ".."}),
        ("x:{a}", {"a": "b/c"}),
        ("x:{a}", {"a": "\ud800"}),
        ("x:{+a}", {"a": "/b"}),
        ("x:{+a}", {"a": "b/../c"}),
        ("x:{?a}", {"a": "\ud800"}),
        ("x:{a}-{b}", {"a": "1-2", "b": "3"}),
    ],
)
def test_values_that_have_no_place(template: str, values: dict[str, str]) -> None:
    said = f"The URI template {template!r} cannot represent these values: {values!r}."
    with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
        UriTemplate(template).expand(**values)


ROUND = [
    "weather://{a}/now",
    "x:{a}/{b}.json",
    "x:{a}{/b}",
    "file:///{+a}",
    "file://{/a*}/x/{b}",
    "x:v{a*}{?b,c}",
    "x:s?v={a}&w={+b}{&c}",
    "x:s{?a,b,c}",
]
texts = st.text(max_size=6) | st.text("ab%2F.4é /\\?#&=+\n", max_size=6)


@given(template=st.sampled_from(ROUND), values=st.fixed_dictionaries(dict.fromkeys("abc", texts)))
def test_what_was_filled_in_is_found_again(template: str, values: dict[str, str]) -> None:
    parsed = UriTemplate(template)
    values = {name: value for name, value in values.items() if name in parsed.names}
    try:
        uri = parsed.expand(**values)
    except UsageError:
        # A text with a literal in it may be read in another way, and then there is no URI for it.
        assert any(unsafe(values[name]) for name in values if name not in parsed.optional_names)
        return
    assert uri.isascii()
    assert parsed.match(uri) == values


def unsafe(value: str) -> bool:
    """Whether a value may have no place in some template of ``ROUND``."""
    return value in ("", ".", "..") or any(c in "/\\." or c.isspace() or not c.isprintable() for c in value)


hostile = st.lists(
    st.sampled_from(
        ["a", "é", "/", "\\", ".", "..", "%2F", "%5c", "%2e", "%00", "%0A", "%", "%4", "?", "#", "&", "=", "b="]
    ),
    max_size=6,
).map("".join)


@given(template=st.sampled_from(ROUND), values=st.lists(hostile, min_size=3, max_size=3))
def test_no_value_escapes(template: str, values: list[str]) -> None:
    first, *literals = re.split(r"\{.*?\}", template)
    parsed = UriTemplate(template)
    found = parsed.match(first + "".join(map("".join, zip(values, literals, strict=False))))
    if found is None:
        return
    for name in set(parsed.names) - set(parsed.optional_names):
        is_rest = f"+{name}" in template or f"{name}*" in template
        for segment in found[name].split("/") if is_rest else [found[name]]:
            assert segment not in ("", ".", "..")
            assert not set(segment) & set("/\\\0\n")
    assert parsed.match(parsed.expand(**found)) == found


@given(st.text("AbC:/?#@%\0é", max_size=12))
def test_folding_changes_letters_of_scheme_and_host_only(uri: str) -> None:
    once = normalize_uri(uri)
    assert normalize_uri(once) == once
    assert once.lower() == uri.lower()
    assert len(once) == len(uri)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("HTTP://User@Example.COM:80/Path?Q#F", "http://User@example.com:80/Path?Q#F"),
        ("X://HOST", "x://host"),
        ("X://HOST?Q", "x://host?Q"),
        ("X://HOST#F", "x://host#F"),
        ("X://A@B@C", "x://A@B@c"),
        ("URN:A", "urn:A"),
        ("plain", "plain"),
        ("X://İ/A", "x://İ/A"),
    ],
)
def test_folding(uri: str, expected: str) -> None:
    assert normalize_uri(uri) == expected


def test_the_most_specific_come_first() -> None:
    order = [
        "x:a",
        "x://any/b",
        "x://a/{b}/settings",
        "x://a/{b}/{c}",
        "x://a/{d}",
        "x://a/{e}",
        "x://a/{+f}",
        "x://{g}",
    ]
    mixed = [order[place] for place in (7, 6, 4, 0, 3, 5, 2, 1)]
    found = sorted(map(UriTemplate, mixed), key=lambda template: template.rank)
    # Single URIs are alike; they only have to come before the templates.
    assert {str(template) for template in found[:2]} == set(order[:2])
    assert [str(template) for template in found[2:]] == order[2:]


HOSTILE = [
    ("x:{a}-{b}-{c}-{d}", "x:" + "-" * 100_000),
    ("x:{a}-{b}-{c}/{d}", "x:" + "-" * 100_000),
    ("x:{a}aab{b}aab{c}", "x:" + "aa" * 50_000),
    ("x:{a}/{+b}/{c}/{d}-{e}", "x:" + "a/" * 50_000),
    ("x:{+a}", "x:" + "../" * 33_000),
    ("x:{a}0{b}0{c}/", "x:" + "%20" * 33_000),
    ("x:{a}0{+b}0{c}/", "x:" + "%00" * 33_000),
    ("x:{a}", "x:" + "%" * 100_000),
    ("x:{?a,b}", "x:?" + "&" * 100_000),
    ("x:{?a,b}", "x:?" + "a=1&" * 25_000),
    ("x://{a}", "x://" + "@" * 100_000),
]


class Watched:
    """One matching, watched: the same on every machine."""

    def __init__(self, template: UriTemplate, uri: str) -> None:
        #: Lines of Python that were run.
        self.steps = 0
        #: Characters that searches for literals passed over.
        self.searched = 0
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            template.match(uri)
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, result: Any) -> Any:
        if frame.f_code.co_filename != uri_templates.__file__:
            return None
        self.steps += 1
        if event == "return" and frame.f_code.co_name.startswith("_find"):
            start, end, literal = (frame.f_locals[name] for name in ("start", "end", "literal"))
            if result < 0:
                self.searched += max(0, end - start)
            else:
                self.searched += result + len(literal) - start if frame.f_code.co_name == "_find" else end - result
        return self._trace


@pytest.mark.parametrize(("template", "uri"), HOSTILE)
def test_the_work_grows_with_the_length_of_the_uri_only(template: str, uri: str) -> None:
    parsed = UriTemplate(template)
    short, long = Watched(parsed, uri[: len(uri) // 10]), Watched(parsed, uri)
    assert long.steps <= 10 * short.steps + 200
    assert long.steps <= 10 * len(uri)
    assert long.searched <= len(uri)


def test_names_may_be_any_of_functions_arguments() -> None:
    name = "_" + string.ascii_letters + string.digits
    assert UriTemplate(f"x:{{{name}}}").match("x:1") == {name: "1"}
