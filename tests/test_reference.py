"""REFERENCE.md is what the code says, and says something of every setting."""

from __future__ import annotations

import msgspec

from devtools_lsp.cli.outputs import OUTPUTS
from devtools_lsp.cli.reference import DOCUMENT, ENGINE_KEYS, RULE_KEYS, render_reference
from devtools_lsp.config import FileModel
from devtools_lsp.daemon.activity import Line
from devtools_lsp.engines.spec import EngineSpec
from devtools_lsp.pipeline.rule_tables import RULE_TABLE_KEYS


def test_the_page_is_fresh():
    stale = "run `python -m devtools_lsp.cli.reference`"
    assert DOCUMENT.read_text(encoding="utf-8") == render_reference(), stale


def test_every_engine_key_has_words():
    # The table's name is the id, and a preset says itself whether it is tested.
    assert set(ENGINE_KEYS) == {field.encode_name for field in msgspec.structs.fields(EngineSpec)} - {"id", "tested"}


def test_a_line_of_the_log_has_the_keys_that_the_page_names():
    fields = msgspec.structs.fields(Line)
    assert set(OUTPUTS["log"].keys) == {field.encode_name for field in fields if field.required}
    assert set(OUTPUTS["log"].optional) == {field.encode_name for field in fields if not field.required}


def test_every_rule_key_has_words():
    assert set(RULE_KEYS) == set(RULE_TABLE_KEYS)


def test_every_setting_has_words():
    for name, field in FileModel.model_fields.items():
        for key, entry in getattr(field.annotation, "model_fields", {}).items():
            assert entry.description, f"[{name}] {key}"
