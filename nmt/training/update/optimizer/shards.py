"""Shards of tensors: each process has some rows, as FSDP2 distributes them.

A sharded tensor is a DTensor. Its module takes half a second to import, so its methods are looked up.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor


def is_sharded(tensor: Any) -> bool:
    """Whether each process has a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def local(tensor: Any) -> Tensor:
    """Returns this process's shard of a tensor; if that is not sharded, the tensor."""
    return cast(Tensor, tensor.to_local() if is_sharded(tensor) else tensor)


def gathered(shard: Tensor, like: Any) -> Tensor:
    """Gathers the tensor of which each process has a shard, if `like` is sharded.

    `DTensor.full_tensor` returns the same, but it may abort a process on CPUs (torch 2.13). Both threads of
    gloo write the name of their last collective into one string without a lock. Only the name of the
    collective that `full_tensor` calls, `ALLGATHER_COALESCED`, is so long that it is allocated and freed.

    Args:
        shard: (rows of this process, ...); the last processes may have fewer rows than the others, or none.
        like: a tensor with the shape and the shards of the result.

    Returns:
        (rows, ...).
    """
    if not is_sharded(like):
        return shard
    processes = like.device_mesh.size()
    rows = -(-len(like) // processes)
    padded = torch.cat([shard, shard.new_zeros(rows - len(shard), *shard.shape[1:])])
    parts = padded.new_empty(processes, *padded.shape)
    dist.all_gather(list(parts), padded, group=like.device_mesh.get_group())
    return parts.flatten(0, 1)[: len(like)]


def shard_of(tensor: Tensor, like: Any) -> Tensor:
    """Returns this process's shard of a whole tensor, if `like` is sharded."""
    if not is_sharded(like):
        return tensor
    parts = tensor.chunk(like.device_mesh.size())
    number = like.device_mesh.get_local_rank()
    return parts[number] if number < len(parts) else tensor[:0]
