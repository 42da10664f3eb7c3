"""The costs of the GPU ledger, on tensors of device "meta" whose device is called CUDA."""

from __future__ import annotations

import pytest
import torch
from dry_gpu import costs
from dry_gpu.costs import Cost, Gpu, attention_cost, tiled_pairs
from dry_gpu.ledger import Row, part_on_stack
from torch import Tensor

from nmt.config import ModelConfig
from nmt.data.batches.batching import Batch
from nmt.model.attention import Attention, Score
from nmt.model.dropout import DropoutSource
from nmt.model.transformer import EncoderLayer


class OnGpu(torch.Tensor):
    """A tensor that claims to be on a GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", 0)


def on_gpu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta").as_subclass(OnGpu)


def test_a_product_counts_its_operands_and_its_result() -> None:
    a, b, out = (on_gpu(*shape, dtype=torch.bfloat16) for shape in ((100, 512), (512, 64), (100, 64)))
    cost = costs.cost_of("mm", (a, b), {}, out)
    assert cost == Cost(1, 2 * (100 * 512 + 512 * 64 + 100 * 64), 2 * 100 * 512 * 64, 64, True)


def test_a_product_with_a_bias() -> None:
    bias, a, b, out = on_gpu(64), on_gpu(100, 512), on_gpu(512, 64), on_gpu(100, 64)
    cost = costs.cost_of("addmm", (bias, a, b), {}, out)
    assert cost == Cost(1, 4 * (64 + 100 * 512 + 512 * 64 + 100 * 64), 2 * 100 * 512 * 64, 64, False)


def test_batched_products() -> None:
    a, b, out = on_gpu(8, 10, 64), on_gpu(8, 64, 12), on_gpu(8, 10, 12)
    cost = costs.cost_of("baddbmm", (on_gpu(1, 1, 1), a, b), {}, out)
    assert cost is not None and cost.flops == 2 * 8 * 10 * 64 * 12


def test_elementwise_operators_read_each_tensor_once() -> None:
    x, out = on_gpu(10, 10), on_gpu(10, 10)
    assert costs.cost_of("mul", (x, x), {}, out) == Cost(1, 800)
    assert costs.cost_of("mul_", (x, 2.0), {}, x) == Cost(1, 800)
    assert costs.cost_of("fill_", (x, 0.0), {}, x) == Cost(1, 400)


def test_views_and_host_tensors_cost_nothing() -> None:
    x = on_gpu(10, 10)
    assert costs.cost_of("view", (x, (100,)), {}, x) is None
    assert costs.cost_of("zero_", (on_gpu(0, 5),), {}, on_gpu(0, 5)) is None
    host = torch.empty(10)
    assert costs.cost_of("add", (host, host), {}, host) is None


def test_multi_tensor_kernels_take_some_dozens_of_tensors() -> None:
    tensors = [on_gpu(16) for _ in range(100)]
    cost = costs.cost_of("_fused_adam_", (tensors, tensors, tensors, tensors), {}, None)
    assert cost == Cost(3, 7 * 100 * 16 * 4)
    scaled = costs.cost_of("_fused_adam_", (tensors,) * 4, {"grad_scale": on_gpu()}, None)
    assert scaled is not None and scaled.bytes == 8 * 100 * 16 * 4  # writes the gradient, too


def test_repeated_rows_are_read_once() -> None:
    assert costs.nbytes(on_gpu(1, 10).expand(50, 10)) == 40
    assert costs.nbytes(on_gpu(50, 10)[:, ::2]) == 50 * 5 * 4
    assert costs.nbytes(on_gpu(0, 10)) == 0 and costs.nbytes(on_gpu()) == 4


@pytest.mark.parametrize(
    "queries, keys, causal, tiles",
    [([5], [7], False, 1), ([129], [5], False, 2), ([300], [300], True, 6), ([5, 128], [200, 1], False, 3)],
)
def test_attention_computes_whole_tiles(
    queries: list[int], keys: list[int], causal: bool, tiles: int
) -> None:
    assert tiled_pairs(queries, keys, causal=causal) == tiles * 128 * 128


def test_attention_has_two_products_forward_and_five_backward() -> None:
    q, k = on_gpu(30, 8, 64, dtype=torch.bfloat16), on_gpu(40, 8, 64, dtype=torch.bfloat16)
    forward = attention_cost(1000, q, k, backward=False)
    assert forward.flops == 2 * 2 * 1000 * 8 * 64
    assert forward.bytes == 2 * 2 * (30 + 40) * 8 * 64  # q and output, k and v
    backward = attention_cost(1000, q, k, backward=True)
    assert (backward.flops, backward.bytes) == (forward.flops * 5 // 2, forward.bytes * 2)


def declared(name: str, *args: object, out: object = None) -> Cost:
    """Returns the declared cost of a kernel for two pairs, of 30 and 10 and of 25 and 5 tokens."""
    pytest.importorskip("triton", reason="Triton is not installed: it exists for Linux only")
    batch = Batch.of([[5] * 30, [5] * 10], [[5] * 24, [5] * 4])
    return costs.declared_costs(batch)[name](args, out)


@pytest.mark.parametrize(
    ("pieces", "loss_rows", "again", "rows_in_work"),
    [(16384, (), 0, 4), (37000, (), 6 * 37000 * 2, 2), (37000, (False,), 6 * 37000 * 2, 8)],
)
def test_the_loss_reads_and_writes_logits_once_or_reads_long_rows_from_the_cache(
    pieces: int, loss_rows: tuple[bool, ...], again: int, rows_in_work: int
) -> None:
    logits = on_gpu(6, pieces, dtype=torch.bfloat16)
    arguments = (logits, on_gpu(6, dtype=torch.int64), on_gpu(3, 6), 0.9, 1.0, *loss_rows)
    found = declared("cross_entropy_", *arguments)
    assert found == Cost(1, 2 * 6 * pieces * 2, again=again, in_work=rows_in_work * pieces * 2)
    rdrop = declared("rdrop_", logits, logits, on_gpu(6, dtype=torch.int64), on_gpu(3, 6), 0.9, 1.0, 1.0)
    assert rdrop == Cost(1, 4 * 2 * 6 * pieces * 2)


def test_the_product_before_a_relu_reads_three_tensors_and_writes_two() -> None:
    half = {"dtype": torch.bfloat16}
    given = (on_gpu(300, 8, **half), on_gpu(8, 40, **half), on_gpu(300, 40, **half))
    found = declared("relu_product", *given, out=(on_gpu(300, 40, **half), on_gpu(3, 40)))
    moved = 2 * (300 * 8 + 8 * 40 + 300 * 40) + 2 * 300 * 40 + 4 * 3 * 40
    assert found == Cost(1, moved, 2 * 300 * 8 * 40, 8, half=True)


def test_embeddings_read_a_row_per_token_and_the_encodings_once() -> None:
    given = (on_gpu(9000, 8), on_gpu(40, dtype=torch.int64), on_gpu(16, 8), on_gpu(40, dtype=torch.int64))
    out = (on_gpu(40, 8), on_gpu(40, 8, dtype=torch.bfloat16))
    assert declared("embed", *given, out=out) == Cost(1, 40 * 8 * (4 + 2) + (40 + 16) * 8 * 4)


def test_attention_over_flat_batches_reads_each_tensor_once_per_kernel() -> None:
    q, k = on_gpu(30, 2, 16, dtype=torch.bfloat16), on_gpu(40, 2, 16, dtype=torch.bfloat16)
    of_q, of_k = 30 * 2 * 16 * 2, 40 * 2 * 16 * 2
    forward = declared("flat_attention", q, k, k, None, None, False, -1, 1.0)
    # One tile of queries sees all 40 keys, in two blocks of 32.
    assert (forward.launches, forward.bytes) == (1, 2 * of_q + 2 * of_k)
    assert forward.flops == 2 * 2 * 64 * 64 * 2 * 16
    backward = declared("flat_attention_backward", q, q, None, q, k, k, *[None] * 4, False, -1, 1.0)
    assert (backward.launches, backward.bytes) == (2, 6 * of_q + 6 * of_k)
    # The tile of keys is seen by 30 queries, in one block.
    assert backward.flops == 2 * (3 * 64 * 64 + 4 * 32 * 64) * 2 * 16


def test_the_roofline_takes_the_slower_of_bytes_and_products() -> None:
    gpu = Gpu("toy", 100.0, narrow=10.0, wide=20.0, fp32=5.0, multiprocessors=3, cache=60.0, launch=1.0)
    assert gpu.seconds(Cost(2, 300)) == 5.0
    assert gpu.seconds(Cost(1, 100, flops=50, inner=512, half=True)) == 6.0
    assert gpu.seconds(Cost(1, 100, flops=50, inner=513, half=True)) == 3.5
    assert gpu.seconds(Cost(1, 100, flops=50, inner=512)) == 11.0


def test_what_is_read_again_costs_time_if_it_is_not_in_the_cache() -> None:
    gpu = Gpu("toy", 100.0, narrow=10.0, wide=20.0, fp32=5.0, multiprocessors=3, cache=60.0, launch=1.0)
    assert gpu.seconds(Cost(1, 200, again=100, in_work=10)) == 3.0
    assert gpu.seconds(Cost(1, 200, again=100, in_work=11)) == 4.0


def test_a_row_keeps_the_bytes_of_products_apart() -> None:
    row = Row()
    row.add(Cost(1, 100), ())
    row.add(Cost(1, 70, flops=5, inner=8), ())
    assert (row.launches, row.bytes, row.bytes_outside_products, row.flops) == (2, 170, 100, 5)


def test_a_part_is_found_by_the_innermost_function() -> None:
    assert part_on_stack() == "other"
    parts = []

    class Noting(torch.nn.Identity):
        def forward(self, x: Tensor) -> Tensor:
            parts.append(part_on_stack())
            return x

    class Attending(Attention):
        def self_attend(self, qkv: Tensor, score: Score, layer: int) -> Tensor:
            return x

        def cross_attend(self, q: Tensor, keys_values: object, score: Score, layer: int) -> Tensor:
            raise NotImplementedError

    layer = EncoderLayer(ModelConfig(d_model=8, heads=2, d_ff=16), DropoutSource(), 0)
    layer.self_attention_norm = layer.feed_forward.inner = Noting()  # type: ignore[assignment]
    layer.self_attention.out = layer.feed_forward.outer = Noting()  # type: ignore[assignment]
    x = torch.ones(3, 8)
    layer(x, Attending())
    assert parts == ["attention", "layer tails", "feed-forward", "feed-forward"]
