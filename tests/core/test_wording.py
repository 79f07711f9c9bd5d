"""Faults of values in words: what it must be, what came, where it stands; never a validator's own words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from devtools_lsp.core.wording import complaint, place


def _raise(value: object) -> object:
    raise ValueError(f"{value} is out of fashion; take 7")


class Inner(BaseModel):
    model_config = ConfigDict(strict=True)
    word: str = "x"


class Model(BaseModel):
    model_config = ConfigDict(strict=True)
    text: str = Field(default="x", min_length=1, max_length=80)
    long: str = Field(default="xx", min_length=2)
    whole: int = Field(default=1, ge=1, lt=10)
    number: float = Field(default=1, gt=0, le=3600, strict=False)
    finite: float = Field(default=1, allow_inf_nan=False)
    truth: bool = False
    loose: bool = Field(default=False, strict=False)
    several: list[str] = Field(default=["x"], min_length=1, max_length=2)
    pair: list[int] = Field(default=[1, 2], min_length=2)
    choice: Literal["push", "pull", "off"] = "push"
    inner: Inner = Inner()
    inners: list[Inner] = []
    table: dict[str, Any] = {}
    own: Annotated[int, BeforeValidator(_raise)] = 7


def first_fault(**values: Any) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(values)
    problem: Any = caught.value.errors(include_url=False)[0]
    return place(problem["loc"]), complaint(problem)


@pytest.mark.parametrize(
    ("values", "at", "said"),
    [
        ({"text": 3}, "text", "must be a string, not 3"),
        ({"text": None}, "text", "must be a string, not null"),
        ({"text": ["a"]}, "text", "must be a string, not a list"),
        ({"text": {"a": 1}}, "text", "must be a string, not an object"),
        ({"text": ""}, "text", "is empty; give it a value"),
        ({"text": "x" * 100}, "text", "is too long: at most 80 characters"),
        ({"long": "x"}, "long", "must have at least 2 characters"),
        ({"text": "\ud800"}, "text", "holds characters that are not text (half of a surrogate pair): '\\ud800'"),
        ({"whole": "12"}, "whole", "must be a whole number, not '12'; write 12 without quotes"),
        ({"whole": "many"}, "whole", "must be a whole number, not 'many'"),
        ({"whole": 1.5}, "whole", "must be a whole number, not 1.5"),
        ({"whole": True}, "whole", "must be a whole number, not true"),
        ({"whole": 0}, "whole", "must be at least 1, not 0"),
        ({"whole": 10}, "whole", "must be less than 10, not 10"),
        ({"number": "soon"}, "number", "must be a number, not 'soon'"),
        ({"number": []}, "number", "must be a number, not a list"),
        ({"number": 0}, "number", "must be more than 0, not 0"),
        ({"number": 4000}, "number", "must be at most 3600, not 4000"),
        ({"finite": float("inf")}, "finite", "must be a finite number, not inf"),
        ({"truth": "true"}, "truth", "must be true or false, not 'true'; write true without quotes"),
        ({"truth": 1}, "truth", "must be true or false, not 1"),
        ({"loose": "perhaps"}, "loose", "must be true or false, not 'perhaps'"),
        ({"several": "a.py"}, "several", "must be a list, not 'a.py'"),
        ({"several": []}, "several", "is an empty list; give it at least one entry"),
        ({"several": ["a", "b", "c"]}, "several", "has 3 entries and may have 2; leave some out"),
        ({"several": ["a", 2]}, "several[1]", "must be a string, not 2"),
        ({"pair": [1]}, "pair", "must have at least 2 entries"),
        ({"choice": "pul"}, "choice", "must be one of 'push', 'pull', 'off', not 'pul'"),
        ({"inner": 3}, "inner", "must be an object, not 3"),
        ({"inners": [{}, {"word": 3}]}, "inners[1].word", "must be a string, not 3"),
        ({"table": "x"}, "table", "must be an object, not 'x'"),
        ({"own": 3}, "own", "3 is out of fashion; take 7"),
    ],
)
def test_a_fault_in_words(values: dict[str, Any], at: str, said: str):
    assert first_fault(**values) == (at, said)


def test_a_long_value_is_not_repeated_whole():
    _, said = first_fault(whole="9" * 5000)
    assert len(said) < 200
    assert "5000 characters" in said
    assert first_fault(whole=10**5000)[1] == "must be less than 10, not a number of more than 60 digits"


def test_a_fault_that_nobody_has_met_yet_speaks_to_the_caller():
    problem = {"type": "url_parsing", "loc": ("x",), "msg": "Input should be a valid URL", "input": "x"}
    assert complaint(problem) == "must be a valid URL"


def test_toml_calls_a_mapping_a_table():
    problem = {"type": "dict_type", "loc": ("engines", "ruff"), "msg": "", "input": "ruff"}
    assert complaint(problem, mapping="a table") == "must be a table, not 'ruff'"
