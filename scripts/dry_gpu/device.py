"""Makes torch accept FakeTensors of device "cuda" on a machine without CUDA.

A FakeTensor has a shape, a dtype and a device, but no values (`torch._subclasses.fake_tensor`). Code that
runs on such tensors launches nothing, so it runs anywhere. An operator that needs a value on the host raises
an error.

    from dry_gpu import device
    device.pretend(device.build(folder))  # before torch is imported
    with device.fake_tensors(): ...
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_SOURCE = Path(__file__).with_name("guard.cpp")

capability = (9, 0)
"""The compute capability that the device reports; may be changed."""


properties = SimpleNamespace(
    name="H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    total_memory=80 << 30,
    L2_cache_size=50 << 20,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    gcnArchName="",
)
"""The properties that Inductor asks for: an H100."""


class NoCompiler(Exception):
    """There is no C++ compiler, so the stand-in device can't be built."""


class HasCuda(Exception):
    """The installed torch has CUDA, which the stand-in device would shadow."""


def compiler() -> str | None:
    """Returns the path of a C++ compiler; None if there is none."""
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")


def build(folder: Path) -> Path:
    """Compiles the stand-in device for the installed torch, once per folder, and returns the library.

    Raises:
        NoCompiler: there is no C++ compiler.
        subprocess.CalledProcessError: the compilation failed; the message is on standard error.
    """
    found = compiler()
    if found is None:
        raise NoCompiler("a C++ compiler (g++ or clang++) is needed")
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    version = importlib.metadata.version("torch")
    key = hashlib.sha256(f"{_SOURCE.read_text()} {version} {root}".encode()).hexdigest()[:16]
    library = folder / f"dry-gpu-{key}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"{library.name}.{os.getpid()}"
        # -O0: the functions do nothing; optimising torch's headers would take most of the time.
        options = ["-shared", "-fPIC", "-std=c++20", "-O0"]
        libraries = [f"-L{root / 'lib'}", f"-Wl,-rpath,{root / 'lib'}", "-lc10", "-ltorch_cpu"]
        include = ["-isystem", str(root / "include")]
        subprocess.run([found, *options, *include, str(_SOURCE), *libraries, "-o", str(partial)], check=True)
        partial.replace(library)
    return library


def pretend(library: Path) -> None:
    """Loads the stand-in device, and replaces the few Python functions that would call a real driver.

    This changes torch for the rest of the process.

    Raises:
        HasCuda: the installed torch has CUDA.
    """
    assert "torch" not in sys.modules, "torch must not be imported yet: it asks for devices at its import"
    ctypes.CDLL(str(library), os.RTLD_GLOBAL | os.RTLD_NOW)
    import torch

    if torch.version.cuda is not None:
        raise HasCuda("this torch has CUDA; a dry run needs a CPU build of torch")
    # Not `torch.cuda.is_available`: FakeTensorMode would ask the device for memory.
    replacements: dict[tuple[Any, str], Callable[..., Any]] = {
        (torch.cuda, "device_count"): lambda: 1,
        (torch.cuda, "current_device"): lambda: 0,
        (torch.cuda, "get_device_capability"): lambda device=None: capability,
        (torch.cuda, "get_device_properties"): lambda device=None: properties,
        (torch.cuda, "is_bf16_supported"): _supports_bf16,
        (torch.cuda, "device"): lambda device: _nothing(),
        (torch.cuda, "manual_seed"): lambda seed: None,
        (torch.cuda, "Event"): _Event,
        (torch.cuda.amp.common, "amp_definitely_not_available"): lambda: False,
        (torch.Tensor, "pin_memory"): lambda self, device=None: self,
    }
    for (owner, name), replacement in replacements.items():
        setattr(owner, name, replacement)
    # Backward passes run in this thread, so that modes and the parts of a ledger see them.
    torch.autograd.set_multithreading_enabled(False)


def fake_tensors() -> AbstractContextManager[Any]:
    """Returns the mode in which all new tensors are FakeTensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def _supports_bf16(including_emulation: bool = True) -> bool:
    return including_emulation or capability >= (8, 0)


def _nothing() -> AbstractContextManager[None]:
    return nullcontext()


class _Event:
    """`torch.cuda.Event` of a device that has always finished."""

    def __init__(self, *arguments: object, **options: object) -> None:
        pass

    def record(self, stream: object = None) -> None:
        """Does nothing."""

    def synchronize(self) -> None:
        """Does nothing."""
