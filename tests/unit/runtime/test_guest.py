"""Differences in a program that imports nmt, and the preserved state of that program."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from nmt.runtime.guest import Guest, as_guest, guest, preserved_host_state, torch_for_nmt
from nmt.runtime.streams import log, log_also_to, progress


class Kept(logging.Handler):
    """Stores the text of its records."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_a_guest_is_one_of_its_thread() -> None:
    seen: list[Guest | None] = []
    with as_guest(Guest(progress=True)):
        thread = threading.Thread(target=lambda: seen.append(guest()))
        thread.start()
        thread.join()
        assert guest() == Guest(progress=True)
    assert guest() is None and seen == [None]


@pytest.mark.parametrize("shown", [False, True])
def test_bars_are_shown_where_they_are_wanted(shown: bool) -> None:
    with as_guest(Guest(progress=shown)), progress(total=3, unit="lines", description="Working") as bar:
        bar.update(3)
        bar.set_postfix_str("x", refresh=False)
        assert bar.disable != shown


@pytest.mark.parametrize(
    ("level", "others"),
    [
        (logging.NOTSET, ["warning", "error"]),  # the root's level: warnings
        (logging.ERROR, ["error"]),
        (logging.INFO, ["info", "warning", "error"]),
        (logging.DEBUG, ["debug", "info", "warning", "error"]),
    ],
)
def test_the_log_of_a_run_does_not_depend_on_the_level(
    level: int, others: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    monkeypatch.setattr(logging.root, "level", logging.WARNING)
    log.setLevel(level)
    mine, roots, own = Kept(), Kept(), Kept()
    logging.root.addHandler(roots)
    log.addHandler(own)
    try:
        with log_also_to(mine):
            for name in ("debug", "info", "warning", "error"):
                getattr(log, name)(name)
        log.info("later")
    finally:
        logging.root.removeHandler(roots)
        log.removeHandler(own)
    wanted = ["info", "warning", "error"]
    assert mine.texts == (["debug", *wanted] if level == logging.DEBUG else wanted)
    assert roots.texts == own.texts == [*others, *(["later"] if "info" in others else [])]
    assert log.level == level and not roots.filters and not own.filters and mine not in log.handlers


def test_torch_is_as_before() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    state, numbers = torch.get_rng_state(), random.getstate()
    try:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            with pytest.raises(KeyError), preserved_host_state(torch=True):
                weight = torch.ones(2, requires_grad=True)
                assert (
                    weight.dtype is torch.float32 and (weight.outer(weight) @ weight).dtype is torch.float32
                )
                weight.sum().backward()
                torch.manual_seed(7)
                torch.set_num_threads(1)
                torch.use_deterministic_algorithms(True)
                os.environ["NMT_PLUGINS"] = "json"
                log.setLevel(logging.CRITICAL)
                raise KeyError
            assert torch.is_inference_mode_enabled() and torch.is_autocast_enabled("cpu")
        assert torch.get_default_dtype() is torch.float64 and torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), state) and random.getstate() == numbers
        assert not torch.are_deterministic_algorithms_enabled()
        assert "NMT_PLUGINS" not in os.environ and log.level != logging.CRITICAL
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_garbage_collector_does_not_read_what_the_host_has() -> None:
    gc.unfreeze()  # conftest.py has frozen what it has imported
    with torch_for_nmt():
        with torch_for_nmt():
            assert gc.get_freeze_count() > 10_000
        assert gc.get_freeze_count() > 10_000
    assert gc.get_freeze_count() == 0
    gc.freeze()
    with torch_for_nmt():
        pass
    assert gc.get_freeze_count() > 10_000  # the host wanted it


def test_calls_that_overlap_leave_what_was_before_the_first() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        first, second = torch_for_nmt(), torch_for_nmt(1)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_default_dtype() is torch.float32
        second.__exit__(None, None, None)
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_another_default_device() -> None:
    with torch.device("meta"), torch_for_nmt():
        assert torch.zeros(1).device.type == "cpu"


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_do_not_import_the_main_module(method: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, time\n"
        "from nmt.runtime.workers import without_main_module\n"
        "print('main')\n"
        f"process = multiprocessing.get_context({method!r}).Process(target=time.sleep, args=(0,))\n"
        "with without_main_module():\n"
        "    process.start()\n"
        "process.join()\n"
        "print(process.exitcode)\n"
    )
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (result.stdout, result.stderr) == ("main\n0\n", "")
