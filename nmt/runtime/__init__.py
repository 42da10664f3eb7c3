"""What every stage needs of the machine: its devices, files written whole, seeds, progress and the log."""

from nmt.runtime.faults import fault, readable, reason_of, stray_fault, told
from nmt.runtime.files import (
    cache_folder,
    fsync_folder,
    locked,
    look_up,
    make_folder,
    replaced,
    require_writable,
    written,
)
from nmt.runtime.machine import (
    available_cores,
    choose_device,
    choose_precision,
    control_groups,
    keep_freed_memory,
    memory_errors,
    release_freed_memory,
    set_threads,
    wanted_processes,
)
from nmt.runtime.regular import parse_json, read_bytes, read_text, require_regular
from nmt.runtime.seeds import mix
from nmt.runtime.streams import log, log_to_stderr, progress, silence, steady_streams

__all__ = [
    "available_cores",
    "cache_folder",
    "choose_device",
    "choose_precision",
    "control_groups",
    "fault",
    "fsync_folder",
    "keep_freed_memory",
    "locked",
    "log",
    "log_to_stderr",
    "look_up",
    "make_folder",
    "memory_errors",
    "mix",
    "parse_json",
    "progress",
    "read_bytes",
    "read_text",
    "readable",
    "reason_of",
    "release_freed_memory",
    "replaced",
    "require_regular",
    "require_writable",
    "set_threads",
    "silence",
    "steady_streams",
    "stray_fault",
    "told",
    "wanted_processes",
    "written",
]
