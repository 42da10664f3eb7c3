"""Properties that are computed once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import nmt
from nmt.runtime.lazy import cached_property


@dataclass(frozen=True)
class Slow:
    begun: threading.Event
    may_end: threading.Event
    calls: list[int]

    @cached_property
    def value(self) -> int:
        """The number of calls."""
        self.calls.append(1)
        self.begun.set()
        assert self.may_end.wait(30)
        return len(self.calls)


def slow() -> Slow:
    return Slow(threading.Event(), threading.Event(), [])


def test_it_is_computed_once() -> None:
    one = slow()
    one.may_end.set()
    assert one.value == one.value == 1 and one.calls == [1]
    assert Slow.value.__doc__ == "The number of calls."


def test_a_thread_that_computes_it_holds_no_lock() -> None:
    """A forked process would inherit the lock."""
    waiting, other = slow(), slow()
    thread = threading.Thread(target=lambda: waiting.value)
    thread.start()
    try:
        assert waiting.begun.wait(30)
        other.may_end.set()
        second = threading.Thread(target=lambda: other.value, daemon=True)
        second.start()
        second.join(30)
        assert not second.is_alive() and other.value == 1
    finally:
        waiting.may_end.set()
        thread.join()


def test_nmt_uses_no_other_kind() -> None:
    sources = Path(str(nmt.__file__)).parent.rglob("*.py")
    lines = [line for path in sources for line in path.read_text().splitlines()]
    imports = {line for line in lines if "import" in line and "cached_property" in line}
    assert imports == {"from nmt.runtime.lazy import cached_property"}
