"""What docs/transformer.md measures apart from its sentence pair: products, softmax, padding, chains.

All numbers are of seeded computations in fp64; none is a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from page_tables import Table
from position_experiments.results import chosen, read_results
from torch import Tensor

from nmt.config import ModelConfig, PositionsConfig
from nmt.data.batches.batching import Batch, Layout
from nmt.model import Seq2Seq, build_model
from nmt.model.attention import Dot, Pattern, ScaledDot, normalised, normalised_backward
from nmt.model.cpu.padded import PaddedAttention
from transformer_page.example import Example, below, shown

WIDTHS = (16, 64, 256, 512)
"""Widths of the keys."""
QUERIES, KEYS = 1000, 10
LENGTHS = (8, 16, 32, 64)
"""Tokens of each side, for the chains of operations."""
SENTENCES = 64
"""Sentences of a padded batch."""
PAD = "`[pad]`"


@cache
def random_vectors(width: int) -> tuple[Tensor, Tensor]:
    """Queries (QUERIES, 1, 1, E) and keys (QUERIES, 1, KEYS, E): independent, of mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(1)
    shape = (QUERIES, 1, KEYS + 1, width)
    vectors = torch.randn(shape, generator=generator, dtype=torch.float64)
    return vectors[:, :, :1], vectors[:, :, 1:]


def scaling() -> Table:
    """By width: the variance of q·k; then without and with scale, the largest weight, and its gradient.

    The gradient is that of the largest weight of a query with respect to its scores: the mean of its norm.
    """
    rows = []
    for width in WIDTHS:
        q, k = random_vectors(width)
        row = [str(width), shown(Dot(1, width)(q, k).var(), 0)]
        for kind in (Dot, ScaledDot):
            weights = normalised(kind(1, width)(q, k))
            largest = weights.max(-1, keepdim=True).values
            gradient = normalised_backward((weights == largest).to(weights.dtype), weights)
            row += [shown(largest.mean(), 3), shown(gradient.norm(dim=-1).mean(), 3)]
        rows.append(row)
    return Table(rows)


def softmax_examples() -> dict[tuple[int, bool], list[float]]:
    """(width, is scaled) → the weights of the first random query, largest first."""
    found = {}
    for width in (WIDTHS[0], WIDTHS[-1]):
        for kind in (Dot, ScaledDot):
            q, k = random_vectors(width)
            weights = normalised(kind(1, width)(q[:1], k[:1])).flatten()
            found[width, kind is ScaledDot] = weights.sort(descending=True).values.tolist()
    return found


def padded_mask(layout: Layout, *, causal: bool) -> Tensor:
    """The mask of self-attention for sentences padded to one length L: (1, L, L) causal, else (B, 1, L).

    The sentences are in ascending order of their lengths. The mask is -inf where a query must not see a key,
    otherwise 0.
    """
    pattern = Pattern(layout, layout, heads=1, width=1, scale=1.0, causal=causal)
    [mask] = PaddedAttention(pattern, overhead=1 << 40).masks(torch.float64)
    assert mask is not None
    return mask


def together(*examples: Example) -> Batch:
    """The pairs of the examples as one flat batch."""
    sides = [
        [(each.batch.source_ids if is_source else each.batch.target_out)[:-1].tolist() for each in examples]
        for is_source in (True, False)
    ]
    return Batch.of(*sides)


def causal_mask(example: Example, longer: Example) -> Table:
    """The mask of the decoder for a pair, padded to the length of a longer one."""
    names = padded_names(example.reads, longer.reads)
    [mask] = padded_mask(together(example, longer).target, causal=True)
    return Table([[name, *_mask_cells(row)] for name, row in zip(names, mask, strict=True)], names)


def key_mask(example: Example, longer: Example) -> Table:
    """The mask of the encoder for the source of a pair: one row, for all its queries."""
    mask = padded_mask(together(example, longer).source, causal=False)
    return Table([_mask_cells(mask[0, 0])], padded_names(example.source, longer.source))


def padded_names(names: Sequence[str], longer: Sequence[str]) -> list[str]:
    """The pieces of a sentence, padded to the length of a longer one."""
    return [*names, *[PAD] * (len(longer) - len(names))]


def _mask_cells(row: Tensor) -> list[str]:
    return ["−∞" if value < 0 else "0" for value in row.tolist()]


def padding_facts(example: Example, longer: Example, targets: Sequence[str]) -> dict[str, str]:
    """Tokens of two pairs, flat and padded; a pair alone and in the batch; padding of a corpus."""
    batch, lengths = together(example, longer), []
    alone = torch.cat([each.model(each.batch) for each in (example, longer)])
    for ids in example.tokenizer.encode_target(targets):
        lengths.append(len(ids) + 1)
    groups = [lengths[start : start + SENTENCES] for start in range(0, len(lengths), SENTENCES)]
    padded = sum(len(group) * max(group) for group in groups)
    return {
        "flat source tokens": str(len(batch.source_ids)),
        "cu_seqlens": str(batch.source.cu_seqlens.tolist()),
        "padded source tokens": str(batch.source.max_len * len(batch.source.lengths)),
        "alone and in a batch": below(example.model(batch) - alone),
        "padding of batches, percent": shown(100 * (1 - sum(lengths) / padded), 0),
        "sentences of a batch": str(SENTENCES),
    }


def chains(example: Example) -> Table:
    """By length: the longest chain of operations of the Transformer and of a recurrent model."""
    config = ModelConfig(
        architecture="rnn_attention",
        positions=PositionsConfig("none"),
        encoder_layers=1,
        decoder_layers=1,
        heads=1,
        d_model=example.model.config.d_model,
        dropout=0.0,
    )
    size = example.model.target_embedding.num_embeddings
    recurrent = build_model(config, size, size).double()
    return Table([[str(n), *(str(chain(model, n)) for model in (example.model, recurrent))] for n in LENGTHS])


def chain_facts(table: Table) -> dict[str, str]:
    """The operations by which the chain of the recurrent model grows with every token."""
    longest = [int(row[-1]) for row in table.rows]
    return {"operations per token": shown((longest[-1] - longest[-2]) / (LENGTHS[-1] - LENGTHS[-2]), 0)}


def chain(model: Seq2Seq, length: int) -> int:
    """The longest chain of recorded operations, each of which reads the result of another one.

    They are those of autograd, for one pair with this number of tokens per side.
    """
    ids = [[4] * (length - 1)]
    hidden = model(Batch.of(ids, ids))
    assert isinstance(hidden, Tensor)
    root = hidden.sum().grad_fn
    depths: dict[object, int] = {}
    open_nodes = [root]
    while open_nodes:
        node = open_nodes[-1]
        assert node is not None
        before = [each for each, _ in node.next_functions if each is not None]
        missing = [each for each in before if each not in depths]
        open_nodes += missing
        if not missing:
            depths[node] = 1 + max((depths[each] for each in before), default=0)
            open_nodes.pop()
    return depths[root]


def study_facts(path: Path) -> dict[str, str]:
    """Training speed of two models of the position study, in target tokens per second."""
    records = chosen(read_results(path), part="recurrence")
    speeds = {each["title"]: each["training"]["target_tokens_per_second"] for each in records}
    return {
        **{f"{name}, target tokens per second": shown(speed, 0) for name, speed in speeds.items()},
        "ratio of the speeds": shown(speeds["tiny"] / speeds["rnn"], 1),
    }
