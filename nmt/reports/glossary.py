"""Words of reports, each explained in one line; the sources of measures are named."""

from __future__ import annotations

from collections.abc import Iterable

from nmt.evaluation.analysis.signs import P_VALUE
from nmt.evaluation.scores import SIGNIFICANT

_TERMS = {
    "hypotheses": ("Hypotheses", "the translations of the system that is evaluated."),
    "references": ("References", "the translations that they are compared with, usually by people."),
    "bleu": (
        "BLEU",
        "0 to 100: how many sequences of 1 to 4 words are in the references (Papineni et al. 2002).",
    ),
    "chrf": ("chrF2", "0 to 100: the same of 1 to 6 characters, so parts of words count (Popović 2015)."),
    "chrfpp": ("chrF2++", "chrF2 with words and pairs of words (Popović 2017)."),
    "ter": ("TER", "edits for 100 words of the reference; 0 is perfect (Snover et al. 2006)."),
    "comet": (
        "COMET",
        "a model's guess of the judgement of people, from which it has learnt (Rei et al. 2020).",
    ),
    "interval": ("95% interval (±)", "the range of the scores of 95% of resampled test sets (Koehn 2004)."),
    "p": (
        "p-value",
        "the probability of such a difference between equally good systems; significant below "
        f"{SIGNIFICANT}, and for signs of faults below {P_VALUE}.",
    ),
    "sign test": (
        "Sign test",
        "gives the p-value of a sign, from the sentences where only one side shows it.",
    ),
    "update": ("Update", "one step of the training, which changes all weights of the model."),
    "loss": ("Loss", "how improbable the right tokens are for the model, in nats a token; lower is better."),
    "token": ("Token, piece", "a word or a part of a word; the vocabulary has all that the model can write."),
}
"""Key of a metric or another word → its name, and what it means."""


def explained(keys: Iterable[str]) -> list[tuple[str, str]]:
    """Returns the name and the meaning of each word that is known, in the order of this file."""
    wanted = {*keys}
    return [term for key, term in _TERMS.items() if key in wanted]
