"""Forks daemons that have everything imported already: run by the attack tests, never imported by them.

A daemon of its own interpreter takes a second to start, and a suite that kills one at every step starts hundreds.
Each child here runs the same `devtools-lsp serve` through the same entry point, only in a forked interpreter that
has loaded, and prepared once, what every daemon does. It has no threads before it forks.

Reads packets on the socket whose descriptor is its argument: {"do": "serve", "argv", "env", "fault"?, "follow_links"?}
with the descriptors for standard output and error, answered by {"pid"}; {"do": "wait", "pid"}, answered by
{"status"}: the exit code, negative for a signal. When the socket closes every child is killed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys

import devtools_lsp
from devtools_lsp import __main__
from devtools_lsp.daemon import lsp_protocol
from devtools_lsp.fs import faults, walk


def serve(request: dict, output: int, errors: int) -> None:
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.environ.clear()
    os.environ.update(request["env"])
    if request.get("fault"):
        # The variable is read when the module is loaded, and that has happened.
        faults.armed = faults.Fault(request["fault"])
    if request.get("follow_links"):
        walk.STEP_FLAGS &= ~os.O_NOFOLLOW
    sys.argv = ["devtools-lsp", *request["argv"]]
    __main__.main()


def fork(request: dict, descriptors: list[int], channel: socket.socket) -> int:
    child = os.fork()
    if child:
        return child
    channel.close()
    code = 1
    try:
        serve(request, *descriptors)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException as error:
        print(f"nursery: {error!r}", file=sys.stderr)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    for module in pkgutil.walk_packages(devtools_lsp.__path__, "devtools_lsp."):
        importlib.import_module(module.name)
    lsp_protocol.prepare()
    children: set[int] = set()
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, 1 << 18, 2)
        if not data:
            break
        request = json.loads(data)
        if request["do"] == "wait":
            _, status = os.waitpid(request["pid"], 0)
            children.discard(request["pid"])
            answer = {"status": os.waitstatus_to_exitcode(status)}
        else:
            answer = {"pid": fork(request, descriptors, channel)}
            children.add(answer["pid"])
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(answer).encode())
    for child in children:
        os.kill(child, signal.SIGKILL)


main()
