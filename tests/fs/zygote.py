"""A warm process that forks one child a request and lets it die: run by the crash tests, never imported.

Reads JSON lines {"do": "commit"|"recover"|"wander", "root", "fault"?, "plan"?, "mutations"?, "exchange"?,
"kill_after_s"?, "seed"?, "log"?}; answers {"status"}:
the exit code of the child, negative for a signal, and {"text"} with what went wrong in it. It has no threads, so
that forking is safe.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
import traceback

from wanderer import wander

from devtools_lsp.fs import faults, syscalls
from devtools_lsp.fs.local import LocalFileSystem
from devtools_lsp.fs.policy import PathPolicy
from devtools_lsp.ports import Mutation


def work(request: dict) -> None:
    if not request.get("exchange", True):
        syscalls._rename = None
    fault = faults.Fault(request["fault"]) if request.get("fault") else None
    # Names suffice for these trees, and asking git takes longer than the whole commit.
    file_system = LocalFileSystem(request["root"], policy=PathPolicy())
    if request["do"] == "commit":
        faults.armed = fault
        mutations = [
            Mutation(**{**mutation, "data": base64.b64decode(mutation["data"])}) for mutation in request["mutations"]
        ]
        file_system.commit_now(request["plan"], mutations, make_parents=True)
    elif request["do"] == "wander":
        wander(file_system, request["seed"], request["log"])
    else:
        faults.armed = fault
        file_system.recover_now()
    file_system.close()


def wait(child: int, kill_after_s: float | None) -> int:
    """The child's status, killed after a while if asked: here, where its pid cannot have become somebody else's."""
    if kill_after_s is not None:
        deadline = time.monotonic() + kill_after_s
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                work(request)
            except BaseException:
                os.write(write, traceback.format_exc().encode()[-4000:])
                os._exit(3)
            os._exit(0)
        os.close(write)
        status = wait(child, request.get("kill_after_s"))
        text = b""
        while chunk := os.read(read, 65536):
            text += chunk
        os.close(read)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status), "text": text.decode()}), flush=True)


main()
