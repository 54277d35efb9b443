from __future__ import annotations

import base64
import dataclasses
import re
from typing import Any

import msgspec
import pytest

from mcplumb import types as t
from mcplumb.errors import EncodeError, NotInRevision
from mcplumb.revisions import LATEST, REVISIONS, Revision
from mcplumb.types.revision_adapter import ADAPTERS

_2026_07_28, _2025_11_25, _2025_06_18, _2025_03_26, _2024_11_05 = REVISIONS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NOTED = t.Annotations(audience=["user"])


def test_each_function_is_for_something_that_some_revision_lacks() -> None:
    assert all(issubclass(getattr(t, kind), t.Payload) for kind in ADAPTERS)
    for flags, _ in ADAPTERS.values():
        for flag in flags or ():
            assert any(not getattr(revision, flag) for revision in REVISIONS)


def test_types_of_a_program_may_have_the_same_names() -> None:
    class Tool(t.Payload, frozen=True):
        title: str | None = None

    mine = Tool("mine")
    assert t.for_revision(mine, _2024_11_05) is mine


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_sound_becomes_a_note_of_its_size(size: int) -> None:
    block = t.AudioContent(base64.b64encode(b"x" * size).decode(), "audio/wav", annotations=NOTED, meta={"a": 1})
    result = t.for_revision(t.CallToolResult([block]), _2024_11_05)
    assert result.content == [t.TextContent(f"[audio: audio/wav, {size} bytes]", annotations=NOTED)]
    assert t.for_revision(t.CallToolResult([block]), _2025_06_18).content == [block]


@pytest.mark.req("LEG-5")
def test_link_becomes_a_text_with_its_address() -> None:
    block = t.ResourceLink("file:///a", "A file", annotations=NOTED)
    for revision in (_2025_03_26, _2024_11_05):
        result = t.for_revision(t.CallToolResult([block]), revision)
        assert result.content == [t.TextContent("A file: file:///a", annotations=NOTED)]
    assert t.for_revision(t.CallToolResult([block]), _2025_06_18).content == [block]


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_unknown_block_becomes_a_note(revision: Revision) -> None:
    message = t.PromptMessage("user", t.UnknownContent("video", {"type": "video"}))
    assert t.for_revision(message, revision).content == t.TextContent("[content of the unknown type 'video']")


def test_what_a_block_becomes_is_written_for_the_revision_too() -> None:
    block = t.AudioContent("", "audio/wav", annotations=t.Annotations(last_modified="2025-01-01", priority=1))
    result = t.for_revision(t.CallToolResult([block]), _2024_11_05)
    assert result.content[0] == t.TextContent("[audio: audio/wav, 0 bytes]", annotations=t.Annotations(priority=1))


