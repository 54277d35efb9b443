from __future__ import annotations

from typing import Any

import pytest

from mcplumb.client.validation_cost import ENDLESS, Cost, SchemaRefused, size_of

MOST = 10**9


def steps(schema: dict[str, Any], value: Any) -> int:
    return Cost(schema).of(value, MOST)


def chain(count: int, link: Any, last: Any = True) -> dict[str, Any]:
    """A schema of so many definitions, each made of a reference to the next one."""
    definitions = {f"d{i}": link({"$ref": f"#/$defs/d{i + 1}"}) for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": last}}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# Values


def test_each_value_that_is_looked_at_counts() -> None:
    schema = {"items": {"type": "integer"}}
    one, two, many = (steps(schema, [1] * count) for count in (1, 2, 1002))
    assert many - two == 1000 * (two - one) > 0


@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"not": {"required": ["a"]}}])
def test_what_a_schema_does_not_look_at_costs_nothing(schema: dict[str, Any]) -> None:
    assert steps(schema, [[[1] * 1000] * 1000] * 1000) < 100


def test_counting_stops_where_it_is_enough() -> None:
    cost = Cost({"items": {"items": {"type": "integer"}}})
    assert 100 < cost.of([[1] * 10**6] * 1000, most=100) < 10**5


def test_the_dearest_of_the_members_and_items_counts() -> None:
    cheap, dear = {"type": "integer"}, {"multipleOf": 0.1}
    for kind, value in (("properties", {"a": 1.5}), ("patternProperties", {"a": 1.5})):
        assert steps({kind: {"a": cheap, "b": dear}}, value) > steps({kind: {"a": cheap, "b": cheap}}, value) + 500
    assert steps({"items": cheap, "prefixItems": [dear]}, [1]) > steps({"items": cheap}, [1]) + 500
    # An array has no members, and an object no items.
    both = {"items": dear, "additionalProperties": dear}
    assert steps(both, [1]) < steps({"items": dear}, [1]) + 10


@pytest.mark.parametrize(
    "keyword", ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"]
)
def test_schemas_for_the_same_value_add_up(keyword: str) -> None:
    dear = {"multipleOf": 0.1}
    many = keyword.endswith("Of")
    inner: Any = [dear, dear] if many else {"a": dear, "b": dear} if keyword.startswith("dep") else dear
    assert steps({keyword: inner}, 1) > 700 * (1 if isinstance(inner, dict) and inner is dear else 2)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("additionalProperties", {"a": 1}),
        ("unevaluatedProperties", {"a": 1}),
        ("propertyNames", {"a": 1}),
        ("items", [1]),
        ("additionalItems", [1]),
        ("contains", [1]),
        ("unevaluatedItems", [1]),
    ],
)
def test_schemas_for_what_is_within_count(keyword: str, value: Any) -> None:
    assert steps({keyword: {"enum": [1] * 100}}, value) > steps({keyword: True}, value) + 1000


def test_items_may_be_a_list_of_schemas() -> None:
    assert steps({"items": [{"multipleOf": 0.1}, True]}, [1]) > 500


