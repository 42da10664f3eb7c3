"""Tags placed in finished translations: the text is that without tags, and pairs enclose what they should."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_copied_strings import LINE, Random, texts, tokenizer, translator

from nmt.copying.strings import mask, tag_pairs
from nmt.data.subwords.vocabulary import SentencePieceVocabulary
from nmt.decoding.searcher import SearchRequest, Sentence
from nmt.decoding.translation import Translation
from nmt.decoding.translator import Translator


class Words(Random):
    """Writes no bytes, which are letters only together, and no symbols."""

    def step(self, ids: torch.Tensor, state: Any) -> Any:
        log_probs, state = super().step(ids, state)
        own = tokenizer()
        symbols = [i for i in range(self.vocab) if own.target.is_byte(i)] + [*own.source_symbols.values()]
        log_probs[:, :, symbols] -= 1000
        return log_probs, state


PARTS = ["<b>", "</b>", "<i>", "</i>", "<br/>", "{a}", "words", "of", "me", "see", ",", "1"]


@settings(max_examples=40, deadline=None)
@example([["<b>", "words", "</b>", "<b>"]], {})
@given(
    st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=12), min_size=1, max_size=4),
    st.sampled_from([{}, {"nbest": 3, "beam_size": 3}, {"beam_size": 1}, {"samples": 2}]),
)
def test_tags_do_not_change_the_translation(lines: list[list[str]], options: dict[str, Any]) -> None:
    given_lines = [" ".join(parts) for parts in lines]
    bare = [" ".join(part for part in parts if not part.startswith("<")) for parts in lines]
    model = translator(Words(tokenizer().source.size), max_sentences=2, **options)
    found, plain = model.translate(given_lines), model.translate(bare)
    for line, parts, with_tags, without in zip(given_lines, lines, found, plain, strict=True):
        if not any(part.isalnum() for part in parts):
            continue  # nothing to translate
        if not options.get("samples"):  # samples are those of the text with placeholders
            assert [letters(one.text) for one in with_tags.hypotheses] == [
                letters(one.text) for one in without.hypotheses
            ]
        for one in with_tags.hypotheses:
            check_tags(line, one.text)


def letters(text: str) -> str:
    """Returns a text without tags and white space."""
    return "".join(re.sub(r"<[^>]*>", "", text).split())


def check_tags(line: str, text: str) -> None:
    """Asserts that all tags are there, and that pairs enclose each other as in the source."""
    tags = [part for part in line.split() if part.startswith("<")]
    assert sorted(re.findall(r"<[^>]*>", text)) == sorted(tags)
    if len(set(tags)) < len(tags):
        return  # equal tags can't be told apart in a text
    strings = [one.text for one in mask(line).strings]
    pairs = [(text.index(strings[a]), text.index(strings[b])) for a, b, _ in tag_pairs(mask(line))]
    assert all(opening < closing for opening, closing in pairs)
    for (a, b), (c, d) in itertools.combinations(pairs, 2):
        assert b < c or d < a or a < c < d < b or c < a < b < d
    for (a, b, has_words), (begin, end) in zip(tag_pairs(mask(line)), pairs, strict=True):
        inside = [one for one in strings[a + 1 : b] if one.startswith("<")]
        assert all(begin < text.index(one) < end for one in inside)
        if has_words and len(pairs) == 1 and re.search(r"\w", re.sub(r"<[^>]*>|\{a\}", "", text)):
            assert re.search(r"\w", re.sub(r"<[^>]*>|\{a\}", "", text[begin:end]))


def placed(model: Translator, line: str, fixed: list[int]) -> tuple[tuple[int, ...], float]:
    """Returns the ids and the log-probability of a finished translation with the tags of a line."""
    masked = mask(line)
    [source] = tokenizer().encode_source([masked.text])
    sentence = Sentence(source, finished=fixed, tag_pairs=tag_pairs(masked))
    [(_, [best])] = model.searcher.search([sentence], SearchRequest())
    return best.ids, best.log_prob


def test_the_places_are_the_most_probable_ones() -> None:
    own = tokenizer()
    space, first = own.target.names.index("\u2581"), own.placeholders.start
    for text in ("words of", "see me", "of"):
        [fixed] = own.encode_target([text])
        pieces = own.target.pieces_of(fixed)
        breaks = [i for i, piece in enumerate(pieces) if piece.startswith("\u2581")] + [len(fixed)]
        every = set()
        for opening, closing in itertools.combinations_with_replacement(breaks, 2):
            for spaces in itertools.product([(), (space,)], repeat=2):
                ids = [
                    *fixed[:opening], *spaces[0], first,
                    *fixed[opening:closing], *spaces[1], first + 1, *fixed[closing:],
                ]  # fmt: skip
                if opening < closing:
                    every.add(tuple(ids))
        model = translator(Random(own.source.size), beam_size=64)
        ids, log_prob = placed(model, "<b>words of me</b>", fixed)
        source = own.encode_source([mask("<b>words of me</b>").text])[0]
        pairs = [*every]
        scores = dict(model.searcher.score([(source, one) for one in pairs], lambda num_pairs: None))
        best = max(range(len(pairs)), key=lambda row: sum(scores[row]))
        assert own.target.pieces_of(ids) == own.target.pieces_of(pairs[best])
        assert log_prob == pytest.approx(sum(scores[best]), abs=1e-4)


def test_it_can_be_switched_off() -> None:
    line = "words of <b>me</b>"
    model = Random(tokenizer().source.size)
    copied = translator(model, place_tags=False).translate([line])
    assert [texts(copied)[0].count(tag) for tag in ("<b>", "</b>")] == [1, 1]
    [source] = tokenizer().encode_source([mask(line).text])
    searcher = translator(model, place_tags=False).searcher
    [(_, [best])] = searcher.search([Sentence(source)], SearchRequest())
    assert best.score == copied[0].hypotheses[0].score


def test_prefixes_and_constraints_copy_tags() -> None:
    model = translator(Random(tokenizer().source.size))
    for found in (
        model.translate([LINE], prefixes=["words <b>"]),
        model.translate([LINE], constraints=[["others"]]),
    ):
        [one] = found
        assert isinstance(one, Translation)
        assert [one.hypotheses[0].text.count(tag) for tag in ("<b>", "</b>")] == [1, 1]
    assert texts(model.translate([LINE], prefixes=["words <b>"]))[0].startswith("words <b>")


def test_the_score_is_that_of_the_text() -> None:
    model = translator(Random(tokenizer().source.size), nbest=2)
    [found], [plain] = model.translate(["words <b>of</b> me"]), model.translate(["words of me"])
    assert [one.score for one in found.hypotheses] == [one.score for one in plain.hypotheses]


def test_a_model_with_a_maximum_length_copies_tags() -> None:
    model = Words(tokenizer().source.size)
    assert translator(model).searcher.places_tags
    model.max_target_len = 8
    short = translator(model)
    assert not short.searcher.places_tags
    [found] = short.translate(["<b>words</b> of <i>me</i>"])
    assert found.num_tokens <= 8
    assert [found.hypotheses[0].text.count(tag) for tag in ("<b>", "</b>", "<i>", "</i>")] == [1] * 4


def test_tags_are_placed_by_worker_processes() -> None:
    lines = ["words <b>of</b> me", "see", "<i>see</i> me {a}"] * 8
    model = Words(tokenizer().source.size)
    alone, together = (translator(model, max_sentences=2, workers=n).translate(lines) for n in (1, 2))
    assert texts(alone) == texts(together)


def test_worker_processes_do_not_read_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are forked for each call, so what they compute is computed again for each window of lines."""
    is_forked = False
    names = tokenizer().target.names

    def read_names(own: SentencePieceVocabulary) -> Sequence[str]:
        assert not is_forked
        return names

    monkeypatch.setattr(SentencePieceVocabulary, "names", property(read_names))
    model = translator(Random(tokenizer().source.size))
    run = model.searcher.run

    def fork(*job: Any) -> Any:
        nonlocal is_forked
        is_forked = True
        yield from run(*job)
        is_forked = False

    monkeypatch.setattr(model.searcher, "run", fork)
    [fixed] = tokenizer().encode_target(["words of"])
    placed(model, "<b>words of me</b>", fixed)


def test_tags_are_placed_in_each_candidate_of_mbr() -> None:
    model = translator(Random(tokenizer().source.size), nbest=3, beam_size=3)
    searcher = model.searcher.with_options(replace(model.config, mbr="chrf"))
    [fixed] = tokenizer().encode_target(["words of"])
    sentence = Sentence(fixed, finished=fixed)
    [(_, [best])] = searcher.search([sentence], SearchRequest())
    assert best.ids == tuple(fixed)
