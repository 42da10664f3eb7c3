"""Chooses the heads whose attention aligns words, without alignments made by people.

IBM Model 1 finds reliable links between the pieces of sentence pairs. The model decodes the given targets. A
head is scored by the share of these links on whose source piece its weight is largest. The attention of the
step that reads a piece often aligns it better than that of the step that predicts it (Chen et al. 2020), and
the best layer is often not the last one (Garg et al. 2019). So both steps and all layers are tried.

Shapes: L decoder layers, H heads, S source tokens of the longest sentence, N links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from nmt.config import Shift
from nmt.decoding.alignment import AlignmentHeads
from nmt.runtime.arrays import Array

FEWEST_LINKS = 20
"""With fewer reliable links, no heads are chosen."""
_MOST_CELLS = 3_000_000  # of IBM Model 1; about 5 seconds
_MOST_PAIRS, _MOST_PIECES = 200, 60  # that are decoded
_MOST_HEADS = 4
_GAIN = 0.005  # another head must improve the score by this share of the links


@dataclass(frozen=True)
class HeadChoice:
    """The choice and its quality.

    Attributes:
        heads: the chosen heads and their shift.
        agreement: the share of the reliable links that their mean attention agrees with.
        default_agreement: that of the mean over the heads of the last layer, with the better shift.
        links: the number of reliable links.
    """

    heads: AlignmentHeads
    agreement: float
    default_agreement: float
    links: int

    def as_dict(self) -> dict[str, Any]:
        """Returns the section `alignment` of `results.json`."""
        return {
            "heads": [list(head) for head in self.heads.heads],
            "shift": self.heads.shift.value,
            "agreement": round(self.agreement, 4),
            "default_agreement": round(self.default_agreement, 4),
            "links": self.links,
        }


def choose_heads(
    attention: Callable[[Sequence[Pair]], list[Tensor]], pairs: Sequence[Pair], more: Sequence[Pair] = ()
) -> HeadChoice | None:
    """Chooses the heads and the shift of a model.

    Args:
        attention: decodes given targets; returns for each pair (|Y|, L, H, S), the attention of all heads.
        pairs: sentence pairs; the first 200 that are neither empty nor longer than 60 pieces are decoded.
        more: pairs from which only IBM Model 1 learns, as far as they fit into its memory.

    Returns:
        The choice; None if there are fewer than `FEWEST_LINKS` reliable links.
    """
    decoded = [pair for pair in pairs if all(0 < len(side) <= _MOST_PIECES for side in pair)][:_MOST_PAIRS]
    links = reliable_links(_training_pairs(decoded, [*pairs, *more]))[: len(decoded)]
    if sum(map(len, links)) < FEWEST_LINKS:
        return None
    attention_of_pairs = attention(decoded)
    best = None
    default = 0.0
    for shift in (Shift.predicting, Shift.reading):
        weights, positions = _weights_of_links(attention_of_pairs, links, decoded, shift)
        default = max(default, _agreement(weights[:, -1].mean(1), positions))
        # A layer as a whole may be better than the few heads of the greedy search.
        for heads, agreement in (_greedy(weights, positions), *_layers(weights, positions)):
            if best is None or agreement > best[1]:
                best = AlignmentHeads(tuple(heads), shift), agreement
    assert best is not None
    return HeadChoice(*best, default, sum(map(len, links)))


def _training_pairs(decoded: Sequence[Pair], others: Sequence[Pair]) -> list[Pair]:
    """Returns the decoded pairs, then as many others as fit into memory."""
    chosen, seen = list(decoded), {id(pair) for pair in decoded}
    cells = sum(map(num_cells, chosen))
    for pair in others:
        if id(pair) not in seen and all(0 < len(side) <= _MOST_PIECES for side in pair):
            cells += num_cells(pair)
            if cells > _MOST_CELLS:
                break
            chosen.append(pair)
    return chosen


def _weights_of_links(
    attention: Sequence[Tensor], links: Sequence[Links], pairs: Sequence[Pair], shift: Shift
) -> tuple[Tensor, Tensor]:
    """Returns the weights of all heads for the target piece of each link, and its source position.

    Returns:
        (N, L, H, S), 0 at EOS and padding; and (N,) int64.
    """
    longest = max(len(source) for source, _ in pairs)
    rows, positions = [], []
    for weights, sentence, (source, _) in zip(attention, links, pairs, strict=True):
        for position, target in sentence:
            row = weights[target + (shift is Shift.reading), :, :, : len(source)]
            rows.append(torch.nn.functional.pad(row, (0, longest - len(source))))
            positions.append(position)
    return torch.stack(rows), torch.tensor(positions)


def _agreement(weights: Tensor, positions: Tensor) -> float:
    """Returns the share of the (N, S) weights whose largest one is at its position."""
    return float((weights.argmax(1) == positions).double().mean())


def _greedy(weights: Tensor, positions: Tensor) -> tuple[list[tuple[int, int]], float]:
    """Chooses heads one by one, as long as each improves the agreement of their mean enough."""
    shares = (weights.argmax(3) == positions[:, None, None]).double().mean(0)  # (L, H)
    order = shares.flatten().sort(descending=True, stable=True).indices[: 2 * _MOST_HEADS].tolist()
    candidates = [divmod(place, weights.shape[2]) for place in order]
    chosen, best = [candidates[0]], float(shares.max())
    summed = weights[:, candidates[0][0], candidates[0][1]]
    while len(chosen) < min(_MOST_HEADS, len(candidates)):
        rest = [head for head in candidates if head not in chosen]
        scores = [_agreement(summed + weights[:, layer, head], positions) for layer, head in rest]
        if max(scores) < best + _GAIN:
            break
        best = max(scores)
        chosen.append(rest[scores.index(best)])
        summed = summed + weights[:, chosen[-1][0], chosen[-1][1]]
    return chosen, best


def _layers(weights: Tensor, positions: Tensor) -> list[tuple[list[tuple[int, int]], float]]:
    """Returns all heads of each layer, and the agreement of their mean."""
    _, layers, heads, _ = weights.shape
    return [
        ([(layer, head) for head in range(heads)], _agreement(weights[:, layer].mean(1), positions))
        for layer in range(layers)
    ]


Pair: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""The ids of a source and of its target, without BOS and EOS."""

