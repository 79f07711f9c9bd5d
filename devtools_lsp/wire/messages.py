"""JSON-RPC 2.0 messages and the params of every `devtools/*` method, as msgspec structs (SPEC 8.0.5, 8.0.6).

One definition is both the Python name (snake_case) and the wire name (camelCase). Owns the shapes, the standard
error codes and the judgement of what a frame's body is; knows nothing of sockets, of roles or of what a method
does. Results are any object that msgspec encodes.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from devtools_lsp.errors import JSON_RPC_CODE, DevToolsError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_NOT_INITIALIZED = -32002
REQUEST_CANCELLED = -32800
DEVTOOLS_ERROR = JSON_RPC_CODE

RequestId = int | str
ProgressToken = int | str

Role = Literal["agent", "terminal"]
Surface = Literal["granular", "composite", "workspace"]


class RpcError(Exception):
    """An error of the protocol itself: it becomes the `error` member of an answer as it stands."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class MethodNotFoundError(RpcError):
    """Nobody here answers this method."""

    def __init__(self, method: str) -> None:
        super().__init__(METHOD_NOT_FOUND, f"no such method: {method[:100]!r}")


class InvalidParamsError(RpcError):
    """The params of a method do not have the shape that the method takes; the message names the field."""

    def __init__(self, message: str) -> None:
        super().__init__(INVALID_PARAMS, message)


# -- messages ----------------------------------------------------------------------------------------------------


class Incoming(msgspec.Struct, frozen=True):
    """Any JSON-RPC message as it arrives. Unknown members are allowed; `params`, `result`, `error` stay undecoded."""

    jsonrpc: Literal["2.0"]
    id: RequestId | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request that we send."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    method: str
    params: Any


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that we send."""

    jsonrpc: Literal["2.0"] = "2.0"
    method: str
    params: Any


class ResultAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that succeeded."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId
    result: Any


class ErrorObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """The `error` member of an answer."""

    code: int
    message: str
    data: Any = None


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that failed; `id` is None when the request's own could not be read."""

    jsonrpc: Literal["2.0"] = "2.0"
    id: RequestId | None
    error: ErrorObject


def error_object(error: RpcError | DevToolsError) -> ErrorObject:
    """The wire form of an error that may be told: -32050 with SPEC section 9's `data`, or the protocol's own code."""
    if isinstance(error, RpcError):
        return ErrorObject(error.code, error.message, error.data)
    return ErrorObject(DEVTOOLS_ERROR, error.message, error.to_wire())


_incoming = msgspec.json.Decoder(Incoming)

encode = msgspec.json.Encoder().encode
"""A message's JSON."""


