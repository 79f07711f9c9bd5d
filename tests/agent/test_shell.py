"""bash, with real processes, at each degree of confinement."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from devtools_lsp.agent import sandbox, shell_processes
from devtools_lsp.agent.shell import ShellResult, ShellSettings, confinement, run_command
from devtools_lsp.errors import BadArgumentError, CallCancelledError, PolicyError, StepUnavailableError
from devtools_lsp.ports import Cancellation

Bash = Callable[..., "asyncio.Future[ShellResult]"]


@pytest.fixture(params=["bwrap", "subreaper"])
async def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, root: Path) -> str:
    """A degree of confinement, if this machine offers it."""
    if request.param == "processGroup":
        monkeypatch.setattr(shell_processes, "subreaper_available", lambda: False)
    found = await confinement(str(root), settings_for(request.param))
    if found.level != request.param:
        pytest.skip(f"{request.param} is not to be had here: {found.description}")
    return request.param


everywhere = pytest.mark.parametrize("level", ["bwrap", "subreaper", "processGroup"], indirect=True)
"""For what the last resort promises too; it does not promise to find a child that detaches, and says so."""


def settings_for(level: str, **options) -> ShellSettings:
    return ShellSettings(sandbox="auto" if level == "bwrap" else "none", **options)


@pytest.fixture
def bash(root: Path, level: str):
    """Run a command at one level; options are those of the settings and of the call."""

    async def run(command: str, *, timeout_s: float = 20, signal=None, on_output=None, **options) -> ShellResult:
        return await run_command(
            str(root),
            command,
            settings=settings_for(level, **options),
            timeout_s=timeout_s,
            signal=signal,
            on_output=on_output,
        )

    return run


# -- outcome -----------------------------------------------------------------------------------------------------


@everywhere
async def test_output_exit_code_and_streams(bash):
    done = await bash("echo out; echo err >&2; exit 3")
    assert (done.exit_code, done.output.stdout, done.output.stderr) == (3, "out\n", "err\n")
    assert done.content.endswith("[exit code 3]\n")
    assert not done.timed_out


@everywhere
async def test_a_command_that_dies_of_a_signal(bash):
    assert (await bash("kill -9 $$")).exit_code == 137


async def test_it_runs_at_the_root(bash, root: Path):
    assert (await bash("pwd -P")).output.stdout.strip() == str(root.resolve())


async def test_success_needs_no_words(bash):
    done = await bash("printf ready")
    assert (done.content, done.notes) == ("ready\n", ())


async def test_escape_sequences_and_progress(bash):
    """Field case: colours are stripped, carriage-return progress collapses."""
    done = await bash(r"printf '\033[31mred\033[0m\r10%%\r100%%\n'")
    assert done.output.stdout == "100%\n"


# -- waiting for nothing -----------------------------------------------------------------------------------------


@everywhere
async def test_nothing_waits_for_input(bash):
    """Field case: no standard input, no terminal."""
    began = time.monotonic()
    assert (await bash("cat")).output.stdout == ""
    assert (await bash("read -p x y < /dev/tty")).exit_code != 0
    assert (await bash("tty")).output.stdout == "not a tty\n"
    assert time.monotonic() - began < 3


@pytest.fixture
def repository(root: Path) -> Path:
    """A git repository with three commits."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    for command in (
        "git init -q -b main",
        "git config user.email a@example.org",
        "git config user.name A",
        *("git commit -q --allow-empty -m c" + str(number) for number in range(3)),
    ):
        subprocess.run(command.split(), cwd=root, check=True, env=environment)
    return root


async def test_editors_fail_and_pagers_are_off(bash, repository: Path):
    """Field cases: `git commit` without a message and `git rebase -i` fail at once and change nothing."""
    began = time.monotonic()
    head = (await bash("git rev-parse HEAD")).output.stdout
    assert (await bash("git commit --allow-empty")).exit_code != 0
    assert (await bash("git rebase -i HEAD~2")).exit_code != 0
    assert (await bash("git rev-parse HEAD")).output.stdout == head
    assert (await bash("git log --oneline")).output.stdout.count("\n") == 3
    assert time.monotonic() - began < 10


async def test_committing_works(bash, repository: Path):
    done = await bash("echo x > a.txt && git add a.txt && git commit -q -m added && git status --short")
    assert (done.exit_code, done.output.text) == (0, "")


