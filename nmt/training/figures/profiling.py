"""The profile of a few updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from nmt.runtime.files import make_folder
from nmt.runtime.os_errors import write_errors
from nmt.runtime.streams import log
from nmt.training.state.run_folder import require_run_folder

TRACE, TABLE = "training.pt.trace.json", "operators.txt"
_SKIPPED, _WARM_UP, _TRACED = 3, 2, 3  # updates; the first ones fill caches


@contextmanager
def profiling(folder: Path, *, wanted: bool) -> Iterator[Callable[[], None]]:
    """Yields a function to be called after every update; traces the sixth to the eighth update.

    Writes to the folder a trace for `tensorboard --logdir` (with torch-tb-profiler), chrome://tracing and
    https://ui.perfetto.dev, and a table of the operators that took most time.
    """
    if not wanted:
        yield lambda: None
        return

    def write(profiler: profile) -> None:
        require_run_folder(folder.parent)
        make_folder(folder)
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=by, row_limit=40, max_name_column_width=60)
        with write_errors(folder):
            profiler.export_chrome_trace(str(folder / TRACE))
            (folder / TABLE).write_text(table, encoding="utf-8")
        log.info("profile of %d updates: %s", _TRACED, folder)

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=_SKIPPED, warmup=_WARM_UP, active=_TRACED, repeat=1)
    with profile(activities=activities, schedule=plan, on_trace_ready=write, record_shapes=True) as profiler:
        yield profiler.step