class TestTool:
    def test_a_plain_one_is_the_same_everywhere(self) -> None:
        tool = t.Tool("f", {"type": "object", "properties": {"a": {}}})
        assert all(t.for_revision(tool, revision) is tool for revision in REVISIONS)

    def test_dialect(self) -> None:
        tool = t.Tool("f", {"$schema": DIALECT, "type": "object"}, output_schema={"$schema": DIALECT, "type": "object"})
        assert t.for_revision(tool, _2025_11_25) is tool
        plain = t.Tool("f", {"type": "object"}, output_schema={"type": "object"})
        assert t.for_revision(tool, _2025_06_18) == plain
        assert "$schema" in tool.input_schema

    def test_properties_that_are_booleans(self) -> None:
        tool = t.Tool("f", {"type": "object", "properties": {"any": True, "none": False, "a": {"type": "string"}}})
        assert t.for_revision(tool, LATEST) is tool
        assert t.for_revision(tool, _2025_11_25).input_schema == {
            "type": "object",
            "properties": {"any": {}, "none": {"not": {}}, "a": {"type": "string"}},
        }

    @pytest.mark.parametrize(
        "schema",
        [
            {},
            {"type": ["object", "null"]},
            {"anyOf": [{"type": "array"}, {"type": "object"}]},
            {"oneOf": [{"type": "array"}, True]},
            {"$ref": "#/$defs/Any", "$defs": {"Any": {"description": "anything"}}},
            {"$ref": "#/$defs/Loop", "$defs": {"Loop": {"$ref": "#/$defs/Loop"}}},
            {"$ref": "#/$defs/Missing"},
            {"enum": [1, {}]},
            {"const": {}},
        ],
    )
    def test_output_that_may_be_an_object_or_not(self, schema: dict[str, Any]) -> None:
        tool = t.Tool("f", {"type": "object"}, output_schema=schema)
        assert t.for_revision(tool, LATEST) is tool
        assert t.for_revision(tool, _2025_11_25) == t.Tool("f", {"type": "object"})

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "array"},
            {"type": ["integer", "null"]},
            {"anyOf": [{"type": "array"}, {"type": "string"}]},
            {"enum": [1, "two"]},
            {"const": None},
        ],
    )
    def test_output_that_is_no_object_is_wrapped(self, schema: dict[str, Any]) -> None:
        tool = t.Tool("f", {"type": "object"}, output_schema=schema)
        assert t.for_revision(tool, LATEST) is tool
        for revision in (_2025_06_18, _2025_11_25):
            assert t.for_revision(tool, revision).output_schema == {
                "type": "object",
                "properties": {"result": schema},
                "required": ["result"],
                "x-fastmcp-wrap-result": True,
            }
        assert t.for_revision(tool, _2025_03_26).output_schema is None

    def test_references_in_an_output_that_is_wrapped_keep_their_targets(self) -> None:
        schema = {
            "$schema": DIALECT,
            "$ref": "#/$defs/Trees",
            "$defs": {"Trees": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}, "Tree": {"$ref": "#"}},
            "allOf": [{"$ref": "#/allOf/1"}, {"$ref": "other"}],
        }
        tool = t.Tool("f", {"type": "object"}, output_schema=schema)
        assert t.for_revision(tool, _2025_11_25).output_schema == {
            "$schema": DIALECT,
            "$defs": {
                "Trees": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
                "Tree": {"$ref": "#/properties/result"},
            },
            "type": "object",
            "properties": {
                "result": {
                    "$ref": "#/$defs/Trees",
                    "allOf": [{"$ref": "#/properties/result/allOf/1"}, {"$ref": "other"}],
                }
            },
            "required": ["result"],
            "x-fastmcp-wrap-result": True,
        }

    def test_output_that_is_an_object(self) -> None:
        tool = t.Tool("f", {"type": "object"}, output_schema={"type": "object"})
        assert t.for_revision(tool, _2025_06_18) is tool
        assert t.for_revision(tool, _2025_03_26).output_schema is None

    def test_each_flag_is_asked_by_itself(self) -> None:
        schema = {"type": "object", "$schema": DIALECT, "properties": {"a": True}}
        tool = t.Tool("f", schema, output_schema={"type": "array"})
        no_dialects = msgspec.structs.replace(LATEST, name="no dialects", has_schema_dialects=False)
        assert t.for_revision(tool, no_dialects) == t.Tool(
            "f", {"type": "object", "properties": {"a": True}}, output_schema={"type": "array"}
        )
        objects_only = msgspec.structs.replace(LATEST, name="objects only", has_any_structured_content=False)
        wrapped = t.for_revision(tool, objects_only)
        assert wrapped.input_schema == schema
        assert wrapped.output_schema is not None
        assert wrapped.output_schema["properties"] == {"result": {"type": "array"}}

    def test_title_moves_to_where_the_revision_has_one(self) -> None:
        tool = t.Tool("f", {"type": "object"}, title="F")
        assert t.for_revision(tool, _2025_06_18) is tool
        assert t.for_revision(tool, _2025_03_26) == t.Tool(
            "f", {"type": "object"}, annotations=t.ToolAnnotations(title="F")
        )
        assert t.for_revision(tool, _2024_11_05) == t.Tool("f", {"type": "object"})

    def test_title_that_is_there_already_stays(self) -> None:
        hints = t.ToolAnnotations(title="Other", read_only_hint=True)
        tool = t.Tool("f", {"type": "object"}, title="F", annotations=hints)
        assert t.for_revision(tool, _2025_03_26).annotations == hints