# -- background, time-out, cancellation --------------------------------------------------------------------------


@everywhere
async def test_a_background_child_does_not_hold_the_call_open(bash, nap, running, eventually):
    """Field case: the call returns, says what still ran, and leaves nothing."""
    began = time.monotonic()
    sleep = nap()
    done = await bash(f"{sleep} & printf ready")
    assert time.monotonic() - began < 2
    assert (done.exit_code, done.output.stdout) == (0, "ready")
    assert sleep in done.content
    assert [process.command for process in done.background] == [sleep]
    await eventually(lambda: not running(sleep))


async def test_a_straggler_may_finish_its_sentence(bash):
    done = await bash("(sleep 0.05; echo late) & echo early")
    assert done.output.stdout == "early\nlate\n"
    assert done.background == () or "ended with the call" in done.content


@everywhere
async def test_a_timeout_ends_the_call_and_the_detached_child(bash, nap, running, eventually):
    """Field case: `setsid` does not help a child to outlive its call."""
    began = time.monotonic()
    sleep = nap()
    done = await bash(f"echo started; setsid {sleep} & wait", timeout_s=0.7)
    assert time.monotonic() - began < 5
    assert (done.timed_out, done.exit_code, done.surviving) == (True, None, ())
    assert "started\n" in done.content
    assert "timed out after 0.7 s" in done.content
    await eventually(lambda: not running(sleep))


DOUBLE_FORK = """
import os, signal, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.execvp("sleep", ["sleep", sys.argv[1]])
"""


@pytest.mark.parametrize("how", ["timeout", "cancel", "task"])
async def test_a_double_forked_child_that_ignores_sigterm_dies(bash, root: Path, nap, running, eventually, how: str):
    (root / "daemonize.py").write_text(DOUBLE_FORK)
    detached, attached = nap(), nap()
    signal = Cancellation()
    command = f"python3 -S daemonize.py {detached.split()[1]}; {attached}"
    call = asyncio.create_task(bash(command, timeout_s=2.0 if how == "timeout" else 60, signal=signal))
    await eventually(lambda: running(detached) and running(attached))
    if how == "cancel":
        signal.cancel()
    if how == "task":
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    else:
        done = await call
        assert (done.timed_out, done.cancelled) == (how == "timeout", how == "cancel")
        assert done.surviving == ()
        assert not running(detached), "it is dead before the call returns"
    await eventually(lambda: not running(detached) and not running(attached))


@everywhere
async def test_cancelling_ends_the_tree(bash, nap, running, eventually):
    signal = Cancellation()
    first, second, third = nap(), nap(), nap()
    call = asyncio.create_task(bash(f"{first} & {second} | {third}", timeout_s=60, signal=signal))
    await eventually(lambda: all(running(sleep) for sleep in (first, second, third)))
    signal.cancel()
    done = await call
    assert done.cancelled
    assert "cancelled" in done.content
    assert not any(running(sleep) for sleep in (first, second, third))


async def test_a_fork_bomb_of_stubborn_children_is_ended(bash, nap, running, eventually):
    child, parent = nap(), nap()
    bomb = f"trap '' TERM; i=0; while :; do setsid {child} & i=$((i+1)); [ $i -gt 200 ] && {parent}; done"
    done = await bash(bomb, timeout_s=1.0)
    assert done.timed_out
    assert done.surviving == ()
    await eventually(lambda: not running(child) and not running(parent))


async def test_tools_may_tidy_up_before_they_are_ended(bash, root: Path):
    """SIGTERM comes first: a lock file does not stay behind."""
    done = await bash("touch lock; trap 'rm lock; exit 1' TERM; echo locked; sleep 60 & wait", timeout_s=0.7)
    assert done.output.stdout == "locked\n"
    assert not (root / "lock").exists()


# -- streaming ---------------------------------------------------------------------------------------------------


