"""What is a message, and which params each method takes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from devtools_lsp.errors import DevToolsError, StepFailedError
from devtools_lsp.wire import messages
from devtools_lsp.wire.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ArtifactParams,
    CallParams,
    DecideParams,
    InitializeParams,
    InvalidParamsError,
    NoParams,
    OpsParams,
    RpcError,
    UnusableMessageError,
    decode_incoming,
    decode_params,
    encode,
    error_object,
)

UNUSABLE = [
    (b"", PARSE_ERROR, None, "not JSON"),
    (b"{", PARSE_ERROR, None, "not JSON"),
    (b'{"jsonrpc":"2.0","id":1,"method":"m"}x', PARSE_ERROR, None, "trailing"),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE_ERROR, None, "UTF-8"),
    (b'{"id":' + b"[" * 200_000, PARSE_ERROR, None, "nested too deeply"),
    (b'{"jsonrpc":"2.0","id":6,"method":"m","params":["\\ud800"]}', PARSE_ERROR, 6, "surrogate"),
    (b'{"jsonrpc":"2.0","id":"\\ud800","method":"m"}', PARSE_ERROR, None, "not JSON"),
    (b'{"jsonrpc":"2.0","id":6,"method":"\\ud800', PARSE_ERROR, None, "not JSON"),
    (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', INVALID_REQUEST, None, "batches"),
    (b"5", INVALID_REQUEST, None, "not a JSON-RPC"),
    (b"null", INVALID_REQUEST, None, "not a JSON-RPC"),
    (b'{"id":4,"method":"m"}', INVALID_REQUEST, 4, "jsonrpc"),
    (b'{"jsonrpc":"1.0","id":4,"method":"m"}', INVALID_REQUEST, 4, "1.0"),
    (b'{"jsonrpc":"2.0","id":null,"method":"m"}', INVALID_REQUEST, None, "not null"),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', INVALID_REQUEST, None, "float"),
    (b'{"jsonrpc":"2.0","id":true,"method":"m"}', INVALID_REQUEST, None, "bool"),
    (b'{"jsonrpc":"2.0","id":{},"method":"m"}', INVALID_REQUEST, None, "object"),
    (b'{"jsonrpc":"2.0","id":"x","method":7}', INVALID_REQUEST, "x", "method"),
    (b'{"jsonrpc":"2.0","id":4}', INVALID_REQUEST, 4, "needs a method"),
    (b'{"jsonrpc":"2.0"}', INVALID_REQUEST, None, "needs a method"),
]


@pytest.mark.parametrize(("body", "code", "request_id", "says"), UNUSABLE, ids=[case[0][:40] for case in UNUSABLE])
def test_a_body_that_is_no_message(body: bytes, code: int, request_id: object, says: str):
    with pytest.raises(UnusableMessageError) as caught:
        decode_incoming(body)
    assert (caught.value.code, caught.value.request_id) == (code, request_id)
    assert says in caught.value.message


def test_messages_keep_their_params_undecoded():
    message = decode_incoming(b'{"jsonrpc":"2.0","id":"a","method":"m","params":{"deep":[1,2]},"extra":1}')
    assert (message.id, message.method, bytes(message.params)) == ("a", "m", b'{"deep":[1,2]}')  # type: ignore[arg-type]
    assert decode_incoming(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}').id is None


PARAMS: list[tuple[type, Any, str]] = [
    (NoParams, {"x": 1}, "unknown field `x`"),
    (NoParams, [], "Expected `object`"),
    (InitializeParams, {}, "`client`"),
    (InitializeParams, {"client": {"name": ""}}, "$.client.name"),
    (InitializeParams, {"client": {"name": "a\u202eb"}}, "$.client.name"),
    (InitializeParams, {"client": {"name": "a\x1b[2Jb"}}, "$.client.name"),
    (InitializeParams, {"client": {"name": "x" * 129}}, "$.client.name"),
    (InitializeParams, {"client": {"name": "a"}, "role": "editor"}, "$.role"),
    (InitializeParams, {"client": {"name": "a"}, "surface": "all"}, "$.surface"),
    (InitializeParams, {"client": {"name": "a"}, "session": "\n"}, "$.session"),
    (CallParams, {"arguments": {}}, "`name`"),
    (CallParams, {"name": 5}, "$.name"),
    (CallParams, {"name": "edit", "args": {}}, "`args`"),
    (CallParams, {"name": "edit", "progressToken": []}, "$.progressToken"),
    (OpsParams, {"paths": "a.py", "ops": []}, "$.paths"),
    (OpsParams, {"paths": [1], "ops": []}, "$.paths[0]"),
    (ArtifactParams, {"handle": "h", "offset": -1}, "$.offset"),
    (ArtifactParams, {"handle": "h", "limit": 0}, "$.limit"),
    (ArtifactParams, {"handle": "h", "severity": "fatal"}, "$.severity"),
    (DecideParams, {"id": "a"}, "`approve`"),
    (DecideParams, {"id": "a", "approve": "yes"}, "$.approve"),
    (DecideParams, {"id": "a", "approve": True, "edited": [{"path": "p"}]}, "{path, content} or {hunkId, text}"),
    (
        DecideParams,
        {"id": "a", "approve": True, "edited": [{"path": "p", "content": "c", "text": "t"}]},
        "{path, content} or {hunkId, text}",
    ),
]


@pytest.mark.parametrize(("kind", "value", "says"), PARAMS)
def test_malformed_params_name_the_field(kind: type, value: Any, says: str):
    with pytest.raises(InvalidParamsError) as caught:
        decode_params(msgspec.Raw(json.dumps(value).encode()), kind)
    assert caught.value.code == INVALID_PARAMS
    assert says in caught.value.message


@pytest.mark.parametrize("raw", [msgspec.UNSET, msgspec.Raw(b"null"), msgspec.Raw(b"{}")])
def test_absent_and_null_params_are_empty_ones(raw: msgspec.Raw | msgspec.UnsetType):
    assert decode_params(raw, NoParams) == NoParams()


@pytest.mark.parametrize("raw", [b'{"name":"\xff"}', b'{"name":"\\ud800"}'])
def test_text_that_is_not_unicode_is_a_parse_error(raw: bytes):
    with pytest.raises(RpcError) as caught:
        decode_params(msgspec.Raw(raw), CallParams)
    assert caught.value.code == PARSE_ERROR


def test_params_are_camel_case_and_arguments_arrive_as_they_were_sent():
    params = decode_params(
        msgspec.Raw(b'{"name":"edit","arguments":{"type_name":1,"a-b":[null],"class":"\\u00e9"},"progressToken":"t"}'),
        CallParams,
    )
    assert params.arguments == {"type_name": 1, "a-b": [None], "class": "é"}
    assert params.progress_token == "t"
    # What is wrong with a tool's arguments is the tool's to say, as E_DEV_BAD_ARG.
    assert decode_params(msgspec.Raw(b'{"name":"edit","arguments":[]}'), CallParams).arguments == []


def test_an_engine_id_of_null_differs_from_none_given():
    assert decode_params(msgspec.Raw(b'{"handle":"h","engineId":null}'), ArtifactParams).engine_id is None
    assert decode_params(msgspec.Raw(b'{"handle":"h"}'), ArtifactParams).engine_id is msgspec.UNSET


def test_errors_have_the_wire_form_of_the_contract():
    error = StepFailedError("it broke", step="edit", path="a.py", line=3)
    assert json.loads(encode(error_object(error))) == {
        "code": -32050,
        "message": "it broke",
        "data": {
            "code": "E_DEV_STEP_FAILED",
            "message": "it broke",
            "retry": "afterCorrection",
            "step": "edit",
            "path": "a.py",
            "line": 3,
        },
    }
    assert isinstance(DevToolsError.from_wire(error.to_wire()), StepFailedError)
    assert json.loads(encode(error_object(RpcError(-32601, "no")))) == {"code": -32601, "message": "no"}


def test_what_we_send_is_json_rpc():
    assert json.loads(encode(messages.Notification(method="m", params={"a": None}))) == {
        "jsonrpc": "2.0",
        "method": "m",
        "params": {"a": None},
    }
    assert json.loads(encode(messages.ResultAnswer(id="x", result=None))) == {
        "jsonrpc": "2.0",
        "id": "x",
        "result": None,
    }
    assert json.loads(encode(messages.Report(message="waits", approval="a1"))) == {
        "kind": "report",
        "message": "waits",
        "approval": "a1",
    }
    assert json.loads(encode(messages.Report(message="runs"))) == {"kind": "report", "message": "runs"}
    assert json.loads(encode(messages.Output(stream="stderr", text="t"))) == {
        "kind": "output",
        "stream": "stderr",
        "text": "t",
    }