class TestStructuredContent:
    TEXT = t.TextContent("text")

    @pytest.mark.parametrize("value", [{"a": 1}, msgspec.Raw(b' {"a":1}'), t.Icon("a:b")])
    def test_an_object_is_sent_since_there_is_structured_content(self, value: Any) -> None:
        result = t.CallToolResult([self.TEXT], structured_content=value)
        assert t.for_revision(result, _2025_11_25) is result
        assert t.for_revision(result, _2025_06_18) is result
        assert t.for_revision(result, _2025_03_26) == t.CallToolResult([self.TEXT])

    @pytest.mark.parametrize("value", [[1], 0, "x", False, t.NULL, msgspec.Raw(b"[]")])
    def test_another_value_is_sent_since_it_may_be_anything(self, value: Any) -> None:
        result = t.CallToolResult([self.TEXT], structured_content=value, result_type="complete")
        assert t.for_revision(result, LATEST) is result
        for revision in (_2025_06_18, _2025_11_25):
            written = t.for_revision(result, revision)
            assert written.content == [self.TEXT]
            wrapped = msgspec.json.decode(msgspec.json.encode(written.structured_content))
            assert wrapped == {"result": msgspec.json.decode(msgspec.json.encode(value))}
        assert t.for_revision(result, _2025_03_26) == t.CallToolResult([self.TEXT])

    def test_it_becomes_text_if_there_is_none(self) -> None:
        assert t.for_revision(t.CallToolResult([], structured_content=[1]), _2025_03_26) == t.CallToolResult(
            [t.TextContent("[1]")]
        )
        assert t.for_revision(t.CallToolResult([], structured_content={"a": 1}), _2024_11_05) == t.CallToolResult(
            [t.TextContent('{"a":1}')]
        )
        nothing = t.CallToolResult([])
        assert t.for_revision(nothing, _2024_11_05) is nothing

    @pytest.mark.parametrize("value", [object(), "\ud800"])
    def test_what_is_no_json_is_refused(self, value: object) -> None:
        with pytest.raises(
            EncodeError, match=r"^The structured content of a tool's result cannot be written as JSON: "
        ):
            t.for_revision(t.CallToolResult([], structured_content=value), _2024_11_05)

    def test_within_a_message(self) -> None:
        for value, expected in (({"a": 1}, {"a": 1}), ([1], None), (None, None)):
            block = t.ToolResultContent("1", [], structured_content=value)
            message = t.SamplingMessage("user", block)
            assert t.for_revision(message, LATEST) is message
            assert t.for_revision(message, _2025_11_25).blocks == [
                t.ToolResultContent("1", [], structured_content=expected)
            ]


class TestSampling:
    HI = t.TextContent("hi")

    def test_one_block_in_a_list_becomes_the_block(self) -> None:
        message = t.SamplingMessage("user", [self.HI], meta={"a": 1})
        assert t.for_revision(message, _2025_11_25) is message
        assert t.for_revision(message, _2025_06_18) == t.SamplingMessage("user", self.HI)
        plain = t.SamplingMessage("user", self.HI)
        assert t.for_revision(plain, _2025_06_18) is plain

    @pytest.mark.req("LEG-5")
    @pytest.mark.parametrize("count", [0, 2])
    def test_another_number_of_blocks_cannot_be_said(self, count: int) -> None:
        result = t.CreateMessageResult("assistant", [self.HI] * count, model="m")
        assert t.for_revision(result, _2025_11_25) is result
        with pytest.raises(
            NotInRevision,
            match="^Protocol revision 2025-06-18 has exactly one content block in a sampling message; "
            rf"this one has {count}\.$",
        ):
            t.for_revision(result, _2025_06_18)

    @pytest.mark.req("LEG-5")
    def test_tool_content_cannot_be_said(self) -> None:
        blocks: list[t.SamplingContent] = [t.ToolUseContent("1", "f", {}), t.ToolResultContent("1", [])]
        for block in blocks:
            params = t.CreateMessageParams(messages=[t.SamplingMessage("user", block)], max_tokens=1)
            assert t.for_revision(params, _2025_11_25) is params
            with pytest.raises(NotInRevision, match=r"^Protocol revision 2025-06-18 has no tool .* in sampling mess"):
                t.for_revision(params, _2025_06_18)

    def test_tools_are_left_out(self) -> None:
        params = t.CreateMessageParams(
            messages=[], max_tokens=1, tools=[t.Tool("f", {"type": "object"})], tool_choice=t.ToolChoice("auto")
        )
        assert t.for_revision(params, _2025_06_18) == t.CreateMessageParams(messages=[], max_tokens=1)


