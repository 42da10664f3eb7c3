"""Signs of hallucination that only the model can show: words that it does not align, and improbable lines.

A hallucination is fluent but detached from its source (Lee et al. 2018). The attention of such a text is on
no source word (Berard et al. 2019), and its log-probability is unusually low (Guerreiro et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from nmt.evaluation.analysis.signs import OUTLIER, Shown

if TYPE_CHECKING:
    from nmt.copying.translation import Links
    from nmt.decoding.translation import Translation

THRESHOLD = 0.5
"""A target word is aligned if one source word has at least this share of its attention: the majority."""
_FEW = 5
"""Words of a line that can show the sign; the share is too coarse in a shorter one."""
_MAJORITY = 0.5
"""The least share of unaligned words that is a sign. In captions and help texts 1% to 5% of the references
have more, and about half of the references of other sentences."""


@dataclass(frozen=True)
class ModelFacts:
    """What the model says about its translations, and about other translations of the same sources.

    Attributes:
        scores: the score of each translation in the search; empty if the hypotheses were given.
        token_scores: its log-probability per token, EOS counted; None if it is not known.
        unaligned: the share of unaligned words in each line of the hypotheses, of the baseline if there is
            one, and last of the first references; empty if words can't be aligned. See `unaligned_shares`.
    """

    scores: Sequence[float] = ()
    token_scores: Sequence[float | None] = ()
    unaligned: Sequence[Sequence[float | None]] = ()

    def signs_of(self, system: int) -> dict[str, tuple[Shown, Shown]]:
        """Returns the signs of the hypotheses (0) or of the baseline (1), for `counts_of`."""
        if not self.unaligned:
            return {}
        return {"unaligned": shown_unaligned(self.unaligned[system], self.unaligned[-1])}


def unaligned_shares(lines: Sequence[str], alignments: Sequence[Links]) -> list[float | None]:
    """Returns the share of the words of each line without a link; None for lines of a few words."""
    shares = []
    for line, links in zip(lines, alignments, strict=True):
        count = len(line.split())
        shares.append(1 - len(links) / count if count >= _FEW else None)
    return shares


def shown_unaligned(lines: Sequence[float | None], references: Sequence[float | None]) -> tuple[Shown, Shown]:
    """Returns which lines and which references have far more unaligned words than is usual in references.

    The limit is that of the outliers of Iglewicz and Hoaglin (1993), or the majority of the words.
    """
    known = [share for share in references if share is not None]
    middle = median(known) if known else 0.0
    spread = median(abs(share - middle) for share in known) if known else 0.0
    limit = max(_MAJORITY, middle + OUTLIER * spread)
    lines_shown, references_shown = (
        [None if share is None else share > limit for share in shares] for shares in (lines, references)
    )
    return lines_shown, references_shown


def token_scores(translations: Sequence[Translation], length_penalty: float) -> list[float | None]:
    """Returns the log-probability per token of the best hypothesis of each line, EOS counted.

    It is the score of the search without its length penalty, so it equals a forced score of the same tokens.
    A line in parts has none, and neither has a line that was not searched.
    """
    return [
        None
        if one.parts or not one.num_tokens
        else one.hypotheses[0].score * ((5 + one.num_tokens) / 6) ** length_penalty / one.num_tokens
        for one in translations
    ]
