"""`plugins=`: modules of the user that register architectures, encodings, rules and the like.

A registry is filled when the module that fills it is imported. So every process of a command imports the
plugins: the first one by `load_plugins`, and those that it starts by `load_inherited_plugins`, which reads
their names from the environment.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from nmt.errors import UserError

_VARIABLE = "NMT_PLUGINS"

T = TypeVar("T")


class UnknownName(UserError):
    """A name that nothing is registered under."""


class Registry(dict[str, T]):
    """Name → what is registered under it, in the order of registration. A name is never registered twice.

    Args:
        kind: the word for one of them, such as `metric`, for messages.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def __setitem__(self, name: str, value: T) -> None:
        """Registers `value`.

        Raises:
            UserError: the name is taken.
        """
        if name in self and self[name] is not value:
            raise UserError(f"{self.kind} {name}: is registered already. Choose another name in the plugin.")
        super().__setitem__(name, value)

    def find(self, name: str, option: str) -> T:
        """What is registered under `name`.

        Args:
            name: the name.
            option: the option that gave it and the option's value, for the error.

        Raises:
            UnknownName: nothing is; the message lists the known names.
        """
        if name not in self:
            raise UnknownName(f"{option}: there is no {self.kind} {name}. Choose from {', '.join(self)}.")
        return self[name]


def load_plugins(modules: Sequence[str]) -> None:
    """Imports modules here, and in the processes that this one will start.

    Args:
        modules: dotted names, such as `my_package.encodings`; imported in this order, each once.

    Raises:
        UserError: a name is not one of a module, or there is no such module.
    """
    import_plugins(modules)
    if modules:
        os.environ[_VARIABLE] = ",".join(modules)
    else:
        os.environ.pop(_VARIABLE, None)


def import_plugins(modules: Sequence[str]) -> None:
    """Imports modules here alone, for work that starts no processes.

    Args:
        modules: as for `load_plugins`.

    Raises:
        UserError: as `load_plugins`.
    """
    for name in modules:
        _load(name)


def load_inherited_plugins() -> None:
    """Imports what the process that started this one has imported by `load_plugins`.

    Raises:
        UserError: as `load_plugins`.
    """
    for name in filter(None, os.environ.get(_VARIABLE, "").split(",")):
        _load(name)


@contextmanager
def naming_plugins(modules: Sequence[str], origin: str = "The model was trained") -> Iterator[None]:
    """Within, the error of an unknown name adds the `plugins=` that a model was trained with.

    The modules are not imported: a model folder never causes an import.

    Args:
        modules: the value of `plugins`.
        origin: the beginning of the sentence that names them.

    Raises:
        UnknownName: as raised within.
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
        raise UserError(f"plugins={name}: not the name of a module. Give one such as my_package.encodings.")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise UserError(
                f"plugins={name}: there is no module {missing}. Install its package, or put the folder that "
                "holds it on PYTHONPATH."
            ) from error
        raise UserError(f"plugins={name}: needs the module {missing}, which is not installed.") from error
