"""The private names of pygls that the daemon touches: an upgrade that changes one of them fails here, by name."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder
from pygls.feature_manager import FeatureManager
from pygls.io_ import run_async
from pygls.lsp.client import LanguageClient
from pygls.lsp.server import LanguageServer
from pygls.protocol import JsonRPCProtocol, LanguageServerProtocol

from devtools_lsp.daemon.lsp_protocol import EditorProtocol, prepare, shared_converter


def test_the_version_is_the_one_that_was_read():
    assert version("pygls").startswith("2.1.")


def test_the_methods_that_are_replaced_exist_with_these_parameters():
    expected = {
        "_send_data": ["self", "data"],
        "_send_response": ["self", "msg_id", "result", "error"],
        "_send_handler_result": ["self", "future", "msg_id"],
        "_execute_handler": ["self", "msg_id", "handler", "callback", "args", "kwargs"],
        "get_message_type": ["self", "method"],
        "get_result_type": ["self", "method"],
        "handle_message": ["self", "message"],
        "send_request_async": ["self", "method", "params", "msg_id"],
        "lsp_initialize": ["self", "params"],
    }
    for name, parameters in expected.items():
        original = getattr(LanguageServerProtocol, name)
        assert list(inspect.signature(original).parameters) == parameters, name
    for name in ("_send_data", "_send_response", "_send_handler_result", "_execute_handler"):
        assert getattr(EditorProtocol, name) is not getattr(JsonRPCProtocol, name)


def test_the_attributes_that_are_used_exist():
    server = LanguageServer("probe", "1")
    for name in ("_request_futures", "_result_types", "_converter", "fm"):
        assert hasattr(server.protocol, name), name
    assert isinstance(server.protocol.fm, FeatureManager)
    assert types.INITIALIZE in server.protocol.fm.builtin_features
    server.protocol.fm.add_builtin_feature("probe/method", lambda: None)
    assert "probe/method" in server.protocol.fm.builtin_features, "adding replaces, and finds its way to the table"


def test_the_reasons_for_overriding_still_hold():
    """When one of these fails, an override may be dropped."""
    assert hasattr(LanguageServerProtocol.get_message_type, "cache_info"), "the cache on the class"
    assert "sys.exit" in inspect.getsource(LanguageServerProtocol.lsp_exit)
    assert "traceback" in inspect.getsource(inspect.getmodule(JsonRPCProtocol)), "tracebacks to clients"  # type: ignore[arg-type]
    builder = inspect.getsource(ServerCapabilitiesBuilder)
    assert "text_document_content" not in builder


def test_preparing_makes_the_one_converter():
    prepare()
    assert shared_converter() is shared_converter()


async def test_a_real_pygls_client_is_served(daemon: Any, eventually: Any):
    """Not our own bytes on both sides: another implementation's client attaches, sees, and approves."""
    daemon.gate.put({"a.py": 'x = "😀"\n'})
    client = LanguageClient("probe-client", "1")
    published: list[types.PublishDiagnosticsParams] = []
    asked: list[types.ShowMessageRequestParams] = []

    @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _published(params: types.PublishDiagnosticsParams) -> None:
        published.append(params)

    @client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
    def _asked(params: types.ShowMessageRequestParams) -> types.MessageActionItem:
        asked.append(params)
        return types.MessageActionItem(title="Approve")

    reader, writer = await asyncio.open_unix_connection(str(daemon.socket))
    client.protocol.set_writer(writer)  # type: ignore[arg-type]
    stop = threading.Event()
    running = asyncio.get_running_loop().create_task(
        run_async(stop, reader, client.protocol, logging.getLogger("probe"), lambda *_args: None)
    )
    try:
        root = Path(daemon.root).as_uri()
        result = await client.initialize_async(
            types.InitializeParams(capabilities=types.ClientCapabilities(), process_id=None, root_uri=root)
        )
        assert result.capabilities.position_encoding == types.PositionEncodingKind.Utf16
        client.initialized(types.InitializedParams())
        await eventually(lambda: len(daemon.editors.attached) == 1)
        waiting = daemon.gate.edit("a.py", 'x = "🎉"\n')
        await eventually(lambda: published)
        (mark,) = published[-1].diagnostics
        assert mark.code == "approval"
        assert mark.range.end.character == 8
        actions = await client.text_document_code_action_async(
            types.CodeActionParams(
                text_document=types.TextDocumentIdentifier(published[-1].uri),
                range=mark.range,
                context=types.CodeActionContext(diagnostics=[mark]),
            )
        )
        assert actions is not None
        assert actions[0].title.startswith("Approve")
        arguments = [{"id": daemon.gate.approvals.items()[0].id}]
        done = await client.workspace_execute_command_async(
            types.ExecuteCommandParams(command="devtools.approve", arguments=arguments)
        )
        assert done["status"] == "approved"
        assert (await waiting.task).approved
        command = daemon.gate.ask("bash", args={"command": "ls"}, targets=[])
        assert (await command.task).approved
        assert asked[0].message.startswith("claude wants to run: ls")
        assert await client.shutdown_async(None) is None
        client.exit(None)
        await eventually(lambda: len(daemon.editors.attached) == 0)
    finally:
        stop.set()
        writer.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
