"""Word alignments: the heads whose attention aligns words, and the links that their weights give.

A link joins a source word and a target word. The weights of a target word are the mean over its pieces; those
of a source word are the sum over its pieces. Each target word is linked to the source word with the largest
weight. EOS is not a word.

Shapes: T target pieces, S source tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from nmt.config import DecodingConfig, Shift
from nmt.copying.translation import Links
from nmt.data.subwords.vocabulary import NO_WORD
from nmt.errors import UserError
from nmt.model import Seq2Seq
from nmt.runtime.streams import log

Alignment: TypeAlias = Links
"""The links of a translation."""

HOW_TO_CHOOSE = (
    "nmt.load(DIR).choose_alignment_heads(pairs) chooses better ones, for decoding.alignment_heads"
)

_TIE = 1e-4  # rounding differs between batches, so weights that differ by less count as equal


@dataclass(frozen=True)
class AlignmentHeads:
    """The heads of one model whose mean attention aligns words.

    Attributes:
        heads: the layer and the number of each head, from 0. Empty: all heads of the last layer.
        shift: the step whose attention belongs to a target piece: `predicting` or `reading`.
    """

    heads: tuple[tuple[int, int], ...] = ()
    shift: Shift = Shift.predicting

    @classmethod
    def from_results(cls, results: Mapping[str, Any]) -> AlignmentHeads | None:
        """Returns the choice in `results.json`; None if there is none that can be used."""
        choice = results.get("alignment")
        if not isinstance(choice, Mapping):
            return None
        try:
            heads = tuple((int(layer), int(head)) for layer, head in choice["heads"])
            return cls(heads, Shift(choice["shift"]))
        except (KeyError, TypeError, ValueError):
            return None


def heads_of(
    models: Sequence[Seq2Seq], stored: Sequence[AlignmentHeads | None], config: DecodingConfig
) -> list[AlignmentHeads]:
    """Returns the heads that align words in each model: those of the options, else those stored with it.

    A model without either uses all heads of its last layer; this is logged.

    Raises:
        UserError: a model has no attention to the source, or no such head.
    """
    chosen = []
    for model, choice in zip(models, stored, strict=True):
        shape = model.attention_shape
        if shape is None:
            raise UserError(
                f"model.architecture={model.config.architecture}: this model has no attention to the source, "
                "so it can't align words."
            )
        if config.alignment_heads != "auto":
            heads = tuple((layer, head) for layer, head in config.alignment_heads)
            _check(heads, shape, config)
            choice = AlignmentHeads(heads, choice.shift if choice else Shift.predicting)
        elif choice is None or not all(_exists(head, shape) for head in choice.heads):
            if shape != (1, 1):
                log.info(
                    f"alignments: no heads were chosen for this model, so all of layer {shape[0] - 1} are "
                    f"used; {HOW_TO_CHOOSE}"
                )
            choice = AlignmentHeads()
        shift = choice.shift if config.alignment_shift is Shift.auto else config.alignment_shift
        chosen.append(AlignmentHeads(choice.heads, shift))
    return chosen


def _check(heads: Sequence[tuple[int, int]], shape: tuple[int, int], config: DecodingConfig) -> None:
    if not all(_exists(head, shape) for head in heads):
        raise UserError(
            f"decoding.alignment_heads={config.alignment_heads}: the model has the layers 0 to "
            f"{shape[0] - 1} with the heads 0 to {shape[1] - 1}. Choose among them."
        )


def _exists(head: tuple[int, int], shape: tuple[int, int]) -> bool:
    return 0 <= head[0] < shape[0] and 0 <= head[1] < shape[1]


def word_links(
    weights: Tensor, source_words: Sequence[int], target_words: Sequence[int], threshold: float = 0.0
) -> Alignment:
    """Links each target word to one source word, or to none.

    Args:
        weights: (T or more, S or more), the attention weights of each target piece.
        source_words: the number of the word of each source piece; S or less. Later positions, such as EOS,
            are not linked.
        target_words: the number of the word of each of the T target pieces.
        threshold: a target word is linked only if the source word has at least this weight.

    Returns:
        At most one link per target word. Of source words with equal weights the first one is linked.
    """
    sources, targets = np.array(source_words, np.int64), np.array(target_words, np.int64)
    columns, rows = np.flatnonzero(sources != NO_WORD), np.flatnonzero(targets != NO_WORD)
    if not len(columns) or not len(rows):
        return ()
    selected = weights[: len(targets), : len(sources)].double().numpy()[np.ix_(rows, columns)]
    summed = np.zeros((int(targets.max()) + 1, int(sources.max()) + 1))
    np.add.at(summed, (targets[rows][:, None], sources[columns][None]), selected)
    counts = np.bincount(targets[rows], minlength=len(summed))
    links = []
    for target in np.flatnonzero(counts).tolist():
        means = summed[target] / counts[target]
        if means.max() > 0 and means.max() >= threshold:
            links.append((int(np.argmax(means >= means.max() - _TIE)), target))
    return tuple(links)
