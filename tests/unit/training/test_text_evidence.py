"""The evidence of texts: measures of pieces, held-out sources unlike the training, faults of translations."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_corpus import learnt, toy_pairs, write_corpus

from nmt.data.corpora.held_out import HeldOut
from nmt.data.preparation.prepare import prepare
from nmt.training.text_evidence import Pieces, text_evidence


def test_measures_of_pieces() -> None:
    vocabulary = learnt(toy_pairs(200), vocab_size=300).target
    counts = np.zeros(vocabulary.size, np.int64)
    starts = [i for i, name in enumerate(vocabulary.names) if name[0] == "▁" and len(name) > 1][:2]
    inner = next(i for i, name in enumerate(vocabulary.names) if len(name) == 1 and name.isalpha())
    byte = next(i for i in range(vocabulary.size) if vocabulary.is_byte(i))
    counts[[*starts, inner, byte]] = 4, 2, 5, 1
    pieces = Pieces.of(counts, 4, vocabulary, "de")
    assert (pieces.tokens, pieces.per_word, pieces.median) == (12, 2.0, 4.0)
    assert pieces.byte_share == pytest.approx(1 / 12)
    shares = [4 / 16, 2 / 16, 5 / 16, 1 / 16, 4 / 16]  # the last is that of EOS
    assert pieces.perplexity == pytest.approx(math.exp(-sum(share * math.log(share) for share in shares)))
    assert Pieces.of(counts, 4, vocabulary, "zh").per_word is None


def test_held_out_texts(tmp_path: Path) -> None:
    prepared = prepare(write_corpus(tmp_path, num_pairs=400))
    sources = ["MNOPQRSTUVWÄÖÜ 1234567890"] * 40
    other = HeldOut("other", sources, [f"Wort {row} und mehr davon" for row in range(40)], None, {})
    prepared = replace(prepared, test={"other": replace(other, source_lang="xx", target_lang="yy")})
    loops = ["und so weiter und " * 4 for _ in range(40)]
    valid = prepared.valid[""]
    evidence = text_evidence(prepared, {"valid": valid.references, "test.other": loops})
    ours, theirs = evidence.held_out["valid"], evidence.held_out["test.other"]
    assert (evidence.pairs, evidence.recommended) == (prepared.train.num_pairs, 2000)
    assert (ours.chrf, ours.chrf_error, ours.sentences) == (100.0, 0.0, 5)
    assert 0.8 < ours.surprise < 1.15 < theirs.surprise  # other characters
    assert not any(count.is_fault for count in ours.signs.values())
    assert [name for name, count in theirs.signs.items() if count.is_fault] == ["long", "loops"]
