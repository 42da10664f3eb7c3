"""Who decides whether the process retains freed memory."""

from __future__ import annotations

import threading

import pytest

from nmt.runtime import default_freed_memory, keep_freed_memory, kept_freed_memory, machine


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The settings that are made, from a process that retains nothing."""
    made: list[bool] = []
    monkeypatch.setattr(machine, "_RETENTION", machine._Retention())
    monkeypatch.setattr(machine, "_retain", made.append)
    return made


def test_the_last_user_restores_the_default(calls: list[bool]) -> None:
    with kept_freed_memory():
        with kept_freed_memory():
            pass
        assert calls == [True]
    assert calls == [True, False]


def test_an_error_restores_the_default(calls: list[bool]) -> None:
    with pytest.raises(ZeroDivisionError), kept_freed_memory():
        raise ZeroDivisionError
    assert calls == [True, False]


def test_a_training_outlasts_its_searches(calls: list[bool]) -> None:
    keep_freed_memory()
    with kept_freed_memory():
        pass
    assert calls == [True]
    default_freed_memory()
    assert calls == [True, False]


def test_a_training_that_ends_leaves_a_search_its_memory(calls: list[bool]) -> None:
    with kept_freed_memory():
        keep_freed_memory()
        default_freed_memory()
        assert calls == [True, True]
    assert calls == [True, True, False]


def test_several_threads(calls: list[bool]) -> None:
    def use() -> None:
        for _ in range(200):
            with kept_freed_memory():
                pass

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [True, False] * (len(calls) // 2) and calls


def test_the_real_settings_can_be_made() -> None:
    before = machine._RETENTION.until_undone
    with kept_freed_memory():
        assert len(bytearray(64 << 20)) == 64 << 20
    assert machine._RETENTION.until_undone is before and machine._RETENTION.users == 0