class UnusableMessageError(RpcError):
    """A frame's body that is no message of ours; `id` is the request's own where it could be read."""

    def __init__(self, code: int, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(code, message)
        self.request_id = request_id


def decode_incoming(body: bytes) -> Incoming:
    """Judge a frame's body. Raises UnusableMessageError: -32700 when it is no JSON, -32600 when it is no message."""
    try:
        message = _incoming.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _judge(body, error) from None
    if isinstance(message.method, str):
        if message.id is None:
            raise UnusableMessageError(INVALID_REQUEST, "the id of a request must be an integer or a string, not null")
        return message
    if message.result is msgspec.UNSET and message.error is msgspec.UNSET:
        request_id = message.id if isinstance(message.id, int | str) else None
        raise UnusableMessageError(INVALID_REQUEST, "a message needs a method, or a result or error", request_id)
    return message


def _judge(body: bytes, error: Exception) -> UnusableMessageError:
    """Say which of the two faults it is; only the unhappy path pays for decoding the body again."""
    try:
        value: object = msgspec.json.decode(body)
    except RecursionError:
        return UnusableMessageError(PARSE_ERROR, "the JSON is nested too deeply")
    except msgspec.DecodeError as fault:
        return _judge_half_characters(body) or UnusableMessageError(PARSE_ERROR, f"the body is not JSON: {fault}")
    if isinstance(value, list):
        return UnusableMessageError(INVALID_REQUEST, "batches are not supported; send each request in its own frame")
    return UnusableMessageError(INVALID_REQUEST, f"the body is not a JSON-RPC 2.0 message: {error}", _id_in(value))


def _id_in(value: object) -> RequestId | None:
    if not isinstance(value, dict):
        return None
    request_id = cast("dict[object, object]", value).get("id")
    return request_id if isinstance(request_id, int | str) and not isinstance(request_id, bool) else None


def _judge_half_characters(body: bytes) -> UnusableMessageError | None:
    """A body that is JSON by its grammar and still no text, because a string holds half a surrogate pair.

    Its sender waits for an answer like everybody else. Only such bodies pay for the slower, laxer parser.
    """
    if b"\\u" not in body:
        return None
    try:
        request_id = _id_in(json.loads(body))
        encode(request_id)
    except (ValueError, RecursionError):
        return None
    message = "a string in the body holds half of a surrogate pair, which is no character; send the whole character"
    return UnusableMessageError(PARSE_ERROR, message, request_id)


# -- params of devtools/* ----------------------------------------------------------------------------------------

ShownName = Annotated[
    str,
    # Names are shown to people who approve, in terminals too: nothing in them may move a cursor or reorder text.
    msgspec.Meta(
        min_length=1, max_length=128, pattern="^[^\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+$"
    ),
]
Offset = Annotated[int, msgspec.Meta(ge=0)]
Limit = Annotated[int, msgspec.Meta(ge=1)]


class Params(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of every method's params: camelCase on the wire, unknown fields refused."""


class NoParams(Params, frozen=True):
    """Params of a method that takes none: absent, null or `{}`."""


class ClientInfo(Params, frozen=True):
    """Who connects: `name` is the agent's name at the gate, in approvals and in the activity log."""

    name: ShownName
    version: Annotated[str, msgspec.Meta(max_length=128)] = ""


class InitializeParams(Params, frozen=True):
    """`devtools/initialize`. `session` ties what was read to a name that outlives the connection."""

    client: ClientInfo
    role: Role = "agent"
    surface: Surface | None = None
    session: ShownName | None = None


class McpParams(Params, frozen=True):
    """`devtools/mcp`: from its answer on, both sides send messages of MCP in frames. `session` as for an agent.

    `root` is the one that the client means: nothing is done for it in another.
    """

    root: str | None = None
    surface: Surface | None = None
    session: ShownName | None = None


class ToolsParams(Params, frozen=True):
    """`devtools/tools`."""

    surface: Surface | None = None


class CallParams(Params, frozen=True):
    """`devtools/call`. `arguments` is judged by the tool, so that its faults are E_DEV_BAD_ARG."""

    name: str
    arguments: Any = msgspec.field(default_factory=dict[str, Any])
    surface: Surface | None = None
    progress_token: ProgressToken | None = None


class OpsParams(Params, frozen=True):
    """`devtools/ops`. The entries of `ops` are judged by the pipeline, so that their faults are E_DEV_BAD_ARG."""

    paths: list[str]
    ops: list[Any]
    progress_token: ProgressToken | None = None


class ArtifactParams(Params, frozen=True):
    """`devtools/artifact`: a filtered page. `engine_id` None asks for runtime notices, absent for all."""

    handle: str
    path: str | None = None
    severity: Literal["error", "warning", "info"] | None = None
    engine_id: str | msgspec.UnsetType | None = msgspec.UNSET
    offset: Offset = 0
    limit: Limit | None = None


class ApprovalsParams(Params, frozen=True):
    """`devtools/approvals`. `watch`: tell this terminal of approvals from now on; it then counts as somebody."""

    watch: bool = False


class EditedParam(Params, frozen=True):
    """A person's own text: `{path, content}` for a whole file or `{hunkId, text}` for one hunk."""

    path: str | None = None
    content: str | None = None
    hunk_id: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        """Exactly one of the two forms."""
        given = tuple(value is not None for value in (self.path, self.content, self.hunk_id, self.text))
        if given not in ((True, True, False, False), (False, False, True, True)):
            raise ValueError("give either {path, content} or {hunkId, text}")


class DecideParams(Params, frozen=True):
    """`devtools/decide`: a person's answer to one approval."""

    id: str
    approve: bool
    note: str | None = None
    remember: bool = False
    edited: list[EditedParam] = msgspec.field(default_factory=list[EditedParam])
    drop: list[str] = msgspec.field(default_factory=list[str])


class UndoParams(Params, frozen=True):
    """`devtools/undo`: the last plan, or the one named."""

    plan: str | None = None
    progress_token: ProgressToken | None = None


class CancelParams(msgspec.Struct, frozen=True):
    """`$/cancelRequest`."""

    id: RequestId


P = TypeVar("P")


def decode_params(params: msgspec.Raw | msgspec.UnsetType, kind: type[P]) -> P:
    """The typed params of a method; absent and null count as `{}`.

    Raises InvalidParamsError, which names the field, or RpcError -32700 when the text inside is not JSON.
    """
    raw = memoryview(b"" if isinstance(params, msgspec.UnsetType) else params)
    if bytes(raw[:5]) in (b"null", b""):
        raw = memoryview(b"{}")
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidParamsError(f"malformed params: {error}") from None
    except RecursionError:
        raise RpcError(PARSE_ERROR, "the params are nested too deeply") from None
    except msgspec.DecodeError as error:
        raise RpcError(PARSE_ERROR, f"the params are not JSON: {error}") from None


# -- progress ----------------------------------------------------------------------------------------------------


class Output(msgspec.Struct, frozen=True, tag="output", tag_field="kind"):
    """One piece of a command's output as it comes."""

    stream: Literal["stdout", "stderr"]
    text: str


class Report(msgspec.Struct, frozen=True, tag="report", tag_field="kind", omit_defaults=True):
    """What a call is doing or waiting for; `approval` names the pending approval that it waits for."""

    message: str
    approval: str | None = None


Progress = Output | Report


class ProgressParams(msgspec.Struct, frozen=True):
    """`$/progress`."""

    token: ProgressToken
    value: Any
