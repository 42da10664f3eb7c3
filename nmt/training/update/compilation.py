"""Compilation of the layers (`training.compile`), and a count of the compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch

from nmt.errors import UserError
from nmt.model import Backend, Seq2Seq
from nmt.runtime import log


def compiled(model: Seq2Seq, *, wanted: bool) -> Compilations | None:
    """Compiles the layers of a model for training, if `wanted`. A sharded model is compiled after sharding.

    Raises:
        UserError: torch.compile does not work on this machine.
    """
    if not wanted:
        return None
    compilations = Compilations()
    log.info("compiling the layers with the first batch, which takes about a minute")
    compilations.try_out(model.output_weight.device)
    model.compile_blocks(compilations)
    return compilations


class Compilations:
    """A backend for `torch.compile` that counts its calls.

    The constructor discards the graphs that this process has compiled before. A kernel that was compiled for
    another batch size may round differently. The first batch of the memory probe determines the kernels; it
    is the same batch when a run is resumed.

    Attributes:
        count: number of graphs compiled so far.
    """

    def __init__(self) -> None:
        torch.compiler.reset()
        self.count = 0
        self._first: int | None = None  # count after the first update

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        """Compiles a graph for inputs like these."""
        self.count += 1
        return _backend()(graph, inputs)

    def try_out(self, device: torch.device) -> None:
        """Compiles a trivial function to check that compilation works, without counting it.

        Raises:
            UserError: it does not work.
        """
        try:
            torch.compile(_add_one, backend=self)(torch.ones(8, device=device))
        except Exception as error:  # many types: a compiler, its headers or Triton may be missing
            cause = f"{getattr(error, 'inner_exception', error)}".partition("\n")[0]
            raise UserError(
                f"training.compile=true: torch.compile does not work on this machine ({cause}). It needs a "
                "C++ compiler such as g++, and on a GPU Triton. Install them or give training.compile=false."
            ) from error
        self.count = 0

    def figures(self, update: int) -> dict[str, float | None]:
        """Returns the figure of an update; must be called after every update.

        Returns:
            `recompilations`: graphs compiled since the first update of the session. The expected number is 0,
            since a graph accepts batches of any size.
        """
        if self._first is None:
            self._first = self._logged = self.count
        again = self.count - self._first
        if self.count > self._logged:
            self._logged = self.count
            log.warning(
                "update %d: layers were compiled again, which takes time (graphs so far: %d). "
                "TORCH_LOGS=recompiles shows the reason",
                *(update, again),
            )
        return {"recompilations": again}


def _backend() -> Backend:
    """Returns Inductor. Tests replace it by faster backends."""
    from torch._dynamo import lookup_backend  # seconds to import

    # The cache of graphs is off: it returns any graph that is valid for a batch size, not only the one that
    # was compiled for it. The C++ compiler, which takes longest, has a separate cache.
    inductor = cast(Backend, lookup_backend("inductor"))
    return partial(inductor, config_patches={"fx_graph_cache": False})


def _add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1
