"""Fixtures of the tests of updates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture
def group() -> Iterator[None]:
    """A group of one process: FSDP2 takes all its code paths, and the naive twin is in the same process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class NobodyReads(TorchDispatchMode):
    """Fails on operations that make the host wait for a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert "_local_scalar_dense" not in str(func) and "nonzero" not in str(func)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def nobody_reads() -> AbstractContextManager[object]:
    """A context in which the host may not wait for a GPU."""
    return NobodyReads()