@pytest.mark.parametrize(
    ("dear", "cheap", "value"),
    [
        ({"enum": [[1, 2], {"a": 1}]}, {"enum": ["a", "b", None]}, 1),
        ({"const": list(range(100))}, {"const": 1}, 1),
        ({"minimum": 0.5}, {"minimum": 0}, 1),
        ({"maximum": 2**60}, {"maximum": 2**53}, 1),
        ({"multipleOf": 0.5}, {"multipleOf": 2}, 1),
        ({"required": ["a"] * 100}, {"required": ["a"]}, {}),
        ({"dependentRequired": {"a": ["b"] * 100}}, {"dependentRequired": {"a": ["b"]}}, {}),
        ({"pattern": "abcdef"}, {"pattern": "a"}, "x" * 100),
        ({"pattern": "[a-z]{50}"}, {"pattern": "[a-z]+"}, "x" * 100),
        ({"pattern": "(abc){1,50}"}, {"pattern": "(abc)"}, "x" * 100),
        ({"pattern": "a{5}{5}"}, {"pattern": "a{5}"}, "x" * 100),
        ({"pattern": "a{ 50 }"}, {"pattern": "a{5}"}, "x" * 100),
        ({"pattern": "a{99999999999}"}, {"pattern": "a{5,}"}, "x"),
        ({"pattern": "a"}, {"maxLength": 1}, "x" * 100),
        ({"contentMediaType": "application/json"}, {"title": "a"}, "x" * 100),
        ({"patternProperties": {"abcdef": True}}, {"patternProperties": {"a": True}}, {"x" * 100: 1}),
        ({"patternProperties": {"a": True}}, {"maxProperties": 1}, {"x" * 100: 1}),
        ({"uniqueItems": True}, {"uniqueItems": False}, [[[1] * 100]]),
        ({"uniqueItems": True}, {"uniqueItems": False}, ["x" * 100]),
        ({"additionalProperties": False}, {"minProperties": 1}, dict.fromkeys("abcdefgh", 1)),
    ],
)
def test_some_keywords_cost_more_than_others(dear: dict[str, Any], cheap: dict[str, Any], value: Any) -> None:
    assert steps(dear, value) > steps(cheap, value)


@pytest.mark.parametrize("number", [2**63, -(2**64), 10**4000, 1e31, -1e300, 1e-300])
def test_numbers_that_are_compared_digit_by_digit_are_not_looked_at(number: float) -> None:
    cost = Cost({"items": {"type": "number"}})
    assert cost.of([1, number], MOST) == ENDLESS
    assert cost.of([2**63 - 1, -(2**62), 1.5, 0.0, 1e29, 1e-29, True], MOST) < 1000


def test_the_size_of_a_value() -> None:
    assert size_of(1) == 1
    assert size_of({"a": [1, {"b": None}], "c": "text"}) == 6
    assert 100 < size_of([[1] * 1000] * 1000, most=100) <= 1001


# Schemas


def test_a_tree_costs_as_much_as_its_nodes() -> None:
    node = {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"items": {"$ref": "#"}}}}
    flat = {"v": 1, "kids": [{"v": 1, "kids": []} for _ in range(30)]}
    deep: dict[str, Any] = {"v": 1, "kids": []}
    for _ in range(30):
        deep = {"v": 1, "kids": [deep]}
    assert steps(node, deep) == steps(node, flat) < 3000


def test_json_in_json_costs_as_much_as_its_values() -> None:
    schema = {
        "anyOf": [
            {"type": ["string", "number", "boolean", "null"]},
            {"type": "array", "items": {"$ref": "#"}},
            {"type": "object", "additionalProperties": {"$ref": "#"}},
        ]
    }
    assert steps(schema, nested(60)) < 61 * 50


def test_choices_within_choices_multiply() -> None:
    doubled = chain(40, lambda next_one: {"anyOf": [next_one, next_one]}, {"type": "integer"})
    assert Cost(doubled).has_choices
    assert steps(doubled, 1) >= ENDLESS
    again = {"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}, "minItems": 1}]}
    assert steps(again, nested(30)) > 2**30
    assert steps(again, nested(3)) < 1000
    assert steps(again, nested(300)) > MOST


def test_a_schema_without_choices_says_so() -> None:
    assert not Cost({"allOf": [{"type": "object"}]}).has_choices
    assert Cost({"items": {"oneOf": [{}]}}).has_choices


def test_what_is_not_evaluated_is_looked_at_again() -> None:
    inner = {"allOf": [{"allOf": [{"properties": {"a": {"type": "integer"}}}]}]}
    once, twice = steps(inner, {"a": 1}), steps({**inner, "unevaluatedProperties": False}, {"a": 1})
    assert twice > 3 * once
    wide = {"allOf": [{} for _ in range(100)], "unevaluatedItems": False}
    assert steps(wide, [1] * 100) > 100 * 100


@pytest.mark.parametrize("keyword", ["unevaluatedProperties", "unevaluatedItems"])
def test_what_is_not_evaluated_is_not_looked_for_in_too_many_schemas(keyword: str) -> None:
    doubled = chain(12, lambda next_one: {"allOf": [next_one, next_one]})
    Cost(doubled)
    with pytest.raises(SchemaRefused, match="look through too many schemas"):
        Cost({**doubled, keyword: False})


def test_values_and_schemas_within_each_other_are_bounded() -> None:
    again = chain(10, lambda next_one: next_one, {"items": {"$ref": "#"}})
    assert steps(again, nested(50)) < 10**6
    assert steps(again, nested(400)) == ENDLESS


def test_many_schemas_are_not_followed_into_the_depth() -> None:
    definitions = {f"d{i}": {"items": {"$ref": f"#/$defs/d{(i + 1) % 400}"}, "required": ["a"] * i} for i in range(400)}
    cost = Cost({"$ref": "#/$defs/d0", "$defs": definitions})
    assert cost.of(nested(5), MOST) < 1000
    assert cost.of(nested(100), MOST) > MOST


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#/$defs/a", {"$defs": {"a": {"multipleOf": 0.1}}}),
        ("#/$defs/a~1b~0c", {"$defs": {"a/b~c": {"multipleOf": 0.1}}}),
        ("#/$defs/a%20b", {"$defs": {"a b": {"multipleOf": 0.1}}}),
        ("#/other/1", {"other": [{}, {"multipleOf": 0.1}]}),
    ],
)
def test_references_within_the_schema_are_followed(reference: str, target: dict[str, Any]) -> None:
    assert steps({**target, "properties": {"a": {"$ref": reference}}}, {"a": 1}) > 500


