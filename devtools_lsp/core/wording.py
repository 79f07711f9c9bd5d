"""What is wrong with a value, as a sentence that says what to do: one table for arguments and configuration. Pure.

Takes the entries of pydantic's `ValidationError.errors()` as plain data and knows no model. Validators speak about
themselves ("Input should be a valid string"); whoever called is told what the value must be and what came instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SHOWN = 60
"""Characters of a wrong value that are repeated."""

_NUMBER = "must be a number, not {got}"
_TEXT = "must be a string, not {got}"
_TRUTH = "must be true or false, not {got}"
_WHOLE = "must be a whole number, not {got}"
_WORDS = {
    "bool_parsing": _TRUTH,
    "bool_type": _TRUTH,
    "dict_type": "must be {mapping}, not {got}",
    "finite_number": "must be a finite number, not {got}",
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "must be more than {gt}, not {got}",
    "greater_than_equal": "must be at least {ge}, not {got}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": "is too large a number: {got}",
    "int_type": _WHOLE,
    "less_than": "must be less than {lt}, not {got}",
    "less_than_equal": "must be at most {le}, not {got}",
    "list_type": "must be a list, not {got}",
    "literal_error": "must be one of {expected}, not {got}",
    "model_attributes_type": "must be {mapping}, not {got}",
    "model_type": "must be {mapping}, not {got}",
    "string_too_long": "is too long: at most {max_length} characters",
    "string_type": _TEXT,
    "string_unicode": "holds characters that are not text (half of a surrogate pair): {got}",
    "too_long": "has {actual_length} entries and may have {max_length}; leave some out",
}
"""What follows a value's name, by pydantic's type of the fault; braces hold its context, `got` and `mapping`."""


def complaint(problem: Mapping[str, Any], *, mapping: str = "an object") -> str:
    """What follows the name of a wrong value: `must be a string, not 3`.

    `mapping` is what the surroundings call a mapping: JSON an object, TOML a table.
    """
    kind = str(problem["type"])
    context: Mapping[str, Any] = problem.get("ctx") or {}
    value = problem.get("input")
    if kind == "value_error":
        return str(context.get("error") or problem["msg"])
    if kind == "string_too_short":
        least = context["min_length"]
        return "is empty; give it a value" if value == "" else f"must have at least {least} characters"
    if kind == "too_short":
        least = context["min_length"]
        return "is an empty list; give it at least one entry" if not value else f"must have at least {least} entries"
    words = _WORDS.get(kind)
    if words is None:
        # A validator that nobody has met yet: its own words, which begin like this, turned towards the caller.
        return str(problem["msg"]).replace("Input should", "must").strip()
    known: dict[str, Any] = {key: _plain(entry) for key, entry in context.items()}
    known |= {"expected": str(context.get("expected")).replace(" or ", ", "), "mapping": mapping}
    return words.format_map(known | {"got": shown(value, mapping)}) + _unquoted(kind, value)


def place(location: Sequence[int | str]) -> str:
    """Where a value stands, as its writer would spell it: `edits[0].find`. A name that is too long is cut."""
    spelled = ""
    for part in location:
        name = f"[{part}]" if isinstance(part, int) else part if len(part) <= _SHOWN else f"{part[:_SHOWN]}…"
        spelled += f".{name}" if spelled and not isinstance(part, int) else name
    return spelled


def shown(value: object, mapping: str = "an object") -> str:
    """A wrong value in a few words: itself when it is short and plain, else what kind of thing it is."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        # Python refuses to spell out numbers of thousands of digits.
        return "a number of more than 60 digits"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}… ({len(value)} characters)"
    if isinstance(value, Mapping):
        return mapping
    return "a list" if isinstance(value, Sequence) else f"a {type(value).__name__}"


def _plain(number: object) -> object:
    """A limit without the `.0` of a number that happens to be whole."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _unquoted(kind: str, value: object) -> str:
    """The usual mistake: a number or a truth value in quotes."""
    if not isinstance(value, str) or len(value) > _SHOWN:
        return ""
    plain = value.strip()
    if kind.startswith("bool") and plain.lower() in ("true", "false"):
        return f"; write {plain.lower()} without quotes"
    if kind.startswith(("int", "float")) and plain.lstrip("-").replace(".", "", 1).isdecimal():
        return f"; write {plain} without quotes"
    return ""