@everywhere
async def test_each_line_is_streamed_while_the_command_runs(bash, root: Path):
    """The command goes on only after its line was seen."""
    told: list[tuple[str, str]] = []

    def on_output(stream: str, text: str) -> None:
        told.append((stream, text))
        (root / f"seen-{len(told)}").touch()

    script = """
        for n in 1 2 3; do
            if [ $n = 2 ]; then echo line $n >&2; else echo line $n; fi
            until [ -e seen-$n ]; do sleep 0.01; done
        done
    """
    done = await bash(script, on_output=on_output)
    assert told == [("stdout", "line 1"), ("stderr", "line 2"), ("stdout", "line 3")]
    assert (done.exit_code, done.output.text) == (0, "line 1\nline 2\nline 3\n")


async def test_redaction_of_stream_and_result(bash):
    told: list[str] = []
    done = await bash(
        "echo key=hunter2; printf hunter2",
        on_output=lambda _, text: told.append(text),
        redact=lambda text: text.replace("hunter2", "***"),
    )
    assert told == ["key=***", "***"]
    assert done.output.text == "key=***\n***"
    assert "hunter2" not in str(done.to_wire())


@pytest.mark.parametrize("level", ["subreaper"], indirect=True)
async def test_a_flood_is_cut_and_bounded_in_memory(bash):
    """Field case: `yes` until the time-out."""
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    highest = before
    streamed = 0

    def on_output(_: str, text: str) -> None:
        nonlocal highest, streamed
        streamed += len(text)
        highest = max(highest, process.memory_info().rss)

    began = time.monotonic()
    done = await bash("yes", timeout_s=0.8, max_output_bytes=1 << 20, on_output=on_output)
    assert time.monotonic() - began < 5
    assert done.timed_out
    assert len(done.output.text) <= 1 << 20
    assert "bytes of output were dropped" in done.content
    assert done.output.total_bytes > 4 << 20
    assert streamed < (1 << 20) + 3 * 256 * 1024
    assert max(highest, process.memory_info().rss) - before < 20 << 20


# -- environment -------------------------------------------------------------------------------------------------


def environment_of(done: ShellResult) -> dict[str, str]:
    return dict(line.split("=", 1) for line in done.output.stdout.splitlines())


BY_THE_SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}


@everywhere
async def test_the_environment_is_an_allow_list(bash, monkeypatch: pytest.MonkeyPatch):
    """Field case: no key, token or secret of the daemon's reaches a command."""
    for name in ("FOO_API_KEY", "DAEMON_TOKEN", "DEVTOOLS_LSP_SOCKET", "PYTHONPATH"):
        monkeypatch.setenv(name, "value-of-a-secret")
    for name in ("LANG", "LC_ALL", "TMPDIR", "USER", "SHELL"):
        monkeypatch.setenv(name, "/tmp")
    found = environment_of(await bash("env"))
    assert "value-of-a-secret" not in str(found)
    assert set(found) - BY_THE_SHELL == {
        *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TERM", "USER", "SHELL"),
        *("NO_COLOR", "GIT_TERMINAL_PROMPT", "PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER"),
        *("EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"),
    }
    assert found["TERM"] == "dumb"
    assert found["GIT_TERMINAL_PROMPT"] == "0"


