"""The coverage penalty of GNMT, which prefers hypotheses that attend to every source token.

Shapes: Y tokens of a hypothesis, EOS included; S positions of the longest source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from nmt.decoding.search import Hypothesis


def ranked_by_coverage(
    hypotheses: Sequence[Hypothesis], num_pieces: int, weight: float, count: int
) -> list[Hypothesis]:
    """Returns the best hypotheses by their score plus the coverage penalty.

    The penalty is weight * sum over i of log(min(sum over j of p[j, i], 1)), where p[j, i] is the attention
    of target token j to source token i (Wu et al. 2016, equation 14). Each sum is at least the smallest
    normal number, so that the logarithm is finite.

    Args:
        hypotheses: complete hypotheses with attention (Y, S), best first.
        num_pieces: number of source tokens that must be covered: those before EOS.
        weight: beta of the equation.
        count: the number of hypotheses to return.

    Returns:
        At most `count` hypotheses with their new scores, best first. Among equal scores the order remains.
    """
    smallest = torch.finfo(torch.float32).tiny
    scored = []
    for one in hypotheses:
        assert one.attention is not None
        covered = one.attention[:, :num_pieces].float().sum(0).clamp(smallest, 1.0)
        scored.append(replace(one, score=one.score + weight * float(covered.log().sum())))
    return sorted(scored, key=lambda one: -one.score)[:count]
