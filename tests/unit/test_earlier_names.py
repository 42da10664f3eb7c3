"""Earlier names of modules, which plugins may use: they hold the registries themselves, not copies."""

from __future__ import annotations

from types import ModuleType

import pytest

from nmt import engines, export, interop


@pytest.mark.parametrize("module", [engines, export])
def test_earlier_names_are_those_of_interop(module: ModuleType) -> None:
    renamed = {(export, "Engine"): "ForeignModel"}
    for name in module.__all__:
        assert getattr(module, name) is getattr(interop, renamed.get((module, name), name))
