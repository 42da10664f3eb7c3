"""Fixtures of the commands' tests."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from nmt.runtime.signals import STOP_SIGNALS


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """Takes back what a command that runs in this process changes for signals."""
    before = {one: signal.getsignal(one) for one in STOP_SIGNALS}
    hook = sys.unraisablehook
    yield
    sys.unraisablehook = hook
    for one, handler in before.items():
        signal.signal(one, handler)
