"""Systems other than Linux: help everywhere, one line where nmt does not run."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import nmt
from nmt.api.session import session
from nmt.errors import UserError

REFUSAL = (
    "this system (win32) lacks the locks and limits of Unix. nmt runs on Linux and macOS, and on Windows in "
    "WSL 2: wsl --install."
)

WINDOWS = """
import errno, os, signal, sys
from importlib import import_module
for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGPIPE", "SIGKILL", "pthread_sigmask"):
    delattr(signal, name)
del errno.EREMOTEIO, os.fork, os.register_at_fork, os.sched_getaffinity, os.O_NONBLOCK, os.O_CLOEXEC
for command in ("train", "translate", "evaluate", "export", "serve", "import_model"):
    for words in (["--help"], ["model_dir=none"]):
        sys.argv[1:] = words
        try:
            import_module(f"nmt.cli.{command}").main()
        except SystemExit as exit:
            print(exit.code, file=sys.stderr)
"""


@pytest.mark.parametrize("module", ["fcntl", "resource"])
def test_no_such_module(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UserError) as refusal, session(progress=False, torch=False):
        pass
    assert str(refusal.value) == REFUSAL


def test_commands_on_windows() -> None:
    done = subprocess.run([sys.executable, "-c", WINDOWS], capture_output=True, text=True, timeout=120)
    words = done.stderr.replace(f"({sys.platform})", "(win32)").splitlines()
    names = ("train", "translate", "eval", "export", "serve", "import")
    assert words == [line for name in names for line in ("0", f"nmt-{name}: {REFUSAL}", "2")]
    assert [name for name in names if f"  nmt-{name} " not in done.stdout] == []


def test_nothing_is_imported_that_windows_lacks() -> None:
    """Such modules are imported in the functions that use them, which run after the refusal."""
    for path in Path(nmt.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            module = node.module if isinstance(node, ast.ImportFrom) else None
            assert not {"fcntl", "resource", "pwd", "grp", "termios", "tty"}.intersection([*names, module]), (
                path
            )
