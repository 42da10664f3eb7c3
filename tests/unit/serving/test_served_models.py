"""The models of the server: a worker process that fails is replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from nmt.config import DecodingConfig
from nmt.errors import UserError
from nmt.serving.served_models import SearchOptions, ServedModel


class Killed:
    """A translator with two worker processes; the line `kill` kills that which translates it."""

    config = DecodingConfig()
    searcher = SimpleNamespace(has_attention=False, num_processes=2)

    def with_options(self, config: DecodingConfig) -> Killed:
        return self

    def translate(self, lines: Sequence[str], *, attention: bool) -> list[Any]:
        if "kill" in lines:
            os.kill(os.getpid(), signal.SIGKILL)
        return [line.upper() for line in lines]


def test_a_killed_process_is_named_and_replaced_later_if_there_is_no_memory_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    translator: Any = Killed()
    model = ServedModel(translator, "en", "de", 1)

    def full() -> int:
        raise OSError("Cannot allocate memory")

    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fork", full)
            for _ in range(2):  # both processes
                with pytest.raises(UserError, match="^A worker process of the server was killed"):
                    model.translate(["kill"], SearchOptions())
        for line in "abc":
            results: Sequence[Any] = model.translate([line], SearchOptions())
            assert results == [line.upper()]
    finally:
        model.close()
