"""`training.compile`: what compiles the layers, and a count of how often it has to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch

from nmt.errors import UserError
from nmt.model import Backend, Seq2Seq
from nmt.runtime import log


def compiled(model: Seq2Seq, *, wanted: bool) -> Compilations | None:
    """Compiles the layers of a model for training, if `wanted`; sharded models after they are.

    Raises:
        UserError: this machine has nothing to compile with.
    """
    if not wanted:
        return None
    compilations = Compilations()
    log.info("layers are compiled as the first batch goes through them, which takes a minute or so")
    compilations.try_out(model.output_weight.device)
    model.compile_blocks(compilations)
    return compilations


class Compilations:
    """A backend for `torch.compile` that counts its calls.

    What was compiled in this process before is forgotten: a kernel may round otherwise if it was made for a
    batch of another size. As it is, the first batch of the rehearsal decides, for a resumed run the same one.

    Attributes:
        count: graphs compiled so far.
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
        """Compiles next to nothing, and doesn't count it.

        Raises:
            UserError: it is not possible.
        """
        try:
            torch.compile(_more, backend=self)(torch.ones(8, device=device))
        except Exception as error:  # of too many kinds: a compiler, its headers, Triton may be missing
            cause = f"{getattr(error, 'inner_exception', error)}".partition("\n")[0]
            raise UserError(
                f"training.compile=true: torch.compile does not work on this machine ({cause}): it needs a "
                "C++ compiler such as g++, and on a GPU Triton; or train with training.compile=false"
            ) from error
        self.count = 0

    def figures(self, update: int) -> dict[str, float | None]:
        """To be asked after every update, this one included.

        Returns:
            `recompilations`: graphs compiled since the first update of the session. None is expected: each
            holds for batches of any size.
        """
        if self._first is None:
            self._first = self._told = self.count
        again = self.count - self._first
        if self.count > self._told:
            self._told = self.count
            log.warning(
                "update %d: layers had to be compiled again, which takes time (graphs so far: %d; "
                "TORCH_LOGS=recompiles tells why)",
                *(update, again),
            )
        return {"recompilations": again}


def _backend() -> Backend:
    """Inductor; tests have others, which take less time."""
    from torch._dynamo import lookup_backend  # seconds to import

    # Its cache of graphs asks whether one holds for a size of batch, not whether it was made for it. What
    # takes longest, the C++ compiler, has a cache of its own.
    inductor = cast(Backend, lookup_backend("inductor"))
    return partial(inductor, config_patches={"fx_graph_cache": False})


def _more(x: torch.Tensor) -> torch.Tensor:
    return x + 1
