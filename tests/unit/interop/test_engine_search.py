"""CTranslate2 searches as nmt does: the same translations, scores, limits and strings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra export is not installed")

from exported_models import POST  # noqa: E402
from number_words import pairs  # noqa: E402

from nmt.config import DecodingConfig, Tie  # noqa: E402
from nmt.data.subwords.tokenizer import Tokenizer  # noqa: E402
from nmt.decoding.scorers import LengthPenalty  # noqa: E402
from nmt.decoding.search import Hypothesis  # noqa: E402
from nmt.decoding.searcher import SearchRequest, Sentence  # noqa: E402
from nmt.decoding.translation import Translation  # noqa: E402
from nmt.decoding.translator import Translator  # noqa: E402
from nmt.decoding.utf8 import Utf8  # noqa: E402
from nmt.errors import UserError  # noqa: E402
from nmt.interop.ctranslate2_export import vocabularies  # noqa: E402
from nmt.interop.ctranslate2_search import CTranslate2Searcher, equal_batches  # noqa: E402
from nmt.interop.record import Record  # noqa: E402

LINES = [source for source, _ in pairs(60, 9)]


@pytest.fixture(scope="module")
def both(model: Path, translator_of) -> tuple[Translator, Translator]:
    """The translators of nmt and of the engine."""
    return translator_of(model, "nmt"), translator_of(model, "ctranslate2")


def texts(found: Sequence[Translation]) -> list[str]:
    return [one.hypotheses[0].text for one in found]


def same(mine: Sequence[Translation], theirs: Sequence[Translation]) -> list[bool]:
    """Whether each line has the same best translation and score in both."""
    return [
        a.hypotheses[0].text == b.hypotheses[0].text
        and abs(a.hypotheses[0].score - b.hypotheses[0].score) < 1e-4
        and a.num_tokens == b.num_tokens
        for a, b in zip(mine, theirs, strict=True)
    ]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.4])
@pytest.mark.parametrize(("beam_size", "at_least"), [(1, 60), (4, 58)])
def test_searches_are_the_same(
    both: tuple[Translator, Translator], alpha: float, beam_size: int, at_least: int
) -> None:
    own, engine = (
        one.with_options(replace(one.config, beam_size=beam_size, length_penalty=alpha)).translate(LINES)
        for one in both
    )
    assert sum(same(own, engine)) >= at_least
    assert len(set(texts(own))) > 50


@pytest.mark.parametrize("beam_size", [1, 3])
def test_without_scores_the_text_is_the_same(both: tuple[Translator, Translator], beam_size: int) -> None:
    for one in both:
        translator = one.with_options(replace(one.config, beam_size=beam_size))
        assert texts(translator.translate(LINES, scores=False)) == texts(translator.translate(LINES))
    found = [one.hypotheses[0].score for one in translator.translate(LINES, scores=False)]
    if beam_size == 1:
        assert found.count(0.0) >= len(LINES) - 4  # a few are searched again, by a call that needs scores
    else:
        assert max(found) < 0


def test_nbest_lists_have_the_order_and_the_scores_of_nmt(
    both: tuple[Translator, Translator],
) -> None:
    own, engine = (
        one.with_options(replace(one.config, beam_size=4, nbest=4)).translate(LINES) for one in both
    )
    shared = 0
    for mine, theirs in zip(own, engine, strict=True):
        scores = [one.score for one in theirs.hypotheses]
        assert len(scores) == 4 and scores == sorted(scores, reverse=True)
        known = {one.text: one.score for one in mine.hypotheses}
        for one in theirs.hypotheses:
            if one.text in known:
                shared += 1
                assert one.score == pytest.approx(known[one.text], abs=1e-4)
    assert shared > 180  # of 240


class Scripted:
    """An engine that always finds the same hypotheses.

    Args:
        hypotheses: the ids of each, and its log-probability with EOS.
        tokenizer: of the model.
    """

    def __init__(self, hypotheses: Sequence[tuple[Sequence[int], float]], tokenizer: Tokenizer) -> None:
        names = vocabularies(tokenizer)[1]
        self.hypotheses = [[*(names[id] for id in ids), "</s>"] for ids, _ in hypotheses]
        self.log_probs = [log_prob for _, log_prob in hypotheses]
        self.scores: list[float] = []

    def translate_batch(self, sources: Sequence[object], length_penalty: float, **options: Any) -> list[Any]:
        pairs = zip(self.log_probs, self.hypotheses, strict=True)
        self.scores = [log_prob / len(pieces) ** length_penalty for log_prob, pieces in pairs]
        return [self] * len(sources)

    def result(self) -> Scripted:
        return self


def ranked(
    model: Path, source: Sequence[int], found: Sequence[tuple[Sequence[int], float]], **options: Any
) -> list[Hypothesis]:
    """The order of hypotheses that the engine finds."""
    tokenizer = Tokenizer.load(model)
    record = Record(
        source_lang="en",
        target_lang="de",
        format="ctranslate2",
        quantization="float32",
        max_source_tokens=100,
        max_target_tokens=100,
        decoding=DecodingConfig(),
        made_from="",
    )
    config = DecodingConfig(beam_size=4, nbest=3, **options)
    searcher = CTranslate2Searcher(Scripted(found, tokenizer), tokenizer, config, record, 1)
    [(index, hypotheses)] = searcher.search([Sentence(source)], SearchRequest())
    assert index == 0
    return hypotheses


def test_the_ranking_is_that_of_gnmt(model: Path) -> None:
    # |Y| counts EOS: (-6.0, 4 tokens) / (9/6)^1 = -4, (-6.5, 6 tokens) / (11/6)^1 = -3.545.
    found = ranked(model, [9], [([17, 18, 19], -6.0), ([17, 18, 19, 17, 18], -6.5)], length_penalty=1.0)
    assert [one.ids for one in found] == [(17, 18, 19, 17, 18), (17, 18, 19)]
    assert [round(one.score, 3) for one in found] == [-3.545, -4.0]
    assert found[0].score == pytest.approx(-6.5 / LengthPenalty(1.0).penalty(6))
    assert [one.log_prob for one in found] == pytest.approx([-6.5, -6.0])


def test_hypotheses_with_all_placeholders_come_first(model: Path) -> None:
    url, tag = Tokenizer.load(model).placeholders[:2]
    found = [([19], -1.0), ([19, url], -3.0), ([url, url], -2.0), ([url, tag], -1.5)]
    right, *others = ranked(model, [url, 19], found, length_penalty=0.0)
    assert right.ids == (19, url) and [one.ids for one in others] == [(19,), (url, tag)]
    for source, options in (([19], {}), ([url, 19], {"placeholders": False})):
        ids = [one.ids for one in ranked(model, source, found[:2], length_penalty=0.0, **options)]
        assert ids == [(19,), (19, url)]


def test_damaged_weights(model: Path) -> None:
    with pytest.raises(UserError, match="the probabilities of the export are NaN: its weights are damaged"):
        ranked(model, [9], [([17], math.nan)])


@pytest.mark.parametrize(("offset", "beam_size"), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 3), (5, 2)])
def test_maximum_lengths_are_exact(both: tuple[Translator, Translator], offset: int, beam_size: int) -> None:
    changes = {"max_length_factor": 0.0, "max_length_offset": offset, "beam_size": beam_size}
    own, engine = (one.with_options(replace(one.config, **changes)).translate(LINES) for one in both)
    assert max(one.num_tokens for one in engine) == offset
    assert sum(same(own, engine)) >= 57


def test_each_sentence_of_a_batch_has_its_own_limit(both: tuple[Translator, Translator]) -> None:
    # Half of the source: every translation is cut, each at another length, and all are in one batch.
    lines = ["one " * count for count in range(1, 7)]
    changes = {"max_length_factor": 0.5, "max_length_offset": 1, "beam_size": 1}
    own, engine = (one.with_options(replace(one.config, **changes)).translate(lines) for one in both)
    assert len({one.num_tokens for one in own}) >= 3
    assert all(same(own, engine))


def test_lines_of_any_content(both: tuple[Translator, Translator]) -> None:
    lines = [
        "",
        " \t ",
        "one two",
        "https://example.org",
        "<0x41> <s> </s> <unk>",
        "Größe 不 \u2028 x",
        "six " * 30,
    ]
    own, engine = (one.translate(lines) for one in both)
    assert texts(own)[:4] == texts(engine)[:4] == ["", "", "eins zwei", "https://example.org"]
    assert texts(own)[6] == texts(engine)[6]
    assert not any("\n" in text for text in texts(engine))


def test_a_long_source_is_cut_as_in_nmt(both: tuple[Translator, Translator]) -> None:
    lines = ["one two three four five six", "one two"]
    own, engine = (
        one.with_options(replace(one.config, max_source_tokens=4)).translate(lines) for one in both
    )
    assert [(one.truncated > 4, one.cut_to) for one in engine] == [(True, 4), (False, 4)]
    assert [one.truncated for one in own] == [one.truncated for one in engine]
    assert texts(own) == texts(engine)


def test_prefixes(both: tuple[Translator, Translator]) -> None:
    lines, prefixes = ["one two three", "nine", "four five", ""], ["zwei", "", "vier fünf sechs", "eins"]
    own, engine = (one.translate(lines, prefixes=prefixes) for one in both)
    for text, prefix in zip(texts(engine)[:3], prefixes, strict=False):
        assert text.startswith(prefix)
    assert all(same(own, engine))


def test_a_prefix_beyond_the_limit_is_the_translation(both: tuple[Translator, Translator]) -> None:
    changes = {"max_length_factor": 0.0, "max_length_offset": 2}
    own, engine = (
        one.with_options(replace(one.config, **changes)).translate(["one"], prefixes=["zwei drei vier"])
        for one in both
    )
    assert texts(engine) == ["zwei drei vier"]
    assert all(same(own, engine))


def test_no_repeated_ngrams(both: tuple[Translator, Translator]) -> None:
    lines = ["six six six six", "two two two", "one two"]
    own, engine = (
        one.with_options(replace(one.config, no_repeat_ngram=1, beam_size=1)).translate(lines) for one in both
    )
    assert all(same(own, engine))
    assert texts(engine)[0].count("sechs") == 1


def test_strings_are_copied_exactly_once(both: tuple[Translator, Translator]) -> None:
    engine = both[1]
    found = engine.translate(["one {x} two", "three https://example.org <b>four</b>"])
    for text, strings in zip(texts(found), (["{x}"], ["https://example.org", "<b>", "</b>"]), strict=True):
        assert [text.count(one) for one in strings] == [1] * len(strings)


def test_a_translation_does_not_depend_on_its_batch(both: tuple[Translator, Translator]) -> None:
    engine = both[1].with_options(replace(both[1].config, nbest=3))
    together, alone = engine.translate(LINES), [engine.translate([line])[0] for line in LINES]
    for a, b in zip(together, alone, strict=True):
        assert [one.text for one in a.hypotheses] == [one.text for one in b.hypotheses]
        assert [one.score for one in a.hypotheses] == pytest.approx(
            [one.score for one in b.hypotheses], abs=1e-4
        )


@dataclass(frozen=True)
class WithUnknown:
    """A result of the engine whose best hypothesis is the piece for unknown text."""

    real: Any
    scores: Sequence[float] = ()
    hypotheses: Sequence[Sequence[str]] = ()

    def result(self) -> WithUnknown:
        found = self.real.result()
        return WithUnknown(None, found.scores, [["<unk>", "</s>"], *found.hypotheses[1:]])


class Unknown:
    """The engine, but its first results have a forbidden piece."""

    def __init__(self, engine: Any) -> None:
        self.engine, self.suppressed = engine, []

    def translate_batch(self, *arguments: Any, **options: Any) -> Any:
        found = self.engine.translate_batch(*arguments, **options)
        if "asynchronous" in options:
            return [WithUnknown(one) for one in found]
        self.suppressed.append(options["suppress_sequences"])
        return found

    def score_batch(self, *arguments: Any, **options: Any) -> Any:
        return self.engine.score_batch(*arguments, **options)


def test_forbidden_pieces_are_searched_again(
    both: tuple[Translator, Translator], model: Path, translator_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, engines = ctranslate2.Translator, list[Unknown]()

    def loaded(*arguments: Any, **options: Any) -> Unknown:
        engines.append(Unknown(real(*arguments, **options)))
        return engines[-1]

    monkeypatch.setattr(ctranslate2, "Translator", loaded)
    found = translator_of(model, "ctranslate2").translate(LINES[:5])
    assert all(same(both[0].translate(LINES[:5]), found))
    assert engines[0].suppressed[0] == [["<pad>"], ["<s>"], ["<unk>"]]


def test_batches_are_a_multiple_of_the_workers(both: tuple[Translator, Translator]) -> None:
    config = both[0].config
    lengths = [5 + number % 40 for number in range(1000)]
    batches = equal_batches(lengths, config, 4)
    assert sorted(place for batch in batches for place in batch) == list(range(1000))
    assert len(batches) == 16  # 24,500 tokens, at most 2,048 in a batch, padding included: 14, and two more
    sizes = [max(lengths[one] for one in batch) * len(batch) for batch in batches]
    assert max(sizes) <= 1700 and sum(sizes) < 26_500
    assert [len(batch) for batch in equal_batches([5] * 6, replace(config, max_sentences=2), 1)] == [2, 2, 2]
    assert equal_batches([], config, 2) == []


def test_bytes_that_are_not_utf8_are_searched_again(
    bundle_of, translator_of, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random model writes such bytes in most lines; the engine alone has no rule against them."""
    folder = bundle_of(replace(POST, tie=Tie.none)).folder
    lines = LINES[:30]

    def num_replaced(found: Sequence[Translation]) -> int:
        return sum("\ufffd" in one.text for line in found for one in line.hypotheses)

    own, engine = (translator_of(folder, backend, max_length_offset=8) for backend in ("nmt", "ctranslate2"))
    for beam_size, at_least in ((1, 25), (4, 10)):
        options = {"beam_size": beam_size, "nbest": beam_size}
        found = [one.with_options(replace(one.config, **options)).translate(lines) for one in (own, engine)]
        assert [*map(num_replaced, found)] == [0, 0]
        assert sum(same(*found)) >= at_least
    prefixed = engine.translate(lines[:6], prefixes=["\u00e9", "x\u4f60"] * 3)
    assert num_replaced(prefixed) == 0 and texts(prefixed)[1].startswith("x\u4f60")
    [given] = texts(engine.translate(lines[:1], prefixes=["x\ufffdy"]))
    assert given.startswith("x\ufffdy") and "\ufffd" not in given[3:]
    monkeypatch.setattr(Utf8, "wrong", lambda self, ids: ())
    monkeypatch.setattr(Utf8, "whole", lambda self, ids: ids)
    assert num_replaced(engine.translate(lines)) >= 5