class TestCapabilities:
    @pytest.mark.parametrize(
        ("capability", "older"),
        [
            (None, None),
            (t.ElicitationCapability(), t.ElicitationCapability()),
            (t.ElicitationCapability(form={}, url={}), t.ElicitationCapability()),
            (t.ElicitationCapability(url={}), None),
        ],
    )
    def test_elicitation_promises_forms_only_if_there_are_some(
        self, capability: t.ElicitationCapability | None, older: t.ElicitationCapability | None
    ) -> None:
        capabilities = t.ClientCapabilities(elicitation=capability)
        assert t.for_revision(capabilities, LATEST) is capabilities
        assert t.for_revision(capabilities, _2025_06_18) == t.ClientCapabilities(elicitation=older)
        assert t.for_revision(capabilities, _2025_03_26) == t.ClientCapabilities()

    def test_sampling_and_roots(self) -> None:
        capabilities = t.ClientCapabilities(
            sampling=t.SamplingCapability(tools={}, context={}), roots=t.RootsCapability(list_changed=True)
        )
        assert t.for_revision(capabilities, _2025_11_25) is capabilities
        assert t.for_revision(capabilities, _2025_06_18).sampling == t.SamplingCapability()
        assert t.for_revision(capabilities, LATEST).roots == t.RootsCapability()


class TestForms:
    def test_choices_with_titles_become_names(self) -> None:
        form = t.FormSchema(
            {
                "colour": t.StringSchema(one_of=[t.Choice("r", "Red"), t.Choice("g", "Green")], default="r"),
                "name": t.StringSchema(default="x", max_length=3),
                "agree": t.BooleanSchema(default=True),
            },
            required=["name"],
            schema=DIALECT,
        )
        params = t.ElicitParams.for_form("m", form)
        assert t.for_revision(params, _2025_11_25) is params
        assert t.for_revision(params, LATEST) is params
        older = t.for_revision(params, _2025_06_18)
        assert older.mode is None
        assert older.read_form() == t.FormSchema(
            {
                "colour": t.StringSchema(enum=["r", "g"], enum_names=["Red", "Green"]),
                "name": t.StringSchema(max_length=3),
                "agree": t.BooleanSchema(default=True),
            },
            required=["name"],
        )

    def test_a_plain_form_is_the_same_everywhere(self) -> None:
        params = t.ElicitParams("m", requested_schema={"type": "object", "properties": {"a": {"type": "string"}}})
        for revision in (LATEST, _2025_11_25, _2025_06_18):
            assert t.for_revision(params, revision) is params

    def test_each_flag_is_asked_by_itself(self) -> None:
        form = t.FormSchema({"a": t.StringSchema(one_of=[t.Choice("r", "Red")], default="r")}, schema=DIALECT)
        params = t.ElicitParams.for_form("m", form)
        no_defaults = msgspec.structs.replace(LATEST, name="no defaults", has_form_defaults=False)
        assert t.for_revision(params, no_defaults).read_form() == t.FormSchema(
            {"a": t.StringSchema(one_of=[t.Choice("r", "Red")])}, schema=DIALECT
        )
        no_choices = msgspec.structs.replace(LATEST, name="no choices", has_form_choices=False)
        assert t.for_revision(params, no_choices).read_form() == t.FormSchema(
            {"a": t.StringSchema(enum=["r"], enum_names=["Red"], default="r")}, schema=DIALECT
        )

    @pytest.mark.parametrize(
        "form",
        [
            {},
            {"type": "object"},
            {"properties": []},
            {"properties": {"a": True}},
            {"properties": {"a": {"oneOf": [{"type": "string"}]}}},
            {"properties": {"a": {"oneOf": 7}}},
        ],
    )
    def test_what_is_no_form_is_left_as_it_is(self, form: dict[str, Any]) -> None:
        params = t.ElicitParams("m", requested_schema=form)
        assert t.for_revision(params, _2025_06_18) is params

    def test_a_choice_without_a_title_is_its_own(self) -> None:
        params = t.ElicitParams("m", requested_schema={"properties": {"a": {"oneOf": [{"const": "x"}]}}})
        assert t.for_revision(params, _2025_06_18).requested_schema == {
            "properties": {"a": {"enum": ["x"], "enumNames": ["x"]}}
        }

    def test_a_new_mode_is_not_looked_into(self) -> None:
        params = t.ElicitParams("m", mode="voice")
        assert t.for_revision(params, LATEST) is params

    @pytest.mark.req("LEG-5")
    def test_choice_of_several_cannot_be_said(self) -> None:
        form = t.FormSchema({"tags": t.MultiSelectSchema(items=t.ChoiceItems(any_of=[t.Choice("a", "A")]))})
        params = t.ElicitParams.for_form("m", form)
        assert t.for_revision(params, _2025_11_25) is params
        sentence = (
            "Protocol revision 2025-06-18 has no choice of several values in forms, which the field 'tags' asks for."
        )
        with pytest.raises(NotInRevision, match=re.escape(sentence)):
            t.for_revision(params, _2025_06_18)
        answer = t.ElicitResult("accept", {"name": "x", "tags": ["a"]})
        assert t.for_revision(answer, _2025_11_25) is answer
        with pytest.raises(NotInRevision, match=r"^Protocol revision 2025-06-18 has no choice of several .* 'tags'"):
            t.for_revision(answer, _2025_06_18)
        for content in (None, {"name": "x"}):
            answer = t.ElicitResult("accept", content)
            assert t.for_revision(answer, _2025_06_18) is answer


