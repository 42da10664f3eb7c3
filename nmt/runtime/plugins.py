"""`plugins=`: modules of the user that register architectures, encodings, rules and other components.

A plugin registers its components when it is imported, so every process of a command imports the plugins. The
first process uses `load_plugins`. The processes that it starts use `load_inherited_plugins`, which reads the
names from the environment.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from nmt.errors import UserError
from nmt.runtime.signals import Terminated

_VARIABLE = "NMT_PLUGINS"

T = TypeVar("T")


class UnknownName(UserError):
    """The name is not registered."""


class Registry(dict[str, T]):
    """Name → registered component, in the order of registration. A name is never registered twice.

    `kind` is the word for a component in messages, such as `metric`.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def __setitem__(self, name: str, value: T) -> None:
        """Registers `value`; raises `UserError` if the name is taken."""
        if name in self and self[name] is not value:
            raise UserError(f"{self.kind} {name}: already registered. Choose another name in the plugin.")
        super().__setitem__(name, value)

    def find(self, name: str, option: str) -> T:
        """Returns the component that is registered under `name`.

        Raises:
            UnknownName: the name is not registered. The message begins with `option` and lists the known
                names.
        """
        if name not in self:
            raise UnknownName(f"{option}: there is no {self.kind} {name}. Choose from {', '.join(self)}.")
        return self[name]


def load_plugins(modules: Sequence[str]) -> None:
    """Imports modules in this process, and in the processes that it will start.

    Args:
        modules: dotted names, such as `my_package.encodings`; imported in this order, each once.

    Raises:
        UserError: a name is not a valid module name, or the module does not exist, is not valid Python or
            calls `sys.exit`.
    """
    import_plugins(modules)
    if modules:
        os.environ[_VARIABLE] = ",".join(modules)
    else:
        os.environ.pop(_VARIABLE, None)


def import_plugins(modules: Sequence[str]) -> None:
    """Imports modules in this process only, for work that starts no processes; raises as `load_plugins`."""
    if isinstance(modules, str):
        raise UserError(f"plugins={modules}: must be a list of module names, such as [{modules!r}].")
    for name in modules:
        _load(name)


def load_inherited_plugins() -> None:
    """Imports the modules that the parent process has imported with `load_plugins`, and raises as it."""
    for name in filter(None, os.environ.get(_VARIABLE, "").split(",")):
        _load(name)


@contextmanager
def no_silent_exit(*, any_status: bool = False) -> Iterator[None]:
    """Raises `RuntimeError` if the body calls `sys.exit` without a status of failure.

    Plugins and libraries may do that. The process must not end as if its work was done.

    Args:
        any_status: also if the status is one of failure: for a thread or a worker process, whose caller
            waits for a result or an exception. A stop signal still ends it.
    """
    try:
        yield
    except SystemExit as error:
        if isinstance(error, Terminated) or (error.code and not any_status):
            raise
        raise RuntimeError("a plugin or a library called sys.exit before the work was done") from error


@contextmanager
def naming_plugins(modules: Sequence[str], origin: str = "The model was trained") -> Iterator[None]:
    """Adds the `plugins=` that a model was trained with to the message of an `UnknownName` of the body.

    The modules are not imported: a model folder never causes an import. `origin` begins the sentence.
    """
    try:
        yield
    except UnknownName as error:
        if all(name in sys.modules for name in modules):
            raise
        names = ",".join(modules)
        raise UnknownName(f"{error} {origin} with plugins=[{names}]. Add that.") from error


def _load(name: str) -> None:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"plugins={name}: not a module name. Give a name such as my_package.encodings.")
    try:
        importlib.import_module(name)
    except Terminated:
        raise
    except SystemExit as error:
        raise UserError(
            f"plugins={name}: the module calls sys.exit when it is imported. Call it only under "
            'if __name__ == "__main__".'
        ) from error
    except SyntaxError as error:
        place = os.path.basename(error.filename or name)
        place += f", line {error.lineno}" if error.lineno else ""
        raise UserError(f"plugins={name}: {place}: {error.msg}. Correct the module.") from error
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise UserError(
                f"plugins={name}: there is no module {missing}. Install its package, or add its parent "
                "folder to PYTHONPATH."
            ) from error
        raise UserError(f"plugins={name}: requires the module {missing}, which is not installed.") from error
