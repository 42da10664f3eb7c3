"""Makes an interpreter with this folder on PYTHONPATH like one of macOS, as far as nmt can see; for tests."""

import asyncio  # noqa: F401
import ctypes.util  # noqa: F401
import errno
import multiprocessing
import os
import platform
import subprocess  # noqa: F401
import sys
import sysconfig
import uuid  # noqa: F401

import torch.distributed.launcher.api  # noqa: F401

# They have seen the real system: libraries, compilers and processes are those of Linux.
sysconfig.get_config_vars()
platform.processor()
sys.platform = "darwin"
for module, name in ((errno, "EREMOTEIO"), (os, "sched_getaffinity"), (os, "pidfd_open")):
    delattr(module, name)
sys.modules["psutil"] = None  # type: ignore[assignment]  # its part for macOS is not installed here
multiprocessing.set_start_method("spawn", force=True)
