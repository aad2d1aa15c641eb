"""A tool's arguments as JSON Schema that every client takes: plain types, no references, nothing nullable.

An optional argument is one that is not required; that its absence may also be written as null is our leniency and not
the schema's business. Pure functions.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

#: Keywords that some clients refuse or show to nobody.
_DROPPED = frozenset({"title", "examples", "$defs"})


class _Plain(GenerateJsonSchema):
    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        if found.get("default", 0) is None:
            found.pop("default")
        return found


def input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a tool's arguments: an object with its properties written out."""
    document = arguments.model_json_schema(schema_generator=_Plain)
    schema = _inlined(document, document.get("$defs", {}))
    assert isinstance(schema, dict)
    schema.setdefault("properties", {})
    schema["type"] = "object"
    # What the class is for in Python is no news to a client; the tool has a description of its own.
    schema.pop("description", None)
    return schema


def _inlined(value: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_inlined(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        rest = {key: item for key, item in value.items() if key != "$ref"}
        return _inlined({**definitions[value["$ref"].rpartition("/")[2]], **rest}, definitions)
    return {
        # Under `properties` the keys are names of arguments, and one may be called title.
        key: {name: _inlined(item, definitions) for name, item in entry.items()}
        if key == "properties"
        else _inlined(entry, definitions)
        for key, entry in value.items()
        if key not in _DROPPED
    }
