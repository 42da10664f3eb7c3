"""The lines that the normalisation of each side changes: how many, and examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nmt.runtime.streams import log

if TYPE_CHECKING:
    from nmt.data.subwords.tokenizer import Tokenizer
    from nmt.data.subwords.vocabulary import Vocabulary

SAMPLE_PAIRS = 10_000
"""Number of pairs of a corpus whose normalisation is examined."""

NUM_EXAMPLES = 5

_CHARACTERS = 120  # of an example, at most
_CONTEXT = 12  # characters before a change in an example
_SHARE = 0.005  # of the target lines; a smaller one has no warning


def changes(pairs: Iterable[tuple[str, str]], tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns what the normalisation of each side changes in cleaned pairs.

    Returns:
        For `source` and `target`: `rule`, the normaliser; `lines` and `changed`, numbers of lines;
        `examples`, pairs of a changed part of a line and its normalised form.
    """
    sources, targets = zip(*pairs, strict=True) if (pairs := list(pairs)) else ((), ())
    return {"source": of_side(sources, tokenizer.source), "target": of_side(targets, tokenizer.target)}


def of_side(texts: Sequence[str], vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns what a vocabulary changes in texts; see `changes`."""
    pairs = zip(texts, vocabulary.normalized(texts), strict=True)
    changed = [(text, normal) for text, normal in pairs if text.strip(" ") != normal]
    return {
        "rule": vocabulary.rule,
        "lines": len(texts),
        "changed": len(changed),
        "examples": [_around_change(*lines) for lines in changed[:NUM_EXAMPLES]],
    }


def summed(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the changes of several corpora as those of one."""
    return {
        side: {
            **parts[0][side],
            **{key: sum(part[side][key] for part in parts) for key in ("lines", "changed")},
            "examples": [line for part in parts for line in part[side]["examples"]][:NUM_EXAMPLES],
        }
        for side in ("source", "target")
    }


def warn_of_changed_targets(facts: dict[str, Any], name: str) -> None:
    """Warns if a vocabulary can't write its targets as they are; `facts` are those of `of_side`.

    `name` says which lines they are, such as `the target lines`.
    """
    if facts["rule"] != "nfc" and facts["changed"] > _SHARE * facts["lines"]:
        raw, normal = facts["examples"][0]
        log.warning(
            "The model can't write %.1f%% of %s as they are: its target is normalised (%s), such as %r to "
            "%r. A new model with data.tokenizer.normalization.target=identity retains them.",
            100 * facts["changed"] / facts["lines"], name, facts["rule"], raw, normal,
        )  # fmt: skip


def _around_change(text: str, normal: str) -> list[str]:
    """Returns the parts of a line and its normalised form that begin shortly before the first difference."""
    text = text.strip(" ")
    equal = zip(text, normal, strict=False)
    place = next((i for i, (a, b) in enumerate(equal) if a != b), min(len(text), len(normal)))
    begin = max(0, place - _CONTEXT)
    shown = (line[begin : begin + _CHARACTERS + 1] for line in (text, normal))
    return [part if len(part) <= _CHARACTERS else f"{part[:-2]}…" for part in shown]
