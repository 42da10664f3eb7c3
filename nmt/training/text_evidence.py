"""Evidence about a finished run from its texts: pieces, held-out sources, and faults of the translations.

It is what `diagnosis` judges. A long text is judged by lines that are evenly spaced in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np

from nmt.copying.strings import WORD_START
from nmt.data.corpora.held_out import HeldOut
from nmt.data.preparation.encoding import Counts
from nmt.data.preparation.prepare import Prepared
from nmt.data.subwords.learning import recommended_size
from nmt.data.subwords.vocabulary import UNK_ID, Vocabulary
from nmt.evaluation.analysis.segments import sentence_chrf
from nmt.evaluation.analysis.signs import Count, Texts, counts_of
from nmt.languages import language_of
from nmt.runtime.arrays import Array

_MOST_LINES = 5000
_LONG = 0.99  # a source is long if it has more pieces than this share of the training sources


@dataclass(frozen=True)
class Pieces:
    """The pieces of a side of the training text.

    Attributes:
        lang: code of its language.
        tokens: number of pieces in the text.
        vocab_size: number of pieces in the vocabulary.
        per_word: pieces of a word; None for a language without spaces.
        median: occurrences of the piece of middle frequency, of those that occur, without bytes.
        byte_share: share of bytes and unknown pieces.
        perplexity: of the pieces with EOS, by their frequencies alone.
    """

    lang: str
    tokens: int
    vocab_size: int
    per_word: float | None
    median: float
    byte_share: float
    perplexity: float

    @classmethod
    def of(cls, counts: Array, sentences: int, vocabulary: Vocabulary, lang: str) -> Pieces:
        """Measures (V,) counts of the pieces of this many sentences."""
        names, tokens = vocabulary.names, int(counts.sum())
        is_byte = np.array([i == UNK_ID or vocabulary.is_byte(i) for i in range(len(counts))])
        words = sum(int(count) for name, count in zip(names, counts, strict=False) if name[:1] == WORD_START)
        used = counts[(counts > 0) & ~is_byte]
        shares = np.append(counts[counts > 0], sentences) / (tokens + sentences)
        return cls(
            lang=lang,
            tokens=tokens,
            vocab_size=len(names),
            per_word=tokens / words if words and language_of(lang).has_spaces else None,
            median=float(np.median(used)) if len(used) else 0.0,
            byte_share=float(counts[is_byte].sum()) / max(tokens, 1),
            perplexity=math.exp(-float(shares @ np.log(shares))),
        )


@dataclass(frozen=True)
class HeldOutEvidence:
    """A held-out text and its translations.

    Attributes:
        sentences: number of lines that were looked at.
        surprise: nats per character of its sources by the frequencies of the training pieces, relative to
            those of the training sources. It grows with unknown words, which have more and rarer pieces
            (as the cross-entropy of Moore and Lewis 2010).
        long_share: share of its sources that are longer than 99% of the training sources.
        chrf: mean chrF2 of its sentences.
        chrf_error: standard error of that mean.
        signs: name → how often the translations show a sign of faults; see `SIGNS`.
    """

    sentences: int
    surprise: float
    long_share: float
    chrf: float
    chrf_error: float
    signs: Mapping[str, Count] = field(default_factory=dict)


@dataclass(frozen=True)
class TextEvidence:
    """The evidence of all texts.

    Attributes:
        pairs: number of training pairs.
        recommended: size of a vocabulary that `auto` would have for them; 0 if the vocabulary was given.
        source: the pieces of the training sources.
        target: those of the training targets.
        held_out: `valid` or `test`, and the name of a set after a dot → its text.
    """

    pairs: int
    recommended: int
    source: Pieces
    target: Pieces
    held_out: Mapping[str, HeldOutEvidence]


def text_evidence(prepared: Prepared, translations: Mapping[str, Sequence[str]]) -> TextEvidence:
    """Collects the evidence; `translations` has those of each held-out text by the keys of `held_out`."""
    counts, tokenizer, facts = Counts.summed(prepared.train.more()), prepared.tokenizer, prepared.report
    sentences = prepared.train.num_pairs
    sides = (counts.source_piece_counts, tokenizer.source), (counts.target_piece_counts, tokenizer.target)
    source, target = (
        Pieces.of(count, sentences, vocabulary, facts[f"{side}_lang"])
        for side, (count, vocabulary) in zip(("source", "target"), sides, strict=True)
    )
    texts = {f"{split}.{name}" if name else split: text for split, name, text in _texts(prepared)}
    characters = sum(len(name) == 1 for name in tokenizer.target.names)
    recommended = recommended_size(sentences, characters, joint=tokenizer.joint)
    return TextEvidence(
        sentences,
        0 if prepared.given is not None else recommended,
        source,
        target,
        {key: _of_held_out(texts[key], lines, prepared, counts) for key, lines in translations.items()},
    )


def _texts(prepared: Prepared) -> list[tuple[str, str, HeldOut]]:
    splits = ("valid", prepared.valid), ("test", prepared.test)
    return [(split, name, text) for split, sets in splits for name, text in sets.items()]


def _of_held_out(
    text: HeldOut, translations: Sequence[str], prepared: Prepared, counts: Counts
) -> HeldOutEvidence:
    step = -(-len(text.sources) // _MOST_LINES)
    sources, references, lines = (
        list(part[::step]) for part in (text.sources, text.references, translations)
    )
    texts = Texts([references], sources, text.source_lang, text.target_lang)
    chrf = sentence_chrf(lines, texts)
    vocabulary, pieces = prepared.tokenizer.source, counts.source_piece_counts
    sizes = np.array([1 if vocabulary.is_byte(i) else len(name) for i, name in enumerate(vocabulary.names)])
    surprises = -np.log((pieces + 1) / (pieces.sum() + len(pieces)))
    usual = (pieces @ surprises) / max(pieces @ sizes, 1)
    encoded = [np.array(ids, np.int64) for ids in prepared.tokenizer.encode_source(sources)]
    found = np.bincount(np.concatenate(encoded), minlength=len(pieces))
    lengths = np.cumsum(counts.source_length_counts) / counts.source_length_counts.sum()
    longest = int(np.searchsorted(lengths, _LONG))
    return HeldOutEvidence(
        sentences=len(sources),
        surprise=float((found @ surprises) / max(found @ sizes, 1) / usual),
        long_share=fmean(len(ids) > longest for ids in encoded),
        chrf=fmean(chrf),
        chrf_error=stdev(chrf) / math.sqrt(len(chrf)) if len(chrf) > 1 else math.inf,
        signs=counts_of(texts, lines),
    )
