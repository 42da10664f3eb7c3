"""Placeholders in the translator: models that copy, drop and repeat them, and the text that comes out."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_corpus import learnt
from toys import CopyModel, CopyState, pairs_of, tokenizer_with, translator_of

from nmt.config import DecodingConfig
from nmt.copying.strings import NUM_PLACEHOLDERS, PLACEHOLDERS
from nmt.data.subwords.vocabulary import EOS_ID
from nmt.decoding.translation import BLANK, Translation, problems
from nmt.decoding.translator import Translator

LINE = "see https://a.b/c?d=1, or <b>words</b> of {name} (%s) at me@x.yz"
STRINGS = ["https://a.b/c?d=1", "<b>", "</b>", "{name}", "%s", "me@x.yz"]


tokenizer = partial(tokenizer_with, "<2de>")


def translator(model: CopyModel | None = None, **options: Any) -> Translator:
    return translator_of(
        [model or CopyModel(tokenizer().source.size)],
        tokenizer(),
        DecodingConfig(**{"beam_size": 2, **options}),
    )


def texts(found: list[Translation]) -> list[str]:
    return [one.hypotheses[0].text for one in found]


class Dropping(CopyModel):
    """Copies the source without its placeholders."""

    def start(self, batch: Any) -> CopyState:
        state = super().start(batch)
        sources = [[i for i in one if i not in tokenizer().placeholders] for one in state.sources]
        return CopyState(sources, 0)


class Repeating(CopyModel):
    """Prefers placeholder 1 at every step."""

    def step(self, ids: torch.Tensor, state: CopyState) -> Any:
        log_probs, state = super().step(ids, state)
        return log_probs.index_fill(2, torch.tensor([tokenizer().placeholders[1]]), -0.01), state


class Random(CopyModel):
    """Probabilities that depend on the position and the last id alone; EOS is likely at first."""

    def step(self, ids: torch.Tensor, state: CopyState) -> Any:
        seeds = [[hash((state.position, one)) for one in row] for row in ids.tolist()]
        rows = [
            [torch.randn(self.vocab, generator=torch.Generator().manual_seed(seed & 0xFFFF)) for seed in row]
            for row in seeds
        ]
        log_probs = torch.stack([torch.stack(row) for row in rows]) * 3
        log_probs[:, :, EOS_ID] += 6
        return log_probs.log_softmax(2), CopyState(state.sources, state.position + 1, ids.shape[1])


def test_a_copy_is_the_same_text() -> None:
    twice = f"words {PLACEHOLDERS[5]} of {PLACEHOLDERS[5]}"
    lines = [LINE, "", "words", "<2de> words {a}", twice, "{a}{b} words"]
    found = translator().translate(lines)
    assert texts(found)[:3] == lines[:3]
    assert texts(found)[4:] == lines[4:]
    assert texts(found)[3].endswith("words {a}")  # the copy of a tag has no certain spacing
    assert [one.appended for one in found] == [0] * 6


def test_dropped_placeholders_are_placed_by_the_search() -> None:
    model = Dropping(tokenizer().source.size)
    [found] = translator(model, place_tags=False).translate([LINE])
    assert found.appended == 0
    # Two marks of a word remain where the model has dropped a placeholder.
    assert (
        found.hypotheses[0].text == "see , or  words  of  () at https://a.b/c?d=1 <b></b> {name} %s me@x.yz"
    )
    free = translator(Dropping(model.vocab), placeholders=False).translate(["see {name}"])
    assert texts(free) == ["see {name}"]  # not replaced, so there is nothing to drop


def test_repeated_placeholders_are_forbidden() -> None:
    model = Repeating(tokenizer().source.size)
    found = translator(model, place_tags=False).translate([LINE, "words of me"])
    text = found[0].hypotheses[0].text
    assert [text.count(one) for one in STRINGS] == [1] * 6
    assert text.startswith("<b>")
    assert texts(found)[1].strip() == ""  # a line without strings: all its placeholders are removed


@pytest.mark.parametrize("options", [{"nbest": 2}, {"samples": 3}, {"beam_size": 1}, {"workers": 2}])
@pytest.mark.parametrize("kind", [CopyModel, Dropping, Repeating, Random])
def test_every_hypothesis_has_every_string_once(kind: type[CopyModel], options: dict[str, Any]) -> None:
    lines = [LINE, "words {a} of {a}", "words", "{x} of <i>me</i>", *[LINE] * 3]
    model = kind(tokenizer().source.size)
    found = translator(model, max_sentences=2, **options).translate(lines)
    for one in (hypothesis.text for place in (0, 4, 5, 6) for hypothesis in found[place].hypotheses):
        assert [one.count(string) for string in STRINGS] == [1] * 6
    assert all(one.text.count("{a}") == 2 for one in found[1].hypotheses)
    assert all(
        [one.text.count(part) for part in ("{x}", "<i>", "</i>")] == [1] * 3 for one in found[3].hypotheses
    )
    assert len(found[0].hypotheses) == options.get("samples", options.get("nbest", 1))


PARTS = ["{a}", "{b}", "<i>", "</i>", "%s", "https://a.b", "words", "of", "see", ",", PLACEHOLDERS[2]]
HOSTILE = ["<", "<a ", "{", "%", "http://", "@", "\u202e", "\u200f", "\x00", "\x85", "\r"]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(PARTS + HOSTILE), max_size=8).map(" ".join), max_size=4),
    st.integers(1, 3),
)
def test_nothing_is_lost_and_neighbours_do_not_matter(lines: list[str], beam: int) -> None:
    model = Random(tokenizer().source.size)
    found = translator(model, beam_size=beam).translate(lines)
    for line, text in zip(lines, texts(found), strict=True):
        for part in {*PARTS[:6], PARTS[-1]}:
            assert text.count(part) == line.count(part)
    alone = [translator(model, beam_size=beam).translate([line])[0] for line in lines]
    assert texts(alone) == texts(found)
    assert [one.hypotheses[0].score for one in alone] == [one.hypotheses[0].score for one in found]


def test_prefixes_may_have_the_strings() -> None:
    lines = ["see {a} of {b}", "see {a}", "{a}", "words", "see {a}"]
    prefixes = ["words {b} of", "", "words", "of {a}", f"me {PLACEHOLDERS[0]} {{c}}"]
    found = translator(Random(tokenizer().source.size)).translate(lines, prefixes=prefixes)
    assert texts(found)[0].startswith("words {b} of") and texts(found)[0].count("{b}") == 1
    assert texts(found)[2].startswith("words") and texts(found)[2].count("{a}") == 1
    assert texts(found)[3].startswith("of {a}")
    # A placeholder of the text becomes U+FFFD, which the target retains.
    assert texts(found)[4].startswith("me \ufffd {c}") and texts(found)[4].count("{a}") == 1
    assert all(text.count("{a}") == 1 for text in texts(found)[:3])


def test_lines_of_strings_alone_are_not_translated() -> None:
    model = CopyModel(tokenizer().source.size)
    lines = ["https://a.b", " <p>", "{a}: {b}", " ".join(f"https://a.b/{i}" for i in range(10_000))]
    assert texts(translator(model).translate(lines)) == lines
    hidden = "{a}" * NUM_PLACEHOLDERS + " words {b}"  # the model would see placeholders alone
    [found] = translator(model).translate([hidden])
    assert (found.hypotheses[0].text, found.skipped) == (hidden, 7)
    assert model.batches == []
    assert translator(model).translate(["", " "]) == [BLANK] * 2


def test_what_has_no_room_is_appended_with_a_warning() -> None:
    options = {"max_length_factor": 0.0, "max_length_offset": 3, "place_tags": False}
    [found] = translator(Dropping(tokenizer().source.size), **options).translate([LINE])
    assert found.appended == 4
    text = found.hypotheses[0].text
    assert [text.count(one) for one in STRINGS] == [1] * 6
    assert problems(found, 1) == ["line 1: 4 URLs, tags or variables appended at the end of the translation"]
    [cut] = translator(max_source_tokens=4).translate([LINE])
    assert cut.truncated and cut.appended
    assert [cut.hypotheses[0].text.count(one) for one in STRINGS] == [1] * 6


def test_a_line_with_too_many_strings() -> None:
    line = "see " + " or ".join(f"{{v{number}}}" for number in range(1000)) + " words"
    [found] = translator().translate([line])
    assert found.hypotheses[0].text == line
    assert found.skipped == 4 * (1000 - NUM_PLACEHOLDERS)
    assert "3,744 characters between them not translated" in problems(found, 1)[0]


def test_scores_are_those_of_the_masked_pair() -> None:
    pairs = [("words {a} of", "words {a} of"), ("words {a} of", "words {b} of"), ("words of", "words of")]
    scored = pairs_of(translator()).score(pairs)
    ids = tokenizer().encode_target([f"words {PLACEHOLDERS[0]} of"])[0]
    assert len(scored[0].token_log_probs) == len(ids) + 1
    assert scored[0].log_prob == pytest.approx(-0.0625 * (len(ids) + 1))
    assert len(scored[1].token_log_probs) > len(ids) + 1
    raw = pairs_of(translator(placeholders=False)).score(pairs)
    assert len(raw[0].token_log_probs) == len(scored[1].token_log_probs)
    assert raw[2] == scored[2]


def test_a_vocabulary_without_placeholders_changes_nothing() -> None:
    plain = learnt([("some words {a}", "and others {a}")] * 9, vocab_size=300)
    assert not plain.placeholders
    model = CopyModel(plain.source.size)
    one = translator_of([model], plain, DecodingConfig())
    assert texts(one.translate(["{a} https://x.y", "{a}"])) == ["{a} https://x.y", "{a}"]
    assert len(model.batches) > 0


# Constraints and alignments


@pytest.mark.parametrize("kind", [CopyModel, Dropping, Repeating, Random])
def test_constraints_and_strings_are_both_in_the_translation(kind: type[CopyModel]) -> None:
    lines = [LINE, "words {a} of {a}", "words", "{x} of <i>me</i>", "https://a.b", ""]
    phrases = [["others", "me"], ["and the"], ["others"], [], ["others"], []]
    found = translator(kind(tokenizer().source.size)).translate(lines, constraints=phrases)
    for line, wanted, one in zip(lines, phrases, found, strict=True):
        text = one.hypotheses[0].text
        assert one.unmet == ()
        assert all(phrase in text for phrase in wanted), text
        for string in ("{a}", "{x}", "<i>", "https://a.b", *STRINGS):
            assert text.count(string) == line.count(string) or "https" in string, text
    assert found[4].hypotheses[0].text.count("https://a.b") == 1


def test_a_constraint_that_is_a_string_of_the_line_is_met_by_its_copy() -> None:
    lines, phrases = ["see {a} and {a}", "{a}", "see {a}"], [["{a}", "{a}"], ["{a}"], ["{a}", "see {b}"]]
    found = translator().translate(lines, constraints=phrases)
    assert texts(found)[:2] == lines[:2]
    assert texts(found)[2].count("{a}") == 1 and "see {b}" in texts(found)[2]
    assert [one.unmet for one in found] == [()] * 3


def test_terms_do_not_match_inside_strings() -> None:
    read: list[str] = []

    def terms(text: str) -> list[str]:
        read.append(text)
        return ["others"] if "see" in text.split() else ["words"]

    line = "see https://words.com/see"
    [found] = translator().translate([line], terminology=terms)
    [plain] = translator(placeholders=False).translate(["some {words}"], terminology=terms)
    assert read == [f"see {PLACEHOLDERS[0]}", "some {words}"]
    assert "others" in found.hypotheses[0].text and "words" in plain.hypotheses[0].text
    assert (found.unmet, plain.unmet) == ((), ())


def test_the_pieces_of_attention_have_the_strings_of_the_line() -> None:
    class Looking(CopyModel):
        def step_with_heads(self, ids: torch.Tensor, state: CopyState) -> Any:
            return *self.step(ids, state), torch.ones(*ids.shape, 1, 1, len(state.sources[0]))

    line = "words {name} of <b>"
    [found] = translator(Looking(tokenizer().source.size)).translate([line], attention=True)
    pieces = found.source_pieces
    assert "".join(pieces).replace("\u2581", " ").strip() == f"{line}</s>"
    assert {"{name}", "<b>"} <= set(pieces) and found.hypotheses[0].pieces == pieces