def test_references_may_lead_to_a_boolean_or_to_what_holds_them() -> None:
    assert steps({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": True}}, {"a": 1}) < 100
    assert steps({"properties": {"a": {"$ref": "#"}}}, {"a": {"a": {}}}) < 100


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "http://example.com/schema"}, "only references like"),
        ({"$ref": "other.json#/a"}, "only references like"),
        ({"$ref": "#name"}, "only references like"),
        ({"$ref": 5}, "refers to 5, and only"),
        ({"$ref": "#/$defs/none"}, "where there is nothing"),
        ({"$ref": "#/allOf/7", "allOf": [{}]}, "where there is nothing"),
        ({"$ref": "#/allOf/" + "9" * 5000, "allOf": [{}]}, "where there is nothing"),
        ({"$ref": "#/allOf/x", "allOf": [{}]}, "where there is nothing"),
        ({"$ref": "#/title", "title": "a"}, "which is no schema"),
        ({"$ref": "#"}, "refers to itself without an end"),
        ({"anyOf": [{"not": {"$ref": "#"}}]}, "refers to itself without an end"),
        ({"items": {"$dynamicRef": "#node"}}, r"uses \$dynamicRef"),
        ({"items": {"$recursiveRef": "#"}}, r"uses \$recursiveRef"),
        ({"items": {"$id": "http://example.com/"}}, r"has an \$id of its own"),
        ({"items": {"id": "http://example.com/"}}, r"has an \$id of its own"),
        ({"multipleOf": 1e-300}, "multiples of 1e-300"),
        ({"multipleOf": 10**4000}, "multiples of 1000"),
        ({"pattern": "(?x)a # [\n{1000}]"}, "pattern with flags"),
        ({"allOf": [{} for _ in range(1000)]}, "more than 1000 subschemas"),
        ({"allOf": [{"pattern": str(i)} for i in range(33)]}, "more than 32 patterns"),
        ({"patternProperties": {str(i): True for i in range(33)}}, "more than 32 patterns"),
    ],
)
def test_what_cannot_be_followed_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaRefused, match=reason) as refused:
        Cost(schema)
    assert len(str(refused.value)) < 250


def test_an_id_at_the_top_and_one_that_is_a_name_are_fine() -> None:
    Cost({"$id": "http://example.com/", "properties": {"$id": {"type": "string"}, "id": {"type": "string"}}})


@pytest.mark.parametrize("keyword", ["items", "allOf", "properties", "pattern", "patternProperties", "enum", "const"])
@pytest.mark.parametrize("value", [5, "a", None, [1], [], {"a": 1}, {}, True])
def test_what_is_no_schema_is_left_to_the_validator(keyword: str, value: Any) -> None:
    assert steps({keyword: value}, {"a": [1]}) > 0
