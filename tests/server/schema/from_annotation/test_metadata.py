"""What stands beside a type in ``Annotated``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from annotated_types import Ge, Interval, Le, MultipleOf
from typing_extensions import Doc

from mcplumb.server.schema.type_codec import schema_of


class Other:
    """Of some other library, and about something else."""

    description = "Said by an object."
    documentation = "Not used."


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Annotated[int, Interval(ge=1, lt=5)], {"minimum": 1, "exclusiveMaximum": 5}),
        (Annotated[int, Ge(1.0), Le(2)], {"minimum": 1, "maximum": 2}),
        (Annotated[int, MultipleOf(3)], {"multipleOf": 3}),
        (Annotated[int, pydantic.Field(gt=0, description="Some.", examples=[1], title="T")],
         {"exclusiveMinimum": 0, "description": "Some.", "examples": [1], "title": "T"}),
        (Annotated[int, pydantic.Field(json_schema_extra={"x-unit": "m"})], {"x-unit": "m"}),
        (Annotated[int, pydantic.Field(json_schema_extra=lambda schema: None)], {}),
        (Annotated[int, msgspec.Meta(extra_json_schema={"x-unit": "m"})], {"x-unit": "m"}),
        (Annotated[int, msgspec.Meta(title="T", examples=[1])], {"title": "T", "examples": [1]}),
        (Annotated[int, Doc("By a Doc.")], {"description": "By a Doc."}),
        (Annotated[int, Other()], {"description": "Said by an object."}),
        (Annotated[int, "One.", "Two."], {"description": "Two."}),
        (Annotated[int, object()], {}),
        (Annotated[Annotated[int, Ge(1)], "One."], {"minimum": 1, "description": "One."}),
    ],
)  # fmt: skip
def test_what_stands_beside_a_type_is_understood(kind: Any, schema: dict[str, Any]) -> None:
    assert schema_of(kind) == {"type": "integer", **schema}
