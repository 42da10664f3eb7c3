"""Tensors that are sharded by two and three processes are gathered again, without `full_tensor`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from toy_training import accumulate, tiny_model

from nmt.config import OptimizerConfig, Sharding, TrainingConfig
from nmt.training.processes.launcher import launch
from nmt.training.processes.ranks import Ranks
from nmt.training.processes.stopping import StopRequest
from nmt.training.update.optimizer.shards import gathered, local, shard_of
from nmt.training.update.sharding import Sharded

ROWS = {2: {6: (3, 3), 7: (4, 3), 1: (1, 0)}, 3: {6: (2, 2, 2), 7: (3, 3, 1), 4: (2, 2, 0), 1: (1, 0, 0)}}
"""Processes → rows of a tensor → rows of each process."""


def exchange(argument: str) -> bool:
    """The work of a process: gathers tensors; makes an update, and restores its state in another model."""
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ranks = Ranks.join(rank, world, rank, torch.device("cpu"))
    mesh = init_device_mesh("cpu", (world,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DTensor, "redistribute", None)  # `full_tensor` calls it
        for rows, of_rank in ROWS[world].items():
            for shape in ((rows,), (rows, 5), (rows, 3, 2)):
                for dtype in (torch.float32, torch.bfloat16):
                    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(rows)).to(dtype)
                    sharded = distribute_tensor(tensor, mesh, [Shard(0)])
                    own = local(sharded)
                    assert len(own) == of_rank[rank]
                    assert torch.equal(shard_of(tensor, sharded), own)
                    assert torch.equal(gathered(own, sharded), tensor)
        options = TrainingConfig(sharding=Sharding.full)
        for name in ("adam", "muon"):
            options = replace(options, optimizer=OptimizerConfig(name=name))
            updated, restored = (Sharded(tiny_model(), options, ranks, num_extras=1) for _ in range(2))
            accumulate(updated)
            updated.step(0.01, torch.tensor(0.1, dtype=torch.float64), torch.tensor(True))
            state = updated.state(optimizer=True)
            restored.restore(state, True, Path("here"))
            for one, two in zip(state, restored.state(optimizer=True), strict=True):
                assert one.keys() == two.keys() and bool(one) == ranks.is_main
                assert all(torch.equal(tensor, two[key]) for key, tensor in one.items())
    ranks.leave()
    return True


@pytest.mark.slow
@pytest.mark.parametrize("processes", list(ROWS))
def test_gathered_shards_are_the_whole_tensor(processes: int) -> None:
    assert launch(exchange, "", processes, StopRequest())