class TestPages:
    @pytest.mark.req("LEG-5")
    def test_id(self) -> None:
        with_id = t.ElicitParams.for_url("m", "a:b", "1")
        without = t.ElicitParams.for_url("m", "a:b")
        assert t.for_revision(with_id, _2025_11_25) is with_id
        assert t.for_revision(with_id, LATEST) == without
        assert t.for_revision(without, LATEST) is without
        with pytest.raises(NotInRevision, match=r"^Protocol revision 2025-11-25 has no .* without an id\. Give it"):
            t.for_revision(without, _2025_11_25)

    @pytest.mark.req("LEG-5")
    def test_not_before_they_existed(self) -> None:
        params = t.ElicitParams.for_url("m", "a:b", "1")
        with pytest.raises(NotInRevision, match=r"^Protocol revision 2025-06-18 has no elicitation in url mode\.$"):
            t.for_revision(params, _2025_06_18)


def test_cancellation_without_an_id() -> None:
    params = t.CancelledParams(reason="r")
    assert t.for_revision(params, _2025_11_25) is params
    for revision in (LATEST, _2025_06_18, _2025_03_26, _2024_11_05):
        with pytest.raises(NotInRevision, match=f"^Protocol revision {revision} has no cancellation without a request"):
            t.for_revision(params, revision)
        named = t.CancelledParams(1, "r")
        assert t.for_revision(named, revision) is named


@pytest.mark.req("LEG-5")
def test_an_unknown_mode_of_elicitation_does_not_become_a_form() -> None:
    for schema in (None, {"type": "object", "properties": {}}):
        asked = t.ElicitParams("m", mode="other", requested_schema=schema)
        with pytest.raises(NotInRevision, match="has no modes of elicitation, such as 'other'"):
            t.for_revision(asked, _2025_06_18)
        assert t.for_revision(asked, _2025_11_25).mode == "other"


class _Pair(msgspec.Struct, array_like=True):
    one: int


@dataclasses.dataclass
class _Point:
    x: int


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize(
    ("structured", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        (msgspec.Raw(b' {"a":1}'), {"a": 1}),
        (_Point(1), {"x": 1}),
        (_Pair(1), {"result": [1]}),
        ([1], {"result": [1]}),
        (5, {"result": 5}),
    ],
)
def test_only_objects_are_structured_content_before_the_modern_revision(structured: Any, expected: Any) -> None:
    result = t.CallToolResult([t.TextContent("text")], structured_content=structured)
    written = t.for_revision(result, _2025_11_25)
    assert msgspec.json.decode(msgspec.json.encode(written.structured_content)) == expected


def test_structured_content_that_cannot_be_written() -> None:
    with pytest.raises(EncodeError, match="structured content"):
        t.for_revision(t.CallToolResult([t.TextContent("a")], structured_content=object()), _2025_11_25)