Links: TypeAlias = list[tuple[int, int]]
"""Positions of a source piece and of a target piece."""

_ITERATIONS = 5
_RELIABLE = 0.5
_NULL = -1


def reliable_links(pairs: Sequence[Pair], iterations: int = _ITERATIONS) -> list[Links]:
    """Returns the reliable links of each pair, in the order of the target positions.

    The model is trained on the same pairs, with a number of iterations of EM.
    """
    forward = _posteriors([(source, target) for source, target in pairs], iterations)
    backward = _posteriors([(target, source) for source, target in pairs], iterations)
    links = []
    for one_way, other_way in zip(forward, backward, strict=True):
        both = (one_way > _RELIABLE) & (other_way.T > _RELIABLE)
        links.append([(source, target) for target, source in np.argwhere(both).tolist()])
    return links


def num_cells(pair: Pair) -> int:
    """Returns the number of pairs of pieces that the training reads for a sentence pair."""
    return (len(pair[0]) + 1) * (len(pair[1]) + 1)


def _posteriors(pairs: Sequence[Pair], iterations: int) -> list[Array]:
    """Trains p(predicted | given) on pairs of given and predicted ids, and returns its posteriors.

    Returns:
        For each pair (predicted positions, given positions): the probability that a predicted piece was
        generated by each given piece. The rest belongs to the empty word.
    """
    shapes = [(len(predicted), len(given) + 1) for given, predicted in pairs]
    sizes = [rows * columns for rows, columns in shapes]
    if not sum(sizes):
        return [np.zeros((rows, columns - 1)) for rows, columns in shapes]
    # A cell is a predicted position with a given position or the empty word, in the order pair, row, column.
    given_of = np.concatenate([np.tile([*given, _NULL], len(predicted)) for given, predicted in pairs])
    predicted_of = np.concatenate([np.repeat(predicted, len(given) + 1) for given, predicted in pairs])
    kinds, cell_kinds = np.unique(
        (given_of.astype(np.int64) + 1) << 32 | predicted_of.astype(np.int64), return_inverse=True
    )
    givens = np.unique(kinds >> 32, return_inverse=True)[1]
    widths = np.concatenate([np.full(rows, columns, np.int64) for rows, columns in shapes])
    starts = np.cumsum(widths) - widths
    probabilities = np.ones(len(kinds))
    for iteration in range(iterations + 1):
        weights = probabilities[cell_kinds]
        weights /= np.repeat(np.add.reduceat(weights, starts), widths)
        if iteration < iterations:
            counts = np.bincount(cell_kinds, weights, minlength=len(kinds))
            probabilities = counts / np.bincount(givens, counts)[givens]
    cells = np.split(weights, np.cumsum(sizes)[:-1])
    return [cell.reshape(shape)[:, :-1] for cell, shape in zip(cells, shapes, strict=True)]
