"""JSON Schemas for tools, generated from the step models: the form that the common model providers accept.

No `$ref`, no alternatives, a type on every node, an object at the top, a description on every property, and no keyword
beyond those that all of them know: what a schema cannot say there, validation says. One generator serves every surface.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel

_DROPPED = ("title", "default", "exclusiveMinimum", "exclusiveMaximum")


def schema_of(model: type[BaseModel], *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The inlined JSON Schema of a model; `without` leaves properties out."""
    raw = model.model_json_schema()
    schema = _inline(raw, raw.get("$defs", {}))
    schema.pop("description", None)
    properties = {name: entry for name, entry in schema.get("properties", {}).items() if name not in without}
    required = [name for name in schema.get("required", []) if name not in without]
    result: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        result["required"] = required
    return result


def merged_arguments(shapes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The arguments of several steps as one object, by step the schema of each; `paths?` marks an optional one.

    Steps that share an argument agree about its form; where they do not about its meaning, each one's is given.
    """
    properties: dict[str, Any] = {}
    meanings: dict[str, dict[str, list[str]]] = {}
    for step, shape in shapes.items():
        for name, entry in shape["properties"].items():
            properties.setdefault(name, dict(entry))
            meanings.setdefault(name, {}).setdefault(entry["description"], []).append(step)
    for name, said in meanings.items():
        if len(said) > 1:
            properties[name]["description"] = " ".join(f"{', '.join(steps)}: {text}" for text, steps in said.items())
    taken = [f"{step}: {_signature(shape)}" for step, shape in shapes.items()]
    return {
        "type": "object",
        "description": f"The step's arguments. {'; '.join(taken)}.",
        "properties": properties,
        "additionalProperties": False,
    }


def _signature(shape: Mapping[str, Any]) -> str:
    required = shape.get("required", ())
    names = [name if name in required else f"{name}?" for name in shape["properties"]]
    return ", ".join(names) or "none"


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(entry, definitions) for entry in node]  # pyright: ignore[reportUnknownVariableType] -- JSON
    if not isinstance(node, dict):
        return node
    entries: dict[str, Any] = node  # pyright: ignore[reportUnknownVariableType] -- JSON
    if "$ref" in entries:
        target = definitions[str(entries["$ref"]).rpartition("/")[2]]
        return _inline({**target, **{key: value for key, value in entries.items() if key != "$ref"}}, definitions)
    choices = entries.get("anyOf")
    if isinstance(choices, list):
        # An optional argument is simply absent: null is not offered to models.
        real: list[Any] = [choice for choice in choices if choice != {"type": "null"}]  # pyright: ignore[reportUnknownVariableType] -- JSON
        if len(real) == 1:
            rest = {key: value for key, value in entries.items() if key != "anyOf"}
            return _inline({**real[0], **rest}, definitions)
    cleaned: dict[str, Any] = {}
    for key, value in entries.items():
        if key == "$defs" or (key in _DROPPED and not isinstance(value, dict)):
            continue
        if key == "properties":
            cleaned[key] = _inline_properties(cast("dict[str, Any]", value), definitions)
        else:
            cleaned[key] = _inline(value, definitions)
    return cleaned


def _inline_properties(properties: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Property names are not keywords: one that is called `title` stays."""
    return {name: _inline(entry, definitions) for name, entry in properties.items()}
