"""The commands without the installed scripts: `python -m nmt train` and the others."""

from __future__ import annotations

import difflib
import sys
from importlib import import_module

from nmt import __version__
from nmt.cli.app import end_with, put
from nmt.errors import UserError

COMMANDS = {
    "train": "nmt.cli.train",
    "translate": "nmt.cli.translate",
    "eval": "nmt.cli.evaluate",
    "export": "nmt.cli.export",
    "import": "nmt.cli.import_model",
    "serve": "nmt.cli.serve",
}
"""Name of each command → its module, which is imported only to run the command."""

OVERVIEW = """\
nmt trains neural machine translation models from sentence pairs, translates with them and serves them.

  nmt-train       python -m nmt train        train and test a model; the same command resumes it
  nmt-translate   python -m nmt translate    translate a file, a pipe or typed lines with a model
  nmt-eval        python -m nmt eval         score a model on a test set, or translations in files
  nmt-export      python -m nmt export       export a model to another engine, compared with the original
  nmt-import      python -m nmt import       import a model of another program, compared with the original
  nmt-serve       python -m nmt serve        translate over HTTP, with a page to try it

Both columns run the same commands. Each command lists its options with --help.
  --version       print the version
  --completion    bash or zsh: print a script that completes the options of the commands
"""


def main() -> None:
    """Entry point of `python -m nmt`."""
    name, *rest = sys.argv[1:] or ["--help"]
    command = name.removeprefix("nmt-")
    if command in COMMANDS:
        sys.argv = [f"nmt-{command}", *rest]
        import_module(COMMANDS[command]).main()
    else:
        end_with("nmt", lambda: _answer(name, rest))


def _answer(name: str, rest: list[str]) -> None:
    """Handles arguments that do not name a command."""
    if name in ("-h", "--help", "help"):
        put(OVERVIEW)
    elif name == "--version":
        put(f"nmt {__version__}\n")
    elif name.partition("=")[0] == "--completion":
        from nmt.cli.completion import script  # no other answer needs it

        put(script(name.partition("=")[2] or "".join(rest)))
    elif "=" in name or name.startswith("-"):
        raise UserError(f"{name}: is not a command. Give one first, such as python -m nmt train {name}.")
    else:
        # A common prefix comes first: by similarity `evaluate` would be closer to `translate` than to `eval`.
        near = [known for known in COMMANDS if name.startswith(known)]
        near += difflib.get_close_matches(name, COMMANDS, 1, 0.5)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise UserError(f"{name}: there is no such command. {hint}The commands are {', '.join(COMMANDS)}.")


if __name__ == "__main__":
    main()