async def test_env_allow_replaces_the_list(bash, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("LANG", "C")
    found = environment_of(await bash("env", env_allow=("PATH", "WANTED")))
    assert found["WANTED"] == "yes"
    assert "LANG" not in found
    assert found["TERM"] == "dumb"


async def test_inherit_env_passes_everything_but_the_socket(bash, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANYTHING", "goes")
    monkeypatch.setenv("EDITOR", "vi")
    monkeypatch.setenv("DEVTOOLS_LSP_SOCKET", "/somewhere")
    found = environment_of(await bash("env", inherit_env=True))
    assert (found["ANYTHING"], found["EDITOR"]) == ("goes", "false")
    assert "DEVTOOLS_LSP_SOCKET" not in found


@everywhere
async def test_no_descriptor_leaks_into_a_command(bash):
    done = await bash("ls /proc/self/fd")
    assert done.output.stdout.split() == ["0", "1", "2", "3"], "ls itself opens the fourth"


# -- arguments and hooks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "timeout_s", "words"),
    [
        ("", 1, "empty"),
        ("  \n", 1, "empty"),
        ("a\0b", 1, "NUL"),
        ("echo \ud800", 1, "Unicode"),
        ("echo " + "x" * 140_000, 1, "write it to a file"),
        ("true", 0, "positive"),
        ("true", float("nan"), "positive"),
    ],
)
async def test_refused_arguments(root: Path, command: str, timeout_s: float, words: str):
    with pytest.raises(BadArgumentError, match=words) as caught:
        await run_command(str(root), command, settings=ShellSettings(), timeout_s=timeout_s)
    assert caught.value.step == "bash"


async def test_the_longest_command_runs(bash):
    done = await bash("echo " + "x" * (131_071 - 5))
    assert len(done.output.stdout) == 131_071 - 4


async def test_cancelled_before_it_started(root: Path):
    signal = Cancellation()
    signal.cancel()
    with pytest.raises(CallCancelledError):
        await run_command(str(root), "touch ran", settings=ShellSettings(), signal=signal)
    assert not (root / "ran").exists()


async def test_a_command_rule_refuses_before_anything_starts(root: Path):
    def refuse(command: str) -> None:
        if re.search(r"\bcurl\b", command):
            raise PolicyError("curl is not allowed here", reason="denied")

    with pytest.raises(PolicyError, match="curl"):
        await run_command(str(root), "touch ran; curl x", settings=ShellSettings(check_command=refuse))
    assert not (root / "ran").exists()


# -- runner and requirements -------------------------------------------------------------------------------------


async def test_a_runner_prefixes_the_command(root: Path):
    settings = ShellSettings(runner=("env", "INSIDE=container"), require_sandbox=True)
    done = await run_command(str(root), "echo $INSIDE", settings=settings)
    assert done.output.stdout == "container\n"
    assert done.confinement.level == "runner"


async def test_a_runner_that_does_not_exist(root: Path):
    settings = ShellSettings(runner=("no-such-runner",))
    with pytest.raises(StepUnavailableError, match="no-such-runner"):
        await run_command(str(root), "true", settings=settings)


async def test_a_root_that_went_away(tmp_path: Path):
    with pytest.raises(StepUnavailableError, match="could not be started"):
        await run_command(str(tmp_path / "gone"), "true", settings=ShellSettings(sandbox="none"))


@pytest.fixture
def fake_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a program of that name, with the given shell script as its body, first on PATH."""

    def install(body: str) -> None:
        directory = tmp_path / "bin"
        directory.mkdir()
        program = directory / "bwrap"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")

    return install


async def test_a_sandbox_that_does_not_work_is_said(root: Path, fake_bwrap):
    """What counts is a trial run, not that the program is there."""
    fake_bwrap("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")
    done = await run_command(str(root), "echo ran", settings=ShellSettings())
    assert done.output.stdout == "ran\n"
    assert done.confinement.level == "subreaper"
    assert "Permission denied" in done.confinement.description


@pytest.mark.parametrize("options", [{"require_sandbox": True}, {"sandbox": "bwrap"}])
async def test_a_required_sandbox_fails_closed(root: Path, fake_bwrap, options: dict):
    fake_bwrap("exit 1")
    with pytest.raises(StepUnavailableError, match="requires a sandbox") as caught:
        await run_command(str(root), "touch ran", settings=ShellSettings(**options))
    assert caught.value.code == "E_DEV_STEP_UNAVAILABLE"
    assert not (root / "ran").exists()


async def test_a_contradiction_fails_closed(root: Path):
    with pytest.raises(StepUnavailableError):
        await confinement(str(root), ShellSettings(sandbox="none", require_sandbox=True))


async def test_a_missing_sandbox_fails_closed(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StepUnavailableError, match="not installed"):
        await confinement(str(root), ShellSettings(require_sandbox=True))


async def test_a_sandbox_that_fails_when_it_counts_runs_nothing(root: Path, fake_bwrap):
    """It passed the trial; its failure is not taken for the command's own."""
    fake_bwrap('for last; do :; done; [ "$last" = true ] && exit 0; echo "bwrap: no" >&2; exit 1')
    with pytest.raises(StepUnavailableError, match="bwrap: no"):
        await run_command(str(root), "touch ran", settings=ShellSettings())
    assert not (root / "ran").exists()


# -- what the sandbox bounds -------------------------------------------------------------------------------------


@pytest.fixture
async def sandboxed(root: Path):
    """Run a command in bubblewrap, or skip."""
    found = await confinement(str(root), ShellSettings())
    if found.level != "bwrap":
        pytest.skip(f"bubblewrap does not work here: {found.description}")

    async def run(command: str, hidden: tuple[str, ...] = (), at: Path = root) -> ShellResult:
        return await run_command(str(at), command, settings=ShellSettings(hidden=hidden), timeout_s=20)

    return run


async def test_only_the_root_and_temporary_places_are_writable(sandboxed, root: Path):
    done = await sandboxed('touch here "$TMP" /tmp/devtools-lsp-probe; rm /tmp/devtools-lsp-probe; touch /etc/probe')
    assert (root / "here").exists()
    assert "Read-only file system" in done.output.stderr
    assert not Path("/etc/probe").exists()
    assert (await sandboxed("touch ~/devtools-lsp-probe")).exit_code != 0
    assert not (Path.home() / "devtools-lsp-probe").exists()


async def test_the_socket_and_state_directories_are_out_of_sight(sandboxed, tmp_path: Path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "daemon.sock").touch()
    secret = tmp_path / "token"
    secret.write_text("t0ken")
    done = await sandboxed(f"ls -A {state}; cat {secret}; umount {state}; ls -A {state}", (str(state), str(secret)))
    assert done.output.stdout == ""
    assert (state / "daemon.sock").exists()


async def test_the_users_runtime_directory_is_out_of_sight(sandboxed, tmp_path: Path, monkeypatch):
    runtime = tmp_path / "run"
    runtime.mkdir()
    (runtime / "bus").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert (await sandboxed(f"ls -A {runtime}")).output.stdout == ""


async def test_other_processes_are_out_of_sight(sandboxed):
    done = await sandboxed(f"kill -0 {os.getpid()} || ls -d /proc/{os.getpid()}/environ")
    assert done.exit_code != 0


@pytest.mark.parametrize(
    "attack",
    [
        "echo '#!/bin/sh' > .git/hooks/pre-commit",
        "git config core.fsmonitor ./evil",
        "mv .git elsewhere",
        "rm -rf .git/hooks; test -e .git/hooks && exit 1",
        "mkdir -p .git/info && echo '* filter=x' > .git/info/attributes",
        "mount -o remount,rw .git/hooks",
        "umount .git/hooks",
    ],
)
async def test_git_cannot_be_made_to_run_code_later(sandboxed, repository: Path, attack: str):
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    (repository / ".git" / "info").mkdir(exist_ok=True)
    before = sorted(path.relative_to(repository) for path in (repository / ".git").rglob("*"))
    config = (repository / ".git" / "config").read_bytes()
    assert (await sandboxed(attack)).exit_code != 0
    assert sorted(path.relative_to(repository) for path in (repository / ".git").rglob("*")) == before
    assert (repository / ".git" / "config").read_bytes() == config


async def test_committing_works_in_a_linked_worktree(sandboxed, repository: Path, tmp_path: Path):
    linked = tmp_path / "linked"
    subprocess.run(["git", "worktree", "add", "-q", "-b", "side", str(linked)], cwd=repository, check=True)
    done = await sandboxed("echo x > b && git add b && git commit -q -m b && git log --oneline | wc -l", at=linked)
    assert done.output.text == "4\n"
    assert (await sandboxed("echo x > $(git rev-parse --git-common-dir)/hooks/pre-commit", at=linked)).exit_code != 0
    assert (await sandboxed("echo gitdir: /etc > .git", at=linked)).exit_code != 0


async def test_a_planted_git_file_opens_nothing(root: Path, tmp_path: Path):
    victim = tmp_path / "victim"
    (victim / "worktrees" / "w").mkdir(parents=True)
    (victim / "worktrees" / "w" / "commondir").write_text("../..\n")
    (victim / "worktrees" / "w" / "gitdir").write_text("/somewhere/else/.git\n")
    (root / ".git").write_text(f"gitdir: {victim}/worktrees/w\n")
    assert sandbox.git_directories(str(root)) is None
    assert str(victim) not in sandbox.bwrap_arguments(str(root))


def test_the_root_is_never_hidden(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root.parent))
    arguments = sandbox.bwrap_arguments(str(root), hidden=(str(root), str(root.parent)))
    assert "--tmpfs" not in arguments or str(root) not in arguments[arguments.index("--tmpfs") :][:2]
    assert str(root.parent) not in arguments
